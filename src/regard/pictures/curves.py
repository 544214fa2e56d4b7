"""The curves of a training, and the quality of models by the length of sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, ShapeError
from regard.pictures.fonts import Lettering, visible, wrapped
from regard.pictures.numbers import as_array
from regard.pictures.sheet import DASHES, MARKERS, PALETTE, count_axis, fit_width, new_sheet, text_extent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Column = NDArray[np.float64]

MOST_BINS, MOST_SERIES = 200, 28
"""The most bins and series of a picture of lengths."""

MOST_LEVEL_LABELS = 16
"""The most bins whose counts are written horizontally."""

WORDS = {"bleu": "BLEU", "chrf": "chrF", "train": "training", "val": "validation"}
"""Words in the names of columns, as a legend writes them."""

MOST_RAW_POINTS = 200
"""A curve of more points is drawn pale under its moving average."""


def training_curves(
    metrics: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    *,
    title: str | None = None,
    qualities: Mapping[str, str] | None = None,
) -> Figure:
    """Draw loss (left) and BLEU, chrF or other qualities (right) over the steps of a training.

    Args:
        metrics: columns by name, or the rows of a ``metrics.csv``. Numbers may be text; ``""`` and None mean "not
            measured". Every column with ``loss`` in its name is a loss; ``bleu`` and ``chrf`` are qualities. The axis
            is ``step``, else ``epoch``, else the number of the row.
        title: above the picture.
        qualities: the columns of the right panel, with the name of each on its axis; None: ``bleu`` and ``chrf``.

    Returns:
        A figure of two panels; one without data says so. The best quality is marked with its value.

    Raises:
        ArgumentError: a value is no number.
        ShapeError: the columns have different lengths.
        MissingPartError: matplotlib is not installed.
    """
    columns = _columns(metrics)
    axis = next((name for name in ("step", "epoch") if name in columns), None)
    length = len(next(iter(columns.values()), ()))
    steps = columns[axis] if axis is not None else np.arange(length, dtype=np.float64)
    labels = qualities
    if labels is None:
        known = ("BLEU", "chrF")
        labels = {name: label for name in columns for label in known if label.lower() in name.lower()}
    panels = {
        "loss": [name for name in columns if "loss" in name.lower() and name not in labels],
        "BLEU, chrF": [name for name in columns if name in labels],
    }
    heading = "" if title is None else wrapped(title, 90)
    absent = {"loss": "no loss was measured", "BLEU, chrF": "neither BLEU nor chrF was measured"}
    names_shown = _legend_names([name for names in panels.values() for name in names])
    lettering = Lettering([heading, *names_shown.values()])

    figure = new_sheet(10.0, 3.8, layout="constrained")
    _head(figure, lettering, heading)
    for index, (kind, names) in enumerate(panels.items()):
        axes = figure.add_subplot(1, 2, index + 1, label=kind)
        measured = [name for name in names if np.isfinite(columns[name] + steps).any()]
        kinds = dict.fromkeys(label for name, label in labels.items() if name in measured)
        _dress(axes, axis or "row", kind if index == 0 else ", ".join(kinds) or kind)
        count_axis(axes.xaxis)
        highest = max((float(np.nanmax(columns[name])) for name in measured), default=0.0)
        for number, name in enumerate(measured):
            best = float(np.nanmax(columns[name]))
            # A point near the axis has no room below.
            below = 0.15 * highest < best < highest
            mark = None if index == 0 else "below" if below else "above"
            _draw_curve(axes, lettering, steps, columns[name], names_shown[name], number, mark)
        if len({step for name in measured for step in steps[np.isfinite(columns[name])].tolist()}) == 1:
            axes.set_xlim(*(float(steps[np.isfinite(steps)][0]) + side for side in (-1, 1)))
        if index == 1 and measured:
            axes.set_ylim(bottom=0)
        if measured:
            legend = axes.legend(fontsize=8.5, frameon=False)
            for text in legend.get_texts():
                lettering.letter(text)
        else:
            axes.text(0.5, 0.5, absent[kind], transform=axes.transAxes, ha="center", va="center", color="#505050")
            axes.set_xticks([])
            axes.set_yticks([])
    return figure


def learning_rate_curve(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    suggestion: float | None = None,
    *,
    title: str | None = None,
) -> Figure:
    """Draw the losses of a sweep over growing learning rates, and mark the suggested rate.

    Args:
        rates: the learning rate of each step, above 0.
        losses: the loss of each step, drawn pale.
        smoothed: their moving average.
        suggestion: the suggested rate, one of ``rates`` but for rounding; None: there is none.
        title: above the picture.

    Raises:
        ShapeError: the lengths differ.
        MissingPartError: matplotlib is not installed.
    """
    x, pale, line = (as_array(name, values, 1) for name, values in
                     (("rates", rates), ("losses", losses), ("smoothed", smoothed)))  # fmt: skip
    if not len(x) == len(pale) == len(line):
        raise ShapeError(
            f"rates, losses and smoothed must be equally long; they have {len(x)}, {len(pale)}, {len(line)}"
        )
    heading = "" if title is None else wrapped(title, 90)
    lettering = Lettering([heading])
    figure = new_sheet(6.4, 3.8, layout="constrained")
    _head(figure, lettering, heading)
    axes = figure.add_subplot(label="loss")
    _dress(axes, "learning rate", "training loss")
    axes.set_xscale("log")
    axes.plot(x, pale, color=PALETTE[0], alpha=0.3, linewidth=0.8, label="loss of a step")
    axes.plot(x, line, color=PALETTE[0], linewidth=1.8, label="moving average")
    if len(line):
        # The losses of a model that diverges would press the others flat.
        low, high = (
            float(min(pale.min(), line.min())),
            float(np.median(pale) + 2 * np.std(pale[: max(1, len(pale) // 2)])),
        )
        axes.set_ylim(low - 0.08 * (high - low or 1), high + 0.35 * (high - low or 1))
    if suggestion is not None:
        height = float(np.interp(np.log(suggestion), np.log(x), line))
        axes.axvline(suggestion, color=PALETTE[1], linewidth=1.2, linestyle="--")
        axes.plot([suggestion], [height], MARKERS[0], color=PALETTE[1], label=f"falls fastest at {suggestion:.1e}")
    axes.legend(fontsize=8.5, frameon=False, loc="lower left")
    return figure


def bleu_by_length(
    bins: Sequence[str | range],
    series: Mapping[str, Any],
    counts: Sequence[int] | None = None,
    *,
    title: str | None = None,
    measure: str = "BLEU",
) -> Figure:
    """Draw the quality of several models by source length (Bahdanau et al. 2015, figure 2).

    Args:
        bins: a label for each bin, or the lengths in it (``range(1, 11)`` is shown as ``1–10``).
        series: a number for each bin and model; NaN if there is none.
        counts: sentences in each bin, drawn below; None: not drawn.
        title: above the picture.
        measure: the name of the quality.

    Returns:
        A figure with one panel, or two with counts.

    Raises:
        ArgumentError: there is no bin or no model, or there are too many.
        ShapeError: a model, or ``counts``, does not have one number for each bin.
        MissingPartError: matplotlib is not installed.
    """
    if len(bins) > MOST_BINS or len(series) > MOST_SERIES:
        raise ArgumentError(
            f"there may be at most {MOST_BINS} bins and {MOST_SERIES} series; there are {len(bins)} and {len(series)}"
        )
    if not bins or not series:
        raise ArgumentError(f"bins and series must not be empty; there are {len(bins)} bins and {len(series)} series")
    values = {name: _one_each(f"series[{name!r}]", numbers, len(bins)) for name, numbers in series.items()}
    sizes = None if counts is None else _one_each("counts", counts, len(bins))
    labels = [visible(label, 12) if isinstance(label, str) else _span(label) for label in bins]
    names = [visible(name, 32) for name in values]
    heading = "" if title is None else wrapped(title, 80)
    lettering = Lettering([heading, measure, *labels, *names])

    figure = new_sheet(
        max(6.0, min(14.0, 2.6 + 0.75 * len(bins))), 4.4 if sizes is not None else 3.6, layout="constrained"
    )
    grid = figure.add_gridspec(2 if sizes is not None else 1, 1, height_ratios=(4, 1) if sizes is not None else None)
    axes = figure.add_subplot(grid[0], label=measure)
    positions = np.arange(len(bins))
    for number, numbers in enumerate(values.values()):
        color, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
        dashes = DASHES[number // len(PALETTE) % len(DASHES)]
        # Markers on the axis or at the top are not clipped.
        axes.plot(
            positions, numbers, color=color, marker=marker, markersize=5, linewidth=1.8, linestyle=dashes,
            label=str(number), clip_on=False, zorder=3,
        )  # fmt: skip
    _dress(axes, "", visible(measure, 32))
    measured = np.concatenate(list(values.values()))
    measured = measured[np.isfinite(measured)]
    highest, lowest_value = measured.max(initial=0.0), measured.min(initial=0.0)
    axes.set_ylim(1.08 * lowest_value, 1.08 * highest if highest > lowest_value else 1.0)
    if not measured.size:
        axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", va="center", color="#505050")
    axes.set_xlim(-0.5, len(bins) - 0.5)
    axes.set_xticks(positions, [lettering.drawable(label) for label in labels])
    room = figure.get_figwidth() - 1.0
    probes = [lettering.letter(figure.text(0, 0, "", fontsize=9), name) for name in names]
    entry = max(text_extent(probe)[0] for probe in probes) + 0.6
    for probe in probes:
        probe.remove()
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=max(1, min(3, int(room / entry))), fontsize=9, frameon=False,
        borderaxespad=0.2,
    )  # fmt: skip
    for text, name in zip(legend.get_texts(), names, strict=True):
        lettering.letter(text, name)
    for label in axes.get_xticklabels():
        lettering.letter(label)
    upright = max(text_extent(label)[0] for label in axes.get_xticklabels()) > 0.95 * room / len(bins)
    lowest = axes
    if sizes is not None:
        lowest = figure.add_subplot(grid[1], sharex=axes, label="counts")
        bars = lowest.bar(positions, sizes, width=0.6, color="#b8bec6")
        crowded = len(bins) > MOST_LEVEL_LABELS
        lowest.bar_label(
            bars, [f"{size:.0f}" for size in sizes], fontsize=7 if crowded else 8, padding=2, rotation=90 * crowded
        )
        lowest.set_ylim(0, max(float(sizes.max()) * (2.2 if crowded else 1.35), 1.0))
        lowest.set_ylabel("sentences", fontsize=9)
        lowest.set_yticks([])
        lowest.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(labelbottom=False)
        for label in lowest.get_xticklabels():
            lettering.letter(label)
    lowest.set_xlabel("source length", fontsize=9.5)
    if upright:
        lowest.tick_params(axis="x", labelrotation=90)
    _head(figure, lettering, heading)
    return figure


def _head(figure: Figure, lettering: Lettering, heading: str) -> None:
    if heading:
        title = lettering.letter(figure.suptitle("", fontsize=12, x=0.01, ha="left"), heading)
        fit_width(title, 0.95 * figure.get_figwidth())


def _columns(metrics: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Metrics as columns of float64, NaN if not measured."""
    if isinstance(metrics, Mapping):
        table = {name: list(column) for name, column in metrics.items()}
    else:
        names = dict.fromkeys(name for row in metrics for name in row)
        table = {name: [row.get(name) for row in metrics] for name in names}
    lengths = {name: len(column) for name, column in table.items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"metrics must have columns of one length; they have {lengths}")
    return {
        name: np.array([_number(name, row, value) for row, value in enumerate(column)], dtype=np.float64)
        for name, column in table.items()
    }


