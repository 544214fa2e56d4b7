"""Options of the search for a text, which all tasks that predict texts share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.training.sections import check_between

if TYPE_CHECKING:
    from regard.models.search import MinimumRisk

MOST_BEAM = 1000

MOST_SAMPLES = 1000


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How a text is searched for."""

    beam: int = 5
    """Beam width; 1: greedy search."""
    length_penalty: float = 1.0
    """Exponent of the beam's length normalization, 0 or more; 0 favours short texts."""
    samples: int = 0
    """Draw so many texts and choose the one that has most in common with all of them (minimum Bayes risk), without a
    beam; 0: a beam."""
    temperature: float = 0.7
    """Of the samples, above 0; below 1, likely tokens become more likely."""
    utility_order: int = 4
    """Samples are compared by the BLEU of their tokens, with n-grams up to this length."""
    seed: int = 1
    """Seed of the samples."""

    def __post_init__(self) -> None:
        check_between(self, 1, MOST_BEAM, "beam")
        check_between(self, 0, 100, "length_penalty")
        check_between(self, 0, MOST_SAMPLES, "samples")
        check_between(self, 1e-6, 1e6, "temperature")
        check_between(self, 1, 100, "utility_order")
        check_between(self, 0, 2**63 - 1, "seed")

    @property
    def minimum_risk(self) -> MinimumRisk | None:
        """How samples are drawn and compared; None: a beam search."""
        if self.samples == 0:
            return None
        from regard.models.search import MinimumRisk  # with PyTorch, which the options of a command do not need

        return MinimumRisk(self.samples, self.temperature, self.utility_order, self.seed)


def search_line(width: int, length_penalty: float, risk: Mapping[str, Any] | None, *others: str) -> str:
    """How an evaluation searched, in one line: ``"search: beam 5 · length penalty 1"``.

    Args:
        width: beam width.
        length_penalty: exponent of the beam's length normalization.
        risk: the fields of a `regard.models.search.MinimumRisk`; None: a beam search.
        others: what else the search of a task depends on.
    """
    if risk is not None:
        parts = [
            f"minimum Bayes risk of {risk['samples']} samples", f"temperature {risk['temperature']:g}",
            f"utility order {risk['order']}", f"seed {risk['seed']}",
        ]  # fmt: skip
    elif width == 1:
        parts = ["greedy (beam 1)"]
    else:
        parts = [f"beam {width}", f"length penalty {length_penalty:g}"]
    return f"search: {' · '.join([*parts, *others])}"
