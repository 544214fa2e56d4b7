"""One step of a calculation: a matrix with its name, a note and labels; tables and pictures are made from steps."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """One matrix of a calculation.

    Attributes:
        name: what it is, e.g. ``"W_query"``.
        note: how it is computed, in a few words.
        matrix: ``[rows, columns]``, detached.
        row_labels: one for each row.
        column_labels: one for each column.
        head: the head that it belongs to, from 0; None for what all heads share.
    """

    name: str
    note: str
    matrix: Tensor
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    head: int | None = None

    def __repr__(self) -> str:
        head = "" if self.head is None else f", head={self.head}"
        return f"Step({self.name!r}, {list(self.matrix.shape)}{head})"
