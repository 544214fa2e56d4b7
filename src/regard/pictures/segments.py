"""An image, the classes of its pixels, and the attention of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, ShapeError
from regard.palette import ACCENT
from regard.pictures.caption import Caption
from regard.pictures.fonts import Lettering, visible
from regard.pictures.image_overlay import DARKEST_FACTOR, brightness
from regard.pictures.numbers import as_array, as_image
from regard.pictures.sheet import fit_width, new_sheet, set_position, text_extent
from regard.pictures.weight_scale import WeightScale, titled_bar, weight_scale
from regard.shapes.arrays import as_array as floating_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

MARGIN, GAP, CAPTION = 0.12, 0.12, 0.24  # inches, as all lengths below
PANEL = 3.6
"""Width of a panel; an image that is taller than wide gets this height."""

BAR_WIDTH, BAR_ROOM, LEAST_BAR = 0.13, 0.95, 2.4
"""The width of the bar, the width with its title, and its least height."""

OPACITY = 0.6
"""The opacity of the colours of classes over the image."""


class PixelAttention(NamedTuple):
    """The attention of one pixel to the image.

    Attributes:
        weights: ``[rows, columns]``, at least 0: cells of one size, from the upper left corner.
        cell: width and height of a cell in pixels of the image; the last cells may extend beyond it.
        pixel: x and y of the pixel.

    Example:
        >>> import numpy as np
        >>> from regard import pictures
        >>> image, classes = np.full((4, 6, 3), 128, np.uint8), np.zeros((4, 6), int)
        >>> attention = pictures.PixelAttention([[0.1, 0.2, 0.1], [0.1, 0.4, 0.1]], cell=(2, 2), pixel=(3, 2))
        >>> figure = pictures.segments(image, classes, ["road"], attention=attention)
        >>> [axes.get_title() for axes in figure.axes if axes.get_title()]
        ['image', 'classes found', 'attention of pixel 3, 2']
    """

    weights: Any
    cell: tuple[float, float]
    pixel: tuple[int, int]


def segments(
    image: Any,
    classes: Any,
    names: Sequence[str],
    *,
    true: Any = None,
    attention: PixelAttention | None = None,
    title: str | None = None,
) -> Figure:
    """Draws an image, the classes of its pixels over it, and the attention of one of them: panels side by side.

    Pixel (x, y) covers the square from (x, y) to (x + 1, y + 1) in every panel.

    Args:
        image: uint8 ``[height, width, 3]``.
        classes: the found class of each pixel, ``[height, width]``.
        names: of the classes, in the order of their numbers.
        true: the true class of each pixel, for another panel; a number below 0 is shown as no class.
        attention: of one pixel, for another panel: bright where its weights are large, with a bar.
        title: above the picture.

    Returns:
        A figure with one panel for the image and one for each of the others, and a legend of the classes in it.

    Raises:
        ShapeError: an array has the wrong shape.
        KindError: the image is not uint8.
        ArgumentError: a class has no name, or the pixel is not in the image.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> import numpy as np
        >>> from regard import pictures
        >>> image = np.full((4, 6, 3), 128, np.uint8)
        >>> classes = np.array([[0, 0, 0, 1, 1, 1]] * 4)
        >>> figure = pictures.segments(image, classes, ["road", "sky"], true=classes)
        >>> [axes.get_title() for axes in figure.axes if axes.get_title()]
        ['image', 'classes found', 'true classes']
    """
    pixels = as_image(image)
    height, width = pixels.shape[:2]
    panels: list[tuple[str, NDArray[np.uint8]]] = [("image", pixels)]
    shown: set[int] = set()
    scale: WeightScale | None = None
    for name, argument, panel_title in (("classes", classes, "classes found"), ("true", true, "true classes")):
        if argument is not None:
            class_map = _class_map(name, argument, (height, width), len(names))
            panels.append((panel_title, overlay(pixels, class_map)))
            shown |= {number for number in np.unique(class_map).tolist() if number >= 0}
    if attention is not None:
        _check_attention(attention, height, width)
        scale = weight_scale(as_array("weights", attention.weights, 2).reshape(1, -1), rounded=False)
        panel_title = f"attention of pixel {attention.pixel[0]}, {attention.pixel[1]}"
        panels.append((f"{panel_title}, nearly uniform" if scale.uniform else panel_title, pixels))

    figure = new_sheet(1.0, 1.0)
    lettering = Lettering([*(visible(name) for name in names), visible(title or "")])
    across = PANEL * min(1.0, width / height)
    down = across * height / width
    axes = [figure.add_axes((0.0, 0.0, 1.0, 1.0), label=name) for name, _ in panels]
    for panel, (name, content) in zip(axes, panels, strict=True):
        _show(panel, content, (0.0, float(width), float(height), 0.0))
        panel.set_xlim(0, width)
        panel.set_ylim(height, 0)
        fit_width(panel.set_title(name, fontsize=9, pad=3), across)
    bar = None
    if attention is not None:
        assert scale is not None, "the attention has weights"
        drawn = _draw_attention(axes[-1], attention, scale, pixels)
        bar = figure.add_axes((0.0, 0.0, 0.1, 0.1), label="weight")
        share = "" if scale.even is None else f"\nline: {Caption().equal_share(scale.even, 'grid')}"
        titled_bar(figure, drawn, f"brightness: attention weight{share}", cax=bar)
        if scale.even is not None:
            bar.axhline(scale.even, color=ACCENT, linewidth=1.4)
    heading = figure.text(0, 1, "", fontsize=11, va="top", ha="left")
    lettering.letter(heading, visible(title or ""))
    above = MARGIN + CAPTION + (text_extent(heading)[1] + 0.1 if title else 0.0)
    body = len(panels) * across + (len(panels) - 1) * GAP + (0.0 if bar is None else BAR_ROOM)
    full_width = 2 * MARGIN + max(body, text_extent(heading)[0])
    rows = _legend_rows([visible(names[number]) for number in sorted(shown)], full_width, lettering)
    least = 0.0 if bar is None else LEAST_BAR - 0.2 * len(rows)
    full_height = above + max(down, least) + 0.1 + len(rows) * 0.2 + MARGIN
    figure.set_size_inches(full_width, full_height)
    heading.set_position((MARGIN / full_width, 1 - MARGIN / full_height))
    for number, panel in enumerate(axes):
        set_position(panel, MARGIN + number * (across + GAP), full_height - above - down, across, down)
    if bar is not None:
        end = MARGIN + len(panels) * (across + GAP)
        tall = max(down, LEAST_BAR)
        set_position(bar, end, full_height - above - tall, BAR_WIDTH, tall)
    _draw_legend(figure, rows, sorted(shown), full_height - above - down - 0.1)
    return figure


def class_colors(count: int) -> NDArray[np.uint8]:
    """Returns a colour for each class, uint8 ``[count, 3]``: neighbours differ in hue and in brightness."""
    from matplotlib.colors import hsv_to_rgb

    number = np.arange(count)
    hue = (0.58 + number * 0.618033988749895) % 1.0  # the golden ratio spreads any number of hues
    colors = hsv_to_rgb(np.stack((hue, 0.85 - 0.25 * (number // 2 % 2), np.where(number % 2, 0.72, 1.0)), -1))
    return np.round(colors * 255).astype(np.uint8)


def overlay(image: NDArray[np.uint8], classes: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Returns the image ``[height, width, 3]`` in the colours of its pixels' classes; a class below 0 leaves a pixel
    grey."""
    grey = image.mean(axis=2, keepdims=True).repeat(3, axis=2)
    colors = class_colors(max(1, int(classes.max(initial=0)) + 1))[np.maximum(classes, 0)]
    mixed = np.where((classes >= 0)[..., None], OPACITY * colors + (1 - OPACITY) * grey, grey)
    return np.round(mixed).astype(np.uint8)


