"""Converts names and functions to scores, and creates trainable scores by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.names.answered import answered
from regard.names.foreign_names import written_here
from regard.scores.additive_scores import Additive
from regard.scores.alignment_score import Seen
from regard.scores.custom import Custom
from regard.scores.distance import Distance
from regard.scores.dynamic_convolution import DynamicConvolution
from regard.scores.inner_product import Cosine, Dot, General, ScaledDot
from regard.scores.location_scores import Location, LocationAware
from regard.scores.perceptron import MLP
from regard.scores.score import Score
from regard.shapes.checks import check_sizes, known_name, takes, uncalled
from regard.tracing.ownership import own_copy

ScoreName = Literal["dot", "scaled_dot", "cosine", "distance"]
"""The names of scores without weights."""

ContentScoreName = Literal[ScoreName, "general", "additive", "concat", "mlp"]
"""The names of scores that compare contents: all but those of locations and of earlier weights."""

AnyScoreName = Literal[ContentScoreName, "location", "location_aware", "coverage", "dynamic_convolution"]
"""Every name that `create` knows."""

Scoring = Score | ScoreName | Callable[[Tensor, Tensor], Tensor]
"""A score, the name of one without weights, or a function of queries and keys."""

READY_SCORES: dict[str, Callable[[], Score]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "cosine": Cosine,
    "distance": Distance,
}
"""Scores without weights."""

WEIGHTED_SCORES = {
    "general": "General(weight)",
    "additive": "Additive(weight, query_projection, key_projection)",
    "concat": "Additive(weight, query_projection, key_projection)",
    "mlp": "MLP(network)",
    "location": "Location(weight)",
    "location_aware": "LocationAware(weight, convolution, location_projection, query_projection, key_projection)",
    "coverage": 'LocationAware(weight, convolution, location_projection, query_projection, key_projection, "total")',
    "dynamic_convolution": "DynamicConvolution(weight, convolution, location_projection, hidden_projection, …)",
}
"""Scores with weights, and their constructors for messages."""

NAMES = (*READY_SCORES, *WEIGHTED_SCORES)
"""Every name that `create` knows."""

# These scores have no state, so one instance of each serves all calls.
dot, scaled_dot, cosine, distance = (create_score() for create_score in READY_SCORES.values())
_SHARED_SCORES = dict(zip(READY_SCORES, (dot, scaled_dot, cosine, distance), strict=True))

OPTIONAL_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "cosine": ("heads",),
    "general": ("heads",),
    "additive": ("dim", "heads"),
    "concat": ("dim", "heads"),
    "mlp": ("dim", "hidden"),
    "location": ("max_keys",),
    "location_aware": ("dim", "heads", "channels", "kernel_size", "sees"),
    "coverage": ("dim", "heads"),
    "dynamic_convolution": ("dim", "channels", "kernel_size"),
}
"""Optional arguments of `create` that each score takes; scores that are not listed take none."""

ALIGNMENT_SCORES = ("location_aware", "coverage", "dynamic_convolution")
"""Scores that see the weights of earlier steps."""

_FILTERS = ("channels", "kernel_size")
"""Arguments of `create` that scores with filters over earlier weights need."""


def as_score(value: object) -> Score:
    """Converts a value to a score.

    Args:
        value: a `Score`; the name of one without weights (``dot``, ``scaled_dot``, ``cosine``, ``distance``); or a
            callable ``(query, key) -> scores``, see `Custom`.

    Raises:
        UnknownNameError: no score has this name.
        ArgumentError: the score of this name has weights; the message says how to create it.
        KindError: the value is anything else.

    Example:
        >>> from regard import scores
        >>> scores.as_score("dot")
        Dot()
        >>> scores.as_score(lambda query, key: query @ key.mT)
        Custom()
    """
    if isinstance(value, str):
        if value in READY_SCORES:
            return _SHARED_SCORES[value]
        if value in WEIGHTED_SCORES:
            raise ArgumentError(
                f"score {value!r} has weights of its own: pass regard.scores.{WEIGHTED_SCORES[value]}, "
                f"or create one with regard.scores.create({_created(value)})"
            )
        raise UnknownNameError("score", value, NAMES, written_here("score", value))
    if isinstance(value, Score):
        return value
    if value is create:
        raise KindError(f"score must be a Score ({uncalled(value, 'scores')})")
    if isinstance(value, type) and issubclass(value, Score):
        raise KindError(f"score must be an instance, not the class: {value.__name__}(...)")
    if callable(value) and not isinstance(value, type):
        if not torch.compiler.is_compiling() and not takes(value, 2) and takes(value, 5):
            raise KindError(
                "a score function takes (query, key); this one takes the five arguments of a score_mod, (score, batch, "
                'head, query_index, key_index): write score=scores.Modified("scaled_dot", score_mod)'
            )
        return Custom(cast(Callable[[Tensor, Tensor], Tensor], value))
    raise KindError(f"score must be a Score, a name or a callable (query, key) -> scores; it is {value!r}")


def _created(name: str) -> str:
    """Returns the arguments with which `create` makes a score of this name, as they are typed."""
    required = ("max_keys",) if name == "location" else _FILTERS if "channels" in OPTIONAL_ARGUMENTS[name] else ()
    return ", ".join((f'"{name}"', "query_dim", "key_dim", *(f"{each}={each}" for each in required)))


def own_score(value: object) -> Score:
    """Converts a value with `as_score` for a module that keeps it, as `regard.tracing.ownership.own_copy` describes.

    Example:
        >>> from regard import scores
        >>> scores.own_score("dot")
        Dot()
    """
    return own_copy(as_score(value))


@answered
def create(
    name: AnyScoreName,
    query_dim: int,
    key_dim: int,
    dim: int | None = None,
    *,
    heads: int | None = None,
    hidden: Sequence[int] | None = None,
    max_keys: int | None = None,
    channels: int | None = None,
    kernel_size: int | None = None,
    sees: Seen | None = None,
) -> Score:
    """Creates a score with new trainable parameters, if it has any.

    Matrices are initialized uniformly after Glorot & Bengio 2010, weight vectors uniformly in ±1/√dim, biases with 0,
    and the learned temperature of ``cosine`` with 0.1.

    Args:
        name: ``dot``, ``scaled_dot``, ``cosine``, ``distance``, ``general``, ``additive``, ``concat``, ``mlp``,
            ``location``, ``location_aware``, ``coverage`` (of all earlier weights, by one filter of one key) or
            ``dynamic_convolution``.
        query_dim: features of a query.
        key_dim: features of a key.
        dim: number of tanh units of ``additive``, ``concat``, ``location_aware``, ``coverage`` and
            ``dynamic_convolution``; units of the single hidden layer of ``mlp``. Default: ``key_dim``.
        heads: number of heads with separate weights, for ``cosine``, ``general`` and the additive scores; None shares
            the weights.
        hidden: units of each hidden layer of ``mlp``, first to last. Default: ``(dim,)``.
        max_keys: largest number of keys of ``location``, which needs it.
        channels: number of filters of ``location_aware`` and ``dynamic_convolution`` over the earlier weights.
        kernel_size: number of keys that each of these filters covers; odd.
        sees: which weights the filters of ``location_aware`` read, see `LocationAware`. Default: ``previous``.

    Raises:
        UnknownNameError: no score has this name.
        ShapeError: the dims differ, but the score compares queries and keys directly.
        ArgumentError: a size is missing or below 1, or the score does not take an argument.

    Example:
        >>> from regard import scores
        >>> scores.create("additive", query_dim=4, key_dim=6, dim=5).weight.shape
        torch.Size([5])
    """
    sizes = {"dim": dim, "heads": heads, "max_keys": max_keys, "channels": channels, "kernel_size": kernel_size}
    for size_name, size in {"query_dim": query_dim, "key_dim": key_dim, **sizes}.items():
        if size is not None:
            check_sizes(**{size_name: size})
    _check_arguments(name, {**sizes, "hidden": hidden, "sees": sees})
    units = key_dim if dim is None else dim
    if name in READY_SCORES:
        if query_dim != key_dim:
            raise ShapeError(
                f"score {name!r} compares queries and keys directly: query_dim and key_dim must be equal; "
                f"they are {query_dim} and {key_dim}"
            )
        return Cosine.create(heads) if name == "cosine" else READY_SCORES[name]()
    match name:
        case "general":
            return General.create(query_dim, key_dim, heads)
        case "additive":
            return Additive.create(query_dim, key_dim, units, heads)
        case "concat":
            return Additive.concat(query_dim, key_dim, units, heads)
        case "mlp":
            return MLP.create(query_dim, key_dim, (units,) if hidden is None else hidden)
        case "location":
            return Location.create(query_dim, _required(name, "max_keys", max_keys))
        case "location_aware":
            return LocationAware.create(
                query_dim,
                key_dim,
                units,
                heads,
                channels=_required(name, "channels", channels),
                kernel_size=_required(name, "kernel_size", kernel_size),
                sees="previous" if sees is None else sees,
            )
        case "dynamic_convolution":
            sizes = {one: _required(name, one, sizes[one]) for one in _FILTERS}
            return DynamicConvolution.create(query_dim, units, **sizes)
        case "coverage":
            return LocationAware.create(query_dim, key_dim, units, heads, channels=1, kernel_size=1, sees="total")
    raise UnknownNameError("score", name, NAMES)


def _check_arguments(name: str, arguments: Mapping[str, object]) -> None:
    """Raises an error unless a score has this name and takes each of the arguments that are not None."""
    if isinstance(name, str) and (here := written_here("score", name)) and name not in NAMES:
        raise UnknownNameError("score", name, NAMES, here)
    known_name("score", name, NAMES)
    accepted = OPTIONAL_ARGUMENTS.get(name, ())
    refused = [argument for argument, value in arguments.items() if value is not None and argument not in accepted]
    if refused:
        hint = f"it takes {', '.join(accepted)}" if accepted else "it takes query_dim and key_dim alone"
        raise ArgumentError(f"score {name!r} takes no {' and no '.join(refused)}; {hint}")
    if arguments["dim"] is not None and arguments["hidden"] is not None:
        raise ArgumentError(f"score {name!r} takes dim or hidden, not both: dim is short for hidden=(dim,)")


def _required(name: str, argument: str, value: int | None) -> int:
    if value is None:
        raise ArgumentError(f"score {name!r} needs {argument}")
    return value
