"""The worked calculation of one head: every intermediate matrix by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.records.axis import as_numbers

PAIRS = ("scores", "scaled", "capped", "biased", "masked", "weights")
"""Steps with a number for each (query, key), in the order of the calculation."""

ORDER = ("query", "key", "value", *PAIRS, "output")
NEEDED = ("query", "key", "value", "scores", "weights", "output")


@dataclass(frozen=True, eq=False, repr=False)
class StepsRecord:
    """One head of one attention call, step by step; the names are those of `regard.Explanation`.

    Attributes:
        name: such as ``"layer 0, head 3"``.
        matrices: float64 matrices by name. ``query [queries, dim]``, ``key [keys, dim]``, ``value [keys, value_dim]``,
            ``scores``, ``weights`` ``[queries, keys]`` and ``output [queries, value_dim]`` are there;
            ``scaled``, ``capped``, ``biased`` and ``masked`` ``[queries, keys]`` where the calculation has the step
            (``masked`` is −inf where the mask hides a key).
        query_labels: one for each query.
        key_labels: one for each key.
        score: what compares a query with a key: ``"dot"`` where ``scores = query · keyᵀ``, else another name.
        normalizer: such as ``"softmax"``.
        layer: of the model; None if there is none.
        head: from 0; None if there is none.

    Raises:
        UnknownNameError: a matrix of another name.
        ArgumentError: a matrix is missing.
        ShapeError: shapes that do not fit one another, or the labels.
    """

    name: str
    matrices: Mapping[str, NDArray[np.float64]]
    query_labels: tuple[str, ...]
    key_labels: tuple[str, ...]
    score: str = "dot"
    normalizer: str = "softmax"
    layer: int | None = None
    head: int | None = field(default=None)

    def __post_init__(self) -> None:
        for name in self.matrices:
            if name not in ORDER:
                raise UnknownNameError("matrix", name, ORDER)
        for name in NEEDED:
            if name not in self.matrices:
                raise ArgumentError(f"matrices must have {', '.join(NEEDED)}; {name} is missing")
        found = {
            name: as_numbers(f"matrices[{name!r}]", self.matrices[name]).astype(np.float64)
            for name in ORDER
            if name in self.matrices
        }
        queries, keys = len(self.query_labels), len(self.key_labels)
        dim, value_dim = found["query"].shape[-1:], found["value"].shape[-1:]
        expected = dict.fromkeys(PAIRS, (queries, keys)) | {
            "query": (queries, *dim),
            "key": (keys, *(dim if self.score == "dot" else found["key"].shape[-1:])),
            "value": (keys, *value_dim),
            "output": (queries, *value_dim),
        }
        for name, matrix in found.items():
            if matrix.ndim != 2 or matrix.shape != expected[name]:
                raise ShapeError(
                    f"matrices[{name!r}] must be {list(expected[name])} for {queries} query labels and {keys} key "
                    f"labels; its shape is {list(matrix.shape)}"
                )
        object.__setattr__(self, "matrices", found)
        object.__setattr__(self, "query_labels", tuple(map(str, self.query_labels)))
        object.__setattr__(self, "key_labels", tuple(map(str, self.key_labels)))

    def __repr__(self) -> str:
        return f"StepsRecord({self.name!r}, {len(self.query_labels)} queries, {len(self.key_labels)} keys)"
