"""The kernels for a decoder's steps: plain functions, whose caller saves what the backward pass needs."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.kernel_arguments import KernelInputs
from regard.kernels.cpu.launch import fill_arguments, launch
from regard.kernels.cpu.sizes import even_length
from regard.tracing.transforms import in_memory


def step(inputs: KernelInputs) -> tuple[Tensor, Tensor]:
    """Returns the output of a step and its weights before dropout."""
    query = in_memory(inputs.query).contiguous()
    inputs = inputs._replace(query=query)
    batch, heads, queries, _ = query.shape
    output = query.new_empty(batch, heads, queries, inputs.value.shape[3])
    weights = query.new_empty(batch, heads, queries, inputs.key.shape[2])
    statistics = query.new_empty(batch, heads, queries, 2)
    arguments = fill_arguments(inputs, inputs.block, output=output, statistics=statistics, returned_weights=weights)
    kernel, tasks = kernels.forward(inputs)
    launch(kernel, arguments, tasks, inputs.work)
    return output, weights


class MemorySums(NamedTuple):
    """Sums over steps: the gradients of an additive score's memory.

    Attributes:
        key: gradient of the keys, ``[batch, 1, keys, dim]``.
        weight: gradient of the weight for each batch row, ``[batch, even dim]``.
    """

    key: Tensor
    weight: Tensor

    @classmethod
    def unfilled(cls, inputs: KernelInputs) -> "MemorySums":
        """Returns unfilled sums; the first step of a backward pass fills them."""
        batch, _, _, dim = inputs.key.shape
        return cls(inputs.key.new_empty(inputs.key.shape), inputs.key.new_empty(batch, even_length(dim)))

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Returns the gradients of keys ``[batch, 1, keys, dim]`` and of the weight ``[1, dim]``."""
        return self.key, self.weight[:, : self.key.shape[3]].sum(0, keepdim=True)


def step_gradients(
    inputs: KernelInputs,
    weights: Tensor,
    grad_output: Tensor,
    grad_weights: Tensor | None,
    sums: MemorySums | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns a step's gradients of queries and of scores, and its weights after dropout.

    Args:
        weights: the step's weights before dropout.
        grad_output, grad_weights: gradients of the step's results.
        sums: unfilled sums of an additive score's memory, to which this step's terms are written; None if `add_steps`
            adds them.
    """
    grad_output = in_memory(grad_output).contiguous()
    grad_weights = None if grad_weights is None else in_memory(grad_weights).contiguous()
    query = in_memory(inputs.query).contiguous()
    inputs = inputs._replace(query=query)
    grad_query, grad_score = torch.empty_like(query), torch.empty_like(weights)
    mixed = torch.empty_like(weights) if inputs.dropout else weights
    arguments = fill_arguments(
        inputs,
        query.shape[2],
        returned_weights=weights,
        mixed_weights=mixed,
        grad_output=grad_output,
        grad_weights=grad_weights,
        grad_query=grad_query,
        grad_score=grad_score,
        grad_key=None if sums is None else sums.key,
        grad_weight=None if sums is None else sums.weight,
    )
    launch(kernels.step_backward(inputs), arguments, query.shape[0], 2.0 * inputs.work)
    return grad_query, grad_score, mixed


def add_steps(inputs: KernelInputs, grad_score: Tensor, sums: MemorySums) -> None:
    """Adds the terms of steps to the sums that an earlier step filled."""
    query, grad_score = in_memory(inputs.query).contiguous(), in_memory(grad_score).contiguous()
    inputs = inputs._replace(query=query, start=None, stop=None, mask=None)
    arguments = fill_arguments(inputs, grad_score=grad_score, grad_key=sums.key, grad_weight=sums.weight)
    launch(kernels.keys_backward(query.dtype), arguments, query.shape[0], 2.0 * inputs.work)
