"""Views as matplotlib figures, for reports without a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError
from regard.names.counted import counted
from regard.palette import BORDER, MUTED, SIGN, head_style, points
from regard.pictures import Panel, alignment, calculation, head_grid, image_overlays, sound_alignment, word_weights
from regard.pictures.fonts import Lettering, visible_token, wrapped
from regard.pictures.heatmap import color_map, colored, draw_forms, form_note
from regard.pictures.numbers import short_number
from regard.pictures.sheet import NOTE, new_sheet
from regard.pictures.weight_scale import LEAST_END, titled_bar, weight_scale
from regard.records import AttentionRecord, Document, FrameAxis, GridAxis, TokenAxis, bin_edges
from regard.records.document import STEP_ORDER
from regard.viewer.overview import tile_source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOR_MAP_NAME = "amount"
MOST_TOKENS = 400
"""The most tokens of one side of a picture that shows their names."""

MOST_LINES = 2000
NEGATIVE_LINE, POSITIVE_LINE = points(SIGN["light"])[3::10]
LEAST_LINE_WEIGHT = 0.02
"""The least weight that is drawn as a line; of weights with signs, the least part of the scale."""

POOLED_SIDE = 256
THUMBNAIL_SIDE = 96
"""The most points of a side of a large and of a small map."""

LEAST_COLUMNS = 5
"""The fewest columns of a picture of layers × heads, so that its title has room even with few heads."""

LETTERS_AN_INCH = 11
"""The number of letters of a title that fit into an inch."""

MOST_IMAGES = 12
"""The most queries whose weights are drawn over the picture."""


def figure(document: Document, view: str, layer: int = 0, head: int | None = None) -> Figure:
    """Draws one view of a document: a record by its index, and a head, from 0, or the mean over heads.

    Views that show all heads ignore the head. ArgumentError is raised if the record is too long for the view.
    """
    if view == "difference":
        raise ArgumentError("a difference is drawn by the viewer alone; save it as .html, or choose another view")
    if view == "walk":
        return _steps(document, layer, head)
    if view == "numbers":
        return head_grid(document.grids, document.title)
    if view == "grid":
        return _grid(document)
    record = _fitting(document, view, layer)
    drawn = {"pattern": _pattern, "lines": _lines, "words": _words, "image": _image, "sound": _sound, "long": _long}
    return drawn[view](record, head, _title(document, record, head, view))


def _fitting(document: Document, view: str, layer: int) -> AttentionRecord:
    """Returns the chosen record, or the first one that the view can show."""
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
        of_heads = "one head" if record.head_numbers is None else f"head {record.head_numbers[0]}"
    elif head is not None:
        of_heads = f"head {record.numbers_of_heads[head]}"
    else:
        of_heads = f"all {record.heads} heads" if view == "lines" else f"mean of {record.heads} heads"
    of_text = _text_number(document, record)
    return f"{document.title}\nlayer {record.layer}, {record.kind}{f', {of_text}' if of_text else ''}, {of_heads}"


def _text_number(document: Document, record: AttentionRecord) -> str:
    """Returns the number of a record's text, from 1, among those of one layer and kind on several texts; "" for one."""

    def group(one: AttentionRecord) -> tuple[Any, ...]:
        return one.layer, one.kind, type(one.queries), type(one.keys)

    alike = [one for one in document.records if group(one) == group(record)]
    texts = [(one.queries.labels, one.keys.labels) for one in alike]
    several = len(texts) > 1 and len(set(texts)) == len(texts)
    return f"text {alike.index(record) + 1}" if several else ""


