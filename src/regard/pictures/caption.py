"""What a picture of attention says around its cells: title, sentence and numbers above, the weights of the row that
asks below."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from regard.palette import ACCENT, BORDER, INK, MASKED_PAPER, MUTED, SIGN, points
from regard.pictures.fonts import Lettering, visible, wrapped
from regard.pictures.numbers import Matrix, adds_up, cell_number, short_weight, subtraction, weight_texts
from regard.pictures.sheet import NOTE, SENTENCE, TEXT, TITLE, fit_width, text_extent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from matplotlib.text import Text

WORDS = {
    "axisQuery": ("each row asks ↓", "每行发问 ↓"),
    "axisKey": ("each column is looked at →", "每列被看 →"),
    "weightTitle": ("attention weight", "注意力权重"),
    "evenMark": ("equal share {weight} (1 ÷ {keys})", "均分 {weight}（1 ÷ {keys}）"),
    "even_tokens": ("{count} tokens", "{count} 个词元"),
    "even_grid": ("{count} patches", "{count} 个图块"),
    "even_frames": ("{count} moments", "{count} 个时刻"),
    "looksAtTitle": ("“{query}” looks at", "“{query}”在看"),
    "others": ("{count} more", "其余 {count} 个"),
    "zero": ("zero", "零"),
    "masked": ("masked", "被掩蔽"),
    "brightness": ("brightness: attention weight", "亮度：注意力权重"),
    "blankNote": ("no number: below 0.005", "无数字：小于 0.005"),
    "differenceBlank": ("no number: between −0.05 and 0.05", "无数字：在 −0.05 与 0.05 之间"),
    "uniform": ("nearly uniform: all weights are near 1/{count}", "接近均匀：所有权重都接近 1/{count}"),
}
"""Words of pictures in English and Chinese, by their names in ``words.js`` of the viewer where that has them."""

MARGIN = 0.1  # inches, as all lengths below
COLUMN, WIDE = 3.7, 4.8
"""The least width of what is written, about that of a column of a paper; and from where on its sentence is large."""

LINE_GAP = 0.06
BAR_STEP, LONGEST_STRIP, LEAST_CALCULATED, PAIR = 0.19, 4.5, 2.6, 1.75
NAMED_KEYS, LONGEST_BAR, LEAST_DIFFERENCE = 4, 24, 0.05
"""The number of keys that have a bar each for the row that asks, the most letters of their names, and the least
difference whose number is written."""


class Caption(NamedTuple):
    """What stands above a picture of attention, from the whole to the parts, and what its words are.

    Attributes:
        title: whose weights are shown, such as ``"MiniLM · layer 3 · head 1"``.
        sentence: what is marked in the picture, in large letters.
        shares: the numbers of the sentence.
        note: what else a reader must know, in small letters below the picture.
        language: ``"en"`` or ``"zh"``, of the words that the picture adds.
        scale: the title of the bar; "": "attention weight".
        bars: of a difference, the name of each of the two sides and its weights of the marked row.
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
    bars: tuple[tuple[str, Matrix], ...] = ()
    even: tuple[float | None, float | None] | None = None

    def say(self, name: str, **parts: object) -> str:
        """Returns a text of `WORDS` in the caption's language."""
        return WORDS[name][self.language == "zh"].format(**parts)

    def equal_share(self, even: float, keys: str = "tokens") -> str:
        """Returns what is said of an equal share, with the number of keys that it comes from."""
        return self.say("evenMark", weight=short_weight(even), keys=self.say(f"even_{keys}", count=round(1 / even)))

    def number(self, value: float) -> str:
        """Returns the number in a cell, of a difference with its sign; "" where there is none."""
        text = cell_number(value) if np.isfinite(value) and abs(value) >= LEAST_DIFFERENCE * bool(self.bars) else ""
        return f"+{text}" if self.bars and value > 0 and text and text[0] != ">" else text

    def texts(self, *others: str) -> list[str]:
        """Returns all texts of a picture with this caption, for its `Lettering`."""
        words = [pair[self.language == "zh"] for pair in WORDS.values()]
        return [*map(_unmarked, (*self[:4], self.scale, *(name for name, _ in self.bars))), *words, *others]


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
        width = max(width, COLUMN)
        for text, size, color, weight in (
            (caption.title, *((NOTE, MUTED, "normal") if caption.sentence else (TITLE, INK, "bold"))),
            (caption.sentence, SENTENCE if width >= WIDE else TITLE, INK, "normal"),
            (caption.shares, TEXT, INK, "normal"),
            (caption.note, NOTE, MUTED, "normal"),
        ):
            if text:
                drawn = figure.text(0, 1, "", fontsize=size, va="top", ha="left", color=color, fontweight=weight)
                self.texts.append(drawn)
                _write(drawn, lettering, text, width)
                if size > TITLE and "\n" in drawn.get_text():  # a line of its own before large letters
                    drawn.set_fontsize(TITLE)
                    _write(drawn, lettering, text, width)
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


