"""Mixtures in which most weights are 0 are sums over the others: with the same bits, and NaN is not passed over."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from regard import attend, masks, normalizers
from regard.kernels.cpu import kernels

NORMALIZERS = {
    "sparsemax": normalizers.sparsemax,
    "entmax15": normalizers.entmax(1.5),
    "entmax13": normalizers.entmax(1.3),
    "hard": "hard",
}


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setattr(kernels, "is_wide", lambda inputs: inputs.query.dtype == torch.float32)


def tensors(queries, keys, dim, value_dim):
    return 3 * torch.randn(2, 4, queries, dim), torch.randn(2, 2, keys, dim), torch.randn(2, 2, keys, value_dim)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("keys", [17, 128, 129, 300])
@pytest.mark.parametrize("value_dim", [16, 33, 64, 80])
def test_neighbours_do_not_change_how_a_row_is_mixed(normalizer, keys, value_dim):
    """Beside rows whose weights are all above 0, no weight of a row is passed over."""
    query, key, value = tensors(67, keys, 64, value_dim)
    among_even = query.clone()
    among_even[:, :, ::2] = 0
    for mask in (None, masks.causal(), masks.window(70, 9), masks.lengths([keys, 5])):
        alone, beside = (
            attend(each, key, value, normalizer=NORMALIZERS[normalizer], mask=mask, backend="cpu")
            for each in (query, among_even)
        )
        assert torch.equal(alone[:, :, 1::2], beside[:, :, 1::2])


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_a_value_of_weight_zero_is_seen_where_it_is_not_finite(normalizer, poison):
    query, key, value = tensors(67, 300, 64, 16)
    value[0, 1, -1, 3] = poison
    clean = value.clone()
    clean[0, 1, -1, 3] = 0
    got, expected = (
        attend(query, key, each, normalizer=NORMALIZERS[normalizer], backend="cpu") for each in (value, clean)
    )
    # Two query heads share a head of values; 0 · ∞ is NaN, too.
    assert not got[0, 2:, :, 3].isfinite().any()
    got[0, 2:, :, 3] = expected[0, 2:, :, 3]
    assert torch.equal(got, expected)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_a_hidden_value_may_be_anything(normalizer):
    query, key, value = tensors(67, 300, 64, 16)
    shorter = attend(query, key[:, :, :290], value[:, :, :290], normalizer=NORMALIZERS[normalizer], backend="cpu")
    value[:, :, 290:] = torch.nan
    got = attend(query, key, value, normalizer=NORMALIZERS[normalizer], mask=masks.lengths([290] * 2), backend="cpu")
    torch.testing.assert_close(got, shorter, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_values_whose_sum_overflows_are_mixed(normalizer):
    query, key, value = tensors(67, 300, 64, 16)
    large = attend(query, key, value.sign() * 3e38, normalizer=NORMALIZERS[normalizer], backend="cpu")
    signs = attend(query, key, value.sign(), normalizer=NORMALIZERS[normalizer], backend="cpu")
    torch.testing.assert_close(large / 3e38, signs, rtol=1e-5, atol=1e-5)
