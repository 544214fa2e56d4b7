"""Calls that can be timed: a PyTorch function with its inputs, with or without gradients, compiled or not."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bench.task import Inputs, Outputs, PreparedCall

ALL = slice(None)

FunctionAndArguments = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""

Bind = Callable[[Inputs], FunctionAndArguments]
"""Inputs → the function and its arguments. Work that is done once for many calls is done here."""


def torch_builder(
    bind: Bind, gradients: Sequence[str] = (), *, compiled: bool = False
) -> Callable[[Inputs], PreparedCall]:
    """The `build` of an implementation that runs on PyTorch.

    Args:
        bind: gives the function and its arguments.
        gradients: names of the inputs whose gradients the call computes; ``grad_output`` is the output's gradient.
        compiled: whether `torch.compile` compiles the function, without graph breaks and for these shapes only.
    """

    def build(inputs: Inputs) -> PreparedCall:
        leaves = {name: inputs[name].detach().clone().requires_grad_() for name in gradients}
        function, arguments = bind({**inputs, **leaves})
        if compiled:
            # PyTorch stores compiled code for each function; without a reset, the eighth shape would run eagerly.
            torch._dynamo.reset()
            function = torch.compile(function, fullgraph=True, dynamic=False)
        if not gradients:
            return PreparedCall(lambda: function(*arguments), as_outputs)
        return PreparedCall(*with_gradients(lambda: function(*arguments), leaves, inputs["grad_output"]))

    return build


def with_gradients(
    forward: Callable[[], Tensor], leaves: dict[str, Tensor], grad_output: Tensor
) -> tuple[Callable[[], Any], Callable[[Any], Outputs]]:
    """A call that runs the forward and the backward pass, and a function that names its results."""
    tensors = list(leaves.values())

    def call() -> tuple[Tensor, ...]:
        output = forward()
        # The graph of what was prepared before the first call is needed in every call.
        return output, *torch.autograd.grad(output, tensors, grad_output, retain_graph=True)

    def read(raw: Any) -> Outputs:
        names = ("output", *(f"gradient of {name}" for name in leaves))
        return {name: tensor.detach() for name, tensor in zip(names, raw, strict=True)}

    return call, read


def as_outputs(raw: Any) -> Outputs:
    """The result of a call as outputs by name; a single tensor is ``output``."""
    found = raw if isinstance(raw, dict) else {"output": raw}
    return {name: tensor.detach() for name, tensor in found.items()}
