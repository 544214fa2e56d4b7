"""The bins of lengths fit the data: none is empty, none has everything."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from regard.tasks.outputs.text_metrics import LEAST_IN_BIN, MOST_BINS, bleu_by_length, length_bins


@given(st.lists(st.integers(0, 40), max_size=150))
def test_bins_are_a_partition_from_short_to_long(lengths):
    bins = length_bins(lengths)
    if len(set(lengths)) < 2:
        assert bins == []
        return
    assert sorted(position for part in bins for position in part) == list(range(len(lengths)))
    assert 2 <= len(bins) <= MOST_BINS
    assert all(bins)
    for shorter, longer in itertools.pairwise(bins):
        assert max(lengths[position] for position in shorter) < min(lengths[position] for position in longer)


@given(st.permutations(range(100)))
def test_bins_of_different_lengths_are_equally_large(lengths):
    sizes = [len(part) for part in length_bins(lengths)]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= LEAST_IN_BIN


def test_a_bin_is_named_after_its_lengths():
    sources = ["a b"] * 11 + ["a b c d"] * 6 + ["a b c d e"] * 6
    bins = bleu_by_length(sources, sources, sources)
    assert [(one.label, one.pairs, round(one.bleu)) for one in bins] == [("2–4", 17, 100), ("5", 6, 100)]
    assert bleu_by_length(["a b"] * 5, ["a b"] * 5, ["a b"] * 5) == []
