"""The runs of a mask that are kept for later calls."""

import pytest
import torch

from regard import masks
from regard.attention.problem import validate
from regard.attention.shielding import attend_shielded


def sdpa(problem):
    return torch.nn.functional.scaled_dot_product_attention(problem.query, problem.key, problem.value, is_causal=True)


@pytest.mark.parametrize("mask", [masks.causal(), masks.window(3, 0)], ids=["causal", "window"])
def test_what_a_validation_kept_serves_a_training(mask):
    """A tensor that is made in inference mode can never be saved for a backward pass."""
    inputs = torch.randn(3, 1, 2, 41, 8)
    with torch.inference_mode():
        attend_shielded(validate(*inputs, mask=mask), sdpa)
    query, key, value = (tensor.clone().requires_grad_() for tensor in inputs)
    attend_shielded(validate(query, key, value, mask=mask), sdpa).sum().backward()
    assert all(tensor.grad is not None for tensor in (query, key, value))