def _class_map(name: str, argument: Any, size: tuple[int, int], count: int) -> NDArray[np.int64]:
    classes = floating_array(argument, name)
    if classes.shape != size:
        raise ShapeError(f"{name} must be [height, width] = {list(size)}; it has shape {list(classes.shape)}")
    classes = classes.astype(np.int64)
    if classes.max() >= count:
        raise ArgumentError(f"{name} has the class {classes.max()}, and there are {count} names")
    return classes


def _check_attention(attention: PixelAttention, height: int, width: int) -> None:
    weights = as_array("weights", attention.weights, 2)
    across, down = attention.cell
    if not (across > 0 and down > 0) or weights.shape[1] * across < width or weights.shape[0] * down < height:
        raise ShapeError(
            f"weights of {list(weights.shape)} cells of {across:g} × {down:g} pixels do not cover the image of "
            f"{width} × {height} pixels"
        )
    x, y = attention.pixel
    if not (0 <= x < width and 0 <= y < height):
        raise ArgumentError(f"pixel {x},{y} is not in the image of {width} × {height} pixels")


def _show(axes: Axes, content: NDArray[Any], extent: tuple[float, float, float, float], **options: Any) -> None:
    axes.imshow(content, extent=extent, interpolation="nearest", aspect="auto", **options)
    axes.set_xticks([])
    axes.set_yticks([])


