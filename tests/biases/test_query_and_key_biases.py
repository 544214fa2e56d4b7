"""Biases that depend on the vectors of queries and keys: Transformer-XL's terms and DeBERTa's."""

import math

import pytest
import torch
from torch.autograd import gradcheck

import regard
from regard import biases, masks, nn, scores
from regard.errors import ArgumentError, KindError, ShapeError
from regard.shapes.grid import Grid

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 4, 5, 7, 3
DOUBLE = torch.float64


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + seed), dtype=DOUBLE)


def transformer_xl(scale=None, features=10):
    vectors = [torch.nn.Parameter(numbers(HEADS, DIM, seed=seed)) for seed in (1, 2)]
    return biases.TransformerXL(
        HEADS, DIM, features, scale, torch.nn.Parameter(numbers(HEADS, DIM, features)), *vectors
    )


def disentangled(span=4, max_distance=7):
    weights = [torch.nn.Parameter(numbers(HEADS, 2 * span, DIM, seed=seed)) for seed in (1, 2)]
    return biases.Disentangled(HEADS, DIM, span, max_distance, None, *weights)


BIASES = {"Transformer-XL": transformer_xl, "DeBERTa": disentangled}
every_bias = pytest.mark.parametrize("name", BIASES)


def inputs(kv_heads=HEADS, keys=KEYS):
    return numbers(BATCH, HEADS, QUERIES, DIM), numbers(BATCH, kv_heads, keys, DIM), numbers(BATCH, kv_heads, keys, 2)


def dense(bias, query, key):
    grid = Grid.of(query, key)
    bound = bias.of_keys(key)
    bound.check(query, grid)
    return bound(query, grid).expand(grid.shape)


