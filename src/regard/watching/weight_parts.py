"""The parts of an attention score by what wrote them, as a table and as a picture."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.names.missing_names import hinted
from regard.pictures.numbers import signed_number
from regard.records.attention_record import Kind
from regard.records.score_parts import WriteSource
from regard.records.shaded_table import shaded_table
from regard.shapes.checks import whole_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

ROUNDING = 1e-12
"""The share of all parts below which cap, bias and rest have no line."""


class PartPair(NamedTuple):
    """A part of a query with a part of a key.

    Attributes:
        query, key: what wrote them.
        score: what they add to the score.

    Example:
        >>> from regard import records, watching
        >>> head = records.WriteSource("head", "layers.0.self_attn", 0, 1)
        >>> watching.PartPair(records.WriteSource("embedding"), head, 1.5).key.label
        'head 1 of layer 0'
    """

    query: WriteSource
    key: WriteSource
    score: float


@hinted
@dataclass(frozen=True, eq=False, repr=False)
class WeightParts:
    """The score of one query and key, divided by what wrote to the residual stream: see `explain_weight`.

    ``pairs.sum() + cap + bias + rest`` is the score, or its difference from that of ``against``.

    Attributes:
        layer, head, query, key, against: as for `explain_weight`.
        name, kind: of the attention, as in `AttentionCall`.
        sources: what wrote the parts.
        pairs: ``float64 [sources, sources]``: what each part of the query (rows) adds with each part of the key.
        bias: what was added to the inner product: positions (ALiBi, T5) or a tensor of the model.
        cap: the change by a cap or by another function of the score, which is not linear.
        rest: what is left: rounding, what the model computed in another way than its parts say, and what
            `regard.intervene` changed.
        score: the score after cap and bias; without ``against``, the sum of all parts.
        weight: after the softmax.
        rank: the place of the score among the visible keys, from 1.
        visible: the number of visible keys.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import models, watching
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=2, heads=2)).eval()
        >>> with torch.no_grad(), regard.watch(model, inputs=True) as seen:
        ...     _ = model(torch.tensor([[5, 6, 7, 5]]))
        >>> parts = watching.explain_weight(seen, layer=1, head=0, query=3, key=1)
        >>> parts
        <WeightParts of layer 1, head 0, query 3 → key 1: score -0.0008621, 5 sources>
        >>> pair = parts.largest(1)[0]
        >>> pair.query.label, pair.key.label
        ('embedding', 'embedding')
    """

    layer: int
    head: int
    query: int
    key: int
    against: int | Literal["mean"] | None
    name: str
    kind: Kind
    sources: tuple[WriteSource, ...]
    pairs: NDArray[np.float64]
    bias: float
    cap: float
    rest: float
    score: float
    weight: float
    rank: int
    visible: int

    @property
    def labels(self) -> list[str]:
        """The labels of the sources; those of an encoder and a decoder that are alike have the module's name too."""
        labels = [source.label for source in self.sources]
        return [
            f"{label} ({source.name})" if labels.count(label) > 1 else label
            for label, source in zip(labels, self.sources, strict=True)
        ]

    @property
    def total(self) -> float:
        """The explained number: the score, or its difference."""
        return float(self.pairs.sum()) + self.cap + self.bias + self.rest

    @property
    def of_query(self) -> NDArray[np.float64]:
        """What each part of the query adds to the score, with the whole key, ``[sources]``."""
        return self.pairs.sum(1)

    @property
    def of_key(self) -> NDArray[np.float64]:
        """What each part of the key adds to the score, with the whole query, ``[sources]``."""
        return self.pairs.sum(0)

    def largest(self, count: int = 5) -> list[PartPair]:
        """Returns the pairs of a part of the query and a part of the key that add or subtract most."""
        order = np.argsort(-np.abs(self.pairs), axis=None)[: whole_number("count", count, low=1)]
        rows, columns = np.unravel_index(order, self.pairs.shape)
        return [
            PartPair(self.sources[row], self.sources[column], float(self.pairs[row, column]))
            for row, column in zip(rows, columns, strict=True)
        ]

    def table(self, rows: int = 12, pairs: int = 5) -> "Table":
        """Returns a table of Rich: the largest parts of both sides, their sum, and the largest pairs of parts.

        Args:
            rows: how many sources it has; one more row adds up the others.
            pairs: how many pairs it has.
        """
        from rich.table import Table

        table = Table(title=self._title(), title_justify="left")
        for column in ("part", "in the query", "in the key"):
            table.add_column(column, justify="left" if column == "part" else "right")
        labels, numbers = self._rows(rows)
        largest = float(np.abs(numbers).max(initial=0.0))
        for label, values in zip(labels[:-1], numbers[:-1], strict=True):
            table.add_row(label, *(signed_number(float(value), largest) for value in values))
        table.add_section()
        table.add_row(labels[-1], *(signed_number(float(value), largest) for value in numbers[-1]))
        table.add_section()
        names = dict(zip(self.sources, self.labels, strict=True))
        for pair in self.largest(pairs):
            score = signed_number(pair.score, largest)
            table.add_row(f"{names[pair.query]} · {names[pair.key]}", score, score)
        return table

    def _rows(self, count: int) -> tuple[list[str], NDArray[np.float64]]:
        """Returns the rows of a table, the sum last, with the numbers of both sides."""
        count = whole_number("rows", count, low=1)
        sides = np.stack([self.of_query, self.of_key], axis=1)
        order = np.argsort(-np.abs(sides).max(1), kind="stable")
        order = order[np.abs(sides[order]).max(1) > 0]
        count = count if len(order) > count + 1 else len(order)
        shown, others = np.sort(order[:count]), order[count:]
        rows = [(self.labels[number], sides[number]) for number in shown]
        rows += [(f"{len(others)} more", sides[others].sum(0))] if len(others) else []
        limit = ROUNDING * float(np.abs(self.pairs).sum())
        ends = (("cap or function", self.cap), ("bias of the pair", self.bias), ("rest", self.rest))
        rows += [(label, np.full(2, value)) for label, value in ends if abs(value) > limit]
        total = {None: "score", "mean": "score − mean"}.get(self.against, f"score − that of key {self.against}")
        labels, numbers = zip(*rows, (total, np.full(2, self.total)), strict=True)
        return list(labels), np.stack(numbers)

    def _title(self) -> str:
        score = f"{self.score:.4g}".replace("-", "\N{MINUS SIGN}")
        return (
            f"layer {self.layer}, head {self.head}: query {self.query} → key {self.key}\n"
            f"score {score}, number {self.rank} of {self.visible} keys, weight {self.weight:.4g}"
        )

    def __str__(self) -> str:
        from regard.explanations.tables import as_text

        return as_text(self.table())

    def __repr__(self) -> str:
        return (
            f"<WeightParts of layer {self.layer}, head {self.head}, query {self.query} → key {self.key}: "
            f"score {self.score:.4g}, {len(self.sources)} sources>"
        )

    def _repr_html_(self) -> str:
        labels, numbers = self._rows(12)
        caption = self._title().replace("\n", ": ")
        return shaded_table(numbers, labels, ("in the query", "in the key"), caption=caption, whole=True)

    def figure(self, rows: int = 12) -> "Figure":
        """Draws the parts of both sides as bars, blue above 0 and red below.

        Args:
            rows: how many sources it has; one more bar adds up the others.

        Raises:
            MissingPartError: matplotlib is not installed.
        """
        from regard.pictures import signed_bars

        labels, numbers = self._rows(rows)
        panels = {"in the query": numbers[:, 0], "in the key": numbers[:, 1]}
        return signed_bars(labels, panels, title=self._title(), total=True)
