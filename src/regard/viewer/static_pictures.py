"""Views as matplotlib figures, for reports without a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.counted import counted
from regard.errors import ArgumentError
from regard.pictures import Panel, alignment, calculation, word_weights
from regard.pictures.fonts import Lettering, visible_token, wrapped
from regard.pictures.heatmap import color_map
from regard.pictures.sheet import DASHES, PALETTE, new_sheet
from regard.records import AttentionRecord, Document, FrameAxis, GridAxis, TokenAxis
from regard.viewer.overview import tile_source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = "cividis"
MASKED = "#d6dae0"
MISSING = "#d6284a"
MOST_TOKENS = 400
"""The most tokens of one side of a picture that shows their names."""

MOST_LINES = 2000
LEAST_LINE = 0.02
"""The least weight that is drawn as a line."""

POOLED = 256
THUMBNAIL = 96
"""The most points of a side of a large and of a small map."""

LEAST_COLUMNS = 5
"""The columns of a picture of layers × heads at least, so that its title has room beside few heads."""

LETTERS_AN_INCH = 11
"""Letters of a title that fit into an inch."""

MOST_IMAGES = 12
"""The most queries whose weights are drawn over the picture."""


def figure(document: Document, view: str, layer: int = 0, head: int | None = None) -> Figure:
    """One view of a document.

    Args:
        document: the document.
        view: its name.
        layer: the index of the record.
        head: from 0; None: the mean over heads (views that show all heads show all).

    Raises:
        ArgumentError: the record is too long for the view.
        MissingPartError: matplotlib is not installed.
    """
    if view == "difference":
        raise ArgumentError("a difference is drawn by the viewer alone; save it as .html, or choose another view")
    if view == "walk":
        return _steps(document)
    if view == "grid":
        return _grid(document)
    record = _fitting(document, view, layer)
    drawn = {"pattern": _pattern, "lines": _lines, "words": _words, "image": _image, "sound": _sound, "long": _long}
    return drawn[view](record, head, _title(document, record, head, view))


def _fitting(document: Document, view: str, layer: int) -> AttentionRecord:
    """The chosen record, or the first one that the view can show."""
    kind = {"image": GridAxis, "sound": FrameAxis, "words": TokenAxis}.get(view)

    def fits(record: AttentionRecord) -> bool:
        return (view == "long" or record.weights is not None) and (kind is None or isinstance(record.keys, kind))

    chosen = document.records[layer]
    record = chosen if fits(chosen) else next((one for one in document.records if fits(one)), None)
    if record is None:
        raise ArgumentError(f"view {view!r} has no record in this document that it can draw")
    return record


def _title(document: Document, record: AttentionRecord, head: int | None, view: str) -> str:
    if record.heads == 1:
        of_heads = "one head"
    elif head is not None:
        of_heads = f"head {head}"
    else:
        of_heads = f"all {record.heads} heads" if view == "lines" else f"mean of {record.heads} heads"
    return f"{document.title}\nlayer {record.layer}, {record.kind}, {of_heads}"


def _matrix(record: AttentionRecord, head: int | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The weights of a head, or their mean over the heads in which a query sees a key, and which of them are masked."""
    assert record.weights is not None, "checked by _fitting"
    chosen = record.weights if head is None else record.weights[head : head + 1]
    shown = np.ones(chosen.shape, np.bool_)
    if record.visible is not None:
        visible_of = record.visible if record.visible.ndim == 2 or head is None else record.visible[head : head + 1]
        shown = np.broadcast_to(visible_of, chosen.shape)
    seeing = shown.any(axis=2).sum(axis=0)[:, None]
    mean = np.where(shown, chosen, 0.0).astype(np.float64).sum(axis=0) / np.maximum(seeing, 1)
    return mean, np.logical_not(shown.any(axis=0)).reshape(mean.shape)


