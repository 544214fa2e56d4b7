"""A heat map: the cells of a matrix, coloured by their values; and its parts, which other pictures use too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.names.answered import answered
from regard.palette import AMOUNT, BORDER, HATCH, MASKED_PAPER, MISSING_MARK, PAPER, SIGN, points
from regard.pictures.fonts import LEAST_LETTERS_OF_TITLE, Lettering, visible_token, wrapped
from regard.pictures.numbers import Matrix, as_array, short_numbers
from regard.pictures.sheet import new_sheet, set_position, text_extent
from regard.pictures.weight_scale import titled_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

PALETTES = {"amount": AMOUNT["light"], "sign": SIGN["light"]}
"""Colour maps of the library's own, beside those of matplotlib."""

MARGIN = 0.12  # inches, as all lengths below
GAP = 0.12
BAR_WIDTH = 0.13
CELL_HEIGHT = 0.3
LEAST_CELL_WIDTH = 0.42
WIDEST_LABEL = 0.9
LARGEST_BARE_SIDE = 6.0
LEAST_SIDE = 1.8
"""The width up to which the numbered cells of a small matrix grow, at most to twice their size."""
LETTERS = 8.5
"""The size of labels and numbers in points."""

LEAST_LETTERS = 4.5
"""The smallest letters with which numbers are written by themselves."""

MOST_ROWS, MOST_COLUMNS = 48, 24
"""The most rows and columns of a heat map that writes its numbers into the cells by itself."""


