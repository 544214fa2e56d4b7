"""A worked calculation as a flow to draw: what comes from what, and one pair of words traced through all of it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch

from regard.explanations.step import Step, plain_name
from regard.pictures.calculation import Panel
from regard.pictures.flow_terms import Flow, Term
from regard.pictures.flow_words import say
from regard.pictures.fonts import visible_token
from regard.pictures.numbers import cell_texts, percent, printed

COMPARISONS = {
    "Cosine": "cos(query, key)",
    "Distance": "distance(query, key)",
    "Additive": "query + key",
    "MLP": "[query; key] ×",
    "Location": "query · Wᵀ",
}
"""How a score compares queries with keys, by the name of its class; others than inner products."""

NOTES = {
    "input": "a row for each word",
    "w query": "", "w key": "", "w value": "",
    "query": "what asks",
    "key": "what is looked at",
    "value": "what is mixed",
    "scores": "how well they match",
    "scaled": "",
    "capped": "",
    "biased": "",
    "masked": "",
    "weights": "who looks at whom",
    "output": "the mixed values",
    "decoder output": "",
}  # fmt: skip
"""What a matrix is, for readers who see attention for the first time."""

PRODUCT = "query\n· keyᵀ"

MOST_TERMS = 4
"""The most products of a sum that are written."""


class _Traced(NamedTuple):
    """The pair that is traced: the numbers of its query and of its key."""

    query: int
    key: int


@dataclass(frozen=True)
class FlowOfSteps:
    """The steps of one batch row and head of a calculation, as the terms of a flow.

    Attributes:
        steps: all of them, by `plain_name`.
        head, heads: the number of the head, from 0, and how many there are.
        colors: colour maps of matplotlib for steps, by `plain_name`.
        one_input: whether queries and keys are of the same rows.
        projected: the parts that are projections of an input.
        units: the steps of a score with units.
        settings: the names and parameters of the score and the normalizer.
        language: ``"en"`` or ``"zh"``.
    """

    steps: Mapping[str, Step]
    head: int
    heads: int
    colors: Mapping[str, str | None]
    one_input: bool
    projected: tuple[str, ...]
    units: Sequence[Any]
    settings: Mapping[str, Any]
    language: str = "en"

    @property
    def score(self) -> str:
        """The name of the score's class; "": not known."""
        return self.settings.get("score", "")

    @cached_property
    def names(self) -> tuple[str, str]:
        """The names of the traced query and of its key."""
        query, key = self.traced
        return visible_token(self.steps["query"].row_labels[query]), visible_token(self.steps["key"].row_labels[key])

    @cached_property
    def traced(self) -> _Traced:
        """The pair of the largest weight between different words that the mask allows."""
        weights, last = self.steps["weights"], self.steps.get("masked", self.steps["scores"])
        chosen = weights.matrix.nan_to_num(nan=-math.inf)
        own = torch.tensor([[query == key for key in weights.column_labels] for query in weights.row_labels])
        if self.one_input and chosen.shape[0] == chosen.shape[1]:
            own |= torch.eye(len(own), dtype=torch.bool)
        hidden = last.matrix.isneginf()
        without = [own | hidden, hidden, torch.zeros_like(own)]
        excluded = next((each for each in without if bool((chosen.masked_fill(each, 0.0) != 0).any())), without[-1])
        return _Traced(*divmod(int(chosen.masked_fill(excluded, -math.inf).argmax()), chosen.shape[1]))

    def flow(self) -> Flow:
        """Returns the calculation to draw."""
        return Flow(self._lanes(), self._scores(), self._results(), *self.names, list(self._sentences()), self.language)

    def _say(self, text: str, **values: object) -> str:
        return say(text, self.language, **values)

    def _panel(self, step: Step, name: str | None = None, note: str | None = None) -> Panel:
        plain = plain_name(step.name)
        return Panel(
            step.name if name is None else name, step.matrix, step.row_labels, step.column_labels or None,
            NOTES.get(plain, step.note) if note is None else note,
            "weights" if plain == "weights" else "heatmap", self.colors.get(plain),
        )  # fmt: skip

    def _lanes(self) -> list[list[Term]]:
        """Returns the lanes of the queries, of the keys and of the values."""
        sources: list[Term] = []
        lanes = [self._lane(name, sources) for name in ("query", "key", "value")]
        if self.score == "Location" and "score weight" in self.steps:
            panel = self._panel(self.steps["score weight"], "W", "a row for each position of a key")
            lanes[1] = [Term("", panel, looked_at=self.traced.key)]
        # Inputs that are not projected may be one and the same matrix.
        names = ("query", "key", "value")
        for number in (1, 2):
            before, own = lanes[number - 1 : number + 1]
            if len(before) == len(own) == 1 and self._same(names[number - 1], names[number]):
                panel = before[0].panel
                note = f"{self._say(panel.note or '')}; {self._say(NOTES[names[number]])}"
                shared = [
                    before[0]._replace(
                        panel=replace(panel, name=" = ".join(map(self._say, (panel.name, names[number]))), note=note),
                        looked_at=self.traced.key,
                    )
                ]
                lanes = [shared if lane is before or lane is own else lane for lane in lanes]
        return lanes

    def _same(self, one: str, other: str) -> bool:
        if (one, other) == ("key", "value") and self.score == "Location":
            return False
        left, right = self.steps[one], self.steps[other]
        labels = self.one_input or left.row_labels == right.row_labels
        return labels and left.matrix.shape == right.matrix.shape and torch.equal(left.matrix, right.matrix)

    def _lane(self, name: str, sources: list[Term]) -> list[Term]:
        """Returns the terms up to the queries, the keys or the values; a source that is there already is shared."""
        query, key = self.traced
        asks, looked_at = (query, None) if name == "query" else (None, key)
        terms: list[Term] = []
        if f"w {name}" in self.steps:
            step = self.steps.get("input", self.steps.get(f"{name} input"))
            assert step is not None, "a projection has an input"
            both = "input" in self.steps
            source = Term("", self._panel(step), *((query, key) if both else (asks, looked_at)))
            rows = source.asks, source.looked_at
            shared = [term for term in sources if rows == (term.asks, term.looked_at) and _alike(term.panel, step)]
            sources += [] if shared else [source]
            terms += [(shared or [source])[0], Term("×", self._of_head(self.steps[f"w {name}"]))]
        weight = self.steps.get("score weight" if self.score == "General" else f"score {name} projection.weight")
        sign = "=" if terms else ""
        if name in self.projected and weight is not None:
            general = self.score == "General"
            letter = {"query": "W", "key": "U"}[name]
            panel = self._panel(
                weight if general else weight.transposed(), letter if general else f"{letter}ᵀ", "of the score"
            )
            bias = "+ b " if f"score {name} projection.bias" in self.steps else ""
            terms.append(Term("×" if terms else f"{name} ×", panel))
            sign = f"{bias}="
        note = (
            self._say("{note}, projected by the score", note=self._say(NOTES[name])) if name in self.projected else None
        )
        return [*terms, Term(sign, self._panel(self.steps[name], note=note), asks, looked_at)]

    def _of_head(self, step: Step) -> Panel:
        """Returns the columns of a projection that make the shown head."""
        columns = step.matrix.shape[1]
        if self.heads == 1 or columns % self.heads:
            return self._panel(step)
        size = columns // self.heads
        own = slice(self.head * size, (self.head + 1) * size)
        part = replace(step, matrix=step.matrix[:, own], column_labels=step.column_labels[own])
        return self._panel(part, note=self._say("of head {head}", head=self.head))

    def _scores(self) -> list[Term]:
        """Returns the terms from the comparison to the weights."""
        query, key = self.traced
        terms = list(self._units())
        sign = ("+ b =" if "unit bias" in self.steps else "=") if terms else self._comparison()
        for name in ("scores", "scaled", "capped", "biased", "masked", "weights"):
            if name in self.steps:
                step = self.steps[name]
                sign = sign if name == "scores" else self._change(name)
                size = self.steps["query"].matrix.shape[1]
                note = self._say("a query has {size} numbers", size=size) if sign == f"÷ √{size}" else None
                terms.append(Term(sign, self._panel(step, note=note), query, None, key))
        return terms

    def _comparison(self) -> str:
        query, key, scores = (self.steps[name].matrix for name in ("query", "key", "scores"))
        if query.shape[1] == key.shape[1] and torch.allclose(query @ key.T, scores, rtol=1e-4, atol=1e-6):
            return PRODUCT
        return COMPARISONS.get(self.score, "score(query, key)")

    def _units(self) -> Iterator[Term]:
        """Yields the units of the traced query, for a score that computes some; a row for each key."""
        query, key = self.traced
        keys, sign = len(self.steps["key"].row_labels), self._comparison()
        own = slice(query * keys, (query + 1) * keys)
        for unit in self.units:
            name, note = unit.name, unit.note
            step = self.steps[plain_name(name)]
            function, _, rest = note.partition(" of each ")
            sign = function.lower() if rest else sign
            weight = self.steps.get(f"score {plain_name(name)}.weight")
            if weight is not None:
                yield Term(sign, self._panel(weight.transposed(), "Wᵀ", "of the score"))
                sign = "+ b =" if f"score {plain_name(name)}.bias" in self.steps else "="
            part = replace(step, matrix=step.matrix[own], row_labels=self.steps["key"].row_labels)
            yield Term(
                sign, self._panel(part, note=self._say("of {query} with each key", query=self.names[0])), looked_at=key
            )
            sign = "="
        if "unit weights" in self.steps:
            vector = replace(self.steps["unit weights"].transposed(), column_labels=())
            yield Term("×", self._panel(vector, "v", "how much each unit counts"))

    def _change(self, name: str) -> str:
        """Returns the operation that leads to a step of pairs."""
        settings = self.settings
        if name == "scaled":
            scale = settings.get("scale", 1.0)
            square = 1 / scale**2 if scale else 0.0
            is_root = scale > 0 and square > 1.5 and abs(square - round(square)) < 1e-4
            return f"÷ √{round(square)}" if is_root else f"× {scale:.4g}".replace("-", "−")
        if name == "capped":
            return f"cap ±{settings['cap']:g}" if settings.get("cap") is not None else str(settings.get("function"))
        if name == "weights":
            return _normalizer(settings.get("normalizer", "normalize"), settings.get("parameters", {}))
        return {"biased": "+ bias", "masked": "+ mask"}[name]

    def _results(self) -> list[Term]:
        """Returns the terms from the output on."""
        query, steps = self.traced.query, self.steps
        size = steps["output"].matrix.shape[1]
        terms = [Term("weights\n× value", self._panel(steps["output"]), query)]
        if "concatenated" in steps:
            own = self.head * size, (self.head + 1) * size - 1
            terms.append(Term("with all heads", self._panel(steps["concatenated"]), query, outlined=own))
        if "projected" in steps:
            terms.append(Term("×", self._panel(steps["w output"], note="mixes the heads" if self.heads > 1 else "")))
            terms.append(Term("=", self._panel(steps["projected"]), query))
        if "decoder output" in steps:
            terms.append(Term("with the state", self._panel(steps["state and context"]), query))
            turned = steps["w decoder"].transposed()
            terms.append(Term("×", self._panel(turned, "W_decoderᵀ", "of the tanh layer")))
            terms.append(Term("tanh", self._panel(steps["decoder output"]), query))
        return terms

    def _sentences(self) -> Iterator[str]:
        """Yields what the traced query does, the calculation of the weight of the traced pair, and of the output."""
        query, key = self.traced
        asks, looked_at = self.names
        weights, value, output = (self.steps[name].matrix for name in ("weights", "value", "output"))
        row, weight = weights[query], weights[query, key].item()
        shares = bool((row >= 0).all()) and math.isclose(row.sum().item(), 1.0, abs_tol=1e-4)
        if shares:
            said, part = "“{asks}” gives {percent} of its attention to “{looked_at}”", percent(weight, self.language)
            yield self._say(said, asks=asks, looked_at=looked_at, percent=part)
        else:
            said = "“{asks}” gives “{looked_at}” the weight {weight}"
            yield self._say(said, asks=asks, looked_at=looked_at, weight=_number(weight))
        worked = [self._worked(shares)]
        texts = cell_texts(weights.double().numpy())[query], [line[0] for line in cell_texts(value.numpy())]
        if value.shape[1] and torch.allclose(row @ value, output[query], rtol=1e-4, atol=1e-6):
            total = _number(output[query, 0].item())
            said = "output of {asks}, first number = {sum}: weights × first column of value"
            worked.append(self._say(said, asks=asks, sum=_products(*texts, total)))
        yield from worked
        if any("≈" in text for text in worked):
            yield self._say("≈: the printed numbers are rounded")

    def _worked(self, shares: bool) -> str:
        """Returns the score and the weight of the traced pair, operation by operation."""
        query, key = self.traced
        steps = {name: step.matrix for name, step in self.steps.items()}
        score = steps["scores"][query, key].item()
        comparison, (asks, looked_at) = self._comparison(), self.names
        pair = self._say("score(query, key)").replace(self._say("query"), asks).replace(self._say("key"), looked_at)
        result = _number(score)
        factors = None
        if comparison == PRODUCT:
            pair, factors = f"{asks} · {looked_at}", (steps["query"][query], steps["key"][key])
        elif self.score == "Location" and "score weight" in steps:
            pair = self._say("{asks} · row {key} of W", asks=asks, key=key)
            factors = (steps["query"][query], steps["score weight"][key])
        elif "unit weights" in steps and self.units:
            last = steps[plain_name(self.units[-1].name)]
            factors = last[query * len(steps["key"]) + key], steps["unit weights"][0]
        elif self.score in ("Cosine", "Distance"):
            pair = self._say(comparison).replace(self._say("query"), asks).replace(self._say("key"), looked_at)
        if factors is not None:
            bias = [b.item() for b in steps.get("unit bias", torch.zeros(0)).flatten() if b]
            added = "".join(f" + {_bracketed(_number(number))}" for number in bias)
            left, right = (cell_texts(vector[None].numpy())[0] for vector in factors)
            parts = [f"{pair} = {_products(left, right, result, added)}"]
        else:
            parts = [f"{pair} = {result}"]
        last = "scores"
        for name in ("scaled", "capped", "biased", "masked"):
            if name in steps:
                before, result, last = printed(result), _number(steps[name][query, key].item()), name
                sign = self._say(self._change(name))
                parts += (
                    [] if name == "masked" else [f"{sign} {_sign(self._changed(name, sign, before), result)} {result}"]
                )
        weight = steps["weights"][query, key].item()
        shown = percent(weight, self.language) if shares else _number(weight)
        scores = steps[last][query]
        powers = (scores - scores.max()).exp()
        if torch.isfinite(scores).any() and torch.allclose(powers / powers.sum(), steps["weights"][query], atol=1e-6):
            total = scores.exp().sum().item()
            if not 1e-4 < total < 1e6:
                return f"{'; '.join(parts)}; exp ÷ Σ exp = {shown}"
            own, whole = _number(scores[key].exp().item()), _number(total)
            quotient = printed(own) / printed(whole)
            out = (percent(quotient, self.language) if shares else _number(quotient)) == shown
            last_sign = "" if shown[0] in "<>" else "= " if out else "≈ "
            parts.append(f"exp ÷ Σ exp {_sign(math.exp(printed(result)), own)} {own} ÷ {whole} {last_sign}{shown}")
            return "; ".join(parts)
        return f"{'; '.join(parts)}; {self._say(self._change('weights'))} → {shown}"

    def _changed(self, name: str, sign: str, before: float) -> float | None:
        """Returns a printed score after an operation as it is printed; None where its numbers are not printed."""
        if name == "scaled":
            return before * (self.settings["scale"] if sign[0] == "÷" else printed(sign[2:]))
        cap = self.settings.get("cap") if name == "capped" else None
        return None if cap is None else cap * math.tanh(before / cap)


