"""The readings of a sharded call: what each process reads of its own keys, joined over the processes."""

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from regard.attention.readings import Gatherer, Readings
from regard.attention.sharding.calculation import Calculated, ShardedCall
from regard.attention.sharding.rows import log_sum_exp
from regard.attention.sharding.steps import ExchangeStep, RowBlock, part_of_keys
from regard.distributed.collectives import collective
from regard.distributed.exchange import RowRoute
from regard.distributed.shards import Shards

OF_ROWS = {"entropy": "sum", "peak": "max", "distance": "sum", "shares": "sum", "weights": "sum"}
"""Readings of a query, and how those of several parts of its keys are joined; the largest weights are joined apart."""

OF_COLUMNS = ("received", "pooled", "rows", "tile")


class StepReadings:
    """Gathers the readings of one call step by step."""

    def __init__(self, call: ShardedCall, gatherer: Gatherer):
        self.call, self.gatherer = call, gatherer
        placed, read = call.placed, gatherer.read
        grid = call.problem.grid.tile(batch=placed.batch)
        default = Readings()
        self.of_rows = replace(read, **{name: getattr(default, name) for name in OF_COLUMNS})
        self.of_columns = replace(read, **{name: getattr(default, name) for name in (*OF_ROWS, "top_k")})
        own = placed.queries.own
        rows = grid.tile(queries=range(sum(map(len, own))), keys=range(grid.keys))
        self.of_own_rows = Gatherer(call.problem, self.of_rows, rows if read.weights else rows.tile(keys=range(0)))
        self.columns = [
            Gatherer(call.problem, self.of_columns, grid.tile(queries=range(0), keys=span))
            for span in (placed.keys.own or (range(0),))
        ]

    def add(self, step: ExchangeStep, route: RowRoute, calculated: Calculated) -> None:
        """Reads one step."""
        blocks = [self._read(block, piece.scores, weights) for block, piece, weights in zip(
            step.blocks, calculated.rows.pieces, calculated.weights, strict=True
        )]  # fmt: skip
        anchor = calculated.rows.anchor
        lse = torch.cat([anchor, *log_sum_exp(calculated.rows, self.call.problem)], dim=2)
        self._put(step, "lse", route.collect(lse, "max")[..., 0])
        for name, how in OF_ROWS.items():
            if getattr(self.of_rows, name):
                self._join(step, route, name, how, [getattr(one, name) for one in blocks], anchor)
        if self.of_rows.top_k:
            self._join_top(step, route, blocks, anchor)

    def _read(self, block: RowBlock, scores: Tensor, weights: Tensor) -> Gatherer:
        """Returns what one block says of its rows; what it says of keys is added to the columns."""
        placed = self.call.placed
        rows = self.call.problem.grid.tile(batch=placed.batch, queries=block.rows)
        read = rows if self.of_rows.weights else rows.tile(keys=range(0))
        joined = Gatherer(self.call.problem, self.of_rows, read)
        at = 0
        starts = {span.start: index for index, span in enumerate(placed.keys.own)}
        for keys, _ in part_of_keys(block, placed.keys.own):
            tile = rows.tile(keys=keys)
            part = slice(at, at + len(keys))
            at += len(keys)
            span = max(start for start in starts if start <= keys.start)
            self.columns[starts[span]].add_columns(weights[..., part], tile)
            one = Gatherer(self.call.problem, self.of_rows, read)
            one.add_rows(scores[..., part], weights[..., part], tile)
            for name, how in OF_ROWS.items():
                if getattr(self.of_rows, name):
                    mine, other = getattr(joined, name), getattr(one, name)
                    setattr(joined, name, mine + other if how == "sum" else torch.maximum(mine, other))
            if self.of_rows.top_k:
                joined.top_weights, joined.top_indices = _largest(
                    torch.cat([joined.top_weights, one.top_weights], -1),
                    torch.cat([joined.top_indices, one.top_indices], -1),
                    self.of_rows.top_k,
                )
        return joined

    def _join(
        self, step: ExchangeStep, route: RowRoute, name: str, how: str, parts: list[Tensor], anchor: Tensor
    ) -> None:
        batch, heads = anchor.shape[:2]
        features = {"shares": len(self.of_rows.shares), "weights": self.call.problem.grid.keys}.get(name, 1)
        rows = [part.reshape(batch, heads, -1, features) for part in parts]
        joined = torch.cat([anchor.expand(batch, heads, 0, features), *rows], dim=2)
        collected = route.collect(joined, "max" if how == "max" else "sum")
        if how == "max":
            collected = collected.masked_fill(collected == -torch.inf, 0.0)
        self._put(step, name, collected if name in ("shares", "weights") else collected[..., 0])

    def _join_top(self, step: ExchangeStep, route: RowRoute, blocks: list[Gatherer], anchor: Tensor) -> None:
        """Collects the largest weights of all processes, each in a place of its own; the owner takes the largest of
        them."""
        k, shards = self.of_rows.top_k, self.call.placed.keys
        first = shards.rank * k
        batch, heads = anchor.shape[:2]

        def placed(parts: list[Tensor], dtype: torch.dtype) -> Tensor:
            joined = torch.cat(
                [anchor.expand(batch, heads, 0, k).to(dtype), *(part.to(dtype) for part in parts)], dim=2
            )
            every_process = joined.new_zeros(*joined.shape[:3], k * shards.processes)
            every_process[..., first : first + k] = joined
            return route.collect(every_process)

        weights = placed([one.top_weights for one in blocks], anchor.dtype)
        indices = placed([one.top_indices + 1 for one in blocks], torch.int64) - 1
        top_weights, top_indices = _largest(weights, indices, k)
        self._put(step, "top_weights", top_weights)
        self._put(step, "top_indices", top_indices)

    def _put(self, step: ExchangeStep, name: str, rows: Tensor) -> None:
        self.call.put_rows(getattr(self.of_own_rows, name), step, rows)

    def finish(self) -> None:
        """Joins what was read of keys and of the map, and gives all to the gatherer."""
        shards, whole, first = self.call.placed.keys, self.of_own_rows, self.columns[0]
        whole.received = torch.cat([one.received for one in self.columns], -1)
        whole.rows = torch.cat([one.rows for one in self.columns], -1)
        for name in ("pooled_sum", "pooled_max", "tile"):
            parts = torch.stack([getattr(one, name) for one in self.columns])
            if parts.numel():
                setattr(whole, name, _joined(shards, parts, is_maximum=name == "pooled_max"))
        whole.chosen, whole.rectangle = first.chosen, first.rectangle
        self.gatherer.fill(whole.tensors())


def _joined(shards: Shards, parts: Tensor, is_maximum: bool) -> Tensor:
    """Returns the sum or the maximum over the first axis and over all processes; a NaN stays one."""

    def reduce(tensor: Tensor, operation: Any) -> Tensor:
        collective(shards, lambda group, timeout: group.allreduce(tensor, operation, timeout))
        return tensor

    if not is_maximum:
        return reduce(parts.sum(0), dist.ReduceOp.SUM)
    # The maximum of a backend may drop a NaN.
    is_nan = reduce(parts.isnan().any(0).float(), dist.ReduceOp.SUM) > 0
    return reduce(parts.nan_to_num(0.0).amax(0), dist.ReduceOp.MAX).masked_fill(is_nan, torch.nan)


def _largest(weights: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the k largest weights, NaN first, and their indices."""
    largest, order = weights.topk(min(k, weights.shape[-1]), dim=-1)
    return largest, indices.gather(-1, order)
