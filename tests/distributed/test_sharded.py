"""Sharded = whole (contract 16): a call on parts of sequences gives what one process gives, forward and backward."""

import pytest

from cases import BIASES, KV, MASKS
from covering import covering
from sharded_laws import ALL_NORMALIZERS, ALL_SCORES, ORDERS, READ

PROCESSES = (2, 3, 4)
FEW_PROCESSES = (2, 3)
"""Four add exchanges of the same kind; readings, biases and placements have them."""


SOME_MASKS = ("none", "causal", "window", "lengths_both", "where", "grids", "nobody")
"""One of each kind: with spans and without, a function, a tensor, and what hides everything."""


def _is_that_of_one_process(group, *case):
    for output, gradient in group.call("sharded_laws", "case", *case, 0.0):
        assert output < 1e-12
        assert gradient < 1e-11


@covering(
    score=ALL_SCORES,
    bias=["none", "tensor", "shaw", "diagonal_sum"],
    mask=SOME_MASKS,
    kv_heads=KV,
    order=ORDERS,
    processes=FEW_PROCESSES,
)
def test_sharded_scores_and_biases_equal_those_of_one_process(groups, score, bias, mask, kv_heads, order, processes):
    _is_that_of_one_process(groups(processes), score, "softmax", mask, bias, kv_heads, order)


@covering(
    normalizer=ALL_NORMALIZERS, mask=["none", "causal", "lengths_both", "where"], order=ORDERS, processes=FEW_PROCESSES
)
def test_normalizers_and_masks(groups, normalizer, mask, order, processes):
    # Shares of a sum that may be near 0 have no digits to compare.
    score = "features" if normalizer == "ratio" else "scaled_dot"
    _is_that_of_one_process(groups(processes), score, normalizer, mask, "none", 3, order)


@pytest.mark.parametrize("mask", MASKS)
def test_sharded_masks_equal_those_of_one_process(groups, mask):
    _is_that_of_one_process(groups(3), "additive", "softmax", mask, "alibi", 1, "balanced")


@pytest.mark.parametrize("bias", BIASES)
def test_sharded_biases_equal_those_of_one_process(groups, bias):
    _is_that_of_one_process(groups(4), "scaled_dot", "softmax", "causal", bias, 3, "balanced")


@pytest.mark.parametrize(("dtype", "rounding"), [("float32", 1e-5), ("bfloat16", 3e-2), ("float16", 4e-3)])
def test_sharded_calls_of_other_dtypes_round_as_one_process(groups, dtype, rounding):
    """The scores and sums of half precision are those of float32, as on one process."""
    for output, gradient in groups(3).call(
        "sharded_laws", "case", "additive", "softmax", "causal", "alibi", 1, "contiguous", 0.0, dtype
    ):
        assert output < rounding
        assert gradient < 8 * rounding


@pytest.mark.parametrize("mask", ["none", "causal", "where"])
@pytest.mark.parametrize("normalizer", ["softmax", "sigmoid", "entmax15"])
def test_the_same_weights_are_dropped(groups, normalizer, mask):
    """One process draws a seed, and drops what seed, row and key decide."""
    for output, gradient in groups(3).call(
        "sharded_laws", "case", "scaled_dot", normalizer, mask, "none", 3, "balanced", 0.4
    ):
        assert output < 1e-12
        assert gradient < 1e-11


@pytest.mark.parametrize("score", ["cosine", "additive_projected", "trilinear", "distance", "general"])
def test_hidden_nan_has_no_effect_on_a_sharded_call(groups, score):
    """NaN in hidden keys, values and queries reaches neither outputs nor gradients, of parameters either."""
    for found, expected in groups(3).call("sharded_laws", "hidden_nan", score):
        assert found == expected


@pytest.mark.parametrize("normalizer", ["sparsemax", "entmax15", "entmax13"])
def test_a_threshold_is_found_in_few_steps(groups, normalizer):
    """Bisection alone would take 52 of each pass, and `readings` makes two."""
    for steps in groups(2).call("sharded_laws", "steps_to_a_threshold", normalizer):
        assert 2 <= steps <= 2 * 13


def test_a_map_keeps_a_nan(groups):
    for one, sharded in groups(2).call("sharded_laws", "map_with_nan"):
        assert one == sharded == 2


def test_a_subclass_is_prepared_by_itself(groups):
    for output, gradient in groups(2).call(
        "sharded_laws", "case", "subclass", "softmax", "causal", "none", 3, "contiguous", 0.0
    ):
        assert output < 1e-12
        assert gradient < 1e-11


def test_a_tensor_that_derives_from_another_is_refused(groups):
    for text in groups(2).call("sharded_laws", "derived_bias"):
        assert "calculated from another one there" in text


@covering(
    read=READ, normalizer=["softmax", "sparsemax", "sigmoid", "top_k", "sinkhorn"], mask=SOME_MASKS, order=ORDERS,
    processes=PROCESSES,
)  # fmt: skip
def test_sharded_readings_equal_those_of_one_process(groups, read, normalizer, mask, order, processes):
    for difference in groups(processes).call("sharded_laws", "readings", read, normalizer, mask, order):
        assert difference < 1e-12


@covering(normalizer=sorted(set(ALL_NORMALIZERS) - {"ratio"}), mask=["causal", "where"], order=ORDERS)
def test_sharded_weights_equal_those_of_one_process(groups, normalizer, mask, order):
    for weights, gradient in groups(3).call("sharded_laws", "with_weights", normalizer, mask, order):
        assert weights < 1e-12
        assert gradient < 1e-11
