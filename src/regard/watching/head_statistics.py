"""The statistics of each head that `survey` computes, and their sums from the readings of one call."""

import base64
import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.readings import Readings
from regard.errors import DataError
from regard.masks import Mask
from regard.shapes.axes import Bool
from regard.shapes.grid import Grid
from regard.watching.attention_call import AttentionCall


class Statistic(NamedTuple):
    """One statistic of a head, a mean over queries: its key in `HeadStatistics.values`, its unit, and one line."""

    name: str
    unit: str
    meaning: str


STATISTICS = (
    Statistic("entropy", "nats", "−Σ p ln p of a query's weights"),
    Statistic(
        "relative_entropy", "share", "entropy / ln(keys up to the query's own if causal, else all); 1 is uniform"
    ),
    Statistic("peak", "weight", "the largest weight of a query"),
    Statistic("distance", "tokens", "Σ p · |key − query|"),
    Statistic("first", "share", "weight on the first token of the text, the usual sink"),
    Statistic("special", "share", "weight on special tokens"),
    Statistic("same_token", "share", "weight on other occurrences of the query's token, where there are any"),
    Statistic("induction", "share", "weight on tokens after earlier occurrences of the query's token, if any"),
    Statistic("received_peak", "share", "the share of a text's weight that its most attended token receives"),
)
"""All statistics but the shares at each offset, which are named by `offset_name`: means over the queries that have a
token there that is not special."""


GROUPS = 16
"""The number of groups of texts whose sums are apart: text ``i`` is in group ``i`` mod 16."""

DIGEST_COUNT = 1 << 256
"""The number of digests; sums of digests are taken modulo this."""


def offset_name(offset: int) -> str:
    """Returns the name of the share of weight at an offset: ``"offset -1"`` is that of the previous token."""
    return f"offset {offset:+d}" if offset else "offset 0"


def statistic_names(offsets: int) -> tuple[str, ...]:
    """Returns the names of all statistics, in the order of their sums."""
    around = tuple(offset_name(offset) for offset in range(-offsets, offsets + 1))
    return tuple(statistic.name for statistic in STATISTICS) + around


@dataclass(frozen=True)
class TokenizedTexts:
    """Texts of equal length, as tokens.

    Attributes:
        ids: int64 ``[batch, tokens]``.
        counted: bool ``[batch, tokens]``: False for special tokens, which are neither queries nor keys of a statistic
            unless it says so.
        numbers: the numbers of the texts in the corpus, from 0.
    """

    ids: Tensor
    counted: Tensor
    numbers: tuple[int, ...]

    def digest(self) -> int:
        """Returns a number of 256 bits that depends on the tokens and the positions of the texts in the corpus."""
        texts = zip(self.numbers, self.ids.tolist(), self.counted.tolist(), strict=True)
        digests = (int.from_bytes(hashlib.sha256(repr(text).encode()).digest()) for text in texts)
        return sum(digests) % DIGEST_COUNT


class HeadSums:
    """Sums and counts of the statistics of one module's heads, for each of `GROUPS` groups of texts.

    Attributes:
        layer, kind: as in `AttentionCall`.
        total: float64 ``[groups, heads, statistics]``.
        count: int64 ``[groups, heads, statistics]``: the queries, or texts, of each sum.
    """

    def __init__(self, layer: int, kind: str, total: NDArray[np.float64], count: NDArray[np.int64]):
        self.layer, self.kind, self.total = layer, kind, total
        self.count = count

    def means(self) -> NDArray[np.float64]:
        """Returns the mean of each statistic over all texts, ``[heads, statistics]``; NaN without a query."""
        total, count = self.total.sum(0), self.count.sum(0)
        return np.divide(total, count, where=count > 0, out=np.full(total.shape, np.nan))

    def errors(self, other: "HeadSums | None" = None) -> NDArray[np.float64]:
        """Returns the standard error of each mean, or of its difference from that of other sums of the same texts.

        It is the jackknife's over the :math:`m` groups that have counted queries (Efron and Stein 1981, "The Jackknife
        Estimate of Variance"), where :math:`d_g` is the mean, or the difference, without the texts of group :math:`g`:

        .. math:: \\sqrt{\\tfrac{m - 1}{m} \\sum_g (d_g - \\bar d)^2}

        Texts that are hard for both models do not count as noise of the difference. NaN with fewer than two groups.
        """
        means, present = self._without_each_group(), self.count[..., :1] > 0
        if other is not None:
            means, present = means - other._without_each_group(), present & (other.count[..., :1] > 0)
        number = present.sum(0)
        center = np.where(present, means, 0.0).sum(0) / np.maximum(number, 1)
        squares = np.where(present, (means - center) ** 2, 0.0).sum(0)
        return np.where(number > 1, np.sqrt(squares * (number - 1) / np.maximum(number, 1)), np.nan)

    def _without_each_group(self) -> NDArray[np.float64]:
        total, count = self.total.sum(0) - self.total, self.count.sum(0) - self.count
        return np.divide(total, count, where=count > 0, out=np.full(total.shape, np.nan))

    def add(self, other: "HeadSums") -> None:
        self.total += other.total
        self.count += other.count

    def copy(self) -> "HeadSums":
        return HeadSums(self.layer, self.kind, self.total.copy(), self.count.copy())

    def to_json(self) -> dict[str, Any]:
        """Returns the sums as JSON: all bits of the numbers in base64, little-endian."""
        numbers = {"total": self.total.astype("<f8"), "count": self.count.astype("<i8")}
        texts = {name: base64.b64encode(array.tobytes()).decode() for name, array in numbers.items()}
        return {"layer": self.layer, "kind": self.kind, "heads": self.total.shape[1], **texts}

    @classmethod
    def from_json(cls, fields: dict[str, Any], statistics: int) -> "HeadSums":
        """Reads `to_json` of so many statistics; raises ValueError, KeyError or TypeError for anything else."""
        heads, layer, kind = fields["heads"], fields["layer"], fields["kind"]
        if type(heads) is not int or type(layer) is not int or type(kind) is not str:
            raise TypeError("layer, kind and heads have other types")
        total, count = (
            np.frombuffer(base64.b64decode(fields[name], validate=True), dtype).reshape(GROUPS, heads, statistics)
            for name, dtype in (("total", "<f8"), ("count", "<i8"))
        )
        if not np.isfinite(total).all() or (count < 0).any():
            raise ValueError("a sum is not finite, or a count is negative")
        return cls(layer, kind, total.astype(np.float64), count.astype(np.int64))


