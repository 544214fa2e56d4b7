"""Calls as plain records for viewers and pages, and the tiles of their weights, computed exactly on request."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention.backends.reference import TileInputs, TileWeights, weigh, whole
from regard.attention.execution import choose_reader
from regard.attention.problem import Problem
from regard.attention.readings import WATCHING_LINE, Gatherer, Readings
from regard.biases import TensorBias
from regard.errors import ArgumentError, KindError, ShapeError
from regard.fields import FIELDS, replaced, with_parts
from regard.masks import Band, Mask, keep
from regard.masks.mask import joined_masks
from regard.normalizers.alignment_normalizer import AlignmentNormalizer
from regard.records import AttentionRecord, Axis, DenseTiles, FrameAxis, GridAxis, TileSource, TokenAxis, bin_edges
from regard.records.attention_record import pooled_maps
from regard.shapes.checks import type_text
from regard.shapes.grid import Grid
from regard.tracing.transforms import is_on_host
from regard.watching.attention_call import AttentionCall
from regard.watching.intercepted_call import InterceptedCall

ModuleT = TypeVar("ModuleT", bound=nn.Module)

FIELDS_OF_ROWS = {"log_decay", "beta", "earlier", "previous", "transition", "stops", "temperature", "center", "sigma"}
"""Fields of scores and normalizers whose tensors may have a first axis of batch rows, before that of heads."""

PAIRS_LIMIT = 1 << 26
"""The most pairs of a record that has a dense mask: 64 MiB."""

ROW_ELEMENTS = 1 << 22
"""The number of weights, in whole rows, that are computed at once for a tile."""


def shared_by(calls: Sequence[AttentionCall]) -> list[int]:
    """Returns how many batch rows share one of each call's rows: an encoder's row may serve several beams."""
    rows = max((call.batch for call in calls if call.kind == "cross"), default=0)
    return [
        rows // call.batch if call.kind == "self" and call.batch and rows % call.batch == 0 < rows else 1
        for call in calls
    ]


def records_of(
    calls: Sequence[AttentionCall],
    query_tokens: Sequence[str] | Axis,
    key_tokens: Sequence[str] | Axis | None,
    batch_row: int,
    logits: Callable[[AttentionCall], Tensor] | None = None,
) -> list[AttentionRecord]:
    """Returns one plain record for each call that has weights or tiles: see `Watch.records`.

    The function ``logits`` computes each value's contribution to a logit, as `regard.watching.value_logits`; None: the
    records have no contributions.
    """
    own = _axis("query_tokens", query_tokens)
    other = own if key_tokens is None else _axis("key_tokens", key_tokens)
    records = []
    for call, sharing in zip(calls, shared_by(calls), strict=True):
        if call.weights is None and call.tiles is None:
            continue
        if not 0 <= batch_row < call.batch * sharing:
            raise ArgumentError(f"batch_row must be from 0 to {call.batch * sharing - 1}; it is {batch_row}")
        row = batch_row // sharing
        # A module may have different numbers of queries and keys without being known as cross-attention.
        has_own_keys = key_tokens is not None and call.queries != call.keys == len(other)
        if call.mechanism == "depth":
            axes = _fitting(call, "queries", own), layer_axis(call.keys)
        elif call.kind == "cross" and call.keys == call.queries + len(other) and other is not own:
            # The layer joins the keys of its own tokens and those of a source.
            queries = _fitting(call, "queries", own)
            axes = queries, _joined(queries, other)
        elif call.kind == "cross" or has_own_keys:
            axes = _fitting(call, "queries", own), _fitting(call, "keys", other)
        elif call.kind == "self" and key_tokens is not None and len(other) == call.queries:
            axes = other, other
        else:
            axes = _fitting(call, "queries", own), _fitting(call, "keys", own)
        if call.weights is not None and call.maps and call.part and len(set(call.maps)) > 1:
            continue  # the same two maps as before, for the other half of the values
        record = _record(call, *axes, row)
        if logits is not None and record.weights is not None:
            of_values = logits(call)[row, :, : len(record.queries), : len(record.keys)].float().numpy()
            factors = of_values[:, 0] if of_values.shape[1] == 1 else of_values
            record = replace(record, measures={**record.measures, "contributions": factors})
        records += _by_map(call, record)
    if not records:
        raise ArgumentError(
            f"there is no record with weights; write {WATCHING_LINE}; keep=True keeps those of single calls, as "
            "View(watched.calls[0]) shows them"
        )
    return records


def numbered_records(calls: Sequence[AttentionCall], batch_row: int) -> list[AttentionRecord]:
    """Returns the same records with the numbers of the positions in place of tokens."""

    def numbers(length: int) -> TokenAxis:
        return TokenAxis(tuple(map(str, range(length))))

    return [
        record
        for call, sharing in zip(calls, shared_by(calls), strict=True)
        if call.weights is not None or call.tiles is not None
        for keys in (layer_axis(call.keys) if call.mechanism == "depth" else numbers(call.keys),)
        for record in _by_map(call, _record(call, numbers(call.queries), keys, batch_row // sharing))
    ]


def layer_axis(count: int) -> TokenAxis:
    """Returns the keys of attention over depth: the embedding, then outputs of layers."""
    return TokenAxis(("embedding", *(f"layer {number}" for number in range(1, count)))[:count])


def _by_map(call: AttentionCall, record: AttentionRecord) -> list[AttentionRecord]:
    """Returns a record for each map of a differential attention; any other record unchanged."""
    if record.weights is None or not call.maps:
        return [record]
    maps = np.array([call.maps[head] for head in call.chosen_heads])
    parts = []
    for number in sorted(set(maps.tolist())):
        own, visible = maps == number, record.visible
        of_map = [head for head, each in enumerate(call.maps) if each == number]
        chosen = tuple(of_map.index(head) for head, mine in zip(call.chosen_heads, own, strict=True) if mine)
        parts.append(
            replace(
                record,
                name=f"{record.name}, map {number}",
                weights=record.weights[own],
                visible=visible[own] if visible is not None and visible.ndim == 3 else visible,
                measures={name: values[own] for name, values in record.measures.items()},
                head_numbers=None if chosen == tuple(range(len(of_map))) else chosen,
            )
        )
    return parts


def _record(call: AttentionCall, queries: Axis, keys: Axis, batch_row: int) -> AttentionRecord:
    """Returns the record of a call with weights or tiles; the axes may be shorter than the call."""
    weights = source = None
    if call.weights is not None:
        weights = call.weights[batch_row, :, : len(queries), : len(keys)].float().numpy()
    elif call.tiles is not None:
        source = call.tiles[batch_row]
    visible = None
    if call.visible_mask is not None and call.queries * call.keys <= PAIRS_LIMIT:
        visible = call.visible(batch_row)[:, : len(queries), : len(keys)].numpy()
        visible = np.ascontiguousarray(visible[0] if (visible == visible[:1]).all() else visible)
    measures = {}
    if weights is not None and call.value_norms is not None:
        measures["norms"] = call.value_norms[batch_row, :, : len(keys)].float().numpy()
    chosen = None if call.chosen_heads == tuple(range(call.heads)) else call.chosen_heads
    return AttentionRecord(
        call.name, call.layer, call.kind, queries, keys, weights, visible, source, measures, signed=call.signed,
        head_numbers=chosen,
    )  # fmt: skip


def _axis(name: str, tokens: Sequence[str] | Axis) -> Axis:
    if isinstance(tokens, (TokenAxis, GridAxis, FrameAxis)):
        return tokens
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise KindError(f"{name} must be a sequence of texts, or an axis of regard.records; it is {type_text(tokens)}")
    return TokenAxis(tuple(tokens))


def _fitting(call: AttentionCall, side: str, axis: Axis) -> Axis:
    """Returns the axis without a last token that was generated but never passed to the model."""
    length = call.queries if side == "queries" else call.keys
    if len(axis) == length:
        return axis
    if isinstance(axis, TokenAxis) and len(axis) == length + 1 and call.kind != "self":
        return axis.first(length)
    one_axis = call.queries == call.keys and call.kind != "cross"
    tokens = f"{length} tokens" if one_axis else f"{call.queries} tokens of the queries, {call.keys} of the keys"
    raise ShapeError(
        f"{call.name!r} has {call.queries} queries and {call.keys} keys; there are {len(axis)} tokens for its {side}: "
        f"give {tokens}"
    )


def _joined(own: Axis, source: Axis) -> TokenAxis:
    """Returns the tokens of a sequence followed by those of a source."""
    first, second = (
        axis if isinstance(axis, TokenAxis) else TokenAxis(tuple(map(str, range(len(axis))))) for axis in (own, source)
    )
    words = (*first.words, *(range(word.start + len(first), word.stop + len(first)) for word in second.words))
    special = tuple(flag for axis in (first, second) for flag in axis.special or (False,) * len(axis))
    return TokenAxis((*first.tokens, *second.tokens), special, words if first.words and second.words else ())


class ProblemTiles:
    """A `regard.records.TileSource` of one batch row of a problem.

    It keeps queries, keys, values, mask and bias on the CPU: memory is linear in queries and keys, unless the model
    itself made a dense mask.
    The problem is one of one batch row, on the CPU, with detached tensors.
    """

    def __init__(self, problem: Problem, chosen: tuple[int, ...], signed: bool):
        self.problem, self.chosen, self.signed = problem, list(chosen), signed
        self.heads, self.queries, self.keys = len(chosen), problem.grid.queries, problem.grid.keys

    @classmethod
    def of_batch(cls, call: InterceptedCall, chosen: tuple[int, ...]) -> tuple[TileSource, ...]:
        """Returns one source for each batch row of a call."""
        if call.problem is None:
            assert call.weights is not None
            return tuple(DenseTiles(row[list(chosen)].float().cpu().numpy()) for row in call.weights)
        problem = call.problem
        if not is_on_host(problem.query):
            score, normalizer = module_on_host(problem.score), module_on_host(problem.normalizer)
            problem = replace(problem, score=score, normalizer=normalizer, memory=None)
        return tuple(cls(_row(problem, row), chosen, call.signed) for row in range(call.grid.batch))

    @torch.no_grad()
    def pooled(self, rows: int, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        problem = self.problem
        if self.signed:
            edges, across = bin_edges(self.queries, rows), bin_edges(self.keys, columns)
            step = max(1, ROW_ELEMENTS * rows // max(self.heads * self.queries * self.keys, 1))  # bins of a band
            bands = [edges[first : first + step + 1] for first in range(0, rows, step)]
            tiles = (self.tile((int(band[0]), int(band[-1])), (0, self.keys)) for band in bands)
            maps = [pooled_maps(tile, band - band[0], across) for tile, band in zip(tiles, bands, strict=True)]
            means, extremes = zip(*maps, strict=True)
            return np.concatenate(means, 1), np.concatenate(extremes, 1)
        gatherer = Gatherer(problem, Readings(pooled=(rows, columns)))
        choose_reader(problem).read(problem, gatherer)
        observed = gatherer.observed(problem.query.new_empty(0), problem)
        assert observed.pooled_mean is not None
        assert observed.pooled_max is not None
        return self._array(observed.pooled_mean), self._array(observed.pooled_max)

    @torch.no_grad()
    def tile(self, queries: tuple[int, int], keys: tuple[int, int]) -> NDArray[np.float32]:
        for name, (first, end), length in (("queries", queries, self.queries), ("keys", keys, self.keys)):
            if not 0 <= first < end <= length:
                raise ArgumentError(f"{name} must be (first, end) with 0 ≤ first < end ≤ {length}; got {first, end}")
        parts = [self.steps(rows).weights for rows in self.runs(range(*queries))]
        return self._array(torch.cat(parts, dim=2)[..., keys[0] : keys[1]])

    def runs(self, rows: Sequence[int]) -> Iterator[range]:
        """Yields runs of consecutive queries, each of at most `ROW_ELEMENTS` weights."""
        limit = max(1, ROW_ELEMENTS // max(self.problem.grid.heads * self.keys, 1))
        first = 0
        for number in range(1, len(rows) + 1):
            if number == len(rows) or rows[number] != rows[number - 1] + 1 or number - first == limit:
                yield range(rows[first], rows[number - 1] + 1)
                first = number

    @torch.no_grad()
    def steps(self, rows: range) -> TileWeights:
        """Returns the scores and weights of some queries, ``[1, heads, queries, keys]``, of all heads."""
        problem, inside = self.problem, slice(rows.start, rows.stop)
        if problem.couples_queries:
            return TileWeights(*(step[:, :, inside] for step in weigh(problem, whole(problem))))
        prepared = replace(problem.prepared, query=problem.prepared.query[:, :, inside])
        grid = problem.grid.tile(queries=rows)
        return weigh(problem, TileInputs(prepared, problem.query[:, :, inside], problem.value, grid))

    def _array(self, tensor: Tensor) -> NDArray[np.float32]:
        return tensor[0, self.chosen].float().numpy()


def module_on_host(module: ModuleT) -> ModuleT:
    """Returns a copy of a score or a normalizer on the CPU, with detached tensors."""
    copies: dict[int, object] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        copy = tensor.detach().cpu().clone()
        copies[id(tensor)] = nn.Parameter(copy, requires_grad=False) if isinstance(tensor, nn.Parameter) else copy
    return deepcopy(module, copies)


def _row(problem: Problem, row: int) -> Problem:
    """Returns one batch row of a problem as a problem of its own, on the CPU."""

    def cut(tensor: Tensor) -> Tensor:
        return tensor[row : row + 1].detach().cpu().clone()

    mask, bias = problem.mask, problem.bias
    if problem.grid.batch > 1 or problem.query.device.type != "cpu":
        tile = problem.grid.tile(batch=range(row, row + 1))
        mask = None if mask is None else mask_on_host(mask, tile)
        if bias is not None:
            bias = TensorBias(bias(problem.query[row : row + 1], tile).detach().cpu())
    query, key, value = (cut(tensor) for tensor in (problem.query, problem.key, problem.value))
    score, normalizer = (_of_row(part, row, problem.grid.batch) for part in (problem.score, problem.normalizer))
    changes = None if problem.changes is None else problem.changes.of_row(row)
    tensors = {"query": query, "key": key, "value": value}
    return replace(problem, **tensors, score=score, normalizer=normalizer, mask=mask, bias=bias, changes=changes)


def _of_row(part: Any, row: int, batch: int) -> Any:
    """Returns a score or a normalizer with the numbers of one batch row, where it has numbers of each."""

    def cut(tensor: Tensor) -> Tensor:
        rows = tensor[row : row + 1] if tensor.dim() > 2 and tensor.shape[0] == batch > 1 else tensor
        return rows.detach().cpu().clone()

    if isinstance(part, AlignmentNormalizer) and part.previous is not None:
        part = part.given(cut(part.previous))
    if type(part) not in FIELDS:
        return part
    part = with_parts(part, lambda inner: _of_row(inner, row, batch))
    fields = {name: getattr(part, name) for name in FIELDS[type(part)] if name in FIELDS_OF_ROWS}
    tensors = {name: cut(value) for name, value in fields.items() if isinstance(value, Tensor)}
    return replaced(part, **tensors) if tensors else part


def mask_on_host(mask: Mask, grid: Grid) -> Mask:
    """Returns the mask of a part of an index space on the CPU: parts that hold tensors become tensors."""
    parts = [
        part
        if isinstance(part, Band) and isinstance(part.offset_on(grid), int)
        else keep(part.allows(grid).detach().cpu())
        for part in joined_masks(mask)
    ]
    return reduce(and_, parts)
