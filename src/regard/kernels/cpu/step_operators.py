"""The kernels as a decoder's steps call them: plain functions, whose caller keeps what the backward pass needs."""

import torch
from torch import Tensor

from regard.kernels.cpu.forward import forward
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.cpu.launch import fill_arguments, is_wide, launch
from regard.kernels.cpu.sizes import ceil_div, even_length, padded_length
from regard.kernels.cpu.steps import keys_backward, step_backward


def step(inputs: KernelInputs) -> tuple[Tensor, Tensor]:
    """Output and weights before dropout of a step."""
    query = inputs.query.contiguous()
    inputs = inputs._replace(query=query)
    batch, heads, queries, _ = query.shape
    output = query.new_empty(batch, heads, queries, inputs.value.shape[3])
    weights = query.new_empty(batch, heads, queries, inputs.key.shape[2])
    statistics = query.new_empty(batch, heads, queries, 2)
    block = inputs.block
    record = fill_arguments(
        inputs,
        block,
        output=output.data_ptr(),
        statistics=statistics.data_ptr(),
        returned_weights=weights.data_ptr(),
    )
    launch(
        forward(query.dtype, inputs.weight is not None, inputs.normalizer, is_wide(query.dtype)),
        record,
        batch * heads * ceil_div(queries, block),
        inputs.work,
    )
    return output, weights


def step_gradients(
    inputs: KernelInputs, weights: Tensor, grad_output: Tensor, grad_weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """A step's gradients of queries and of scores, and its weights after dropout."""
    grad_output = grad_output.contiguous()
    grad_weights = None if grad_weights is None else grad_weights.contiguous()
    query = inputs.query.contiguous()
    inputs = inputs._replace(query=query)
    grad_query, grad_score = torch.empty_like(query), torch.empty_like(weights)
    mixed = torch.empty_like(weights) if inputs.dropout else weights
    record = fill_arguments(
        inputs,
        query.shape[2],
        returned_weights=weights.data_ptr(),
        mixed_weights=mixed.data_ptr(),
        grad_output=grad_output.data_ptr(),
        grad_weights=0 if grad_weights is None else grad_weights.data_ptr(),
        grad_query=grad_query.data_ptr(),
        grad_score=grad_score.data_ptr(),
    )
    launch(
        step_backward(query.dtype, inputs.weight is not None, inputs.normalizer, is_wide(query.dtype)),
        record,
        query.shape[0],
        2.0 * inputs.work,
    )
    return grad_query, grad_score, mixed


def memory_gradients(inputs: KernelInputs, grad_score: Tensor) -> tuple[Tensor, Tensor]:
    """All steps' gradients of an additive score's keys and weight.

    Args:
        inputs: with the queries of all steps.
        grad_score: ``[batch, 1, queries, keys]``.
    """
    batch, _, keys, dim = inputs.key.shape
    query, grad_score = inputs.query.contiguous(), grad_score.contiguous()
    inputs = inputs._replace(query=query, start=None, stop=None, mask=None)
    grad_key = query.new_empty(batch, 1, even_length(dim), padded_length(keys))
    grad_weight = query.new_zeros(batch, even_length(dim))
    record = fill_arguments(
        inputs,
        grad_score=grad_score.data_ptr(),
        grad_key=grad_key.data_ptr(),
        grad_weight=grad_weight.data_ptr(),
    )
    launch(keys_backward(query.dtype), record, batch, 2.0 * inputs.work)
    return grad_key[:, :, :dim, :keys].transpose(-1, -2), grad_weight[:, :dim].sum(0, keepdim=True)
