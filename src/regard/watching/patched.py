"""The result of patching: the effect of each head, layer or position, as tensors, a table, a picture and a view."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.names.counted import counted
from regard.records import Document, HeadGrid
from regard.records.attention_record import Kind
from regard.records.shaded_table import number_decimals, number_text
from regard.shapes.checks import whole_number
from regard.watching.attention_call import AttentionCall

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Over = Literal["heads", "layers", "positions"]
PatchedPart = Literal["output", "weights", "values", "query", "key"]
Direction = Literal["denoising", "noising"]
Method = Literal["exact", "gradient"]

COMPARED_SHARE = 0.1
"""The least effect, as a part of the largest one, for which an error of the gradient is reported."""

LARGE_ERROR = 0.5
"""The least error of the gradient, as a part of the effect, that is reported."""

ROUNDING = 1e-6
"""The largest difference of two metrics, as a part of their sizes, that is taken for rounding."""


class PatchingWarning(UserWarning):
    """Effects of patching are less than they seem: the message says why.

    Example:
        >>> import warnings
        >>> import torch
        >>> import regard
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> x = torch.randn(1, 3, 8)
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     _ = regard.patch(layer, x, x, lambda output: output[0, 0, 0])
        >>> print(caught[0].message)
        clean and corrupted have the same metric, so effects cannot be normalized
    """


class PatchedEffect(NamedTuple):
    """The effect of one place.

    Attributes:
        name: the name of the attention's module.
        layer: its layer, from 0.
        kind: ``"self"``, ``"causal"`` or ``"cross"``.
        head: the number of the head; None: all that were patched.
        position: of the query or the key; None: all.
        effect: the mean change of the metric.
        normalized: the same as a part of the difference between both unpatched runs.
        spread: the standard deviation of the effect over examples; NaN for one.
        exact: the exact effect, where a gradient was checked; NaN elsewhere.

    Example:
        >>> from regard import watching
        >>> numbers = {"effect": 0.5, "normalized": 0.25, "spread": 0.1, "exact": float("nan")}
        >>> watching.PatchedEffect("layers.0.self_attn", 0, "causal", head=1, position=None, **numbers).label
        'layer 0, head 1'
    """

    name: str
    layer: int
    kind: Kind
    head: int | None
    position: int | None
    effect: float
    normalized: float
    spread: float
    exact: float

    @property
    def label(self) -> str:
        """Its layer, head and position, in words."""
        parts = {"layer": self.layer, "head": self.head, "position": self.position}
        return ", ".join(f"{name} {number}" for name, number in parts.items() if number is not None)


@dataclass(frozen=True, eq=False, repr=False)
class Patched:
    """The effect of each place on a metric. Rows are attention calls, in the order of the model.

    Attributes:
        calls: the attention calls, without readings.
        heads: the numbers of the patched heads; None: all of each call.
        over, what, direction, method: as for `regard.patch`.
        receivers: ``(layer, head, part, kind)`` of the ends of paths, or ``"output"``; () for all paths.
        clean: float64 ``[examples]``: the metric of the clean run.
        corrupted: likewise.
        metrics: float64, the metric of each patched run: ``[examples, rows, heads]``; over layers ``[examples, rows]``,
            over positions ``[examples, rows, positions]`` or ``[examples, rows, heads, positions]``. By gradient it is
            an estimate. NaN: not measured, or there is no such head.
        exact: the same of those runs by which a gradient was checked, NaN elsewhere; None: nothing was checked.

    Example:
        >>> import torch
        >>> import regard
        >>> _ = torch.manual_seed(0)
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> clean, corrupted = torch.randn(2, 5, 3, 8)
        >>> patched = regard.patch(layer, clean, corrupted, lambda output: output[:, -1, 0])
        >>> patched.effect.shape, patched.metrics.shape
        (torch.Size([1, 2]), torch.Size([5, 1, 2]))
        >>> patched.largest(1)[0].label
        'layer 0, head 0'
    """

    calls: tuple[AttentionCall, ...]
    heads: tuple[int, ...] | None
    over: Over
    what: PatchedPart
    direction: Direction
    method: Method
    receivers: tuple[tuple[int, int, str, str], ...] | Literal["output"]
    clean: Tensor
    corrupted: Tensor
    metrics: Tensor
    exact: Tensor | None = None

    @property
    def effect(self) -> Tensor:
        """The mean change of the metric over the examples, ``[rows, ...]``."""
        return self._changes(self.metrics).nanmean(0)

    @property
    def normalized(self) -> Tensor:
        """The effect as a part of `difference`, ``[rows, ...]``; NaN if there is none."""
        return self.effect / (self.difference or torch.nan)

    @property
    def spread(self) -> Tensor:
        """The standard deviation of the effect over the examples, ``[rows, ...]``; NaN for one example."""
        changes = self._changes(self.metrics)
        return changes.std(0) if len(changes) > 1 else torch.full_like(changes[0], torch.nan)

    @property
    def difference(self) -> float:
        """The mean metric of the run from which places were taken, minus that of the run that was patched.

        It is 0 where it is no more than rounding.
        """
        difference = float((self.clean - self.corrupted).mean())
        least = ROUNDING * float(self.clean.abs().mean() + self.corrupted.abs().mean())
        return 0.0 if abs(difference) <= least else difference if self.direction == "denoising" else -difference

    @property
    def correlation(self) -> float:
        """The correlation of the gradient's effects with the exact ones that were measured; NaN for fewer than two."""
        pairs = torch.tensor([(each.effect, each.exact) for each in self.checked()]).reshape(-1, 2)
        return float(torch.corrcoef(pairs.T)[0, 1]) if len(pairs) > 1 else float("nan")

    def _changes(self, metrics: Tensor) -> Tensor:
        base = self.corrupted if self.direction == "denoising" else self.clean
        return metrics - base.reshape(-1, *[1] * (metrics.dim() - 1))

    def largest(self, count: int = 10) -> list[PatchedEffect]:
        """Returns the places with the largest effects by magnitude, the largest first; those not measured are left out.

        Args:
            count: at most so many.
        """
        effect, normalized, spread = self.effect, self.normalized, self.spread
        exact = torch.full_like(effect, torch.nan) if self.exact is None else self._changes(self.exact).nanmean(0)
        order = effect.abs().nan_to_num(-1.0).flatten().argsort(descending=True, stable=True)
        order = order[: min(whole_number("count", count, low=1), int(effect.isfinite().sum()))]
        largest = []
        for index in np.argwhere(np.ones(effect.shape))[order.numpy()].tolist():
            call, rest = self.calls[index[0]], index[1:]
            position = rest.pop() if self.over == "positions" else None
            head = None if not rest else rest[0] if self.heads is None else self.heads[rest[0]]
            numbers = (float(each[tuple(index)]) for each in (effect, normalized, spread, exact))
            largest.append(PatchedEffect(call.name, call.layer, call.kind, head, position, *numbers))
        return largest

    def checked(self) -> list[PatchedEffect]:
        """Returns the places whose effect by gradient was measured exactly too, the largest first."""
        largest = [] if self.exact is None else self.largest(self.effect.numel())
        return [each for each in largest if not math.isnan(each.exact)]

    def doubts(self) -> list[str]:
        """Returns what `regard.patch` warns of: nothing to normalize by, or a gradient that misjudges effects by half.

        Small effects aside, a gradient is named if its error is half of the effect or more.
        """
        doubts = []
        if not self.difference:
            doubts.append("clean and corrupted have the same metric, so effects cannot be normalized")
        checked = {each: max(abs(each.effect), abs(each.exact)) for each in self.checked()}
        errors = {each: abs(each.effect - each.exact) for each in checked}
        least = COMPARED_SHARE * max(checked.values(), default=0.0)
        wrong = [each for each, size in checked.items() if size > least and errors[each] >= LARGE_ERROR * size]
        if wrong:
            worst = max(wrong, key=lambda each: errors[each])
            doubts.append(
                f"the gradient misjudges {len(wrong)} of {counted(len(checked), 'checked effect')}, most that of "
                f'{worst.label}: {_number(worst.effect)} in place of {_number(worst.exact)}; use method="exact"'
            )
        return doubts

    def grids(self, tokens: Sequence[str] | None = None, *, normalized: bool = True) -> tuple[HeadGrid, ...]:
        """Returns the effects as grids of layers × heads or positions: one, or one for each head at positions.

        Args:
            tokens: the labels of the positions; None: their numbers.
            normalized: whether to show the normalized effect, if there is one, in place of the change of the metric.

        Raises:
            ShapeError: another number of tokens than positions.
        """
        normalized = normalized and bool(self.difference)
        values = self.normalized if normalized else self.effect
        noise = self.spread / len(self.clean) ** 0.5 / (abs(self.difference) if normalized else 1.0)
        numbers = range(max(call.heads for call in self.calls)) if self.heads is None else self.heads
        columns, axis = [str(number) for number in numbers], "head"
        parts = [("each head's", values, noise)]
        if self.over == "layers":
            columns = ["all" if self.heads is None else ", ".join(columns)]
            axis, parts = "heads", [("each layer's", values[:, None], noise[:, None])]
        elif self.over == "positions":
            columns, axis = [str(number) for number in range(values.shape[-1])], "position"
            if tokens is not None and len(tokens) != len(columns):
                raise ShapeError(f"tokens must be {len(columns)}, one for each position; there are {len(tokens)}")
            columns = columns if tokens is None else [str(token) for token in tokens]
            parts = [("each layer's", values, noise)]
            if values.dim() > 2:
                parts = [(f"head {head}'s", values[:, row], noise[:, row]) for row, head in enumerate(numbers)]
        effect = "direct effect" if self.receivers == "output" else "effect"
        largest = float(values.abs().nan_to_num().max()) or None
        labels = [str(call.layer) for call in self.calls]
        if len({call.kind for call in self.calls}) > 1:
            labels = [f"{call.layer} {call.kind}" for call in self.calls]
        labels = labels if len(set(labels)) == len(labels) else [call.name for call in self.calls]
        return tuple(
            HeadGrid(
                f"{effect} of {owner} {self.what}{' at each position' if axis == 'position' else ''}{self._ends()}",
                effects.numpy(),
                labels,
                columns,
                "normalized effect" if normalized else "change of the metric",
                axis,
                signed=True,
                high=largest,
                noise=errors.numpy() if len(self.clean) > 1 else None,
                notes=self._notes(),
            )
            for owner, effects, errors in parts
        )

    def _ends(self) -> str:
        """Returns the ends of paths, in words."""
        if not self.receivers or self.receivers == "output":
            return ""
        ends = [f"the {part} of layer {layer}, head {head}" for layer, head, part, _ in self.receivers]
        return f" through {' and '.join(ends)}"

    def _notes(self) -> list[str]:
        decimals = number_decimals(abs(self.difference))
        clean, corrupted = (number_text(float(metric.mean()), decimals) for metric in (self.clean, self.corrupted))
        notes = [
            f"{self.direction}; metric: clean {clean}, corrupted {corrupted}; {counted(len(self.clean), 'example')}"
        ]
        if self.receivers:
            notes.append("other heads as without a patch; norms and MLPs computed anew")
        if self.method == "gradient":
            notes.append("by gradient")
            if checked := self.checked():
                notes[-1] += (
                    f"; the {len(checked)} largest measured exactly, correlation {self.correlation:.2f}".replace(
                        "-", "−"
                    )
                )
        return notes

    def figure(self, tokens: Sequence[str] | None = None, *, normalized: bool = True) -> "Figure":
        """Draws `grids`, with the same arguments: 0 is in the middle of the colours.

        Raises:
            MissingPartError: matplotlib is not installed.
        """
        from regard.pictures.head_grid import head_grid

        grids = self.grids(tokens, normalized=normalized)
        title = self._title(grids)
        return head_grid(grids, title if len(grids) == 1 else f"{title}\n{self._notes()[0]}")

    def document(self, tokens: Sequence[str] | None = None) -> Document:
        """Returns `grids` as a document, which `regard.View` shows."""
        grids = self.grids(tokens)
        return Document(self._title(grids), (), grids=grids)

    def _title(self, grids: Sequence[HeadGrid]) -> str:
        return grids[0].title if len(grids) == 1 else f"effect of each head's {self.what} at each position"

    def __str__(self) -> str:
        lines = [str(grid) for grid in self.grids()]
        lines += [
            f"{each.label}: {_number(each.effect)} by gradient, {_number(each.exact)} exactly"
            for each in self.checked()
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        names = ("head", "position") if self.metrics.dim() > 3 else (self.over.rstrip("s"),)
        sizes = [counted(size, name) for size, name in zip(self.metrics.shape[2:], names, strict=False)]
        shape = " × ".join([counted(len(self.calls), "layer"), *sizes])
        return f"<Patched {self.what} of {shape} over {counted(len(self.clean), 'example')}>"

    def _repr_html_(self) -> str:
        return "".join(grid._repr_html_() for grid in self.grids())


def _number(value: float) -> str:
    return number_text(value, number_decimals(abs(value)))