@answered
def heatmap(
    weights: Any,
    rows: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
    *,
    title: str | None = None,
    values: bool | None = None,
    color_map: str | None = None,
    low: float | None = None,
    high: float | None = None,
    color_bar: bool | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws a matrix as one heat map, with three digits of each number in its cell; numbers up to 1 have equal
    decimals.

    Args:
        weights: any real numbers, ``[rows, columns]``: a tensor, an array or nested lists. A vector is a row; with
            ``rows`` and without ``columns`` it is a column. Zero is blank, −inf (masked) hatched, NaN and inf crossed.
        rows: a label for each row.
        columns: a label for each column.
        title: above the picture; a long one is wrapped.
        values: whether to write the numbers into the cells; None: where they fit, up to 48 rows and 24 columns.
        color_map: ``"amount"``, from paper to ink; ``"sign"``, from red over paper to blue; or one of matplotlib. None:
            ``"amount"``, or ``"sign"`` with 0 in the middle if a number is negative.
        low: the number of the first colour; None: 0, or the negative of ``high`` if a number is negative.
        high: the number of the last colour; None: the largest magnitude.
        color_bar: whether to draw the scale; None: where the numbers are not written.
        ax: axes to draw into; None: a figure of its own, as large as its cells and labels need.

    Returns:
        The figure.

    Raises:
        ShapeError: ``weights`` has no element or more than two axes, or the labels do not match it.
        KindError: labels are one text.
        ArgumentError: ``weights`` are no numbers, or ``low`` is not below ``high``.
        UnknownNameError: no such colour map.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures
        >>> figure = pictures.heatmap([[0.9, 0.1], [0.25, 0.75]], rows=["le", "chat"], columns=["the", "cat"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0.90', '0.10', '0.25', '0.75']
        >>> figure = pictures.heatmap([5, 1, 20], rows=["h1", "h2", "h3"], color_map="Purples")
        >>> figure.axes[0].images[0].get_array().shape
        (3, 1)
    """
    matrix = as_array("weights", weights, 1, 2)
    if matrix.ndim == 1:
        matrix = matrix[:, None] if rows is not None and columns is None else matrix[None]
    if not matrix.size:
        raise ShapeError(f"weights must have at least one number; it has shape {list(matrix.shape)}")
    row_labels, column_labels = (
        _checked_labels(name, labels, length)
        for name, labels, length in (("rows", rows, matrix.shape[0]), ("columns", columns, matrix.shape[1]))
    )
    heading = "" if title is None else wrapped(title, max(LEAST_LETTERS_OF_TITLE, min(90, 8 * matrix.shape[1])))
    lettering = Lettering([*row_labels, *column_labels, heading])
    figure = new_sheet(1.0, 1.0) if ax is None else ax.get_figure(root=True)
    assert figure is not None, "axes are part of a figure"
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), label="heatmap") if ax is None else ax

    texts = short_numbers(matrix) if values is not False else []
    cell_width, cell_height, letters = _cell(axes, ax is not None, texts, matrix.shape, values)
    numbered = letters > 0
    if ax is None and numbered:
        drawn = [lettering.letter(axes.text(0, 0, "", fontsize=LETTERS), label) for label in column_labels]
        widest = max((text_extent(label)[0] for label in drawn), default=0.0)
        for label in drawn:
            label.remove()
        # Longer labels are written upright.
        cell_width = max(cell_width, widest + 0.1) if widest <= WIDEST_LABEL else cell_width
    if ax is None and numbered:
        growth = min(2.0, max(1.0, LEAST_SIDE / (cell_width * matrix.shape[1])))
        cell_width, cell_height = cell_width * growth, cell_height * growth
    image = draw_cells(axes, matrix, **_scale(matrix, color_map, low, high))
    if min(cell_width, cell_height) >= 0.1:
        draw_lines(axes, *matrix.shape, color="#ffffff", width=1.0)
    if numbered:
        write_numbers(axes, image, texts, letters)
    step = max(1, int(np.ceil(0.14 / min(cell_width, cell_height))))
    extents = write_labels(
        axes, lettering, row_labels, column_labels, LETTERS, (step, step), (cell_width - 0.05) * step
    )
    has_bar = not numbered if color_bar is None else color_bar
    if ax is not None:
        if heading:
            lettering.letter(ax.set_title("", fontsize=11), heading)
        if has_bar:
            titled_bar(figure, image, "value", ax=ax)
        return figure
    side, top = (extent + 0.08 for extent in extents)
    title_text = lettering.letter(figure.text(0, 1, "", fontsize=11, va="top", ha="left"), heading)
    title_width, title_height = text_extent(title_text) if heading else (0.0, -GAP)
    width, height = matrix.shape[1] * cell_width, matrix.shape[0] * cell_height
    bar_height = max(min(height, 3.0), 0.9) if has_bar else 0.0
    bar_room = GAP + BAR_WIDTH + 0.7 if has_bar else 0.0
    full_width = 2 * MARGIN + max(side + width + bar_room, title_width)
    above = MARGIN + title_height + GAP + top
    full_height = above + max(height, bar_height) + MARGIN
    figure.set_size_inches(full_width, full_height)
    title_text.set_position((MARGIN / full_width, 1 - MARGIN / full_height))
    left, under = MARGIN + side, full_height - above
    set_position(axes, left, under - height, width, height)
    if has_bar:
        bar_axes = figure.add_axes((0.0, 0.0, 0.1, 0.1), label="scale")
        set_position(bar_axes, left + width + GAP, under - bar_height, BAR_WIDTH, bar_height)
        titled_bar(figure, image, "value", cax=bar_axes)
    return figure


def _checked_labels(name: str, labels: Sequence[Any] | None, length: int) -> list[str]:
    """Returns one text for each row or column; [] without labels."""
    if labels is None:
        return []
    if isinstance(labels, str):
        raise KindError(f"{name} must be a list of labels, one for each of {length}; it is one text")
    texts = [visible_token(str(label)) for label in labels]
    if len(texts) != length:
        raise ShapeError(
            f"{name} must have {length} labels, one for each of the {name} of weights; it has {len(texts)}"
        )
    return texts


def _cell(
    axes: Axes, is_fixed: bool, texts: list[list[str]], shape: tuple[int, ...], values: bool | None
) -> tuple[float, float, float]:
    """Returns the width and the height of a cell in inches, and the size of the letters in it; 0: its number is not
    written.

    Args:
        texts: the numbers; [] for none.
    """
    width = height = scale = 0.0
    if texts:
        probe = axes.text(0, 0, max((text for line in texts for text in line), key=len), fontsize=LETTERS)
        width, height, scale = max(text_extent(probe)[0] + 0.14, LEAST_CELL_WIDTH), CELL_HEIGHT, 1.0
        probe.remove()
    if is_fixed:
        box, dpi = axes.get_window_extent(), axes.get_figure(root=True).dpi  # pyright: ignore[reportOptionalMemberAccess]
        needed = width, height
        width, height = box.width / dpi / shape[1], box.height / dpi / shape[0]
        scale = scale and min(1.0, width / needed[0], height / needed[1])
    fits = scale * LETTERS >= LEAST_LETTERS if is_fixed else shape[0] <= MOST_ROWS and shape[1] <= MOST_COLUMNS
    if values is None and not fits:
        scale = 0.0
    if not scale and not is_fixed:
        height, width = (min(0.25, LARGEST_BARE_SIDE / length) for length in shape)
    return width, height, scale * LETTERS


def _scale(matrix: Matrix, colors: str | None, low: float | None, high: float | None) -> dict[str, Any]:
    """Returns the colour map and the numbers of its ends."""
    finite = matrix[np.isfinite(matrix)]
    signed = finite.min(initial=0.0) < 0
    high = (float(np.abs(finite).max(initial=0.0)) or 1.0) if high is None else float(high)
    low = (-abs(high) if signed else 0.0) if low is None else float(low)
    return {"colors": colors or ("sign" if signed else "amount"), "low": low, "high": high}


def color_map(name: str) -> Colormap:
    """Returns one of `PALETTES` or of matplotlib's colour maps, with paper for cells without a colour."""
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    if name in PALETTES:
        return LinearSegmentedColormap.from_list(name, points(PALETTES[name])).with_extremes(bad=PAPER)
    if name not in matplotlib.colormaps:
        known = (*PALETTES, *(each for each in matplotlib.colormaps if each[-2:] != "_r"))
        raise UnknownNameError("color_map", name, known)
    return matplotlib.colormaps[name].with_extremes(bad=PAPER)


def colored(matrix: Matrix, colors: str) -> np.ma.MaskedArray[Any, Any]:
    """Returns the cells that have a colour: numbers; with `PALETTES`, in which zero is blank, those that are not
    zero."""
    return np.ma.masked_where(~np.isfinite(matrix) | (matrix == 0 if colors in PALETTES else False), matrix)


def draw_forms(axes: Axes, matrix: Matrix, extent: tuple[float, float, float, float] | None = None) -> None:
    """Hatches the cells that a mask hides (−inf), and crosses those that are no number.

    Args:
        extent: the x of the first cell's left and of the last one's right edge, and the y of the first cell's top and
            of the last one's bottom edge; None: a cell is 1 wide and 1 high, around its numbers.
    """
    from matplotlib.collections import PolyCollection

    down, across = matrix.shape
    hidden = np.isneginf(matrix)
    first, last, top_edge, bottom_edge = (-0.5, across - 0.5, -0.5, down - 0.5) if extent is None else extent
    width, height = (last - first) / max(1, across), (bottom_edge - top_edge) / max(1, down)
    for cells, hatch, ground, color in (
        (hidden, "//////", MASKED_PAPER, HATCH),
        (~np.isfinite(matrix) & ~hidden, "xxxxxx", PAPER, MISSING_MARK),
    ):
        padded = np.pad(cells, ((0, 0), (1, 1))).astype(np.int8)
        (rows, starts), (_, ends) = (np.nonzero(np.diff(padded) == change) for change in (1, -1))
        if not len(rows):
            continue
        left, right = first + width * starts, first + width * ends
        top, bottom = top_edge + height * rows, top_edge + height * (rows + 1)
        sides = (left, top), (right, top), (right, bottom), (left, bottom)
        corners = np.stack([np.stack(pair, -1) for pair in sides], 1)
        axes.add_collection(
            PolyCollection(list(corners), facecolors=ground, edgecolors=color, linewidths=0, hatch=hatch), autolim=False
        )


def form_note(forms: Collection[str]) -> str:
    """Returns the notes on forms of cells that `forms_of` found; "" without any."""
    named = {"zero": "blank: zero", "masked": "hatched: masked", "NaN": "crossed: NaN"}
    return ", ".join(text for name, text in named.items() if name in forms)


def forms_of(matrix: Matrix) -> list[str]:
    """Returns the forms of cells in a matrix that are no amounts: ``"zero"``, ``"masked"``, ``"NaN"``."""
    hidden = np.isneginf(matrix)
    named = {"zero": matrix == 0, "masked": hidden, "NaN": ~np.isfinite(matrix) & ~hidden}
    return [name for name, cells in named.items() if cells.any()]


def draw_cells(axes: Axes, matrix: Matrix, *, colors: str, low: float, high: float) -> AxesImage:
    """Draws a matrix, its first row on top; cell ``(row, column)`` has its centre at ``x = column, y = row``.

    Zero is blank with `PALETTES`, −inf is hatched, as a mask hides it; inf and NaN are crossed.

    Args:
        axes: the axes, which lose the marks of their ticks.
    """
    if not low < high:
        raise ArgumentError(f"the colours need low < high; they are {low!r} and {high!r}")
    image = axes.imshow(
        colored(matrix, colors),
        cmap=color_map(colors),
        vmin=low,
        vmax=high,
        aspect="auto",
        interpolation="nearest",
        origin="upper",
    )
    draw_forms(axes, matrix)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_color(BORDER)
        spine.set_linewidth(0.6)
    return image


def draw_lines(axes: Axes, rows: int, columns: int, *, color: str = "#ffffff", width: float = 0.5) -> None:
    """Draws thin lines between the cells."""
    axes.hlines(np.arange(rows - 1) + 0.5, -0.5, columns - 0.5, colors=color, linewidths=width)
    axes.vlines(np.arange(columns - 1) + 0.5, -0.5, rows - 0.5, colors=color, linewidths=width)


def write_numbers(axes: Axes, image: AxesImage, texts: list[list[str]], size: float) -> None:
    """Writes a text in each cell, black or white, whichever is easier to read on the cell's colour.

    Args:
        size: of the letters, in points.
    """
    cells = image.get_array()
    assert cells is not None, "draw_cells gave the image its cells"
    colors = image.to_rgba(cells)
    inks = ink_on(colors)
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            ink = inks[row, column]
            letters = axes.text(column, row, text, ha="center", va="center_baseline", fontsize=size, color=ink)
            letters.set_in_layout(False)  # within its cell, and slow to measure


def ink_on(colors: NDArray[Any]) -> NDArray[np.str_]:
    """Returns black or white for each colour ``[..., 3 or 4]``, whichever is easier to read on it."""
    linear = np.where(colors[..., :3] <= 0.04045, colors[..., :3] / 12.92, ((colors[..., :3] + 0.055) / 1.055) ** 2.4)
    # Relative luminance of sRGB (WCAG 2): black and white have the same contrast at 0.179.
    return np.where(linear @ np.array([0.2126, 0.7152, 0.0722]) > 0.179, "black", "white")


def label_note(kind: str, step: int, count: int, language: str = "en") -> str:
    """Returns the note of a picture in which only every ``step``-th label has room; "" if all have."""
    if step == 1 or count <= 1:
        return ""
    return f"每 {step} 个词元标一个" if language == "zh" else f"every {ordinal(step)} {kind} has a label"


def ordinal(number: int) -> str:
    """Returns an ordinal number, such as ``"2nd"``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def write_labels(
    axes: Axes,
    lettering: Lettering,
    rows: Sequence[str],
    columns: Sequence[str],
    size: float,
    steps: tuple[int, int],
    width: float,
    bold: tuple[int | None, int | None] = (None, None),
) -> tuple[float, float]:
    """Labels every so-many-th row at the left and column on top; columns upright where a label is too wide.

    Args:
        size: of the letters, in points.
        steps: from one labelled row, and column, to the next.
        width: inches that a label of a column may take.
        bold: the row and the column whose labels are bold, if they have one.

    Returns:
        The width of the row labels and the height of the column labels, in inches.
    """
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=size, pad=3)
    shown = [range(0, len(texts), step) for texts, step in zip((rows, columns), steps, strict=True)]
    axes.set_yticks(shown[0], [lettering.drawable(rows[row]) for row in shown[0]])
    axes.set_xticks(shown[1], [lettering.drawable(columns[column]) for column in shown[1]])
    on_top, at_left = axes.get_xticklabels(), axes.get_yticklabels()
    for labels, positions, one in zip((at_left, on_top), shown, bold, strict=True):
        if one is not None and one in positions:
            labels[positions.index(one)].set_fontweight("bold")
    for label in (*on_top, *at_left):
        lettering.letter(label)
    if any(text_extent(label)[0] > width for label in on_top):
        for label in on_top:
            label.set_rotation(90)
    width = max((text_extent(label)[0] for label in at_left), default=0.0)
    return width, max((text_extent(label)[1] for label in on_top), default=0.0)
