"""Batches of any examples: each example once an epoch, in an order that can be resumed."""

import itertools

import numpy as np
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


LENGTHS = np.array([(7 * number) % 31 for number in range(53)])


@pytest.mark.parametrize("width", [1, 4])
def test_a_batch_has_examples_of_similar_lengths(width):
    loader = Batches(range(53), 5, list, lengths=LENGTHS, bucket_width=width, seed=2)
    first, second = list(loader), list(loader)
    assert first != second
    buckets = -(-LENGTHS // width)
    order = {number: rank for rank, number in enumerate(np.argsort(LENGTHS, kind="stable").tolist())}
    for epoch in (first, second):
        assert sorted(itertools.chain(*epoch)) == list(range(53))
        # Batches never mix buckets but at their ends.
        bounds = sorted((buckets[batch].min(), buckets[batch].max()) for batch in epoch)
        assert all(after[0] >= before[1] for before, after in itertools.pairwise(bounds))
    in_order = list(itertools.chain(*Batches(range(53), 5, list, lengths=LENGTHS, shuffle=False)))
    assert [order[number] for number in in_order] == list(range(53))


def test_limits_and_the_number_of_examples_hold_together():
    lengths = np.stack([LENGTHS, 2 * LENGTHS[::-1]], 1)
    for batch in Batches(range(53), 6, list, lengths=lengths, limits=(90, 150), bucket_width=3):
        assert len(batch) <= 6
        assert len(batch) == 1 or (len(batch) * lengths[batch].max(0) <= (90, 150)).all()


def test_the_examples_of_an_epoch_can_be_drawn():
    def drawn(random):
        return random.integers(0, 1000, 17).tolist()

    def loader():
        return Batches(drawn, 3, list, lengths=np.array, seed=4)

    whole = loader()
    epochs = [list(whole) for _ in range(3)]
    assert {len(epoch) for epoch in epochs} == {6}
    assert sorted(itertools.chain(*epochs[0])) != sorted(itertools.chain(*epochs[1]))
    resumed = loader()
    resumed.load_state_dict({"epoch": 1, "position": 4})
    assert list(resumed) + list(resumed) == epochs[1][4:] + epochs[2]
    assert whole.state_dict() == {"epoch": 3, "position": 0}


def test_batches_refuse_numbers_out_of_range():
    for make in (
        lambda: Batches(EXAMPLES, 0, list),
        lambda: Batches([], 3, list),
        lambda: batches(rank=2, world_size=2),
        lambda: batches().load_state_dict({"epoch": 0, "position": 7}),
    ):
        with pytest.raises(ArgumentError):
            make()
