"""Metrics of texts: BLEU and chrF, ROUGE, word error rates, CIDEr, and what a summary shares with its article.

Texts are compared in Unicode's composed form (NFC), so that an accent counts alike however it is written.
"""

import contextlib
import io
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

from regard.data.text.words import character_class, main_script, spaced_words, split_words, word_spans
from regard.errors import ArgumentError, MissingPartError

MOST_BINS, LEAST_IN_BIN = 6, 10
"""Bins of lengths, and the sentences of a bin where there are enough for two of them."""

ORDER = 4
"""The longest n-grams of BLEU and of CIDEr, in tokens, where texts have so many."""

_APOSTROPHES = "'’_"
_PLAIN_WORD = re.compile("um*|[lm]+(?:j[lm]+)*")
"""A word of a caption, with a letter for the class of each character: unspaced, mark, letter, joining punctuation."""


@dataclass(frozen=True, repr=False)
class TextScores:
    """BLEU and chrF of a corpus, each with sacreBLEU's signature, which says how it was computed."""

    bleu: float
    """0 to 100 (Papineni et al. 2002, as sacreBLEU computes it; Post 2018)."""
    bleu_order: int
    """The longest n-grams that BLEU counts: 4, or less where no reference has so many tokens."""
    chrf: float
    """0 to 100 (Popović 2015: character n-grams up to 6, β = 2)."""
    bleu_signature: str
    chrf_signature: str


def bleu_tokenizer(references: Sequence[str]) -> str:
    """Returns sacreBLEU's tokenizer that fits the writing of the references: ``"13a"``, its default, splits at spaces,
    so that a sentence in Chinese would be one word; ``"zh"`` for Chinese, ``"ja-mecab"`` for Japanese if MeCab is
    installed, else ``"char"``."""
    script = main_script(references)
    if script == "japanese":
        return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
    return {"spaced": "13a", "chinese": "zh", "unspaced": "char"}[script]


def composed(text: str) -> str:
    """Returns the text in Unicode's composed form (NFC), in which all metrics compare texts."""
    return unicodedata.normalize("NFC", text)


