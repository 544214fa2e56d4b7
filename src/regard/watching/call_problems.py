"""What each function of attention computes, read off the arguments of the call: one section for each function.

PyTorch computes attention in five functions; regard's own calls are problems already. Each reader returns an
`Intercepted`: the call as a `Problem` of regard, with detached tensors, and what its mask is. The call itself runs
unchanged; where the model projects queries and keys inside the function, the reader projects them once more.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.problem import Problem, validate
from regard.errors import ArgumentError, KindError
from regard.masks import And, Mask, causal, lengths, where
from regard.scores import Modified, ScaledDot, Score, SoftCap
from regard.scores.modifiers import Wrapper
from regard.watching.intercepted import Intercepted
from regard.watching.mask_kind import NO_MASK, MaskReader, MaskReading, is_causal_mask, kind_of_mask, visible_pairs
from regard.watching.owners import Owner

SDPA, MULTI_HEAD, FLEX, REGARD = (
    "scaled_dot_product_attention", "multi_head_attention_forward", "flex_attention", "regard",
)  # fmt: skip
"""Values of `AttentionCall.source`; the kernels of the fast paths have the names of PyTorch's modules."""

FLEX_PAIRS_LIMIT = 1 << 24
"""The most pairs of a batch for which a block mask is made dense, to name its kind."""


def _intercepted(
    source: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reading: MaskReading,
    *,
    scale: float | None = None,
    cross: bool | None = None,
    dropout: float = 0.0,
    child: str = "",
) -> Intercepted:
    """A softmax of scaled inner products, ``[batch, heads, length, dim]``, under a mask that was read."""
    problem = validate(query, key, value, score=scaled_dot(scale), mask=reading.mask, bias=reading.bias)
    return Intercepted(
        source=source,
        mask=reading.kind,
        visible=reading.visible,
        problem=problem,
        value=value,
        cross=cross,
        causal=reading.causal,
        child=child,
        has_bias=reading.has_bias,
        scale=_scale_of(query, scale),
        dropout=float(dropout),
    )


def _scale_of(query: Tensor, scale: float | None) -> float:
    return query.shape[-1] ** -0.5 if scale is None else float(scale)


@lru_cache(maxsize=16)
def scaled_dot(scale: float | None) -> ScaledDot:
    """The score of a scale, cached: making one takes as long as the rest of a small call's validation."""
    return ScaledDot(scale)


