"""The cells of a table as texts: what tables in a terminal and in a notebook are made of."""

from collections.abc import Sequence

from torch import Tensor

from regard.explanations.number_texts import finite_or_text, is_whole

LIMIT = 12
"""Rows or columns of a table beyond which its middle is left out."""

LONGEST_LABEL = 24
"""Letters of a label beyond which its end is left out."""


class MatrixTexts:
    """A matrix with labels as texts, all numbers with the same number of decimals.

    Args:
        matrix: ``[rows, columns]``.
        rows: a label for each row.
        columns: a label for each column.
        decimals: most digits after the point; as few are written as say every number exactly.
    """

    def __init__(self, matrix: Tensor, rows: Sequence[str], columns: Sequence[str], *, decimals: int):
        self.matrix, self.rows, self.columns = matrix.detach().double().cpu(), rows, columns
        exact = (digits for digits in range(decimals) if is_whole(self.matrix * 10**digits, tolerance=1e-9))
        self.digits = next(exact, decimals)
        self.shown_rows = shortened(len(rows), LIMIT)

    @property
    def labels(self) -> list[str]:
        """The labels of the rows that are shown; "…" where rows are left out."""
        return ["…" if row is None else clipped(self.rows[row]) for row in self.shown_rows]

    def column(self, column: int | None) -> list[str]:
        """The label of a column, then its cells in the rows that are shown; None: a column of "…"."""
        if column is None:
            return ["…"] * (len(self.shown_rows) + 1)
        cells = (
            "…" if row is None else finite_or_text(self.matrix[row, column].item(), self.digits)
            for row in self.shown_rows
        )
        return [clipped(self.columns[column]), *cells]


def clipped(label: str) -> str:
    """A label in one line, without the end of a long one; what would steer a terminal is escaped."""
    # Imported here, because `import regard` imports no pictures.
    from regard.pictures.fonts import visible

    return visible(label, LONGEST_LABEL)


def shortened(size: int, most: int) -> list[int | None]:
    """All indices, or the first and last of many with a None between: at most ``most``, which is at least 3."""
    if size <= most:
        return list(range(size))
    last = 2 if most > 4 else 1
    return [*range(most - last - 1), None, *range(size - last, size)]
