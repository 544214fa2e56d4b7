"""Dropout with random bits: fractions, scale, gradients, seeds."""

import pytest
import torch

from regard import nn


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_elements_are_kept_with_their_probability_and_scaled(p, dtype):
    torch.manual_seed(3)
    input = torch.ones(301, 331, dtype=dtype, requires_grad=True)
    output = nn.Dropout(p)(input)
    assert output.dtype == dtype
    kept = (output != 0).double()
    spread = (p * (1 - p) / input.numel()) ** 0.5
    assert abs(kept.mean() - (1 - p)) <= 5 * spread + 1e-5
    # No row and no column is special.
    for axis, size in ((0, 301), (1, 331)):
        assert (kept.mean(axis) - (1 - p)).abs().max() <= 6 * (p * (1 - p) / size) ** 0.5 + 1e-5
    if p < 1:
        torch.testing.assert_close(output[output != 0].unique().double(), torch.tensor([1 / (1 - p)]).double(),
                                   rtol=1e-2 if dtype == torch.bfloat16 else 1e-4, atol=0)  # fmt: skip
    (gradient,) = torch.autograd.grad(output.sum(), input)
    assert torch.equal(gradient, output.detach())


def test_a_seed_decides_and_evaluation_changes_nothing():
    layer, input = nn.Dropout(0.3), torch.randn(7, 5, 3)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(layer(input))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert layer.eval()(input) is input


def test_neighbours_are_independent():
    torch.manual_seed(4)
    kept = (nn.Dropout(0.5)(torch.ones(1 << 18)) != 0).double() - 0.5
    for distance in (1, 2, 3, 4, 5, 8, 64):
        correlation = 4 * (kept[distance:] * kept[:-distance]).mean()
        assert abs(correlation) < 5 / (1 << 9), distance


def test_shapes_of_every_kind():
    layer = nn.Dropout(0.5)
    for input in (torch.ones(0, 3), torch.ones(()), torch.ones(3, 5).t(), torch.ones(1, 5).expand(3, 5)):
        output = layer(input)
        assert output.shape == input.shape
        assert ((output == 0) | (output == 2)).all()
    assert torch.func.vmap(layer, randomness="different")(torch.ones(3, 5)).shape == (3, 5)


SIZE = (131, 257)
"""More elements than those from which on a compiled kernel runs."""


def both_ways(monkeypatch, run):
    """What a function of a seed gives with compiled kernels, and without."""
    found = []
    for smallest in (1, 1 << 60):
        monkeypatch.setattr("regard.nn.fused_dropout.COMPILED", smallest)
        torch.manual_seed(7)
        found.append(run())
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["plain", "relu", "residual"])
def test_one_pass_is_what_its_steps_are(kind, dtype, monkeypatch):
    input, other, factor = (torch.randn(SIZE, dtype=dtype, requires_grad=True) for _ in range(3))
    input.data[0, 0], input.data[0, 1], input.data[0, 2] = torch.nan, torch.inf, 0.0

    def run():
        options = {"relu": {"relu": True}, "residual": {"residual": other}}.get(kind, {})
        output = nn.Dropout(0.3)(input, **options)
        return output, *torch.autograd.grad((output * factor).sum(), [input, other], allow_unused=True), torch.rand(())

    compiled, steps = both_ways(monkeypatch, run)
    torch.manual_seed(7)
    kept = nn.Dropout(0.3)(torch.ones(SIZE, dtype=dtype))
    expected = (input.relu() if kind == "relu" else input) * kept + (other if kind == "residual" else 0)
    for found in (compiled, steps):
        torch.testing.assert_close(found[0], expected, equal_nan=True)
    for one, another in zip(compiled[:3], steps[:3], strict=True):
        assert (one is None) == (another is None)
        if one is not None:
            torch.testing.assert_close(one[1:], another[1:])
    assert torch.equal(compiled[3], steps[3])


@pytest.mark.parametrize("relu", [False, True])
def test_second_derivatives_and_batched_gradients_of_one_pass(relu, monkeypatch):
    input, factor = (torch.randn(SIZE, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def run():
        output = nn.Dropout(0.3)(input, relu=relu)
        (first,) = torch.autograd.grad((output * factor**2).sum(), input, create_graph=True)
        (second,) = torch.autograd.grad((first * input).sum(), factor, retain_graph=True)
        several = torch.stack([factor.detach(), 2 * factor.detach()])
        (batched,) = torch.autograd.grad(output, input, several, is_grads_batched=True)
        return first, second, batched

    for one, another in zip(*both_ways(monkeypatch, run), strict=True):
        torch.testing.assert_close(one, another)
        assert one.abs().sum() > 0


def test_what_a_kernel_does_not_take_runs_all_the_same(monkeypatch):
    monkeypatch.setattr("regard.nn.fused_dropout.COMPILED", 1)
    ones = torch.ones(SIZE)
    layer = nn.Dropout(0.5)
    for input, residual in ((ones.t(), ones.t()), (ones, ones[:1]), (ones.bfloat16(), ones), (ones, ones.double())):
        output = layer(input, residual=residual)
        assert output.shape == input.shape
        assert ((output == 1) | (output == 3)).all()
    one, tangent = torch.func.jvp(lambda x: (layer(x, relu=True) != 0).double() * x, (ones.double(),), (ones.double(),))
    assert torch.equal(one, tangent)


def test_evaluation_keeps_relu_and_residual():
    layer, input = nn.Dropout(0.3).eval(), torch.randn(7, 5)
    assert torch.equal(layer(input, relu=True), input.relu())
    assert torch.equal(layer(input, residual=input), 2 * input)
