"""Which transforms of PyTorch a call runs under: kernels with a reverse mode only must not run under others."""

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad


def active_transform() -> str | None:
    """What takes a derivative, or maps, in a way that only differentiable PyTorch operations support; None if nothing.

    A forward-mode level or a ``torch.func`` transform (`grad`, `vmap`, `jvp`, `jacrev`, …) is active for whole regions
    of a program, so constants inside of one count as well.
    """
    if forward_ad._current_level >= 0:
        return "a forward-mode derivative is being taken"
    if peek_interpreter_stack() is not None:
        return "a torch.func transform is active"
    return None


def is_traced(tensor: Tensor) -> bool:
    """Whether a call is recorded or has shapes alone, so that nothing may depend on numbers.

    True while ``torch.compile`` or ``torch.export`` traces, for tensors on ``meta``, and for fake tensors.
    """
    return torch.compiler.is_compiling() or tensor.is_meta or isinstance(tensor, FakeTensor | FunctionalTensor)
