"""The gradient of a decay is that from below at a decay of 0, where a learned one often begins."""

import pytest
import torch

import regard
from backends import EVERY, accepts
from cases import B, D, H, K, problem
from covering import covering
from regard import masks, scores

SHAPES = {"heads": (H,), "tokens": (B, H, K), "features": (B, H, K, D)}
MASKS = {
    "none": lambda: None,
    "causal": lambda: masks.causal(),
    "lengths": lambda: masks.lengths([4, 6]),
    "window": lambda: masks.window(2, 3),
}


@covering(
    shape=SHAPES, mask=MASKS, queries=[4, K, 9], where=lambda shape, mask, queries: shape == "heads" or queries <= K
)
def test_a_decay_of_0_has_the_gradient_of_the_next_smaller_one(shape, mask, queries):
    inputs = problem(queries=queries)
    weight = torch.randn(B, H, queries, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def gradient(value, backend):
        log_decay = torch.full(SHAPES[shape], value, dtype=torch.float64, requires_grad=True)
        score = scores.Decayed("scaled_dot", log_decay)
        arguments = {"score": score, "normalizer": "identity", "mask": MASKS[mask]()}
        if not accepts(backend, inputs, **arguments):
            return None
        output = regard.attend(*inputs, backend=backend, **arguments)
        return torch.autograd.grad((output * weight).sum(), log_decay)[0]

    expected = gradient(-1e-9, "reference")
    assert expected.abs().max() > 0.1
    for backend in EVERY:
        got = gradient(0.0, backend)
        if got is not None:
            torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6, msg=f"{backend}")


def test_the_gradient_is_the_sum_of_distances_without_a_mask():
    """Of ones: each pair's weight is exp(g · |i − j|), so the derivative at 0 is the sum of |i − j|."""
    x = torch.ones(1, 1, 3, 1, dtype=torch.float64)
    log_decay = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    regard.attend(x, x, x, score=scores.Decayed("dot", log_decay), normalizer="identity").sum().backward()
    assert log_decay.grad is not None
    assert log_decay.grad.item() == pytest.approx(8.0)
