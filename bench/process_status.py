"""What Linux says of the memory of this process."""

from pathlib import Path


def status(name: str) -> int:
    """A line of /proc/self/status, such as ``VmRSS``, in bytes; raises OSError if there is no such file or line."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no line {name}")
