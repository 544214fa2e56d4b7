"""Converts names and functions to normalizers."""

from collections.abc import Callable
from typing import Literal, cast

from torch import Tensor

from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.names.foreign_names import written_here
from regard.normalizers.coupled import OverQueries, Sinkhorn, TalkingHeads
from regard.normalizers.custom import Custom
from regard.normalizers.elementwise import identity, ratio, sigmoid, squared_relu
from regard.normalizers.entmax import Entmax, entmax, sparsemax
from regard.normalizers.forward_alignment import ForwardAlignment
from regard.normalizers.hard import Hard, hard
from regard.normalizers.local import LocalGaussian
from regard.normalizers.monotonic import Monotonic, Stepwise
from regard.normalizers.normalizer import Normalizer, softmax, softmax_with_sink
from regard.normalizers.query_temperature import QueryTemperature
from regard.normalizers.selection import TopK, TopP
from regard.normalizers.softmax_variants import scalable_softmax, signed_softmax, softpick
from regard.normalizers.stick_breaking import stick_breaking
from regard.shapes.checks import type_text
from regard.tracing.ownership import own_copy

NormalizerName = Literal[
    "softmax", "sparsemax", "entmax15", "sigmoid", "hard", "over_queries", "sinkhorn", "identity", "ratio",
    "squared_relu", "softpick", "signed_softmax", "scalable_softmax", "stick_breaking",
    "monotonic", "stepwise", "forward",
]  # fmt: skip
"""The names of normalizers that need no arguments."""

Normalizing = NormalizerName | Normalizer | Callable[[Tensor], Tensor]
"""A normalizer, the name of one, or a function of scores that normalizes their last axis."""


def local_gaussian(normalizer: Normalizing, center: Tensor, sigma: float | Tensor) -> LocalGaussian:
    """Multiplies another normalizer's weights by a Gaussian window around ``center``: see `LocalGaussian`.

    Args:
        normalizer: the other normalizer, in any form that `as_normalizer` accepts.
        center: key positions, broadcastable to ``[batch, heads, queries]``.
        sigma: standard deviation of the window in keys, above 0.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.local_gaussian("softmax", torch.tensor(1.0), sigma=1.0).sigma
        1.0
    """
    return LocalGaussian(as_normalizer(normalizer), center, sigma)


def top_k(k: int, normalizer: Normalizing = "softmax") -> TopK:
    """Normalizes the ``k`` largest scores of each row alone: see `TopK`.

    Args:
        k: number of keys, at least 1.
        normalizer: the normalizer of the kept scores, in any form that `as_normalizer` accepts.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.top_k(2, "sparsemax")(torch.tensor([0.5, 0.25, 0.0]))
        tensor([0.6250, 0.3750, 0.0000])
    """
    return TopK(k, as_normalizer(normalizer))


def top_p(p: float, normalizer: Normalizing = "softmax") -> TopP:
    """Normalizes the fewest keys that hold a share ``p`` of a row's weight: see `TopP`.

    Args:
        p: the share, above 0 and at most 1.
        normalizer: in any form that `as_normalizer` accepts.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.top_p(0.5)(torch.tensor([2.0, 0.0, 0.0]))
        tensor([1., 0., 0.])
    """
    return TopP(p, as_normalizer(normalizer))


def query_temperature(temperature: Tensor, normalizer: Normalizing = "softmax") -> QueryTemperature:
    """Divides the scores of each query by a temperature of its own: see `QueryTemperature`.

    Args:
        temperature: above 0, broadcastable to ``[batch, heads, queries]``.
        normalizer: in any form that `as_normalizer` accepts.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.query_temperature(torch.tensor([1.0, 0.5]))(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        tensor([[0.7311, 0.2689],
                [0.8808, 0.1192]])
    """
    return QueryTemperature(temperature, as_normalizer(normalizer))


