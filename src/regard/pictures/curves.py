"""The curves of a training, and the quality of models by the length of sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, ShapeError
from regard.pictures.fonts import Lettering, visible, wrapped
from regard.pictures.numbers import as_array, short_number
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


class Quality(NamedTuple):
    """A metric whose curve is drawn beside the loss.

    Attributes:
        label: its name.
        unit: of its values; metrics of one unit share a panel.
        higher_is_better: whether its best value is the highest one.

    Example:
        >>> from regard import pictures
        >>> error = pictures.Quality("word error rate", unit="%", higher_is_better=False)
        >>> figure = pictures.training_curves({"step": [1, 2], "val_wer": [40.0, 30.0]}, qualities={"val_wer": error})
        >>> [axes.get_ylabel() for axes in figure.axes], [text.get_text() for text in figure.axes[1].texts]
        (['loss', 'word error rate (%)'], ['lowest 30.0'])
    """

    label: str
    unit: str = ""
    higher_is_better: bool = True


MOST_RAW_POINTS = 200
"""A curve of more points is drawn pale under its moving average."""


def training_curves(
    metrics: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    *,
    title: str | None = None,
    qualities: Mapping[str, str | Quality] | None = None,
) -> Figure:
    """Draws loss (left) and BLEU, chrF or other qualities (right) over the steps of a training; marks the best values.

    Args:
        metrics: columns by name, or the rows of a ``metrics.csv``. Numbers may be text; ``""`` and None mean "not
            measured". Every column with ``loss`` in its name is a loss; ``bleu`` and ``chrf`` are qualities. The axis
            is ``step``, else ``epoch``, else the number of the row.
        title: above the picture.
        qualities: the columns of the right panels, with the name of each, or a `Quality`; None: ``bleu`` and ``chrf``.

    Returns:
        A figure of a panel for the losses and one for the qualities of each unit; one without data says so. The best
        value of each quality and of each loss that is not of the training is marked: the lowest one of a loss.

    Raises:
        ArgumentError: a value is no number.
        ShapeError: the columns have different lengths.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures
        >>> losses = {"train_loss": [3.0, 2.0, 1.0], "val_loss": [3.1, 2.5, 2.7]}
        >>> figure = pictures.training_curves({"step": [1, 2, 3], **losses, "val_bleu": [1.0, 9.0, 8.0]})
        >>> [[text.get_text() for text in axes.texts] for axes in figure.axes]  # the best values
        [['lowest 2.50'], ['highest 9.00']]
    """
    columns = _columns(metrics)
    axis = next((name for name in ("step", "epoch") if name in columns), None)
    length = len(next(iter(columns.values()), ()))
    steps = columns[axis] if axis is not None else np.arange(length, dtype=np.float64)
    metrics_of = _qualities(columns, qualities)
    curves = {name: _curve(name, steps, values, metrics_of.get(name)) for name, values in columns.items()}
    panels = _panels(curves, metrics_of)
    heading = "" if title is None else wrapped(title, 90)
    of_panels = [name for _, names in panels for name in names]
    names_shown = _legend_names(of_panels)
    if qualities is not None:
        names_shown |= _distinct(
            {name: visible(metrics_of[name].label, 40) for name in of_panels if name in metrics_of}
        )
    lettering = Lettering([heading, *names_shown.values()])

    figure = new_sheet(5.0 * len(panels), 3.8, layout="constrained")
    _head(figure, lettering, heading)
    for index, (kind, names) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1, label=kind)
        labels = ", ".join(dict.fromkeys(metrics_of[name].label for name in names)) if index else kind
        with_unit = f"{labels} ({kind})" if index and kind else labels or "BLEU, chrF"
        _dress(axes, "training step" if axis == "step" else axis or "row", visible(with_unit, 48))
        count_axis(axes.xaxis)
        measured = [(names_shown[name], curves[name]) for name in names if curves[name].x.size]
        if measured:
            _draw_curves(axes, lettering, measured)
            if index:
                axes.set_ylim(0, 1.14 * _highest(measured) or 1.0)
        else:
            absent = "neither BLEU nor chrF was measured" if qualities is None else "no metric was measured"
            _draw_absence(axes, absent if index else "no loss was measured")
    return figure


def learning_rate_curve(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    suggestion: float | None = None,
    *,
    title: str | None = None,
) -> Figure:
    """Draws the losses of a sweep over growing learning rates, and marks the suggested rate.

    Args:
        rates: the learning rate of each step, above 0.
        losses: the loss of each step, drawn pale.
        smoothed: their moving average.
        suggestion: the suggested rate, one of ``rates`` but for rounding; None: there is none.
        title: above the picture.

    Returns:
        A figure.

    Raises:
        ShapeError: the lengths differ.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures
        >>> rates, losses = [1e-4, 1e-3, 1e-2, 1e-1], [4.0, 3.0, 2.0, 9.0]
        >>> figure = pictures.learning_rate_curve(rates, losses, [4.0, 3.5, 2.8, 5.9], suggestion=1e-3)
        >>> [line.get_label() for line in figure.axes[0].lines if line.get_label()[0] != "_"]
        ['loss of a step', 'moving average', 'falls fastest at 1.00e-03']
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
        axes.plot([suggestion], [height], MARKERS[0], color=PALETTE[1], label=f"falls fastest at {suggestion:.2e}")
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
    """Draws the quality of several models by source length (Bahdanau et al. 2015, figure 2).

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

    Example:
        >>> from regard import pictures
        >>> series = {"no attention": [22.0, 15.0], "attention": [23.0, 22.0]}
        >>> figure = pictures.bleu_by_length([range(1, 11), range(11, 31)], series, counts=[120, 80])
        >>> [label.get_text() for label in figure.axes[1].get_xticklabels()]
        ['1–10', '11–30']
        >>> [text.get_text() for text in figure.axes[1].texts]  # sentences
        ['120', '80']
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
    """Returns the name of each column in the legend: ``val_bleu`` is ``BLEU``, ``train_loss`` is ``training loss``.

    A column keeps its own name if two would have the same.
    """
    names = {}
    for column in columns:
        words = [WORDS.get(word, word) for word in column.split("_")]
        if words[-1] in ("BLEU", "chrF") and words[0] == "validation":
            words = words[1:]
        plain = all(word.isalnum() for word in words)
        names[column] = visible(" ".join(words) if plain else column, 40)
    return _distinct(names)


def _number(name: str, row: int, value: Any) -> float:
    if value is None or (isinstance(value, str) and not value.strip()):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"metrics[{name!r}] must hold numbers; row {row} holds {value!r}") from error


class _Curve(NamedTuple):
    """The measured points of a metric in the order of the steps, and which of its values is marked as the best."""

    x: Column
    y: Column
    best_is_highest: bool | None
    """None: the best value is not marked."""


def _curve(name: str, steps: Column, values: Column, metric: Quality | None) -> _Curve:
    """Returns the curve of a metric, or of a loss, whose best value is marked unless it is the training loss."""
    measured = np.isfinite(steps + values)
    order = np.argsort(steps[measured], kind="stable")
    best_is_highest = metric.higher_is_better if metric else None if _is_training(name) else False
    return _Curve(steps[measured][order], values[measured][order], best_is_highest)


def _qualities(columns: Iterable[str], qualities: Mapping[str, str | Quality] | None) -> dict[str, Quality]:
    """Returns the qualities by their columns: those of the caller, or BLEU and chrF."""
    if qualities is None:
        qualities = {name: label for name in columns for label in ("BLEU", "chrF") if label.lower() in name.lower()}
    return {name: Quality(one) if isinstance(one, str) else one for name, one in qualities.items()}


def _panels(curves: Mapping[str, _Curve], metrics_of: Mapping[str, Quality]) -> list[tuple[str, list[str]]]:
    """Returns a panel for the losses and one for the measured qualities of each unit, each with its columns."""
    units: dict[str, list[str]] = {}
    for name, curve in curves.items():
        if name in metrics_of and curve.x.size:
            units.setdefault(metrics_of[name].unit, []).append(name)
    losses = [name for name in curves if "loss" in name.lower() and name not in metrics_of]
    return [("loss", losses), *(units.items() or [("", [])])]


def _is_training(column: str) -> bool:
    return column.lower().startswith("train")


def _distinct(names: Mapping[str, str]) -> dict[str, str]:
    """Returns the names of columns, in which a column keeps its own name if two would have the same."""
    counts = Counter(names.values())
    return {column: name if counts[name] == 1 else visible(column, 40) for column, name in names.items()}


def _highest(curves: Sequence[tuple[str, _Curve]]) -> float:
    return max(float(curve.y.max()) for _, curve in curves)


def _draw_curves(axes: Axes, lettering: Lettering, curves: Sequence[tuple[str, _Curve]]) -> None:
    """Draws the curves of a panel, each with its name in the legend, and marks their best values."""
    for number, (name, curve) in enumerate(curves):
        _draw_curve(axes, curve, lettering.drawable(name), number)
        if curve.best_is_highest is not None:
            _mark_best(axes, curve, PALETTE[number % len(PALETTE)], _highest(curves))
    steps = {step for _, curve in curves for step in curve.x.tolist()}
    if len(steps) == 1:
        (step,) = steps
        axes.set_xlim(step - 1, step + 1)
    for text in axes.legend(fontsize=8.5, frameon=False).get_texts():
        lettering.letter(text)


def _draw_curve(axes: Axes, curve: _Curve, label: str, number: int) -> None:
    x, y = curve.x, curve.y
    color, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
    if len(x) > MOST_RAW_POINTS:
        axes.plot(x, y, color=color, alpha=0.22, linewidth=0.8)
        span = max(3, len(x) // 50)
        mean = np.convolve(y, np.ones(span) / span, mode="valid")
        axes.plot(x[span - 1 :], mean, color=color, linewidth=1.8, label=f"{label} (mean of {span})")
    else:
        shown = marker if len(x) <= 60 else None
        axes.plot(x, y, color=color, marker=shown, markersize=4, linewidth=1.6, label=label)


def _mark_best(axes: Axes, curve: _Curve, color: str, highest: float) -> None:
    """Marks the best value of a curve by a ring and its number, in a panel whose highest value is ``highest``."""
    x, y, is_highest = curve.x, curve.y, curve.best_is_highest
    index = int(y.argmax() if is_highest else y.argmin())
    best = float(y[index])
    # The number is below the point, except near the axis, where it has no room there.
    is_below = 0.15 * highest < best < highest if is_highest else best > 0.15 * highest
    offset, anchor = ((0, -8), "top") if is_below else ((0, 7), "bottom")
    side: Literal["left", "center", "right"] = "center"
    if len(x) > 1:
        share = (x[index] - x[0]) / (x[-1] - x[0] or 1.0)
        side = "left" if share < 0.2 else "right" if share > 0.8 else "center"
    ring: dict[str, Any] = {"s": 64, "facecolors": "none", "edgecolors": color, "linewidths": 1.4}
    axes.scatter([x[index]], [best], zorder=3, clip_on=False, **ring)
    text = f"{'highest' if is_highest else 'lowest'} {short_number(best)}"
    position = (x[index], best)
    axes.annotate(text, position, offset, textcoords="offset points", ha=side, va=anchor, fontsize=9, color=color)
    axes.margins(y=0.14)


def _draw_absence(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#505050")
    axes.set_xticks([])
    axes.set_yticks([])


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
