"""Runs of copied words: where they are in a summary, and where in its article."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.data.text.extended_vocabulary import ExtendedVocabulary

LEAST_COPIED_SHARE = 0.5
"""A token counts as copied if more than this share of its probability comes from copying."""


@dataclass(frozen=True)
class CopiedSpan:
    """Copied tokens that follow each other in the summary and in the article: characters ``start`` to ``stop`` of the
    summary, the positions of the tokens in the summary and in the article, and the first and last word there, counted
    from 1."""

    text: str
    start: int
    stop: int
    tokens: range
    places: range
    first_word: int
    last_word: int

    def to_dict(self) -> dict[str, Any]:
        """Returns the span as plain values."""
        return {
            "text": self.text,
            "characters": [self.start, self.stop],
            "target_tokens": [self.tokens.start, self.tokens.stop],
            "source_tokens": [self.places.start, self.places.stop],
            "source_words": [self.first_word, self.last_word],
        }


def copied_spans(
    vocabulary: ExtendedVocabulary,
    tokens: Sequence[int],
    share: Sequence[float],
    source_positions: Sequence[int],
    source_words: Sequence[range],
) -> list[CopiedSpan]:
    """Returns the longest runs of tokens that are copied and follow each other in the article too."""
    runs: list[list[int]] = []
    for position in range(len(tokens)):
        if share[position] <= LEAST_COPIED_SHARE:
            continue
        follows = runs and runs[-1][-1] == position - 1
        if follows and source_positions[position] == source_positions[position - 1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    word_of = {token: number for number, word in enumerate(source_words, 1) for token in word}
    copied = []
    for run in runs:
        before = len(vocabulary.decode(tokens[: run[0]]))
        text = vocabulary.decode(tokens[: run[-1] + 1])
        start = before + len(text[before:]) - len(text[before:].lstrip(" "))
        places = range(source_positions[run[0]], source_positions[run[-1]] + 1)
        copied.append(
            CopiedSpan(
                text=text[start:],
                start=start,
                stop=len(text),
                tokens=range(run[0], run[-1] + 1),
                places=places,
                first_word=word_of[places[0]],
                last_word=word_of[places[-1]],
            )
        )
    return copied


def marked(summary: str, spans: Sequence[CopiedSpan]) -> str:
    """Returns the summary with its copied spans in brackets, and their words in the article: ``[Ada Byron @7-8]``."""
    pieces, position = [], 0
    for span in spans:
        words = f"{span.first_word}" if span.first_word == span.last_word else f"{span.first_word}-{span.last_word}"
        pieces += [summary[position : span.start], f"[{summary[span.start : span.stop]} @{words}]"]
        position = span.stop
    return "".join([*pieces, summary[position:]])