def flow_of(explanation: Any, batch: int, head: int, colors: Mapping[str, str | None], language: str) -> Flow:
    """Returns a batch row and head of a calculation as a flow; colours and language are those of `FlowOfSteps`."""
    named = explanation
    if named.one_input and named.key_labels is None:  # one name for a row that asks and is looked at
        named = named.labelled(None, [f"x{row}" for row in range(named.key.shape[-2])])
    return FlowOfSteps(
        {plain_name(step.name): step for step in named.matrix_steps(batch=batch, head=head)},
        head,
        named.slices[-1][1] + 1,
        colors,
        named.one_input,
        named.projected,
        [] if named.units is None else named.units.steps,
        {} if named.settings is None else named.settings.of_head(batch, head),
        language,
    ).flow()


def _alike(panel: Panel, step: Step) -> bool:
    return panel.matrix.shape == step.matrix.shape and torch.equal(panel.matrix, step.matrix)


def _normalizer(name: str, parameters: Mapping[str, float]) -> str:
    """Returns a normalizer with the parameters that are not its defaults."""
    temperature, alpha = parameters.get("temperature", 1.0), parameters.get("alpha")
    more = "".join(
        text
        for text, is_shown in (
            (f", T = {temperature:g}", temperature != 1.0),
            (f" α = {alpha:g}" if alpha is not None else "", True),
            (" with a sink", "sink" in parameters),
        )
        if is_shown
    )
    return name.removesuffix("_with_sink").replace("_", " ") + more