# torch.nn.functional.scaled_dot_product_attention


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
    """Reads a call of ``scaled_dot_product_attention``.

    Args:
        masks: analyses masks.
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa: the arguments of the call. Three axes are
            ``[batch, length, dim]``; with more than four, all but the last three are the batch.
        packed: whether the queries are the heads of a group, of one token (Hugging Face's trick for decoding).

    Raises:
        RegardError: PyTorch computes no such call.
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
    q, k, v = (four_axes(tensor.detach()) for tensor in (query, key, value))
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
    return _intercepted(SDPA, q, k, v, reading, scale=scale, dropout=dropout_p)


class SameCall(NamedTuple):
    """A call, with what it has in common with the calls that differ from it in the values of their tensors alone.

    Attributes:
        key: what they agree in: the shapes of query, key and value, then the rest.
        query, key_tensor: the tensors that weights are computed from, ``[batch, heads, length, dim]``.
    """

    key: tuple[object, ...]
    query: Tensor
    key_tensor: Tensor

    @property
    def has_others(self) -> bool:
        """Whether calls of this key differ in values alone: four axes, of which nothing has to be broadcast."""
        query, key, value = shapes = cast("tuple[tuple[int, ...], ...]", self.key[:3])
        if any(len(shape) != 4 for shape in shapes):
            return False
        return query[:2] == key[:2] == value[:2] and query[3] == key[3] and key[2] == value[2]


def same_call(masks: MaskReader, owner: Owner, args: Any, kwargs: Any) -> SameCall | None:
    """What a call of ``scaled_dot_product_attention`` shares with others; None where its arguments do not tell."""
    if len(args) < 3 or owner.packed:
        return None
    query, key, value = args[0], args[1], args[2]
    # The call ran, so all are nested or none, and on one device.
    if not type(query) is type(key) is type(value) is Tensor or query.is_nested:
        return None
    options = [*kwargs, *args[3:], *kwargs.values()]
    if not _CONSTANTS.issuperset(map(type, options)):
        for index, option in enumerate(options):
            if isinstance(option, Tensor):
                # Its reading is a new one where the mask changed.
                options[index] = masks.read(_mask_axes(option, query, key)).content
    agreed = (
        query.shape, key.shape, value.shape, query.stride(), key.stride(), query.dtype, key.dtype, query.device,
        owner.groups, *options,
    )  # fmt: skip
    return SameCall(agreed, query, key)


_CONSTANTS = frozenset({type(None), bool, int, float, str})
"""Types of options other than tensors."""


@lru_cache(maxsize=16)
def causal_from_start(queries: int, keys: int) -> MaskReading:
    """The mask of ``is_causal=True``: the first query sees the first key."""
    mask = causal(align="start")
    return MaskReading("causal" if keys > 1 else "none", mask, None, mask, causal=queries > 1)


def four_axes(tensor: Tensor) -> Tensor:
    """``[batch, heads, length, dim]`` of an argument with any number of axes."""
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
    query: Tensor, reading: MaskReading, masks: MaskReader, mask: Tensor | None
) -> tuple[Tensor, MaskReading]:
    """Turns queries that are the heads of a group into the heads of one query."""
    B, H, G, D = query.shape
    query = query.reshape(B, H * G, 1, D)
    if mask is not None and mask.dim() == 4 and mask.shape[1] > 1:
        reading = masks.read(mask.reshape(mask.shape[0], H * G, 1, -1))
    return query, reading


def _read_nested(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None) -> Intercepted:
    """Reads sequences of different lengths: padded, and masked where they are padding."""
    q, q_lengths = _padded(query)
    k, k_lengths = _padded(key)
    v, _ = _padded(value)
    mask: Mask = lengths(k_lengths, q_lengths)
    if is_causal:
        mask = And(causal(align="start"), mask)
    reading = MaskReading("causal+padding" if is_causal else "padding", mask, None, mask, causal=is_causal)
    return _intercepted(SDPA, q, k, v, reading, scale=scale)


def _padded(nested: Tensor) -> tuple[Tensor, list[int]]:
    """Nested ``[batch, heads, length, dim]`` as a dense tensor with zeros, and the lengths."""
    parts = [part.detach() for part in nested.unbind()]
    sizes = [part.shape[-2] for part in parts]
    padded = parts[0].new_zeros(len(parts), parts[0].shape[0], max(sizes, default=0), parts[0].shape[-1])
    for row, part in zip(padded, parts, strict=True):
        row[:, : part.shape[-2]] = part
    return padded, sizes


# torch.nn.functional.multi_head_attention_forward with need_weights=True, which calls nothing that is watched


@torch.no_grad()
def read_multi_head(masks: MaskReader, arguments: dict[str, Any]) -> Intercepted:
    """Reads a call of ``multi_head_attention_forward``, of ``[length, batch, features]`` or ``[length, features]``."""
    query, key, value = (arguments[name].detach() for name in ("query", "key", "value"))
    if query.dim() != 3:
        query, key, value = (tensor[:, None] for tensor in (query, key, value))
    heads, bias = arguments["num_heads"], arguments["in_proj_bias"]
    if arguments["use_separate_proj_weight"]:
        weights = tuple(arguments[f"{letter}_proj_weight"] for letter in "qkv")
    else:
        weights = arguments["in_proj_weight"].chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    q, k, v = (
        F.linear(*inputs).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
        for inputs in zip((query, key, value), weights, biases, strict=True)
    )
    B = q.shape[0]
    if arguments["static_k"] is not None:
        k = arguments["static_k"].detach().unflatten(0, (B, heads))
    if arguments["static_v"] is not None:
        v = arguments["static_v"].detach().unflatten(0, (B, heads))
    length = k.shape[2]
    if arguments["bias_k"] is not None:
        k, v = (
            torch.cat((tensor, arguments[name].detach().view(1, heads, 1, -1).expand(B, -1, -1, -1)), 2)
            for tensor, name in ((k, "bias_k"), (v, "bias_v"))
        )
    if arguments["add_zero_attn"]:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    padding, mask = arguments["key_padding_mask"], arguments["attn_mask"]
    if mask is not None:
        mask = mask.unflatten(0, (B, heads)) if mask.dim() == 3 else mask[None, None]
    if padding is not None:
        padding = padding.view(B, 1, 1, length)
    ignored = [tensor for tensor in (mask, padding) if tensor is not None]
    reading = _merged(masks, ignored, k.shape[2] - length, q.dtype)
    cross = None if arguments["query"] is arguments["key"] else _differs(arguments)
    return _intercepted(MULTI_HEAD, q, k, v, reading, cross=cross, dropout=arguments["dropout_p"])


def _differs(arguments: dict[str, Any]) -> bool:
    """Whether queries and keys were computed from different tensors."""
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    if query.data_ptr() == key.data_ptr() and query.shape == key.shape:
        # Transposed views of one tensor, as modules with ``batch_first`` pass them on.
        return False
    return query.shape != key.shape or key.data_ptr() == value.data_ptr()


def _merged(masks: MaskReader, ignored: list[Tensor], appended: int, dtype: torch.dtype) -> MaskReading:
    """Reads masks whose True means "ignore", or which are added, as one mask; appended keys are visible."""
    if not ignored:
        return NO_MASK
    if all(tensor.dtype == torch.bool for tensor in ignored):
        shown = ~ignored[0]
        for tensor in ignored[1:]:
            shown = shown & ~tensor
        return masks.read(F.pad(shown, (0, appended), value=True))
    total = None
    for tensor in ignored:
        added = tensor
        if tensor.dtype == torch.bool:
            added = torch.zeros_like(tensor, dtype=dtype).masked_fill_(tensor, -torch.inf)
        total = added if total is None else total + added
    assert total is not None
    return masks.read(F.pad(total, (0, appended)))


# The kernels of PyTorch's fast paths in evaluation, of MultiheadAttention and of TransformerEncoderLayer


@torch.no_grad()
def read_native(masks: MaskReader, arguments: dict[str, Any]) -> Intercepted:
    """Reads a call of ``torch._native_multi_head_attention``: self-attention with ``batch_first``, nested or not."""
    return _read_fast_path(masks, arguments["query"].detach(), arguments, "MultiheadAttention")


@torch.no_grad()
def read_encoder_layer(masks: MaskReader, arguments: dict[str, Any]) -> Intercepted:
    """Reads the self-attention in a call of ``torch._transformer_encoder_layer_fwd``, which runs a whole layer."""
    source = arguments["src"].detach()
    if arguments["norm_first"]:
        shape = (arguments["embed_dim"],)
        source = F.layer_norm(source, shape, arguments["norm_weight_1"], arguments["norm_bias_1"], arguments["eps"])
    return _read_fast_path(masks, source, arguments, "TransformerEncoderLayer", child="self_attn")


def _read_fast_path(
    masks: MaskReader, source: Tensor, arguments: dict[str, Any], name: str, child: str = ""
) -> Intercepted:
    sizes = None
    if source.is_nested:
        sizes = [part.shape[0] for part in source.unbind()]
        source = torch.nested.to_padded_tensor(source, 0.0)
    projected = F.linear(source, arguments["qkv_weight"], arguments["qkv_bias"])
    q, k, v = (part.unflatten(-1, (arguments["num_heads"], -1)).transpose(1, 2) for part in projected.chunk(3, -1))
    reading = _fast_mask(masks, arguments["mask"], arguments["mask_type"], q)
    if sizes is not None:
        present: Mask = lengths(sizes, sizes)
        mask = present if reading.mask is None else And(reading.mask, present)
        kinds = {"none": "padding", "causal": "causal+padding", "window": "window+padding"}
        reading = MaskReading(kinds.get(reading.kind, "dense"), mask, None, mask, causal=reading.causal)
    return _intercepted(name, q, k, v, reading, cross=False, child=child)


def _fast_mask(masks: MaskReader, mask: Tensor | None, kind: int | None, query: Tensor) -> MaskReading:
    """Reads the mask of a fast path, whose type is 0: pairs, 1: padding, 2: of all four axes."""
    if mask is None:
        return NO_MASK
    # The kernels ignore a pair for any value but 0.
    mask = mask.bool()
    B, _, Q, _ = query.shape
    if kind == 1 or (kind is None and tuple(mask.shape) == (B, Q)):
        mask = mask.view(B, 1, 1, -1)
    elif mask.dim() == 2:
        mask = mask[None, None]
    elif mask.dim() == 3:
        mask = mask.unflatten(0, (B, -1))
    return _merged(masks, [mask], 0, query.dtype)


# torch.nn.attention.flex_attention.flex_attention


def read_flex(arguments: dict[str, Any]) -> Intercepted:
    """Reads a call of FlexAttention: its score function and its block mask are evaluated tile by tile.

    FlexAttention calls these functions for one pair at a time. They are mapped over a tile's indices by `torch.vmap`,
    as FlexAttention does it, so a function that cannot take whole index tensors works too.

    Raises:
        RegardError: FlexAttention computes no such call.
    """
    query, key, value = (arguments[name].detach() for name in ("query", "key", "value"))
    batch = query.shape[0]
    if key.shape[0] != batch:
        key, value = (tensor.expand(batch, -1, -1, -1) for tensor in (key, value))
    scale, function, block_mask = (arguments.get(name) for name in ("scale", "score_mod", "block_mask"))
    score: Score = ScaledDot(scale)
    if function is not None:
        score = Modified(score, _mapped(function, with_score=True))
    mask: Mask | None = None
    if block_mask is not None and block_mask.mask_mod is not None:
        mask = where(_mapped(block_mask.mask_mod, with_score=False))
    problem = validate(query, key, value, score=score, mask=mask)
    grid = problem.grid
    pairs = None
    if mask is not None and grid.batch * grid.queries * grid.keys <= FLEX_PAIRS_LIMIT:
        allowed = mask.allows(grid)
        pairs = visible_pairs(allowed.expand(*allowed.shape[:2], grid.queries, grid.keys))
    return Intercepted(
        source=FLEX,
        mask="none" if mask is None else "dense" if pairs is None else pairs.kind,
        causal=pairs is not None and pairs.causal,
        visible=mask,
        problem=problem,
        value=value,
        has_bias=function is not None,
        scale=_scale_of(query, scale),
    )


def _mapped(function: Callable[..., Tensor], with_score: bool) -> Callable[..., Tensor]:
    """The function over a whole tile: over the key's index first, then the query's, the head's and the batch row's."""
    scores = (0,) if with_score else ()
    mapped = function
    for axis in reversed(range(4)):
        indices: list[int | None] = [None] * 4
        indices[axis] = 0
        mapped = torch.vmap(mapped, in_dims=(*scores, *indices))

    def over_tile(*arguments: Tensor) -> Tensor:
        *score, batch, head, query, key = arguments
        indices = (index.reshape(-1).to(torch.int32) for index in (batch, head, query, key))
        return mapped(*score, *indices)

    return over_tile


# regard's own verbs and layers


@torch.no_grad()
def read_problem(problem: Problem, weights: Tensor | None) -> Intercepted:
    """Reads a problem that regard runs.

    Args:
        problem: the problem.
        weights: those that the call returned, if it did; random weights cannot be computed again.
    """
    is_random = problem.normalizer.random
    if is_random and weights is None:
        raise ArgumentError("its weights are drawn at random, and observe does not give those that it drew")
    query, key, value = (tensor.detach() for tensor in (problem.query, problem.key, problem.value))
    placed = problem.placed
    if placed is not None:
        if is_random:
            raise ArgumentError("its weights are drawn at random, and those of several processes are not joined")
        parts = (tensor.detach() for tensor in (placed.query, placed.key, placed.value))
        placed = replace(placed, **dict(zip(("query", "key", "value"), parts, strict=True)))
    innermost = problem.score
    while isinstance(innermost, Wrapper):
        innermost = innermost.score
    scale = getattr(innermost, "scale", None)
    if isinstance(innermost, ScaledDot) and scale is None:
        scale = _scale_of(query, None)
    row = problem.row
    # Everything that is read has an axis of heads, also for a call of fewer axes.
    watched = replace(problem, query=query, key=key, value=value, dropout=0.0, memory=None, placed=placed, rank=4)
    return Intercepted(
        source=REGARD,
        mask=kind_of_mask(problem.mask, problem.grid),
        visible=problem.mask,
        causal=is_causal_mask(problem.mask),
        problem=None if is_random else watched,
        weights=weights.detach() if is_random and weights is not None else None,
        value=value if placed is None else placed.value,
        has_bias=problem.bias is not None,
        scale=float(scale) if isinstance(scale, Real) else None,
        cap=problem.score.cap if isinstance(problem.score, SoftCap) else None,
        has_sink=row is not None and row.sink is not None,
        dropout=problem.dropout,
    )
