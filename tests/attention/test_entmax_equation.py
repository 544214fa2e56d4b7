"""Attention by entmax solves its equation on every backend: alpha a number, or learned for each head."""

import numpy as np
import pytest
import torch

import entmax_oracle
import regard
from regard.kernels.availability import why_missing
from regard.normalizers import entmax

BACKENDS = [
    "reference",
    "tiled",
    pytest.param("cpu", marks=pytest.mark.skipif(why_missing() is not None, reason="kernels need Numba")),
]
ALPHAS = (1.01, 1.25, 1.6, 1.75, 1.99, 2.01, 3.0)
LOOK = regard.Readings(weights=True, entropy=True, received=True)


def given(keys, dtype, heads):
    """Queries and keys whose products are 0, a bias that is the scores, the same for each head, and values."""
    scores = torch.from_numpy(entmax_oracle.rows(keys)).to(dtype)
    queries = scores.shape[0]
    generator = torch.Generator().manual_seed(2)
    query, key = torch.zeros(1, heads, queries, 4, dtype=dtype), torch.zeros(1, heads, keys, 4, dtype=dtype)
    value = torch.randn(1, heads, keys, 5, dtype=torch.float64, generator=generator).to(dtype)
    return query, key, value, scores[None, None].expand(1, heads, -1, -1).contiguous()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_weights_and_outputs(backend, dtype):
    """Of one row for each task (few queries), and of many; observed weights are those that mix."""
    eps = torch.finfo(dtype).eps
    learned = torch.tensor(ALPHAS, dtype=dtype)
    for keys in (1, 2, 17, 601):
        query, key, value, bias = given(keys, dtype, len(ALPHAS))
        options = {"bias": bias, "backend": backend}
        results = [
            regard.observe(query, key, value, normalizer=entmax(learned), read=LOOK, **options),
            regard.attend_with_weights(query, key, value, normalizer=entmax(learned), **options),
        ]
        output = regard.attend(query, key, value, normalizer=entmax(learned), **options)
        for result in results:
            assert torch.equal(result.output, output)
            for head, alpha in enumerate(learned.double().tolist()):
                weights = result.weights[0, head].double().numpy()
                scores = bias[0, head].double().numpy()
                entmax_oracle.assert_solves(scores, weights, alpha, 4 * eps, f"alpha {alpha}, {keys} keys")
                mixed = entmax_oracle.weights(scores, alpha) @ value[0, head].double().numpy()
                bound = 64 * eps * keys**0.5 if alpha < 2 else (64 * eps) ** min(1.0, 1 / (alpha - 1))
                np.testing.assert_allclose(output[0, head].double().numpy(), mixed, rtol=0, atol=4 * bound)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", [1.333, 1.5, 1.9, 2.0, "learned"])
def test_entmax_gradients_to_the_scores_match_the_formula(backend, alpha):
    """To the scores by the published formula."""
    heads = 4
    learned = torch.tensor([1.05, 1.333, 1.75, 1.99], dtype=torch.float64)
    query, key, value, bias = given(129, torch.float64, heads)
    leaf = bias.requires_grad_()
    normalizer = entmax(learned.clone().requires_grad_() if alpha == "learned" else alpha)
    output = regard.attend(query, key, value, bias=leaf, normalizer=normalizer, backend=backend)
    target = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (got,) = torch.autograd.grad((output * target).sum(), leaf)
    for head in range(heads):
        number = learned[head].item() if alpha == "learned" else alpha
        weights = entmax_oracle.weights(bias[0, head].detach().numpy(), number)
        expected = entmax_oracle.gradient(weights, number, (target[0, head] @ value[0, head].T).numpy())
        sure = np.where(weights > 0, weights, 1.0).min(-1) > 1e-9
        assert sure.sum() > 5
        scale = np.abs(expected).max(-1, keepdims=True) + 1e-9
        assert (np.abs(got[0, head].numpy() - expected) / scale)[sure].max() < 1e-6
