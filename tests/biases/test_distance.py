"""Functions of distance: slopes given outright, KERPLE, Sandwich, and FIRE, whose divisor is the query's position."""

import math

import pytest
import torch

import regard
from regard import biases
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.shapes.grid import Grid

HEADS, QUERIES, KEYS = 3, 5, 7


def dense(bias, queries=QUERIES, keys=KEYS, dtype=torch.float64):
    grid = Grid.whole(1, HEADS, queries, keys)
    return bias(torch.zeros(1, HEADS, queries, 2, dtype=dtype), grid).detach()


def pairs():
    """Each head, query and key, with the query's position among the keys."""
    return ((h, i, j, i + KEYS - QUERIES) for h in range(HEADS) for i in range(QUERIES) for j in range(KEYS))


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 7, 8, 11, 12, 16, 20, 71])
def test_slopes_are_those_of_bloom_and_mpt_for_any_number_of_heads(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    own = biases.alibi(heads).values(torch.tensor([-1]), torch.float32)[:, 0]
    theirs = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(-own, theirs, rtol=1e-6, atol=0)
    torch.testing.assert_close(own, mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 0], rtol=1e-6, atol=0)


def test_slopes_given_outright_reach_what_the_names_cannot():
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    theirs = mpt.build_mpt_alibi_tensor(HEADS, KEYS, alibi_bias_max=5)
    numbers = biases.alibi(HEADS, (-theirs[:, 0, -2]).tolist())
    torch.testing.assert_close(dense(numbers, 1)[:, :, :].float(), theirs, rtol=1e-6, atol=0)
    learned = torch.nn.Parameter(-theirs[:, 0, -2])
    bias = biases.alibi(HEADS, learned)
    assert list(bias.parameters()) == [learned]
    assert torch.equal(dense(bias), dense(numbers))
    assert bias.is_diagonal
    with pytest.raises(ShapeError, match="slopes must be as many as heads, 3; there are 2"):
        biases.alibi(3, [0.5, 0.25])
    with pytest.raises(ShapeError, match=r"slopes must have the shape \[3\]; it has \[2\]"):
        biases.alibi(3, torch.ones(2))
    with pytest.raises(ArgumentError, match="slopes must be finite"):
        biases.alibi(1, [math.nan])
    with pytest.raises(KindError, match="slopes must be numbers or a tensor"):
        biases.alibi(1, 0.5)


@pytest.mark.parametrize("variant", ["logarithmic", "power"])
def test_kerple_is_its_equation_pair_by_pair(variant):
    amplitude, rate = torch.tensor([1.5, 0.7, -1.0]).double(), torch.tensor([0.4, 1.7, 2.6]).double()
    values = dense(biases.Kerple(HEADS, variant, amplitude, rate))
    for h, i, j, position in pairs():
        a, r, distance = max(amplitude[h].item(), 0.01), rate[h].item(), abs(position - j)
        expected = -a * math.log(1 + r * distance) if variant == "logarithmic" else -a * distance ** min(r, 2.0)
        assert values[h, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_kerple_with_a_rate_of_one_is_alibi():
    slopes = torch.tensor([0.5, 0.25, 0.125]).double()
    kerple = biases.Kerple(HEADS, "power", slopes, torch.ones(HEADS).double())
    torch.testing.assert_close(dense(kerple), dense(biases.alibi(HEADS, slopes.tolist())))
    with pytest.raises(UnknownNameError, match="variant"):
        biases.Kerple(HEADS, "linear")


def test_sandwich_is_the_product_of_sinusoids_and_falls_with_distance():
    dim = 10
    values = dense(biases.Sandwich(HEADS, dim))
    frequencies = 10000.0 ** (-2 * torch.arange(1, dim // 2 + 1).double() / dim)
    angles = torch.arange(KEYS).double()[:, None] * frequencies
    sinusoids = torch.cat([angles.sin(), angles.cos()], -1)
    for h, i, j, position in pairs():
        product = sinusoids[position] @ sinusoids[j] - dim / 2
        assert values[h, i, j].item() == pytest.approx(product.item() * HEADS / (8 * (h + 1)), abs=1e-12)
    far = biases.Sandwich(1).values(-torch.tensor([0, 1, 3, 10, 30, 100, 300]), torch.float32)[0]
    assert (far.diff() < 0).all()
    with pytest.raises(ArgumentError, match="dim must be even; it is 7"):
        biases.Sandwich(HEADS, 7)


def test_fire_is_its_equation_pair_by_pair():
    torch.manual_seed(1)
    bias = biases.Fire(HEADS, 11, torch.tensor(-0.3, dtype=torch.float64), torch.tensor(3.5)).double()
    values = dense(bias)
    for h, i, j, position in pairs():
        share = math.log(0.3 * abs(position - j) + 1) / (math.log(0.3 * max(position, 3.5) + 1) + 1e-6)
        units = [max(0.0, w * share + b) for w, b in bias.inner.tolist()]
        *weights, added = bias.outer[h].tolist()
        expected = sum(w * u for w, u in zip(weights, units, strict=True)) + added
        assert values[h, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_the_divisor_of_fire_follows_the_query_where_it_is_beyond_the_threshold():
    torch.manual_seed(1)
    bias = biases.Fire(HEADS, threshold=torch.tensor(3.0))
    values = dense(bias, KEYS, KEYS)
    near, far = values.diagonal(-1, 1, 2)[:, :3], values.diagonal(-1, 1, 2)[:, 3:]
    torch.testing.assert_close(near, near[:, :1].expand(-1, 3))  # queries 1 to 3
    assert (far.diff() != 0).any()
    assert not bias.is_diagonal


@pytest.mark.parametrize("make", [lambda: biases.Kerple(HEADS), lambda: biases.Fire(HEADS)], ids=["kerple", "fire"])
def test_steps_of_a_decoder_see_the_distances_of_the_whole(make):
    torch.manual_seed(2)
    bias, x = make(), torch.randn(2, HEADS, KEYS, 5)
    whole = regard.attend(x, x, x, bias=bias, mask="causal")
    for length in (1, 2, KEYS):
        part = x[:, :, :length]
        step = regard.attend(part[:, :, -1:], part, part, bias=bias, mask="causal")
        torch.testing.assert_close(step, whole[:, :, length - 1 : length])


@pytest.mark.parametrize("variant", ["logarithmic", "power"])
def test_fused_kernels_read_kerple_and_return_its_gradients(variant):
    torch.manual_seed(3)
    x = torch.randn(2, HEADS, 67, 8)
    results = []
    for backend in ("cpu", "reference"):
        bias = biases.Kerple(HEADS, variant, torch.nn.Parameter(torch.tensor([1.0, 0.5, 0.1])),
                             torch.nn.Parameter(torch.tensor([0.5, 1.0, 0.2])))  # fmt: skip
        output = regard.attend(x, x, x, bias=bias, mask="causal", backend=backend)
        output.square().sum().backward()
        results.append((output.detach(), bias.amplitude.grad, bias.rate.grad))
    torch.testing.assert_close(results[0], results[1])
