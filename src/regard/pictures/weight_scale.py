"""The scale of attention weights in a picture: where its colours end, what an even weight is, and its bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.palette import BORDER, HATCH, INK, MASKED_PAPER, MISSING_MARK, MUTED, PAPER
from regard.pictures.caption import LINE_GAP, MARGIN, Caption, Heading, as_caption, equal_share
from regard.pictures.fonts import Lettering
from regard.pictures.numbers import Matrix, short_number, short_weight
from regard.pictures.sheet import NOTE, TEXT, set_position, text_extent

if TYPE_CHECKING:
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

RAMP, LEAST_RAMP, RAMP_HEIGHT, SCALE_HEIGHT = 1.9, 1.1, 0.11, 0.62
"""The most and the least length and the height of a bar in inches, and the height with its numbers, its mark and the
room above."""

LEAST_END = 4.0
"""A scale ends at this multiple of the even weight or above, so that weights which differ little look alike."""

EVEN_MULTIPLE = 2.0
"""No weight of nearly uniform ones is above this multiple of the even weight."""

NEARLY_UNIFORM = 0.1
"""The largest share of a row's weight that may differ from even weights if they are called nearly uniform."""


class WeightScale(NamedTuple):
    """The scale of the weights of one picture.

    Attributes:
        low: the weight of the first colour: 0, or −``high`` if a weight is negative, so that 0 is in the middle.
        high: the weight of the last colour.
        even: the weight of each key if all that a row sees are alike; None if that is not one number for all rows.
        uniform: whether every row is nearly even.
    """

    low: float
    high: float
    even: float | None
    uniform: bool

    def captioned(self, title: str | Caption | None, *notes: str) -> Caption:
        """Returns the caption of a title with notes, and that on weights that are nearly uniform."""
        caption = as_caption(title)
        note = caption.say("uniform", count=round(1 / self.even)) if self.uniform and self.even else ""
        return as_caption(caption, note, *notes)

    def colors(self, color_map: str) -> str:
        """Returns the name of the colours: those of signs in place of amounts, if a weight is negative."""
        return "sign" if self.low < 0 and color_map == "amount" else color_map

    def norm(self) -> Normalize:
        """Maps the weights to their part of the colours, for matplotlib."""
        from matplotlib.colors import Normalize

        return Normalize(self.low, self.high)


def scale_end(largest: float, keys: int, *, rounded: bool = True) -> float:
    """Returns the weight of a scale's last colour: 1, 2 or 5 times a power of ten, as in the viewer, so that most heads
    have the same one.

    Args:
        rounded: False: the largest weight, so that its brightness is full.
        keys: that share a row's weight, of which it is `LEAST_END` equal shares at least; 0 without such a row.
    """
    least = max(largest, min(1.0, LEAST_END / keys) if keys else 0.0) or 1.0
    if not rounded:
        return least
    power = 10.0 ** math.floor(math.log10(least))
    step = next((one for one in (1, 2, 5) if one * power >= least * (1 - 1e-6)), 10)
    return max(largest, float(f"{step * power:.6g}"))


def weight_scale(weights: Matrix, maximum: float | None = None, *, rounded: bool = True) -> WeightScale:
    """Returns the scale of rows of weights, from 0 to `scale_end` of the largest one.

    Nearly uniform weights have one light colour, and faint ones are not lost in a scale that ends at 1.

    Args:
        weights: −inf is masked; NaN and inf have no colour.
        maximum: the least end of the scale.
        rounded: as for `scale_end`.
    """
    shown = np.where(np.isfinite(weights), weights, 0.0)
    keys = weights.shape[1]
    largest, low = float(np.abs(shown).max(initial=0.0)), float(shown.min(initial=0.0))
    even = equal_share(weights) if keys > 1 else None
    uniform = False
    if even is not None:
        moved = np.abs(np.where(np.isfinite(weights), weights - even, 0.0)).sum(axis=1).max(initial=0.0) / 2
        uniform = bool(even < 1 and moved <= NEARLY_UNIFORM and largest <= EVEN_MULTIPLE * even)
    sums = np.allclose(shown.sum(axis=1), 1.0, atol=0.01) and low >= 0
    high = max(scale_end(largest, keys if sums else 0, rounded=rounded), maximum or 0.0)
    return WeightScale(-high if low < 0 else 0.0, high, even, uniform)


