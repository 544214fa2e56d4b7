"""Folders that are made once for all workers of a session, such as trained runs; no test changes them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import filelock


def shared_folder(tmp_path_factory, name: str, make: Callable[[Path], object]) -> Path:
    """Returns the folder of this name, a relative path. The first worker that needs it calls ``make(folder)``."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, state = base / "shared" / name, base / "shared" / name.replace("/", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    complete = state.with_suffix(".complete")
    with filelock.FileLock(state.with_suffix(".lock")):
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of an attempt that failed
            make(folder)
            complete.touch()
    return folder
