"""The attention of one query as sums and products that can be checked by hand."""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.explanations.matrix_texts import clipped, finite_or_text
from regard.records.document import PAIR_STEPS

MOST_TERMS = 8
"""The most terms of a sum; the middle of a longer one is left out."""

MOST_LINES = 12
"""The most keys or features; the middle of more is left out."""


@dataclass(frozen=True, eq=False)
class QueryArithmetic:
    """The numbers of one query, in float64, and their calculation in words.

    A formula is written only if it yields these numbers: scores that are neither inner products nor weighted sums of
    units, and weights that are not a softmax, have no formula.

    Attributes:
        rows: the query's row of each step from the scores to the weights that the calculation has, of ``query`` and of
            ``output``.
        key: ``[keys, dim]``.
        value: ``[keys, value_dim]``.
        is_projected: whether the score has projected the query.
        units: the name and the note of each step of the score's units, and its numbers ``[keys, units]``.
        unit_weights: the weight of each unit, or None.
        unit_bias: the addend of each weighted sum of units, or None.
    """

    query_label: str
    key_labels: Sequence[str]
    rows: Mapping[str, Tensor]
    key: Tensor
    value: Tensor
    is_projected: bool = False
    units: Sequence[tuple[str, str, Tensor]] = ()
    unit_weights: Tensor | None = None
    unit_bias: Tensor | None = None
    decimals: int = 4

    def written(self, steps: Container[str] | None = None) -> str:
        """Returns the calculation, a paragraph for each step; None: all steps."""
        return "\n\n".join("\n".join(lines) for step, lines in self._paragraphs() if steps is None or step in steps)

    @cached_property
    def _keys(self) -> list[str]:
        """The names of the keys as they are shown."""
        return [clipped(label) for label in self.key_labels]

    def _paragraphs(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the name of each step that has arithmetic, and its lines."""
        query, scores = self.rows["query"], self.rows["scores"]
        remark = ", projected by the score (W q)," if self.is_projected else ""
        yield "query", [f"Query {clipped(self.query_label)}{remark} = ({', '.join(self._some(query.tolist()))})"]
        if self.units:
            yield from self._units(query, scores)
        else:
            products = self.key.shape[-1] == len(query) and torch.allclose(self.key @ query, scores)
            first = "Scores: multiply it with each key, feature by feature, and add." if products else "Scores:"
            sums = (
                f"{self._sum(query, key)} = {self.text(score)}" if products else self.text(score)
                for key, score in zip(self.key, scores, strict=True)
            )
            yield "scores", [first, *self._each(sums)]
        before = scores
        for name in ("scaled", "capped", "biased", "masked"):
            if name in self.rows:
                yield name, [*self._change(name, before, self.rows[name])]
                before = self.rows[name]
        yield "weights", [*self._weights(before, self.rows["weights"])]
        output = self.rows["output"]
        weights = self.rows["weights"]
        matches = torch.allclose(weights @ self.value, output)
        sums = [
            f"{self._sum(weights, self.value[:, feature])} = {self.text(output[feature])}"
            if matches
            else self.text(output[feature])
            for feature in range(len(output))
        ]
        features = [f"feature {feature}" for feature in range(len(output))]
        first = "Output: each value times its weight, feature by feature, and all added."
        yield "output", [first, *self._each(sums, features)]

    def _units(self, query: Tensor, scores: Tensor) -> Iterator[tuple[str, list[str]]]:
        """Yields the units of each pair, step by step, and the scores that are their weighted sums."""
        hidden = self.key
        for name, note, hidden in self.units:
            added = self.key.shape == hidden.shape and torch.allclose(query + self.key, hidden)
            sums = [f"{self._sums(query, key)} = " if added else "" for key in self.key]
            vectors = (f"{left}{self._vector(units)}" for left, units in zip(sums, hidden, strict=True))
            yield name, [f"{name.capitalize()}: {note}.", *self._each(vectors)]
        weights, bias = self.unit_weights, self.unit_bias
        if weights is None or not torch.allclose(hidden @ weights + (0 if bias is None else bias), scores):
            yield "scores", ["Scores:", *self._each(self.text(score) for score in scores)]
            return
        more = "" if bias is None else f", plus {self.text(bias)}"
        first = f"Scores: each unit times its weight in {self._vector(weights)}, and all added{more}."
        addend = "" if bias is None else f" + {self.factor(bias)}"
        sums = (
            f"{self._sum(units, weights)}{addend} = {self.text(score)}"
            for units, score in zip(hidden, scores, strict=True)
        )
        yield "scores", [first, *self._each(sums)]

    def _sums(self, left: Tensor, right: Tensor) -> str:
        terms = [f"{self.text(a)} + {self.factor(b)}" for a, b in zip(left, right, strict=True)]
        return f"({', '.join(_shortened(terms))})"

    def _vector(self, numbers: Tensor) -> str:
        return f"({', '.join(self._some(numbers.tolist()))})"

    def _change(self, name: str, before: Tensor, after: Tensor) -> Iterator[str]:
        if name == "masked":
            hidden = [self._keys[k] for k in torch.isinf(after).nonzero().flatten().tolist()]
            yield (
                f"Mask: hidden from this query: {', '.join(hidden)}." if hidden else "Mask: this query sees every key."
            )
            return
        largest = before.abs().argmax() if len(before) else None
        scale = 1.0 if largest is None or before[largest] == 0 else (after[largest] / before[largest]).item()
        if name == "scaled" and torch.allclose(before * scale, after):
            yield f"Scaled: times {self.text(scale)}."
            forms = [f"{self.factor(b)}·{self.factor(scale)}" for b in before]
        elif name == "biased":
            yield "Biased: plus the bias."
            forms = [f"{self.text(b)} + {self.factor(a - b)}" for a, b in zip(after, before, strict=True)]
        else:
            yield f"{name.capitalize()}:"
            forms = [f"{self.text(b)} → " for b in before]
        yield from self._each(
            f"{form}{self.text(a)}" if form.endswith("→ ") else f"{form} = {self.text(a)}"
            for form, a in zip(forms, after, strict=True)
        )

    def _weights(self, scores: Tensor, weights: Tensor) -> Iterator[str]:
        if not torch.isfinite(scores).any():
            yield "Weights: it sees no key, so all are 0."
            return
        high = scores.max()
        powers = (scores - high).exp()
        if not torch.allclose(powers / powers.sum(), weights):
            yield "Weights: the scores, normalized."
            changes = (f"{self.text(s)} → {self.text(w)}" for s, w in zip(scores, weights, strict=True))
            yield from self._each(changes, weights=weights)
            return
        yield (
            f"Weights: e to the power of each score less the largest, {self.text(high)} (this changes no weight and "
            "nothing overflows), divided by the sum of them all:"
        )
        yield f"  sum: {' + '.join(self._some(powers.tolist()))} = {self.text(powers.sum())}"
        total = self.text(powers.sum())
        quotients = (
            f"exp({self.text(s)} - {self.factor(high)}) / {total} = {self.text(p)} / {total} = {self.text(w)}"
            for s, p, w in zip(scores, powers, weights, strict=True)
        )
        yield from self._each(quotients, weights=weights)

    def _each(
        self, texts: Iterator[str] | Sequence[str], labels: Sequence[str] | None = None, weights: Tensor | None = None
    ) -> Iterator[str]:
        """Yields a line for each text. Of many the middle is left out; of weights the smallest, which are summed."""
        named = [f"  {label}: {text}" for label, text in zip(labels or self._keys, texts, strict=True)]
        if len(named) <= MOST_LINES:
            yield from named
        elif weights is None:
            yield from (*named[: MOST_LINES - 3], f"  … {len(named) - MOST_LINES + 1} more", *named[-2:])
        else:
            order = weights.argsort(descending=True, stable=True)
            yield from (named[key] for key in sorted(order[: MOST_LINES - 1].tolist()))
            rest = order[MOST_LINES - 1 :]
            yield f"  … {len(rest)} more, whose weights add up to {self.text(weights[rest].sum())}"

    def _sum(self, left: Tensor, right: Tensor) -> str:
        terms = [f"{self.factor(a)}·{self.factor(b)}" for a, b in zip(left, right, strict=True)]
        return " + ".join(_shortened(terms))

    def _some(self, numbers: list[float]) -> list[str]:
        return _shortened([self.text(number) for number in numbers])

    def factor(self, number: Tensor | float) -> str:
        """Returns a number within a product or after an operator: in brackets if it is negative."""
        text = self.text(number)
        return f"({text})" if text.startswith("−") else text

    def text(self, number: Tensor | float) -> str:
        """Returns a number in as few digits as are exact, at most ``decimals``; ``0.0000`` is small but not zero."""
        number = float(number)
        fixed = finite_or_text(number, self.decimals)
        # Processors differ in the roundings of the calculation.
        exact = "." in fixed and math.isclose(float(fixed.replace("−", "-")), number, rel_tol=1e-12)
        return fixed.rstrip("0").rstrip(".") if exact else fixed


def arithmetic_of(explanation: Any, query: int, batch: int, head: int, decimals: int) -> QueryArithmetic:
    """Returns the numbers of a query of an `Explanation`, in a batch row and head; texts have so many decimals."""

    def matrix(name: str) -> Tensor:
        return explanation.matrix(name, batch, head).double()

    names, pairs = explanation.step_names, explanation.scores.shape[-2:]
    units = () if explanation.units is None else explanation.units.steps
    return QueryArithmetic(
        explanation.row_labels("query")[query],
        explanation.row_labels("key"),
        {name: matrix(name)[query] for name in ("query", *PAIR_STEPS, "output") if name in names},
        matrix("key"),
        matrix("value"),
        "query" in explanation.projected,
        [(step.name, step.note, matrix(step.name).unflatten(0, pairs)[query]) for step in units],
        matrix("unit_weights")[0] if "unit_weights" in names else None,
        matrix("unit_bias")[0] if "unit_bias" in names else None,
        decimals,
    )


def _shortened(texts: list[str]) -> list[str]:
    return texts if len(texts) <= MOST_TERMS else [*texts[: MOST_TERMS - 2], "…", texts[-1]]
