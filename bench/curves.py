"""Scaling curves: the time of a call for lengths from 64 to 65,536, measured and plotted."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bench.columns import COLUMNS, LINES, OWN_COLUMNS
from bench.inner_product import all_implementations, sizes
from bench.limits import available_bytes
from bench.quantity import in_bytes, in_seconds
from bench.record import CurveRecord
from bench.task import Implementation, Inputs, Sizes
from bench.tasks import TASKS
from bench.timing import TimingBudget, time_interleaved
from regard.cli.peers import absence
from regard.pictures.sheet import new_sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTHS = (64, 256, 1024, 4096, 16_384, 65_536)
"""Numbers of queries and keys, which are equal."""

LONGEST_SECONDS = 3.0
"""An implementation whose next call would take longer than this, as far as its growth tells, stops."""

OWN_SECONDS = 25.0
"""The same for regard itself, whose curve shall reach the longest length."""

LARGEST_BYTES = 6 << 30
"""An implementation that would need more memory than this stops; the limit is lower if less memory is free."""

GROWTH = 16.0
"""First estimate of the ratio of times when the length becomes four times as long."""

LABEL_HEIGHT = 0.042
"""Height of a label at the end of a line, as a fraction of the height of the picture."""


@dataclass(frozen=True)
class Curve:
    """A scaling curve to measure.

    Attributes:
        name: name in the record and of the picture.
        title: title of the picture.
        inputs: sizes → inputs.
        implementations: the measured implementations.
        sizes: length → sizes.
    """

    name: str
    title: str
    inputs: Callable[[Sizes], Inputs]
    implementations: tuple[Implementation, ...]
    sizes: Callable[[int], Sizes]


def _of_task(name: str, task: str, title: str, heads: int) -> Curve:
    found = {task.name: task for task in TASKS}[task]
    # The planner's alternatives are no others, and would hide them.
    others = tuple(
        implementation for implementation in found.implementations if implementation.column not in OWN_COLUMNS.values()
    )
    return Curve(name, title, found.inputs, others, partial(sizes, 1, heads))


def all_curves() -> tuple[Curve, ...]:
    """The four curves."""
    softmax = _of_task("softmax", "dot-1024", "Scaled dot products with softmax, 4 heads of 64", 4)
    return (
        _of_task("additive", "additive", "Additive score with softmax, 1 head of 64", 1),
        Curve(softmax.name, softmax.title, softmax.inputs, all_implementations(), softmax.sizes),
        _of_task("entmax15", "entmax15-attention", "Scaled dot products with entmax 1.5, 4 heads of 64", 4),
        _of_task("window", "window", "A window of 512, 4 heads of 64", 4),
    )


def measure_curve(curve: Curve, on_progress: Callable[[str], None], *, quick: bool = False) -> CurveRecord:
    """Measure all implementations of a curve, length by length.

    Args:
        curve: the curve.
        on_progress: called with a description of each measurement before it starts.
        quick: whether to measure only short lengths.
    """
    seconds: dict[str, dict[int, float]] = {}
    stopped: dict[str, str] = {}
    budget = TimingBudget(0.2, 3, 3, 0.1, 1) if quick else TimingBudget(2.0, 3, 15, 0.8, 2)
    for implementation in curve.implementations:
        missing = absence(implementation.column)
        if missing is not None:
            stopped[implementation.column] = missing
    for length in LENGTHS[:3] if quick else LENGTHS:
        on_progress(f"{curve.name} at {length}")
        found = _at(curve, length, budget, seconds, stopped)
        for column, median in found.items():
            seconds.setdefault(column, {})[length] = median
    return CurveRecord(curve.name, curve.title, seconds, stopped)


def _at(
    curve: Curve, length: int, budget: TimingBudget, seconds: dict[str, dict[int, float]], stopped: dict[str, str]
) -> dict[str, float]:
    shape = curve.sizes(length)
    room = min(LARGEST_BYTES, available_bytes() * 0.6)
    calls: dict[str, Callable[[], Any]] = {}
    inputs = curve.inputs(shape)
    with torch.no_grad():
        for implementation in curve.implementations:
            column = implementation.column
            if column in stopped:
                continue
            needed = 0.0 if implementation.bytes is None else implementation.bytes(shape)
            expected = _expected(seconds.get(column, {}))
            if needed > room:
                stopped[column] = f"at {length:,} it would need about {in_bytes(needed)}"
            elif expected > (OWN_SECONDS if column == "regard" else LONGEST_SECONDS):
                stopped[column] = f"at {length:,} it would take about {in_seconds(expected)}"
            else:
                try:
                    call = implementation.build(inputs).call
                    call()
                except Exception as error:
                    # The line of this implementation ends here; the other implementations are still measured.
                    stopped[column] = f"at {length:,}: {type(error).__name__}"
                    continue
                calls[column] = call
        found = {column: timing.seconds.median for column, timing in time_interleaved(calls, budget).items()}
    calls.clear()
    gc.collect()
    return found


def _expected(points: dict[int, float]) -> float:
    """Estimated seconds at the next length: the last ratio of times again, or the square of the ratio of lengths."""
    times = list(points.values())
    if not times:
        return 0.0
    growth = min(GROWTH, max(4.0, times[-1] / times[-2])) if len(times) > 1 else GROWTH
    return times[-1] * growth


def draw(curve: CurveRecord) -> Figure:
    """Plot a curve with logarithmic axes; the name of each implementation stands at the end of its line.

    Raises:
        MissingPartError: matplotlib is not installed.
    """
    figure = new_sheet(8.0, 5.0, layout="constrained")
    axes = figure.add_subplot(1, 1, 1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    present = [column for column in COLUMNS if curve.seconds.get(column)]
    lengths = sorted({length for column in present for length in curve.seconds[column]})
    ends: list[tuple[int, float, str, str]] = []
    for column in present:
        color, marker, style = LINES[column]
        points = sorted(curve.seconds[column].items())
        own = column == "regard"
        axes.plot(
            [length for length, _ in points], [value for _, value in points], color=color, marker=marker,
            markersize=6 if own else 4.5, linewidth=2.6 if own else 1.4, zorder=3 if own else 2, linestyle=style,
        )  # fmt: skip
        ends.append((points[-1][0], points[-1][1], COLUMNS[column], color))
    if lengths:
        axes.set_xlim(lengths[0] / 1.3, lengths[-1] * 1.3)
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.minorticks_off()
    axes.set_xlabel("length (queries and keys)", fontsize=10)
    axes.set_ylabel("time of a call", fontsize=10)
    axes.yaxis.set_major_formatter(lambda value, place: in_seconds(value).replace(".00", "").replace(".0 ", " "))
    axes.grid(color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(curve.title, loc="left", fontsize=12)
    _name_lines(axes, curve, ends, lengths)
    return figure


def _name_lines(
    axes: Axes, curve: CurveRecord, ends: Sequence[tuple[int, float, str, str]], lengths: list[int]
) -> None:  # fmt: skip
    """Write each implementation's name at the end of its line: to the right, or above if the line ends early."""
    from matplotlib.patheffects import withStroke

    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    # Room for names above the lines.
    axes.set_ylim(low, high * (high / low) ** 0.2)
    for length in {end[0] for end in ends}:
        here = sorted((end for end in ends if end[0] == length), key=lambda end: end[1])
        last = length == lengths[-1]
        if last:
            heights, beside = _apart([end[1] for end in here], axes.get_ylim()), length * (right / left) ** 0.03
        else:
            # The times grow with the length, so there is free space above all lines to the left of an end.
            top = max(points[length] for points in curve.seconds.values() if length in points)
            heights, beside = _stacked(top, len(here), axes.get_ylim()), length * (right / left) ** -0.02
        for (_, seconds, name, color), height in zip(here, heights, strict=True):
            # A thin line leads from the name to the end that it names.
            axes.annotate(
                name, (length, seconds), (beside, height), color=color, va="center", ha="left" if last else "right",
                fontsize=9.5, fontweight="bold" if name == "regard" else "normal", annotation_clip=False, zorder=4,
                arrowprops={
                    "arrowstyle": "-", "color": color, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4,
                    "relpos": (0 if last else 1, 0.5),
                },
                path_effects=[withStroke(linewidth=3, foreground="white")],
            )  # fmt: skip


def _stacked(top: float, number: int, limits: tuple[float, float]) -> list[float]:
    """Heights for ``number`` labels above ``top`` on a logarithmic axis."""
    step = (limits[1] / limits[0]) ** LABEL_HEIGHT
    return [top * step ** (place + 1.2) for place in range(number)]


def _apart(heights: Sequence[float], limits: tuple[float, float]) -> list[float]:
    """Heights for labels on a logarithmic axis, moved apart so that no label covers another."""
    low, high = np.log(limits[0]), np.log(limits[1])
    moved = (np.log(np.asarray(heights)) - low) / (high - low)
    order = np.argsort(moved)
    for _ in range(300):
        for first, second in pairwise(order):
            short = LABEL_HEIGHT - (moved[second] - moved[first])
            if short > 0:
                moved[first] -= short / 2
                moved[second] += short / 2
    return [float(np.exp(low + place * (high - low))) for place in moved]
