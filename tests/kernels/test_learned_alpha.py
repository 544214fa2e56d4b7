"""Entmax whose alpha is learned, one for all heads or one for each: kernels against the specification in float64."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from kernels.oracle import tensors
from regard import masks
from regard.biases import alibi
from regard.normalizers import entmax
from regard.scores import Additive

ALPHAS = [torch.tensor(1.01), torch.tensor(1.5), torch.tensor([2.0]), torch.tensor([1.001, 1.2, 1.9, 2.0])]


def outcome(inputs, alpha, backend, dtype, **options):
    leaves = {name: tensor.to(dtype).requires_grad_() for name, tensor in inputs.items()}
    leaves["alpha"] = alpha.to(dtype, copy=True).requires_grad_()
    if "weight" in leaves:
        options["score"] = Additive(leaves["weight"])
    query, key, value = (leaves[name] for name in ("query", "key", "value"))
    output = regard.attend(query, key, value, normalizer=entmax(leaves["alpha"]), backend=backend, **options)
    target = torch.randint(-3, 4, output.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    return [output, *torch.autograd.grad(output, list(leaves.values()), target)]


@pytest.mark.parametrize("alpha", ALPHAS, ids=lambda alpha: str(alpha.tolist()))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("queries", [1, 21])
@pytest.mark.parametrize(
    "options", [{}, {"mask": masks.causal()}, {"mask": masks.lengths([0, 30])}, {"bias": alibi(4)}], ids=str
)
def test_learned_alpha_output_and_gradients_match_the_reference(alpha, dtype, queries, options, is_full):
    shapes = {"query": (2, 4, queries, 8), "key": (2, 2, 37, 8), "value": (2, 2, 37, 6)}
    for more in ({}, {"weight": (8,)}) if is_full or dtype == torch.float64 else ({},):
        inputs = tensors(dtype=dtype, **shapes, **more)
        got = outcome(inputs, alpha, "cpu", dtype, **options)
        exact = outcome(inputs, alpha, "reference", torch.float64, **options)
        for one, other in zip(got, exact, strict=True):
            bound = 4000 * torch.finfo(dtype).eps * max(1.0, float(other.detach().abs().max()))
            torch.testing.assert_close(one.double(), other, rtol=0, atol=bound)


def test_learned_alpha_of_a_head_gives_the_weights_of_its_number():
    query, key, value = tensors(query=(1, 4, 9, 8), key=(1, 4, 11, 8), value=(1, 4, 11, 8)).values()
    alpha = torch.tensor([1.2, 1.5, 1.7, 2.0])
    attended = regard.attend_with_weights(query, key, value, normalizer=entmax(alpha), backend="cpu")
    observed = regard.observe(
        query, key, value, normalizer=entmax(alpha), backend="cpu", read=regard.Readings(weights=True, entropy=True)
    )
    torch.testing.assert_close(observed.weights, attended.weights, rtol=0, atol=1e-6)
    for head in range(4):
        single = regard.attend_with_weights(
            *(tensor[:, head : head + 1] for tensor in (query, key, value)), normalizer=entmax(float(alpha[head])),
            backend="cpu",
        )  # fmt: skip
        torch.testing.assert_close(attended.weights[:, head], single.weights[:, 0], rtol=0, atol=1e-5)


def test_large_problems_with_a_learned_alpha_run_fused():
    inputs = tensors(query=(1, 4, 512, 8), key=(1, 4, 512, 8), value=(1, 4, 512, 8)).values()
    assert regard.plan(*inputs, normalizer=entmax(torch.tensor(1.3, requires_grad=True))).backend == "cpu"


def test_a_row_with_not_a_number_does_not_touch_others():
    query, key, value = tensors(query=(1, 1, 3, 8), key=(1, 1, 11, 8), value=(1, 1, 11, 8)).values()
    alpha = torch.tensor(1.3, requires_grad=True)
    clean = regard.attend(query, key, value, normalizer=entmax(alpha), backend="cpu")
    query[0, 0, 1] = torch.nan
    output = regard.attend(query, key, value, normalizer=entmax(alpha), backend="cpu")
    assert output[0, 0, 1].isnan().all()
    torch.testing.assert_close(output[0, 0, ::2], clean[0, 0, ::2])