def _matrix(record: AttentionRecord, head: int | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Returns a head's weights, or their mean over the heads in which a query sees a key, and the masked pairs."""
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


def _pattern(record: AttentionRecord, head: int | None, title: str) -> Figure:
    _check_length(record)
    matrix, hidden = _matrix(record, head)
    missing = np.isnan(matrix)
    note = form_note(bool(((matrix == 0) & ~hidden).any()), bool(hidden.any()), bool(missing.any()))
    title = f"{title}\n{note}" if note else title
    drawn = alignment(
        np.nan_to_num(matrix), record.keys.labels, record.queries.labels, title=title,
        color_map=COLOR_MAP_NAME, maximum=None,
        axis_names=("target", "source") if record.kind == "cross" else ("query", "key"),
    )  # fmt: skip
    draw_forms(drawn.axes[0], hidden, missing)
    return drawn


def _lines(record: AttentionRecord, head: int | None, title: str) -> Figure:
    """Draws two columns of tokens, with a line for each weight in the colour and dash of its head."""
    from matplotlib.lines import Line2D

    _check_length(record)
    assert record.weights is not None, "checked by _fitting"
    sides = [[visible_token(text) for text in axis.labels] for axis in (record.queries, record.keys)]
    rows = max(len(side) for side in sides)
    weights = np.nan_to_num(record.weights)
    if record.visible is not None:
        weights = np.where(record.visible, weights, 0.0)
    heads = range(weights.shape[0]) if head is None else [head]
    sizes = np.abs(weights)
    end = weight_scale(
        (weights if record.signed else sizes)[heads].reshape(-1, weights.shape[2]).astype(np.float64)
    ).high
    least = LEAST_LINE_WEIGHT * (end if record.signed else 1.0)
    lines = np.argwhere(sizes >= least)
    lines = lines[np.isin(lines[:, 0], heads)]
    order = np.argsort(sizes[tuple(lines.T)])[::-1][:MOST_LINES]
    shown = f"the {len(order):,} largest of {len(lines):,}" if len(order) < len(lines) else f"the {len(order):,}"
    size = f"of at least {short_number(least)}; the widest line would be {short_number(end)}"
    if record.signed:
        size = f"with a size {size}, red below 0, blue above"
    title = f"{title}; lines: {shown} weights {size}"
    lettering = Lettering([*sides[0], *sides[1], wrapped(title, 70)])
    sheet = new_sheet(7.5, max(2.5, 0.24 * rows + 1.3), layout="constrained")
    axes = sheet.add_subplot()
    for one, query, key in lines[order].tolist():
        share = float(sizes[one, query, key]) / end
        style = _style(one)
        if record.signed:
            style["color"] = NEGATIVE_LINE if weights[one, query, key] < 0 else POSITIVE_LINE
        axes.plot([0, 1], [query, key], alpha=share, linewidth=0.5 + 1.6 * share, **style)
    for x, side, align in ((-0.02, sides[0], "right"), (1.02, sides[1], "left")):
        for row, text in enumerate(side):
            lettering.letter(axes.text(x, row, "", ha=align, va="center", fontsize=9), text)
    axes.set_xlim(-0.45, 1.45)
    axes.set_ylim(rows - 0.5, -1.3)
    axes.set_axis_off()
    key = [Line2D([], [], label=f"head {record.numbers_of_heads[one]}", **_style(one)) for one in heads]
    for x, name, align in ((-0.02, "query", "right"), (1.02, "key", "left")):
        axes.text(x, -0.9, name, ha=align, va="center", fontsize=NOTE, color=MUTED)
    axes.legend(handles=key, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=6, fontsize=8, frameon=False)
    lettering.letter(axes.set_title("", fontsize=11), wrapped(title, 70))
    return sheet


def _style(head: int) -> dict[str, Any]:
    """Returns hue and dash of a head's lines, as the viewer has them."""
    color, dash = head_style(head)
    return {"color": color, "linestyle": (0, [0.75 * length for length in dash]) if dash else "-"}


def _grid(document: Document) -> Figure:
    """Draws layers × heads, each a small map: the largest weight of each of at most 96 × 96 bins."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    heads = max(record.heads for record in document.records)
    rows, columns = len(document.records), max(heads, LEAST_COLUMNS)
    sheet = new_sheet(0.8 * columns + 1.0, 0.85 * rows + 0.8, layout="constrained")
    grid = sheet.add_gridspec(rows, columns)
    for row, record in enumerate(document.records):
        source = tile_source(record)
        _, maximum = source.pooled(min(source.queries, THUMBNAIL_SIDE), min(source.keys, THUMBNAIL_SIDE))
        for one in range(record.heads):
            axes = sheet.add_subplot(grid[row, one])
            _image_of(axes, maximum[one], record.signed, 0.0 if record.signed else LEAST_END / source.keys)
            _mark_hidden(axes, record, one, *maximum.shape[1:])
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_color(BORDER)
            if row == 0 or record.numbers_of_heads != document.records[0].numbers_of_heads[: record.heads]:
                axes.set_title(f"head {record.numbers_of_heads[one]}", fontsize=8)
            if one == 0:
                names = [f"layer {record.layer}", record.kind, _text_number(document, record)]
                axes.set_ylabel("\n".join(filter(None, names)), fontsize=8)
    sizes = [_bin_size(record, THUMBNAIL_SIDE) for record in document.records]
    bound = "about" if len(set(sizes)) == 1 else "up to"
    size = f"{max(down for down, _ in sizes):g} × {max(across for _, across in sizes):g}"
    points = "a point is one weight" if size == "1 × 1" else f"a point is the largest of {bound} {size} pairs"
    _write_title(sheet, f"{document.title}\nqueries downwards, keys to the right; {points}")
    signed = [record.signed for record in document.records]
    scale = "the map's largest weight"
    if not all(signed):
        scale = f"the map's scale, which ends at\nits largest weight, and at {LEAST_END:g} equal shares at least"
    parts = ScalarMappable(Normalize(-1 if all(signed) else 0, 1), color_map(_colors(all(signed))))
    titled_bar(
        sheet,
        parts,
        f"part of {scale}{'; red: below 0' if any(signed) else ''}",
        ax=sheet.axes,
        fraction=0.03,
        shrink=min(1.0, 2.5 / sheet.get_figheight()),
    )
    return sheet


def _bin_size(record: AttentionRecord, most: int) -> tuple[float, float]:
    """Returns the numbers of queries and keys in a bin of a pooled map, rounded to tenths."""
    lengths = (len(record.queries), len(record.keys))
    return tuple(round(length / min(length, most), 1) for length in lengths)  # pyright: ignore[reportReturnType]


def _write_title(sheet: Figure, title: str) -> None:
    text = wrapped(title, min(100, int(LETTERS_AN_INCH * sheet.get_figwidth())), lines=8)
    Lettering([text]).letter(sheet.suptitle("", fontsize=11), text)


def _colors(signed: bool) -> str:
    return "sign" if signed else COLOR_MAP_NAME


def _image_of(axes: Axes, matrix: NDArray[Any], signed: bool, least: float = 0.0) -> Any:
    """Draws a map whose scale ends at its largest weight, and at ``least`` or above."""
    draw_forms(axes, np.zeros(matrix.shape, np.bool_), np.isnan(matrix))
    largest = float(np.abs(matrix[np.isfinite(matrix)]).max(initial=0.0))
    high = max(largest, min(1.0, least)) or 1.0
    return axes.imshow(
        colored(matrix, _colors(signed)),
        cmap=color_map(_colors(signed)),
        vmin=-high if signed else 0,
        vmax=high,
        aspect="auto",
        interpolation="nearest",
    )


def _mark_hidden(axes: Axes, record: AttentionRecord, head: int, rows: int, columns: int) -> None:
    """Hatches the bins of a pooled map of which no pair is visible."""
    if record.visible is None:
        return
    visible = record.visible if record.visible.ndim == 2 else record.visible[min(head, len(record.visible) - 1)]
    edges = [bin_edges(length, count)[:-1] for length, count in zip(visible.shape, (rows, columns), strict=True)]
    shown = np.logical_or.reduceat(np.logical_or.reduceat(visible, edges[0], axis=0), edges[1], axis=1)
    draw_forms(axes, np.logical_not(shown), np.zeros(shown.shape, np.bool_))


def _words(record: AttentionRecord, head: int | None, title: str) -> Figure:
    assert record.weights is not None, "checked by _fitting"
    matrix, hidden = _matrix(record, head)
    seeing = np.logical_not(hidden.all(axis=1)).reshape(-1)
    received = matrix.sum(axis=0, keepdims=True) / max(1, int(seeing.sum()))
    received = np.where(hidden.all(axis=0), -np.inf, received)
    blind = len(seeing) - int(seeing.sum())
    over = f"; mean over {counted(int(seeing.sum()), 'query')}" + (f" ({blind:,} more see no key)" if blind else "")
    title = title if len(seeing) == 1 else f"{title}{over}"
    return word_weights(list(record.keys.labels), received, title=title)


def _image(record: AttentionRecord, head: int | None, title: str) -> Figure:
    """Draws the picture, and for each of the first queries the picture under a veil, thin at large weights."""
    grid = record.keys
    assert isinstance(grid, GridAxis), "checked by _fitting"
    matrix, hidden = _matrix(record, head)
    matrix = np.where(hidden, -np.inf, matrix)
    names = [visible_token(text) for text in record.queries.labels]
    shown = range(min(MOST_IMAGES, len(names)))
    part = f"; the first {len(shown)} of {len(names):,} queries" if len(shown) < len(names) else ""
    return image_overlays(
        grid.image, matrix[: len(shown), grid.leading :], names[: len(shown)], (grid.rows, grid.columns), box=grid.box,
        title=f"{title}{part}",
    )  # fmt: skip


def _sound(record: AttentionRecord, head: int | None, title: str) -> Figure:
    """Draws the spectrogram, and below it the weights over the same time."""
    frames = record.keys
    assert isinstance(frames, FrameAxis), "checked by _fitting"
    _check_length(record, 4 * MOST_TOKENS)
    matrix, hidden = _matrix(record, head)
    drawn = sound_alignment(
        np.nan_to_num(matrix), frames.spectrogram, record.queries.labels, frames.seconds, title=title
    )
    draw_forms(
        drawn.axes[1], hidden, np.isnan(matrix), extent=(0.0, len(frames) * frames.seconds, -0.5, len(matrix) - 0.5)
    )
    return drawn


def _long(record: AttentionRecord, head: int | None, title: str) -> Figure:
    """Draws the largest and the mean weight of each bin, averaged over heads; all weights if each has its bin."""
    source = tile_source(record)
    mean, maximum = source.pooled(min(POOLED_SIDE, source.queries), min(POOLED_SIDE, source.keys))
    if mean.shape[1:] == (source.queries, source.keys):
        return _pattern(replace(record, weights=mean, source=None), head, title)
    pictures = {
        "largest": maximum.mean(axis=0) if head is None else maximum[head],
        "mean": mean.mean(axis=0) if head is None else mean[head],
    }
    down, across = _bin_size(record, POOLED_SIDE)
    hidden = record.kind == "causal" or (record.visible is not None and not record.visible.all())
    sheet = new_sheet(10.0, 4.8, layout="constrained")
    for axes, (name, matrix) in zip(sheet.subplots(1, 2), pictures.items(), strict=True):
        drawn = _image_of(axes, matrix, record.signed)
        drawn.set_extent((0, source.keys, source.queries, 0))
        zeros = ", hidden ones as 0" if hidden and name == "mean" else ""
        axes.set_title(f"{name} of about {down:g} × {across:g} pairs{zeros}", fontsize=9)
        axes.set_xlabel("key", fontsize=9)
        axes.set_ylabel("query", fontsize=9)
        titled_bar(sheet, drawn, f"{name} weight", ax=axes)
    _write_title(sheet, title)
    return sheet


def _steps(document: Document, layer: int, head: int | None) -> Figure:
    """Draws every matrix of the first worked calculation, or of a record's head, with all its numbers."""
    steps = document.steps[0] if document.steps else document.records[layer].worked(head or 0)
    keyed: dict[str, Sequence[str]] = {"key": steps.key_labels, "value": steps.key_labels}
    panels = []
    for name, matrix in steps.matrices.items():
        if name not in STEP_ORDER:
            continue
        features = name in ("query", "key", "value", "output")
        columns = [str(d) for d in range(matrix.shape[1])] if features else steps.key_labels
        rows = keyed.get(name, steps.query_labels)
        panels.append(
            Panel(name, matrix, tuple(rows), tuple(columns), kind="weights" if name == "weights" else "heatmap")
        )
    return calculation(panels, title=steps.name)
