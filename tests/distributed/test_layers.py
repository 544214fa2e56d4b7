"""Layers and models within `regard.distributed.sequence` give what they give on the whole sequence."""

import pytest

from process_groups import ProcessGroup
from sharded_layers import CASES, ORDERS


@pytest.fixture(scope="module")
def group():
    """Three processes, of which no two have as much of every sequence."""
    group = ProcessGroup(3)
    yield group
    group.close()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CASES)
def test_a_layer_gives_what_it_gives_on_the_whole(group, name, order):
    for differences in group.call("sharded_layers", "layer", name, order):
        assert max(differences) < 1e-11, differences


def test_what_needs_whole_sequences_is_refused(group):
    for found in group.call("sharded_layers", "refused"):
        for name, error in found.items():
            assert error.startswith("ArgumentError: "), (name, error)
            assert "needs whole sequences, and within regard.distributed.sequence" in error, (name, error)
