"""Attention over depth: the equation, the module of transformers, and its laws."""

import pytest
import torch

import regard
from regard import nn
from regard.errors import KindError, ShapeError

BATCH, LENGTH, LAYERS, DIM = 2, 5, 3, 7


def attended(layer, count=LAYERS, dtype=torch.float64):
    torch.manual_seed(1)
    torch.nn.init.normal_(layer.to(dtype).query)
    states = [torch.randn(BATCH, LENGTH, DIM, dtype=dtype, requires_grad=True) for _ in range(count)]
    return states, layer(states, need_weights=True)


@pytest.mark.parametrize("normed", [False, True])
def test_depth_attention_is_the_equation(normed):
    layer = nn.DepthAttention(DIM, scale=0.5, normed_values=normed)
    states, (output, weights) = attended(layer)
    for b in range(BATCH):
        for t in range(LENGTH):
            values = [state[b, t] for state in states]
            keys = [value / (value.square().mean() + 1e-6).sqrt() for value in values]
            scores = torch.stack([0.5 * layer.query @ key for key in keys])
            alpha = scores.exp() / scores.exp().sum()
            mixed = sum(a * v for a, v in zip(alpha, keys if normed else values, strict=True))
            torch.testing.assert_close(weights[b, t], alpha)
            torch.testing.assert_close(output[b, t], mixed)
    inputs = [*states, layer.query]
    torch.autograd.gradcheck(lambda *given: _with_query(layer, given), inputs)


def _with_query(layer, inputs):
    return torch.func.functional_call(layer, {"query": inputs[-1]}, (list(inputs[:-1]),)).output


def test_depth_attention_begins_as_the_mean_and_takes_any_form_of_states():
    states = [torch.randn(BATCH, LENGTH, DIM) for _ in range(LAYERS)]
    layer = nn.DepthAttention(DIM)
    output = layer(states).output
    torch.testing.assert_close(output, torch.stack(states).mean(0))
    torch.nn.init.normal_(layer.query)
    output = layer(states).output
    assert torch.equal(layer(torch.stack(states, dim=-2)).output, output)
    assert torch.equal(layer(states, need_weights=True).output, output)
    rows = layer([state.flatten(0, 1) for state in states]).output  # packed tokens
    torch.testing.assert_close(rows.view(BATCH, LENGTH, DIM), output)
    half = nn.DepthAttention(DIM, dtype=torch.bfloat16)
    assert half([state.bfloat16() for state in states]).output.dtype == torch.bfloat16
    for sizes in ((0, LENGTH), (BATCH, 0), (1, 1)):
        assert layer([torch.zeros(*sizes, DIM)] * LAYERS).output.shape == (*sizes, DIM)
    assert layer(states[:1]).weights is None


def test_normalizers_over_depth_may_leave_layers_out():
    layer = nn.DepthAttention(DIM, normalizer="sparsemax")
    _, (_, weights) = attended(layer, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, LENGTH).double())
    assert (weights == 0).any()


def test_depth_attention_loads_the_module_of_inkling():
    pytest.importorskip("transformers")
    from transformers.models.inkling2 import modeling_inkling2 as peer

    class Config:
        hidden_size, _attn_implementation = DIM, "eager"

    torch.manual_seed(0)
    foreign = peer.Inkling2BlockAttentionResidual(Config())
    torch.nn.init.normal_(foreign.query)
    own = nn.DepthAttention(DIM, scale=DIM**-0.5, normed_values=True)
    own.load_state_dict(foreign.state_dict())
    blocks, part = torch.randn(BATCH, LENGTH, LAYERS, DIM), torch.randn(BATCH, LENGTH, DIM)
    expected = foreign(blocks, part)[0]
    torch.testing.assert_close(own([*blocks.unbind(-2), part]).output, expected, rtol=0, atol=1e-6)


def test_depth_attention_refuses_states_of_other_sizes():
    layer = nn.DepthAttention(DIM)
    with pytest.raises(KindError, match="states must be tensors, at least one"):
        layer([])
    with pytest.raises(ShapeError, match="states must have one shape"):
        layer([torch.ones(2, DIM), torch.ones(3, DIM)])
    with pytest.raises(ShapeError, match=f"states must have {DIM} features"):
        layer([torch.ones(2, DIM + 1)])
    with regard.watch(layer) as seen:
        layer([torch.ones(2, 3, DIM)])
    assert "depth" in repr(seen.calls[0])
