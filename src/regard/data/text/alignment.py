"""Word alignments between a source and a target sentence: reading, writing, alignment error rate."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.errors import ArgumentError, DataError

Link = tuple[int, int]
"""``(source word, target word)``, both counted from 0."""

_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True)
class Alignment:
    """The true links between the words of two sentences.

    Attributes:
        sure: links that must be there.
        possible: links that may be there; contains every sure one.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        if not self.sure <= self.possible:
            raise ArgumentError(f"every sure link is possible too; {sorted(self.sure - self.possible)} are not")

    @classmethod
    def parse(cls, text: str) -> "Alignment":
        """Reads Pharaoh format: ``"0-0 1p2"`` is a sure link 0-0 and a possible one 1-2. An empty text has no links.

        Raises:
            DataError: something in it is not a link.
        """
        sure, possible = set(), set()
        for word in text.split():
            match = _LINK.fullmatch(word)
            if match is None:
                raise DataError(f"{word[:40]!r} is not a link of an alignment; write 0-2 (sure) or 0p2 (possible)")
            link = int(match[1]), int(match[3])
            possible.add(link)
            if match[2] == "-":
                sure.add(link)
        return cls(frozenset(sure), frozenset(possible))

    def __str__(self) -> str:
        """Returns the links in Pharaoh format, ordered by target word."""
        ordered = sorted(self.possible, key=lambda link: (link[1], link[0]))
        return " ".join(f"{s}{'-' if (s, t) in self.sure else 'p'}{t}" for s, t in ordered)


def alignment_error_rate(
    predicted: Sequence[Iterable[Link]], sure: Sequence[Iterable[Link]], possible: Sequence[Iterable[Link]]
) -> float:
    """Returns the alignment error rate of predicted word alignments; 0 is best, 1 is worst.

    ``AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)``

    (Och and Ney 2003, *A systematic comparison of various statistical alignment models*, section 5), where A are the
    predicted, S the sure and P the possible links, counted over all sentence pairs together.

    Args:
        predicted: the links of each pair.
        sure: the sure links of each pair.
        possible: the possible links of each pair; sure links count as possible even if they are not in this list.

    Returns:
        the rate; 0.0 when nothing was predicted and nothing is sure.

    Raises:
        ArgumentError: the three arguments have different lengths.
    """
    if not len(predicted) == len(sure) == len(possible):
        raise ArgumentError(
            "predicted, sure and possible must hold one alignment a pair; "
            f"they hold {len(predicted)}, {len(sure)} and {len(possible)}"
        )
    right = total = 0
    for links, must, may in zip(predicted, sure, possible, strict=True):
        a, s = set(links), set(must)
        p = s | set(may)
        right += len(a & s) + len(a & p)
        total += len(a) + len(s)
    return 1 - right / total if total else 0.0
