"""The verb `explain`: every intermediate of one attention calculation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Never

from numpy.typing import ArrayLike
from torch import Tensor

from regard.arrays import as_tensor
from regard.attention.backends.reference import mix, weigh, whole
from regard.attention.execution import choose, execute, full_precision
from regard.attention.problem import Problem, validate
from regard.attention.verbs import BackendName
from regard.biases import Bias
from regard.errors import BackendError, KindError
from regard.explanations.explanation import Explanation
from regard.foreign_names import unknown_keyword
from regard.layout import without_added_axes
from regard.masks import Mask
from regard.normalizers import Normalizing
from regard.scores import Scoring
from regard.transforms import has_data, is_finite


def explain(
    query: Tensor | ArrayLike,
    key: Tensor | ArrayLike | None = None,
    value: Tensor | ArrayLike | None = None,
    *,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | Literal["causal"] | None = None,
    bias: Bias | Tensor | Literal["alibi"] | None = None,
    dropout: float = 0.0,
    backend: BackendName = "auto",
    **unknown: Never,
) -> Explanation:
    """Attends, and keeps every intermediate result by name: to print, to draw, to export, to differentiate.

    ::

        scores → scaled → capped → biased → masked → weights → weighted_values → output

    With the defaults this is Vaswani et al. 2017, eq. 1.

    Args:
        query: as for `attend`; lists, NumPy arrays and integers become tensors, and a vector is one query.
        key: likewise; None: the queries.
        value: likewise; None: the keys.
        score, normalizer, mask, bias, dropout: as for `attend`.
        backend: ``auto`` or ``reference``; no other backend has all intermediate results.

    Returns:
        `Explanation`. Memory is quadratic.

    Raises:
        As `attend`; BackendError for a backend other than these two.

    Example:
        >>> import regard
        >>> steps = regard.explain([[1, 0]], [[1, 0], [0, 1]], [[10], [20]], score="dot")
        >>> print(steps)
        1. query [1×2]: what asks
        ...
        5. weights [1×2]: each row normalized
        <BLANKLINE>
                   k0       k1
         ──────────────────────
          q0   0.7311   0.2689
        ...
        7. output [1×1]: sum of the weighted values
        <BLANKLINE>
                     0
         ──────────────
          q0   12.6894
        <BLANKLINE>
        >>> steps.weights
        tensor([[0.7311, 0.2689]])
        >>> annotations = [[3, 12, 45], [59, 2, 5], [1, 43, 5], [4, 3, 45.3]]
        >>> regard.explain([5, 1, 20], annotations, score="dot").scores
        tensor([[927., 397., 148., 929.]])
    """
    if unknown:
        raise KindError(unknown_keyword(explain, unknown))
    key = query if key is None else key
    inputs = {"query": query, "key": key, "value": key if value is None else value}
    tensors = [_rows(as_tensor(tensor, name)) for name, tensor in inputs.items()]
    problem = validate(*tensors, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)
    if backend not in ("auto", "reference"):
        choose(problem, backend)
        raise BackendError(f"backend {backend!r} has no intermediates to explain; use 'reference'")
    return explain_problem(problem)


def _rows(tensor: Any) -> Any:
    return tensor[None] if isinstance(tensor, Tensor) and tensor.dim() == 1 else tensor


def explain_problem(problem: Problem) -> Explanation:
    """`explain` for a problem that is validated, as those of `regard.attention.execution`."""
    with full_precision(problem.query):
        inputs = whole(problem)
        units = problem.score.pair_units(problem.query, problem.key)
        weighed = weigh(problem, inputs)
        output = mix(problem, inputs, weighed.weights)
        if problem.may_hide and has_data(output) and not is_finite(output):
            # A hidden value that is NaN or infinite is not part of the output (contract 10).
            output = execute(problem, "reference").output
        inputs_of_scores = problem.score.project_query(problem.query), problem.score.project_key(problem.key)
    names = ("query", "key", "value", *weighed._fields, "output")
    explanation = _explanation_of(names, (*inputs_of_scores, problem.value, *weighed, output), problem.rank)
    query, key = inputs_of_scores
    changed = {"query": query is not problem.query, "key": key is not problem.key}
    if units is not None:
        steps = (step._replace(values=without_added_axes(step.values, problem.rank)) for step in units.steps)
        units = replace(units, steps=tuple(steps))
    projected = tuple(name for name, is_changed in changed.items() if is_changed)
    return replace(explanation, projected=projected, units=units)


def _explanation_of(names: Sequence[str], tensors: Sequence[Tensor], rank: int) -> Explanation:
    """An Explanation of tensors with four axes, returned with ``rank`` axes.

    Steps that share one tensor share one in the result as well.
    """
    restored: dict[int, Tensor] = {}
    for tensor in tensors:
        if id(tensor) not in restored:
            restored[id(tensor)] = without_added_axes(tensor, rank)
    fields: dict[str, Any] = {name: restored[id(tensor)] for name, tensor in zip(names, tensors, strict=True)}
    return Explanation(**fields)