def _number(number: float) -> str:
    """Returns a number with four decimals, or four digits where it is large; a whole one as it is."""
    if not math.isfinite(number):
        return str(number).replace("-", "−").replace("inf", "∞")
    text = f"{number:.4f}" if abs(number) < 100 else f"{number:.6g}"
    return (text.rstrip("0").rstrip(".") if number == round(number, 2) else text).replace("-", "−")


def _bracketed(text: str) -> str:
    return f"({text})" if text.startswith("−") else text


def _products(left: list[str], right: list[str], total: str, added: str = "") -> str:
    """Returns a sum of products of numbers as they stand in the cells, and its total; of a long sum the first terms.

    Numbers in cells are rounded, so the sign says whether those that are printed give the total that is printed.
    """
    terms = [f"{_bracketed(a)} × {_bracketed(b)}" for a, b in zip(left, right, strict=True)]
    shown = " + ".join(terms if len(terms) <= MOST_TERMS else [*terms[: MOST_TERMS - 1], "…"])
    value = sum(printed(a) * printed(b) for a, b in zip(left, right, strict=True))
    return f"{shown}{added} {'≈' if added else _sign(value, total)} {total}"


def _sign(value: float | None, result: str) -> str:
    """Returns "=" where a number that is calculated from printed ones is printed as the result, else "≈"."""
    return "=" if value is None or f"{value:.4f}" == f"{printed(result):.4f}" else "≈"
