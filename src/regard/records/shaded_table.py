"""Matrices as HTML tables whose cells are shaded by their numbers, for notebooks: no script, and all text escaped.

A shade is a transparent colour over the notebook's own background, so that the notebook's own letters are readable on
it, dark on light and light on dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.palette import SIGN, color_at
from regard.records.axis import bin_edges
from regard.shapes.arrays import as_array
from regard.summaries import CAPTION_STYLE, TABLE_STYLE, record_html
from regard.tracing.transforms import has_data

MOST_SHOWN = 8
"""The most rows and columns of a table with numbers; the others are counted."""

MOST_NUMBERED = 16
"""The most rows and columns of a whole table with numbers; a larger one is shown as a reduced map."""

MOST_CELLS = 32
"""The most rows and columns of a reduced map."""

LONGEST_LABEL, LONGEST_NAME = 24, 80
LONGEST_LINE = 300

OPACITY = 0.6
"""The opacity of the largest magnitude: with it black and white letters are readable on either colour."""

POSITIVE_COLOR, NEGATIVE_COLOR = (",".join(map(str, color_at(SIGN["light"], share))) for share in (13 / 16, 3 / 16))
"""Red, green, blue of positive and negative numbers: blue and red, strong enough to be seen on light and on dark."""

LINES = "rgba(128,128,128,.35) 0 1px,transparent 1px 5px"
HATCHED_STYLE = f"background:repeating-linear-gradient(-45deg,{LINES})"
"""The style of a pair that the mask hides."""

CROSSED_STYLE = f"background:repeating-linear-gradient(-45deg,{LINES}),repeating-linear-gradient(45deg,{LINES})"
"""The style of NaN and infinity."""

CELL_STYLE = "text-align:right;padding:3px 7px;white-space:nowrap"
"""The style of names and numbers, which not every notebook's host gives to tables."""

MAP_READINGS = ("weights", "tile", "rows", "pooled_mean", "received", "entropy")
"""The readings that can be shown as a map, the best one first."""


def shade(value: float, largest: float) -> str:
    """Returns the style of a cell: blue above 0, red below, stronger if larger; hatched for −inf, crossed for NaN."""
    if not np.isfinite(value):
        return HATCHED_STYLE if np.isneginf(value) else CROSSED_STYLE
    if not largest or not value:
        return ""
    color = POSITIVE_COLOR if value > 0 else NEGATIVE_COLOR
    return f"background:rgba({color},{OPACITY * min(abs(value) / largest, 1):.3f})"


def shaded_table(
    matrix: NDArray[Any],
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    caption: str = "",
    hidden: NDArray[np.bool_] | None = None,
    more: str = "",
    whole: bool = False,
) -> str:
    """Returns a matrix as a table; of more than eight rows or columns the others are counted.

    A ``whole`` table has all of its numbers; from 17 rows or columns on it is a map of means. Rows without labels have
    numbers; ``hidden`` are the pairs that a mask hides; the code ``more``, below the table, shows more.
    """
    matrix = np.asarray(matrix, np.float64)
    masked = matrix if hidden is None else np.where(hidden, -np.inf, matrix)
    finite = np.abs(matrix[np.isfinite(masked)])
    largest = float(finite.max(initial=0.0))
    if not matrix.size:
        body, caption = "", f"{caption} (empty)"
    elif not whole or max(matrix.shape) <= MOST_NUMBERED:
        most = MOST_NUMBERED if whole else MOST_SHOWN
        body = _numbered(masked, largest, rows, columns, most)
        caption += f"; {matrix.shape[0]:,} × {matrix.shape[1]:,}" if max(matrix.shape) > most else ""
    else:
        body, reduced = _reduced(masked)
        caption = f"{caption}; {reduced}"
    below = f"<div><code>{escape(more)}</code> shows more</div>" if more else ""
    return (
        f"<table style='{TABLE_STYLE}'>"
        f"<caption style='{CAPTION_STYLE}'>{escape(caption[:LONGEST_LINE])}</caption>"
        f"<tbody>{body}</tbody></table>{below}"
    )


def _numbered(
    matrix: NDArray[np.float64], largest: float, rows: Sequence[str] | None, columns: Sequence[str] | None, most: int
) -> str:
    names, shown = [], []
    for labels, length in zip((rows, columns), matrix.shape, strict=True):
        shown.append(length if length <= most else most - 1)
        each = range(shown[-1]) if labels is None else labels[: shown[-1]]
        names.append([str(label) for label in each])
    more = [
        f"… {length - count:,} more" if count < length else ""
        for length, count in zip(matrix.shape, shown, strict=True)
    ]
    decimals = number_decimals(largest)
    lines = [
        [
            *(
                f"<td style='{CELL_STYLE};{shade(value, largest)}'>{number_text(value, decimals)}</td>"
                for value in line
            ),
            *([f"<td style='{CELL_STYLE}'>…</td>"] if more[1] else []),
        ]
        for line in matrix[: shown[0], : shown[1]].tolist()
    ]
    lines += [[f"<td style='{CELL_STYLE}'>…</td>"] * len(lines[0])] if more[0] else []
    sides = [each + ([rest] if rest else []) for each, rest in zip(names, more, strict=True)]
    starts, across = ([f"<th style='{CELL_STYLE}'>{label_html(label)}</th>" for label in side] for side in sides)
    body = "".join(f"<tr>{start}{''.join(line)}</tr>" for start, line in zip(starts, lines, strict=True))
    return f"<tr><th></th>{''.join(across)}</tr>{body}"


