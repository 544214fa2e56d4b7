"""Gated delta nets, Kimi delta attention and Mamba-2 with short convolutions are the equations of their papers."""

import copy
import math

import pytest
import torch

import regard
from regard import masks, nn
from regard.errors import ArgumentError, KindError

B, L, DIM, HEADS, KEY_HEADS, KEY, VALUE = 2, 11, 10, 6, 3, 5, 7
GROUP = HEADS // KEY_HEADS
SIZES = {"key_heads": KEY_HEADS, "head_dim": KEY, "value_dim": VALUE}
LAYERS = {
    "gated_delta": lambda **options: nn.GatedDeltaNet(DIM, HEADS, kernel_size=4, **SIZES, **options),
    "gated_delta_double": lambda **options: nn.GatedDeltaNet(
        DIM, HEADS, kernel_size=2, largest_beta=2.0, eps=0.1, bias=False, **SIZES, **options
    ),
    "kimi_delta": lambda **options: nn.KimiDeltaAttention(DIM, HEADS, **SIZES, **options),
    "mamba2": lambda **options: nn.Mamba2(DIM, HEADS, kernel_size=3, step_limits=(0.4, 0.9), **SIZES, **options),
    "mamba2_biased": lambda **options: nn.Mamba2(DIM, HEADS, bias=True, **SIZES, **options),
}
layers = pytest.mark.parametrize("name", LAYERS)


def layer_of(name, **options):
    torch.manual_seed(3)
    layer = LAYERS[name](**options).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer


def tokens(*shape):
    return torch.randn(*shape, DIM, dtype=torch.float64)


def swish(x):
    return x / (1 + (-x).exp())


def softplus(x):
    return (1 + x.exp()).log()


def convolved(layer, rows):
    """Each channel of ``rows [length, channels]`` over its last tokens, token by token."""
    weight, width = layer.conv.weight[:, 0], layer.conv.width
    outputs = []
    for token in range(len(rows)):
        total = torch.zeros_like(rows[0]) if layer.conv.bias is None else layer.conv.bias
        for lag in range(min(width, token + 1)):
            total = total + weight[:, width - 1 - lag] * rows[token - lag]
        outputs.append(swish(total))
    return torch.stack(outputs)


def literal(name, layer, x):
    """The output of one sequence ``x [length, dim]``, token by token and head by head."""
    mixed = convolved(layer, layer.in_proj(x))
    query, key, value = mixed.split((KEY_HEADS * KEY, KEY_HEADS * KEY, HEADS * VALUE), dim=-1)
    query, key, value = query.view(-1, KEY_HEADS, KEY), key.view(-1, KEY_HEADS, KEY), value.view(-1, HEADS, VALUE)
    steps = softplus(layer.decay_proj(x)).view(len(x), HEADS, -1)
    outputs = []
    for head in range(HEADS):
        state, rate, shared = torch.zeros(KEY, VALUE, dtype=x.dtype), layer.log_rate[head].exp(), head // GROUP
        for q, k, v, step, token in zip(
            query[:, shared], key[:, shared], value[:, head], steps[:, head], x, strict=True
        ):
            if "mamba2" in name:
                step = step.clamp(*layer.step_limits)
                state = state * (-rate * step).exp() + step * torch.outer(k, v)
                outputs.append(q @ state + layer.skip[head] * v)
                continue
            q, k = (row / (row @ row + 1e-6).sqrt() for row in (q, k))
            beta = layer.largest_beta / (1 + (-layer.beta_proj(token)[head]).exp())
            state = (-rate * step).exp()[:, None] * state
            state = state + beta * torch.outer(k, v - state.T @ k)
            outputs.append(state.T @ q / math.sqrt(KEY))
    output = torch.stack(outputs).view(HEADS, len(x), VALUE).transpose(0, 1)
    gate = layer.gate_proj(x).view(len(x), HEADS, VALUE)
    if "mamba2" in name:
        groups = (output * swish(gate)).reshape(len(x), KEY_HEADS, -1)
        normed = (groups / (groups.square().mean(-1, keepdim=True) + layer.eps).sqrt()).flatten(1) * layer.norm.weight
        return layer.out_proj(normed)
    gate = 1 / (1 + (-gate).exp()) if name == "kimi_delta" else swish(gate)
    normed = output / (output.square().mean(-1, keepdim=True) + layer.eps).sqrt() * layer.norm.weight
    return layer.out_proj((normed * gate).flatten(1))