def _write(drawn: Text, lettering: Lettering, text: str, width: float) -> None:
    """Writes a text in lines of a width; statements with a wide space between them share one, or have one each."""
    statements, most = text.replace(" · ", "\xa0· "), len(text)
    while most:
        shown = wrapped(statements.translate(UNBROKEN), most, lines=8)
        lettering.letter(drawn, _unmarked(shown)).set_text(lettering.drawable(directed(shown)))
        wide = text_extent(drawn)[0]
        if wide <= width or most <= 12:
            return
        if "\u2003" in statements:
            statements = "\n".join(part.strip() for part in statements.split("\u2003"))
        elif drawn.get_fontsize() == TEXT and wide * NOTE / TEXT <= 1.03 * width:
            drawn.set_fontsize(NOTE)
            width *= 1.03
        else:
            longest = max(map(len, shown.split("\n")))
            most = max(12, min(longest - 1, int(longest * width / wide)))


class _Part(NamedTuple):
    """A weight that a bar shows, its text and its colour."""

    weight: float
    text: str
    fill: Any


class _Bar(NamedTuple):
    """A key, or all others together, with its weight; of a difference, with those of both sides."""

    name: str
    ink: str
    parts: list[_Part]


def _side_fills() -> Sequence[str]:
    """Returns the colours of both sides of a difference."""
    return points(SIGN["light"])[14::-12]


def _bars(
    caption: Caption, keys: Sequence[str], row: Matrix, colors: ScalarMappable, column: int | None
) -> tuple[list[_Bar], int | None]:
    """Returns the bars of the keys with the largest weights, and which of them is that of the marked key of a
    difference."""
    sides = caption.bars
    order = np.flatnonzero(~np.isneginf(row) & ~(bool(sides) & (row == 0)))
    order = order[np.argsort(-np.nan_to_num(np.abs(row[order]), nan=-1.0), kind="stable")]
    named: list[int] = order[:NAMED_KEYS].tolist()
    others = order[NAMED_KEYS:]
    if sides:
        if column is not None and column not in named:
            named[NAMED_KEYS - 1 :] = [column]
        masked = caption.say("masked")
        bars = [
            _Bar(visible(keys[key], LONGEST_BAR), INK, [
                _Part(float(side[key]), masked if np.isneginf(side[key]) else short_weight(float(side[key])), fill)
                for (_, side), fill in zip(sides, _side_fills(), strict=False)
            ])
            for key in named
        ]  # fmt: skip
        return bars, None if column is None else named.index(column)
    weights, rest = row[named].tolist(), float(row[others].sum())
    *texts, rest_text = weight_texts(weights, rest)
    bars = [
        _Bar(visible(keys[key], LONGEST_BAR), INK, [_Part(weight, text, colors.to_rgba(weight))])
        for key, weight, text in zip(named, weights, texts, strict=True)
    ]
    if len(others):
        bars.append(_Bar(caption.say("others", count=len(others)), MUTED, [_Part(rest, rest_text, MASKED_PAPER)]))
    return bars, None


