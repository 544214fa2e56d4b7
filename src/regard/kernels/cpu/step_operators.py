"""The kernels as a decoder's steps call them: plain functions, whose caller keeps what the backward pass needs."""

import torch
from torch import Tensor

from regard.kernels.cpu.forward import forward
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.cpu.launch import launch, parameters
from regard.kernels.cpu.steps import keys_backward, step_backward
from regard.kernels.cpu.tanh_sum import even, padded_length


def look(call: KernelInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Output and weights before dropout of a step, and whether they are finite: int64 ``[1]``, 0 if all are."""
    query = call.query.contiguous()
    call = call._replace(query=query)
    batch, heads, queries, _ = query.shape
    output = query.new_empty(batch, heads, queries, call.value.shape[3])
    weights = query.new_empty(batch, heads, queries, call.key.shape[2])
    statistics = query.new_empty(batch, heads, queries, 2)
    nonfinite = query.new_zeros(1, dtype=torch.int64)
    record = parameters(
        call,
        output=output.data_ptr(),
        statistics=statistics.data_ptr(),
        returned_weights=weights.data_ptr(),
        nonfinite=nonfinite.data_ptr(),
    )
    launch(forward(query.dtype), record, batch * heads * -(-queries // call.block), call.work)
    return output, weights, nonfinite


def pass_to_query(
    call: KernelInputs, weights: Tensor, by_output: Tensor, by_weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A step's gradients of queries and of scores, its weights after dropout, and whether gradients are finite."""
    by_output = by_output.contiguous()
    by_weights = None if by_weights is None else by_weights.contiguous()
    query = call.query.contiguous()
    call = call._replace(query=query)
    by_query, by_scores = torch.empty_like(query), torch.empty_like(weights)
    mixed = torch.empty_like(weights) if call.dropout else weights
    nonfinite = query.new_zeros(1, dtype=torch.int64)
    record = parameters(
        call,
        returned_weights=weights.data_ptr(),
        mixed_weights=mixed.data_ptr(),
        grad_output=by_output.data_ptr(),
        grad_weights=0 if by_weights is None else by_weights.data_ptr(),
        grad_query=by_query.data_ptr(),
        grad_score=by_scores.data_ptr(),
        nonfinite=nonfinite.data_ptr(),
    )
    launch(step_backward(query.dtype), record, query.shape[0], 2.0 * call.work)
    return by_query, by_scores, mixed, nonfinite


def pass_to_keys(call: KernelInputs, by_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All steps' gradients of an additive score's keys and weight, and whether they are finite.

    Args:
        call: with the queries of all steps.
        by_scores: ``[batch, 1, queries, keys]``.
    """
    batch, _, keys, dim = call.key.shape
    query, by_scores = call.query.contiguous(), by_scores.contiguous()
    call = call._replace(query=query, start=None, stop=None, mask=None)
    by_keys = query.new_empty(batch, 1, even(dim), padded_length(keys))
    by_weight = query.new_zeros(batch, even(dim))
    nonfinite = query.new_zeros(1, dtype=torch.int64)
    record = parameters(
        call,
        grad_score=by_scores.data_ptr(),
        grad_key=by_keys.data_ptr(),
        grad_weight=by_weight.data_ptr(),
        nonfinite=nonfinite.data_ptr(),
    )
    launch(keys_backward(query.dtype), record, batch, 2.0 * call.work)
    return by_keys[:, :, :dim, :keys].transpose(-1, -2), by_weight[:, :dim].sum(0, keepdim=True), nonfinite
