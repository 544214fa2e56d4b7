"""A function as a normalizer or a score: each row, or pair, by itself, or one clear error; a trial without a trace."""

import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard import normalizers, scores
from regard.errors import ArgumentError, ShapeError


def inputs(dtype=torch.float32, heads=3, length=5):
    return tuple(torch.randn(2, heads, length, 8, dtype=dtype) for _ in range(3))


@pytest.mark.parametrize(
    "function", [F.softmax, torch.softmax, nn.Softmax(-1), partial(F.softmax, dim=-1), lambda s, dim: s.softmax(dim)]
)
def test_a_declared_axis_is_the_last_one(function):
    tensors = inputs()
    output = regard.attend(*tensors, normalizer=function, backend="reference")
    torch.testing.assert_close(output, regard.attend(*tensors, backend="reference"))


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
@pytest.mark.parametrize(
    "function",
    [
        nn.Softmax(),
        nn.Softmax(dim=1),
        partial(F.softmax, dim=0),
        lambda s: s.softmax(-2),
        lambda s: s / s.exp().sum(),
        lambda s: s.exp() / s.exp().sum((-1, -2), keepdim=True),
    ],
)
def test_mixed_rows_are_one_error_each_time(function, backend):
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"normalizer must weigh each row .* torch.softmax\(scores, dim=-1\)"):
            regard.attend(*inputs(), normalizer=function, backend=backend)


def test_the_rank_that_is_shown_is_tried():
    """PyTorch's guess is the last axis of a matrix, and the first of three axes."""
    layer = normalizers.Custom(nn.Softmax())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(layer(torch.eye(4)), torch.eye(4).softmax(-1))
        with pytest.raises(ArgumentError, match="mixes rows"):
            layer(torch.randn(3, 4, 5))


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_functions_that_normalize_each_row_are_accepted(heads):
    own = torch.linspace(0.5, 2.0, heads).view(-1, 1, 1)
    functions = [
        lambda s: s.relu().square(),
        torch.sigmoid,
        lambda s: (own * s).softmax(-1),
        lambda s: (s + torch.rand_like(s)).softmax(-1),
        nn.Sequential(nn.Softmax(-1), nn.Dropout(0.5)),
        lambda s: normalizers.sparsemax(s),
        lambda s: (s + torch.rand((), generator=generator)).softmax(-1),
    ]
    generator = torch.Generator().manual_seed(0)
    for function in functions:
        output = regard.attend(*inputs(heads=heads), normalizer=function, backend="reference")
        assert output.shape == (2, heads, 5, 8)


def test_a_trial_leaves_no_trace():
    """No random number, no buffer, no hook, no gradient, and no module of the user's in another mode."""
    calls = []
    layer = nn.Sequential(nn.Softmax(-1), nn.Dropout(0.5))

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.register_buffer("calls", torch.zeros(()))
            self.layer = layer

        def forward(self, scores):
            self.calls += 1
            return self.layer(scores * self.scale)

    module = Counting()
    module.register_forward_hook(lambda *of: calls.append(1))
    layer[0].register_forward_pre_hook(lambda *of: calls.append(2))
    tensors = inputs()
    first, second = [], []
    for results in (first, second):
        torch.manual_seed(5)
        results += [regard.attend(*tensors, normalizer=module, backend="reference"), torch.rand(())]
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert calls == [2, 1, 2, 1]
    assert module.calls == 2
    assert module.training
    assert module.scale.grad is None


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
def test_scores_that_mix_pairs_are_one_error_each_time(backend):
    wrong = [
        (lambda q, k: (q @ k.mT).softmax(-1), ArgumentError, "depends on other queries, keys"),
        (lambda q, k: q @ k.mT / q.norm(), ArgumentError, "depends on other queries, keys"),
        # The right shape where there are as many queries as keys, and the wrong axes.
        (lambda q, k: k @ q.mT, ShapeError, r"\[2, 3, 5, 4\]"),
    ]
    for function, error, message in wrong:
        for _ in range(2):
            with pytest.raises(error, match=message):
                regard.attend(*inputs(), score=function, backend=backend)


def test_scores_by_themselves_are_taken():
    tensors = inputs()
    expected = regard.attend(*tensors, score="dot", backend="reference")
    for function in (lambda q, k: q @ k.mT, scores.Custom(lambda q, k: (q[..., None, :] * k[..., None, :, :]).sum(-1))):
        torch.testing.assert_close(regard.attend(*tensors, score=function, backend="reference"), expected)


def test_functions_are_traced_without_a_trial():
    function = lambda s: s.softmax(-1)  # noqa: E731
    tensors = inputs(torch.float64)
    expected = regard.attend(*tensors, backend="reference")
    mapped = torch.func.vmap(lambda q, k, v: regard.attend(q, k, v, normalizer=function, backend="reference"))
    torch.testing.assert_close(mapped(*tensors), expected)