def draw_row_bars(
    figure: Figure,
    lettering: Lettering,
    caption: Caption,
    query: str,
    keys: Sequence[str],
    row: Matrix,
    colors: ScalarMappable,
    names: float,
    width: float,
    column: int | None = None,
) -> tuple[Axes, float]:
    """Draws whom a query looks at: a bar for each of the largest weights, one for the others, and the equal share.

    Of a difference, the keys that differ most and the marked one have the bars of both sides.

    Args:
        row: the weights of the query; −inf is masked.
        colors: of the weights.
        names: the least inches of the names of keys.
        width: the inches of names, bars and their numbers.
        column: the key that is marked, if there is one.

    Returns:
        The axes, which the caller places, and their height in inches.
    """
    axes = figure.add_axes((0, 0, 0.1, 0.1), label="bars")
    axes.set_axis_off()

    def write(x: float, line: float, text: str, **style: Any) -> Text:
        drawn = axes.text(x, line, "", **{"fontsize": TEXT, "va": "center", "color": INK, **style})
        lettering.letter(drawn, text).set_text(directed(lettering.drawable(text)))
        return drawn

    sides = caption.bars
    bars, chosen = _bars(caption, keys, row, colors, column)
    calculation = None
    if chosen is not None and width >= LEAST_CALCULATED:
        calculation = write(0, 0, subtraction(*(one.weight for one in bars[chosen].parts)), ha="right", weight="bold")
    weights = [part.weight for bar in bars for part in bar.parts]
    most = max((abs(weight) for weight in weights if np.isfinite(weight)), default=0.0) or 1.0
    even = equal_share(row[None]) if caption.even is None else caption.even[0]
    even = even if even is not None and even <= most else None
    labels = [write(0, 0, bar.name, ha="right", color=bar.ink) for bar in bars]
    if chosen is not None:
        labels[chosen].set_fontweight("bold")
    margin = 0.12 if sides else 0.06
    widest = max((text_extent(label)[0] for label in labels), default=0.0) + margin
    names = max(names, min((0.28 if calculation else 0.4) * width, widest))
    numbers = [[write(0, 0, part.text, color=bar.ink) for part in bar.parts] for bar in bars]
    number_width = max((text_extent(number)[0] for shown in numbers for number in shown), default=0.0) + 0.08
    room = width - names - number_width - (text_extent(calculation)[0] + 0.12 if calculation else 0.0)
    title = write(-names, 0, caption.say("looksAtTitle", query=visible(query, LONGEST_BAR)), fontweight="bold")
    fit_width(title, width)
    start = 0.0
    for (name, _), fill in zip(sides, _side_fills(), strict=False):
        axes.barh(1.1, 0.08, 0.42, left=start, color=[fill])
        named_side = write(start + 0.13, 1.1, name, fontweight="bold")
        fit_width(named_side, (width - names) / 2 - 0.2)
        start += 0.25 + text_extent(named_side)[0]
    first, step, apart = (2.45, PAIR, (-0.36, 0.36)) if sides else (1.1, 1.0, (0.0,))
    line = first
    for number, (bar, label, shown) in enumerate(zip(bars, labels, numbers, strict=True)):
        # The others are a sum, which is not compared with the equal share.
        line = first + step * number + (0.0 if number < NAMED_KEYS else 1.0 if even is not None else 0.3)
        label.set_position((-0.06, line))
        fit_width(label, names - margin)
        for (weight, _, fill), text, offset in zip(bar.parts, shown, apart, strict=True):
            length = max(room * abs(weight) / most, 0.01) if weight and np.isfinite(weight) else 0.0
            axes.barh(line + offset, length, 0.48 if sides else 0.62, color=[fill], edgecolor=BORDER, linewidth=0.5)
            end = max(length, room * (even or 0.0) / most) if number < NAMED_KEYS else length
            text.set_position((end + 0.05, line + offset))
        if number == chosen:
            axes.barh(line, width, step, left=-names, fill=False, edgecolor=ACCENT, linewidth=0.9, clip_on=False)
            if calculation:
                calculation.set_position((width - names - 0.08, line))
    if even is not None:
        at, foot = room * even / most, first + min(len(bars), NAMED_KEYS) - 0.35
        axes.plot([at, at], [first - 0.6, foot], color=INK, linewidth=0.7, dashes=(3, 2))
        share = write(0, foot + 0.45, caption.equal_share(even), fontsize=NOTE, color=MUTED)
        share.set_x(min(at, width - names - text_extent(share)[0]))
        line = max(line, foot + 0.45)
    line += (step - 1) / 2
    axes.set_xlim(-names, width - names)
    axes.set_ylim(line + 0.5, -0.5)
    return axes, BAR_STEP * (line + 1)


def equal_share(weights: Matrix) -> float | None:
    """Returns what each key would have if every row shared its weight equally; None if that is not one number.

    Args:
        weights: rows; −inf is masked.
    """
    seen = ~np.isneginf(weights)
    counts = seen.sum(axis=1)
    if not weights.size or not adds_up(np.where(seen, weights, 0.0)[counts > 0]).all() or (weights[seen] < 0).any():
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
