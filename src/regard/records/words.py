"""Which sub-words make a word, read off the marks that tokenizers leave in their tokens."""

from __future__ import annotations

from collections.abc import Sequence

WITHIN = ("##", "·")
"""Marks before a piece within a word: WordPiece's, and that of regard's own tokenizers."""

BEFORE = ("▁", "Ġ", " ")
"""Marks before the first piece of a word: SentencePiece's and that of byte-level BPE."""

BEHIND = "@@"
"""The mark behind a piece that another one of the same word follows (subword-nmt)."""


def word_ranges(tokens: Sequence[str], special: Sequence[bool] = ()) -> tuple[range, ...]:
    """The positions of each word; () where no token has a mark that tells.

    Args:
        tokens: of any tokenizer that marks either the pieces within a word or those that begin one.
        special: True for tokens that are a word of their own; () if none is known.
    """
    alone = list(special) or [False] * len(tokens)
    texts = [token for token, flag in zip(tokens, alone, strict=True) if not flag]
    marks_within = any(token.startswith(WITHIN) and len(token) > 1 for token in texts)
    marks_behind = any(token.endswith(BEHIND) and len(token) > len(BEHIND) for token in texts)
    marks_before = any(token.startswith(BEFORE) for token in texts)
    if not (marks_within or marks_behind or marks_before):
        return ()
    starts = []
    for position, token in enumerate(tokens):
        first = position == 0 or alone[position] or alone[position - 1]
        if not first:
            if marks_within:
                first = not (token.startswith(WITHIN) and len(token) > 1)
            elif marks_behind:
                first = not tokens[position - 1].endswith(BEHIND)
            else:
                first = token.startswith(BEFORE)
        if first:
            starts.append(position)
    return tuple(range(start, stop) for start, stop in zip(starts, [*starts[1:], len(tokens)], strict=True))


def join_pieces(pieces: Sequence[str]) -> str:
    """The text of a word: its pieces without the marks of their tokenizer."""
    joined = []
    for number, piece in enumerate(pieces):
        text = piece
        if number == 0 and (len(piece) > 1 or len(pieces) > 1):
            text = next((piece.removeprefix(mark) for mark in BEFORE if piece.startswith(mark)), piece)
        elif number > 0:
            text = next((piece.removeprefix(mark) for mark in WITHIN if piece.startswith(mark)), piece)
        joined.append(text if number == len(pieces) - 1 else text.removesuffix(BEHIND))
    return "".join(joined)
