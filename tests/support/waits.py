"""Finds the operations for which Python waits for an accelerator, on tensors of a CPU."""

import traceback
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = {
    torch.ops.aten._local_scalar_dense.default: "a number is read",
    torch.ops.aten.equal.default: "a number is read",
    torch.ops.aten.nonzero.default: "a size depends on values",
    torch.ops.aten.masked_select.default: "a size depends on values",
    torch.ops.aten._unique2.default: "a size depends on values",
    torch.ops.aten.repeat_interleave.Tensor: "a size depends on values",
    torch.ops.aten.lift_fresh.default: "numbers of Python are copied",
}
"""Operators for whose results, or for whose copies from unpinned memory, the host waits."""

READ = ("tolist", "numpy", "cpu")
"""Methods of a tensor that read its elements without an operator where it is on the CPU."""


class Waits(TorchDispatchMode):
    """Notes each wait with its line: the innermost one in the folders of regard that are named.

    Attributes:
        found: ``"models/ctc.py:12: a number is read"``, each once for each time.
    """

    def __init__(self, *folders):
        super().__init__()
        self.folders, self.found = folders, []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        reason = WAITING.get(operator)
        if operator in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default):
            masks = [one for one in args[1] if one is not None and one.dtype == torch.bool]
            reason = "a mask selects elements" if masks else reason
        if reason:
            self.note(reason)
        return operator(*args, **(kwargs or {}))

    def note(self, reason):
        for frame in reversed(traceback.extract_stack()):
            parts = Path(frame.filename).parts
            if "regard" in parts and "src" in parts:
                path = parts[len(parts) - parts[::-1].index("regard") :]
                if path[0] in self.folders:
                    self.found.append(f"{'/'.join(path)}:{frame.lineno}: {reason}")
                return


@contextmanager
def waits_in(*folders):
    """A context in which waits of lines in these folders of regard are noted."""
    with Waits(*folders) as waits:
        methods = {name: getattr(torch.Tensor, name) for name in READ}
        try:
            for name, method in methods.items():
                setattr(torch.Tensor, name, _noting(waits, name, method))
            yield waits
        finally:
            for name in READ:
                delattr(torch.Tensor, name)


def _noting(waits, name, method):
    def noting(tensor, *arguments, **options):
        waits.note(f".{name}()")
        return method(tensor, *arguments, **options)

    return noting