def _legend_names(columns: Sequence[str]) -> dict[str, str]:
    """The name of each column in the legend: ``val_bleu`` is ``BLEU``, ``train_loss`` is ``training loss``.

    A column keeps its own name if two would have the same.
    """
    names = {}
    for column in columns:
        words = [WORDS.get(word, word) for word in column.split("_")]
        if words[-1] in ("BLEU", "chrF") and words[0] == "validation":
            words = words[1:]
        plain = all(word.isalnum() for word in words)
        names[column] = visible(" ".join(words) if plain else column, 40)
    shared = [name for name, count in Counter(names.values()).items() if count > 1]
    return {column: visible(column, 40) if name in shared else name for column, name in names.items()}


def _number(name: str, row: int, value: Any) -> float:
    if value is None or (isinstance(value, str) and not value.strip()):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"metrics[{name!r}] must hold numbers; row {row} holds {value!r}") from error


def _draw_curve(
    axes: Axes,
    lettering: Lettering,
    steps: Column,
    values: Column,
    name: str,
    number: int,
    mark: Literal["above", "below"] | None,
) -> None:
    measured = np.isfinite(steps) & np.isfinite(values)
    order = np.argsort(steps[measured], kind="stable")
    x, y = steps[measured][order], values[measured][order]
    color, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
    label = lettering.drawable(name)
    if len(x) > MOST_RAW_POINTS:
        axes.plot(x, y, color=color, alpha=0.22, linewidth=0.8)
        span = max(3, len(x) // 50)
        mean = np.convolve(y, np.ones(span) / span, mode="valid")
        axes.plot(x[span - 1 :], mean, color=color, linewidth=1.8, label=f"{label} (mean of {span})")
    else:
        shown = marker if len(x) <= 60 else None
        axes.plot(x, y, color=color, marker=shown, markersize=4, linewidth=1.6, label=label)
    if mark:
        top = int(y.argmax())
        offset, anchor = ((0, 6), "bottom") if mark == "above" else ((0, -7), "top")
        text = f"{y[top]:.1f}"
        axes.annotate(
            text, (x[top], y[top]), offset, textcoords="offset points", ha="center", va=anchor, fontsize=9, color=color
        )
        axes.margins(y=0.14)


def _dress(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=9.5, parse_math=False)
    axes.set_ylabel(y, fontsize=9.5, parse_math=False)
    axes.tick_params(labelsize=8.5)
    axes.grid(axis="y", color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _one_each(name: str, numbers: Any, length: int) -> Column:
    column = as_array(name, numbers, 1)
    if len(column) != length:
        raise ShapeError(f"{name} must have one number for each of the {length} bins; it has {len(column)}")
    return column


def _span(lengths: range) -> str:
    last = lengths[-1] if len(lengths) else lengths.stop
    return str(lengths.start) if last == lengths.start else f"{lengths.start}–{last}"
