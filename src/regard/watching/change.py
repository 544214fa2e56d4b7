"""One change of attention: where, and what stands there instead."""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from torch import Tensor

from regard.errors import ArgumentError, KindError
from regard.names.answered import answered
from regard.records.attention_record import Kind
from regard.shapes.checks import check_floating, known_name, type_text, whole_number
from regard.summaries import value_summary

What = Literal["query", "key", "scores", "weights", "values", "output"]

STAGES: tuple[What, ...] = ("query", "key", "scores", "weights", "values", "output")
"""What can be changed, in the order in which changes of one call are applied."""

AXES = {
    "query": "[batch, heads, queries, dim]",
    "key": "[batch, heads, keys, dim]",
    "scores": "[batch, heads, queries, keys]",
    "weights": "[batch, heads, queries, keys]",
    "values": "[batch, heads, keys, value_dim]",
    "output": "[batch, heads, queries, value_dim]",
}
"""The axes of what is changed, of the chosen heads, queries and keys alone."""

Positions = int | slice | Sequence[int] | None


@runtime_checkable
class EarlierRun(Protocol):
    """The context of another run: `regard.watching.Watch`, whose file imports those that change calls."""

    calls: list[Any]

    def stitched(self) -> list[Any]: ...


@answered
@dataclass(frozen=True, eq=False)
class Change:
    """Elements of a model's attention, and what stands there instead: an argument of `regard.intervene`.

    ==============  ================================================================================================
    what            elements, of the chosen heads and positions
    ==============  ================================================================================================
    ``"query"``     queries as they are compared, ``[batch, heads, queries, dim]``
    ``"key"``       keys as they are compared, ``[batch, heads, keys, dim]``
    ``"scores"``    scores after scale, cap, bias and mask, ``[batch, heads, queries, keys]``. The mask still hides: a
                    hidden pair has the score −∞, whatever stands there; −∞ as the new score hides a pair.
    ``"weights"``   weights before dropout, ``[batch, heads, queries, keys]``; they are not renormalized. A hidden pair
                    has the weight 0, whatever stands there.
    ``"values"``    ``[batch, heads, keys, value_dim]``
    ``"output"``    the sum of values before the output projection, ``[batch, heads, queries, value_dim]``
    ==============  ================================================================================================

    Heads are query heads: one that shares keys and values with others has its own changed copy of them.

    Args:
        what: what is changed, as above.
        to: what stands there instead. A number; a tensor that broadcasts to the elements; a function that gets the
            elements and returns as many, or ones that broadcast to them over axes of size 1; or a `regard.watch` of
            another run: its elements of the same module, forward pass, heads and positions. It must have kept them:
            ``outputs=True`` for outputs and values, ``read="view"`` for weights, ``keep=True`` for all but outputs.
        layer: the number of the layer, from 0, or several; None: all.
        head: the number of the query head, from 0, or several; None: all.
        kind: only attention of this kind: ``"self"`` (causal or not), ``"causal"`` (the decoder's, beside an
            encoder) or ``"cross"``; None: all.
        queries: positions of queries, from 0, an integer, a slice or several integers; None: all. They count from the
            first token of the sequence, that of a cache included. Negative ones count from the end, and are refused
            where a cache precedes the queries.
        keys: positions of keys, as for queries.

    Raises:
        KindError, ArgumentError, UnknownNameError: bad arguments.

    Example:
        >>> import regard
        >>> regard.Change("weights", 0.0, layer=3, head=1, keys=0).what
        'weights'
    """

    what: What
    to: "float | Tensor | Callable[[Tensor], Tensor] | EarlierRun"
    _: KW_ONLY
    layer: int | Sequence[int] | None = None
    head: int | Sequence[int] | None = None
    kind: Kind | None = None
    queries: Positions = None
    keys: Positions = None

    def __post_init__(self) -> None:
        known_name("what", self.what, STAGES)
        if self.kind is not None:
            known_name("kind", self.kind, get_args(Kind))
        for name in ("layer", "head", "queries", "keys"):
            chosen = getattr(self, name)
            is_position = name in ("queries", "keys")
            if is_position and chosen is not None and name not in AXES[self.what]:
                raise ArgumentError(f"{name} has no meaning for {self.what!r}, which has the axes {AXES[self.what]}")
            numbers = _positions(name, chosen) if is_position else chosen_numbers(name, chosen)
            if isinstance(numbers, tuple) and len(set(numbers)) < len(numbers):
                raise ArgumentError(f"{name} must name each one once; it is {list(numbers)}")
            object.__setattr__(self, name, numbers)
        self._check_elements()

    def _check_elements(self) -> None:
        to = self.to
        if isinstance(to, Tensor):
            check_floating("to", to)
            if to.dim() > 4:
                raise ArgumentError(f"to must broadcast to {AXES[self.what]}; it has shape {list(to.shape)}")
            if to.is_meta:
                raise ArgumentError("to must have elements; it is on the meta device, which has none")
        elif isinstance(to, Real) and not isinstance(to, bool):
            if math.isnan(to) or (math.isinf(to) and (self.what != "scores" or float(to) > 0)):
                raise ArgumentError(f"to must be finite{', or −∞' if self.what == 'scores' else ''}; it is {to}")
            object.__setattr__(self, "to", float(to))
        elif not (isinstance(to, EarlierRun) or callable(to)) or isinstance(to, type):
            raise KindError(
                f"to must be a number, a tensor, a function or a regard.watch of another run; it is {type_text(to)}"
            )

    def heads(self, count: int) -> tuple[int, ...]:
        """Returns the chosen heads of a call that has this number of them."""
        return tuple(range(count)) if self.head is None else self.head  # type: ignore[return-value]

    @property
    def layers(self) -> tuple[int, ...] | None:
        """The numbers of the layers; None: all."""
        return self.layer  # type: ignore[return-value]

    def is_of(self, layer: int, is_cross: bool) -> bool:
        """Whether it may name the calls of a layer: by its kind, of which ``"causal"`` is told by the call."""
        is_kind = self.kind is None or (self.kind == "cross") == is_cross
        return is_kind and (self.layers is None or layer in self.layers)

    @property
    def has_positions(self) -> bool:
        """Whether it names some queries or keys."""
        return self.queries is not None or self.keys is not None

    def __repr__(self) -> str:
        shown = [repr(self.what), value_summary(getattr(self.to, "__name__", self.to))]
        for name in ("layer", "head", "kind", "queries", "keys"):
            chosen = getattr(self, name)
            if chosen is not None:
                single = chosen[0] if isinstance(chosen, tuple) and len(chosen) == 1 else chosen
                shown.append(f"{name}={list(single) if isinstance(single, tuple) else single!r}")
        return f"Change({', '.join(shown)})"


