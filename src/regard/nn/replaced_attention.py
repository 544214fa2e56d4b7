"""Calls of a module that replaces a layer's attention, as a layer of ``torch.nn`` makes them."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.biases import Bias
from regard.errors import ArgumentError
from regard.masks import And, Mask
from regard.nn.packing import Packing, is_padding
from regard.sequence_parts import refuse_parts
from regard.shapes import Grid


class TorchMasks(NamedTuple):
    """A mask as the arguments of `torch.nn.MultiheadAttention`, where True means "ignore".

    Attributes:
        attn_mask: ``[queries, keys]``, or ``[batch * heads, queries, keys]`` if it differs between them; None: no mask.
        key_padding_mask: ``[batch, keys]``; None: no padding.
    """

    attn_mask: Tensor | None
    key_padding_mask: Tensor | None


def call_replaced(
    attention: nn.Module,
    query: Tensor,
    key: Tensor,
    masks: TorchMasks,
    batch_first: bool,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Calls a module that takes the arguments of `torch.nn.MultiheadAttention`.

    Args:
        attention: the module.
        query: ``[batch, queries, dim]``.
        key: ``[batch, keys, dim]``, also the value; the object ``query`` for self-attention.
        masks: the result of `torch_masks`.
        batch_first: the layout of the module if it has no attribute ``batch_first``.
        need_weights: whether to return the weights of each head.

    Returns:
        ``[batch, queries, dim]``, and the weights ``[batch, heads, queries, keys]`` or None.

    Raises:
        ArgumentError: the module returned no weights.
    """
    refuse_parts(f"a {type(attention).__name__} in the place of a layer's attention")
    batch_first = getattr(attention, "batch_first", batch_first)
    if not batch_first:
        transposed = query.transpose(0, 1)
        query, key = transposed, transposed if key is query else key.transpose(0, 1)
    options = {"average_attn_weights": False} if need_weights else {}
    result = attention(query, key, key, **masks._asdict(), need_weights=need_weights, is_causal=False, **options)
    output, weights = result if isinstance(result, tuple) else (result, None)
    if need_weights and weights is None:
        raise ArgumentError(
            f"the weights of the attention to the encoder's output are needed, but {type(attention).__name__}, which "
            "replaces multihead_attn, returned none with need_weights=True"
        )
    return output if batch_first else output.transpose(0, 1), weights if need_weights else None


def torch_masks(mask: Mask | None, grid: Grid, keys: Packing, bias: Bias | None, query: Tensor) -> TorchMasks:
    """Converts a mask and a bias to the arguments of `torch.nn.MultiheadAttention`.

    Args:
        mask: the mask, which also hides padding.
        grid: the grid of the attention; ``attn_mask`` is repeated for its heads.
        keys: the packing of the keys.
        bias: added to the scores; then both masks are of numbers, and −inf hides.
        query: ``[batch, queries, dim]``.

    Raises:
        ShapeError, KindError: the bias does not fit, or it depends on projected queries, which are unknown.
    """
    if bias is None:
        return _hidden(mask, grid, keys)
    bias.check(query[:, None], grid)
    added = bias(query[:, None], grid).to(query.dtype)
    if mask is not None:
        added = torch.where(mask.allows(grid), added, -torch.inf)
    return TorchMasks(_one_or_each(added, grid), None)


def _hidden(mask: Mask | None, grid: Grid, keys: Packing) -> TorchMasks:
    parts = mask.parts if type(mask) is And else (mask,) if mask is not None else ()
    padding = None
    if keys.index is not None and keys.lengths is not None:
        padding = grid.key_index.view(1, -1) >= keys.lengths[:, None]
    others = [part for part in parts if padding is None or not is_padding(part, keys)]
    if not others:
        return TorchMasks(None, padding)
    allowed = others[0].allows(grid)
    for part in others[1:]:
        allowed = allowed & part.allows(grid)
    return TorchMasks(_one_or_each(~allowed, grid), padding)


def _one_or_each(tensor: Tensor, grid: Grid) -> Tensor:
    """Returns ``[queries, keys]`` if all batch rows and heads share it, and ``[batch * heads, queries, keys]`` else."""
    if tensor.shape[:-2].numel() > 1:
        return tensor.expand(grid.shape).flatten(0, 1)
    return tensor.reshape(tensor.shape[-2:]).expand(grid.queries, grid.keys)