def titled_bar(figure: Figure, image: Any, label: str, **options: Any) -> Colorbar:
    """Draws a bar of colours with a title, its numbers with three digits.

    Args:
        options: of matplotlib's ``colorbar``: ``cax`` or ``ax``, ``orientation``, ...
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    bar = figure.colorbar(
        image,
        ticks=MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]),
        format=FuncFormatter(lambda value, _: short_number(value)),
        **options,
    )
    bar.set_label(label, fontsize=NOTE)
    bar.ax.tick_params(labelsize=NOTE, length=2)
    bar.outline.set(linewidth=0.6, edgecolor=BORDER)
    return bar


def draw_scale(
    figure: Figure,
    colors: Any,
    caption: Caption,
    *,
    even: float | None = None,
    keys: str = "tokens",
    forms: Sequence[str] = (),
    title: str = "",
) -> Colorbar:
    """Draws the bar below a picture: its title at the left, the equal share marked, and the forms that are no amounts.

    Args:
        even: the equal share; None if it is not one number.
        keys: what shares: ``"tokens"``, ``"grid"`` or ``"frames"``.
        forms: of ``"zero"``, ``"masked"`` and ``"NaN"``, those that occur.
        title: "": that of the caption.
    """
    from matplotlib.patches import Patch

    axes = figure.add_axes((0.0, 0.0, 0.1, 0.1), label="weight")
    bar = titled_bar(figure, colors, "", orientation="horizontal", cax=axes)
    low, high = colors.norm.vmin, colors.norm.vmax
    bar.set_ticks([low, (low + high) / 2, high])
    title = title or caption.scale or caption.say("weightTitle")
    plus = "+" if low < 0 else ""
    write = short_weight if caption.bars else lambda value: short_number(value, 2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{plus if value > 0 else ''}{write(value)}".replace("+>", ">"))
    axes.tick_params(length=0, pad=2, labelcolor=MUTED)
    for label, align in zip(axes.get_xticklabels(), ("left", "center", "right"), strict=True):
        label.set_horizontalalignment(align)
    texts = {name: name if name == "NaN" else caption.say(name) for name in forms}
    lettering = Lettering(Caption(language=caption.language).texts(title))
    axes.set_xlabel("", fontsize=TEXT, fontweight="bold", ha="left", va="center", color=INK)
    lettering.letter(axes.xaxis.label, title)
    even = even if caption.even is None else caption.even[1]
    if even is not None and low <= even <= high:
        axes.axvline(even, ymin=-0.35, ymax=1.35, color=INK, linewidth=1.0, clip_on=False)
        align, aside = ("left", 3) if even <= (low + high) / 3 else ("right", -3)
        mark = axes.annotate(
            "", (even, 1.0), (aside, 3), xycoords=axes.get_xaxis_transform(), textcoords="offset points", ha=align,
            fontsize=NOTE, color=INK,
        )  # fmt: skip
        lettering.letter(mark, caption.equal_share(even, keys))
    if texts:
        shapes = {"masked": ("//////", MASKED_PAPER, HATCH), "NaN": ("xxxxxx", PAPER, MISSING_MARK)}
        samples = [
            Patch(hatch=hatch, facecolor=ground, edgecolor=ink, linewidth=0.5, label=text)
            for name, text in texts.items()
            for hatch, ground, ink in [shapes.get(name, (None, PAPER, BORDER))]
        ]
        legend = axes.legend(
            handles=samples, loc="center left", bbox_to_anchor=(1.06, 0.5), ncols=len(samples), frameon=False,
            fontsize=NOTE, handlelength=1.1, handleheight=1.1, handletextpad=0.5, columnspacing=0.8, borderpad=0,
            labelcolor=MUTED,
        )  # fmt: skip
        for text in legend.get_texts():
            lettering.letter(text)
    return bar


class Frame:
    """What stands around a picture of attention: title, sentence and numbers above, its scale and notes below.

    Attributes:
        width: the inches of the widest of these and of the picture.
        above, below: the inches of the sheet above and below the picture.
    """

    def __init__(self, figure: Figure, lettering: Lettering, caption: Caption, bar: Colorbar | None, width: float):
        self.figure, self.bar = figure, bar
        self.title = self.forms = 0.0
        if bar is not None:
            self.title = text_extent(bar.ax.xaxis.label)[0] + 0.1
            legend = bar.ax.get_legend()
            self.forms = 0.2 if legend is None else 0.2 + legend.get_window_extent().width / figure.dpi
            share = max((text_extent(mark)[0] for mark in bar.ax.texts), default=0.0)
            width = max(width, share and self.title + RAMP / 3 + share)
        width = max(width, self.title + LEAST_RAMP + self.forms)
        self.heading = Heading(figure, lettering, caption._replace(note=""), width)
        self.notes = Heading(figure, lettering, Caption(note=caption.note), width)
        self.width = max(width, self.heading.width, self.notes.width)
        self.above = MARGIN + self.heading.height + (LINE_GAP if self.heading.texts else 0.0)
        self.below = MARGIN + self.notes.height + (0.0 if bar is None else SCALE_HEIGHT)

    def draw(self) -> None:
        """Places the texts and the scale on the sheet, which has its size."""
        self.heading.draw_at(MARGIN, MARGIN)
        self.notes.draw_at(MARGIN, self.figure.get_figheight() - MARGIN - self.notes.height + LINE_GAP)
        if self.bar is not None:
            length = min(RAMP, max(LEAST_RAMP, self.width - self.title - self.forms))
            set_position(self.bar.ax, MARGIN + self.title, MARGIN + self.notes.height + 0.17, length, RAMP_HEIGHT)
            self.bar.ax.xaxis.set_label_coords(-self.title / length, 0.5)
            for mark in self.bar.ax.texts:  # that of the equal share, which may have no room beside its place
                beyond = mark.get_window_extent().x1 - self.figure.bbox.x1 + MARGIN * self.figure.dpi
                mark.xyann = (mark.xyann[0] - max(0.0, beyond * 72 / self.figure.dpi), mark.xyann[1])  # pyright: ignore[reportAttributeAccessIssue]

    def surround(self) -> None:
        """Adds room around a sheet that matplotlib arranges, and draws into it."""
        width, height = self.figure.get_size_inches()
        full_width, full_height = max(width, 2 * MARGIN + self.width), self.above + height + self.below
        self.figure.set_size_inches(full_width, full_height)
        engine = self.figure.get_layout_engine()
        assert engine is not None, "the sheet is arranged by matplotlib"
        engine.set(rect=(0.0, self.below / full_height, width / full_width, height / full_height))  # pyright: ignore[reportCallIssue]
        if self.bar is not None:
            self.bar.ax.set_in_layout(False)
        self.draw()
