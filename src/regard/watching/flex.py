"""What a call of FlexAttention computes: its score function and its block mask, evaluated tile by tile."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.attention.problem import validate
from regard.masks import Mask, where
from regard.scores import Modified, ScaledDot, Score
from regard.watching.intercepted import Intercepted
from regard.watching.mask_kind import visible_pairs

SOURCE = "flex_attention"

PAIRS_LIMIT = 1 << 24
"""Pairs of a batch up to which a block mask is made dense to name its kind."""


def read_flex(arguments: dict[str, Any]) -> Intercepted:
    """The call as a problem.

    Functions of FlexAttention get numbers: they are mapped over a tile's indices by `torch.vmap`, as FlexAttention
    itself does, so a function that cannot take whole index tensors works too.

    Raises:
        RegardError: the call is none that FlexAttention computes.
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
    if mask is not None and grid.batch * grid.queries * grid.keys <= PAIRS_LIMIT:
        allowed = mask.allows(grid)
        pairs = visible_pairs(allowed.expand(*allowed.shape[:2], grid.queries, grid.keys))
    kind = "none" if mask is None else "dense" if pairs is None else pairs.kind
    return Intercepted(
        source=SOURCE,
        mask=kind,
        causal=pairs is not None and pairs.causal,
        visible=mask,
        problem=problem,
        value=value,
        has_bias=function is not None,
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
    )


def _mapped(function: Callable[..., Tensor], with_score: bool) -> Callable[..., Tensor]:
    """The function over a whole tile: over the key's index first, then the query's, the head's and the batch row's."""
    scores = (0,) if with_score else ()
    mapped = function
    for place in reversed(range(4)):
        indices: list[int | None] = [None] * 4
        indices[place] = 0
        mapped = torch.vmap(mapped, in_dims=(*scores, *indices))

    def over_tile(*given: Tensor) -> Tensor:
        *score, batch, head, query, key = given
        indices = (index.reshape(-1).to(torch.int32) for index in (batch, head, query, key))
        return mapped(*score, *indices)

    return over_tile
