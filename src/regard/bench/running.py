"""Inputs and a function → a call that can be timed: with or without gradients, compiled or not."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.bench.task import Inputs, Outputs, Ready

ALL = slice(None)

Bound = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""

Bind = Callable[[Inputs], Bound]
"""Inputs → what is to be called. Everything that costs time once is done here."""


def torch_ready(bind: Bind, gradients: Sequence[str] = (), *, compiled: bool = False) -> Callable[[Inputs], Ready]:
    """The `build` of a contender that runs on PyTorch.

    Args:
        bind: gives function and arguments.
        gradients: inputs whose gradients are part of the task; that of the output is the input ``gradient``.
        compiled: whether the function goes through `torch.compile`, whole and for these shapes only.
    """

    def build(inputs: Inputs) -> Ready:
        leaves = {name: inputs[name].detach().clone().requires_grad_() for name in gradients}
        function, arguments = bind({**inputs, **leaves})
        if compiled:
            # Compiled code is kept for each function; without a reset, the eighth shape would silently run eagerly.
            torch._dynamo.reset()
            function = torch.compile(function, fullgraph=True, dynamic=False)
        if not gradients:
            return Ready(lambda: function(*arguments), as_outputs)
        return Ready(*pulled(lambda: function(*arguments), leaves, inputs["gradient"]))

    return build


def pulled(
    forward: Callable[[], Tensor], leaves: dict[str, Tensor], gradient: Tensor
) -> tuple[Callable[[], Any], Callable[[Any], Outputs]]:
    """A call that runs forward and backward, and what reads it."""
    tensors = list(leaves.values())

    def call() -> tuple[Tensor, ...]:
        output = forward()
        # What was prepared once, before the first call, is differentiated through in every call.
        return output, *torch.autograd.grad(output, tensors, gradient, retain_graph=True)

    def read(raw: Any) -> Outputs:
        names = ("output", *(f"gradient of {name}" for name in leaves))
        return {name: tensor.detach() for name, tensor in zip(names, raw, strict=True)}

    return call, read


def as_outputs(raw: Any) -> Outputs:
    """What a call on PyTorch gave: a tensor is the output, a dict names its tensors."""
    found = raw if isinstance(raw, dict) else {"output": raw}
    return {name: tensor.detach() for name, tensor in found.items()}
