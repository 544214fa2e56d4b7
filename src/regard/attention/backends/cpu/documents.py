"""Attention of short documents that are packed into one sequence, each by itself and as its rows are in memory.

A task of the kernel is a document and a head. It reads rows and gradients where a projection wrote them, without
padding and without copies of heads.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention.backends.cpu.inputs import is_softmax_of_products
from regard.attention.problem import CachedMemory, Problem
from regard.attention.result import Attended
from regard.kernels.cpu.packed_call import PackedCall, Sequences, runs
from regard.kernels.cpu.second_derivative import refuse_batched_gradients, refuse_second_derivative
from regard.masks import Band, Documents, Mask
from regard.masks.mask import joined_masks
from regard.normalizers.normalizer import safe_softmax
from regard.shapes.grid import Grid, upcast
from regard.tracing.transforms import can_branch_on, has_dense_cpu_storage, in_memory

ALL_KEYS = 1 << 40
"""A number of keys that exceeds every document: no limit before or after a query's own key."""


@dataclass(frozen=True)
class KnownOutput(CachedMemory):
    """The output ``[batch, heads, queries, value_dim]`` of documents, for the padded heads that a layer shows."""

    output: Tensor

    backend = "cpu"

    def declines(self, problem: Problem) -> str | None:
        return None

    def attend(self, problem: Problem) -> Attended:
        return Attended(self.output.to(problem.value.dtype), None)

    def select(self, index: Tensor) -> None:
        return None


def packed_call(problem: Problem) -> PackedCall | None:
    """Returns the arguments of the kernel for a problem of short documents; None if it is none, or has no such kernel.

    The kernel takes the softmax of inner products in float32 or half precision, under `regard.masks.documents` whose
    ids ascend, also with a causal mask or a window of the same tokens.
    """
    mask = problem.mask
    if mask is None or not any(type(part) is Documents for part in joined_masks(mask)):
        return None
    if not is_softmax_of_products(problem):
        return None
    query, value, prepared = problem.query, problem.value, problem.prepared
    assert not isinstance(prepared.scale, Tensor)
    has_heads = prepared.key.shape[:2] == value.shape[:2] and len(value) == len(query)
    sequences = _sequences(mask, problem.grid) if has_heads else None
    if sequences is None:
        return None
    sizes = problem.grid.heads, value.shape[1], float(prepared.scale)
    call = PackedCall(*sequences[:2], *sizes, *sequences[2:], problem.dropout)
    return call if runs(call, max(prepared.query.shape[3], value.shape[3])) else None


def _sequences(mask: Mask, grid: Grid) -> tuple[Sequences, Sequences, int, int] | None:
    """Returns the rows of queries and keys of each document, and how many keys before and after its own a query sees.

    None if the documents are not runs of rows, or if the kernel does not know another part of the mask.
    """
    rows, before, after, is_band = None, ALL_KEYS, ALL_KEYS, False
    for part in joined_masks(mask):
        if type(part) is Documents and rows is None:
            rows = part.rows(grid.batch)
        elif type(part) is Band and part.offset is None and grid.queries == grid.keys:
            is_band = True
            before = before if part.before is None else min(before, part.before)
            after = after if part.after is None else min(after, part.after)
        else:
            return None
    if rows is None or (is_band and not torch.equal(rows.query_starts, rows.key_starts)):
        return None
    queries = Sequences(rows.query_starts, rows.query_counts, rows.longest)
    return queries, Sequences(rows.key_starts, rows.key_counts, rows.longest), before, after


def attend_documents(call: PackedCall, problem: Problem) -> Tensor:
    """Returns the output ``[batch, heads, queries, value_dim]`` of a problem, differentiable in reverse mode."""
    if call.dropout:
        call = call._replace(seed=int(torch.randint(2**62, ()).item()))
    prepared = problem.prepared
    query, key, value = (_rows(upcast(heads)) for heads in (prepared.query, prepared.key, problem.value))
    if problem.wants_gradient:
        output = _AttendDocuments.apply(call, query, key, value)
    else:
        from regard.kernels.cpu.packed_attention import attend

        output = attend(call, query, key, value)
    return output.view(*problem.query.shape[::2], call.heads, -1).transpose(1, 2).to(problem.value.dtype)