@layers
@torch.no_grad()
def test_a_released_layer_is_the_equation_of_its_paper_by_every_backend(name):
    layer, x = layer_of(name), tokens(B, L)
    expected = torch.stack([literal(name, layer, row) for row in x])
    for backend in ("reference", "tiled", "linear"):
        layer.backend = backend
        for mask in (None, "causal", masks.causal() & masks.lengths([L, L])):
            torch.testing.assert_close(layer(x, mask=mask).output, expected, rtol=1e-7, atol=1e-9)
    cache, parts = layer.new_cache(), []
    for part in x.split((1, 2, 5, 1, 2), dim=1):
        output, _, cache = layer(part, mask="causal", cache=cache)
        parts.append(output)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, rtol=1e-7, atol=1e-9)
    assert cache.length == L
    assert cache.recent.shape == (B, layer.conv.width - 1, sum(layer.widths))


@layers
@torch.no_grad()
def test_hidden_tokens_and_other_documents_are_as_if_they_were_not_there(name):
    layer, x = layer_of(name), tokens(B, L)
    hidden = torch.zeros(B, L, dtype=torch.bool)
    hidden[0, :2] = hidden[0, 5] = hidden[1, 8:] = hidden[1, 3] = True
    padded = x.masked_fill(hidden[..., None], torch.nan)
    documents = torch.tensor([[0, 0, 0, 0, 4, 4, 4, 4, 4, 5, 5], [7, 7, 7, 3, 3, 3, 3, 1, 1, 1, 1]])
    for given, ids in ((None, documents), (hidden, None), (hidden, documents)):
        mask, kept = masks.causal(), torch.ones_like(hidden) if given is None else ~given
        mask = mask if given is None else mask & masks.keep(kept[:, None, None])
        mask = mask if ids is None else mask & masks.documents(ids)
        output = layer(x if given is None else padded, mask=mask).output
        for row, rows in enumerate(x):
            for document in (0,) if ids is None else ids[row].unique():
                own = kept[row] if ids is None else kept[row] & (ids[row] == document)
                torch.testing.assert_close(output[row, own], literal(name, layer, rows[own]), rtol=1e-7, atol=1e-9)


@layers
def test_gradients_of_a_released_layer_reach_every_parameter_and_are_exact(name):
    layer, x = layer_of(name), tokens(1, 4).requires_grad_()
    mask = masks.causal() & masks.documents(torch.tensor([0, 0, 0, 1]))

    def run(x, *parameters):
        with torch.no_grad():
            weights = dict(zip((key for key, _ in layer.named_parameters()), parameters, strict=True))
        return torch.func.functional_call(layer, weights, (x,), {"mask": mask}).output

    assert torch.autograd.gradcheck(run, (x, *layer.parameters()), fast_mode=True)
    run(x, *layer.parameters()).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())


@layers
@torch.no_grad()
def test_implied_weights_of_a_released_layer_mix_its_values(name):
    layer, x = layer_of(name), tokens(B, L)
    outputs = []
    layer.out_proj.register_forward_pre_hook(lambda _, arguments: outputs.append(arguments[0]))
    with regard.watch(layer, read=regard.Readings(weights=True)) as seen:
        attended = layer(x, need_weights=True)
    torch.testing.assert_close(seen.calls[0].weights.double(), attended.weights, rtol=1e-5, atol=1e-6)
    assert not attended.weights.triu(1).any()
    value = layer.heads(layer.conv(layer.in_proj(x)))[2]
    torch.testing.assert_close(layer.combined(x, attended.weights @ value, value), outputs[0], rtol=1e-7, atol=1e-9)