def _pairs(kind: str, texts: Sequence[str], references: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns both in composed form; raises ArgumentError if their numbers differ."""
    if len(texts) != len(references):
        raise ArgumentError(f"there are {len(texts)} {kind} and {len(references)} references")
    return list(map(composed, texts)), list(map(composed, references))


def bleu_name(order: int) -> str:
    """Returns ``"BLEU"``, or ``"BLEU-2"`` if it counts n-grams of at most two tokens."""
    return "BLEU" if order == ORDER else f"BLEU-{order}"


def bleu_order(references: Sequence[str], tokenizer: str | None = None) -> int:
    """Returns the longest n-grams that BLEU can count: 4, or the tokens of the longest reference if that has fewer."""
    split = _sacrebleu().BLEU(tokenize=tokenizer or bleu_tokenizer(references)).tokenizer
    longest = 1
    for text in references:
        longest = max(longest, len(split(composed(text).rstrip()).split()))
        if longest >= ORDER:
            return ORDER
    return longest


def text_scores(translations: Sequence[str], references: Sequence[str], tokenizer: str | None = None) -> TextScores:
    """Computes corpus BLEU and chrF by sacreBLEU, on plain (detokenized) text; ``tokenizer``: as `bleu_tokenizer` says.

    BLEU is the geometric mean of the precisions of 1- to 4-grams, so in sacreBLEU it is 0 where no text has four
    tokens, even if every text is right. Here the longest n-grams are those that the references have (`bleu_order`), and
    n-grams that no translation has, since all are too short, are left out (``eff:yes`` in the signature). Where a
    reference and a translation have four tokens, the value is sacreBLEU's. Raises ArgumentError unless there are
    equally many of both.
    """
    translations, references = _pairs("translations", translations, references)
    if not references:
        return TextScores(0.0, ORDER, 0.0, "", "")
    tokenizer = tokenizer or bleu_tokenizer(references)
    order = bleu_order(references, tokenizer)
    metric, chrf = _sacrebleu().BLEU(tokenize=tokenizer, max_ngram_order=order), _sacrebleu().CHRF()
    scored = metric.corpus_score(translations, [references])
    if not all(scored.totals):
        metric = _sacrebleu().BLEU(tokenize=tokenizer, max_ngram_order=order, effective_order=True)
        scored = metric.corpus_score(translations, [references])
    return TextScores(
        bleu=scored.score,
        bleu_order=order,
        chrf=chrf.corpus_score(translations, [references]).score,
        bleu_signature=_signature(metric, order),
        chrf_signature=str(chrf.get_signature()),
    )


def _signature(metric: Any, order: int) -> str:
    """Returns sacreBLEU's signature, with the longest n-grams added where they do not have four tokens."""
    return f"{metric.get_signature()}{'' if order == ORDER else f'|ngram:{order}'}"


@dataclass(frozen=True)
class LengthBin:
    """BLEU of the sentences whose source has between ``shortest`` and ``longest`` words."""

    shortest: int
    longest: int
    pairs: int
    bleu: float
    bleu_order: int = ORDER
    """As in `TextScores`, of the references of these sentences."""

    @property
    def label(self) -> str:
        """E.g. ``"6–10"``, or ``"6"``."""
        return str(self.longest) if self.shortest == self.longest else f"{self.shortest}–{self.longest}"


def length_bins(lengths: Sequence[int]) -> list[list[int]]:
    """Returns the positions of lengths in `MOST_BINS` bins or fewer, none of them empty, of similar sizes, from short
    to long; the edges are quantiles. There are none if all lengths are the same."""
    ordered = sorted(lengths)
    if not ordered or ordered[0] == ordered[-1]:
        return []
    count = min(MOST_BINS, max(2, len(ordered) // LEAST_IN_BIN))
    below = max(length for length in ordered if length < ordered[-1])
    edges = sorted({min(below, ordered[-(-len(ordered) * number // count) - 1]) for number in range(1, count)})
    bins: list[list[int]] = [[] for _ in (*edges, 0)]
    for position, length in enumerate(lengths):
        bins[bisect_left(edges, length)].append(position)
    return bins


def bleu_by_length(sources: Sequence[str], translations: Sequence[str], references: Sequence[str]) -> list[LengthBin]:
    """Computes corpus BLEU of the sentences of each range of source lengths, in words, which `length_bins` chooses."""
    lengths = [len(spaced_words(source)) for source in sources]
    bins, tokenizer = [], bleu_tokenizer(references)
    for chosen in length_bins(lengths):
        scores = text_scores([translations[i] for i in chosen], [references[i] for i in chosen], tokenizer)
        words = [lengths[i] for i in chosen]
        bins.append(LengthBin(min(words), max(words), len(chosen), scores.bleu, scores.bleu_order))
    return bins


def _sacrebleu() -> Any:
    with MissingPartError.instead("sacrebleu", "train"):
        import sacrebleu.metrics
    return sacrebleu.metrics


class RougeScores(NamedTuple):
    """The mean F1 of all summaries, 0 to 100 (Lin 2004): of words and of pairs of words that follow each other (section
    2, N = 1 and 2), and of the longest common subsequence of the whole texts (section 3.1)."""

    rouge_1: float
    rouge_2: float
    rouge_l: float


def rouge_scores(summaries: Sequence[str], references: Sequence[str]) -> RougeScores:
    """Computes ROUGE-1, ROUGE-2 and ROUGE-L by TorchMetrics, on lower-cased words without punctuation or stemming;
    raises ArgumentError unless there are equally many summaries and references."""
    summaries, references = _pairs("summaries", summaries, references)
    if not references:
        return RougeScores(0.0, 0.0, 0.0)
    with MissingPartError.instead("torchmetrics", "train"):
        from torchmetrics.functional.text.rouge import rouge_score
    scores = rouge_score(
        summaries, references, normalizer=str, tokenizer=rouge_words, rouge_keys=("rouge1", "rouge2", "rougeL")
    )
    return RougeScores(*(100 * float(scores[f"rouge{kind}_fmeasure"]) for kind in ("1", "2", "L")))


def rouge_words(text: str) -> list[str]:
    """Returns the words that ROUGE counts: letters and digits in lower case, split at anything else.

    For texts of ASCII characters these are the words of the usual implementation (rouge-score 0.1.2, without stemming),
    which takes every other letter for a space: *naïve* is its two words *na* and *ve*, and a Greek text has none. Here
    letters and marks of every script are kept, and each character of a script that is written without spaces is a word.
    """
    lowered = composed(text.lower())
    words = (lowered[span.start : span.stop] for span in word_spans(lowered))
    parts = (part for word in words for part in word.translate(dict.fromkeys(map(ord, _APOSTROPHES), " ")).split())
    return [part for part in parts if character_class(part[0]) in ("letter", "unspaced")]


class SpanCount(NamedTuple):
    """Spans that summaries must have, and those that they have."""

    exact: int
    spans: int


def novel_share(summaries: Sequence[str], articles: Sequence[str], length: int) -> float:
    """Returns the share of the summaries' runs of words (of ROUGE) that their articles lack (See et al. 2017, fig. 6).
    All runs of all summaries count alike; 0 if there are none."""
    novel = total = 0
    for summary, article in zip(summaries, articles, strict=True):
        known = set(_runs(rouge_words(article), length))
        runs = _runs(rouge_words(summary), length)
        novel += sum(run not in known for run in runs)
        total += len(runs)
    return novel / max(1, total)


def repeated_share(summaries: Sequence[str], length: int) -> float:
    """Returns the share of runs of ``length`` words that the same summary had before (See et al. 2017, fig. 4)."""
    runs = [_runs(rouge_words(summary), length) for summary in summaries]
    return sum(len(each) - len(set(each)) for each in runs) / max(1, sum(map(len, runs)))


def spans_exact(summaries: Sequence[str], spans: Sequence[Sequence[str]]) -> SpanCount:
    """Counts the spans that the summaries have, each behind the last one that was found. Words are those of
    `regard.data.text.words`, with their case."""
    exact = 0
    for summary, expected in zip(summaries, spans, strict=True):
        words, position = split_words(composed(summary)), 0
        for span in (split_words(composed(text)) for text in expected):
            starts = range(position, len(words) - len(span) + 1)
            start_of_span = next((start for start in starts if words[start : start + len(span)] == span), None)
            if start_of_span is not None:
                exact += 1
                position = start_of_span + len(span)
    return SpanCount(exact, sum(map(len, spans)))


def _runs(words: list[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + length]) for start in range(len(words) - length + 1)]


@dataclass(frozen=True, repr=False)
class ErrorRates:
    """How far transcriptions are from what was said: edits over the length of the references."""

    wer: float
    """Word error rate: (substitutions + deletions + insertions) / words of the references; it may be above 1."""
    cer: float
    """Character error rate, spaces included."""
    substitutions: int
    """Words, or characters of a script without spaces."""
    deletions: int
    insertions: int
    words: int
    """Words of the references."""


def error_rates(transcriptions: Sequence[str], references: Sequence[str]) -> ErrorRates:
    """Computes the word and character error rates of transcriptions.

    Words are what stands between white space; each character of a script that is written without spaces counts as a
    word. The fewest edits of each text are added up before they are divided, as the field does. Raises ArgumentError if
    they are not equally many, or a reference has no word, and MissingPartError if jiwer is not installed.
    """
    transcriptions, references = _pairs("transcriptions", transcriptions, references)
    for number, text in enumerate(references):
        if not text.strip():
            raise ArgumentError(f"references[{number}] has no word; leave it out")
    if not references:
        return ErrorRates(0.0, 0.0, 0, 0, 0, 0)
    with MissingPartError.instead("jiwer", "speech"):
        import jiwer
    true, heard = ([" ".join(spaced_words(text)) for text in texts] for texts in (references, transcriptions))
    words = jiwer.process_words(true, heard)
    true, heard = ([" ".join(text.split()) for text in texts] for texts in (references, transcriptions))
    characters = jiwer.process_characters(true, heard)
    return ErrorRates(
        wer=float(words.wer),
        cer=float(characters.cer),
        substitutions=words.substitutions,
        deletions=words.deletions,
        insertions=words.insertions,
        words=sum(len(spaced_words(text)) for text in references),
    )


@dataclass(frozen=True)
class CaptionScores:
    """Metrics of the captions of a data set."""

    bleu: tuple[float, float, float, float]
    """BLEU-1 to BLEU-4, 0 to 100: BLEU-n is the geometric mean of the precisions of 1- to n-grams, times the brevity
    penalty (Papineni et al. 2002), over the whole data set; of the true captions of an image, the nearest length
    counts."""
    bleu_order: int
    """The longest n-grams that BLEU-4 counts: 4, or less where no true caption has so many words."""
    cider: float
    """CIDEr-D (Vedantam et al. 2015), as its authors multiply it by 10: 0 to 10."""
    cider_limit: float
    """`cider_limit` of the true captions, which no captions exceed."""
    signature: str
    """How sacreBLEU computed BLEU-4."""


def caption_scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> CaptionScores:
    """Computes the metrics of captions, in lower case and without punctuation, as is usual for captions, by the true
    ones of each image. Raises ArgumentError if the numbers of images differ, or an image has no true caption, and
    MissingPartError if sacrebleu or pycocoevalcap is not installed."""
    if len(captions) != len(references):
        raise ArgumentError(f"there are {len(captions)} captions and true captions of {len(references)} images")
    if not all(references):
        raise ArgumentError("each image must have a true caption")
    predicted = [plain_words(text) for text in captions]
    true = [[plain_words(text) for text in texts] for texts in references]
    if not predicted:
        return CaptionScores((0.0, 0.0, 0.0, 0.0), ORDER, 0.0, 0.0, "")
    longest = min(ORDER, max(1, *(len(text.split()) for texts in true for text in texts)))
    bleu, signature = _bleu(predicted, true, longest)
    return CaptionScores(bleu, longest, _cider(predicted, true), _cider_limit(true), signature)


def cider_limit(references: Sequence[Sequence[str]]) -> float:
    """Returns the largest possible CIDEr-D of captions, which is below 10 where true captions are short or alike.

    CIDEr is ten times the mean of a similarity of 1-, 2-, 3- and 4-grams. A true caption of two words has no 3- and
    4-grams, so that its own text has 5, not 10; an n-gram that all images have counts nothing, so that one image alone
    has 0.
    """
    return _cider_limit([[plain_words(text) for text in texts] for texts in references])


def _cider_limit(references: Sequence[Sequence[str]]) -> float:
    grams = [
        [[set(_runs(text.split(), order)) for order in range(1, ORDER + 1)] for text in texts] for texts in references
    ]
    images: Counter[tuple[str, ...]] = Counter()
    for texts in grams:
        images.update(set().union(*(each for text in texts for each in text)))
    everywhere = {gram for gram, count in images.items() if count == len(references)}
    shares = [sum(bool(each - everywhere) for text in texts for each in text) / len(texts) for texts in grams]
    return 10 / ORDER * sum(shares) / max(1, len(references))


def plain_words(text: str) -> str:
    """Returns the words of a text in lower case with spaces between them, without punctuation but apostrophes and
    hyphens inside a word; each character of a script without spaces is a word."""
    lowered = composed(text.lower())
    classes = "".join("j" if letter in "'’-" else character_class(letter)[0] for letter in lowered)
    return " ".join(lowered[word.start() : word.end()] for word in _PLAIN_WORD.finditer(classes))


def _bleu(
    captions: list[str], references: list[list[str]], longest: int
) -> tuple[tuple[float, float, float, float], str]:
    """Returns BLEU-1 to BLEU-4, of n-grams of at most ``longest`` words, and the signature of the last one."""
    # Column n has the n-th true caption of each image; None where an image has fewer.
    most = max(map(len, references))
    columns: list[Any] = [[texts[n] if n < len(texts) else None for texts in references] for n in range(most)]
    values, signature = [], ""
    for order in range(1, ORDER + 1):
        counted = min(order, longest)
        metric = _sacrebleu().BLEU(max_ngram_order=counted, tokenize="none", force=True, smooth_method="none")
        values.append(min(100.0, metric.corpus_score(captions, columns).score))  # rounding gives a little more
        signature = _signature(metric, counted)
    return (values[0], values[1], values[2], values[3]), signature


def _cider(captions: list[str], references: list[list[str]]) -> float:
    with MissingPartError.instead("pycocoevalcap", "images"):
        from pycocoevalcap.cider.cider import Cider
    if len(captions) < 2:
        return 0.0  # the weights of n-grams need other images to compare with
    with contextlib.redirect_stdout(io.StringIO()):
        score, _ = Cider().compute_score(dict(enumerate(references)), {n: [text] for n, text in enumerate(captions)})
    return float(score)
