"""Groups of processes that are one `torch.distributed` group, for tests of what they do together.

Starting processes costs more than what most tests do in them; so a group is started once, and calls functions of
modules in the folder of tests, by their names.
"""

import contextlib
import importlib
import multiprocessing
import os
import sys
import tempfile
import traceback

_CONTEXT = multiprocessing.get_context("forkserver" if sys.platform != "win32" else "spawn")

PRELOADED = [
    "torch.distributed.tensor", "regard.distributed", "regard.attention.sharding.execution", "regard.training.run",
    "regard.tasks.language", "regard.tasks.translate", "regard.exports.programs", "datasets", "lightning.fabric",
    "pydantic", "sacrebleu",
]  # fmt: skip
"""What a server imports once, and the processes of all groups, which are copies of it, have."""


class ProcessGroup:
    """Some processes with a gloo group.

    Args:
        processes: how many.
    """

    def __init__(self, processes):
        self.folder = tempfile.TemporaryDirectory()
        _CONTEXT.set_forkserver_preload(PRELOADED)
        self.pipes, self.processes = [], []
        for rank in range(processes):
            own, other = _CONTEXT.Pipe()
            arguments = rank, processes, os.path.join(self.folder.name, "store"), other, list(sys.path)
            process = _CONTEXT.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            other.close()
            self.pipes.append(own)
            self.processes.append(process)

    def call(self, module, function, *arguments):
        """Calls a function ``(rank, processes, *arguments)`` in every process.

        Returns:
            what each of them returned.

        Raises:
            AssertionError: with the text of the first error.
        """
        for pipe in self.pipes:
            pipe.send((module, function, arguments))
        answers = [pipe.recv() for pipe in self.pipes]
        errors = [f"process {rank}: {error}" for rank, (error, _) in enumerate(answers) if error]
        assert not errors, "\n".join(errors)
        return [result for _, result in answers]

    def close(self):
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(10)
            process.kill()
        self.folder.cleanup()


def _serve(rank, processes, store, pipe, path):
    sys.path[:] = path
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
    while (task := pipe.recv()) is not None:
        module, function, arguments = task
        try:
            answer = "", getattr(importlib.import_module(module), function)(rank, processes, *arguments)
        except Exception:
            answer = traceback.format_exc(), None
        pipe.send(answer)
    torch.distributed.destroy_process_group()
