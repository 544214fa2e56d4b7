"""An image that is bright where the weights of a grid over it are large, and dark where they are small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, ShapeError
from regard.palette import ACCENT
from regard.pictures.caption import MARGIN, Caption
from regard.pictures.fonts import LONGEST_LABEL, Lettering, visible_token
from regard.pictures.heatmap import draw_forms, forms_of
from regard.pictures.numbers import as_array, as_image
from regard.pictures.sheet import fit_width, new_sheet
from regard.pictures.weight_scale import Frame, WeightScale, draw_scale, weight_scale

if TYPE_CHECKING:
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

DARKEST_FACTOR = 0.15
"""The factor of the brightness for weight 0."""

COLUMNS = 5
PANEL = 1.8  # inches
MOST_PANELS = 200

Box = tuple[float, float, float, float]


def spread(weights: Any, rows: int, columns: int, size: tuple[int, int], box: Box | None = None) -> NDArray[np.float64]:
    """Returns the weights of the cells of a grid at each pixel of an image.

    The pixel at the centre of a cell has exactly the cell's weight; between centres the weight changes linearly along
    each axis. Pixels outside the box have 0.

    Args:
        weights: ``[rows · columns]``, row by row.
        size: height and width of the image.
        box: the part of the image that the grid covers, x0, y0, x1, y1 in pixels; None: all of it.

    Returns:
        ``[height, width]``.
    """
    cells = as_array("weights", weights, 1)
    if rows < 1 or columns < 1 or len(cells) != rows * columns:
        raise ShapeError(f"weights must have rows · columns = {rows} · {columns} numbers; they have {len(cells)}")
    height, width = size
    x0, y0, x1, y1 = (0.0, 0.0, float(width), float(height)) if box is None else box
    if not (x0 < x1 and y0 < y1):
        raise ShapeError(f"box must be (x0, y0, x1, y1) with x0 < x1 and y0 < y1; it is {box}")
    down, in_rows = _between(np.arange(height) + 0.5, y0, y1, rows)
    across, in_columns = _between(np.arange(width) + 0.5, x0, x1, columns)
    return (down @ cells.reshape(rows, columns) @ across.T) * (in_rows[:, None] & in_columns)


def _between(pixels: NDArray[Any], start: float, stop: float, cells: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Returns for each pixel the shares ``[pixels, cells]`` of the two nearest cells, and whether it is inside."""
    position = np.clip((pixels - start) / (stop - start) * cells - 0.5, 0, cells - 1)
    lower = np.minimum(position.astype(int), max(0, cells - 2))
    share = position - lower
    shares = np.zeros((len(pixels), cells))
    number = np.arange(len(pixels))
    shares[number, lower] = 1 - share
    shares[number, np.minimum(lower + 1, cells - 1)] += share
    return shares, (pixels >= start) & (pixels <= stop)


def overlay(
    image: Any, weights: Any, rows: int, columns: int, box: Box | None = None, *, maximum: float | None = None
) -> NDArray[np.uint8]:
    """Returns the image, bright where the weights are large: full brightness at the largest, `DARKEST_FACTOR` at 0.

    Args:
        image: uint8 ``[height, width, 3]``.
        weights: ``[rows · columns]``, at least 0.
        rows: of the grid.
        columns: of the grid.
        box: as for `spread`.
        maximum: the weight of full brightness, or the largest weight if that is more; None: the largest weight.

    Returns:
        uint8 ``[height, width, 3]``.

    Raises:
        ShapeError: as `spread`, or the image has the wrong shape.
        KindError: the image is not uint8.
        ArgumentError: a weight is negative or not finite.

    Example:
        >>> import numpy as np
        >>> from regard import pictures
        >>> image = np.full((2, 4, 3), 200, np.uint8)
        >>> pictures.overlay(image, [1.0, 0.0], rows=1, columns=2)[0, :, 0]  # the centres of the cells are at 1 and 3
        array([200, 158,  72,  30], dtype=uint8)
    """
    image = as_image(image)
    cells = as_array("weights", weights, 1)
    if not np.isfinite(cells).all() or (cells < 0).any():
        raise ArgumentError("weights must be finite and at least 0")
    largest = max(float(cells.max(initial=0.0)), maximum or 0.0)
    light = spread(cells / largest if largest else cells, rows, columns, image.shape[:2], box)
    return np.rint(image * (DARKEST_FACTOR + (1 - DARKEST_FACTOR) * light)[:, :, None]).astype(np.uint8)


