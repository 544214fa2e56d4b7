"""Maps of bins as pictures: those of all heads, and that of a head of a long text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from regard.palette import BORDER, MUTED
from regard.pictures.caption import MARGIN, Caption
from regard.pictures.fonts import Lettering, visible_token
from regard.pictures.heatmap import color_map, colored, draw_forms
from regard.pictures.numbers import percent
from regard.pictures.sheet import NOTE, TEXT, new_sheet
from regard.pictures.weight_scale import Frame, draw_scale, scale_end
from regard.records import AttentionRecord, Axis, Document, bin_edges
from regard.viewer.overview import record_findings, tile_source
from regard.viewer.shown_head import POOLED_SIDE, Shown, text_number
from regard.viewer.words import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THUMBNAIL_SIDE = 96
"""The most points of a side of a small map."""

MOST_TOLD_APART = 0.98
"""The share of the bins of a long map whose weights are within its scale: a few large ones would leave it pale."""

LEAST_COLUMNS = 5
"""The fewest columns of a picture of layers × heads, so that its title has room even with few heads."""


def grid_picture(document: Document, language: str) -> Figure:
    """Draws layers × heads, each a small map: the largest weight of each of at most 96 × 96 bins."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    heads = max(record.heads for record in document.records)
    rows, columns = len(document.records), max(heads, LEAST_COLUMNS)
    sheet = new_sheet(0.8 * columns + 0.9, 0.85 * rows + 0.3, layout="constrained")
    grid = sheet.add_gridspec(rows, columns)
    kinds = {(record.kind, type(record.keys)) for record in document.records}
    names = {
        number: "\n".join(filter(None, (
            say("layerNumber", language, layer=record.layer), record.kind if len(kinds) > 1 else "",
            say("textBrief", language, number=text) if (text := text_number(document, record)) else "",
        )))
        for number, record in enumerate(document.records)
    }  # fmt: skip
    lettering = Lettering([*names.values(), say("headNumber", language, head=0)])
    for row, record in enumerate(document.records):
        source = tile_source(record)
        _, maximum = source.pooled(min(source.queries, THUMBNAIL_SIDE), min(source.keys, THUMBNAIL_SIDE))
        for one in range(record.heads):
            axes = sheet.add_subplot(grid[row, one])
            _image_of(axes, maximum[one], record, one)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_color(BORDER)
            if row == 0 or record.numbers_of_heads != document.records[0].numbers_of_heads[: record.heads]:
                title = say("headNumber", language, head=record.numbers_of_heads[one])
                lettering.letter(axes.set_title("", fontsize=8, pad=3), title)
            if one == 0:
                label = axes.set_ylabel("", fontsize=8, rotation=0, ha="right", va="center")
                lettering.letter(label, names[row])
    sizes = [_bin_size(record, THUMBNAIL_SIDE) for record in document.records]
    down, across = (f"{max(size[side] for size in sizes):g}" for side in (0, 1))
    point = "grid_single" if down == across == "1" else "grid_reduced"
    signed = [record.signed for record in document.records]
    notes = [
        say(point, language, down=down, across=across), say("linesSigned", language) if any(signed) else "",
    ]  # fmt: skip
    shown = sum(record.heads for record in document.records)
    caption = Caption(
        document.title,
        say("grid_sentence", language, heads=shown),
        say("grid_reading", language),
        " · ".join(filter(None, notes)),
        cast(Literal["en", "zh"], language),
    )
    parts = ScalarMappable(Normalize(-1 if all(signed) else 0, 1), color_map(_colors(all(signed))))
    hidden = any(record.visible is not None and not record.visible.all() for record in document.records)
    bar = draw_scale(sheet, parts, caption, title=say("grid_part", language), forms=["masked"] if hidden else [])
    bar.ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %".replace("-", "−"))
    Frame(sheet, Lettering(caption.texts()), caption, bar, sheet.get_figwidth() - 2 * MARGIN).surround()
    return sheet


def _bin_size(record: AttentionRecord, most: int) -> tuple[float, float]:
    """Returns the numbers of queries and keys in a bin of a pooled map, rounded to tenths."""
    lengths = (len(record.queries), len(record.keys))
    return tuple(round(length / min(length, most), 1) for length in lengths)  # pyright: ignore[reportReturnType]


def _colors(signed: bool) -> str:
    return "sign" if signed else "amount"


