"""What a picture of attention says around its cells: title, sentence and numbers above, the weights of the row that
asks beside."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from regard.palette import ACCENT, BORDER, INK, MASKED_PAPER, MUTED
from regard.pictures.fonts import Lettering, visible, wrapped
from regard.pictures.numbers import Matrix, cell_number, short_weight, short_weights
from regard.pictures.sheet import NOTE, SENTENCE, TEXT, TITLE, fit_width, set_position, text_extent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from matplotlib.text import Text

WORDS = {
    "axisQuery": ("asks ↓", "发问 ↓"),
    "axisKey": ("looked at →", "被看 →"),
    "weightTitle": ("attention weight", "注意力权重"),
    "evenMark": ("equal share {weight}", "均分 {weight}"),
    "looksAtTitle": ("“{query}” looks at", "“{query}”在看"),
    "others": ("{count} more", "其余 {count} 个"),
    "zero": ("zero", "零"),
    "masked": ("masked", "被掩蔽"),
    "brightness": ("brightness: attention weight", "亮度：注意力权重"),
    "scale_root": ("square-root scale", "平方根色阶"),
    "uniform": ("nearly uniform: all weights are near 1/{count}", "接近均匀：所有权重都接近 1/{count}"),
}
"""Words of pictures in English and Chinese, by their names in ``words.js`` of the viewer where that has them."""

MARGIN = 0.12  # inches, as all lengths below
LEAST_WIDTH = 4.6
LINE_GAP = 0.06
BAR_STEP, BAR_LENGTH, BAR_LABEL, BAR_NUMBER = 0.19, 1.0, 0.7, 0.36
NAMED_KEYS, LONGEST_BAR = 4, 16
"""The number of keys that have a bar each beside the row that asks, and the most letters of their names."""

BARS_WIDTH = BAR_LABEL + BAR_LENGTH + BAR_NUMBER


class Caption(NamedTuple):
    """What stands above a picture of attention, from the whole to the parts, and what its words are.

    Attributes:
        title: whose weights are shown, such as ``"MiniLM · layer 3 · head 1"``.
        sentence: what is marked in the picture, in large letters.
        shares: the numbers of the sentence.
        note: what else a reader must know, in small letters.
        language: ``"en"`` or ``"zh"``, of the words that the picture adds.
        scale: the title of the bar; "": "attention weight".
        bars: the title of the bars beside the row that asks; "": "“…” looks at".
        even: the equal share of the marked row, and of all rows if it is one number; None: those of the weights drawn.

    Example:
        >>> from regard import pictures
        >>> caption = pictures.Caption("a translation", "“le” gives 90 % of its attention to “the”.")
        >>> weights = [[0.9, 0.1], [0.2, 0.8]]
        >>> figure = pictures.alignment(weights, ["the", "cat"], ["le", "chat"], title=caption, marked=(0, 0))
        >>> [axes.get_label() for axes in figure.axes]
        ['alignment', 'bars', 'weight']
    """

    title: str = ""
    sentence: str = ""
    shares: str = ""
    note: str = ""
    language: Literal["en", "zh"] = "en"
    scale: str = ""
    bars: str = ""
    even: tuple[float | None, float | None] | None = None

    def say(self, name: str, **parts: object) -> str:
        """Returns a text of `WORDS` in the caption's language."""
        return WORDS[name][self.language == "zh"].format(**parts)

    def number(self, value: float) -> str:
        """Returns the number in a cell, of a difference with its sign; "" where there is none."""
        text = cell_number(value) if np.isfinite(value) else ""
        return f"+{text}" if self.bars and value > 0 and text else text

    def texts(self, *others: str) -> list[str]:
        """Returns all texts of a picture with this caption, for its `Lettering`."""
        words = [pair[self.language == "zh"] for pair in WORDS.values()]
        return [*map(_unmarked, (*self[:4], self.scale, self.bars)), *words, *others]