def brightness(scale: WeightScale) -> ScalarMappable:
    """Returns the greys of a scale's bar: the brightness that a veil leaves to white."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap

    return ScalarMappable(scale.norm(), ListedColormap(np.linspace(DARKEST_FACTOR, 1, 256)[:, None].repeat(3, axis=1)))


def image_overlays(
    image: Any,
    weights: Any,
    labels: Sequence[str],
    grid: tuple[int, int],
    *,
    box: Box | None = None,
    title: str | Caption | None = None,
    marked: int | None = None,
) -> Figure:
    """Draws an image and one overlay of it for each word, all with one scale.

    It ends at the largest weight, or at four equal shares; a note says that weights are nearly uniform.

    Args:
        image: uint8 ``[height, width, 3]``.
        weights: ``[words, rows · columns]``, at least 0; −inf (masked) is hatched, NaN and inf are crossed.
        labels: one for each row of the weights.
        grid: rows and columns.
        box: as for `spread`.
        title: above all: a text, or a `Caption`.
        marked: the word that is spoken of, whose image is outlined; None: none.

    Returns:
        A figure with a panel for the image and one for each word, five side by side.

    Raises:
        ShapeError: the shapes do not match, or there is no word, or more than `MOST_PANELS`.
        KindError: the image is not uint8.
        ArgumentError: a weight is negative.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> import numpy as np
        >>> from regard import pictures
        >>> image, weights = np.full((8, 8, 3), 200, np.uint8), [[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]]
        >>> figure = pictures.image_overlays(image, weights, ["red", "square"], grid=(2, 2))
        >>> [axes.get_title() for axes in figure.axes][:3]
        ['image', 'red', 'square']
    """
    image, matrix = as_image(image), as_array("weights", weights, 2)
    if len(matrix) != len(labels) or not 1 <= len(labels) <= MOST_PANELS:
        raise ShapeError(
            f"weights must have a row for each of 1 to {MOST_PANELS} labels; there are {len(labels)} labels, and "
            f"weights have shape {list(matrix.shape)}"
        )
    scale = weight_scale(matrix, rounded=False)
    forms = [form for form in forms_of(matrix) if form != "zero"]
    amounts = np.where(np.isfinite(matrix), matrix, 0.0)
    panels = [image, *(overlay(image, row, *grid, box, maximum=scale.high) for row in amounts)]
    shown = ["image", *(visible_token(label, LONGEST_LABEL) for label in labels)]
    across = min(COLUMNS, len(panels))
    caption = scale.captioned(title)
    down = -(-len(panels) // across)
    height, width = image.shape[:2]
    tall = PANEL * min(max(height / width, 0.25), 4.0)
    width, height = across * PANEL, down * (tall + 0.3)
    sheet = new_sheet(width, height, layout="constrained")
    lettering = Lettering(caption.texts(*shown))
    every = sheet.subplots(down, across, squeeze=False).ravel()
    for axes in every:
        axes.set_axis_off()
    for axes, panel, label in zip(every, panels, shown, strict=False):
        axes.imshow(panel, interpolation="nearest", aspect="equal")
        fit_width(lettering.letter(axes.set_title("", fontsize=9), label), PANEL - 0.1)
    if marked is not None:
        every[marked + 1].set_axis_on()
        every[marked + 1].set(xticks=[], yticks=[])
        every[marked + 1].spines[:].set(color=ACCENT, linewidth=2)
        every[marked + 1].title.set_fontweight("bold")
    x0, y0, x1, y1 = box or (0, 0, image.shape[1], image.shape[0])
    edges = x0 - 0.5, x1 - 0.5, y0 - 0.5, y1 - 0.5  # a pixel is around its numbers
    for axes, row in zip(every[1:], matrix, strict=False):
        draw_forms(axes, row.reshape(grid), extent=edges)
    label = caption.say("brightness")
    bar = draw_scale(sheet, brightness(scale), caption, even=scale.even, keys="grid", forms=forms, title=label)
    Frame(sheet, lettering, caption, bar, width - 2 * MARGIN).surround()
    return sheet
