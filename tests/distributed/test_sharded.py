"""Sharded = whole (contract 16): a call on parts of sequences gives what one process gives, forward and backward."""

import pytest

from cases import BIASES, KV, MASKS
from covering import covering
from process_groups import ProcessGroup
from sharded_laws import ALL_NORMALIZERS, ALL_SCORES, ORDERS, READ

PROCESSES = (2, 3, 4)

@pytest.fixture(scope="module")
def groups():
    """A group of each size, started when it is first used."""
    started = {}

    def group(processes):
        if processes not in started:
            started[processes] = ProcessGroup(processes)
        return started[processes]

    yield group
    for one in started.values():
        one.close()


@covering(
    score=ALL_SCORES, normalizer=ALL_NORMALIZERS, mask=MASKS, bias=BIASES, kv_heads=KV, order=ORDERS,
    processes=PROCESSES,
)  # fmt: skip
def test_every_case_is_that_of_one_process(groups, score, normalizer, mask, bias, kv_heads, order, processes):
    if normalizer == "ratio":  # scores of both signs may have a sum near 0
        score = "features"
    arguments = score, normalizer, mask, bias, kv_heads, order, 0.0
    for output, gradient in groups(processes).call("sharded_laws", "case", *arguments):
        assert output < 1e-12
        assert gradient < 1e-11


@covering(read=READ, normalizer=["softmax", "sparsemax", "sigmoid", "top_k", "sinkhorn"], mask=MASKS, order=ORDERS, processes=PROCESSES)
def test_readings_are_those_of_one_process(groups, read, normalizer, mask, order, processes):
    for difference in groups(processes).call("sharded_laws", "readings", read, normalizer, mask, order):
        assert difference < 1e-12


@covering(normalizer=sorted(set(ALL_NORMALIZERS) - {"ratio"}), mask=["none", "causal", "lengths"], order=ORDERS, processes=PROCESSES)
def test_weights_are_those_of_one_process(groups, normalizer, mask, order, processes):
    for weights, gradient in groups(processes).call("sharded_laws", "with_weights", normalizer, mask, order):
        assert weights < 1e-12
        assert gradient < 1e-11
