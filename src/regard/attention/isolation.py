"""Masked keys and values never affect a result, even if they are NaN: the path for inputs that are not finite.

Products of whole matrices multiply hidden values with weights of 0, and 0 · NaN is NaN. If all inputs and scores are
finite, that cannot happen, and backends run as they are. Otherwise:

1. Queries that see no key, and keys and values that no query sees, are replaced by zeros. Padding and unfilled caches
   are finite after that, and the backend runs.
2. If a key or a value is still not finite, some queries see it and others do not. Then the specification computes the
   output in runs of query rows that are so short that all rows of a run, or none of them, see such a key; in the second
   case zeros replace it. A query that is not finite shares a run only with rows that see the same keys.
3. It does the same if the backend's output is not finite: a hidden score may overflow, or a bias may be +∞ or NaN for
   one pair and −∞ for another.
4. If a weight depends on all queries, there are no such runs. The specification computes the whole grid as on a device.

A pair whose bias is −∞ counts as hidden.

On a device the host cannot look at elements without waiting. There `reference` and `tiled` calculate so that hidden
elements never enter (`regard.attention.guarded`), and PyTorch's kernels get zeros for padding alone
(`regard.attention.padding`).
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from regard.attention.backends.reference import TileInputs, mix, weigh, whole, with_visible_pairs
from regard.attention.padding import seen_of, visible_slices
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.shapes.grid import spread_heads


def cleaned(problem: Problem) -> Problem:
    """Returns the problem with zeros for queries that see no key, and for keys and values that no query sees."""
    rows, keys, _ = seen_of(problem)
    key, value = _filled(problem.key, keys), _filled(problem.value, keys)
    return replace(problem, query=_filled(problem.query, rows), key=key, value=value, memory=None)


def attend_isolated(problem: Problem, gatherer: Gatherer | None = None, need_weights: bool = False) -> Attended:
    """Returns the output, and the weights if they are needed, by the specification on isolated runs of rows.

    Args:
        problem: after `cleaned`.
    """
    if problem.couples_queries:
        inputs = with_visible_pairs(problem, whole(problem))
        steps = weigh(problem, inputs)
        if gatherer is not None:
            gatherer.add(steps.masked, steps.weights, problem.grid)
        return Attended(mix(problem, inputs, steps.weights), steps.weights if need_weights else None)
    outputs, weights = [], []
    for batch_row in range(problem.grid.batch):
        mixed, weighed = [], []
        for inputs in _isolated(problem, batch_row):
            steps = weigh(problem, inputs)
            if gatherer is not None:
                gatherer.add(steps.masked, steps.weights, inputs.grid)
            mixed.append(mix(problem, inputs, steps.weights))
            if need_weights:
                weighed.append(steps.weights)
        outputs.append(torch.cat(mixed, dim=2))
        if need_weights:
            weights.append(torch.cat(weighed, dim=2))
    return Attended(torch.cat(outputs), torch.cat(weights) if need_weights else None)


def _isolated(problem: Problem, batch_row: int) -> Iterator[TileInputs]:
    """Yields one batch row in runs of query rows, in which everything that is hidden from a row is finite."""
    prepared, whole = problem.prepared, problem.grid
    query, own_query, value = (t[batch_row, None] for t in (prepared.query, problem.query, problem.value))
    key = prepared.key.expand(whole.batch, -1, -1, -1)[batch_row, None]
    key, value = spread_heads(key, whole.heads), spread_heads(value, whole.heads)
    bad_key = ~(key.isfinite().all(-1) & value.isfinite().all(-1))[0]  # H K
    bad_query = bool((~query.isfinite()).any() or (~own_query.isfinite()).any())
    for rows, visible in visible_slices(problem, whole.tile(batch=range(batch_row, batch_row + 1))):
        allowed = visible.expand(1, whole.heads, -1, whole.keys)[0]  # heads, queries (1 if all see the same), keys
        differing = allowed if bad_query else allowed & bad_key[:, None]
        changes = (differing[:, 1:] != differing[:, :-1]).any(-1).any(0).nonzero()[:, 0].tolist()
        ends = [0, *(change + 1 for change in changes), len(rows)]
        for start, stop in pairwise(ends):
            visible_part = allowed[:, start:stop]
            row_sees, key_seen = visible_part.any(-1)[..., None], visible_part.any(-2)[..., None]
            part = slice(rows.start + start, rows.start + stop)
            cut = replace(prepared, query=_filled(query[:, :, part], row_sees), key=_filled(key, key_seen))
            grid = whole.tile(batch=range(batch_row, batch_row + 1), queries=range(part.start, part.stop))
            yield TileInputs(cut, _filled(own_query[:, :, part], row_sees), _filled(value, key_seen), grid)


def _filled(tensor: Tensor, seen: Tensor | None) -> Tensor:
    """Returns the tensor with zeros for the vectors that are not seen; None: all are."""
    if seen is None:
        return tensor
    # The stride of an axis of one number decides where those of the result lie, and so how its products round.
    return torch.where(seen.squeeze(-1)[..., None], tensor, 0.0)
