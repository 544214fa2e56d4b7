"""The axes that signatures promise are the axes that tensors have, at each call.

That importing regard loads neither jaxtyping nor beartype is part of `test_house.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_annotated_shapes_hold_at_every_call(is_full):
    """jaxtyping and beartype check a grid of problems, and refuse every wrong shape, in a process of its own."""
    path = os.pathsep.join(filter(None, [str(TESTS / "support"), os.environ.get("PYTHONPATH")]))
    program = [
        sys.executable,
        "-B",
        "-W",
        "error::UserWarning",
        TESTS / "contracts" / "checked_calls.py",
        *["--full"] * is_full,
    ]
    ran = subprocess.run(program, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    calls, refused = map(int, ran.stdout.split())
    assert calls > (300 if is_full else 150)
    assert refused == 8