def axis_names(what: What) -> list[str]:
    """Returns the names of the four axes of what is changed."""
    return AXES[what].strip("[]").split(", ")


def chosen_numbers(name: str, chosen: Any, low: int | None = 0) -> tuple[int, ...] | None:
    """Returns the numbers of layers, heads or positions that an argument names; None means all."""
    if chosen is None:
        return None
    if isinstance(chosen, (Tensor, np.ndarray)):
        chosen = chosen.tolist()
    if isinstance(chosen, str) or not isinstance(chosen, (Sequence, range, set, frozenset)):
        return (whole_index(name, chosen, low),)
    numbers = tuple(whole_index(f"{name}[{index}]", each, low) for index, each in enumerate(chosen))
    if not numbers:
        raise ArgumentError(f"{name} must name at least one; None means all")
    return numbers


def whole_index(name: str, index: Any, low: int | None = 0) -> int:
    """Returns an index, also of NumPy or in a tensor without axes, as an int; raises as `whole_number`."""
    if isinstance(index, (Tensor, np.ndarray)) and not index.ndim:
        index = index.item()
    return whole_number(name, index, low)


def _positions(name: str, chosen: Any) -> slice | tuple[int, ...] | None:
    if not isinstance(chosen, slice):
        return chosen_numbers(name, chosen, low=None)
    for each in (chosen.start, chosen.stop, chosen.step):
        if each is not None:
            whole_number(name, each)
    if chosen.step is not None and chosen.step < 1:
        raise ArgumentError(f"{name} must have a step of at least 1; it is {chosen.step}")
    return chosen
