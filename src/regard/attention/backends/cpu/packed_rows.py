"""Attention of short sequences whose rows are packed, as the projections wrote them, without padding.

A layer of a Transformer has packed rows, and attends within each sequence. The kernel reads its rows and gradients as
they are. A call that is watched becomes a `Problem` of padded heads, which has the same output.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention.problem import CachedMemory, Problem
from regard.kernels.cpu.packed_call import PackedCall, Sequences
from regard.kernels.cpu.second_derivative import refuse_batched_gradients, refuse_second_derivative
from regard.normalizers.normalizer import safe_softmax
from regard.shapes import split_joined
from regard.transforms import can_branch_on, has_dense_cpu_storage, in_memory


@dataclass(frozen=True)
class PackedRows(CachedMemory):
    """The output of packed queries, for the problem of padded heads that a watched call becomes.

    Attributes:
        output: the output of that problem, ``[batch, heads, queries, value_dim]``, zeros for padding.
    """

    output: Tensor

    backend = "cpu"

    def declines(self, problem: Problem) -> str | None:
        return None

    def select(self, index: Tensor) -> None:
        return None


def attend_rows(call: PackedCall, products: Sequence[Tensor], widths: Sequence[int]) -> Tensor:
    """Returns the output ``[queries, heads · value_dim]``, differentiable in reverse mode.

    Args:
        call: the sizes and options of the call.
        products: packed rows, float32, with adjacent features; queries, keys and values are parts of one tensor or of
            several.
        widths: the widths of queries, keys and values.
    """
    if torch.is_grad_enabled() and any(product.requires_grad for product in products):
        return _Attend.apply(call, widths, *products)
    from regard.kernels.cpu.packed_attention import attend

    return attend(call, *split_joined(products, widths))


class _Attend(torch.autograd.Function):
    """Attention whose backward pass returns one tensor for each product; the kernel writes its parts."""

    @staticmethod
    def forward(ctx: Any, call: PackedCall, widths: Sequence[int], *products: Tensor) -> Tensor:
        from regard.kernels.cpu.packed_attention import attend

        ctx.call, ctx.widths = call, widths
        ctx.save_for_backward(*products)
        return attend(call, *split_joined(products, widths))

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        products = ctx.saved_tensors
        query, key, value = split_joined(products, ctx.widths)
        if can_branch_on(grad_output):
            grad_output = in_memory(grad_output)
        if torch.is_grad_enabled() or not has_dense_cpu_storage(grad_output):
            # A second derivative or a batch of gradients may be needed, or the kernel cannot read this gradient.
            grads = gradients_by_operations(ctx.call, query, key, value, grad_output)
            return None, None, *_joined(grads, products)
        from regard.kernels.cpu.packed_attention import gradients

        grads = tuple(torch.empty_like(product, memory_format=torch.contiguous_format) for product in products)
        grad_query, grad_key, grad_value = split_joined(grads, ctx.widths)
        gradients(
            ctx.call, query=query, key=key, value=value, grad_output=grad_output.contiguous(), grad_query=grad_query,
            grad_key=grad_key, grad_value=grad_value,
        )  # fmt: skip
        return None, None, *grads


def _joined(parts: Sequence[Tensor], products: Sequence[Tensor]) -> Iterator[Tensor]:
    """Joins the parts as the products have them."""
    remaining = list(parts)
    for product in products:
        inside, width = [], 0
        while width < product.shape[-1]:
            inside.append(remaining.pop(0))
            width += inside[-1].shape[-1]
        yield torch.cat(inside, dim=-1)


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
