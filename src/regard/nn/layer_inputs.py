"""The inputs of Transformer layers: their layouts, and masks in PyTorch's convention and in regard's.

=====================================  =======================  ==================  ============================
argument                               a bool tensor            a float tensor      a `Mask`, or its name
=====================================  =======================  ==================  ============================
``src_mask``, ``tgt_mask``,            True hides a key         added to scores     says itself who sees whom
``memory_mask``, ``attn_mask``
``*_key_padding_mask``                 True hides a key         added to scores     an error: write ``lengths=``
``mask``                               True: may attend         an error: ``bias``  says itself who sees whom
``mask`` of `TransformerEncoder`       an error: it is both     added to scores     says itself who sees whom
=====================================  =======================  ==================  ============================
"""

from functools import reduce
from operator import and_
from typing import NamedTuple

import torch
from torch import Tensor

from regard import masks
from regard.biases import Bias, as_bias, bias_for
from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import Mask, as_mask
from regard.nn.packing import Packing
from regard.nn.torch_inputs import TorchSizes, read_torch_masks
from regard.shapes.checks import check_floating, type_text
from regard.shapes.grid import Grid

Masking = Tensor | Mask | str
"""A mask argument: a tensor, a `Mask`, or the name of one."""

Biasing = Tensor | Bias | str
"""A bias argument: a tensor, a `Bias`, or the name of one."""


class Pairs(NamedTuple):
    """Which keys each query may see (None: all), and what is added to the scores (None: nothing)."""

    mask: Mask | None
    bias: Bias | None


class TorchMask(NamedTuple):
    """The arguments of one attention under PyTorch's names, whose tensors hide where they are True: a mask
    ``[queries, keys]`` or ``[batch * heads, queries, keys]``, with which ``is_causal`` is only a hint, its name, for
    messages, and padding ``[batch, keys]``, or ``[keys]`` if unbatched."""

    name: str
    mask: Masking | None
    padding: Tensor | None
    is_causal: bool | None

    @property
    def padding_name(self) -> str:
        """The name of ``padding``."""
        return self.name.removesuffix("mask") + "key_padding_mask"


def batch_first_input(name: str, tensor: Tensor, features: int | None, batch_first: bool) -> Tensor:
    """Returns an input as ``[batch, length, features]``; raises an error if it has another shape or dtype.
    ``batch_first`` is the layout of the layer; ``features`` None: any number."""
    check_floating(name, tensor)
    if tensor.dim() not in (2, 3) or (features is not None and tensor.shape[-1] != features):
        layout = "[batch, length, {0}]" if batch_first else "[length, batch, {0}]"
        axes = f"{layout}, or unbatched [length, {{0}}]".format("features" if features is None else features)
        raise ShapeError(f"{name} must be {axes}; it has shape {list(tensor.shape)}")
    return tensor[None] if tensor.dim() == 2 else in_layout(tensor, batch_first)


def output_like(input: Tensor, output: Tensor, batch_first: bool) -> Tensor:
    """Returns ``[batch, length, features]`` in the layout of a layer, or unbatched, as its input is."""
    return output[0] if input.dim() == 2 else in_layout(output, batch_first)


def in_layout(tensor: Tensor, batch_first: bool) -> Tensor:
    """Returns ``[batch, length, features]`` in the layout of a layer; it is its own inverse."""
    return tensor if batch_first else tensor.transpose(0, 1)


def read_pairs(
    torch_mask: TorchMask,
    mask: Masking | None,
    bias: Biasing | None,
    heads: int,
    input: Tensor,
    keys: int,
    is_batched: bool,
) -> Pairs:
    """Combines the masks of one attention in both conventions, and its bias, for queries
    ``[batch, queries, features]``; ``is_batched`` says whether the layer's own input has a batch."""
    name, hidden, padding, is_causal = torch_mask
    own, added = as_mask(mask), bias_for(bias, heads)
    if hidden is None and padding is None and not is_causal:
        return Pairs(own, added)
    parts = [own, masks.causal() if is_causal and hidden is None else None]
    if isinstance(hidden, (Mask, str)):
        parts.append(as_mask(hidden))
        hidden = None
    if isinstance(padding, (Mask, str)):
        raise KindError(
            f"{torch_mask.padding_name} must be a tensor (True: ignore) or None; it is {type_text(padding)}. A Mask "
            "belongs in mask=, and numbers of tokens in lengths="
        )
    if hidden is not None or padding is not None:
        batch, queries, _ = input.shape
        sizes = TorchSizes(batch if is_batched else None, heads, queries, keys, input.dtype, input.device)
        torch_part, torch_bias = read_torch_masks(padding, hidden, sizes, (torch_mask.padding_name, name))
        parts.append(torch_part)
        if torch_bias is not None:
            torch_bias = as_bias(torch_bias)
            added = torch_bias if added is None or torch_bias is None else added + torch_bias
    present = [part for part in parts if part is not None]
    return Pairs(reduce(and_, present) if present else None, added)


def stack_mask(src_mask: Masking | None, mask: Masking | None) -> tuple[Masking | None, Masking | None]:
    """Returns the masks of an encoder under PyTorch's name and under regard's, since ``mask`` is a name of both. Raises
    KindError if ``mask`` is a bool tensor, whose meaning would be a guess, and ArgumentError if both are tensors."""
    if not isinstance(mask, Tensor):
        return src_mask, mask
    if mask.dtype == torch.bool:
        raise KindError(
            "mask of a TransformerEncoder must not be a bool tensor: True hides a key in PyTorch, and shows it in "
            "regard; write src_mask=mask if True hides, or mask=masks.keep(mask) if True may attend"
        )
    if isinstance(src_mask, Tensor):
        raise ArgumentError("mask and src_mask are both tensors of PyTorch's convention; add them, and pass src_mask=")
    # A Mask or a name has no convention, so that the two may change places.
    return mask, src_mask


class HidingTensors(NamedTuple):
    """A mask ``[queries, keys]`` or ``[batch * heads, queries, keys]`` and padding ``[batch, keys]`` as the arguments
    of `torch.nn.MultiheadAttention`, where True means "ignore"; each may be None."""

    attn_mask: Tensor | None
    key_padding_mask: Tensor | None


def as_torch_masks(mask: Mask | None, bias: Bias | None, heads: int, query: Tensor, keys: Packing) -> HidingTensors:
    """Converts a mask and a bias, besides the padding of ``keys``, to arguments of `torch.nn.MultiheadAttention`.

    With a bias both masks are of numbers, and −inf hides. A bias must not depend on projected queries, still unknown.
    """
    grid = Grid.whole(query.shape[0], heads, query.shape[1], keys.shape[1], query.device)
    if bias is not None:
        bias.check(query[:, None], grid)
        added, visible = bias(query[:, None], grid).to(query.dtype), keys.visible(mask)
        if visible is not None:
            added = torch.where(visible.allows(grid), added, -torch.inf)
        return HidingTensors(_one_or_each(added, grid), None)
    padding = None
    if keys.has_padding and keys.lengths is not None:
        padding = grid.key_index.view(1, -1) >= keys.lengths[:, None]
    return HidingTensors(None if mask is None else _one_or_each(~mask.allows(grid), grid), padding)


def _one_or_each(tensor: Tensor, grid: Grid) -> Tensor:
    """Returns ``[queries, keys]`` if all batch rows and heads share it, and ``[batch * heads, queries, keys]`` else."""
    if tensor.shape[:-2].numel() > 1:
        return tensor.expand(grid.shape).flatten(0, 1)
    return tensor.reshape(tensor.shape[-2:]).expand(grid.queries, grid.keys)
