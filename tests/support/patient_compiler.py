"""The worker that compiles kernels for a session of tests: it waits longer for the next one than a user's.

Kernels share parts, which a worker that was started for one kernel compiles anew; that takes longer than the kernel.
A kernel that two sessions need at the same time is compiled by one of them.
"""

import filelock

from regard.kernels.cpu import cache, compiling

_compile_and_store = compiling.compile_and_store


def compile_once(source: compiling.KernelSource) -> None:
    folder = cache.cache_folder()
    if folder is None:
        return _compile_and_store(source)
    path = source.path(folder).with_suffix(".lock")
    with filelock.FileLock(path):
        try:
            return _compile_and_store(source)
        finally:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    compiling.IDLE_SECONDS = 3600.0  # it ends with the session, whatever that is
    compiling.compile_and_store = compile_once
    compiling._serve()