@layers
def test_half_precision_of_a_released_layer_is_summed_in_float32(name):
    layer, x = layer_of(name).bfloat16(), tokens(B, L).bfloat16()
    exact = layer_of(name).bfloat16().double()(x.double(), mask="causal").output
    output, rows = layer(x, mask="causal").output, layer.in_proj(x)
    assert output.dtype == torch.bfloat16
    assert (output.double() - exact).abs().max() < 0.04 * exact.abs().max()
    convolved_exactly = copy.deepcopy(layer.conv).float()(rows.float())
    assert torch.equal(layer.conv(rows), convolved_exactly.bfloat16())


def test_arguments_and_masks_that_a_released_layer_cannot_use_are_refused():
    layer, x = layer_of("mamba2"), tokens(B, L)
    each = torch.ones(B, HEADS, 1, L, dtype=torch.bool)
    each[:, 0, :, 2] = False
    for call, error, message in (
        (lambda: layer(x, mask=masks.window(3, 0)), ArgumentError, "mask must be 'causal', of lengths, of documents"),
        (lambda: layer(x, mask=masks.causal(offset=1)), ArgumentError, "a token depends on all tokens before it"),
        (lambda: layer(x, mask=masks.causal() & masks.keep(each)), ArgumentError, "hide a token from all heads"),
        (lambda: layer(x, mask=masks.documents(torch.arange(L) % 2)), ArgumentError, "must follow one another"),
        (lambda: nn.Mamba2(DIM, 3), ArgumentError, "num_heads must divide 2 \\* embed_dim unless value_dim is given"),
        (lambda: nn.Mamba2(DIM, HEADS, value_dim=3, key_heads=4), ArgumentError, "key_heads must divide num_heads"),
        (lambda: nn.Mamba2(DIM, 2, kernel_size=0), ArgumentError, "kernel_size must be at least 1"),
        (lambda: nn.Mamba2(DIM, 2, step_limits=(1.0, 0.1)), ArgumentError, "step_limits must be two numbers"),
        (lambda: nn.Mamba2(DIM, 2, step_limits=0.1), ArgumentError, "step_limits must be two numbers"),
        (lambda: nn.GatedDeltaNet(DIM, 2, largest_beta=0.0), ArgumentError, "largest_beta must be positive"),
        (lambda: nn.GatedDeltaNet(DIM, 2, head_dim=2.5), KindError, "head_dim must be an integer"),
        (lambda: nn.GatedDeltaNet(DIM, 3), ArgumentError, "num_heads must divide embed_dim"),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("name", ["linear", "retention", "gated_linear", "delta"])
def test_widths_of_their_own_are_those_of_every_layer_in_linear_time(name):
    kinds = {"linear": nn.LinearAttention, "retention": nn.Retention, "gated_linear": nn.GatedLinearAttention}
    torch.manual_seed(3)
    layer = kinds.get(name, nn.DeltaNet)(DIM, HEADS, key_heads=KEY_HEADS, head_dim=4, value_dim=VALUE).double()
    x = tokens(B, L)
    attended = layer(x, mask="causal", need_weights=True)
    assert attended.weights.shape == (B, HEADS, L, L)
    cache = layer(x[:, :4], mask="causal", cache=layer.new_cache()).cache
    assert cache.state.shape == (B, HEADS, 4, VALUE + (name == "linear"))
    torch.testing.assert_close(layer(x[:, 4:], mask="causal", cache=cache).output, attended.output[:, 4:])


@layers
@torch.no_grad()
def test_empty_batches_and_sequences_pass_a_released_layer(name):
    layer = layer_of(name)
    for batch, length in ((0, 5), (B, 0), (0, 0)):
        x = tokens(batch, length)
        assert layer(x, mask="causal").output.shape == x.shape
        attended = layer(x, mask="causal", cache=layer.new_cache())
        assert attended.output.shape == x.shape
        token = tokens(batch, 1)
        rest = layer(token, cache=attended.cache).output
        if not length:
            torch.testing.assert_close(rest, layer(token).output)
