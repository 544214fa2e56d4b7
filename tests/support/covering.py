"""Samples of a grid of cases in which each pair of values occurs at least once.

A fault that shows only for one score with one mask is met by a sample in which every score meets every mask; the full
grid repeats it with each dtype, backend and size. ``pytest --full`` runs the full grid.

    @covering(score=SCORES, mask=MASKS, dtype=(torch.float32, torch.bfloat16))
    def test_a_law(score, mask, dtype): ...
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from torch import Tensor


def covering(
    where: Callable[..., bool] | None = None, sample_where: Callable[..., bool] | None = None, **axes: Iterable
) -> pytest.MarkDecorator:
    """Parametrizes a test over a sample of the product of the axes, or over all of it with ``--full``.

    Args:
        where: called with a row of the product, by the names of the axes; only rows for which it is true are cases, and
            the sample has each pair of values that such a row has. None takes all rows.
        sample_where: the same, and without ``--full`` only: which rows the sample is taken from.
        axes: the values of each argument of the test; the keys of a mapping.
    """
    return pytest.mark.covering({name: list(values) for name, values in axes.items()}, where, sample_where)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Applies the marks that `covering` made; ``pytest_generate_tests`` calls this."""
    for mark in metafunc.definition.iter_markers("covering"):
        axes, where, sample_where = mark.args
        values = list(axes.values())
        is_full = metafunc.config.getoption("full")
        conditions = [condition for condition in (None if is_full else sample_where, where) if condition is not None]
        rows = [
            row
            for row in itertools.product(*values)
            if all(condition(**dict(zip(axes, row, strict=True))) for condition in conditions)
        ]
        if not is_full:
            rows = pairwise_of(rows) if conditions else pairwise(values)
        cases = [pytest.param(*row, id="-".join(map(_identifier, row))) for row in rows]
        metafunc.parametrize(list(axes), cases)


def pairwise(axes: Sequence[Sequence]) -> list[tuple]:
    """Rows with one value of each axis, so that each pair of values of two axes is in a row; always the same rows.

    Each row begins with the first pair that is missing, and takes for every other axis, in order of size, the value
    that adds most missing pairs; among equals the one that was taken least. That is close to the smallest sample, whose
    size is at least the product of the two largest axes.
    """
    sizes = [len(axis) for axis in axes]
    return [tuple(axis[index] for axis, index in zip(axes, row, strict=True)) for row in _rows(sizes)]


def pairwise_of(rows: Sequence[tuple]) -> list[tuple]:
    """Some of the rows, so that each pair of values of two axes that a row has is in one of these; of one axis all."""
    if rows and len(rows[0]) == 1:
        return list(rows)
    pairs = [set(itertools.combinations(enumerate(row), 2)) for row in rows]
    missing, chosen = set().union(*pairs), []
    while missing:
        best = max(range(len(rows)), key=lambda row: len(pairs[row] & missing))
        missing -= pairs[best]
        chosen.append(rows[best])
    return chosen


def _rows(sizes: list[int]) -> Iterator[tuple[int, ...]]:
    if len(sizes) < 2 or 0 in sizes:
        yield from itertools.product(*map(range, sizes))
        return
    order = sorted(range(len(sizes)), key=lambda axis: -sizes[axis])
    missing = {
        (one, i, other, j): None
        for one, other in itertools.combinations(order, 2)
        for i, j in itertools.product(range(sizes[one]), range(sizes[other]))
    }
    taken = [[0] * size for size in sizes]
    while missing:
        one, i, other, j = next(iter(missing))
        row = {one: i, other: j}
        for axis in order:
            if axis not in row:
                row[axis] = max(
                    range(sizes[axis]),
                    key=lambda value, axis=axis, row=row: (
                        sum(_pair(order, axis, value, *fixed) in missing for fixed in row.items()),
                        -taken[axis][value],
                    ),
                )
        for (axis, value), (another, further) in itertools.combinations(row.items(), 2):
            missing.pop(_pair(order, axis, value, another, further), None)
        for axis, value in row.items():
            taken[axis][value] += 1
        yield tuple(row[axis] for axis in range(len(sizes)))


def _pair(order: list[int], one: int, i: int, other: int, j: int) -> tuple[int, int, int, int]:
    """The key of a pair, its axes in order."""
    return (one, i, other, j) if order.index(one) < order.index(other) else (other, j, one, i)


def _identifier(value: object) -> str:
    """A value's part of a test's name."""
    if isinstance(value, Tensor):
        return str(value.tolist())
    return getattr(value, "__name__", None) or str(value)
