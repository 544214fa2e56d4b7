"""Text of any script in a picture: fonts that have its characters, and safe treatment of its content.

A token is untrusted text. It may have dollar signs (matplotlib would typeset mathematics), line breaks, marks that
change the direction of writing, a lone surrogate, or ten thousand letters. `visible` turns it into one short line;
`Lettering` finds installed fonts for its characters. Matplotlib's own text layout shapes it (Arabic joins, marks above
and below, right to left); it uses libraqm from version 3.11 on.
"""

from __future__ import annotations

import functools
import os
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from regard.errors import MissingPartError

if TYPE_CHECKING:
    from matplotlib.text import Text

MISSING_GLYPH = "□"
"""Replaces a character that no installed font has."""

JOINERS = "\u200c\u200d"
"""Zero-width (non-)joiners: invisible, but Persian, Indic scripts and emoji are wrong without them."""

MARKS = {" ": "␣", "\t": "⇥", "\n": "↵", "\x7f": "␡"}
"""Replacements of characters without a shape; viewer.js has the same."""

FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Characters that Unicode counts as letters, marks or symbols, but that are blank."""

EMPTY_TOKEN = "∅"
"""Replaces a token without characters."""

LONGEST_CLUSTER = 12
"""The most code points of one visible character: emoji families have ten; more marks are cut off."""


LONGEST_LABEL = 48
"""The most characters of a label of an axis, so that words are whole."""


class MissingGlyphWarning(UserWarning):
    """No installed font has some characters of a picture; they are drawn as □.

    Example:
        >>> import warnings
        >>> from regard import pictures
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     figure = pictures.heatmap([[1.0]], columns=["\\U0010fffd"])  # no font has this character
        >>> caught[0].category.__name__, figure.axes[0].get_xticklabels()[0].get_text()
        ('MissingGlyphWarning', '□')
    """


def visible(text: str, limit: int = 24) -> str:
    """Returns a text as one line that can be drawn, measured and recognized; different short texts look different.

    A space at an end or next to another one is shown as ``␣``, a tab as ``⇥``, a line break as ``↵``, other controls as
    their pictures (``␀``). All other blank characters (other spaces, zero-width characters, lone surrogates, marks that
    change the direction of writing) are escaped (``\\u200b``); a joiner remains where it joins. A mark without a letter
    is drawn on ``◌``.

    Args:
        limit: the most visible characters; a longer text ends with ``…``.
    """
    # Cutting first keeps a text of millions of characters cheap.
    text = text[: (limit + 1) * LONGEST_CLUSTER]
    shown: list[str] = []
    marked = True  # a combining mark needs a letter that is shown
    for index, character in enumerate(text):
        mark = _mark(character, text[index - 1 : index], text[index + 1 : index + 2])
        alone = mark is None and marked and unicodedata.category(character).startswith("M")
        shown.append(f"◌{character}" if alone else character if mark is None else mark)
        marked = mark is not None
    clusters = list(_clusters("".join(shown)))
    if len(clusters) > limit:
        clusters = [*clusters[: limit - 1], "…"]
    return "".join(map(_cut, clusters))


def visible_token(token: str, limit: int = 24) -> str:
    """Returns a token as `visible` shows it; ``∅`` for one without characters."""
    return visible(token, limit) or EMPTY_TOKEN


def _cut(cluster: str) -> str:
    # A joiner at the end has no effect.
    return cluster if len(cluster) <= LONGEST_CLUSTER else cluster[:LONGEST_CLUSTER].rstrip(JOINERS)


def _mark(character: str, before: str, after: str) -> str | None:
    """Returns the replacement of a character between two others, or ends (""); None if it is shown unchanged."""
    if character == " ":
        return None if before.strip(" ") and after.strip(" ") else MARKS[" "]
    if character in JOINERS:
        if _shapes(before) and _shapes(after):
            return None
    elif _is_selector(character):
        if _shapes(before) or (before and before in "#*0123456789©®"):
            return None
    elif not _is_inkless(character):
        return None
    if character in MARKS:
        return MARKS[character]
    return chr(0x2400 + ord(character)) if character < " " else character.encode("unicode_escape").decode("ascii")


def _is_inkless(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs") or character in FILLERS


def _is_selector(character: str) -> bool:
    """Whether the character chooses a form of the one before it."""
    return (
        character in "\u180b\u180c\u180d\u180f"
        or "\ufe00" <= character <= "\ufe0f"
        or "\U000e0100" <= character <= "\U000e01ef"
    )


def _shapes(neighbour: str) -> bool:
    """Whether a joiner or selector next to this character has an effect: in emoji and in scripts that join."""
    return neighbour >= "\u0590" and not _is_inkless(neighbour)


def _clusters(line: str) -> Iterator[str]:
    """Yields letters with the marks and joined characters that belong to them."""
    cluster = ""
    for character in line:
        joined = cluster.endswith("\u200d") or character in JOINERS or unicodedata.category(character).startswith("M")
        if cluster and not joined:
            yield cluster
            cluster = ""
        cluster += character
    if cluster:
        yield cluster


LEAST_LETTERS_OF_TITLE = 44
"""A title is not wrapped before this many letters, however small its picture is."""


def wrapped(text: str, width: int, lines: int = 4) -> str:
    """Returns a sentence or title in lines of at most ``width`` characters; its own line breaks remain."""
    wrapped_lines: list[str] = []
    for paragraph in text.split("\n", lines)[:lines]:
        # Spaces of a sentence are no tokens.
        wrapped_lines += textwrap.wrap(visible(" ".join(filter(None, paragraph.split(" "))), width * lines), width) or [
            ""
        ]
    return "\n".join(wrapped_lines[:lines])


def titled(title: str | None, width: int, *notes: str) -> str:
    """Returns a title, wrapped, with notes in lines below it; an empty note is left out."""
    return "\n".join(wrapped(part, width) for part in (title or "", *notes) if part)


class Lettering:
    """The fonts of one picture.

    Args:
        texts: every text that will be drawn, after `visible` or `wrapped`. Characters that no installed font has cause
            one `MissingGlyphWarning`, with the location of the caller's caller.

    Attributes:
        missing: these characters; they are drawn as ``□``.
    """

    def __init__(self, texts: Iterable[str]):
        try:
            import matplotlib
        except ImportError as error:
            raise MissingPartError("matplotlib", "pictures") from error
        letters = set().union(*texts)
        self._base = list(matplotlib.rcParams["font.family"])
        self._known = frozenset().union(*(_coverage(family) for family in self._base))
        self._region = _region(letters)
        self._fallbacks: dict[str, frozenset[str]] = {}
        uncovered = _inked(letters) - self._known
        self.missing = frozenset(character for character in uncovered if not self._fallback_for(character))
        if self.missing:
            named = [
                f"{character} U+{ord(character):04X}" if character.isprintable() else f"U+{ord(character):04X}"
                for character in sorted(self.missing)
            ]
            rest = f" and {len(named) - 8} more" if len(named) > 8 else ""
            warnings.warn(
                f"no installed font has {', '.join(named[:8])}{rest}: drawn as {MISSING_GLYPH}. Install a font that "
                "has them, for example Noto (Debian: fonts-noto-core, fonts-noto-cjk; others: notofonts.github.io)",
                MissingGlyphWarning,
                stacklevel=3,
            )

    def drawable(self, text: str) -> str:
        """Returns the text with ``□`` for missing characters; break it into lines and shorten it before."""
        return "".join(MISSING_GLYPH if character in self.missing else character for character in text)

    def families(self, text: str) -> list[str]:
        """Returns font families for this text, in the order of fallback.

        One font has all of it if possible, since a mark is positioned well only on a letter of its own font.
        """
        whole = _inked(text) - self.missing
        uncovered = whole - self._known
        candidates = self._candidates(uncovered)
        for family, characters in candidates:
            if whole <= characters:
                return [family, *self._base]
        fallbacks: list[str] = []
        while any(uncovered & characters for _, characters in candidates):
            family, characters = max(candidates, key=lambda pair: len(uncovered & pair[1]))
            fallbacks.append(family)
            uncovered -= characters
        return [*self._base, *fallbacks]

    def letter(self, artist: Text, text: str | None = None) -> Text:
        """Makes a text artist (a title, a label, a tick) show a text, with fonts that have it and never as mathematics.

        ``text=None`` keeps the artist's text.
        """
        shown = self.drawable(artist.get_text() if text is None else text)
        artist.set_parse_math(False)
        artist.set_usetex(False)
        artist.set_fontfamily(self.families(shown))
        artist.set_text(shown)
        return artist

    def _candidates(self, characters: set[str]) -> list[tuple[str, frozenset[str]]]:
        """Returns the fallback fonts that have any of these characters, the best first."""
        for character in characters:
            self._fallback_for(character)
        pairs = [pair for pair in self._fallbacks.items() if characters & pair[1]]
        return sorted(pairs, key=lambda pair: _preference(pair[0], self._region))

    def _fallback_for(self, character: str) -> bool:
        if any(character in characters for characters in self._fallbacks.values()):
            return True
        for family in sorted(_installed(), key=lambda family: _preference(family, self._region)):
            characters = _coverage(family)
            if character in characters:
                self._fallbacks[family] = characters
                return True
        return False


def _inked(text: Iterable[str]) -> set[str]:
    """Returns the characters of a text that need a glyph: not joiners, variation selectors and line breaks."""
    return {
        character
        for character in text
        if character not in JOINERS and not "\ufe00" <= character <= "\ufe0f" and character not in "\n\u034f"
    }


def _region(letters: set[str]) -> str:
    """Returns the region whose forms Chinese characters should have, as the families of Noto CJK name it."""
    if any("\u3040" <= character <= "\u30ff" for character in letters):
        return "JP"
    if any("\uac00" <= character <= "\ud7a3" for character in letters):
        return "KR"
    return "SC"


def _preference(family: str, region: str) -> tuple[bool, bool, bool, bool, str]:
    """Returns a sort key of families: sans serif before others, and the matching region of a design first."""
    name = family.lower()
    elsewhere = "cjk" in name and not family.endswith(region)
    return "mono" in name, "sans" not in name, "serif" in name, elsewhere, family


@functools.cache
def _coverage(family: str) -> frozenset[str]:
    """Returns the characters of a family's regular face."""
    from matplotlib.font_manager import FontProperties, fontManager
    from matplotlib.ft2font import FT2Font

    try:
        path = fontManager.findfont(FontProperties(family=[family]), fallback_to_default=False)
        font = FT2Font(path.path, face_index=path.face_index)
    except (ValueError, OSError, RuntimeError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()


@functools.cache
def _installed() -> tuple[str, ...]:
    """Returns the families that can draw text, even fonts that were installed after matplotlib wrote its list of
    fonts."""
    import matplotlib
    from matplotlib.font_manager import findSystemFonts, fontManager

    listed = {os.path.realpath(entry.fname) for entry in fontManager.ttflist}
    for path in sorted(set(map(os.path.realpath, findSystemFonts())) - listed):
        try:
            fontManager.addfont(path)
        except Exception:
            continue
    # Excluded: matplotlib's own TeX fonts, whose codes are wrong; Last Resort, which has boxes for all codes; and fonts
    # of coloured images, which have no outlines.
    bundled = os.path.realpath(matplotlib.get_data_path())
    return tuple(
        sorted(
            {
                entry.name
                for entry in fontManager.ttflist
                if (entry.style, str(entry.stretch), entry.weight) == ("normal", "normal", 400)
                and (not os.path.realpath(entry.fname).startswith(bundled) or entry.name.startswith("DejaVu"))
                and not any(word in entry.name.lower() for word in ("last resort", "lastresort", "blank", "color"))
            }
        )
    )