class StatisticsReader:
    """The readings of each call in the forward pass of some texts, and the sums that follow from them."""

    def __init__(self, texts: TokenizedTexts, offsets: int):
        self.texts = texts
        on_host = texts.ids.cpu(), texts.counted.cpu()
        self._counted = on_host[1]
        self._same, self._after = SameToken(*on_host), AfterSameToken(*on_host)
        pairs = texts.ids, texts.counted
        shares: dict[str, TokenPairs] = {
            "first": FirstKey(*pairs),
            "special": SpecialKey(*pairs),
            "same_token": SameToken(*pairs),
            "induction": AfterSameToken(*pairs),
        }
        shares |= {offset_name(offset): AtOffset(*pairs, offset) for offset in range(-offsets, offsets + 1)}
        self._at_offsets = [AtOffset(*on_host, offset) for offset in range(-offsets, offsets + 1)]
        self._share_names, self._names = tuple(shares), statistic_names(offsets)
        self._special = (~on_host[1]).any(0).nonzero()[:, 0].tolist()
        rows, masks = self._special or None, tuple(shares.values())
        self.readings = Readings(entropy=True, peak=True, distance=True, received=True, rows=rows, shares=masks)

    def fits(self, call: AttentionCall) -> bool:
        """Whether the call is self-attention over all tokens of the texts."""
        length = self.texts.ids.shape[1]
        return call.kind != "cross" and (call.batch, call.queries, call.keys) == (len(self.texts.ids), length, length)

    def sums(self, call: AttentionCall) -> HeadSums:
        """Sums the statistics of one call over the counted queries that see a key; raises DataError for NaN."""
        assert call.entropy is not None
        assert call.peak is not None
        assert call.distance is not None
        assert call.shares is not None
        causal = call.kind == "causal"
        wrong = ~call.peak.isfinite().flatten(1).all(-1)
        if bool(wrong.any()):
            number = self.texts.numbers[int(wrong.nonzero()[0])]
            raise DataError(f"the weights of {call.name!r} are not finite for text {number}")
        texts = self._counted
        length = texts.shape[1]
        counted = texts[:, None] & (call.peak > 0)  # batch heads queries
        visible = torch.arange(1, length + 1) if causal else torch.full((length,), length)
        uniform = visible.double().log()
        relative = call.entropy.double() / torch.where(visible > 1, uniform, 1.0)
        values = {"entropy": call.entropy, "relative_entropy": relative, "peak": call.peak, "distance": call.distance}
        values |= zip(self._share_names, call.shares.double().unbind(-1), strict=True)
        queries = {
            "relative_entropy": counted & (visible > 1),
            "same_token": counted & self._same.has_any(causal)[:, None],
            "induction": counted & self._after.has_any()[:, None],
        }
        queries |= {offset_name(pairs.offset): counted & pairs.has_any()[:, None] for pairs in self._at_offsets}
        sums = {name: _sum(each, queries.get(name, counted)) for name, each in values.items()}
        sums["received_peak"] = self._received_peak(call)
        in_order = (sums[name] for name in self._names)
        groups = torch.tensor(self.texts.numbers, device="cpu") % GROUPS
        total, count = (
            of_texts.new_zeros(GROUPS, *of_texts.shape[1:]).index_add_(0, groups, of_texts).numpy()
            for of_texts in (torch.stack(parts, -1) for parts in zip(*in_order, strict=True))
        )
        return HeadSums(call.layer, call.kind, total, count)

    def _received_peak(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        """Returns the largest share of counted weight that one key of each text receives, and whether there is any."""
        assert call.received is not None
        received = call.received.double()  # batch heads keys
        special = ~self._counted
        if self._special:
            assert call.rows is not None
            chosen = special[:, self._special][:, None, :, None]
            received = (received - (call.rows.double() * chosen).sum(-2)).clamp(min=0)
        total = received.sum(-1)
        has_weight = (~special).any(-1)[:, None] & (total > 0)
        share = received.amax(-1) / torch.where(has_weight, total, 1.0)
        return share * has_weight, has_weight.long()


def _sum(values: Tensor, over: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sum of ``[batch, heads, queries]`` over some queries, for each text and head; and their number."""
    return (values.double() * over).sum(2), over.sum(2)


# Pairs of tokens that stand in a relation, as masks: their share of a head's weight is a statistic of the head.


class TokenPairs(Mask):
    """Pairs of tokens, with the ``ids`` and ``counted`` of `TokenizedTexts`. Calls of other lengths have none."""

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
        """Returns ``[batch, 1, queries, 1]`` of the tile."""
        return _part(tensor, grid.batch_span, grid.query_span)[:, None, :, None]

    def of_keys(self, tensor: Tensor, grid: Grid) -> Tensor:
        """Returns ``[batch, 1, 1, keys]`` of the tile."""
        return _part(tensor, grid.batch_span, grid.key_span)[:, None, None, :]


def _part(tensor: Tensor, rows: range, span: range) -> Tensor:
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
    """The token at an offset from the query's own, if it is not special."""

    def __init__(self, ids: Tensor, counted: Tensor, offset: int):
        super().__init__(ids, counted)
        self.offset = offset

    def related(self, grid: Grid) -> Tensor:
        return (grid.key_index - grid.query_index == self.offset) & self.of_keys(self.counted, grid)

    def has_any(self) -> Tensor:
        """Returns the queries for which there is such a token, seen or not, bool ``[batch, tokens]``."""
        has_any, length = torch.zeros_like(self.counted), self.counted.shape[1]
        first, end = max(0, -self.offset), min(length, length - self.offset)
        if first < end:
            has_any[:, first:end] = self.counted[:, first + self.offset : end + self.offset]
        return has_any


class SameToken(TokenPairs):
    """Other occurrences of the query's own token."""

    def related(self, grid: Grid) -> Tensor:
        same = self.of_queries(self.ids, grid) == self.of_keys(self.ids, grid)
        return same & (grid.key_index != grid.query_index) & self.of_keys(self.counted, grid)

    def has_any(self, causal: bool) -> Tensor:
        """Returns the queries for which there is such a key, bool ``[batch, tokens]``; before them, if causal."""
        has_any = torch.zeros_like(self.counted)
        for row, (ids, counted) in enumerate(zip(self.ids.tolist(), self.counted.tolist(), strict=True)):
            positions: dict[int, list[int]] = {}
            for position, (token, counts) in enumerate(zip(ids, counted, strict=True)):
                if counts:
                    positions.setdefault(token, []).append(position)
            for same in positions.values():
                has_any[row, same[1:] if causal else (same if len(same) > 1 else [])] = True
        return has_any


class AfterSameToken(TokenPairs):
    """Tokens before the query's own that follow an earlier occurrence of the query's token.

    Induction heads attend to them: Olsson et al. 2022, "In-context Learning and Induction Heads", *prefix matching*.
    """

    def related(self, grid: Grid) -> Tensor:
        before, counted = self._before()
        follows = self.of_queries(self.ids, grid) == self.of_keys(before, grid)
        return follows & self.of_keys(counted, grid) & (grid.key_index < grid.query_index)

    def has_any(self) -> Tensor:
        """Returns the queries for which there is such a key, bool ``[batch, tokens]``."""
        has_any = torch.zeros_like(self.counted)
        before, counted = (tensor.tolist() for tensor in self._before())
        for row, ids in enumerate(self.ids.tolist()):
            followed: set[int] = set()
            for position, token in enumerate(ids):
                has_any[row, position] = token in followed
                if counted[row][position]:
                    followed.add(before[row][position])
        return has_any

    def _before(self) -> tuple[Tensor, Tensor]:
        """Returns the token before each one, and whether both exist and are not special."""
        before, both = torch.roll(self.ids, 1, 1), self.counted & torch.roll(self.counted, 1, 1)
        both[:, :1] = False
        return before, both
