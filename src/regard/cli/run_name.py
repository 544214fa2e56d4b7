"""Names that become a file or a folder of a run."""

from regard.errors import ArgumentError

MOST_BYTES = 200
"""Longest name, in bytes of UTF-8: file systems take 255, and some files get an ending."""


def check_name(option: str, name: str) -> str:
    """Return a name if it can be that of one file or folder.

    Args:
        option: the option that gave it, for messages.
        name: the name.

    Raises:
        ArgumentError: it is empty, too long, a path, or has characters that cannot be seen.
    """
    size = len(name.encode("utf-8", "surrogateescape"))
    if not name.strip():
        raise ArgumentError(f"{option} is empty; give a name")
    if size > MOST_BYTES:
        raise ArgumentError(f"{option} must have at most {MOST_BYTES} bytes; {name[:20]!r}... has {size}")
    if "/" in name or "\\" in name or name in (".", ".."):
        raise ArgumentError(f"{option} must be a name, not a path; it is {name!r}")
    if not name.isprintable():
        raise ArgumentError(f"{option} has characters that cannot be printed; it is {name!r}")
    return name
