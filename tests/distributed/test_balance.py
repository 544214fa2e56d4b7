"""Balanced shards: all positions once, equally many on each process, and as much work for each."""

import pytest
import torch

from regard import masks
from regard.distributed.shards import balanced_spans

LENGTH = 8191
IDS = torch.arange(LENGTH).mul(7).remainder(LENGTH).lt(40).cumsum(0)

CASES = {
    "causal": (masks.causal(), 2),
    "window": (masks.window(512, 0), 1),
    "both sides": (masks.window(300, 300), 1),
    "prefix": (masks.causal() | masks.prefix(700), 2),
    "documents": (masks.documents(IDS), None),
    "causal documents": (masks.documents(IDS) & masks.causal(), None),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7, 16])
def test_the_busiest_process_has_at_most_a_tenth_more_than_the_mean(name, processes):
    mask, pieces = CASES[name]
    work = masks.work_of_keys(mask, LENGTH, LENGTH).double()
    spans = balanced_spans(work, processes)
    held = [torch.cat([torch.arange(span.start, span.stop) for span in own]) for own in spans]
    assert torch.equal(torch.cat(held).sort().values, torch.arange(LENGTH))
    loads = torch.stack([work[own].sum() for own in held])
    assert float(loads.max() / loads.mean()) < 1.1
    counts = [len(own) for own in held]
    assert max(counts) - min(counts) <= max(map(len, spans)) + processes
    assert pieces is None or max(map(len, spans)) <= pieces


def test_work_that_cannot_be_shared_is_no_error():
    assert balanced_spans(torch.tensor([5.0, 0, 0, 0]), 2) == ((range(2),), (range(2, 4),))
    assert sum(len(span) for own in balanced_spans(torch.ones(2).double(), 5) for span in own) == 2
    assert sum(len(span) for own in balanced_spans(torch.ones(0).double(), 3) for span in own) == 0