def as_caption(title: str | Caption | None, *notes: str) -> Caption:
    """Returns a caption for a title, with notes added; empty notes are left out."""
    caption = title if isinstance(title, Caption) else Caption(title or "")
    return caption._replace(note=" · ".join(filter(None, (caption.note, *notes))))


UNBROKEN = str.maketrans({"\u2068": "\ue000", "\u2069": "\ue001", "\xa0": "\ue002", "\u2003": "\ue002"})
"""While a text is wrapped: the marks that keep the direction of a token to itself, and the space that is not broken."""


def _unmarked(text: str) -> str:
    return text.translate({0x2068: "", 0x2069: "", 0xE000: "", 0xE001: "", 0xE002: " "})


def directed(text: str) -> str:
    """Returns a text from left to right as a whole, with marks for the direction of its tokens where it needs them."""
    if not any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text):
        return _unmarked(text)
    marked = text.translate({0xE000: "\u2068", 0xE001: "\u2069", 0xE002: " "})
    return "\n".join(f"\u200e{line}" for line in marked.split("\n"))


class Heading:
    """The caption above a picture: its texts, wrapped to a width, and their size in inches."""

    def __init__(self, figure: Figure, lettering: Lettering, caption: Caption, width: float):
        self.figure = figure
        self.texts: list[Text] = []
        width = max(width, LEAST_WIDTH)
        for text, size, color, weight in (
            (caption.title, *((NOTE + 0.5, MUTED, "normal") if caption.sentence else (TITLE, INK, "bold"))),
            (caption.sentence, SENTENCE, INK, "normal"),
            (caption.shares, TEXT, INK, "normal"),
            (caption.note, NOTE, MUTED, "normal"),
        ):
            if not text:
                continue
            # Chinese letters are as wide as they are high, others about half.
            share = 1.0 if sum(letter > "\u2e7f" for letter in _unmarked(text)) > len(text) / 3 else 0.55
            shown = wrapped(text.translate(UNBROKEN), int(72 * width / (share * size)), lines=8)
            drawn = figure.text(0, 1, "", fontsize=size, va="top", ha="left", color=color, fontweight=weight)
            lettering.letter(drawn, _unmarked(shown)).set_text(lettering.drawable(directed(shown)))
            self.texts.append(drawn)
        extents = [text_extent(text) for text in self.texts]
        self.width = max((across for across, _ in extents), default=0.0)
        self.heights = [down for _, down in extents]
        self.height = sum(self.heights) + LINE_GAP * len(extents)

    def draw_at(self, left: float, top: float) -> None:
        """Places the texts, in inches from the sheet's upper left corner."""
        width, height = self.figure.get_size_inches()
        for text, down in zip(self.texts, self.heights, strict=True):
            text.set_position((left / width, 1 - top / height))
            top += down + LINE_GAP


