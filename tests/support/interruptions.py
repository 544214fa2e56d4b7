"""Interrupts ``regard train`` at random moments and proves that the run is absent, complete or resumable each time.

Run it by itself for many moments: ``python tests/support/interruptions.py 50 [SIGINT SIGTERM SIGHUP SIGKILL]``.
"""

import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REGARD = [sys.executable, "-c", "from regard.cli import main; main()"]
OPTIONS = ["--bundled", "400", "--embedding", "6", "--hidden", "10", "--tokenizer", "word", "--vocabulary", "200",
           "--threads", "1", "--device", "cpu", "--epochs", "2", "--tokens-per-batch", "500", "--validation-pairs", "8",
           "--checkpoint-steps", "2"]  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    """The environment of a command, with a cache in the folder."""
    return {**os.environ, "HF_DATASETS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


def interrupt(folder: Path, number: signal.Signals, after: float) -> str:
    """Start a training, send it a signal after so many seconds, and judge what is left.

    Args:
        folder: an empty folder.
        number: the signal.
        after: seconds after the start of the command's own code.

    Returns:
        what was found, in one word.

    Raises:
        AssertionError: the command said what it should not, or left what it should not.
    """
    runs = folder / "runs of today"  # a name that a shell would split
    command = [*REGARD, "train", "translate", *OPTIONS, "--runs", str(runs), "--run", "x"]
    # The first byte on standard output says that Python has started: before that, no handler can be there.
    command[2] = f"import os; os.write(1, b'.'); {REGARD[2]}"
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(folder), cwd=folder
    )
    assert process.stdout is not None
    process.stdout.read(1)
    time.sleep(after)
    process.send_signal(number)
    error = process.communicate()[1].decode()
    assert "Traceback" not in error, error
    ended = process.returncode
    if ended == 0 or (ended == -number and number != signal.SIGKILL):
        # It was complete, or Python was already shutting down or not yet in our code.
        assert ended == 0 or not runs.exists() or (runs / "x" / "model.safetensors").exists(), error
        return "complete" if ended == 0 else "outside"
    assert ended == (-number if number == signal.SIGKILL else 128 + number), (ended, error)
    lines = [line for line in error.splitlines() if line.startswith("regard: stopped by")]
    assert len(lines) == (number != signal.SIGKILL), error
    if not (runs / "x").exists():
        assert not lines or "continue with" not in lines[0], error
        return "absent"
    if lines:
        said = lines[0].partition("continue with: ")[2]
        assert said, error
        resume = [*REGARD, *shlex.split(said)[1:]]
    else:
        resume = [*REGARD, "train", "translate", "--runs", str(runs), "--run", "x", "--resume"]
    again = subprocess.run(resume, capture_output=True, text=True, env=environment(folder), cwd=folder, check=False)
    assert again.returncode == 0, again.stderr
    assert (runs / "x" / "model.safetensors").exists()
    left = {path.name for path in runs.iterdir()}
    assert left == {"x"}, left
    assert not list(runs.rglob("*.tmp*")) or number == signal.SIGKILL
    return "resumed"


def main() -> None:
    """Interrupt as often as the first argument says."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it, and so would its processes
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    names = sys.argv[2:] or ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"]
    draws = random.Random(8)
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        command = [*REGARD, "train", "translate", *OPTIONS, "--runs", "runs", "--run", "whole"]
        subprocess.run(command, check=True, capture_output=True, env=environment(Path(folder)), cwd=folder)
        whole = time.monotonic() - started
        print(f"a whole training takes {whole:.1f} s", flush=True)
        for place in range(times):
            after = draws.uniform(0, 3.0 if place % 2 else whole)
            own = Path(folder) / str(place)
            own.mkdir()
            number = signal.Signals[names[place % len(names)]]
            outcome = interrupt(own, number, after)
            found[outcome] = found.get(outcome, 0) + 1
            print(f"{place + 1}: {number.name} after {after:.2f} s: {outcome}", flush=True)
    print(found)


if __name__ == "__main__":
    main()
