"""The verb `explain`: every intermediate of one attention calculation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Never

from numpy.typing import ArrayLike
from torch import Tensor

from regard.attention.backends.reference import mix, weigh, whole
from regard.attention.execution import choose, execute, full_precision
from regard.attention.problem import Problem, validate
from regard.attention.verbs import BackendName
from regard.biases import Bias
from regard.errors import BackendError, KindError
from regard.explanations.explanation import Explanation
from regard.explanations.layers import Layer, projections, results
from regard.explanations.settings import Settings
from regard.masks import Mask
from regard.names.foreign_arguments import unknown_keyword
from regard.normalizers import Normalizing
from regard.scores import Scoring
from regard.shapes.arrays import as_tensor
from regard.shapes.checks import check_floating, type_text
from regard.shapes.layout import without_added_axes
from regard.tracing.transforms import has_data, is_finite


def explain(
    query: Tensor | ArrayLike,
    key: Tensor | ArrayLike | None = None,
    value: Tensor | ArrayLike | None = None,
    *,
    w_query: Tensor | ArrayLike | None = None,
    w_key: Tensor | ArrayLike | None = None,
    w_value: Tensor | ArrayLike | None = None,
    heads: int = 1,
    w_output: Tensor | ArrayLike | None = None,
    w_decoder: Tensor | ArrayLike | None = None,
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

    With the defaults this is Vaswani et al. 2017, eq. 1. The layers around the attention are calculated if their
    weights are given (Vaswani et al. 2017, §3.2.2, and Luong et al. 2015, eq. 5):

    .. math::

        query, key, value = input W_query, input W_key, input W_value
        head_h = attention of part h of their features
        concatenated = [head_1; …; head_n]
        projected = concatenated W_output
        decoder output = tanh(W_decoder [state; context])

    The state is the query's input and the context is the output (Luong et al. put the context first).

    Args:
        query: as for `attend`; lists, NumPy arrays and integers become tensors, and a vector is one query.
        key: likewise; None: the queries.
        value: likewise; None: the keys. What is None is the same input, also before its projection.
        w_query: ``[dim, heads · head_dim]``, a row for each feature of the query's input; None: no projection. Likewise
            ``w_key`` and ``w_value``. Inputs that are projected are ``[length, dim]`` or ``[batch, length, dim]``.
        heads: the number of heads among which the features of queries, keys and values are split; default 1.
        w_output: ``[heads · value_dim, dim]``, or None.
        w_decoder: ``[units, state_dim + context_dim]``, a row for each unit, the state's columns first; or None.
        score, normalizer, mask, bias, dropout: as for `attend`.
        backend: ``auto`` or ``reference``; no other backend has all intermediate results.

    Returns:
        `Explanation`. Memory is quadratic.

    Raises:
        As `attend`; BackendError for a backend other than these two; ShapeError or KindError for weights of another
        shape or dtype than their inputs need; ArgumentError for a number of heads that does not fit.

    Example:
        >>> import regard
        >>> steps = regard.explain([[1, 0]], [[1, 0], [0, 1]], [[10], [20]], score="dot")
        >>> print(steps)
        1. query [1×2]: what asks
        ...
        5. weights [1×2]: normalized over the keys
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
        >>> x = [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
        >>> w_query = [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
        >>> w_key = [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
        >>> w_value = [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]
        >>> steps = regard.explain(x, w_query=w_query, w_key=w_key, w_value=w_value, score="dot")
        >>> steps.print("key, weights")
        1. key [3×3]: what it is compared with
        ...
        2. weights [3×3]: normalized over the keys
        ...
        >>> figure = steps.figure("weights", color_map="Oranges")
        >>> regard.explain([[1, 2, 3, 4]], heads=2, w_output=[[1], [1], [1], [1]])["projected"]
        tensor([[10.]])
    """
    if unknown:
        raise KindError(unknown_keyword(explain, unknown))
    is_one_input = key is None and value is None
    key = query if key is None else key
    arguments = {"query": query, "key": key, "value": key if value is None else value}
    inputs = {name: _rows(_numbers(argument, name)) for name, argument in arguments.items()}
    weights = {
        name: _numbers(weight, name)
        for name, weight in (
            ("w_query", w_query), ("w_key", w_key), ("w_value", w_value), ("w_output", w_output),
            ("w_decoder", w_decoder),
        )
        if weight is not None
    }  # fmt: skip
    for name, tensor in {**inputs, **weights}.items():
        check_floating(name, tensor)
    before, projected = projections(inputs, weights, heads, one_input=is_one_input)
    problem = validate(**projected, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)
    if backend not in ("auto", "reference"):
        choose(problem, backend)
        raise BackendError(f"backend {backend!r} has no intermediates to explain; use 'reference'")
    explanation = explain_problem(problem)
    unit_weights = None if explanation.units is None else (explanation.units.weight, explanation.units.bias)
    before += [
        Layer(f"score_{name}", "weights of the score", parameter)
        for name, parameter in problem.score.named_parameters()
        if not any(parameter is unit for unit in unit_weights or ())
    ]
    after = results(inputs["query"], explanation.output, weights, heads)
    return replace(explanation, before=tuple(before), after=tuple(after), one_input=is_one_input)


def _numbers(argument: Any, name: str) -> Tensor:
    parts = argument if isinstance(argument, (list, tuple)) else (argument,)
    if any(isinstance(part, str) for part in parts):
        raise KindError(
            f"{name} must be numbers: a tensor, an array or nested lists; it is text. In Python a word is a row of "
            'numbers; a sentence is explained by the command regard explain "a sentence"'
        )
    tensor = as_tensor(argument, name)
    if not isinstance(tensor, Tensor):
        raise KindError(f"{name} must be a tensor, an array or nested lists of numbers; it is {type_text(tensor)}")
    return tensor


def _rows(tensor: Any) -> Any:
    return tensor[None] if isinstance(tensor, Tensor) and tensor.dim() == 1 else tensor


def explain_problem(problem: Problem) -> Explanation:
    """Explains a problem that is validated, as those of `regard.attention.execution`."""
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
    return replace(explanation, projected=projected, units=units, settings=Settings.of(problem))


def _explanation_of(names: Sequence[str], tensors: Sequence[Tensor], rank: int) -> Explanation:
    """Returns an Explanation of tensors with four axes, whose tensors have ``rank`` axes.

    Steps that share one tensor share one in the result as well.
    """
    restored: dict[int, Tensor] = {}
    for tensor in tensors:
        if id(tensor) not in restored:
            restored[id(tensor)] = without_added_axes(tensor, rank)
    fields: dict[str, Any] = {name: restored[id(tensor)] for name, tensor in zip(names, tensors, strict=True)}
    return Explanation(**fields)
