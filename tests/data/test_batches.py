"""Batches of any examples: each example once an epoch, in an order that can be resumed."""

import itertools

import pytest

from regard.data.batches import Batches
from regard.errors import ArgumentError

EXAMPLES = [f"example {number}" for number in range(17)]


def batches(**options):
    return Batches(EXAMPLES, 3, list, **{"seed": 5, **options})


def test_every_example_once_an_epoch_in_another_order():
    loader = batches()
    first, second = list(loader), list(loader)
    assert len(first) == len(second) == len(loader) == 6
    for epoch in (first, second):
        assert sorted(itertools.chain(*epoch)) == sorted(EXAMPLES)
    assert first != second
    assert first == list(batches())
    assert first != list(batches(seed=6))


@pytest.mark.parametrize("position", range(7))
def test_a_state_continues_where_it_was(position):
    whole = batches()
    expected = list(itertools.chain(*(list(whole) for _ in range(4))))
    resumed = batches()
    resumed.load_state_dict({"epoch": 1, "position": position})
    rest = list(resumed) + list(resumed)
    assert rest == expected[6 + position :][: len(rest)]


def test_processes_share_the_batches_of_an_epoch():
    alone = list(batches())
    parts = [list(batches(rank=rank, world_size=4)) for rank in range(4)]
    assert {len(part) for part in parts} == {2}
    together = [batch for pair in zip(*parts, strict=True) for batch in pair]
    assert together == [*alone, *alone[:2]]


def test_numbers_out_of_range():
    for make in (
        lambda: Batches(EXAMPLES, 0, list),
        lambda: Batches([], 3, list),
        lambda: batches(rank=2, world_size=2),
        lambda: batches().load_state_dict({"epoch": 0, "position": 7}),
    ):
        with pytest.raises(ArgumentError):
            make()