def test_transformer_xl_terms_are_their_equation_pair_by_pair():
    bias, (query, key, _) = transformer_xl(0.7).requires_grad_(False), inputs(2)
    values = dense(bias, query, key)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (BATCH, HEADS, QUERIES, KEYS))).tolist():
        distance, k = i + KEYS - QUERIES - j, key[b, h // 2, j]
        angles = [distance * 10000 ** (-2 * pair / 10) for pair in range(5)]
        r = torch.tensor([wave(angle) for angle in angles for wave in (math.sin, math.cos)], dtype=DOUBLE)
        expected = bias.content_bias[h] @ k + (query[b, h, i] + bias.position_bias[h]) @ (bias.weight[h] @ r)
        torch.testing.assert_close(values[b, h, i, j], 0.7 * expected)


def test_transformer_xl_terms_are_those_of_xlnet():
    transformers = pytest.importorskip("transformers")
    from transformers.models.xlnet import modeling_xlnet as peer

    torch.manual_seed(0)
    config = transformers.XLNetConfig(d_model=12, n_head=HEADS, d_inner=8, dropout=0.0)
    layer = peer.XLNetRelativeAttention(config).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    query, key, value = (torch.randn(BATCH, HEADS, KEYS, 3) for _ in range(3))
    angles = torch.arange(KEYS, -KEYS, -1.0)[:, None] * 10000 ** (-torch.arange(0, 12, 2) / 12)
    sinusoids = torch.cat([angles.sin(), angles.cos()], -1)
    heads = torch.einsum("pf,fhd->phd", sinusoids, layer.r)[:, None].expand(-1, BATCH, -1, -1)
    sequences = (part.permute(2, 0, 1, 3) for part in (query, key, value))
    expected = layer.rel_attn_core(*sequences, heads).permute(1, 2, 0, 3)
    alternating = layer.r.permute(1, 2, 0).unflatten(-1, (2, 6)).transpose(-1, -2).flatten(-2)
    bias = biases.TransformerXL(HEADS, 3, 12, None, alternating, layer.r_w_bias, layer.r_r_bias)
    torch.testing.assert_close(regard.attend(query, key, value, bias=bias), expected, atol=1e-6, rtol=1e-5)


def literal_bucket(distance, span, max_distance):
    """He et al.'s released code, one number at a time."""
    middle = span // 2
    if abs(distance) <= middle:
        return distance
    reach = math.log(abs(distance) / middle) / math.log((max_distance - 1) / middle) * (middle - 1)
    return int(math.copysign(math.ceil(reach) + middle, distance))


@pytest.mark.parametrize(("span", "max_distance"), [(4, 7), (4, None), (8, 20)])
def test_disentangled_terms_are_their_equation_pair_by_pair(span, max_distance):
    bias, (query, key, _) = disentangled(span, max_distance).requires_grad_(False), inputs(2)
    values = dense(bias, query, key)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (BATCH, HEADS, QUERIES, KEYS))).tolist():
        distance = i + KEYS - QUERIES - j
        bucket = distance if max_distance is None else literal_bucket(distance, span, max_distance)
        row = min(max(bucket + span, 0), 2 * span - 1)
        expected = query[b, h, i] @ bias.key_weight[h, row] + key[b, h // 2, j] @ bias.query_weight[h, row]
        torch.testing.assert_close(values[b, h, i, j], expected / (3 * DIM) ** 0.5)


def test_buckets_are_those_of_deberta_at_every_distance():
    peer = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    distances = torch.arange(-1200, 1201)
    for span, max_distance in ((256, 512), (8, 40), (32, 128), (6, 1000)):
        bias = biases.Disentangled(1, 1, span, max_distance)
        theirs = peer.make_log_bucket_position(distances, span, max_distance).long()
        assert torch.equal(bias._row(distances), (theirs + span).clamp(0, 2 * span - 1))


@every_bias
def test_a_tile_of_a_bound_bias_is_a_slice_of_the_whole(name):
    bias, (query, key, _) = BIASES[name](), inputs(2)
    whole, grid = dense(bias, query, key), Grid.of(query, key)
    rows = range(1, 4), range(QUERIES), range(0), range(2, 2)
    for queries, keys in zip(rows, (range(KEYS), range(2, 3), range(3), range(0)), strict=True):
        tile = grid.tile(batch=range(1, 2), queries=queries, keys=keys)
        part = bias.of_keys(key)(query[1:2, :, queries.start : queries.stop], tile)
        expected = whole[1:2, :, queries.start : queries.stop, keys.start : keys.stop]
        torch.testing.assert_close(part, expected)


@every_bias
def test_gradients_reach_queries_keys_and_vectors_on_every_path(name):
    bias, tensors = BIASES[name](), [tensor.requires_grad_() for tensor in inputs(2)]
    names = [key for key, _ in bias.named_parameters()]

    def attended(query, key, value, *parameters, backend="reference"):
        own = dict(zip(names, parameters, strict=True))

        class Call(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.bias = bias

            def forward(self):
                return regard.attend(query, key, value, bias=self.bias, backend=backend)

        return torch.func.functional_call(Call(), {f"bias.{key}": value for key, value in own.items()}, ())

    wanted = (*tensors, *bias.parameters())
    assert gradcheck(attended, wanted, fast_mode=True, check_forward_ad=True)
    expected = torch.autograd.grad(attended(*wanted).square().sum(), wanted)
    output = regard.attend(*tensors, bias=bias, backend="tiled")
    torch.testing.assert_close(torch.autograd.grad(output.square().sum(), wanted), expected)


@every_bias
def test_calls_bind_the_keys_and_known_calls_bind_theirs(name):
    bias, calls = BIASES[name]().float().requires_grad_(False), []
    for seed in range(3):  # the second and third call are of a known kind
        query, key, value = (numbers(BATCH, HEADS, KEYS, DIM, seed=seed + part).float() for part in (0, 10, 20))
        calls.append(regard.attend(query, key, value, bias=bias))
        expected = dense(bias, query, key) + (query @ key.mT) / DIM**0.5
        torch.testing.assert_close(calls[-1], expected.softmax(-1) @ value)
        summed = regard.attend(query, key, value, bias=bias + torch.zeros(KEYS, KEYS), mask="causal")
        torch.testing.assert_close(summed, regard.attend(query, key, value, bias=bias.of_keys(query), mask="causal"))


@every_bias
def test_a_hidden_key_that_is_nan_reaches_neither_output_nor_gradients(name):
    bias, (query, key, value) = BIASES[name](), inputs()
    wanted = tuple(bias.parameters())

    def results(key):
        output = regard.attend(query, key, value, bias=bias, mask=masks.lengths([KEYS, 3]))
        return output, *torch.autograd.grad(output.square().sum(), wanted)

    expected = results(key)
    key = key.clone()
    key[1, :, 3:] = torch.nan
    torch.testing.assert_close(results(key), expected)


@every_bias
@pytest.mark.parametrize("layer", [nn.SelfAttention, nn.MultiheadAttention])
def test_layers_bind_their_keys_and_steps_with_a_cache_are_the_whole(name, layer):
    torch.manual_seed(0)
    heads, options = 4, {"batch_first": True, "add_zero_attn": True} if layer is nn.MultiheadAttention else {}
    own, x = layer(12, heads, position=BIASES[name](), **options).double(), numbers(2, 5, 12)
    if layer is nn.MultiheadAttention:
        assert own(x, x, x, mask="causal")[0].isfinite().all()
        return
    whole, cache = own(x, mask="causal").output, own.new_cache()
    for position in range(5):
        output, _, cache = own(x[:, position : position + 1], mask="causal", cache=cache)
        torch.testing.assert_close(output, whole[:, position : position + 1])
    with regard.watch(own, read="view") as record:
        assert torch.equal(own(x, mask="causal").output, whole)
    expected = own(x, mask="causal", need_weights=True).weights
    torch.testing.assert_close(record.calls[0].weights.double(), expected.detach(), rtol=1e-5, atol=1e-6)


def test_key_biases_name_what_does_not_fit():
    query, key, value = inputs()
    with pytest.raises(KindError, match=r"TransformerXL depends on the keys: write bias.of_keys\(key\)\(query, grid\)"):
        transformer_xl()(query, Grid.of(query, key))
    with pytest.raises(ArgumentError, match="features must be even; it is 5"):
        biases.TransformerXL(1, 4, features=5)
    with pytest.raises(ShapeError, match="content_bias must have the shape"):
        biases.TransformerXL(1, 4, content_bias=torch.zeros(4))
    with pytest.raises(ArgumentError, match="max_distance must be at least 6; it is 5"):
        biases.Disentangled(1, 4, span=8, max_distance=5)
    with pytest.raises(ShapeError, match="Disentangled was made for 4 heads; query has 2"):
        regard.attend(query[:, :2], key[:, :2], value[:, :2], bias=disentangled())
    with pytest.raises(ArgumentError, match="must not depend on queries"):
        nn.LatentAttention(12, HEADS, position=disentangled())
    explained = str(regard.explain(query[:1], key[:1], value[:1], bias=disentangled()))
    assert "+ bias" in explained
    assert scores.ScaledDot(disentangled().scale).scale == pytest.approx((3 * DIM) ** -0.5)


@every_bias
def test_plan_names_the_bias_that_depends_on_keys(name):
    bias = BIASES[name]()
    text = str(regard.plan(*inputs(), bias=bias))
    assert f"{type(bias).__name__} is not a function of distance alone" in text
    assert "BoundBias" not in text
