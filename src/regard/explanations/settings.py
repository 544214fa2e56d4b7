"""The numbers and names that decide an attention calculation, as a worked calculation shows them."""

from typing import Any, NamedTuple

from torch import Tensor

from regard.attention.problem import Problem
from regard.scores.modifiers import Cap, Modified, Modifying


class Settings(NamedTuple):
    """The settings by which a problem compares queries with keys and normalizes the scores.

    Attributes:
        score: the name of the score's class, without what modifies it.
        scale: the factor of the scores; a number, or a tensor that broadcasts to ``[batch, heads, 1, 1]``.
        cap: the bound of a `SoftCap` that alone modifies the scores; None: there is none, or more.
        function: the name of another function that modifies the scores; None: there is none.
        normalizer: ``"softmax"``, ``"softmax_with_sink"``, ``"entmax"``, ``"sparsemax"``, ``"sigmoid"``, ``"hard"``, or
            the name of its class in small letters where it is none of these.
        parameters: of the normalizer: ``temperature``, ``sink``, ``alpha`` or ``bias``; numbers, or ``[]`` or
            ``[heads]``.
    """

    score: str
    scale: float | Tensor
    cap: float | None
    function: str | None
    normalizer: str
    parameters: dict[str, float | Tensor]

    @classmethod
    def of(cls, problem: Problem) -> "Settings":
        """Returns the settings of a problem."""
        score = problem.score
        wrappers: list[Modifying] = []
        while isinstance(score, Modifying):
            wrappers.append(score)
            score = score.score
        prepared = problem.prepared
        cap = function = None
        match prepared.modifiers:
            case ():
                pass
            case (Cap() as only,):
                cap = only.cap
            case _:
                function = " ∘ ".join(_name(wrapper) for wrapper in wrappers) or "function"
        return cls(type(score).__name__, prepared.scale, cap, function, *_normalizer(problem))

    def of_head(self, batch: int, head: int) -> dict[str, Any]:
        """Returns the settings of one batch row and head, from 0, as arguments of `regard.records.StepsRecord`."""
        parameters = {name: _number(value, batch, head) for name, value in self.parameters.items()}
        return {
            "score": self.score,
            "scale": _number(self.scale, batch, head),
            "cap": self.cap,
            "function": self.function,
            "normalizer": self.normalizer,
            "parameters": parameters,
        }


def _name(wrapper: Modifying) -> str:
    if isinstance(wrapper, Modified):
        return getattr(wrapper.fn, "__name__", type(wrapper.fn).__name__)
    return type(wrapper).__name__


def _normalizer(problem: Problem) -> tuple[str, dict[str, float | Tensor]]:
    """Returns the name and the parameters of a normalizer."""
    row = problem.normalizer.lower()
    if row is None or row.center is not None:
        return type(problem.normalizer).__name__.lower(), {}
    match row.kind:
        case "softmax" if row.sink is not None:
            return "softmax_with_sink", {"temperature": row.temperature, "sink": row.sink}
        case "softmax":
            return "softmax", {"temperature": row.temperature}
        case "entmax" if isinstance(row.alpha, float) and row.alpha == 2.0:
            return "sparsemax", {}
        case "entmax":
            return "entmax", {"alpha": row.alpha}
        case "sigmoid":
            return "sigmoid", {"bias": row.shift}
        case _:
            return row.kind, {}


def _number(value: float | Tensor, batch: int, head: int) -> float:
    """Returns one number of a parameter ``[]`` or ``[heads]``, or that broadcasts to ``[batch, heads, 1, 1]``."""
    if not isinstance(value, Tensor):
        return float(value)
    if value.dim() <= 1:
        return float(value.detach().flatten()[head if value.numel() > 1 else 0])
    four = value.detach()[(None,) * (4 - value.dim())]
    rows, heads = four.shape[:2]
    return float(four[batch if rows > 1 else 0, head if heads > 1 else 0].flatten()[0])