def _check_length(record: AttentionRecord, most: int = MOST_TOKENS) -> None:
    longest = max(len(record.queries), len(record.keys))
    if longest > most:
        raise ArgumentError(
            f"a picture with a name for each position shows at most {most} positions; this record has {longest:,}. "
            "Save the view as .html, or choose view='grid' or 'long'"
        )


def _mark(axes: Axes, matrix: NDArray[np.float64], hidden: NDArray[np.bool_]) -> None:
    """Cover masked cells by hatches and NaN by crosses."""
    from matplotlib.patches import Rectangle

    for row, column in np.argwhere(hidden).tolist():
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, facecolor=MASKED, edgecolor="#9aa1ac", hatch="////", linewidth=0))
    for row, column in np.argwhere(np.isnan(matrix)).tolist():
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=MISSING, linewidth=0))
        axes.plot([column], [row], marker="x", color="white", markersize=6)


def _pattern(record: AttentionRecord, head: int | None, title: str) -> Figure:
    _check_length(record)
    matrix, hidden = _matrix(record, head)
    drawn = alignment(
        np.nan_to_num(matrix), record.keys.labels, record.queries.labels, title=title, color_map=COLORS, maximum=None,
        axis_names=("target", "source") if record.kind == "cross" else ("query", "key"),
    )  # fmt: skip
    _mark(drawn.axes[0], matrix, hidden)
    return drawn


def _lines(record: AttentionRecord, head: int | None, title: str) -> Figure:
    """Two columns of tokens, with a line for each weight in the colour and dash of its head."""
    from matplotlib.lines import Line2D

    _check_length(record)
    assert record.weights is not None, "checked by _fitting"
    sides = [[visible_token(text) for text in axis.labels] for axis in (record.queries, record.keys)]
    rows = max(len(side) for side in sides)
    weights = np.nan_to_num(record.weights)
    if record.visible is not None:
        weights = np.where(record.visible, weights, 0.0)
    heads = range(weights.shape[0]) if head is None else [head]
    lines = np.argwhere(weights >= LEAST_LINE)
    lines = lines[np.isin(lines[:, 0], heads)]
    order = np.argsort(weights[tuple(lines.T)])[::-1][:MOST_LINES]
    shown = f"the {len(order):,} largest of {len(lines):,}" if len(order) < len(lines) else f"the {len(order):,}"
    title = f"{title}; lines: {shown} weights of at least {LEAST_LINE}"
    lettering = Lettering([*sides[0], *sides[1], wrapped(title, 70)])
    sheet = new_sheet(7.5, max(2.5, 0.24 * rows + 1.3), layout="constrained")
    axes = sheet.add_subplot()
    largest = float(weights[heads].max(initial=0.0)) or 1.0
    for one, query, key in lines[order].tolist():
        share = float(weights[one, query, key]) / largest
        color, dash = _style(one)
        axes.plot([0, 1], [query, key], color=color, linestyle=dash, alpha=share, linewidth=0.5 + 1.6 * share)
    for x, side, align in ((-0.02, sides[0], "right"), (1.02, sides[1], "left")):
        for row, text in enumerate(side):
            lettering.letter(axes.text(x, row, "", ha=align, va="center", fontsize=9), text)
    axes.set_xlim(-0.45, 1.45)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_axis_off()
    key = [Line2D([], [], label=f"head {one}") for one in heads]
    for one, line in zip(heads, key, strict=True):
        line.set_color(_style(one)[0])
        line.set_linestyle(_style(one)[1])  # pyright: ignore[reportArgumentType]
    axes.legend(handles=key, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=6, fontsize=8, frameon=False)
    lettering.letter(axes.set_title("", fontsize=11), wrapped(title, 70))
    return sheet


