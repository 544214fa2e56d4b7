"""Maps of bins as pictures: those of all heads, and that of a head of a long text."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from regard.palette import BORDER, INK, MUTED, PAPER
from regard.pictures.caption import MARGIN, Caption
from regard.pictures.fonts import Lettering
from regard.pictures.heatmap import color_map, colored, draw_forms
from regard.pictures.numbers import percent, short_number
from regard.pictures.sheet import NOTE, TEXT, new_sheet
from regard.pictures.weight_scale import LEAST_END, Frame, draw_scale, scale_end
from regard.records import AttentionRecord, Document, bin_edges
from regard.viewer.long_sentence import distance_text, in_units, named_distances
from regard.viewer.overview import FINEST_SIDE, record_findings, tile_source
from regard.viewer.shown_head import Shown, text_number
from regard.viewer.words import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THUMBNAIL_SIDE = 96
"""The most points of a side of a small map."""

MOST_BLOCKS, LEAST_SHARE = 160, 0.001
"""The most points of a side of a long map, and the share with the first colour of its scale, as in the viewer."""

LABEL_STEP = 0.06
"""The least distance of two names of stripes, as a part of the height of a map."""

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
            shown = maximum[one]
            if record.visible is not None:
                edges = [
                    bin_edges(len(axis), side)
                    for axis, side in zip((record.queries, record.keys), shown.shape, strict=True)
                ]
                shown = np.where(_hidden_blocks(record, one, *edges), -np.inf, shown)
            _image_of(axes, shown, record)
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
    scaled = "grid_own_scale_signed" if all(signed) else "grid_own_scale"
    notes = [
        say("grid_signed", language) if any(signed) else "", say(scaled, language, times=int(LEAST_END)),
        say(point, language, down=down, across=across), say("grid_axes", language),
    ]  # fmt: skip
    shown = sum(record.heads for record in document.records)
    layers, counts = {record.layer for record in document.records}, {record.heads for record in document.records}
    what = say("layerCount" if len(layers) == rows else "attentionCount", language, count=rows)
    facts = f"{what} × {say('headCount', language, count=heads)}" if len(counts) == 1 else what
    every = say("eachHead", language, what=facts) if document.text_numbers is None else ""
    caption = Caption(
        " · ".join(filter(None, (document.title, every))),
        say("grid_sentence", language, heads=shown),
        say("grid_reading", language),
        " · ".join(filter(None, notes)),
        cast(Literal["en", "zh"], language),
    )
    parts = ScalarMappable(Normalize(-1 if all(signed) else 0, 1), color_map(_colors(all(signed))))
    hidden = any(record.visible is not None and not record.visible.all() for record in document.records)
    bar = draw_scale(sheet, parts, caption, title=say("grid_part", language), forms=["masked"] if hidden else [])
    bar.ax.xaxis.set_major_formatter(lambda value, _: percent(value, language).replace("-", "−"))
    Frame(sheet, Lettering(caption.texts()), caption, bar, sheet.get_figwidth() - 2 * MARGIN).surround()
    return sheet


def _bin_size(record: AttentionRecord, most: int) -> tuple[float, float]:
    """Returns the numbers of queries and keys in a bin of a pooled map, rounded to tenths."""
    lengths = (len(record.queries), len(record.keys))
    return tuple(round(length / min(length, most), 1) for length in lengths)  # pyright: ignore[reportReturnType]


def _colors(signed: bool) -> str:
    return "sign" if signed else "amount"


def _image_of(axes: Axes, matrix: NDArray[Any], record: AttentionRecord) -> Any:
    """Draws a pooled map, hatched where it is −inf; its scale ends as `scale_end` says."""
    extent = (0, len(record.keys), len(record.queries), 0)
    draw_forms(axes, matrix, (0, len(record.keys), 0, len(record.queries)))
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


def long_picture(shown: Shown) -> Figure:
    """Draws of each block of a head's pairs the part of its queries' attention that its keys get, as the viewer does.

    Where numbers have signs, it is their mean.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import NullLocator

    record, head, _, _, caption, _ = shown
    source, language = tile_source(record), caption.language
    lengths = source.queries, source.keys
    bins = [min(FINEST_SIDE, length) for length in lengths]
    step = -(-max(bins) // MOST_BLOCKS)
    fine = [bin_edges(length, count) for length, count in zip(lengths, bins, strict=True)]
    edges = [np.append(side[:-1:step], side[-1]) for side in fine]
    mean = source.pooled(*bins)[0]
    sums = (mean.mean(axis=0) if head is None else mean[head]).astype(np.float64) * np.outer(*map(np.diff, fine))
    starts = [np.arange(0, count, step) for count in bins]
    sums = np.add.reduceat(np.add.reduceat(sums, starts[0], axis=0), starts[1], axis=1)
    matrix = sums / np.diff(edges[0])[:, None] / (np.diff(edges[1]) if record.signed else 1)
    across, down = (
        f"{round(step * length / count):,}" for length, count in zip(lengths[::-1], bins[::-1], strict=True)
    )
    scale = {} if record.signed else {"scale": say("long_share", language)}
    note = say("long_mean" if record.signed else "long_share_of", language, down=down, across=across)
    caption = caption._replace(note=in_units(record, note, language), **scale)
    distances = [] if record.signed else named_distances(record, record_findings(record), head)
    lettering = Lettering(
        caption.texts(say("long_future", language), *(distance_text(one, language) for one in distances))
    )
    sheet = new_sheet(5.6, 5.4, layout="constrained")
    axes = sheet.subplots()
    hidden = _hidden_blocks(record, head, *edges)
    drawn = _image_of(axes, np.where(hidden, -np.inf, matrix), record)
    if not record.signed:
        drawn.set_norm(LogNorm(LEAST_SHARE, 1, clip=True))
    if record.kind == "causal" and hidden.any():
        frame = {"boxstyle": "round,pad=0.5", "facecolor": PAPER, "edgecolor": "none"}
        style = {"ha": "center", "va": "center", "fontsize": TEXT, "color": MUTED, "bbox": frame}
        note = axes.text(0.72, 0.78, "", transform=axes.transAxes, **style)
        lettering.letter(note, say("long_future", language))
    _name_stripes(axes, lettering, record, distances, language)
    for axis, name in ((axes.yaxis, "axisQuery"), (axes.xaxis, "axisKey")):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        lettering.letter(axis.get_label(), caption.say(name)).set(fontsize=TEXT, color=MUTED)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(labelsize=NOTE, labelcolor=MUTED, color=BORDER)
    axes.spines[:].set_color(BORDER)
    forms = ["masked"] if hidden.any() else []
    forms += ["zero"] if bool((matrix == 0)[~hidden].any()) else []
    bar = draw_scale(sheet, drawn, caption, forms=forms)
    if not record.signed:
        bar.set_ticks([LEAST_SHARE, 0.01, 0.1, 1])
        bar.ax.xaxis.set_minor_locator(NullLocator())
        texts = [f"≤ {short_number(100 * LEAST_SHARE)}\xa0%", *(percent(part, language) for part in (0.01, 0.1, 1))]
        for label, align in zip(bar.ax.set_xticklabels(texts), ("left", "center", "center", "right"), strict=True):
            label.set_horizontalalignment(align)
    Frame(sheet, lettering, caption, bar, sheet.get_figwidth() - 2 * MARGIN).surround()
    return sheet


def _name_stripes(
    axes: Axes, lettering: Lettering, record: AttentionRecord, distances: list[int], language: str
) -> None:
    """Names the far distances at which a head looks, beside the weights, one below the other, as the viewer does."""
    queries, keys, is_causal = len(record.queries), len(record.keys), record.kind == "causal"
    shift, gap = keys - queries if is_causal else 0, LABEL_STEP * queries
    labels = []
    for offset in distances:
        first, last = max(0, -offset - shift), min(queries, keys - offset - shift) - 1
        labels.append([min(max(first + 0.25 * (last - first), 0.3 * queries), last), last, offset])
    labels.sort()
    for one, following in itertools.pairwise(labels):
        following[0] = max(following[0], one[0] + gap)
    for number, (row, last, _) in reversed([*enumerate(labels)]):
        labels[number][0] = min(row, last, labels[number + 1][0] - gap if labels[number + 1 :] else queries - gap / 2)
    frame = {"boxstyle": "round,pad=0.3", "facecolor": PAPER, "edgecolor": "none"}
    for row, _, offset in labels:
        at = row + shift + offset
        x = min((row + shift if is_causal else at) + 0.03 * keys, 0.83 * keys)
        axes.plot([at, x], [row, row], color=INK, linewidth=0.8, marker="o", markevery=[0], markersize=3)
        name = axes.text(x, row, "", va="center", fontsize=NOTE, fontweight="bold", color=INK, bbox=frame)
        lettering.letter(name, distance_text(offset, language))


def _hidden_blocks(
    record: AttentionRecord, head: int | None, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns the blocks of which no pair is visible."""
    if record.visible is None:
        last = rows[1:, None] - 1 + len(record.keys) - len(record.queries)
        return (columns[None, :-1] > last) & (record.kind == "causal")
    visible = record.visible
    if visible.ndim == 3:
        visible = visible.any(axis=0) if head is None else visible[min(head, len(visible) - 1)]
    return ~np.logical_or.reduceat(np.logical_or.reduceat(visible, rows[:-1], axis=0), columns[:-1], axis=1)
