"""Slot attention against its algorithm."""

import pytest
import torch

from regard import nn
from regard.errors import ShapeError


def literal_slots(module, x, slots):
    """Locatello et al. 2020, algorithm 1, of one sequence, pair after pair."""
    normed = module.norm_input(x)
    keys, values = normed @ module.key.weight.T, normed @ module.value.weight.T
    for _ in range(module.iterations):
        queries = module.norm_slots(slots) @ module.query.weight.T
        won = torch.stack([torch.stack([(q @ k / module.dim**0.5).exp() for k in keys]) for q in queries])
        won = torch.stack([column / column.sum() for column in won.T]).T + 1e-8
        weights = torch.stack([row / row.sum() for row in won])
        slots = module.update(weights @ values, slots)
        slots = slots + module.mlp(module.norm_mlp(slots))
    return slots, weights


def test_slots_are_those_of_the_algorithm_and_padding_has_no_effect():
    torch.manual_seed(1)
    module = nn.SlotAttention(8, 3, input_dim=5).double()
    x, first = torch.randn(2, 7, 5, dtype=torch.float64), torch.randn(2, 3, 8, dtype=torch.float64)
    x[1, 4:] = torch.nan
    found = module(x, torch.tensor([7, 4]), slots=first, need_weights=True)
    for row, length in enumerate((7, 4)):
        slots, weights = literal_slots(module, x[row, :length], first[row])
        torch.testing.assert_close(found.output[row], slots)
        torch.testing.assert_close(found.weights[row, :, :length], weights)
        assert not found.weights[row, :, length:].any()
    found.output.sum().backward()
    assert all(
        p.grad is not None and p.grad.isfinite().all()
        for n, p in module.named_parameters()
        if n not in ("mean", "log_deviation")
    )
    assert torch.equal(module(x, torch.tensor([7, 4]), slots=first).output, found.output)
    drawn = module(x[:1])
    drawn.output.sum().backward()
    assert module.mean.grad.any()
    assert module.log_deviation.grad.any()
    with pytest.raises(ShapeError, match="slots must be"):
        module(x, slots=first[:1])
