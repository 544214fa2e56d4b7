"""The parts of a head's scores by what wrote to the residual stream."""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import ShapeError
from regard.records.axis import as_numbers

WriteKind = Literal["embedding", "position", "head", "module", "cache", "input", "constant", "bias", "others"]

_KINDS: tuple[WriteKind, ...] = (
    *("embedding", "position", "input", "constant", "head", "cache", "module", "bias", "others"),
)
_POSITION = re.compile(r"pos|wpe", re.IGNORECASE)
_LAYER = re.compile(r"(?:^|\.)(\d+)\.(.+)$")


@dataclass(frozen=True)
class WriteSource:
    """What wrote a part of the residual stream.

    Attributes:
        kind: ``"embedding"``, ``"position"``, ``"head"``, ``"module"`` (not linear), ``"cache"`` (the keys of a static
            cache, from all that wrote them), ``"input"`` (of the model, or of the module before which nothing is
            known), ``"constant"`` (the same for every input), ``"bias"`` (of all linear modules together) or
            ``"others"`` (small sources that are added up).
        name: the module's name in the model; of a head that of its attention.
        layer: the number of its layer; None if it is in none.
        head: the number of the head; None: no head, or those of the attention that the watch does not have.

    Example:
        >>> from regard import records
        >>> records.WriteSource("head", "layers.1.self_attn", 1, 3).label
        'head 3 of layer 1'
    """

    kind: WriteKind
    name: str = ""
    layer: int | None = None
    head: int | None = None

    @classmethod
    def of(cls, kind: WriteKind, name: str) -> "WriteSource":
        """Returns the source of a module."""
        if kind in ("bias", "constant"):
            return cls(kind)
        if kind == "embedding" and _POSITION.search(name.rpartition(".")[2]):
            return cls("position", name)
        layer = _LAYER.search(name)
        return cls(kind, name, None if layer is None else int(layer[1]))

    @property
    def module(self) -> str:
        """The module's name, without that of its layer."""
        layer = _LAYER.search(self.name)
        return layer[2] if layer else self.name

    @property
    def label(self) -> str:
        """The source in a few words."""
        if self.kind == "head":
            return f"{'other heads' if self.head is None else f'head {self.head}'} of layer {self.layer}"
        if self.kind == "module":
            return self.module if self.layer is None else f"{self.module} of layer {self.layer}"
        if self.kind == "cache":
            return f"static cache{'' if self.layer is None else f' of layer {self.layer}'}, one part"
        if self.kind == "input":
            return f"input of {self.name}" if self.name else "input"
        return "biases" if self.kind == "bias" else self.kind

    @property
    def order(self) -> tuple[object, ...]:
        """Sorts sources by where they are in a model."""
        first = self.kind not in ("head", "module", "cache")
        layer = -1 if first or self.layer is None else self.layer
        return (
            self.kind in ("bias", "others"),
            layer,
            _KINDS.index(self.kind),
            self.name,
            -1 if self.head is None else self.head,
        )


@dataclass(frozen=True, eq=False)
class ScoreParts:
    """What each source adds to the scaled scores of a head, in the query and in the key.

    Attributes:
        sources: what wrote the parts.
        of_query: ``float64 [sources, queries, keys]``: what the source's part of the query adds, with the whole key.
        of_key: likewise what its part of the key adds, with the whole query.

    Raises:
        ShapeError: numbers of another shape.

    Example:
        >>> from regard import records
        >>> sources = records.WriteSource("embedding"), records.WriteSource("head", "layers.0.attn", 0, 1)
        >>> records.ScoreParts(sources, [[[0.5]], [[1.0]]], [[[0.0]], [[1.5]]]).of_key.sum(0)
        array([[1.5]])
    """

    sources: tuple[WriteSource, ...]
    of_query: NDArray[np.float64]
    of_key: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("of_query", "of_key"):
            object.__setattr__(self, name, as_numbers(name, getattr(self, name)).astype(np.float64))
        if (
            self.of_query.ndim != 3
            or {len(self.sources)} != {len(self.of_query), len(self.of_key)}
            or (self.of_query.shape != self.of_key.shape)
        ):
            raise ShapeError(
                f"of_query and of_key must be [{len(self.sources)}, queries, keys]; their shapes are "
                f"{list(self.of_query.shape)} and {list(self.of_key.shape)}"
            )
