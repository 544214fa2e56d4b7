"""ROUGE: words, pairs of words and subsequences that a summary shares with its reference (Lin 2004)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from regard.data.text.words import character_class, word_spans
from regard.errors import ArgumentError, MissingPartError

_APOSTROPHES = "'’_"


class RougeScores(NamedTuple):
    """The mean F1 of all summaries, 0 to 100.

    Attributes:
        rouge_1: of words (Lin 2004, section 2, N = 1).
        rouge_2: of pairs of words that follow each other (N = 2).
        rouge_l: of the longest common subsequence of the whole texts (section 3.1).
    """

    rouge_1: float
    rouge_2: float
    rouge_l: float


def rouge_scores(summaries: Sequence[str], references: Sequence[str]) -> RougeScores:
    """ROUGE-1, ROUGE-2 and ROUGE-L by TorchMetrics, on lower-cased words without punctuation and without stemming.

    Args:
        summaries: one text for each article.
        references: one text for each article, in the same order.

    Raises:
        ArgumentError: ``summaries`` and ``references`` have different lengths.
    """
    if len(summaries) != len(references):
        raise ArgumentError(f"there are {len(summaries)} summaries and {len(references)} references")
    if not references:
        return RougeScores(0.0, 0.0, 0.0)
    found = _torchmetrics()(
        list(summaries),
        list(references),
        normalizer=_identity,
        tokenizer=rouge_words,
        rouge_keys=("rouge1", "rouge2", "rougeL"),
    )
    return RougeScores(*(100 * float(found[f"rouge{kind}_fmeasure"]) for kind in ("1", "2", "L")))


def rouge_words(text: str) -> list[str]:
    """The words that ROUGE counts: letters and digits in lower case, split at anything else.

    For English it gives what the usual implementation (``rouge_score``) gives. Letters and marks of every script are
    kept, and each character of a script that is written without spaces is a word.
    """
    lowered = text.lower()
    words = (lowered[span.start : span.stop] for span in word_spans(lowered))
    parts = (part for word in words for part in word.translate(dict.fromkeys(map(ord, _APOSTROPHES), " ")).split())
    return [part for part in parts if character_class(part[0]) in ("letter", "unspaced")]


def _identity(text: str) -> str:
    return text


def _torchmetrics() -> Any:
    try:
        from torchmetrics.functional.text.rouge import rouge_score
    except ImportError as error:
        raise MissingPartError("torchmetrics", "train") from error
    return rouge_score
