"""Attention to the keys that a list names for each query, without a dense mask: `regard.masks.columns`."""

from typing import Any

import torch
from torch import Tensor

from regard.attention.backends.cpu.inputs import is_softmax_of_products
from regard.attention.problem import Problem
from regard.kernels.cpu.column_call import ColumnCall
from regard.kernels.cpu.second_derivative import refuse_batched_gradients, refuse_second_derivative
from regard.masks import Columns, Mask
from regard.masks.mask import joined_masks
from regard.masks.spans import intersection_of
from regard.shapes.grid import Grid, upcast, with_one_grouping
from regard.tracing.transforms import has_host_data
from regard.tracing.versions import Versions

KEYS_PER_LISTED = 2
"""With a list of more than one in so many keys, products of whole matrices are faster."""


def column_call(problem: Problem) -> ColumnCall | None:
    """Returns the arguments of the kernel for a problem whose keys are listed; None if it has no such kernel.

    The kernel takes the softmax of inner products in float32 or half precision, without bias and dropout, under
    `regard.masks.columns`, also joined with masks that have one run of keys in each row.
    """
    mask = problem.mask
    if mask is None or not any(type(part) is Columns for part in joined_masks(mask)):
        return None
    if problem.dropout or not is_softmax_of_products(problem):
        return None
    scale = problem.prepared.scale
    assert not isinstance(scale, Tensor)
    return _call_of(mask, problem.grid, float(scale))


def _call_of(mask: Mask, grid: Grid, scale: float) -> ColumnCall | None:
    """Returns the call of a mask that has one list; None if the rest of it is not one run of keys in each row."""
    listed, spans = None, []
    for part in joined_masks(mask):
        if type(part) is Columns and listed is None:
            listed = part
        elif (runs := part.spans(grid)) is not None and runs.runs == 1:
            spans.append(runs)
        else:
            return None
    assert listed is not None
    is_short = KEYS_PER_LISTED * listed.index.shape[-1] * listed.size <= grid.keys
    if not is_short or not has_host_data(listed.index) or 0 in listed.index.shape or 0 in grid.shape:
        return None
    ends = intersection_of(spans) if spans else None
    start, stop = (None, None) if ends is None else (end[..., 0] for end in ends)
    return ColumnCall(listed.four_axes, listed.size, listed.query_size, start, stop, scale)


def attend_columns(call: ColumnCall, problem: Problem) -> Tensor:
    """Returns the output ``[batch, heads, queries, value_dim]`` of a problem, differentiable in reverse mode."""
    from regard.kernels.cpu.column_attention import attend

    prepared, grid = problem.prepared, problem.grid
    query, key, value = (upcast(tensor) for tensor in (prepared.query, prepared.key, problem.value))
    key, value = with_one_grouping(key, value, grid.batch, grid.heads)
    index = call.listed.to(torch.int64)
    call = call._replace(listed=index if index.stride(3) == 1 else index.contiguous())
    if problem.wants_gradient:
        output = _AttendColumns.apply(call, query, key, value)
    else:
        output, _ = attend(call, query, key, value)
    return output.to(problem.value.dtype)


class _AttendColumns(torch.autograd.Function):
    """Attention to listed keys, whose backward pass computes the weights again."""

    @staticmethod
    def forward(ctx: Any, call: ColumnCall, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        from regard.kernels.cpu.column_attention import attend

        output, lse = attend(call, query, key, value)
        ctx.call, ctx.versions = call, Versions(mask=call.listed)
        ctx.save_for_backward(query, key, value, lse)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_batched_gradients(grad_output)
        ctx.versions.check()
        return None, *_Gradients.apply(ctx.call, *ctx.saved_tensors, grad_output)


class _Gradients(torch.autograd.Function):
    """The gradients of attention to listed keys, which have no derivatives of their own."""

    @staticmethod
    def forward(ctx: Any, call: ColumnCall, *tensors: Tensor) -> tuple[Tensor, ...]:
        from regard.kernels.cpu.column_attention import gradients

        return gradients(call, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivative()