def _style(head: int) -> tuple[str, str]:
    """Colour and dash: neighbours differ in both."""
    count = len(PALETTE)
    return PALETTE[head % count], DASHES[(head % count + head // count) % len(DASHES)]


def _grid(document: Document) -> Figure:
    """Layers × heads, each a small map: the largest weight of each of at most 96 × 96 bins."""
    heads = max(record.heads for record in document.records)
    rows, columns = len(document.records), max(heads, LEAST_COLUMNS)
    sheet = new_sheet(0.8 * columns + 1.0, 0.85 * rows + 0.8, layout="constrained")
    grid = sheet.add_gridspec(rows, columns)
    for row, record in enumerate(document.records):
        source = tile_source(record)
        _, maximum = source.pooled(min(source.queries, THUMBNAIL), min(source.keys, THUMBNAIL))
        for one in range(record.heads):
            axes = sheet.add_subplot(grid[row, one])
            _image_of(axes, maximum[one])
            axes.set_xticks([])
            axes.set_yticks([])
            if row == 0:
                axes.set_title(f"head {one}", fontsize=8)
            if one == 0:
                axes.set_ylabel(f"layer {record.layer}\n{record.kind}", fontsize=8)
    sizes = [_bin_size(record, THUMBNAIL) for record in document.records]
    bound = "about" if len(set(sizes)) == 1 else "up to"
    size = f"{max(down for down, _ in sizes):g} × {max(across for _, across in sizes):g}"
    points = "a point is one weight" if size == "1 × 1" else f"a point is the largest of {bound} {size} pairs"
    _write_title(sheet, f"{document.title}\neach map: part of its own largest weight, linear scale; {points}")
    return sheet


def _bin_size(record: AttentionRecord, most: int) -> tuple[float, float]:
    """The numbers of queries and keys in a bin of a pooled map, rounded to tenths."""
    lengths = (len(record.queries), len(record.keys))
    return tuple(round(length / min(length, most), 1) for length in lengths)  # pyright: ignore[reportReturnType]


def _write_title(sheet: Figure, title: str) -> None:
    text = wrapped(title, min(100, int(LETTERS_AN_INCH * sheet.get_figwidth())), lines=8)
    Lettering([text]).letter(sheet.suptitle("", fontsize=11), text)


def _image_of(axes: Axes, matrix: NDArray[Any]) -> Any:
    return axes.imshow(
        np.ma.masked_invalid(matrix), cmap=color_map(COLORS), vmin=0, aspect="auto", interpolation="nearest"
    )


def _words(record: AttentionRecord, head: int | None, title: str) -> Figure:
    assert record.weights is not None, "checked by _fitting"
    matrix, hidden = _matrix(record, head)
    seeing = np.logical_not(hidden.all(axis=1)).reshape(-1)
    received = np.nan_to_num(matrix.sum(axis=0, keepdims=True) / max(1, int(seeing.sum())))
    blind = len(seeing) - int(seeing.sum())
    over = f"; mean over {counted(int(seeing.sum()), 'query')}" + (f" ({blind:,} more see no key)" if blind else "")
    title = title if len(seeing) == 1 else f"{title}{over}"
    return word_weights(list(record.keys.labels), received, title=title, color_map="Oranges")


def _image(record: AttentionRecord, head: int | None, title: str) -> Figure:
    """The picture under the weights of each of the first queries."""
    grid = record.keys
    assert isinstance(grid, GridAxis), "checked by _fitting"
    matrix, hidden = _matrix(record, head)
    matrix = np.where(hidden, np.nan, matrix)
    names = [visible_token(text) for text in record.queries.labels]
    shown = range(min(MOST_IMAGES, len(names)))
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    height, width = grid.image.shape[:2]
    sheet = new_sheet(2.4 * columns, (2.4 * height / width + 0.35) * rows + 0.6, layout="constrained")
    lettering = Lettering(names)
    x0, y0, x1, y1 = grid.box or (0.0, 0.0, float(width), float(height))
    for query in shown:
        axes = sheet.add_subplot(rows, columns, query + 1)
        axes.imshow(grid.image)
        cells = matrix[query, grid.leading :].reshape(grid.rows, grid.columns)
        axes.imshow(cells, cmap=color_map(COLORS), vmin=0, alpha=0.65, extent=(x0, x1, y1, y0), interpolation="nearest")
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        lettering.letter(axes.set_title("", fontsize=9), names[query])
    part = f"the first {len(shown)} of {len(names):,} queries, " if len(shown) < len(names) else ""
    _write_title(sheet, f"{title}; {part}each in the colours of its own largest weight, linear scale")
    return sheet


def _sound(record: AttentionRecord, head: int | None, title: str) -> Figure:
    """The spectrogram, and below it the weights in the same time."""
    frames = record.keys
    assert isinstance(frames, FrameAxis), "checked by _fitting"
    _check_length(record, 4 * MOST_TOKENS)
    matrix, hidden = _matrix(record, head)
    end = len(frames) * frames.seconds
    names = [visible_token(text) for text in record.queries.labels]
    sheet = new_sheet(8.0, 2.4 + 0.22 * len(names), layout="constrained")
    above, below = sheet.subplots(2, 1, sharex=True, height_ratios=[1.4, max(0.6, 0.22 * len(names))])
    above.imshow(frames.spectrogram, aspect="auto", origin="lower", cmap="gray_r", extent=(0, end, 0, 1))
    above.set_yticks([])
    above.set_ylabel("frequency", fontsize=9)
    drawn = below.imshow(
        np.where(hidden, np.nan, matrix), aspect="auto", cmap=COLORS, vmin=0, interpolation="nearest",
        extent=(0, end, len(names) - 0.5, -0.5),
    )  # fmt: skip
    below.set_yticks(range(len(names)), names, fontsize=8)
    lettering = Lettering(names)
    for label in below.get_yticklabels():
        lettering.letter(label)
    below.set_xlabel("seconds", fontsize=9)
    sheet.colorbar(drawn, ax=below, label="weight", aspect=10)
    _write_title(sheet, title)
    return sheet


def _long(record: AttentionRecord, head: int | None, title: str) -> Figure:
    """The largest weight and the mean weight of each bin, averaged over the heads; all weights if each has its bin."""
    source = tile_source(record)
    mean, maximum = source.pooled(min(POOLED, source.queries), min(POOLED, source.keys))
    if mean.shape[1:] == (source.queries, source.keys):
        return _pattern(replace(record, weights=mean, source=None), head, title)
    pictures = {
        "largest": maximum.mean(axis=0) if head is None else maximum[head],
        "mean": mean.mean(axis=0) if head is None else mean[head],
    }
    down, across = _bin_size(record, POOLED)
    hidden = record.kind == "causal" or (record.visible is not None and not record.visible.all())
    sheet = new_sheet(10.0, 4.8, layout="constrained")
    for axes, (name, matrix) in zip(sheet.subplots(1, 2), pictures.items(), strict=True):
        drawn = _image_of(axes, matrix)
        drawn.set_extent((0, source.keys, source.queries, 0))
        zeros = ", hidden ones as 0" if hidden and name == "mean" else ""
        axes.set_title(f"{name} of about {down:g} × {across:g} pairs{zeros}", fontsize=9)
        axes.set_xlabel("key", fontsize=9)
        axes.set_ylabel("query", fontsize=9)
        sheet.colorbar(drawn, ax=axes)
    _write_title(sheet, title)
    return sheet


def _steps(document: Document) -> Figure:
    """Every matrix of the first worked calculation, with all its numbers."""
    steps = document.steps[0]
    keyed: dict[str, Sequence[str]] = {"key": steps.key_labels, "value": steps.key_labels}
    panels = []
    for name, matrix in steps.matrices.items():
        features = name in ("query", "key", "value", "output")
        columns = [str(d) for d in range(matrix.shape[1])] if features else steps.key_labels
        rows = keyed.get(name, steps.query_labels)
        panels.append(Panel(name, matrix, tuple(rows), tuple(columns)))
    return calculation(panels, title=steps.name)
