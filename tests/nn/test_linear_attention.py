"""The layers in linear time are the equations of their papers, token by token."""

import pytest
import torch
from torch.nn import functional as F

import regard
from linear_loops import by_loops, weights_by_loops
from regard import masks, nn
from regard.errors import ArgumentError, KindError

DIM, HEADS, LENGTH = 8, 2, 5
PAPERS = {
    "linear": nn.LinearAttention,
    "retention": nn.Retention,
    "gated_linear": nn.GatedLinearAttention,
    "delta": nn.DeltaNet,
    "gated_delta": nn.GatedDeltaNet,
}
RELEASED = {
    "gated_delta_released": lambda *sizes: nn.GatedDeltaNet(
        *sizes, key_heads=1, head_dim=3, value_dim=5, kernel_size=3
    ),
    "kimi_delta": nn.KimiDeltaAttention,
    "mamba2": lambda *sizes: nn.Mamba2(*sizes, head_dim=3, value_dim=5),
}
LAYERS = PAPERS | RELEASED
layers = pytest.mark.parametrize("name", LAYERS)


def layer_of(name):
    torch.manual_seed(5)
    layer = LAYERS[name](DIM, HEADS).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer


def heads(rows):
    return rows.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def literal(name, layer, x):
    """Output and weights of ``x [batch, length, dim]`` under a causal mask."""
    d = DIM // HEADS
    query, key, value = (heads(part) for part in layer.in_proj(x).split(DIM, dim=-1))
    decay = beta = None
    if name == "linear":
        query, key = (torch.where(part > 0, part + 1, part.exp()) for part in (query, key))
    if name == "retention":
        angle = torch.arange(LENGTH)[:, None] * 10000.0 ** (-2 * torch.arange(d // 2) / d)
        turn = torch.polar(torch.ones_like(angle), angle).to(torch.complex128)
        query, key = (turned(part, turn) for part in (query, key))
        rates = torch.tensor([31 / 32, 63 / 64], dtype=torch.float64).log()
        decay = rates[:, None, None].expand(len(x), HEADS, LENGTH, 1)
    if name == "gated_linear":
        first, second = layer.decay_proj
        decay = heads(torch.sigmoid(second(first(x))).log() / 16)
    if "delta" in name:
        query, key = (F.silu(part) for part in (query, key))
        query, key = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (query, key))
        beta = torch.sigmoid(layer.beta_proj(x)).transpose(1, 2)
    if name == "gated_delta":
        decay = -(layer.log_rate.exp() * F.softplus(layer.decay_proj(x))).transpose(1, 2)[..., None]
    scale = 1.0 if name == "linear" else d**-0.5
    mixed = scale * by_loops(query, key, value, decay, beta)[0]
    weights = scale * weights_by_loops(query, key, decay, beta)
    if name == "linear":
        mixed, weights = mixed / weights.sum(-1, keepdim=True), weights / weights.sum(-1, keepdim=True)
    mixed = mixed.transpose(1, 2)
    if "delta" in name:
        mixed = mixed / (mixed.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight
    elif name != "linear":
        centered = mixed - mixed.mean(-1, keepdim=True)
        deviation = (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        mixed = centered / deviation * layer.norm.weight + layer.norm.bias
    mixed = mixed.flatten(2)
    if name not in ("linear", "delta"):
        mixed = mixed * F.silu(layer.gate_proj(x))
    return layer.out_proj(mixed), weights


def turned(part, turn):
    """Pairs of a vector's two halves, as complex numbers, times the turn of each position."""
    first, second = part.chunk(2, dim=-1)
    product = torch.complex(first, second) * turn
    return torch.cat((product.real, product.imag), dim=-1)


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize("backend", ["reference", "linear"])
def test_a_layer_is_the_equation_of_its_paper(name, backend):
    layer = layer_of(name)
    layer.backend = backend
    x = torch.randn(3, LENGTH, DIM, dtype=torch.float64)
    with torch.no_grad():
        output, weights = literal(name, layer, x)
        attended = layer(x, mask="causal", need_weights=True)
        cache = layer(x[:, :3], mask="causal", cache=layer.new_cache()).cache
        last = layer(x[:, 3:], mask="causal", cache=cache)
    torch.testing.assert_close(attended.output, output, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(attended.weights, weights, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(last.output, output[:, 3:], rtol=1e-7, atol=1e-7)
    assert last.cache.length == LENGTH


@layers
def test_padding_changes_nothing_whatever_it_holds(name):
    layer, x = layer_of(name), torch.randn(2, LENGTH, DIM, dtype=torch.float64)
    mask = masks.causal() & masks.lengths([LENGTH, 3])
    whole = layer(x, mask=mask).output
    alone = layer(x[1:, :3], mask="causal").output
    torch.testing.assert_close(whole[1, :3], alone[0])
    x[1, 3:] = torch.nan
    torch.testing.assert_close(layer(x, mask=mask).output[1, :3], alone[0])


@layers
def test_a_later_token_of_a_cached_call_reaches_no_earlier_one(name):
    layer, x = layer_of(name), torch.randn(2, LENGTH, DIM, dtype=torch.float64)
    clean = layer(x, mask="causal", cache=layer.new_cache()).output
    x[:, 3] = torch.nan
    output = layer(x, mask="causal", cache=layer.new_cache()).output
    torch.testing.assert_close(output[:, :3], clean[:, :3])
    assert output[:, 3:].isnan().all()


def test_rates_beyond_float32_clear_the_state_and_have_finite_gradients():
    layer, x = layer_of("gated_delta").float(), torch.randn(2, LENGTH, DIM)
    with torch.no_grad():
        layer.log_rate.fill_(100.0)
        layer.decay_proj.bias.copy_(torch.tensor([9.0, -200.0]))
    assert (layer.tokens(x, layer.in_proj(x), 0).log_decay[:, 0] == -torch.inf).all()
    output = layer(x, mask="causal").output
    torch.testing.assert_close(output, layer(x, mask="causal", cache=layer.new_cache()).output)
    output.sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad.isfinite().all()


@layers
def test_documents_of_a_recurrent_layer_are_read_alone(name):
    layer, x = layer_of(name), torch.randn(2, LENGTH, DIM, dtype=torch.float64)
    mask = masks.causal() & masks.documents(torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]))
    output = layer(x, mask=mask).output
    # A rotation by positions is the same for all pairs of one distance.
    for row, span in ((0, slice(0, 3)), (0, slice(3, 5)), (1, slice(0, 1)), (1, slice(1, 5))):
        torch.testing.assert_close(output[row, span], layer(x[row : row + 1, span], mask="causal").output[0])


@layers
def test_a_query_of_padding_reads_nothing(name):
    layer, x = layer_of(name), torch.randn(2, LENGTH, DIM, dtype=torch.float64)
    lengths = torch.tensor([LENGTH, 3])
    attended = layer(x, mask=masks.causal() & masks.lengths(lengths, lengths), need_weights=True)
    assert not attended.weights[1, :, 3:].any()
    expected = layer(x[1:, :3], mask="causal", need_weights=True)
    torch.testing.assert_close(attended.output[1, :3], expected.output[0])


@layers
def test_a_cache_has_a_constant_size_and_steps_are_seen_as_errors_where_they_cannot_be(name):
    layer, x = layer_of(name), torch.randn(2, 40, DIM, dtype=torch.float64)
    caches = [layer(x[:, :length], mask="causal", cache=layer.new_cache()).cache for length in (1, 40)]
    assert caches[0].state.shape == caches[1].state.shape
    for arguments, error, message in (
        ({"need_weights": True}, ArgumentError, "weights of tokens in the cache are gone"),
        ({"mask": masks.window(1, 0)}, ArgumentError, "mask must be 'causal' with a cache"),
        ({"bias": "alibi"}, ArgumentError, "leave bias out"),
        ({"cache": nn.KeyValueCache()}, KindError, "a LinearState; it is a KeyValueCache"),
    ):
        with pytest.raises(error, match=message):
            layer(x[:, :2], **{"cache": caches[0], **arguments})


@layers
def test_a_watched_layer_has_the_weights_that_it_implies(name):
    layer, x = layer_of(name), torch.randn(1, LENGTH, DIM, dtype=torch.float64)
    with regard.watch(layer, read=regard.Readings(weights=True)) as record:
        attended = layer(x, mask="causal", need_weights=True)
    torch.testing.assert_close(record.calls[0].weights.double(), attended.weights.detach(), rtol=1e-5, atol=1e-6)