def talking_heads(
    before: Tensor | None = None, after: Tensor | None = None, normalizer: Normalizing = "softmax"
) -> TalkingHeads:
    """Mixes scores and weights of all heads before and after a normalizer: see `TalkingHeads`.

    Args:
        before: ``[heads, heads]``, mixes scores; None: no mixing.
        after: ``[heads, heads]``, mixes weights; None: no mixing.
        normalizer: in any form that `as_normalizer` accepts.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> exchange = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> normalizers.talking_heads(after=exchange)(torch.tensor([[[0.0, 0.0]], [[1.0, 0.0]]]))
        tensor([[[0.7311, 0.2689]],
        <BLANKLINE>
                [[0.5000, 0.5000]]])
    """
    return TalkingHeads(before, after, as_normalizer(normalizer))


over_queries = OverQueries()
"""Competition of the queries for each key (Locatello et al. 2020)."""

sinkhorn = Sinkhorn()
"""Five normalizations of rows and columns (Sander et al. 2022)."""

entmax15 = Entmax(1.5)
"""Entmax with alpha 1.5 (Peters et al. 2019)."""

monotonic, stepwise, forward = Monotonic(), Stepwise(), ForwardAlignment()
"""Their weights begin at those of the query before (Raffel et al. 2017; He et al. 2019; Zhang et al. 2018)."""

_NAMED_NORMALIZERS: dict[str, Normalizer] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "sigmoid": sigmoid,
    "hard": Hard("argmax"),
    "over_queries": over_queries,
    "sinkhorn": sinkhorn,
    "identity": identity,
    "ratio": ratio,
    "squared_relu": squared_relu,
    "softpick": softpick,
    "signed_softmax": signed_softmax,
    "scalable_softmax": scalable_softmax,
    "stick_breaking": stick_breaking,
    "monotonic": monotonic,
    "stepwise": stepwise,
    "forward": forward,
}
_CONSTRUCTORS = {
    "entmax": (entmax, "alpha"),
    "softmax_with_sink": (softmax_with_sink, "sink"),
    "local_gaussian": (local_gaussian, "normalizer, center, sigma"),
    "hard": (hard, "mode"),
    "top_k": (top_k, "k"),
    "top_p": (top_p, "p"),
    "query_temperature": (query_temperature, "temperature"),
    "talking_heads": (talking_heads, "before, after"),
}


def own_normalizer(value: object) -> Normalizer:
    """Converts a value with `as_normalizer` for a module that keeps it (`regard.tracing.ownership.own_copy`).

    Example:
        >>> from regard import normalizers
        >>> normalizers.own_normalizer("softmax") is normalizers.softmax
        False
    """
    return own_copy(as_normalizer(value))


def as_normalizer(value: object) -> Normalizer:
    """Converts a value to a normalizer.

    Args:
        value: a `Normalizer`; a name (``softmax``, ``sparsemax``, ``entmax15``, ``sigmoid``, ``over_queries``,
            ``sinkhorn``, ``identity``, ``ratio``, ``squared_relu``, ``softpick``, ``signed_softmax``,
            ``scalable_softmax``, ``stick_breaking``, ``monotonic``, ``stepwise``, ``forward``, or ``hard`` for its
            argmax); or a function ``(scores [..., keys]) -> weights`` that normalizes the last axis, which becomes a
            `Custom`.

    Raises:
        UnknownNameError: no normalizer has this name.
        ArgumentError: the value is a constructor, or names one, that needs arguments.
        KindError: the value is anything else.

    Example:
        >>> from regard import normalizers
        >>> normalizers.as_normalizer("entmax15")
        Entmax(alpha=1.5)
    """
    if isinstance(value, str) and value in _NAMED_NORMALIZERS:
        return _NAMED_NORMALIZERS[value]
    if isinstance(value, Normalizer):
        return value
    for name, (constructor, arguments) in _CONSTRUCTORS.items():
        if value is constructor or value == name:
            raise ArgumentError(f"normalizer {name!r} needs arguments: pass normalizers.{name}({arguments})")
    if isinstance(value, str):
        names = {*_NAMED_NORMALIZERS, *_CONSTRUCTORS}
        raise UnknownNameError("normalizer", value, names, written_here("normalizer", value))
    if isinstance(value, type) and issubclass(value, Normalizer):
        raise KindError(f"normalizer must be an instance; got the class {value.__name__}: call it first")
    if not callable(value) or isinstance(value, type):
        raise KindError(f"normalizer must be a Normalizer, a name or a function of scores; it is {type_text(value)}")
    return Custom(cast(Callable[[Tensor], Tensor], value))
