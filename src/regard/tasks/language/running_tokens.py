"""The tokens of running text as the axis of a picture: labels, words, and the end of a document before it."""

from collections.abc import Sequence

from regard.data.text.tokenizers import TextTokenizer
from regard.data.text.words import word_spans
from regard.records import TokenAxis


def token_axis(tokenizer: TextTokenizer, ids: Sequence[int]) -> TokenAxis:
    """The axis of tokens.

    Args:
        tokenizer: the tokenizer.
        ids: the tokens; those of the end of a document are special.
    """
    labels = tokenizer.labels(ids)
    pieces = ["" if id == tokenizer.END else tokenizer.decode([id]) for id in ids]
    starts, length = [], 0
    for piece in pieces:
        # A word begins with its first character, not with the space before it.
        starts.append(length + len(piece) - len(piece.lstrip()))
        length += len(piece)
    word_at = {place: number for number, span in enumerate(word_spans("".join(pieces))) for place in span}
    words: list[range] = []
    before = None
    for place, (start, piece) in enumerate(zip(starts, pieces, strict=True)):
        word = word_at.get(start) if piece.strip() else None
        if words and word is not None and word == before:
            words[-1] = range(words[-1].start, place + 1)
        else:
            words.append(range(place, place + 1))
        before = word
    # The mark of a space before a word is one that viewers take off when they merge its tokens.
    shown = tuple("▁" + label[1:] if label.startswith("␣") and len(label) > 1 else label for label in labels)
    return TokenAxis(shown, tuple(id == tokenizer.END for id in ids), tuple(words))
