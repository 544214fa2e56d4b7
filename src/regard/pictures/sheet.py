"""The sheet that every picture is drawn on: a matplotlib figure of its own, without pyplot and without a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from regard.errors import MissingPartError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Text

SENTENCE, TITLE, TEXT, NOTE = 13.8, 11.0, 9.0, 8.0
"""Sizes of letters in points: of what a picture says, of titles, of names of axes and labels, and of notes; the first
three are as 20 to 16 to 13 in the viewer."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Colours that people with any colour vision can distinguish (Okabe and Ito, 2008), the strongest first."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""A marker for each colour of the palette, so that a print in black and white is readable too."""

DASHES = ("-", "--", ":", "-.")
"""The first dash serves all curves of a palette, the next one those after them."""


def count_axis(axis: Axis) -> None:
    """Sets the ticks of an axis of integers, in steps of 1, 2, 5, 10, ..."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))


def new_sheet(width: float, height: float, *, layout: Literal["constrained"] | None = None) -> Figure:
    """Returns an empty figure of so many inches.

    pyplot stores every figure in a global list and may open a window; this figure is freed with its last reference and
    draws on the Agg canvas on any machine.

    Args:
        width, height: inches.
        layout: ``"constrained"`` lets matplotlib arrange the axes; None leaves that to the caller.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        from regard.pictures.notebook_figure import NotebookFigure
    except ImportError as error:
        raise MissingPartError("matplotlib", "pictures") from error
    figure = NotebookFigure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(w_pad=0.1, h_pad=0.1)  # pyright: ignore[reportCallIssue]
    return figure


def text_extent(text: Text) -> tuple[float, float]:
    """Returns width and height in inches of a text on a sheet, with its rotation."""
    figure = text.get_figure(root=True)
    assert figure is not None, "the text must be part of a figure"
    box = text.get_window_extent()
    return box.width / figure.dpi, box.height / figure.dpi


def fit_width(text: Text, width: float) -> None:
    """Shrinks the letters of a text that is wider than so many inches."""
    full, _ = text_extent(text)
    if full > width:
        text.set_fontsize(float(text.get_fontsize()) * width / full)


def set_position(axes: Axes, left: float, bottom: float, width: float, height: float) -> None:
    """Positions axes on the sheet, in inches from its lower left corner."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "the axes must be part of a figure"
    full_width, full_height = figure.get_size_inches()
    axes.set_position((left / full_width, bottom / full_height, width / full_width, height / full_height))
