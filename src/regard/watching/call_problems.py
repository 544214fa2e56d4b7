"""Reads each function of attention from the arguments of its call: one section for each function.

PyTorch computes attention in five functions; regard's own calls are problems already. Each reader returns an
`InterceptedCall`: the call as a `Problem` of regard, and the analysis of its mask. Its tensors are detached unless
gradients are on: a watch turns them off, and a change of the call needs them. The call
itself runs unchanged; where the function projects queries and keys itself, the reader projects them once more.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from math import lcm
from numbers import Real
from operator import and_
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.reference import masked_scores, weigh, whole
from regard.attention.execution import choose
from regard.attention.kinds import FEW_QUERIES
from regard.attention.problem import Problem, validate
from regard.attention.routes import planned, route_of
from regard.biases import TensorBias
from regard.errors import ArgumentError, BackendError, KindError
from regard.masks import And, Mask, causal, keep, lengths, where
from regard.normalizers import softmax
from regard.scores import Modified, ScaledDot, Score, SoftCap
from regard.scores.modifiers import WrappingScore
from regard.shapes.checks import check_dense
from regard.shapes.grid import Grid, spread_heads
from regard.tracing.transforms import has_data
from regard.watching.head_axis import FOUR_AXES, HeadAxes
from regard.watching.intercepted_call import InterceptedCall, detached
from regard.watching.mask_kind import (
    NO_MASK,
    PAIRS_LIMIT,
    MaskReader,
    MaskReading,
    hides,
    read_mask,
    read_tensor,
)  # fmt: skip
from regard.watching.owners import Owner

SDPA, MULTI_HEAD, FLEX, REGARD = (
    "scaled_dot_product_attention", "multi_head_attention_forward", "flex_attention", "regard",
)  # fmt: skip
"""Values of `AttentionCall.source`; the kernels of the fast paths have the names of PyTorch's modules."""


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
) -> InterceptedCall:
    """Returns a softmax of scaled inner products, ``[batch, heads, length, dim]``, under a mask that was analysed.

    A row that sees no key has weights 0, as in `scaled_dot_product_attention`.
    """
    usual, scale = max(query.shape[-1], 1) ** -0.5, None if scale is None else float(scale)
    score = "scaled_dot" if scale is None or scale == usual else ScaledDot(scale)
    # Calls of a few queries with the name of the normalizer are of one kind, whatever the number of keys.
    normalizer = softmax if query.shape[2] <= FEW_QUERIES else "softmax"
    problem = planned(
        query, key, value, score=score, normalizer=normalizer, mask=reading.mask, bias=reading.bias, backend="sdpa"
    )
    if problem.kind is not None and query.is_cpu:  # it is new
        with suppress(BackendError):
            choose(problem, "sdpa")
        problem.route = route_of(problem.kind[0], query, key, value)
    return InterceptedCall(
        source,
        reading,
        problem,
        own_sides=(query, key),
        value=value,
        cross=cross,
        child=child,
        scale=usual if scale is None else scale,
        dropout=float(dropout),
    )


def _with_nan(call: InterceptedCall) -> InterceptedCall:
    """Returns the call as PyTorch's functions compute it that divide 0 by 0 in a row that sees no key."""
    problem, visible = call.problem, call.mask.visible
    if problem is None or visible is None or not problem.grid.keys:
        return call
    empty = ~visible.allows(problem.grid).any(-1, keepdim=True)
    if not bool(empty.any()):
        return call
    steps = weigh(problem, whole(problem))
    weights = steps.weights.masked_fill(empty, torch.nan)
    return replace(call, problem=None, scores=steps.masked, weights=weights)


