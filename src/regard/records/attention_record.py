"""The weights of one attention call, or a source of their tiles, with what its queries and keys are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.records.axis import Axis, FrameAxis, GridAxis, TokenAxis, as_numbers
from regard.records.tile_source import TileSource

Kind = Literal["self", "causal", "cross"]


@dataclass(frozen=True, eq=False, repr=False)
class AttentionRecord:
    """One attention call of a model.

    Attributes:
        name: of the module, such as ``"encoder.layer.0.attention"``.
        layer: from 0.
        kind: ``"self"``, ``"causal"`` or ``"cross"``.
        queries: what the rows are.
        keys: what the columns are.
        weights: float32 ``[heads, queries, keys]`` before dropout, at least 0 or NaN; None if there is a source.
        visible: bool ``[queries, keys]`` or ``[heads, queries, keys]``; False is masked. None: everything is visible.
        source: gives tiles of the weights where they are not stored.

    Raises:
        ShapeError: shapes that do not fit the axes.
        ArgumentError: negative or infinite weights, or neither weights nor a source.
        KindError: an axis of another type, or ``visible`` is not boolean.
        UnknownNameError: an unknown kind.
    """

    name: str
    layer: int
    kind: Kind | str
    queries: Axis
    keys: Axis
    weights: NDArray[np.float32] | None
    visible: NDArray[np.bool_] | None = None
    source: TileSource | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise UnknownNameError("kind", self.kind, get_args(Kind))
        for side in ("queries", "keys"):
            axis = getattr(self, side)
            if not isinstance(axis, (TokenAxis, GridAxis, FrameAxis)):
                raise KindError(f"{side} must be a TokenAxis, GridAxis or FrameAxis; it is {type(axis).__name__}")
        if self.weights is None and self.source is None:
            raise ArgumentError("weights must be given where there is no source of tiles")
        lengths = (len(self.queries), len(self.keys))
        if self.weights is not None:
            object.__setattr__(self, "weights", _checked_weights(self.weights, lengths))
        if self.source is not None:
            found = (self.source.queries, self.source.keys)
            if found != lengths:
                raise ShapeError(f"source must have the {lengths} positions of queries and keys; it has {found}")
            if self.weights is not None and self.weights.shape[0] != self.source.heads:
                raise ShapeError(
                    f"source must have the {self.weights.shape[0]} heads of weights; it has {self.source.heads}"
                )
        if self.visible is not None:
            visible = as_numbers("visible", self.visible)
            if visible.dtype != np.bool_:
                raise KindError(f"visible must be boolean; it is {visible.dtype}")
            if visible.shape not in (lengths, (self.heads, *lengths)):
                raise ShapeError(
                    f"visible must be [queries, keys] = {list(lengths)} or with {self.heads} heads before; "
                    f"its shape is {list(visible.shape)}"
                )
            object.__setattr__(self, "visible", visible)

    @property
    def heads(self) -> int:
        """The number of heads."""
        if self.weights is not None:
            return self.weights.shape[0]
        assert self.source is not None, "checked by __post_init__"
        return self.source.heads

    def __repr__(self) -> str:
        stored = "weights" if self.weights is not None else "tiles"
        shape = [self.heads, len(self.queries), len(self.keys)]
        return f"AttentionRecord({self.name!r}, layer={self.layer}, kind={self.kind!r}, {stored} {shape})"


def _checked_weights(weights: NDArray[np.float32], lengths: tuple[int, int]) -> NDArray[np.float32]:
    array = as_numbers("weights", weights).astype(np.float32, copy=False)
    if array.ndim != 3 or array.shape[1:] != lengths or not array.shape[0]:
        raise ShapeError(
            f"weights must be [heads, queries, keys] with {lengths[0]} queries and {lengths[1]} keys; "
            f"the shape is {list(array.shape)}"
        )
    wrong = (array < 0) | np.isinf(array)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        raise ArgumentError(f"weights must be finite and at least 0, or NaN; weights{list(place)} is {array[place]}")
    return array
