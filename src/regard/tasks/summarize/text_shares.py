"""What a summary has of its article and of itself: new words, repetitions, spans that had to be copied."""

from collections.abc import Sequence
from typing import NamedTuple

from regard.data.text.words import split_words
from regard.tasks.summarize.rouge import rouge_words


class SpanCount(NamedTuple):
    """Spans that summaries must have, and those that they have."""

    found: int
    spans: int


def novel_share(summaries: Sequence[str], articles: Sequence[str], length: int) -> float:
    """The share of runs of ``length`` words in the summaries that the article does not have (See et al. 2017, fig. 6).

    Words are those of ROUGE. All runs of all summaries count alike; 0 if there are none.
    """
    novel = total = 0
    for summary, article in zip(summaries, articles, strict=True):
        known = set(_runs(rouge_words(article), length))
        runs = _runs(rouge_words(summary), length)
        novel += sum(run not in known for run in runs)
        total += len(runs)
    return novel / max(1, total)


def repeated_share(summaries: Sequence[str], length: int) -> float:
    """The share of runs of ``length`` words that the same summary had before (See et al. 2017, fig. 4)."""
    runs = [_runs(rouge_words(summary), length) for summary in summaries]
    return sum(len(each) - len(set(each)) for each in runs) / max(1, sum(map(len, runs)))


def spans_exact(summaries: Sequence[str], spans: Sequence[Sequence[str]]) -> SpanCount:
    """How many spans the summaries have, word for word and in their order.

    The spans of a summary are looked up one after the other, each behind the last one that was found; words are those
    of `regard.data.text.words`, with their case.
    """
    found = 0
    for summary, wanted in zip(summaries, spans, strict=True):
        words, position = split_words(summary), 0
        for span in map(split_words, wanted):
            starts = range(position, len(words) - len(span) + 1)
            place = next((start for start in starts if words[start : start + len(span)] == span), None)
            if place is not None:
                found += 1
                position = place + len(span)
    return SpanCount(found, sum(map(len, spans)))


def _runs(words: list[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + length]) for start in range(len(words) - length + 1)]
