"""What `survey` measures of each head, and how its sums are taken from the readings of one call."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.readings import Readings
from regard.errors import DataError
from regard.watching.attention_call import AttentionCall
from regard.watching.token_pairs import AfterSameToken, AtOffset, FirstKey, SameToken, SpecialKey


class Statistic(NamedTuple):
    """One statistic of a head: a mean over queries.

    Attributes:
        name: the key in `HeadStatistics.values`.
        unit: of its numbers.
        meaning: one line.
    """

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
    Statistic("same_token", "share", "weight on other places of the query's token, where it has any"),
    Statistic("induction", "share", "weight on tokens after earlier places of the query's token, where it has any"),
    Statistic("received_peak", "share", "of all weight that a text gives, what its most attended token gets"),
)
"""All statistics but the shares at each offset, which are named by `offset_name`."""


def offset_name(offset: int) -> str:
    """The name of the share of weight at an offset: ``"offset -1"`` is that of the previous token."""
    return f"offset {offset:+d}" if offset else "offset 0"


def names(offsets: int) -> tuple[str, ...]:
    """Of all statistics, in the order of their sums."""
    around = tuple(offset_name(offset) for offset in range(-offsets, offsets + 1))
    return tuple(statistic.name for statistic in STATISTICS) + around


@dataclass(frozen=True)
class Texts:
    """Texts of equal length, as tokens.

    Attributes:
        ids: int64 ``[batch, tokens]``.
        counted: bool ``[batch, tokens]``: False for special tokens, which are neither queries nor keys of a statistic
            unless it says so.
        numbers: which texts of the corpus they are, from 0.
    """

    ids: Tensor
    counted: Tensor
    numbers: tuple[int, ...]


class Sums:
    """Sums and counts of the statistics of one module's heads.

    Attributes:
        layer, kind: as in `AttentionCall`.
        total: float64 ``[heads, statistics]``.
        count: int64 ``[heads, statistics]``: queries, or texts, that a sum is over; ``[statistics]`` where it is the
            same for all heads.
    """

    def __init__(self, layer: int, kind: str, total: NDArray[np.float64], count: NDArray[np.int64]):
        self.layer, self.kind, self.total = layer, kind, total
        self.count = np.array(np.broadcast_to(count, total.shape))

    def add(self, other: "Sums") -> None:
        self.total += other.total
        self.count += other.count


class Reader:
    """What is read of each call for some texts, and the sums that follow from it.

    Args:
        texts: those of one forward pass.
        offsets: how far from the query's own position shares are taken.
    """

    def __init__(self, texts: Texts, offsets: int):
        self.texts = texts
        on_host = texts.ids.cpu(), texts.counted.cpu()
        self._same, self._after = SameToken(*on_host), AfterSameToken(*on_host)
        pairs = texts.ids, texts.counted
        around = [AtOffset(*pairs, offset) for offset in range(-offsets, offsets + 1)]
        self._special = sorted({place for row in (~on_host[1]).tolist() for place, is_so in enumerate(row) if is_so})
        self.readings = Readings(
            entropy=True,
            peak=True,
            distance=True,
            received=True,
            rows=self._special or None,
            shares=(FirstKey(*pairs), SpecialKey(*pairs), SameToken(*pairs), AfterSameToken(*pairs), *around),
        )

    def fits(self, call: AttentionCall) -> bool:
        """Whether the call is self-attention over all tokens of the texts."""
        length = self.texts.ids.shape[1]
        return call.kind != "cross" and (call.batch, call.queries, call.keys) == (len(self.texts.ids), length, length)

    def sums(self, call: AttentionCall) -> Sums:
        """The sums of one call over its counted queries: those of a head that see a key.

        Raises:
            DataError: weights that are not finite.
        """
        assert call.entropy is not None
        assert call.peak is not None
        assert call.distance is not None
        assert call.shares is not None
        causal = call.kind == "causal"
        self._check(call, call.peak)
        texts = self.texts.counted.cpu()
        length = texts.shape[1]
        counted = texts[:, None] & (call.peak > 0)  # batch heads queries
        visible = torch.arange(1, length + 1) if causal else torch.full((length,), length)
        uniform = visible.double().log()
        relative = call.entropy.double() / torch.where(visible > 1, uniform, 1.0)
        first, special, same, after, *around = call.shares.double().unbind(-1)
        over_queries = [
            (call.entropy, counted),
            (relative, counted & (visible > 1)),
            (call.peak, counted),
            (call.distance, counted),
            (first, counted),
            (special, counted),
            (same, counted & self._same.has_any(causal)[:, None]),
            (after, counted & self._after.has_any()[:, None]),
        ]
        sums = [_sum(values, over) for values, over in over_queries]
        sums.append(self._received_peak(call))
        sums += [_sum(values, counted) for values in around]
        total, count = (torch.stack(parts, -1).numpy() for parts in zip(*sums, strict=True))
        return Sums(call.layer, call.kind, total, count)

    def _received_peak(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        """Of each text, the largest share that one key gets of what counted queries give; the sum over texts in which
        these give any."""
        assert call.received is not None
        received = call.received.double()  # batch heads keys
        special = ~self.texts.counted.cpu()
        if self._special:
            assert call.rows is not None
            chosen = special[:, self._special][:, None, :, None]
            received = (received - (call.rows.double() * chosen).sum(-2)).clamp(min=0)
        total = received.sum(-1)
        given = (~special).any(-1)[:, None] & (total > 0)
        share = received.amax(-1) / torch.where(given, total, 1.0)
        return (share * given).sum(0), given.sum(0)

    def _check(self, call: AttentionCall, peak: Tensor) -> None:
        wrong = ~peak.isfinite().flatten(1).all(-1)
        if bool(wrong.any()):
            number = self.texts.numbers[int(wrong.nonzero()[0])]
            raise DataError(f"the weights of {call.name!r} are not finite for text {number}")


def _sum(values: Tensor, over: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of ``[batch, heads, queries]`` over chosen queries, for each head; and how many they are."""
    return (values.double() * over).sum((0, 2)), over.sum((0, 2))