def _draw_attention(
    axes: Axes, attention: PixelAttention, scale: WeightScale, pixels: NDArray[np.uint8]
) -> ScalarMappable:
    """Draws the image under a veil that is thin where weights are large, and returns its brightness."""
    weights = as_array("weights", attention.weights, 2)
    height, width = pixels.shape[:2]
    across, down = attention.cell
    veil = np.zeros((*weights.shape, 4))
    veil[..., 3] = (1 - DARKEST_FACTOR) * (1 - np.asarray(scale.norm()(weights)))
    _show(axes, pixels, (0.0, float(width), float(height), 0.0))
    _show(axes, veil, (0.0, weights.shape[1] * across, weights.shape[0] * down, 0.0))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    x, y = attention.pixel
    for color, size in (("black", 2.6), ("#40ff80", 1.2)):
        axes.plot([x + 0.5], [y + 0.5], marker="+", markersize=11, markeredgewidth=size, color=color)
    return brightness(scale)


def _legend_rows(names: list[str], width: float, lettering: Lettering) -> list[list[tuple[str, float]]]:
    """Returns names with their distances from the left, in as many lines as they need."""
    sheet = new_sheet(1.0, 1.0)
    rows: list[list[tuple[str, float]]] = [[]]
    x = MARGIN
    for name in names:
        text = sheet.text(0, 0, "", fontsize=8)
        lettering.letter(text, name)
        size = 0.2 + text_extent(text)[0] + 0.18
        if rows[-1] and x + size > width - MARGIN:
            rows.append([])
            x = MARGIN
        rows[-1].append((name, x))
        x += size
    return rows


def _draw_legend(figure: Figure, rows: list[list[tuple[str, float]]], numbers: list[int], top: float) -> None:
    colors = class_colors(max(numbers, default=0) + 1) / 255
    lettering = Lettering([name for row in rows for name, _ in row])
    width, height = figure.get_size_inches()
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), label="legend", zorder=-1)
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    order = iter(numbers)
    for line, row in enumerate(rows):
        y = top - 0.2 * line - 0.1
        for name, x in row:
            axes.bar(x + 0.07, 0.12, 0.14, y - 0.06, color=colors[next(order)], edgecolor="#606060", linewidth=0.4)
            lettering.letter(figure.text((x + 0.2) / width, y / height, "", fontsize=8, va="center"), name)