def _rows(heads: Tensor) -> Tensor:
    """Returns ``[batch · length, heads · dim]`` with adjacent features, of ``[batch, heads, length, dim]``."""
    rows = heads.transpose(1, 2).flatten(2).flatten(0, 1)
    return rows if rows.stride(1) == 1 else rows.contiguous()


class _AttendDocuments(torch.autograd.Function):
    """Attention of rows, whose backward pass computes the weights again."""

    @staticmethod
    def forward(ctx: Any, call: PackedCall, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        from regard.kernels.cpu.packed_attention import attend

        ctx.call = call
        ctx.save_for_backward(query, key, value)
        return attend(call, query, key, value)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value = ctx.saved_tensors
        if can_branch_on(grad_output):
            grad_output = in_memory(grad_output)
        if torch.is_grad_enabled() or not has_dense_cpu_storage(grad_output):
            # A second derivative or a batch of gradients may be needed, or the kernel cannot read this gradient.
            return None, *gradients_by_operations(ctx.call, query, key, value, grad_output)
        from regard.kernels.cpu.packed_attention import gradients

        grads = [torch.empty_like(rows, memory_format=torch.contiguous_format) for rows in (query, key, value)]
        gradients(
            ctx.call, query=query, key=key, value=value, grad_output=grad_output.contiguous(), grad_query=grads[0],
            grad_key=grads[1], grad_value=grads[2],
        )  # fmt: skip
        return None, *grads


def gradients_by_operations(
    call: PackedCall, query: Tensor, key: Tensor, value: Tensor, grad_output: Tensor
) -> tuple[Tensor, ...]:
    """Computes the gradients by PyTorch's operations on padded rows, which are differentiable.

    Raises:
        BackendError: there is dropout, and only the kernels know which weights they dropped.
    """
    if call.dropout:
        refuse_batched_gradients(grad_output)
        refuse_second_derivative()
    group = call.heads // call.kv_heads
    q, grad = (_padded(rows, call.queries, call.heads) for rows in (query, grad_output))
    k, v = (_padded(rows, call.keys, call.kv_heads).repeat_interleave(group, dim=1) for rows in (key, value))
    scores = (q @ k.transpose(-1, -2) * call.scale).masked_fill(~_visible(call), -torch.inf)
    weights = safe_softmax(scores, -1)
    grad_weights = grad @ v.transpose(-1, -2)
    mean = (weights * grad_weights).sum(-1, keepdim=True)
    grad_scores = weights * (grad_weights - mean) * call.scale
    of_heads = grad_scores @ k, grad_scores.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ grad
    of_groups = (of.reshape(len(of), -1, group, *of.shape[2:]).sum(2) for of in of_heads[1:])
    return _packed(of_heads[0], call.queries), *(_packed(of, call.keys) for of in of_groups)


def _present(sequences: Sequences) -> Tensor:
    """Returns which positions of padded sequences are not padding, bool ``[batch, longest]``."""
    return torch.arange(sequences.longest) < sequences.counts[:, None]


def _padded(rows: Tensor, sequences: Sequences, heads: int) -> Tensor:
    """Pads packed rows with zeros to ``[batch, heads, longest, dim]``."""
    present = _present(sequences)
    index = torch.where(present, sequences.starts[:, None] + torch.arange(sequences.longest), 0)
    padded = torch.where(present[..., None], rows[index], 0.0)
    # `unflatten` does not support batches of gradients.
    return padded.reshape(*padded.shape[:-1], heads, -1).transpose(1, 2)


def _packed(heads: Tensor, sequences: Sequences) -> Tensor:
    """Packs the rows of padded heads: the inverse of `_padded`."""
    index = _present(sequences).flatten().nonzero()[:, 0]
    batch, count, length, dim = heads.shape
    return heads.transpose(1, 2).reshape(batch * length, count * dim)[index]


def _visible(call: PackedCall) -> Tensor:
    """Returns which pairs are visible, bool ``[batch, 1, queries, keys]``."""
    distance = torch.arange(call.keys.longest) - torch.arange(call.queries.longest)[:, None]
    near = (distance >= -call.before) & (distance <= call.after)
    return near & _present(call.keys)[:, None, None]