def check_readable(**tensors: object) -> None:
    """Raises KindError for a tensor that is nested, sparse, quantized or divided, or has no elements of its own."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            continue
        if not has_data(tensor):
            if tensor.is_meta:
                raise KindError("its tensors are on the meta device and have no elements")
            kind = type(tensor).__name__
            kind = f"{kind} of a transform of torch.func or of a tracer" if type(tensor) is Tensor else kind
            raise KindError(f"its {name} is a {kind} and has no elements of its own")
        if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            check_dense(name, tensor)


# torch.nn.functional.scaled_dot_product_attention


def read_sdpa(
    masks: MaskReader,
    owner: Owner,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> InterceptedCall:
    """Reads a call of ``scaled_dot_product_attention``; raises a RegardError if it cannot be read.

    On a CPU, ``attn_mask`` and ``is_causal=True`` may both apply (torch 2.13). If keys and values have different
    numbers of heads, both are repeated to the least common multiple. The owner's number of heads determines the
    meaning of axes (`HeadAxes`).
    """
    if query.is_nested or key.is_nested or value.is_nested:
        return _read_nested(query, key, value, is_causal, scale, dropout_p)
    is_plain = type(query) is type(key) is type(value) is Tensor and query.is_cpu and has_data(query)
    if not is_plain or attn_mask is not None:
        check_readable(query=query, key=key, value=value, attn_mask=None if is_causal_bias(attn_mask) else attn_mask)
    tensors = detached(query), detached(key), detached(value)
    axes, leading, (q, k, v) = FOUR_AXES, (), tensors
    if not (q.dim() == k.dim() == v.dim() == 4 and q.shape[0] == k.shape[0] == v.shape[0] and owner.heads != 1):
        axes = HeadAxes.of_call(tensors, enable_gqa, owner.heads)
        leading = axes.leading(tensors)
        q, k, v = (axes.fold(tensor, leading) for tensor in tensors)
    if k.shape[1] != v.shape[1] or (not enable_gqa and k.shape[1] != q.shape[1]):
        q, k, v = _with_equal_heads(q, k, v, enable_gqa)
    reading = NO_MASK
    if is_causal_bias(attn_mask):
        reading = _read_causal_bias(attn_mask, q.shape[2], k.shape[2])
    elif attn_mask is not None:
        mask = axes.fold_mask(attn_mask, leading, k.shape[2])
        reading = masks.read(mask, q.shape[2] if is_causal else None)
    elif is_causal:
        # PyTorch aligns the starts where the lengths differ.
        reading = causal_from_start(q.shape[2], k.shape[2])
    if owner.packed:
        q, reading = _unpacked(q, reading, masks, attn_mask)
    return _intercepted(SDPA, q, k, v, reading, scale=scale, dropout=dropout_p)


def _with_equal_heads(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns queries, keys and values ``[batch, heads, length, dim]``, keys and values with equally many heads."""
    if grouped:
        heads = lcm(key.shape[1], value.shape[1])
        return query, spread_heads(key, heads), spread_heads(value, heads)
    # Heads broadcast as the batch does.
    heads = max(query.shape[1], key.shape[1], value.shape[1])
    query, key, value = (tensor.expand(-1, heads, -1, -1) for tensor in (query, key, value))
    return query, key, value


def is_causal_bias(argument: object) -> bool:
    """Whether an argument is a ``torch.nn.attention.bias.CausalBias``, which has no elements."""
    module = sys.modules.get("torch.nn.attention.bias")
    return module is not None and isinstance(argument, module.CausalBias)


def _read_causal_bias(bias: Any, queries: int, keys: int) -> MaskReading:
    """Reads a ``CausalBias``: ends are aligned if its variant says so and its own lengths differ."""
    from torch.nn.attention.bias import CausalVariant

    if bias.variant == CausalVariant.UPPER_LEFT or bias.seq_len_q == bias.seq_len_kv:
        return causal_from_start(queries, keys)
    return MaskReading.of("causal" if queries > 1 else "none", causal(), queries > 1)


_CAUSAL_READING = MaskReading.of("causal", causal(align="start"), causal=True)


def causal_from_start(queries: int, keys: int) -> MaskReading:
    """Returns the mask of ``is_causal=True``: the first query sees the first key."""
    return (
        replace(_CAUSAL_READING, kind="causal" if keys > 1 else "none", causal=queries > 1)
        if min(queries, keys) < 2
        else _CAUSAL_READING
    )


def _unpacked(
    query: Tensor, reading: MaskReading, masks: MaskReader, mask: Tensor | None
) -> tuple[Tensor, MaskReading]:
    """Turns queries that are the heads of a group into the heads of one query."""
    B, H, G, D = query.shape
    query = query.reshape(B, H * G, 1, D)
    if mask is not None and mask.dim() == 4 and mask.shape[1] > 1:
        reading = masks.read(mask.reshape(mask.shape[0], H * G, 1, -1))
    return query, reading


def _read_nested(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None, dropout: float
) -> InterceptedCall:
    """Reads sequences of different lengths: padded, and masked where they are padding."""
    q, q_lengths = _padded(query)
    k, k_lengths = _padded(key)
    v, _ = _padded(value)
    mask: Mask = lengths(k_lengths, q_lengths)
    if is_causal:
        mask = And(causal(align="start"), mask)
    reading = MaskReading.of("causal+padding" if is_causal else "padding", mask, is_causal)
    return _intercepted(SDPA, q, k, v, reading, scale=scale, dropout=dropout)


