"""Commands in processes of their own that begin as copies of one which has imported regard.

A new interpreter takes seconds to import PyTorch; a copy of a running one takes none. What needs a process because it
is killed runs here; what tests the imports themselves starts an interpreter.
"""

import multiprocessing
import os
import signal
import sys
import time
import warnings
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver" if sys.platform != "win32" else "spawn")
_CONTEXT.set_forkserver_preload(["torch", "datasets", "lightning", "regard.cli.commands", "regard.training.run"])


def killed_command(arguments, folder, cache, checkpoint):
    """Calls ``regard`` in a process that dies, as by ``kill -9``, when a checkpoint of this number has been written.

    Args:
        arguments: of the command.
        folder: the directory that it runs in.
        cache: the folder of its tables.
        checkpoint: 1 for the first that is written.

    Returns:
        the exit code, and what it wrote on standard error.
    """
    log = Path(folder) / "killed.log"
    process = _CONTEXT.Process(target=_call, args=([*map(str, arguments)], folder, cache, checkpoint, log))
    process.start()
    process.join()
    return process.exitcode, log.read_text(encoding="utf-8")


def at_checkpoint(number, action):
    """A function in place of ``os.replace`` that acts when the checkpoint of this number has been put in its place."""
    replace, left = os.replace, [number]

    def replacing(source, target, **options):
        replace(source, target, **options)
        if os.path.basename(target).startswith("step-") and str(target).endswith(".ckpt"):
            left[0] -= 1
            if left[0] == 0:
                action()

    return replacing


def _call(arguments, folder, cache, checkpoint, log):
    import signal

    import datasets

    from regard import cli

    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    datasets.config.HF_DATASETS_CACHE = Path(cache)
    os.replace = at_checkpoint(checkpoint, lambda: os.kill(os.getpid(), signal.SIGKILL))
    sys.argv = ["regard", *arguments]
    cli.main()


def in_child(use, seconds=60):
    """The exit code of a forked child that does this: 0; 1 after an error; −9 if it had to be killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        child = os.fork()
    if not child:
        try:
            use()
            os._exit(0)
        finally:
            os._exit(1)
    for _ in range(20 * seconds):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
