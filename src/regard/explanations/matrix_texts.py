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
        additive: whether what is left out of a row is summed, as weights may be.
    """

    def __init__(
        self, matrix: Tensor, rows: Sequence[str], columns: Sequence[str], *, decimals: int, additive: bool = False
    ):
        self.additive = additive
        self.matrix, self.rows, self.columns = matrix.detach().double().cpu(), rows, columns
        exact = (digits for digits in range(decimals) if is_whole(self.matrix * 10**digits, tolerance=1e-9))
        self.digits = next(exact, decimals)
        self.shown_rows = shortened(len(rows), LIMIT)

    @property
    def labels(self) -> list[str]:
        """The labels of the rows that are shown; how many are left out."""
        left_out = f"… {len(self.rows) - len(self.shown_rows) + 1} more"
        return [left_out if row is None else clipped(self.rows[row]) for row in self.shown_rows]

    def drawn(self, most: int) -> list[list[str]]:
        """At most so many columns: the label of each, then its cells in the rows that are shown.

        Columns that are left out are one, with their number; of weights it has their sums.
        """
        shown = shortened(len(self.columns), most)
        return [self._left_out(shown) if column is None else self._column(column) for column in shown]

    def _left_out(self, shown: Sequence[int | None]) -> list[str]:
        columns = sorted(set(range(len(self.columns))) - set(shown))
        label = f"… {len(columns)} more"
        if not self.additive:
            return [label] + ["…"] * len(self.shown_rows)
        sums = self.matrix[:, columns].sum(-1)
        cells = ("…" if row is None else finite_or_text(sums[row].item(), self.digits) for row in self.shown_rows)
        return [f"{label}, sum", *cells]

    def _column(self, column: int) -> list[str]:
        cells = (
            "…" if row is None else finite_or_text(self.matrix[row, column].item(), self.digits)
            for row in self.shown_rows
        )
        return [clipped(self.columns[column]), *cells]


def clipped(label: str) -> str:
    """A label in one line, without the end of a long one; what would steer a terminal is escaped."""
    # Imported here, because `import regard` imports no pictures.
    from regard.pictures.fonts import visible_token

    return visible_token(label, LONGEST_LABEL)


def shortened(size: int, most: int) -> list[int | None]:
    """All indices, or the first and last of many with a None between: at most ``most``, which is at least 3."""
    if size <= most:
        return list(range(size))
    last = 2 if most > 4 else 1
    return [*range(most - last - 1), None, *range(size - last, size)]
