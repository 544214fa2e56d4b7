"""Selected keys and a temperature for each query, against the papers' equations."""

import pytest
import torch

import regard
from backends import ON_CPU
from cases import B, H, K, Q, problem
from normalizer_cases import some_scores
from regard import masks, normalizers, scores
from regard.errors import ArgumentError, KindError, ShapeError

TIED = torch.tensor([2.0, 1.0, 1.0, 0.5, 1.0], dtype=torch.float64)


def explicit_sparse(row, k):
    """Zhao et al. 2019: what is below the k-th largest score is −∞."""
    last = sorted(row.tolist(), reverse=True)[min(k, len(row)) - 1]
    powers = torch.tensor([torch.tensor(s).exp() if s >= last else 0.0 for s in row.tolist()], dtype=row.dtype)
    return powers / powers.sum()


def nucleus(row, p):
    """Holtzman et al. 2020, eq. 2 and 3: the largest weights until their sum is p."""
    weights, chosen = row.softmax(-1), torch.zeros_like(row)
    for j in weights.argsort(descending=True).tolist():
        if weights @ chosen >= p:
            break
        chosen[j] = 1.0
    return weights * chosen / (weights @ chosen)


@pytest.mark.parametrize(
    ("normalizer", "literal"),
    [
        *((normalizers.top_k(k), lambda row, k=k: explicit_sparse(row, k)) for k in (1, 3, 9)),
        *((normalizers.top_p(p), lambda row, p=p: nucleus(row, p)) for p in (0.2, 0.7, 1.0)),
    ],
)
def test_rows_are_those_of_the_paper(normalizer, literal):
    rows = some_scores()
    weights = normalizer(rows)
    for row, got in zip(rows.flatten(0, 2), weights.flatten(0, 2), strict=True):
        visible = row > -torch.inf
        if visible.any():
            torch.testing.assert_close(got[visible], literal(row[visible]))
    torch.testing.assert_close(normalizer(rows.mT, dim=-2), weights.mT)


def test_ties_with_the_last_selected_key_are_kept():
    torch.testing.assert_close(normalizers.top_k(2)(TIED), explicit_sparse(TIED, 2))
    assert (normalizers.top_k(2)(TIED) > 0).tolist() == [True, True, True, False, True]
    assert (normalizers.top_p(0.5)(TIED) > 0).tolist() == [True, True, True, False, True]


@pytest.mark.parametrize("normalizer", [normalizers.top_k(2, "entmax15"), normalizers.top_p(0.6)])
def test_the_gradient_is_that_of_the_kept_scores(normalizer):
    row, upstream = some_scores()[0, 0, :1].requires_grad_(), torch.randn(1, K, dtype=torch.float64)
    kept = normalizer(row) > 0
    (got,) = torch.autograd.grad(normalizer(row), row, upstream)
    (expected,) = torch.autograd.grad(normalizer.normalizer(row[kept]), row, upstream[kept])
    torch.testing.assert_close(got, expected)


def test_a_temperature_of_each_query_is_learned_on_every_backend(monkeypatch):
    monkeypatch.setattr("regard.attention.backends.tiled.BLOCK_ELEMENTS", 2 * H * K)
    inputs, logarithms = problem(), torch.randn(B, 1, Q, dtype=torch.float64, requires_grad=True)
    normalizer = normalizers.query_temperature(logarithms.exp(), "sparsemax")
    direct = scores.Modified(
        scores.ScaledDot(), lambda score, batch, head, query, key: score / logarithms.exp()[batch, 0, query]
    )
    arguments = {"mask": masks.causal(), "backend": "reference"}
    expected = regard.attend(*inputs, score=direct, normalizer="sparsemax", **arguments)
    (gradient,) = torch.autograd.grad(expected.sum(), logarithms)
    reasons = regard.plan(*inputs, normalizer=normalizer).reasons
    ran = [backend for backend in ON_CPU if not reasons[backend].startswith("cannot")]
    assert sorted(ran) == ["reference", "tiled"]
    for backend in ran:
        normalizer = normalizers.query_temperature(logarithms.exp(), "sparsemax")
        got = regard.attend(*inputs, normalizer=normalizer, **(arguments | {"backend": backend}))
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(torch.autograd.grad(got.sum(), logarithms)[0], gradient)


def test_selections_refuse_wrong_arguments():
    for make, error, message in (
        (lambda: normalizers.top_k(0), ArgumentError, "k must be"),
        (lambda: normalizers.top_p(1.5), ArgumentError, "p must be at most 1; it is 1.5"),
        (lambda: normalizers.top_p(0.5, normalizers.hard("sample")), ArgumentError, "must not draw them"),
        (lambda: normalizers.top_p(0.5, "identity"), ArgumentError, "weights of Identity may be negative"),
        (lambda: normalizers.top_p(0.5, normalizers.top_k(2, "ratio")), ArgumentError, "weights of Ratio may be"),
        (lambda: normalizers.query_temperature(2.0), KindError, "write normalizers.Softmax"),
        (lambda: normalizers.query_temperature(torch.zeros(1)), ArgumentError, "temperature must be finite and gr"),
        (lambda: normalizers.as_normalizer("top_k"), ArgumentError, "pass normalizers.top_k"),
        (
            lambda: regard.attend(*problem(), normalizer=normalizers.query_temperature(torch.ones(K))),
            ShapeError,
            "temperature must",
        ),
    ):
        with pytest.raises(error, match=message):
            make()
