"""Pairs of tokens that stand in a relation, as masks: their share of a head's weight is a statistic of the head."""

from abc import abstractmethod

import torch
from torch import Tensor

from regard.axes import Bool
from regard.masks import Mask
from regard.shapes import Grid


class TokenPairs(Mask):
    """Pairs of tokens of some texts. Calls with other lengths (cross-attention) have none.

    Args:
        ids: int64 ``[batch, tokens]``.
        counted: bool ``[batch, tokens]``: False for special tokens.
    """

    def __init__(self, ids: Tensor, counted: Tensor):
        self.ids, self.counted = ids, counted

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        if (grid.batch, grid.queries, grid.keys) != (*self.ids.shape, self.ids.shape[1]):
            return torch.zeros(1, dtype=torch.bool, device=grid.device)
        return self.related(grid)

    @abstractmethod
    def related(self, grid: Grid) -> Tensor:
        """Whether each pair of the tile is one, broadcastable to its ``[batch, heads, queries, keys]``."""

    def of_queries(self, tensor: Tensor, grid: Grid) -> Tensor:
        """``[batch, 1, queries, 1]`` of the tile."""
        return self._part(tensor, grid.batch_span, grid.query_span)[:, None, :, None]

    def of_keys(self, tensor: Tensor, grid: Grid) -> Tensor:
        """``[batch, 1, 1, keys]`` of the tile."""
        return self._part(tensor, grid.batch_span, grid.key_span)[:, None, None, :]

    def _part(self, tensor: Tensor, rows: range, span: range) -> Tensor:
        return tensor[rows.start : rows.stop, span.start : span.stop]


class FirstKey(TokenPairs):
    """The first token of the text, special or not."""

    def related(self, grid: Grid) -> Tensor:
        return grid.key_index == 0


class SpecialKey(TokenPairs):
    """Special tokens."""

    def related(self, grid: Grid) -> Tensor:
        return ~self.of_keys(self.counted, grid)


class AtOffset(TokenPairs):
    """The token that stands ``offset`` after the query's own, if it is not special."""

    def __init__(self, ids: Tensor, counted: Tensor, offset: int):
        super().__init__(ids, counted)
        self.offset = offset

    def related(self, grid: Grid) -> Tensor:
        return (grid.key_index - grid.query_index == self.offset) & self.of_keys(self.counted, grid)


class SameToken(TokenPairs):
    """Other places of the query's own token."""

    def related(self, grid: Grid) -> Tensor:
        same = self.of_queries(self.ids, grid) == self.of_keys(self.ids, grid)
        return same & (grid.key_index != grid.query_index) & self.of_keys(self.counted, grid)

    def has_any(self, causal: bool) -> Tensor:
        """Queries for which there is such a key, bool ``[batch, tokens]``; before them, if causal."""
        found = torch.zeros_like(self.counted)
        for row, (ids, counted) in enumerate(zip(self.ids.tolist(), self.counted.tolist(), strict=True)):
            places: dict[int, list[int]] = {}
            for place, (token, counts) in enumerate(zip(ids, counted, strict=True)):
                if counts:
                    places.setdefault(token, []).append(place)
            for same in places.values():
                found[row, same[1:] if causal else (same if len(same) > 1 else [])] = True
        return found


class AfterSameToken(TokenPairs):
    """Tokens before the query's own, that follow an earlier place of the query's token.

    What an induction head attends to: Olsson et al. 2022, "In-context Learning and Induction Heads", *prefix matching*.
    """

    def related(self, grid: Grid) -> Tensor:
        before, counted = self._before()
        follows = self.of_queries(self.ids, grid) == self.of_keys(before, grid)
        return follows & self.of_keys(counted, grid) & (grid.key_index < grid.query_index)

    def has_any(self) -> Tensor:
        """Queries for which there is such a key, bool ``[batch, tokens]``."""
        found = torch.zeros_like(self.counted)
        before, counted = (tensor.tolist() for tensor in self._before())
        for row, ids in enumerate(self.ids.tolist()):
            followed: set[int] = set()
            for place, token in enumerate(ids):
                found[row, place] = token in followed
                if counted[row][place]:
                    followed.add(before[row][place])
        return found

    def _before(self) -> tuple[Tensor, Tensor]:
        """The token before each one; and whether both are there and not special."""
        before, both = torch.roll(self.ids, 1, 1), self.counted & torch.roll(self.counted, 1, 1)
        both[:, :1] = False
        return before, both
