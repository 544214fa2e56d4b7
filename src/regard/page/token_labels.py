"""The tokens of a Hugging Face tokenizer as the axis of a picture: readable labels, words, special tokens."""

from collections.abc import Sequence
from typing import Any

from regard.records import TokenAxis, word_ranges


def token_axis(tokenizer: Any, ids: Sequence[int], text: str | None = None) -> TokenAxis:
    """The axis of tokens.

    Args:
        tokenizer: the tokenizer.
        ids: the tokens.
        text: the text that was encoded to them; None: the model wrote them.
    """
    special_ids = set(tokenizer.all_special_ids)
    special = tuple(place in special_ids for place in ids)
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    labels = tuple(
        str(piece) if is_special else _label(tokenizer, id, str(piece))
        for id, piece, is_special in zip(ids, pieces, special, strict=True)
    )
    return TokenAxis(labels, special, _words(tokenizer, ids, text) or word_ranges(labels, special))


def _label(tokenizer: Any, id: int, piece: str) -> str:
    """A token as text: pieces of bytes as the characters that they stand for, a space before a word as ``▁``."""
    if not any(character in piece for character in "ĠĊĉ") and piece.isascii():
        return piece
    if "▁" in piece:
        return piece
    text = tokenizer.decode([id])
    if not text or "\ufffd" in text:  # a part of a character
        return piece
    return text.replace(" ", "▁")


def _words(tokenizer: Any, ids: Sequence[int], text: str | None) -> tuple[range, ...]:
    """The positions of each word as the tokenizer knows them; () if it does not."""
    if text is None or not getattr(tokenizer, "is_fast", False):
        return ()
    encoded = tokenizer(text)
    numbers = encoded.word_ids() if list(encoded["input_ids"]) == list(ids) else []
    if not any(number is not None for number in numbers):
        return ()
    words: list[range] = []
    before: object = object()
    for place, number in enumerate(numbers):
        if number is not None and number == before:
            words[-1] = range(words[-1].start, place + 1)
        else:
            words.append(range(place, place + 1))
        before = number
    return tuple(words)
