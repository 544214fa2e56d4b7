"""Compiling kernels once for a machine: how, where the results are kept, and what is said while it lasts.

A kernel's machine code is kept in a folder of the user's cache that is named after the sources of all kernels, so code
of another version is never found. Where no folder can be written, kernels are compiled once for each process.
"""

import hashlib
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

LOG = logging.getLogger("regard")

_LOCK = threading.RLock()

_ARITHMETIC = {"contract", "arcp", "reassoc", "nsz", "afn"}
"""Liberties with arithmetic that keep NaN and infinities what they are."""

inlined = numba.njit(error_model="numpy", fastmath=_ARITHMETIC, nogil=True)
"""A part of kernels: sums may be taken in another order, products contracted with sums."""

exact = numba.njit(error_model="numpy", fastmath={"contract"}, nogil=True)
"""A part of kernels whose order of operations matters."""


class Kernel:
    """A function of one address, compiled when it is first wanted.

    Args:
        body: ``(address) -> None``, in the part of Python that Numba compiles; every thread of a team calls it with
            the address of the same parameters.
    """

    def __init__(self, body: Callable[[int], None]):
        self.name = body.__name__
        self._body = body
        self._compiled: Any = None

    @property
    def address(self) -> int:
        """Of the machine code."""
        if self._compiled is None:
            with _LOCK:
                if self._compiled is None:
                    self._compiled = self._compile()
        return self._compiled.address

    def _compile(self) -> Any:
        signature, folder = numba.types.void(numba.types.int64), cache_folder()
        started, said = time.monotonic(), _announce(self.name, folder)
        options: dict[str, Any] = {"error_model": "numpy", "fastmath": _ARITHMETIC}
        if folder is None:
            compiled = numba.cfunc(signature, **options)(self._body)
        else:
            settings: Any = numba.config
            before = settings.CACHE_DIR
            settings.CACHE_DIR = str(folder)
            try:
                compiled = numba.cfunc(signature, cache=True, **options)(self._body)
            except OSError as error:
                # A disk that is full or was unmounted meanwhile: what matters is the kernel.
                LOG.warning("compiled kernels cannot be kept in %s: %s", folder, error)
                compiled = numba.cfunc(signature, **options)(self._body)
            finally:
                settings.CACHE_DIR = before
        if said:
            LOG.warning("compiled %r in %.0f s", self.name, time.monotonic() - started)
        if folder is not None:
            (folder / f"{self.name}.done").touch(exist_ok=True)
        return compiled


def _announce(name: str, folder: Path | None) -> bool:
    """Say that a kernel is about to be compiled, unless it was before; whether it was said."""
    if folder is not None and (folder / f"{name}.done").exists():
        return False
    kept = f"kept in {folder}" if folder else "for this process only: no cache folder can be written"
    LOG.warning("compiling the CPU kernel %r for this machine (%s) ...", name, kept)
    return True


@cache
def cache_folder() -> Path | None:
    """Where machine code is kept; None if nothing can be written.

    ``$REGARD_CACHE`` if it is set, else the user's cache folder, else the folder for temporary files.
    """
    own = os.environ.get("REGARD_CACHE")
    if own is not None:
        places = [Path(own)]
    else:
        user = os.environ.get("XDG_CACHE_HOME")
        places = [Path(user) if user else _home() / ".cache", Path(tempfile.gettempdir()) / f"regard-{_user()}"]
    for place in places:
        folder = place / "regard" / f"kernels-{_fingerprint()}"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError:
            continue
        # Machine code is loaded from here: it must not be a folder that somebody else made for us.
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            continue
        return folder
    return None


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir())


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


@cache
def _fingerprint() -> str:
    """Of everything that machine code depends on, besides the processor, which Numba itself tells apart."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {numba.__version__}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
