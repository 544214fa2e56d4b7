"""Metrics of captions: BLEU-1 to BLEU-4 by sacreBLEU and CIDEr by pycocoevalcap, against several true captions."""

import contextlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import ArgumentError, MissingPartError

ORDERS = (1, 2, 3, 4)

_WORD = re.compile(r"\w+(?:['’-]\w+)*")


@dataclass(frozen=True, slots=True)
class CaptionScores:
    """Metrics of the captions of a data set."""

    bleu: tuple[float, float, float, float]
    """BLEU-1 to BLEU-4, 0 to 100: BLEU-n is the geometric mean of the precisions of 1- to n-grams, times the brevity
    penalty (Papineni et al. 2002), over the whole data set; of the true captions of an image, the nearest length
    counts."""
    cider: float
    """CIDEr-D (Vedantam et al. 2015), as its authors multiply it by 10: 0 to 10."""
    signature: str
    """How sacreBLEU computed BLEU-4."""


def caption_scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> CaptionScores:
    """The metrics of captions. Letters are in lower case and punctuation is left out, as usual for captions.

    Args:
        captions: one for each image.
        references: the true captions of each image, at least one.

    Raises:
        ArgumentError: the numbers of images differ, or an image has no true caption.
        MissingPartError: sacrebleu or pycocoevalcap is not installed.
    """
    if len(captions) != len(references):
        raise ArgumentError(f"there are {len(captions)} captions and true captions of {len(references)} images")
    if not all(references):
        raise ArgumentError("each image must have a true caption")
    found = [plain_words(text) for text in captions]
    true = [[plain_words(text) for text in texts] for texts in references]
    if not found:
        return CaptionScores((0.0, 0.0, 0.0, 0.0), 0.0, "")
    bleu, signature = _bleu(found, true)
    return CaptionScores(bleu, _cider(found, true), signature)


def plain_words(text: str) -> str:
    """The words of a text in lower case with spaces between them, without punctuation."""
    return " ".join(_WORD.findall(text.lower()))


def _bleu(captions: list[str], references: list[list[str]]) -> tuple[tuple[float, float, float, float], str]:
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise MissingPartError("sacrebleu", "train") from error
    # Column n has the n-th true caption of each image; None where an image has fewer.
    most = max(map(len, references))
    columns: list[Any] = [[texts[n] if n < len(texts) else None for texts in references] for n in range(most)]
    values, signature = [], ""
    for order in ORDERS:
        metric = BLEU(max_ngram_order=order, tokenize="none", force=True, smooth_method="none")
        values.append(min(100.0, metric.corpus_score(captions, columns).score))  # rounding gives a little more
        signature = str(metric.get_signature())
    return (values[0], values[1], values[2], values[3]), signature


def _cider(captions: list[str], references: list[list[str]]) -> float:
    try:
        from pycocoevalcap.cider.cider import Cider
    except ImportError as error:
        raise MissingPartError("pycocoevalcap", "images") from error
    if len(captions) < 2:
        return 0.0  # the weights of n-grams need other images to compare with
    with contextlib.redirect_stdout(io.StringIO()):
        score, _ = Cider().compute_score(dict(enumerate(references)), {n: [text] for n, text in enumerate(captions)})
    return float(score)