def draw_row_bars(
    figure: Figure,
    lettering: Lettering,
    caption: Caption,
    query: str,
    keys: Sequence[str],
    row: Matrix,
    colors: ScalarMappable,
) -> Axes:
    """Draws whom a query looks at: a bar for each of the largest weights, one for the others, and the equal share.

    Args:
        row: the weights of the query; −inf is masked.
        colors: of the weights.

    Returns:
        The axes, as high as `bars_height` says; the caller places them.
    """
    axes = figure.add_axes((0, 0, 0.1, 0.1), label="bars")
    axes.set_axis_off()
    lines = bars_height(row) / BAR_STEP
    axes.set_xlim(-BAR_LABEL, BAR_LENGTH + BAR_NUMBER)
    axes.set_ylim(lines - 0.5, -0.5)
    seen = np.flatnonzero(~np.isneginf(row))
    order = seen[np.argsort(-np.nan_to_num(np.abs(row[seen]), nan=-1.0), kind="stable")]
    signed = bool((row[seen] < 0).any())
    weights = [float(row[key]) for key in order[:NAMED_KEYS]]
    bars: list[tuple[str, str, Any]] = [
        (keys[key], INK, colors.to_rgba(row[key])) for key in order[:NAMED_KEYS].tolist()
    ]
    if len(order) > NAMED_KEYS and not signed:
        weights.append(float(row[order[NAMED_KEYS:]].sum()))
        bars.append((caption.say("others", count=len(order) - NAMED_KEYS), MUTED, MASKED_PAPER))
    plus = "+" if caption.bars else ""
    texts = [f"{plus if one > 0 else ''}{short_weight(one)}" for one in weights] if signed else short_weights(weights)
    most = max((abs(weight) for weight in weights if np.isfinite(weight)), default=0.0) or 1.0
    even = equal_share(row[None]) if caption.even is None else caption.even[0]
    heading = caption.bars or caption.say("looksAtTitle", query=visible(query, LONGEST_BAR))
    title = axes.text(-BAR_LABEL, 0, "", fontsize=TEXT, fontweight="bold", va="center", color=INK)
    lettering.letter(title, heading).set_text(directed(lettering.drawable(heading)))
    fit_width(title, BARS_WIDTH)
    marked = even is not None and even <= most
    for line, ((name, ink, fill), weight, text) in enumerate(zip(bars, weights, texts, strict=True), start=1):
        length = BAR_LENGTH * abs(weight) / most if np.isfinite(weight) else 0.0
        axes.barh(line, max(length, 0.01), 0.62, color=[fill], edgecolor=BORDER, linewidth=0.5)
        label = axes.text(-0.06, line, "", fontsize=TEXT - 0.5, ha="right", va="center", color=ink)
        fit_width(lettering.letter(label, visible(name, LONGEST_BAR)), BAR_LABEL - 0.06)
        end = max(length, BAR_LENGTH * even / most if marked and even is not None else 0.0)
        axes.text(end + 0.05, line, text, fontsize=TEXT - 0.5, va="center", color=ink)
    if marked and even is not None:
        at, foot = BAR_LENGTH * even / most, len(bars) + 0.55
        axes.plot([at, at], [0.5, foot], color=INK, linewidth=0.8, dashes=(3, 2))
        note = axes.text(at, foot + 0.4, "", fontsize=NOTE, va="center", color=MUTED)
        lettering.letter(note, caption.say("evenMark", weight=short_weight(even)))
    return axes


def bars_height(row: Matrix) -> float:
    """Returns the inches that `draw_row_bars` takes."""
    return BAR_STEP * (min(NAMED_KEYS + 1, int((~np.isneginf(row)).sum())) + 2)


def place_bars(axes: Axes, left: float, middle: float, height: float) -> None:
    """Places bars, in inches from the lower left corner of the sheet."""
    set_position(axes, left, middle - height / 2, BARS_WIDTH, height)


def equal_share(weights: Matrix) -> float | None:
    """Returns what each key would have if every row shared its weight equally; None if that is not one number.

    Args:
        weights: rows; −inf is masked.
    """
    seen = ~np.isneginf(weights)
    sums = np.where(seen, weights, 0.0).sum(axis=1)
    counts = seen.sum(axis=1)
    if not weights.size or not np.allclose(sums[counts > 0], 1.0, atol=0.02) or (weights[seen] < 0).any():
        return None
    different = set(counts[counts > 0].tolist())
    return 1.0 / different.pop() if len(different) == 1 else None


def mark(axes: Axes, row: int, column: int | None, columns: int) -> None:
    """Outlines the row that asks, and the cell that is spoken of."""
    from matplotlib.patches import Rectangle

    edge = {"fill": False, "edgecolor": ACCENT, "clip_on": False, "zorder": 4}
    axes.add_patch(Rectangle((-0.5, row - 0.5), columns, 1, linewidth=0.9, label="row", **edge))
    if column is not None:
        white = {**edge, "edgecolor": "white"}
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, linewidth=3.2, **white))
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, linewidth=1.8, label="cell", **edge))