def _reduced(matrix: NDArray[np.float64]) -> tuple[str, str]:
    """Returns the rows of a map of means, and their description; masked numbers count as 0."""
    counts = [min(length, MOST_CELLS) for length in matrix.shape]
    plain = np.where(np.isfinite(matrix), matrix, 0.0)
    edges = [bin_edges(length, count)[:-1] for length, count in zip(matrix.shape, counts, strict=True)]
    sizes = [np.diff([*starts, length]) for starts, length in zip(edges, matrix.shape, strict=True)]
    sums = np.add.reduceat(np.add.reduceat(plain, edges[0], axis=0), edges[1], axis=1)
    means = sums / sizes[0][:, None] / sizes[1]
    largest = float(np.abs(means).max())
    style = "padding:0;width:9px;min-width:9px;height:9px;line-height:9px"
    lines = ("".join(f"<td style='{style};{shade(value, largest)}'></td>" for value in line) for line in means.tolist())
    body = "".join(f"<tr style='height:9px'>{line}</tr>" for line in lines)
    kind = "a cell is the mean of a block" if counts != list(matrix.shape) else "without numbers"
    return body, f"{matrix.shape[0]} × {matrix.shape[1]}, {kind}, the darkest one {largest:.3g}"


def number_decimals(largest: float) -> int:
    """Returns the decimals of numbers up to a magnitude: two, or as many as give it two digits, at most six."""
    return 2 if not largest else min(max(2, 1 - math.floor(math.log10(largest))), 6)


def number_text(value: float, decimals: int = 2) -> str:
    """Returns a number rounded as in views, with its decimals, or four digits from 100 on; "" for −inf: masked."""
    if np.isneginf(value):
        return ""
    if decimals == 2 and abs(value) * (1 + 1e-6) >= 0.995 and abs(value) < 1 - 1e-6:
        return ">0.99" if value > 0 else "<−0.99"
    text = f"{value * (1 + 1e-6):.{decimals}f}" if abs(value) < 100 else f"{value:.4g}"
    is_zero = not any(digit in text for digit in "123456789n")  # a number that is written as zero has no sign
    return text.replace("-", "" if is_zero else "−").replace("nan", "NaN").replace("inf", "∞")


def label_html(label: object, limit: int = LONGEST_LABEL) -> str:
    """Returns a label in one line, escaped; another direction of writing does not reorder its neighbours."""
    text = str(label)
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"<bdi>{escape(''.join(c if c.isprintable() else ascii(c)[1:-1] for c in text)) or '∅'}</bdi>"


def columns_html(caption: str, titles: Sequence[str], rows: Iterable[Sequence[object]], rest: str = "") -> str:
    """Returns a table with titles of columns, integers at the right and texts at the left; then the text ``rest``."""

    def line(kind: str, texts: Sequence[object], values: Sequence[object]) -> str:
        aligned = (CELL_STYLE if isinstance(value, int) else CELL_STYLE.replace("right", "left") for value in values)
        cells = (
            f"<{kind} style='{style}'>{label_html(text, LONGEST_NAME)}</{kind}>"
            for text, style in zip(texts, aligned, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    lines = list(rows)
    head = line("th", titles, lines[0] if lines else titles)
    body = "".join(line("td", values, values) for values in lines)
    return (
        f"<table style='{TABLE_STYLE}'><caption style='{CAPTION_STYLE}'>{escape(caption)}</caption>"
        f"<thead>{head}</thead><tbody>{body}</tbody></table>{f'<div>{escape(rest)}</div>' if rest else ''}"
    )


def readings_html(name: str, fields: Iterable[tuple[str, object]], more: str) -> str:
    """Returns the (name, value) fields of a result as a table, and the best map among its readings.

    The code ``more`` shows more of the weights.
    """
    named = dict(fields)
    table = record_html(name, named.items())
    for reading in MAP_READINGS:
        tensor = named.get(reading)
        if isinstance(tensor, Tensor) and tensor.dim() >= 2 and tensor.numel() and has_data(tensor):
            leading = tensor.shape[:-2]
            first = as_array(tensor.detach()[(0,) * len(leading)], reading)
            count = int(np.prod(leading))
            # A call with three axes has one head: its rows are those of the batch.
            rows = "heads" if leading else "batch"
            axes = f"{rows} × keys" if reading == "received" else f"{rows} × queries" if reading == "entropy" else ""
            which = f"{reading}{f', {axes}' if axes else ''}{f', the first of {count}' if count > 1 else ''}"
            return table + shaded_table(first, caption=which, more=more if reading == "weights" else "")
    return table
