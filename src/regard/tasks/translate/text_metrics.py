"""Metrics of translations: sacreBLEU's corpus BLEU and chrF."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import ArgumentError, MissingPartError


@dataclass(frozen=True, slots=True)
class TextScores:
    """BLEU and chrF of a corpus, each with sacreBLEU's signature, which says how it was computed."""

    bleu: float
    """0 to 100 (Papineni et al. 2002, as sacreBLEU computes it; Post 2018)."""
    chrf: float
    """0 to 100 (Popović 2015: character n-grams up to 6, β = 2)."""
    bleu_signature: str
    chrf_signature: str


def text_scores(translations: Sequence[str], references: Sequence[str]) -> TextScores:
    """Corpus BLEU and chrF by sacreBLEU with its defaults, on plain (detokenized) text.

    Args:
        translations: one text for each sentence.
        references: one text for each sentence, in the same order.

    Raises:
        ArgumentError: ``translations`` and ``references`` have different lengths.
    """
    if len(translations) != len(references):
        raise ArgumentError(f"there are {len(translations)} translations and {len(references)} references")
    metrics = _sacrebleu().BLEU(), _sacrebleu().CHRF()
    if not references:
        return TextScores(0.0, 0.0, "", "")
    values = [metric.corpus_score(list(translations), [list(references)]).score for metric in metrics]
    return TextScores(*values, *(str(metric.get_signature()) for metric in metrics))


@dataclass(frozen=True, slots=True)
class LengthBin:
    """BLEU of the sentences whose source has between ``shortest`` and ``longest`` words."""

    shortest: int
    longest: int | None
    """None: no limit."""
    pairs: int
    bleu: float

    @property
    def label(self) -> str:
        """E.g. ``"6–10"`` or ``"31+"``."""
        return f"{self.shortest}+" if self.longest is None else f"{self.shortest}–{self.longest}"


def bleu_by_length(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    edges: Sequence[int] = (5, 10, 15, 20, 25, 30),
) -> list[LengthBin]:
    """Corpus BLEU of the sentences of each range of source lengths; empty bins are left out.

    Args:
        sources: source sentences; their length is the number of words between white space.
        translations: as in `text_scores`.
        references: as in `text_scores`.
        edges: the longest length of each bin, in words, ascending; one more bin has the longer sentences.
    """
    members: dict[int, list[int]] = {}
    for index, source in enumerate(sources):
        length = len(source.split())
        members.setdefault(sum(length > edge for edge in edges), []).append(index)
    bins = []
    for place in sorted(members):
        chosen = members[place]
        scores = text_scores([translations[i] for i in chosen], [references[i] for i in chosen])
        shortest = edges[place - 1] + 1 if place else 1
        longest = edges[place] if place < len(edges) else None
        bins.append(LengthBin(shortest, longest, len(chosen), scores.bleu))
    return bins


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError as error:
        raise MissingPartError("sacrebleu", "train") from error
    return sacrebleu.metrics
