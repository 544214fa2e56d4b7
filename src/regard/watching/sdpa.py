"""What a call of `torch.nn.functional.scaled_dot_product_attention` computes, read off its arguments."""

from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from regard.attention.problem import validate
from regard.errors import KindError
from regard.masks import And, Mask, causal, lengths
from regard.scores import ScaledDot
from regard.watching.intercepted import Intercepted
from regard.watching.mask_kind import NO_MASK, MaskReader, MaskReading
from regard.watching.owners import Owner

SOURCE = "scaled_dot_product_attention"


def read_sdpa(
    masks: MaskReader,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    packed: bool = False,
) -> Intercepted:
    """The call as a problem.

    Args:
        masks: analyses masks.
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa: the arguments of the call. Three axes are
            ``[batch, length, dim]``; with more than four, all but the last three are the batch.
        packed: whether the queries are the heads of a group, of one token (Hugging Face's trick for decoding).

    Raises:
        RegardError: the call is none that PyTorch computes.
    """
    if query.is_nested or key.is_nested or value.is_nested:
        return _read_nested(query, key, value, is_causal, scale)
    if is_causal and attn_mask is not None:
        raise KindError("attn_mask and is_causal are both given")
    reading = NO_MASK
    if attn_mask is not None:
        reading = masks.read(_mask_axes(attn_mask, query, key))
    elif is_causal:
        # PyTorch aligns the starts where the lengths differ.
        reading = causal_from_start(query.shape[-2], key.shape[-2])
    q, k, v = (_four_axes(tensor.detach()) for tensor in (query, key, value))
    if not q.shape[0] == k.shape[0] == v.shape[0]:
        batch = torch.broadcast_shapes(q.shape[:1], k.shape[:1], v.shape[:1])
        q, k, v = (tensor.expand(*batch, -1, -1, -1) for tensor in (q, k, v))
    if k.shape[1] != v.shape[1] or (not enable_gqa and k.shape[1] != q.shape[1]):
        # Heads broadcast as the batch does.
        heads = q.shape[1] if k.shape[1] == 1 or v.shape[1] == 1 else max(k.shape[1], v.shape[1])
        q = q.expand(-1, max(heads, q.shape[1]), -1, -1)
        k, v = (tensor.expand(-1, heads, -1, -1) for tensor in (k, v))
    if packed:
        q, reading = _unpacked(q, reading, masks, attn_mask)
    problem = validate(q, k, v, score=scaled_dot(scale), mask=reading.mask, bias=reading.bias)
    return Intercepted(
        source=SOURCE,
        mask=reading.kind,
        visible=reading.visible,
        problem=problem,
        value=v,
        causal=reading.causal,
        has_bias=reading.has_bias,
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        dropout=float(dropout_p),
    )


class SameCall(NamedTuple):
    """A call among those that differ in their numbers alone.

    Attributes:
        key: what they agree in: the shapes of query, key and value, then the rest.
        query, key_tensor: the numbers that weights are computed from, ``[batch, heads, length, dim]``.
    """

    key: tuple[object, ...]
    query: Tensor
    key_tensor: Tensor

    @property
    def has_others(self) -> bool:
        """Whether calls of this key differ in their numbers alone: four axes, of which nothing has to be broadcast."""
        query, key, value = shapes = cast("tuple[tuple[int, ...], ...]", self.key[:3])
        if any(len(shape) != 4 for shape in shapes):
            return False
        return query[:2] == key[:2] == value[:2] and query[3] == key[3] and key[2] == value[2]


def same_call(masks: MaskReader, owner: Owner, args: Any, kwargs: Any) -> SameCall | None:
    """What a call has in common with others of the same arguments but for their numbers; None where nothing is told.

    Args:
        masks: analyses masks.
        owner: whose call it is.
        args, kwargs: of `scaled_dot_product_attention`.
    """
    if len(args) < 3 or owner.packed:
        return None
    query, key, value = args[0], args[1], args[2]
    # The call ran, so all are nested or none, and on one device.
    if not type(query) is type(key) is type(value) is Tensor or query.is_nested:
        return None
    options = [*kwargs, *args[3:], *kwargs.values()]
    if not _CONSTANTS.issuperset(map(type, options)):
        for place, option in enumerate(options):
            if isinstance(option, Tensor):
                # Its reading is a new one where the mask changed.
                options[place] = masks.read(_mask_axes(option, query, key)).content
    alike = (
        query.shape, key.shape, value.shape, query.stride(), key.stride(), query.dtype, key.dtype, query.device,
        owner.groups, *options,
    )  # fmt: skip
    return SameCall(alike, query, key)


_CONSTANTS = frozenset({type(None), bool, int, float, str})
"""Types of options that are no tensors."""


@lru_cache(maxsize=16)
def scaled_dot(scale: float | None) -> ScaledDot:
    """The score of a scale: making one takes as long as the rest of a small call's validation."""
    return ScaledDot(scale)


@lru_cache(maxsize=16)
def causal_from_start(queries: int, keys: int) -> MaskReading:
    """The mask of ``is_causal=True``: the first query sees the first key."""
    mask = causal(align="start")
    return MaskReading("causal" if keys > 1 else "none", mask, None, mask, causal=queries > 1)


def _four_axes(tensor: Tensor) -> Tensor:
    if tensor.dim() == 4:
        return tensor
    if tensor.dim() > 4:
        return tensor.flatten(0, -4)
    return tensor[:, None] if tensor.dim() == 3 else tensor[None, None]


def _mask_axes(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask with four axes, which broadcasts to ``[batch, heads, queries, keys]``."""
    if query.dim() == 3 and mask.dim() == 3:
        mask = mask[:, None]
    elif query.dim() > 4 and mask.dim() > 3:
        mask = mask.expand(*query.shape[:-3], *mask.shape[-3:]).flatten(0, -4)
    mask = mask[(None,) * (4 - mask.dim())]
    return mask.expand(*mask.shape[:3], key.shape[-2])


def _unpacked(
    query: Tensor, reading: MaskReading, masks: MaskReader, given: Tensor | None
) -> tuple[Tensor, MaskReading]:
    """The heads of a group, which stand in the place of queries, as the heads of one query."""
    B, H, G, D = query.shape
    query = query.reshape(B, H * G, 1, D)
    if given is not None and given.dim() == 4 and given.shape[1] > 1:
        reading = masks.read(given.reshape(given.shape[0], H * G, 1, -1))
    return query, reading


def _read_nested(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None) -> Intercepted:
    """Sequences of different lengths, padded, and masked where they are padding."""
    q, q_lengths = pad_heads(query)
    k, k_lengths = pad_heads(key)
    v, _ = pad_heads(value)
    mask: Mask = lengths(k_lengths, q_lengths)
    if is_causal:
        mask = And(causal(align="start"), mask)
    problem = validate(q, k, v, score=ScaledDot(scale), mask=mask)
    kind = "causal+padding" if is_causal else "padding"
    used = q.shape[-1] ** -0.5 if scale is None else float(scale)
    return Intercepted(SOURCE, kind, mask, problem, value=v, causal=is_causal, scale=used)


def pad_heads(nested: Tensor) -> tuple[Tensor, list[int]]:
    """Nested ``[batch, heads, length, dim]`` as a dense tensor with zeros, and the lengths."""
    parts = [part.detach() for part in nested.unbind()]
    sizes = [part.shape[-2] for part in parts]
    padded = parts[0].new_zeros(len(parts), parts[0].shape[0], max(sizes, default=0), parts[0].shape[-1])
    for row, part in zip(padded, parts, strict=True):
        row[:, : part.shape[-2]] = part
    return padded, sizes
