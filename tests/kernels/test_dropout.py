"""Dropout inside of kernels: a reproducible choice of weights, independent enough, and the same in both directions."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from kernels.oracle import outcome, tensors
from regard import masks
from regard.kernels.cpu import operators
from regard.kernels.cpu.kernel_arguments import KernelInputs
from regard.shapes.grid import Grid


def kept_weights(dropout, seed, queries=131, keys=257, batch=1, heads=2):
    """Weights after dropout, times the number of keys: 0 or 1 / (1 − dropout)."""
    zeros = torch.zeros(batch, heads, queries, 3)
    values = torch.eye(keys).expand(batch, heads, keys, keys).contiguous()
    call = KernelInputs(zeros, torch.zeros(batch, heads, keys, 3), values, dropout=dropout, seed=seed)
    return operators.attend(*call)[0] * keys


@pytest.mark.parametrize("dropout", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 1, 2**62 - 1])
def test_the_share_that_is_dropped(dropout, seed):
    kept = kept_weights(dropout, seed)
    dropped = kept == 0
    torch.testing.assert_close(kept[~dropped], torch.full_like(kept[~dropped], 1 / (1 - dropout)))
    deviation = (dropout * (1 - dropout)) ** 0.5
    for axes in ((0, 1, 2, 3), (0, 1, 2), (0, 1, 3)):
        count = kept[0].numel() if len(axes) == 4 else kept[0].numel() / kept.shape[3 if 2 in axes else 2]
        share = dropped.double().mean(axes)
        assert float((share - dropout).abs().max()) < 7 * deviation / count**0.5


def test_choices_of_neighbours_are_independent():
    kept = [(kept_weights(0.5, seed) > 0).double()[0] for seed in (3, 4)]
    pairs = [
        (kept[0], kept[1]),
        (kept[0][0], kept[0][1]),
        (kept[0][:, 1:], kept[0][:, :-1]),
        (kept[0][:, :, 1:], kept[0][:, :, :-1]),
        (kept[0][:, 1:, 1:], kept[0][:, :-1, :-1]),
    ]
    for one, other in pairs:
        correlation = ((one - 0.5) * (other - 0.5)).mean() / 0.25
        assert abs(float(correlation)) < 5 / one.numel() ** 0.5


@pytest.mark.parametrize("additive", [False, True])
def test_the_seed_of_torch_decides(additive):
    shapes = {"query": (1, 2, 67, 5), "key": (1, 2, 131, 5), "value": (1, 2, 131, 3)}
    inputs = tensors(**shapes, **({"weight": (5,)} if additive else {}))
    results = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        results.append(outcome("cpu", inputs, dropout=0.3, mask=masks.window(40, 40)))
    for name in results[0]:
        assert torch.equal(results[0][name], results[1][name])
    assert not torch.equal(results[0]["output"], results[2]["output"])


@pytest.mark.parametrize("additive", [False, True])
def test_a_pair_is_dropped_or_not_whatever_other_pairs_are_seen(additive):
    """Runs of keys, and the same pairs in a mask beside runs of all keys: the same pairs are dropped."""
    shapes = {"query": (1, 2, 67, 5), "key": (1, 1, 419, 5), "value": (1, 1, 419, 3)}
    inputs = tensors(dtype=torch.float64, **shapes, **({"weight": (5,)} if additive else {}))
    few = masks.window(40, 2) | masks.prefix(4) | masks.lengths(419, queries=1)
    many = masks.keep(few.dense(Grid.whole(1, 2, 67, 419)))
    results = []
    for mask in (few, many):
        torch.manual_seed(5)
        results.append(outcome("cpu", inputs, dropout=0.3, mask=mask))
    for name, expected in results[1].items():
        torch.testing.assert_close(results[0][name], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mask", ["runs", "dense"])
def test_the_mean_of_many_draws_is_the_output_without(mask):
    inputs = tensors(query=(1, 2, 7, 5), key=(1, 2, 19, 5), value=(1, 2, 19, 3))
    many = [tensor.expand(5000, -1, -1, -1) for tensor in inputs.values()]
    restriction = masks.causal() if mask == "runs" else masks.keep(torch.rand(7, 19) < 0.7)
    mean = regard.attend(*many, dropout=0.4, mask=restriction, backend="cpu").mean(0)
    plain = regard.attend(*inputs.values(), mask=restriction, backend="cpu")[0]
    torch.testing.assert_close(mean, plain, rtol=0, atol=0.1)


@pytest.mark.parametrize("additive", [False, True])
def test_gradients_are_those_of_the_weights_that_were_kept(additive):
    inputs = tensors(
        dtype=torch.float64, query=(2, 2, 5, 3), key=(2, 1, 7, 3), value=(2, 1, 7, 2), weight=(2, 3), bias=(1, 2, 5, 7)
    )
    leaves = [inputs[name].requires_grad_() for name in ("query", "key", "value", "bias", "weight")]

    def run(query, key, value, bias, weight):
        call = KernelInputs(query, key, value, bias=bias, dropout=0.4, seed=99)
        if additive:
            powers, extents = operators.exponentials(key.detach())
            call = call._replace(weight=weight, exponentials=powers, extents=extents)
        return operators.attend(*call)[0]

    assert torch.autograd.gradcheck(run, leaves if additive else [*leaves[:4], leaves[4].detach()])


def test_slices_of_a_dense_mask_drop_the_same_in_both_directions(monkeypatch):
    monkeypatch.setattr("regard.attention.backends.cpu.dense_rows.SLICE_PAIRS", 3 * 7)
    inputs = tensors(dtype=torch.float64, query=(2, 2, 11, 3), key=(2, 1, 7, 3), value=(2, 1, 7, 2))
    mask = masks.keep(torch.rand(11, 7) < 0.7)

    def run(*given):
        torch.manual_seed(1)
        return regard.attend(*given, mask=mask, dropout=0.4, backend="cpu")

    assert torch.autograd.gradcheck(run, [tensor.requires_grad_() for tensor in inputs.values()])
