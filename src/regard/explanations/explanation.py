"""Every intermediate of one attention calculation by name: to print, to draw, to export."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

STEPS = {
    "query": "what asks",
    "key": "what it is compared with",
    "value": "what is mixed",
    "scores": "each query compared with each key",
    "scaled": "scores × scale",
    "capped": "after the score's cap or function",
    "biased": "+ bias",
    "masked": "−∞ where the mask forbids",
    "weights": "each row normalized",
    "weighted_values": "weight × value, for each query and key",
    "output": "sum of the weighted values",
}
"""The steps in the order of the calculation, with what each is."""

OPTIONAL = ("scaled", "capped", "biased", "masked")
"""Steps that a calculation may not have; then their tensor is the one of the step before."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """One attention calculation, step by step; all tensors are differentiable.

    Shapes are given with all four axes; leading axes that the input lacked are missing here too. A step that the
    calculation does not have (no scale, no cap, no bias, no mask) is the very tensor of the step before.

    Attributes:
        query: after the score's own projection, ``[batch, heads, queries, dim]``.
        key: after the score's own projection, ``[batch, kv_heads, keys, dim]``.
        value: ``[batch, kv_heads, keys, value_dim]``.
        scores: raw, ``[batch, heads, queries, keys]``; so are the following five.
        scaled: scores × scale.
        capped: after `SoftCap` and `Modified`.
        biased: with the bias added.
        masked: −inf where the mask forbids.
        weights: normalized, before dropout.
        output: ``[batch, heads, queries, value_dim]``, after dropout if there is any.
        query_labels: a name for each query, or None.
        key_labels: a name for each key, or None.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scores: Tensor
    scaled: Tensor
    capped: Tensor
    biased: Tensor
    masked: Tensor
    weights: Tensor
    output: Tensor
    query_labels: tuple[str, ...] | None = None
    key_labels: tuple[str, ...] | None = None

    @property
    def weighted_values(self) -> Tensor:
        """weight × value before they are summed, ``[batch, heads, queries, keys, value_dim]``; made when asked for."""
        value = self.value.to(self.weights.dtype)
        if value.dim() > 2 and value.shape[-3] != self.weights.shape[-3]:
            value = value.repeat_interleave(self.weights.shape[-3] // value.shape[-3], dim=-3)
        return self.weights[..., None] * value[..., None, :, :]

    def labelled(self, queries: Sequence[str] | None = None, keys: Sequence[str] | None = None) -> "Explanation":
        """The same calculation with tokens for its rows and columns.

        Raises:
            ShapeError: not as many labels as queries or keys.
        """
        for name, labels, expected in (("queries", queries, self.query.shape[-2]), ("keys", keys, self.key.shape[-2])):
            if labels is not None and len(labels) != expected:
                raise ShapeError(f"{name} must have {expected} labels; got {len(labels)}")
        return replace(
            self,
            query_labels=None if queries is None else tuple(queries),
            key_labels=None if keys is None else tuple(keys),
        )

    def steps(self) -> Iterator[tuple[str, Tensor]]:
        """The steps that this calculation has, in its order, as (name, tensor)."""
        before = self.scores
        for name in STEPS:
            tensor: Tensor = getattr(self, name)
            if name in OPTIONAL and tensor is before:
                continue
            if name in OPTIONAL:
                before = tensor
            yield name, tensor

    def row_labels(self, step: str) -> list[str]:
        """What the rows of a step are: queries, keys, or query → key."""
        queries = list(self.query_labels or _numbered("q", self.query.shape[-2]))
        keys = list(self.key_labels or _numbered("k", self.key.shape[-2]))
        if step in ("key", "value"):
            return keys
        return [f"{query} → {key}" for query, key in product(queries, keys)] if step == "weighted_values" else queries

    def column_labels(self, step: str) -> list[str]:
        """What the columns of a step are: keys, or features."""
        if step in ("scores", "scaled", "capped", "biased", "masked", "weights"):
            return list(self.key_labels or _numbered("k", self.key.shape[-2]))
        return _numbered("", getattr(self, step).shape[-1])

    def matrix(self, step: str, batch: int = 0, head: int = 0) -> Tensor:
        """One step of one batch row and head as a matrix, detached; weighted values as a row for each (query, key)."""
        tensor: Tensor = getattr(self, step).detach()
        own = 3 if step == "weighted_values" else 2
        leading = tensor.shape[:-own]
        if len(leading) == 2:
            tensor = tensor[batch]
        if leading:
            # A group of query heads shares one head of keys and values.
            heads = self.scores.shape[-3]
            tensor = tensor[head // (heads // tensor.shape[0])]
        return tensor.flatten(0, 1) if own == 3 else tensor

    @property
    def slices(self) -> list[tuple[int, int]]:
        """Every (batch row, head) of the calculation."""
        leading = self.scores.shape[:-2]
        batch, heads = (1,) * (2 - len(leading)) + tuple(leading)
        return list(product(range(batch), range(heads)))

    def renderable(self, decimals: int = 4, slices: int = 4) -> "RenderableType":
        """Aligned tables of every step, for Rich to print.

        Args:
            decimals: digits after the point.
            slices: print at most so many (batch row, head) pairs.
        """
        from regard.explanations.tables import tables

        return tables(self, decimals=decimals, slices=slices)

    def __str__(self) -> str:
        from regard.explanations.tables import as_text

        return as_text(self.renderable())

    def figure(self, batch: int = 0, head: int = 0, title: str | None = None) -> "Figure":
        """Annotated heatmaps, one panel a step in the order of the calculation, every cell with its number.

        Args:
            batch: which batch row.
            head: which query head.
            title: over the whole picture.

        Raises:
            MissingPartError: matplotlib is not installed.
        """
        from regard.pictures import Panel, calculation

        panels = [
            Panel(
                name=name.replace("_", " "),
                matrix=self.matrix(name, batch, head).double().cpu().numpy(),
                row_labels=self.row_labels(name),
                column_labels=self.column_labels(name),
                note=STEPS[name],
            )
            for name, _ in self.steps()
        ]
        return calculation(panels, title=title)

    def to_json(self, path: str | Path | None = None) -> str:
        """Every step as nested lists, in the calculation's order; ±inf and NaN as the strings "inf", "-inf", "nan".

        Args:
            path: write it there as well.
        """
        record: dict[str, Any] = {
            "query_labels": self.query_labels,
            "key_labels": self.key_labels,
            **{name: _plain(getattr(self, name).detach().double().tolist()) for name in STEPS},
        }
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text


def _numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i + 1}" for i in range(count)]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if math.isfinite(value) else str(value)


def explanation_of(names: Sequence[str], tensors: Sequence[Tensor], rank: int) -> Explanation:
    """An Explanation of tensors with four axes, given back with ``rank`` axes.

    A tensor that stands for several steps stays one object.
    """
    restored: dict[int, Tensor] = {}
    for tensor in tensors:
        if id(tensor) not in restored:
            restored[id(tensor)] = tensor if rank == 4 else tensor[0] if rank == 3 else tensor[0, 0]
    fields: dict[str, Any] = {name: restored[id(tensor)] for name, tensor in zip(names, tensors, strict=True)}
    return Explanation(**fields)


def finite_or_text(number: float, decimals: int) -> str:
    """A number for a cell of a table: fixed decimals, "−∞" for a masked score, no "-0"."""
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    text = f"{number:.{decimals}f}"
    return text if float(text) != 0 else f"{0:.{decimals}f}"


def is_whole(tensor: Tensor, tolerance: float = 0.0) -> bool:
    """Whether every finite number in it is an integer (but for a relative error), so that no decimals are needed."""
    finite = tensor[torch.isfinite(tensor)]
    near = (finite - finite.round()).abs() <= tolerance * finite.abs()
    return bool(near.all()) and bool((finite.abs() < 1e9).all())
