"""Elements of an earlier run's attention, from what a watch of it kept."""

import torch
from torch import Tensor

from regard.attention.changed_pairs import Elements, GivenElements
from regard.errors import ArgumentError, ShapeError
from regard.shapes.grid import spread_heads
from regard.watching.attention_call import AttentionCall
from regard.watching.call_records import ProblemTiles
from regard.watching.change import Change, EarlierRun, axis_names
from regard.watching.changed_call import Target


def call_of_run(run: EarlierRun, name: str, forward: int, count: int) -> AttentionCall:
    """Returns one of the calls that a module made in a forward pass of another run."""
    calls = [call for call in run.calls if call.name == name and call.forward == forward]
    if len(calls) <= count:
        raise ArgumentError(
            f"to has no call {count} of {name!r} in forward pass {forward}: watch the same model in the other run, "
            "with every layer that is changed, and let both make the same forward passes"
        )
    return calls[count]


class EarlierElements(Elements):
    """Scores or weights of another run's call, computed row by row from the queries and keys that were kept."""

    def __init__(self, tiles: list[ProblemTiles], target: Target):
        self._tiles, self._target = tiles, target

    @classmethod
    def of_call(cls, call: AttentionCall, change: Change, target: Target, shape: tuple[int, int, int]) -> Elements:
        """Returns the elements of a call at a target, for a call of this batch, number of queries and of keys.

        Raises:
            ArgumentError: the watch did not keep them.
            ShapeError: the other call is too small, or all positions are named and it has another number of them.
        """
        _check_sizes(call, change, target, shape)
        what, axes = target.what, axis_names(target.what)
        tiles = [tile for tile in call.tiles or () if isinstance(tile, ProblemTiles)]
        stored = {"output": call.head_output, "values": call.value, "weights": call.weights}.get(what)
        if stored is not None:
            missing = [head for head in target.heads if head not in call.chosen_heads]
            if missing:
                raise ArgumentError(
                    f"to has no head {missing[0]} of {call.name!r}: watch the other run with heads=None"
                )
            chosen = stored[:, [call.chosen_heads.index(head) for head in target.heads]]
        elif tiles and what in ("scores", "weights"):
            return cls(tiles, target)
        elif tiles and what != "output":
            tensors = {"query": "query", "key": "key", "values": "value"}
            parts = [getattr(tile.problem, tensors[what]) for tile in tiles]
            chosen = spread_heads(torch.cat(parts), call.heads)[:, list(target.heads)]
        else:
            if call.tiles is not None and what in ("query", "key", "scores"):
                raise ArgumentError(f"to has no {what} of {call.name!r}, whose softmax the model writes itself")
            options = {"output": "outputs=True", "values": "outputs=True", "weights": 'read="view"'}
            option = options.get(what, "keep=True")
            raise ArgumentError(f"to has no {what} of {call.name!r}: write regard.watch(model, {option})")
        rows = target.queries if axes[2] == "queries" else target.keys
        chosen = chosen[:, :, list(rows)]
        return GivenElements(chosen[..., list(target.keys)] if axes[3] == "keys" else chosen)

    def cut(self, batch: range, rows: slice | list[int], columns: slice | list[int]) -> Tensor:
        chosen = list(self._target.queries)
        chosen = chosen[rows] if isinstance(rows, slice) else [chosen[row] for row in rows]
        tiles = self._tiles if len(self._tiles) == 1 else self._tiles[batch.start : batch.stop]
        pairs = [torch.cat([self._pairs(tile, run) for run in tile.runs(chosen)], dim=2) for tile in tiles]
        return torch.cat(pairs)[..., columns]

    def _pairs(self, tile: ProblemTiles, rows: range) -> Tensor:
        """Returns the scores or weights of consecutive queries, at the chosen heads and keys."""
        steps = tile.steps(rows)
        pairs = steps.masked if self._target.what == "scores" else steps.weights
        return pairs[:, list(self._target.heads)][..., list(self._target.keys)]

    def of_row(self, row: int) -> "EarlierElements":
        tiles = self._tiles if len(self._tiles) == 1 else self._tiles[row : row + 1]
        return EarlierElements(tiles, self._target)


def _check_sizes(call: AttentionCall, change: Change, target: Target, shape: tuple[int, int, int]) -> None:
    """Raises ShapeError unless another call has the elements of a target."""
    batch, *lengths = shape
    if call.batch not in (1, batch):
        raise ShapeError(f"to has {call.batch} batch rows in {call.name!r}; this call has {batch}")
    axes = axis_names(target.what)
    for axis, positions, named, own, other in (
        ("queries", target.queries, change.queries, lengths[0], call.queries),
        ("keys", target.keys, change.keys, lengths[1], call.keys),
    ):
        if axis in axes and (other != own if named is None else max(positions, default=0) >= other):
            raise ShapeError(f"to has {other} {axis} in {call.name!r}; this call has {own}: name positions by {axis}=")
