"""The kernels as a decoder's steps call them: plain functions, whose caller keeps what the backward pass needs."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.kernel_arguments import KernelInputs, address_of
from regard.kernels.cpu.launch import fill_arguments, launch
from regard.kernels.cpu.sizes import even_length
from regard.transforms import in_memory


def step(inputs: KernelInputs) -> tuple[Tensor, Tensor]:
    """Output and weights before dropout of a step."""
    query = in_memory(inputs.query).contiguous()
    inputs = inputs._replace(query=query)
    batch, heads, queries, _ = query.shape
    output = query.new_empty(batch, heads, queries, inputs.value.shape[3])
    weights = query.new_empty(batch, heads, queries, inputs.key.shape[2])
    statistics = query.new_empty(batch, heads, queries, 2)
    record = fill_arguments(
        inputs,
        inputs.block,
        output=address_of(output),
        statistics=address_of(statistics),
        returned_weights=address_of(weights),
    )
    kernel, tasks = kernels.forward(inputs)
    launch(kernel, record, tasks, inputs.work)
    return output, weights


class MemorySums(NamedTuple):
    """Sums over steps: the gradients of an additive score's memory.

    Attributes:
        key: ``[batch, 1, keys, dim]``.
        weight: of each batch row, ``[batch, even dim]``.
    """

    key: Tensor
    weight: Tensor

    @classmethod
    def unfilled(cls, inputs: KernelInputs) -> "MemorySums":
        """Memory for the sums, which the first step of a backward pass fills."""
        batch, _, _, dim = inputs.key.shape
        return cls(inputs.key.new_empty(inputs.key.shape), inputs.key.new_empty(batch, even_length(dim)))

    def gradients(self) -> tuple[Tensor, Tensor]:
        """The gradients of keys ``[batch, 1, keys, dim]`` and of the weight ``[1, dim]``."""
        return self.key, self.weight[:, : self.key.shape[3]].sum(0, keepdim=True)


def step_gradients(
    inputs: KernelInputs,
    weights: Tensor,
    grad_output: Tensor,
    grad_weights: Tensor | None,
    sums: MemorySums | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A step's gradients of queries and of scores, and its weights after dropout.

    Args:
        inputs: with the step's queries.
        weights: of the step, before dropout.
        grad_output, grad_weights: gradients of its results.
        sums: of an additive score's memory, unfilled: this step's terms are written there. None: `add_steps` gets them.
    """
    grad_output = in_memory(grad_output).contiguous()
    grad_weights = None if grad_weights is None else in_memory(grad_weights).contiguous()
    query = in_memory(inputs.query).contiguous()
    inputs = inputs._replace(query=query)
    grad_query, grad_score = torch.empty_like(query), torch.empty_like(weights)
    mixed = torch.empty_like(weights) if inputs.dropout else weights
    record = fill_arguments(
        inputs,
        query.shape[2],
        returned_weights=address_of(weights),
        mixed_weights=address_of(mixed),
        grad_output=address_of(grad_output),
        grad_weights=address_of(grad_weights),
        grad_query=address_of(grad_query),
        grad_score=address_of(grad_score),
        grad_key=0 if sums is None else address_of(sums.key),
        grad_weight=0 if sums is None else address_of(sums.weight),
    )
    launch(
        kernels.step_backward(inputs),
        record,
        query.shape[0],
        2.0 * inputs.work,
    )
    return grad_query, grad_score, mixed


def add_steps(inputs: KernelInputs, grad_score: Tensor, sums: MemorySums) -> None:
    """Add the terms of steps to the sums that an earlier step began.

    Args:
        inputs: with the queries of these steps.
        grad_score: ``[batch, 1, queries, keys]``.
        sums: of an additive score's memory.
    """
    query, grad_score = in_memory(inputs.query).contiguous(), in_memory(grad_score).contiguous()
    inputs = inputs._replace(query=query, start=None, stop=None, mask=None)
    record = fill_arguments(
        inputs,
        grad_score=address_of(grad_score),
        grad_key=address_of(sums.key),
        grad_weight=address_of(sums.weight),
    )
    launch(kernels.keys_backward(query.dtype), record, query.shape[0], 2.0 * inputs.work)
