"""Layers and models within `regard.distributed.sequence` give what they give on the whole sequence."""

import pytest

from sharded_layers import CASES, ORDERS


@pytest.fixture
def group(groups):
    """Three processes, of which no two have as much of every sequence."""
    return groups(3)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CASES)
def test_a_layer_gives_what_it_gives_on_the_whole(group, name, order):
    for differences in group.call("sharded_layers", "layer", name, order):
        assert max(differences) < 1e-11, differences


def test_layers_that_need_whole_sequences_are_refused(group):
    for found in group.call("sharded_layers", "refused"):
        for name, error in found.items():
            assert error.startswith("ArgumentError: "), (name, error)
            assert "needs whole sequences, and within regard.distributed.sequence" in error, (name, error)


@pytest.mark.parametrize("order", ORDERS)
def test_watched_parts_give_the_readings_of_the_whole(group, order):
    for differences in group.call("sharded_layers", "watched", order):
        assert len(differences) == 16
        assert max(differences.values()) < 1e-12, differences


def test_a_survey_of_texts_in_parts_gives_the_statistics_of_whole_texts(group):
    assert max(group.call("sharded_layers", "surveyed")) < 1e-12