def _padded(nested: Tensor) -> tuple[Tensor, list[int]]:
    """Returns nested ``[batch, heads, length, dim]``, or without heads, padded with zeros, and the lengths."""
    parts = [detached(part) for part in nested.unbind()]
    parts = [part[None] if part.dim() == 2 else part for part in parts]
    sizes = [part.shape[-2] for part in parts]
    padded = parts[0].new_zeros(len(parts), parts[0].shape[0], max(sizes, default=0), parts[0].shape[-1])
    for row, part in zip(padded, parts, strict=True):
        row[:, : part.shape[-2]] = part
    return padded, sizes


# torch.nn.functional.multi_head_attention_forward with need_weights=True, which calls no watched function


def read_multi_head(masks: MaskReader, arguments: dict[str, Any]) -> InterceptedCall:
    """Reads a call of ``multi_head_attention_forward``, of ``[length, batch, features]`` or ``[length, features]``."""
    check_readable(**{name: arguments[name] for name in ("query", "key", "value", "attn_mask", "key_padding_mask")})
    query, key, value = (detached(arguments[name]) for name in ("query", "key", "value"))
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
        k = detached(arguments["static_k"]).unflatten(0, (B, heads))
    if arguments["static_v"] is not None:
        v = detached(arguments["static_v"]).unflatten(0, (B, heads))
    length = k.shape[2]
    if arguments["bias_k"] is not None:
        k, v = (
            torch.cat((tensor, detached(arguments[name]).view(1, heads, 1, -1).expand(B, -1, -1, -1)), 2)
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
    return _with_nan(_intercepted(MULTI_HEAD, q, k, v, reading, cross=cross, dropout=arguments["dropout_p"]))


def _differs(arguments: dict[str, Any]) -> bool:
    """Whether queries and keys were computed from different tensors."""
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    if query.data_ptr() == key.data_ptr() and query.shape == key.shape:
        # Transposed views of one tensor, as modules with ``batch_first`` pass them.
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
def read_native(masks: MaskReader, arguments: dict[str, Any]) -> InterceptedCall:
    """Reads a call of ``torch._native_multi_head_attention``: self-attention with ``batch_first``, nested or not."""
    return _read_fast_path(masks, arguments["query"].detach(), arguments, "MultiheadAttention")


@torch.no_grad()
def read_encoder_layer(masks: MaskReader, arguments: dict[str, Any]) -> InterceptedCall:
    """Reads the self-attention in a call of ``torch._transformer_encoder_layer_fwd``, which runs a whole layer."""
    source = arguments["src"].detach()
    if arguments["norm_first"]:
        shape = (arguments["embed_dim"],)
        source = F.layer_norm(source, shape, arguments["norm_weight_1"], arguments["norm_bias_1"], arguments["eps"])
    return _read_fast_path(masks, source, arguments, "TransformerEncoderLayer", child="self_attn")


def _read_fast_path(
    masks: MaskReader, source: Tensor, arguments: dict[str, Any], name: str, child: str = ""
) -> InterceptedCall:
    check_readable(mask=arguments["mask"])
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
        reading = replace(read_mask(mask, Grid.of(q, k)), causal=reading.causal)
    return _with_nan(_intercepted(name, q, k, v, reading, cross=False, child=child))


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


def read_flex(arguments: dict[str, Any], is_compiled: bool) -> InterceptedCall:
    """Reads a call of FlexAttention: its score function and its block mask are evaluated tile by tile.

    FlexAttention calls these functions for one pair at a time. They are mapped over a tile's indices by `torch.vmap`,
    as FlexAttention does it, so a function that cannot take whole index tensors works too. The compiled kernel
    (``is_compiled``) computes only the listed blocks, and full ones without their function; the function in Python
    evaluates all pairs (torch 2.13).
    """
    check_readable(**{name: arguments[name] for name in ("query", "key", "value")})
    query, key, value = (detached(arguments[name]) for name in ("query", "key", "value"))
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
    if block_mask is not None and is_compiled:
        partial = _listed(block_mask, block_mask.kv_num_blocks, block_mask.kv_indices)
        mask = partial if mask is None else mask & partial
        if block_mask.full_kv_num_blocks is not None:
            mask = mask | _listed(block_mask, block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    problem = validate(query, key, value, score=score, mask=mask)
    return InterceptedCall(
        FLEX, _read_pairs(problem), problem, value=value, scale=query.shape[-1] ** -0.5 if scale is None else scale
    )


def _listed(block_mask: Any, numbers: Tensor, indices: Tensor) -> Mask:
    """Returns the pairs in the blocks that a block mask lists, by the number and the indices of each row's blocks."""
    rows, columns = block_mask.BLOCK_SIZE
    is_listed = torch.arange(indices.shape[-1], device=indices.device) < numbers[..., None]
    blocks = torch.zeros_like(indices).scatter_add_(-1, indices.long(), is_listed.to(indices.dtype)) > 0
    batch_step, head_step = (int(size > 1) for size in blocks.shape[:2])

    def listed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return blocks[batch * batch_step, head * head_step, query // rows, key // columns]

    return where(listed)


def _mapped(function: Callable[..., Tensor], with_score: bool) -> Callable[..., Tensor]:
    """Maps a function over a tile: over the indices of keys first, then of queries, heads and batch rows."""
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


def _read_pairs(problem: Problem) -> MaskReading:
    """Reads which pairs a problem hides: by its mask, by its bias, and by a function that modifies its scores."""
    mask, grid = problem.mask, problem.grid
    is_modified = isinstance(problem.score, Modified)
    tensors = [] if problem.bias is None else [each for each in problem.bias.modules() if isinstance(each, TensorBias)]
    hiding = [each for each in tensors if bool(hides(each.tensor).any())]
    if problem.placed is not None or not (hiding or is_modified):
        return replace(read_mask(mask, grid), has_bias=problem.bias is not None)
    if problem.pairs > PAIRS_LIMIT:
        shown = reduce(and_, [keep(~hides(each.tensor)) for each in hiding], mask)
        return replace(read_mask(shown, grid), has_bias=True)
    score = problem.score.score if isinstance(problem.score, Modified) else problem.score
    plain = replace(problem, score=score, bias=None)
    scores, unbiased = (masked_scores(each, whole(each)) for each in (problem, plain))
    for tensor in (each.tensor for each in hiding if each.tensor.shape[-1] in (1, grid.keys)):
        # The lowest number of half precision is not low for the scores, which are computed in single precision.
        lowest = scores.new_tensor(torch.finfo(scores.dtype).min)
        scores = torch.where(hides(tensor) & (scores > lowest), lowest, scores)
    differs = scores != unbiased
    if problem.row is not None and problem.row.kind in ("identity", "ratio"):
        scores = scores.masked_fill(scores > -torch.inf, 0.0)  # the lowest finite number hides nothing here
    return replace(read_tensor(scores), has_bias=bool(differs[~hides(scores)].any()))


def read_problem(problem: Problem, weights: Tensor | None) -> InterceptedCall:
    """Reads a problem that regard runs, with the weights that the call returned: random ones are not recomputed."""
    is_random = problem.normalizer.random
    if is_random and weights is None:
        raise ArgumentError("its weights are drawn at random, and observe does not return the drawn ones")
    query, key, value = (detached(tensor) for tensor in (problem.query, problem.key, problem.value))
    placed = problem.placed
    if placed is not None:
        if is_random:
            raise ArgumentError("its weights are drawn at random, and those of several processes are not joined")
        parts = (detached(tensor) for tensor in (placed.query, placed.key, placed.value))
        placed = replace(placed, **dict(zip(("query", "key", "value"), parts, strict=True)))
    innermost = problem.score
    while isinstance(innermost, WrappingScore):
        innermost = innermost.score
    scale = getattr(innermost, "scale", None)
    if isinstance(innermost, ScaledDot) and scale is None:
        scale = query.shape[-1] ** -0.5
    row = problem.row
    # Readings have an axis of heads, even for a call of fewer axes.
    watched = replace(problem, query=query, key=key, value=value, dropout=0.0, memory=None, placed=placed, rank=4)
    route = problem.route
    if route is not None and problem.rank == 4:
        watched.take(route, route.hides, route.grid)
    return InterceptedCall(
        REGARD,
        _read_pairs(watched),
        None if is_random else watched,
        weights=detached(weights) if is_random and weights is not None else None,
        value=value if placed is None else placed.value,
        scale=float(scale) if isinstance(scale, Real) else None,
        cap=problem.score.cap if isinstance(problem.score, SoftCap) else None,
        has_sink=row is not None and row.sink is not None,
        dropout=problem.dropout,
    )
