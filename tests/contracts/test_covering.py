"""Samples of a grid: each pair of values at least once, few rows, always the same."""

import itertools
from types import SimpleNamespace

import pytest

from covering import covering, pairwise, pairwise_of
from covering import parametrize as covering_cases

GRIDS = [(15, 8, 2, 15), (9, 6, 3), (2, 2, 2, 2), (7, 5), (3,), (1, 4, 1), (2, 3, 4, 5, 6), (16, 2, 2, 2, 2, 3)]


@pytest.mark.parametrize("sizes", GRIDS, ids=str)
def test_each_pair_of_values_is_in_a_row(sizes):
    axes = [[f"{axis}{value}" for value in range(size)] for axis, size in enumerate(sizes)]
    rows = pairwise(axes)
    assert len(set(rows)) == len(rows)
    for one, other in itertools.combinations(range(len(sizes)), 2):
        assert {(row[one], row[other]) for row in rows} == set(itertools.product(axes[one], axes[other]))
    for axis, values in enumerate(axes):
        assert {row[axis] for row in rows} == set(values)
    largest = sorted(sizes)[-2:]
    least = largest[0] * largest[-1] if len(sizes) > 1 else sizes[0]
    assert least <= len(rows) <= 1.5 * least + 3
    assert rows == pairwise(axes)


def test_an_axis_without_values_has_no_rows():
    assert pairwise([[1, 2], [], [3]]) == []


def test_each_pair_of_values_that_some_row_has_is_in_the_sample():
    whole = [row for row in itertools.product(range(5), "abc", (True, False)) if row[0] != 3 or row[1] == "b"]
    sample = pairwise_of(whole)
    assert set(sample) < set(whole)
    assert len(sample) <= 16
    for one, other in itertools.combinations(range(3), 2):
        assert {(row[one], row[other]) for row in sample} == {(row[one], row[other]) for row in whole}


def test_of_one_axis_every_row_is_in_the_sample():
    assert pairwise_of([("a",), ("b",)]) == [("a",), ("b",)]
    assert pairwise_of([]) == []


@covering(one=range(5), other="ab", where=lambda one, other: one != 3 or other == "b")
def test_a_mark_leaves_rows_out(one, other):
    assert (one, other) != (3, "a")


@covering(one=range(5), other="ab", third=(True, False))
def test_a_mark_gives_a_test_its_arguments(one, other, third):
    assert one in range(5)
    assert other in "ab"
    assert third in (True, False)


def cases_of(decorator, full):
    """The names and the cases that a test with this mark is given."""
    given = []
    definition = SimpleNamespace(iter_markers=lambda name: [decorator.mark])
    config = SimpleNamespace(getoption={"full": full}.__getitem__)
    covering_cases(
        SimpleNamespace(definition=definition, config=config, parametrize=lambda *cases: given.append(cases))
    )
    (case,) = given
    return case


@pytest.mark.parametrize("full", [False, True])
def test_the_option_asks_for_the_full_grid(full):
    axes = {"one": range(5), "other": "ab", "third": (True, False)}
    names, cases = cases_of(covering(**axes), full)
    assert names == list(axes)
    expected = list(itertools.product(*axes.values())) if full else pairwise([list(axis) for axis in axes.values()])
    assert [case.values for case in cases] == expected
    assert cases[0].id == "0-a-True"


@pytest.mark.parametrize("full", [False, True])
def test_the_full_grid_has_the_rows_that_the_sample_leaves_out(full):
    mark = covering(
        one=range(3), other="ab", where=lambda one, other: one, sample_where=lambda one, other: other == "a"
    )
    _, cases = cases_of(mark, full)
    expected = [(1, "a"), (1, "b"), (2, "a"), (2, "b")] if full else [(1, "a"), (2, "a")]
    assert sorted(case.values for case in cases) == expected
