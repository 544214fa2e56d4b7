"""Splits text into words, for merged pictures, word alignments and the generated corpus.

A word is a run of letters, marks and digits, with apostrophes inside it (``boy's``); every other visible character is
a word, and so is every character of a script that is written without spaces. A combining mark belongs to the character
before it.
"""

import itertools
import logging
import re
import tempfile
import unicodedata
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

_KANA_RANGES = r"\u3040-\u30FF\u31F0-\u31FF\uFF66-\uFF9F\U0001AFF0-\U0001B16F"
_HAN_RANGES = r"\u3005-\u3007\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF"
_KANA, _HAN = re.compile(f"[{_KANA_RANGES}]"), re.compile(f"[{_HAN_RANGES}]")
# Thai and Lao; Myanmar and its extensions; Khmer; Tai Le and New Tai Lue, Tai Tham, Tai Viet; Balinese; Javanese; Yi;
# Bopomofo
_UNSPACED = re.compile(
    rf"[{_KANA_RANGES}{_HAN_RANGES}\u0E00-\u0EFF\u1000-\u109F\uA9E0-\uA9FF\uAA60-\uAA7F\u1780-\u17FF\u1950-\u19DF"
    r"\u1A20-\u1AAF\uAA80-\uAADF\u1B00-\u1B7F\uA980-\uA9DF\uA000-\uA4CF\u3100-\u312F]"
)
_SYLLABLES = re.compile("[^\u0f0b\u0f0d]*[\u0f0b\u0f0d]+|[^\u0f0b\u0f0d]+")  # of Tibetan, with the mark after them
_APOSTROPHES = "'’"

OPENING_CHARACTERS = "([{<¿¡«‹“„‘#@/-–—"
"""Characters that are not followed by a space."""


@lru_cache(maxsize=65536)
def character_class(character: str) -> str:
    """Returns ``"space"``, ``"mark"``, ``"unspaced"``, ``"letter"`` (digits and underscore too) or ``"other"``."""
    if character.isspace():
        return "space"
    category = unicodedata.category(character)[0]
    if category == "M":
        return "mark"
    if category in "LN" or character == "_":
        return "unspaced" if _UNSPACED.match(character) else "letter"
    return "other"


def word_spans(text: str) -> list[range]:
    """Returns the character positions of the words of a text, in order, without white space."""
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
    """Returns the words of a text, e.g. ``"The boy's dog."`` → ``["The", "boy's", "dog", "."]``."""
    return [text[span.start : span.stop] for span in word_spans(text)]


def spaced_words(text: str) -> list[str]:
    """Returns the words between white space; each character of a script without spaces is a word of its own.

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


def unspaced_share(texts: Iterable[str]) -> float:
    """Returns the share of the letters of texts that belong to scripts written without spaces between words, 0 to 1.

    Digits do not count; Tibetan does, whose marks are between syllables.
    """
    letters = unspaced = 0
    for text in texts:
        for character in text:
            if character.isalpha():
                letters += 1
                unspaced += _is_unspaced(character)
    return unspaced / max(1, letters)


class SentenceWords(NamedTuple):
    """The words of a sentence that somebody typed."""

    words: list[str]
    note: str
    """How a sentence without spaces between its words was split; empty if spaces did it."""


def sentence_words(sentence: str) -> SentenceWords:
    """Splits a sentence at its spaces, and parts written without spaces into words or characters.

    Chinese is split by jieba if that is installed; Japanese, Thai and others into characters with their marks. What is
    between spaces without such characters stays as it is: ``"book."``.
    """
    if not any(_is_unspaced(character) for character in sentence):
        return SentenceWords(sentence.split(), "")
    chinese = _KANA.search(sentence) is None and _HAN.search(sentence) is not None
    cut = _chinese_cutter() if chinese else None
    words: list[str] = []
    for part in sentence.split():
        if not any(map(_is_unspaced, part)):
            words.append(part)
            continue
        pieces = _SYLLABLES.findall(part) if any(map(_is_tibetan, part)) else split_words(part)
        for is_han, run in itertools.groupby(pieces, lambda piece: _HAN.match(piece) is not None):
            characters = list(run)
            words += characters if cut is None or not is_han else cut("".join(characters))
    if cut is not None:
        return SentenceWords(words, "it has no spaces between Chinese words; jieba split it")
    parts = "syllables" if any(map(_is_tibetan, sentence)) else "characters"
    note = f"it has no spaces between its words, so that {parts} are taken for them"
    return SentenceWords(words, f"{note}; with jieba installed, Chinese is split into words" if chinese else note)


def _chinese_cutter() -> Callable[[str], list[str]] | None:
    """Returns jieba's function that splits Chinese characters into words; None if jieba is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba's files have escapes that newer versions of Python warn of
        try:
            import jieba
        except ImportError:
            return None
    jieba.setLogLevel(logging.WARNING)
    cutter = jieba.Tokenizer()
    # Else it reads a file of the machine's temporary folder, which another user may have written.
    with tempfile.TemporaryDirectory() as folder:
        cutter.tmp_dir = folder  # pyright: ignore[reportAttributeAccessIssue] (None is only its default)
        cutter.initialize()
    return cutter.lcut


def _is_tibetan(character: str) -> bool:
    return "\u0f00" <= character <= "\u0fff"


def _is_unspaced(character: str) -> bool:
    return character_class(character) == "unspaced" or _is_tibetan(character)


def main_script(texts: Iterable[str]) -> Literal["spaced", "chinese", "japanese", "unspaced"]:
    """Tells how the words of texts are written.

    Returns:
        ``"spaced"``: with spaces between them. Otherwise a tenth of the letters or more belong to a script without
        spaces: ``"japanese"`` (kana), ``"chinese"`` (Han without kana) or ``"unspaced"`` (Thai, Lao, Khmer, Myanmar).
    """
    letters = kana = han = unspaced = 0
    for text in texts:
        for character in text:
            kind = character_class(character)
            letters += kind in ("letter", "unspaced")
            if kind == "unspaced":
                unspaced += 1
                kana += _KANA.match(character) is not None
                han += _HAN.match(character) is not None
    if 10 * unspaced < max(1, letters):
        return "spaced"
    if 2 * (kana + han) < unspaced:
        return "unspaced"
    return "japanese" if 20 * kana >= kana + han else "chinese"


def has_space_before(word: str, before: str) -> bool:
    """Whether a word is preceded by a space, as far as its text tells.

    Args:
        before: the text of the token before it; empty at the beginning of a text.
    """
    return word[:1].isalnum() and not (before and before[-1] in OPENING_CHARACTERS)
