"""The worker that compiles kernels for a session of tests: it waits longer for the next one than a user's.

Kernels share parts, which a worker that was started for one kernel compiles anew; that takes longer than the kernel.
"""

from regard.kernels.cpu import compiling

if __name__ == "__main__":
    compiling.IDLE_SECONDS = 3600.0  # it ends with the session, whatever that is
    compiling._serve()
