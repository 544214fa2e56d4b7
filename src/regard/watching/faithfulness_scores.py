"""The scores of a method over texts, of `regard.watching.faithfulness`, and statistics of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.names.counted import counted
from regard.pictures.numbers import plain_percent
from regard.watching.importance import IMPORTANCE_METHODS

Numbers = NDArray[np.float64]

TITLES = {name: method.title for name, method in IMPORTANCE_METHODS.items()} | {"random": "random order"}


class TextImportance(NamedTuple):
    """The importance of one text's tokens.

    Attributes:
        tokens: the text of each token.
        counted: whether each token was left out in turn; special ones were not.
        number: the number of the output for the whole text.
        importance: for each method that of the counted tokens.

    Example:
        >>> import numpy
        >>> from regard import watching
        >>> importance = {"weights": numpy.array([0.7, 0.1])}
        >>> text = watching.TextImportance(("[CLS]", "good", "film"), (False, True, True), 0.9, importance)
        >>> text.importance["weights"].argmax()  # of "good" and "film"
        np.int64(0)
    """

    tokens: tuple[str, ...]
    counted: tuple[bool, ...]
    number: float
    importance: dict[str, Numbers]


@dataclass(frozen=True, repr=False, eq=False)
class MethodScores:
    """The scores of one method, or of a random order of each text.

    Attributes:
        name: that of the method, or ``"random"``.
        kendall, spearman: ``[texts]``, the rank correlation with leave-one-out; NaN where all numbers are equal.
        is_above: ``[texts]``, 1 where τ is larger than that of 95 % of random orders.
        is_top: ``[texts]``, 1 where the token of largest importance is that of leave-one-out.
        deletion, insertion: ``[texts, fractions]``, the number without the most important tokens, and with these alone.
        comprehensiveness, sufficiency: ``[texts]``, what the number of the whole text loses thereby, the mean over
            fractions.

    Example:
        >>> import numpy
        >>> from regard import watching
        >>> rows = numpy.array([[1.0, 1.0, 1.0, 1.0, 0.5, 0.25, 0.5, 0.75]])  # ranks, then both curves
        >>> scores = watching.MethodScores.of("weights", rows, whole=numpy.array([1.0]))
        >>> scores.deletion, scores.comprehensiveness
        (array([[0.5 , 0.25]]), array([0.625]))
    """

    name: str
    kendall: Numbers
    spearman: Numbers
    is_above: Numbers
    is_top: Numbers
    deletion: Numbers
    insertion: Numbers
    comprehensiveness: Numbers
    sufficiency: Numbers

    @classmethod
    def of(cls, name: str, rows: Numbers, whole: Numbers) -> "MethodScores":
        """Returns the scores from a row of numbers for each text, and the numbers of the whole texts."""
        deletion, insertion = np.split(rows[:, 4:], 2, axis=1)
        lost, lost_alone = whole - deletion.mean(1), whole - insertion.mean(1)
        tau, rho, is_above, is_top = rows[:, :4].T
        return cls(name, tau, rho, is_above, is_top, deletion, insertion, lost, lost_alone)

    @property
    def title(self) -> str:
        """Its name in tables."""
        return TITLES[self.name]

    def cells(self, decimals: int) -> list[str]:
        """Returns the texts of its row in a table, below `COLUMNS`; what the number loses has these decimals."""
        means = mean(self.kendall), deviation(self.kendall), mean(self.spearman)
        lost = mean(self.comprehensiveness), mean(self.sufficiency)
        shares = (plain_percent(float(share.mean())) for share in (self.is_above, self.is_top))
        return [self.title, *map(shown, means), *shares, *(shown(number, decimals) for number in lost)]

    def __repr__(self) -> str:
        return f"<MethodScores of {self.name} over {counted(len(self.kendall), 'text')}>"


COLUMNS = ("method", "Kendall's τ", "±", "Spearman's ρ", "above chance", "same first", "comprehensive", "sufficient")


def mean(numbers: Numbers) -> float:
    """Returns the mean of the numbers that are not NaN; NaN if there is none."""
    valid = numbers[np.isfinite(numbers)]
    return float(valid.mean()) if len(valid) else math.nan


def deviation(numbers: Numbers) -> float:
    """Returns the standard deviation of the numbers that are not NaN; 0 of a single one."""
    valid = numbers[np.isfinite(numbers)]
    return float(valid.std(ddof=1)) if len(valid) > 1 else 0.0


def margin(numbers: Numbers) -> float:
    """Returns half of the 95 % interval of the mean, as if it were normal; infinite for a single number."""
    count = int(np.isfinite(numbers).sum())
    return 1.96 * deviation(numbers) / math.sqrt(count) if count > 1 else math.inf


def shown(number: float, decimals: int = 2) -> str:
    """Returns a number with some decimals; a dash for NaN."""
    text = f"{number + 0.0:.{decimals}f}"
    text = text.removeprefix("-") if not text.strip("-0.") else text
    return "–" if text == "nan" else text.replace("-", "−").replace("inf", "∞")


def decimals_of(texts: Sequence[TextImportance]) -> int:
    """Returns the decimals with which the numbers of the output have two digits, or more."""
    largest = max(abs(text.number) for text in texts)
    return max(2, 1 - math.floor(math.log10(largest))) if largest else 2
