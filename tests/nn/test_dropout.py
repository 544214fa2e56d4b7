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
