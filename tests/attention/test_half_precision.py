"""Half-precision inputs with factors that are tensors."""

import itertools

import torch

import regard
from backends import EVERY, accepts
from cases import B, H, problem
from covering import covering
from regard import masks, scores


@covering(
    shape=[(), (1,), (H, 1, 1), (B, 1, 1, 1), (B, H, 1, 1)],
    dtype=[torch.bfloat16, torch.float16],
    scale_dtype=[torch.float32, torch.bfloat16],
    causal=[False, True],
)
def test_a_scale_of_any_axes(dtype, shape, scale_dtype, causal):
    inputs = problem(dtype)
    scale = torch.nn.Parameter((torch.rand(shape) + 0.5).to(scale_dtype))
    scaled = scores.ScaledDot(scale), scores.Cosine(scale), scores.SoftCap(scores.ScaledDot(scale), 3.0)
    for backend, score in itertools.product(EVERY, scaled):
        arguments = {"score": score, "mask": masks.causal() if causal else None}
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        if not accepts(backend, leaves, **arguments):
            continue
        output = regard.attend(*leaves, backend=backend, **arguments)
        assert output.dtype == dtype
        exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
        oracle = regard.attend(*exact, backend="reference", **arguments)
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(output.double(), oracle, rtol=tolerance, atol=tolerance)
        (got,) = torch.autograd.grad(output.float().sum(), [scale])
        (expected,) = torch.autograd.grad(oracle.sum(), [scale])
        assert got.dtype == scale_dtype
        torch.testing.assert_close(got.double(), expected.double(), rtol=0.05, atol=0.05)
