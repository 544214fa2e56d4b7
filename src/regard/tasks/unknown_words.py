"""Words that a tokenizer does not know: named, shown as the user wrote them, and copied by attention."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.data.text.words import character_class, has_space_before
from regard.tasks.lazy import fonts, torch

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.text.tokenizers import Tokenizer

MOST_NAMED_WORDS = 10
"""The most unknown words that a message names; it counts the others."""


@dataclass(frozen=True)
class SourceText:
    """A source sentence as its tokenizer cut it: labels of the tokens, with unknown pieces as they are written;
    positions of the tokens of each word; the text of each token, empty for a space; that of each word; and in their
    order the words of which a piece is unknown."""

    tokens: list[str]
    groups: list[range]
    pieces: list[str]
    words: list[str]
    unknown: list[str]

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> SourceText:
        """Returns the sentence ``text``, which the tokenizer encodes to ``ids``."""
        if tokenizer.UNK not in ids:
            tokens, groups = tokenizer.tokens(ids), tokenizer.word_groups(ids)
        else:
            tokens, groups = tokenizer.tokens(ids, text), tokenizer.word_groups(ids, text)
        spans = tokenizer.spans(text)
        words = [text[spans[group.start].start : spans[group.stop - 1].stop] for group in groups]
        unknown = [
            word for word, group in zip(words, groups, strict=True) if tokenizer.UNK in ids[group.start : group.stop]
        ]
        return cls(tokens, groups, [text[span.start : span.stop] for span in spans], words, unknown)


@dataclass(frozen=True)
class CopiedText:
    """A translation in which unknown pieces are replaced by source words, labels of its tokens, and positions of the
    tokens of each word."""

    text: str
    tokens: list[str]
    groups: list[range]


def copy_unknown(source: SourceText, tokenizer: Tokenizer, ids: Sequence[int], weights: Tensor) -> CopiedText:
    """Replaces unknown pieces of a translation by what they attend to most in a source of at least one token (Luong et
    al. 2015, §4.1).

    An unknown word, be it one piece (of words) or a run of pieces (of sub-words, of characters), is replaced by the
    source word with the largest sum of weights. An unknown piece of a word that is known otherwise is replaced by the
    source piece with the largest weight.
    """
    texts = {position: "" for position, id in enumerate(ids) if id == tokenizer.UNK}
    tokens, groups = tokenizer.tokens(ids), tokenizer.word_groups(ids)
    word_weights = torch.stack([weights[:, group.start : group.stop].sum(-1) for group in source.groups], dim=-1)
    spaces = torch.tensor([not piece for piece in source.pieces], device=weights.device)
    piece_weights = weights.masked_fill(spaces, -torch.inf)
    for run, whole in _runs(tokenizer, ids):
        best = int(word_weights[run.start : run.stop].sum(0).argmax())
        if not whole:
            for position in run:
                texts[position] = source.pieces[int(piece_weights[position].argmax())]
        elif character_class(source.words[best][:1] or " ") == "unspaced":
            # Each character is a word there.
            chosen = [int(word_weights[position].argmax()) for position in run]
            for position, word, before in zip(run, chosen, [-1, *chosen], strict=False):
                texts[position] = "" if word == before else source.words[word]
        else:
            texts[run.start] = source.words[best]
            joined = [group for group in groups if group.start not in run]
            groups = sorted([*joined, run], key=lambda group: group.start)
    for position, text in texts.items():
        tokens[position] = text or "·"
        # An unknown piece does not say whether a space came before it; before a word there is one.
        before = tokens[position - 1] if position else ""
        if tokenizer.kind == "word" and has_space_before(text, before):
            texts[position] = f" {text}"
    return CopiedText(tokenizer.decode(ids, unknown=list(texts.values())), tokens, groups)


def _runs(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterable[tuple[range, bool]]:
    """Returns each run of unknown pieces that may be one word, and whether it is a whole word."""
    places = [position for position, id in enumerate(ids) if id == tokenizer.UNK]
    if tokenizer.kind == "word":
        return [(range(position, position + 1), True) for position in places]
    known = tokenizer.decode(ids, unknown="")
    mark = next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in known)
    text = tokenizer.decode(ids, unknown=mark)
    runs, first = [], 0
    for match in re.finditer(f"{mark}+", text):
        run = places[first : first + len(match[0])]
        first += len(match[0])
        neighbours = text[: match.start()][-1:] + text[match.end() :][:1]
        whole = not any(character_class(character) in ("letter", "mark") for character in neighbours)
        runs.append((range(run[0], run[-1] + 1), whole))
    return runs


def unknown_words_line(words: Iterable[str], copied: bool) -> str | None:
    """Returns a line that names the unknown words of the sources, ``copied`` or not; None if there are none."""
    names = list(dict.fromkeys(words))
    if not names:
        return None
    shown = ", ".join(f"'{fonts.visible(name)}'" for name in names[:MOST_NAMED_WORDS])
    rest = f" and {len(names) - MOST_NAMED_WORDS} more" if len(names) > MOST_NAMED_WORDS else ""
    hint = "" if copied else "; --replace-unknown copies source words where the model writes an unknown word"
    return f"not in the model's vocabulary: {shown}{rest}{hint}"
