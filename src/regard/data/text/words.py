"""Splits text into words, for merged pictures, word alignments and the generated corpus.

A word is a run of letters, marks and digits, with apostrophes inside it (``boy's``); every other visible character is
a word, and so is every character of a script that is written without spaces. A combining mark belongs to the character
before it.
"""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

# Thai and Lao, Myanmar, Khmer, the Han iteration marks, kana, Han with its extensions, half-width kana
_UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3005, 0x3007),
    (0x3040, 0x30FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x20000, 0x3FFFF),
)
_KANA = ((0x3040, 0x30FF), (0xFF66, 0xFF9F))
_HAN = ((0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_APOSTROPHES = "'’"

OPENING = "([{<¿¡«‹“„‘#@/-–—"
"""Characters that are not followed by a space."""


@lru_cache(maxsize=65536)
def character_class(character: str) -> str:
    """One of ``"space"``, ``"mark"``, ``"unspaced"``, ``"letter"`` (digits and underscore too) and ``"other"``."""
    if character.isspace():
        return "space"
    category = unicodedata.category(character)[0]
    if category == "M":
        return "mark"
    if category in "LN" or character == "_":
        code = ord(character)
        return "unspaced" if any(first <= code <= last for first, last in _UNSPACED) else "letter"
    return "other"


def word_spans(text: str) -> list[range]:
    """The character positions of the words of a text, in order, without white space."""
    bounds: list[list[int]] = []
    open_class = "space"  # of the word that the next character may belong to
    for position, character in enumerate(text):
        kind = character_class(character)
        joins = open_class != "space" and (
            kind == "mark"
            or (kind == "letter" and open_class == "letter")
            or (
                character in _APOSTROPHES
                and open_class == "letter"
                and position + 1 < len(text)
                and character_class(text[position + 1]) == "letter"
            )
        )
        if joins:
            bounds[-1][1] = position + 1
            continue
        open_class = kind
        if kind != "space":
            bounds.append([position, position + 1])
    return [range(start, stop) for start, stop in bounds]


def split_words(text: str) -> list[str]:
    """The words of a text, e.g. ``"The boy's dog."`` → ``["The", "boy's", "dog", "."]``."""
    return [text[span.start : span.stop] for span in word_spans(text)]


def spaced_words(text: str) -> list[str]:
    """The words between white space; each character of a script that is written without spaces is a word of its own.

    E.g. ``"Hi, 你好."`` → ``["Hi,", "你", "好", "."]``.
    """
    parts: list[str] = []
    in_unspaced = False
    for character in text:
        kind = character_class(character)
        if kind == "unspaced" or (in_unspaced and kind != "mark"):
            parts.append(" ")
        if kind != "mark":
            in_unspaced = kind == "unspaced"
        parts.append(character)
    return "".join(parts).split()


def main_script(texts: Iterable[str]) -> Literal["spaced", "chinese", "japanese", "unspaced"]:
    """How the words of texts are written.

    Returns:
        ``"spaced"``: with spaces between them. Otherwise a tenth of the letters or more belong to a script without
        spaces: ``"japanese"`` (kana), ``"chinese"`` (Han without kana) or ``"unspaced"`` (Thai, Lao, Khmer, Myanmar).
    """
    letters = kana = han = unspaced = 0
    for text in texts:
        for character in text:
            kind, code = character_class(character), ord(character)
            letters += kind in ("letter", "unspaced")
            if kind == "unspaced":
                unspaced += 1
                kana += any(first <= code <= last for first, last in _KANA)
                han += any(first <= code <= last for first, last in _HAN)
    if 10 * unspaced < max(1, letters):
        return "spaced"
    if 2 * (kana + han) < unspaced:
        return "unspaced"
    return "japanese" if 20 * kana >= kana + han else "chinese"


def has_space_before(word: str, before: str) -> bool:
    """Whether a word is preceded by a space, as far as its text tells.

    Args:
        word: the word.
        before: the text of the token before it; empty at the beginning of a text.
    """
    return word[:1].isalnum() and not (before and before[-1] in OPENING)
