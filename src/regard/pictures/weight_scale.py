"""The scale of attention weights in a picture: where its colours end, what an even weight is, and its bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.palette import ACCENT
from regard.pictures.numbers import Matrix, short_number
from regard.pictures.sheet import NOTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

LEAST_END = 4.0
"""A scale ends at this multiple of the even weight or above, so that weights which differ little look alike."""

EVEN_MULTIPLE = 2.0
"""No weight of nearly uniform ones is above this multiple of the even weight."""

FAINT_SHARE = 0.1
"""Colours follow the square root of the weights if half of the rows have no weight above this part of the scale."""

NEARLY_UNIFORM = 0.1
"""The largest share of a row's weight that may differ from even weights if they are called nearly uniform."""


class WeightScale(NamedTuple):
    """The scale of the weights of one picture.

    Attributes:
        low: the weight of the first colour: 0, or −``high`` if a weight is negative, so that 0 is in the middle.
        even: the weight of each key if all are alike, 1 / keys; None if the rows do not sum to 1.
        uniform: whether every row is nearly even.
        root: whether colours follow the square root of the weights: most rows are faint beside the largest weight.
    """

    low: float
    high: float
    keys: int
    even: float | None
    uniform: bool
    largest: float
    root: bool

    @property
    def note(self) -> str:
        """The note on weights that are nearly uniform; "" for others."""
        return f"nearly uniform: all weights are near 1/{self.keys}" if self.uniform else ""

    @property
    def label(self) -> str:
        """The title of the bar."""
        root = ", square-root scale" if self.root else ""
        line = "" if self.even is None else f"\nline: 1/{self.keys} = {short_number(self.even)}"
        size = (
            f"from {short_number(-self.largest)} to {short_number(self.largest)}"
            if self.low < 0
            else (f"at most {short_number(self.largest)}")
        )
        return f"weight, {size}{root}{line}"

    def colors(self, color_map: str) -> str:
        """Returns the name of the colours: those of signs in place of amounts, if a weight is negative."""
        return "sign" if self.low < 0 and color_map == "amount" else color_map

    def norm(self) -> Normalize:
        """Maps the weights to their part of the colours, for matplotlib."""
        from matplotlib.colors import Normalize, PowerNorm

        return PowerNorm(0.5, 0.0, self.high) if self.root else Normalize(self.low, self.high)


def weight_scale(weights: Matrix, maximum: float | None = None) -> WeightScale:
    """Returns the scale of rows of weights, from 0 to the largest one.

    It ends at `LEAST_END` times the even weight or above: nearly uniform weights have one light colour, and faint ones
    are not lost in a scale that ends at 1.

    Args:
        maximum: the least end of the scale.
    """
    keys = weights.shape[1]
    largest, low = float(np.abs(weights).max(initial=0.0)), float(weights.min(initial=0.0))
    even = 1.0 / keys if weights.size and low >= 0 and np.allclose(weights.sum(axis=1), 1.0, atol=0.01) else None
    least = 0.0 if even is None else min(1.0, LEAST_END * even)
    uniform = False
    if even is not None and keys > 1:
        moved = np.abs(weights - even).sum(axis=1).max(initial=0.0) / 2
        uniform = bool(moved <= NEARLY_UNIFORM and largest <= EVEN_MULTIPLE * even)
    high = max(largest, maximum or 0.0, least) or 1.0
    # The first tokens of a causal model have few keys to attend to, and so have large weights.
    faint = weights.size > 0 and maximum is None and float(np.median(weights.max(axis=1))) < FAINT_SHARE * high
    return WeightScale(
        -high if low < 0 else 0.0, high, keys, even if keys > 1 else None, uniform, largest, faint and low >= 0
    )


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
    bar.outline.set_linewidth(0.6)  # pyright: ignore[reportCallIssue]
    return bar


def draw_bar(figure: Figure, image: Any, scale: WeightScale, *, label: str | None = None, **options: Any) -> Colorbar:
    """Draws the bar of a scale: titled, with a line at the even weight.

    Args:
        label: the title of the bar; None: the scale's.
    """
    bar = titled_bar(figure, image, scale.label if label is None else label, **options)
    if scale.even is not None and scale.low <= scale.even <= scale.high:
        _draw_line(bar.ax, scale.even, options.get("orientation") == "horizontal")
    return bar


def _draw_line(axes: Axes, value: float, horizontal: bool) -> None:
    """Draws a line over the bar that is visible on any colour."""
    draw = axes.axvline if horizontal else axes.axhline
    draw(value, color="white", linewidth=2.4)
    draw(value, color=ACCENT, linewidth=1.2)
