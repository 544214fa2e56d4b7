"""`FlopCounterMode` counts every attention by one formula, whichever backend runs, forward and backward."""

import pytest
import torch
from torch import nn as torch_nn
from torch.utils.flop_counter import FlopCounterMode

import regard
from backends import EVERY, accepts
from regard import masks, nn, scores

B, H, Q, K, D, V = 2, 4, 5, 7, 11, 13
CASES = {
    "plain": dict,
    "causal": lambda: {"mask": masks.causal()},
    "lengths": lambda: {"mask": masks.lengths([7, 3]), "normalizer": "sparsemax"},
    "additive": lambda: {"score": scores.Additive(torch.randn(D))},
    "dropout": lambda: {"dropout": 0.5, "bias": torch.randn(Q, K)},
}


def counted(call) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("backend", ["auto", *EVERY])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kv_heads", [H, 2])
def test_every_backend_counts_the_formula(backend, case, kv_heads):
    inputs = torch.randn(B, H, Q, D), torch.randn(B, kv_heads, K, D), torch.randn(B, kv_heads, K, V)
    inputs = [tensor.requires_grad_() for tensor in inputs]
    arguments = CASES[case]()
    if backend != "auto" and not accepts(backend, inputs, **arguments):
        return

    def output():
        return regard.attend(*inputs, backend=backend, **arguments)

    forward, backward = 2 * B * H * Q * K * (D + V), 2 * B * H * Q * K * (3 * D + 2 * V)
    assert counted(output) == forward
    assert counted(lambda: regard.observe(*inputs, backend=backend, **arguments)) == forward
    assert counted(lambda: output().sum().backward()) == forward + backward
    if case != "dropout":
        expected = torch.autograd.grad(output().square().sum(), inputs)
        with FlopCounterMode(display=False):
            got = torch.autograd.grad(output().square().sum(), inputs)
        torch.testing.assert_close(got, expected)


def test_layers_count_as_those_of_torch():
    ours = nn.LayerConfig(dim=12, heads=2, feedforward=17, dropout=0.0).encoder_layer()
    theirs = torch_nn.TransformerEncoderLayer(12, 2, 17, 0.0, batch_first=True)
    x = torch.randn(3, 5, 12)
    linear = 2 * 15 * 12 * (4 * 12 + 2 * 17)
    pairs = 2 * 3 * 2 * 5 * 5 * (6 + 6)
    for train in (False, True):
        assert counted(lambda train=train: ours.train(train)(x)) == linear + pairs
    # PyTorch's counter knows no formula of its own attention on a CPU.
    assert counted(lambda: theirs.train()(x)) in (linear, linear + pairs)
    # The counter has hooks on all modules, so that a padded batch runs padded.
    lengths = torch.tensor([5, 1, 2])
    assert counted(lambda: ours(x, lengths=lengths)) == linear + pairs
    module = nn.MultiheadAttention(12, 2, batch_first=True)
    assert counted(lambda: module(x, x, x)) == 2 * 15 * 12 * 4 * 12 + pairs


def test_a_watched_call_is_counted_and_seen():
    query = torch.randn(B, H, Q, D)
    layer = nn.MultiheadAttention(12, 2, batch_first=True)
    x = torch.randn(3, 5, 12)
    with torch.no_grad(), regard.watch(layer) as record, FlopCounterMode(display=False) as counter:
        layer(x, x, x)
    assert counter.get_total_flops() >= 2 * 3 * 2 * 5 * 5 * 12
    assert len(record.calls) == 1
    assert counted(lambda: regard.attend(query, query, query, score=lambda q, k: q @ k.mT)) == 2 * B * H * Q * Q * 2 * D
