"""Scores by name: ready ones for one call, and new trainable ones for a model."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.ownership import own_copy
from regard.scores.additive import Additive
from regard.scores.custom import Custom
from regard.scores.distance import Distance
from regard.scores.inner_product import Cosine, Dot, General, ScaledDot
from regard.scores.location import Location, LocationAware
from regard.scores.mlp import MLP
from regard.scores.score import Score
from regard.shapes import check_sizes, known_name

Scoring = Score | str | Callable[[Tensor, Tensor], Tensor]
"""What may be given where a score is wanted."""

READY: dict[str, Callable[[], Score]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "cosine": Cosine,
    "distance": Distance,
}
"""Scores that need no weights."""

WEIGHTED = {
    "general": "General(weight)",
    "additive": "Additive(weight, query_projection, key_projection)",
    "concat": "Additive(weight, query_projection, key_projection)",
    "mlp": "MLP(network)",
    "location": "Location(weight)",
    "location_aware": "LocationAware(weight, convolution, location_projection, query_projection, key_projection)",
}
"""Scores with weights of their own, and how they are made of them."""

NAMES = (*READY, *WEIGHTED)
"""Every name that `create` knows."""

# They have neither weights nor state, so one instance of each serves all calls.
_SHARED = {name: create_score() for name, create_score in READY.items()}

TAKEN: dict[str, tuple[str, ...]] = {
    "cosine": ("heads",),
    "general": ("heads",),
    "additive": ("dim", "heads"),
    "concat": ("dim", "heads"),
    "mlp": ("dim", "hidden"),
    "location": ("max_keys",),
    "location_aware": ("dim", "heads", "channels", "kernel_size"),
}
"""The optional arguments of `create` that each score takes; a score that is not here takes none."""


def as_score(value: Scoring) -> Score:
    """The score that is meant.

    Args:
        value: a `Score`; the name of one that needs no weights (``dot``, ``scaled_dot``, ``cosine``, ``distance``); or
            a callable ``(query, key) -> scores``, see `Custom`.

    Raises:
        UnknownNameError: a name that no score has.
        ArgumentError: the name of a score that needs weights; the message says how to make it.
        KindError: something else.
    """
    if isinstance(value, str):
        if value in READY:
            return _SHARED[value]
        if value in WEIGHTED:
            raise ArgumentError(
                f"score {value!r} has weights of its own: give regard.scores.{WEIGHTED[value]}, "
                f"or make a new one by regard.scores.create({value!r}, ...)"
            )
        raise UnknownNameError("score", value, NAMES)
    if isinstance(value, Score):
        return value
    if isinstance(value, type) and issubclass(value, Score):
        raise KindError(f"score must be an instance, not the class: {value.__name__}(...)")
    if callable(value) and not isinstance(value, type):
        return Custom(value)
    raise KindError(f"score must be a Score, a name or a callable (query, key) -> scores; it is {value!r}")


def own_score(value: Scoring) -> Score:
    """`as_score` for an owner that keeps the score: a module of its own, unless it is the user's (see `own_copy`)."""
    return own_copy(as_score(value))


def create(
    name: str,
    query_dim: int,
    key_dim: int,
    dim: int | None = None,
    *,
    heads: int | None = None,
    hidden: Sequence[int] | None = None,
    max_keys: int | None = None,
    channels: int | None = None,
    kernel_size: int | None = None,
) -> Score:
    """A new score with freshly initialised, trainable parameters where it has any.

    Matrices start uniform after Glorot & Bengio 2010, weight vectors uniform in ±1/√dim, biases at 0, and the learned
    temperature of ``cosine`` at 0.1.

    Args:
        name: ``dot``, ``scaled_dot``, ``cosine``, ``distance``, ``general``, ``additive``, ``concat``, ``mlp``,
            ``location`` or ``location_aware``.
        query_dim: features of a query.
        key_dim: features of a key.
        dim: tanh units of ``additive``, ``concat`` and ``location_aware``; units of the one hidden layer of ``mlp``.
            Default: ``key_dim``.
        heads: heads that have weights each, for ``cosine``, ``general`` and the additive ones; None shares them.
        hidden: units of each hidden layer of ``mlp``, first to last. Default: ``(dim,)``.
        max_keys: the most keys that ``location`` will see; it must be given.
        channels: filters of ``location_aware`` over the earlier weights.
        kernel_size: keys that each of these filters sees; odd.

    Raises:
        UnknownNameError: a name that no score has.
        ShapeError: different dims for a score that compares queries and keys directly.
        ArgumentError: a size that is missing or below 1, or an argument that this score does not take.
    """
    sizes = {"dim": dim, "heads": heads, "max_keys": max_keys, "channels": channels, "kernel_size": kernel_size}
    for size_name, size in {"query_dim": query_dim, "key_dim": key_dim, **sizes}.items():
        if size is not None:
            check_sizes(**{size_name: size})
    _check_taken(name, {**sizes, "hidden": hidden})
    units = key_dim if dim is None else dim
    if name in READY:
        if query_dim != key_dim:
            raise ShapeError(
                f"score {name!r} compares queries and keys directly: query_dim and key_dim must be equal; "
                f"they are {query_dim} and {key_dim}"
            )
        return Cosine.create(heads) if name == "cosine" else READY[name]()
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
            return Location.create(query_dim, _needed(name, "max_keys", max_keys))
        case "location_aware":
            return LocationAware.create(
                query_dim,
                key_dim,
                units,
                heads,
                channels=_needed(name, "channels", channels),
                kernel_size=_needed(name, "kernel_size", kernel_size),
            )
    raise UnknownNameError("score", name, NAMES)


def _check_taken(name: str, given: Mapping[str, object]) -> None:
    """Raise unless the score has this name, and takes each of the optional arguments that are not None."""
    known_name("score", name, NAMES)
    taken = TAKEN.get(name, ())
    refused = [argument for argument, value in given.items() if value is not None and argument not in taken]
    if refused:
        takes = f"it takes {', '.join(taken)}" if taken else "it takes query_dim and key_dim alone"
        raise ArgumentError(f"score {name!r} takes no {' and no '.join(refused)}; {takes}")
    if given["dim"] is not None and given["hidden"] is not None:
        raise ArgumentError(f"score {name!r} takes dim or hidden, not both: dim is short for hidden=(dim,)")


def _needed(name: str, argument: str, value: int | None) -> int:
    if value is None:
        raise ArgumentError(f"score {name!r} needs {argument}")
    return value
