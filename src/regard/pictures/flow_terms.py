"""The matrices of a calculation that is drawn as a flow."""

from collections.abc import Sequence
from typing import NamedTuple

from regard.pictures.calculation import Panel


class Term(NamedTuple):
    """A matrix of a flow, after the operation that leads to it.

    Attributes:
        sign: the operation; "" at the beginning of a lane.
        asks, looked_at: the rows of the traced query and of its key, or None.
        column: the column of the traced key, or None.
        outlined: the first and the last of the columns that belong to the shown head, or None.
    """

    sign: str
    panel: Panel
    asks: int | None = None
    looked_at: int | None = None
    column: int | None = None
    outlined: tuple[int, int] | None = None


class Flow(NamedTuple):
    """A calculation to draw.

    Attributes:
        lanes: the matrices up to the queries, up to the keys, and up to the values. Lanes that begin with the same
            panel share it; equal lanes are drawn once.
        scores: from the scores to the weights; the first sign is the comparison, such as ``"query · keyᵀ"``.
        result: from the output on; the first sign is ``"weights × value"``.
        asks, looked_at: the names of the traced query and of its key.
        sentences: the first says what is traced; the others are its calculation.
        language: ``"en"`` or ``"zh"``, of all words but the names of rows and columns.
    """

    lanes: Sequence[Sequence[Term]]
    scores: Sequence[Term]
    result: Sequence[Term]
    asks: str
    looked_at: str
    sentences: Sequence[str]
    language: str = "en"