def _image_of(axes: Axes, matrix: NDArray[Any], record: AttentionRecord, head: int | None) -> Any:
    """Draws a pooled map, hatched where no pair is visible; its scale ends as `scale_end` says."""
    extent = (0, len(record.keys), len(record.queries), 0)
    hidden = _hidden_bins(record, head, *matrix.shape)
    draw_forms(axes, np.where(hidden, -np.inf, matrix), (0, len(record.keys), 0, len(record.queries)))
    largest = float(np.abs(matrix[np.isfinite(matrix)]).max(initial=0.0))
    high = scale_end(largest, 0 if record.signed else len(record.keys))
    return axes.imshow(
        colored(matrix, _colors(record.signed)),
        cmap=color_map(_colors(record.signed)),
        vmin=-high if record.signed else 0,
        vmax=high,
        aspect="auto",
        interpolation="nearest",
        extent=extent,
    )


def _hidden_bins(record: AttentionRecord, head: int | None, rows: int, columns: int) -> NDArray[np.bool_]:
    """Returns the bins of a pooled map of which no pair is visible."""
    visible = record.visible
    if visible is None:
        return np.zeros((rows, columns), np.bool_)
    if visible.ndim == 3:
        visible = visible.any(axis=0) if head is None else visible[min(head, len(visible) - 1)]
    edges = [bin_edges(length, count)[:-1] for length, count in zip(visible.shape, (rows, columns), strict=True)]
    return ~np.logical_or.reduceat(np.logical_or.reduceat(visible, edges[0], axis=0), edges[1], axis=1)


def long_picture(shown: Shown) -> Figure:
    """Draws the largest weight of each bin of a head, with a scale on which most of the map is told apart."""
    from matplotlib.colors import PowerNorm

    record, head, _, _, caption = shown
    source = tile_source(record)
    _, maximum = source.pooled(min(POOLED_SIDE, source.queries), min(POOLED_SIDE, source.keys))
    matrix = maximum.mean(axis=0) if head is None else maximum[head]
    down, across = _bin_size(record, POOLED_SIDE)
    note = say("long_largest", caption.language, down=f"{down:g}", across=f"{across:g}")
    caption = caption._replace(sentence=caption.sentence or _finding(shown), note=note)
    lettering = Lettering(caption.texts())
    sheet = new_sheet(5.6, 5.4, layout="constrained")
    axes = sheet.subplots()
    drawn = _image_of(axes, matrix, record, head)
    if not record.signed:
        sizes = matrix[np.isfinite(matrix) & (matrix > 0)]
        most = float(np.quantile(sizes, MOST_TOLD_APART)) if sizes.size else 0.0
        drawn.set_norm(PowerNorm(0.5, 0.0, scale_end(most, source.keys)))
    for axis, name in ((axes.yaxis, "axisQuery"), (axes.xaxis, "axisKey")):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        lettering.letter(axis.get_label(), caption.say(name)).set(fontsize=TEXT, color=MUTED)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(labelsize=NOTE, labelcolor=MUTED, color=BORDER)
    axes.spines[:].set_color(BORDER)
    forms = ["masked"] if record.visible is not None and not record.visible.all() else []
    masked = record.kind == "causal" or bool(forms)
    forms += ["zero"] if bool((matrix == 0)[~_hidden_bins(record, head, *matrix.shape)].any()) else []
    bar = draw_scale(
        sheet, drawn, caption, even=None if masked or record.signed else 1 / source.keys,
        forms=forms, beyond=float(np.nanmax(matrix)),
    )  # fmt: skip
    Frame(sheet, lettering, caption, bar, sheet.get_figwidth() - 2 * MARGIN).surround()
    return sheet


def _finding(shown: Shown) -> str:
    """Returns what was found in a long record: of the shown head a single large weight, a diagonal or a sink."""
    record, head, _, _, caption = shown
    findings, language = record_findings(record), caption.language

    def names(position: int, axis: Axis) -> dict[str, str]:
        return {"text": f"“{visible_token(axis.labels[position], 16)}”", "number": f"{position:,}"}

    number = record.numbers_of_heads[head or 0]
    for one in findings["spikes"]:
        if one["head"] == head:
            query, key = names(one["query"], record.queries), names(one["key"], record.keys)
            return say(
                "found_spike", language, head=number, query=query["text"], row=query["number"],
                key=key["text"], column=key["number"], weight=percent(one["weight"], language),
            )  # fmt: skip
    for one in findings["diagonals"]:
        if one["head"] == head:
            named = {0: "found_own", -1: "found_previous", 1: "found_next"}
            name = named.get(one["offset"], "found_back" if one["offset"] < 0 else "found_ahead")
            share = percent(one["share"], language)
            return say(name, language, head=number, distance=f"{abs(one['offset']):,}", share=share)
    for one in findings["sinks"]:
        if one["head"] == head:
            key = names(one["key"], record.keys)
            share = percent(one["share"], language)
            return say("found_sink", language, head=number, key=key["text"], number=key["number"], share=share)
    return say("long_nothing", language)
