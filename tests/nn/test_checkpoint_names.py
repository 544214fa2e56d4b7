"""Layers load the parameters of other libraries' layers, and compute the same."""

import pytest
import torch

from regard import nn

transformers = pytest.importorskip("transformers")


def llama(bias):
    """Returns an attention layer of transformers, and its output for random tokens and positions of a causal model."""
    from transformers.models.llama import modeling_llama as peer

    config = transformers.LlamaConfig(
        hidden_size=24, num_attention_heads=6, num_key_value_heads=2, attention_bias=bias, attn_implementation="eager"
    )
    torch.manual_seed(0)
    layer, x = peer.LlamaAttention(config, 0).eval(), torch.randn(3, 7, 24)
    rotated = peer.LlamaRotaryEmbedding(config)(x, torch.arange(7)[None])
    hidden = torch.full((7, 7), -torch.inf).triu(1)[None, None]
    return layer, x, layer(x, rotated, hidden)[0]


@pytest.mark.parametrize("bias", [False, True])
def test_self_attention_loads_a_llama_layer_and_computes_the_same(bias):
    layer, x, expected = llama(bias)
    own = nn.SelfAttention(24, 6, kv_heads=2, position="rotary", bias=bias).eval()
    own.load_state_dict(layer.state_dict())
    torch.testing.assert_close(own(x, mask="causal").output, expected, atol=1e-6, rtol=0)


def test_a_stack_loads_foreign_layers_under_their_prefix():
    layer, _, _ = llama(False)
    own = torch.nn.ModuleDict(
        {"deep": torch.nn.ModuleDict({"self_attn": nn.SelfAttention(24, 6, kv_heads=2, bias=False)})}
    )
    state = {f"deep.self_attn.{name}": weight for name, weight in layer.state_dict().items()}
    own.load_state_dict(state)
    torch.testing.assert_close(own["deep"]["self_attn"].out_proj.weight, layer.o_proj.weight)
    assert set(state) == {f"deep.self_attn.{name}_proj.weight" for name in "qkvo"}  # the caller's dictionary


def test_a_parameter_that_no_table_names_is_an_error():
    layer, _, _ = llama(False)
    own = nn.SelfAttention(24, 6, kv_heads=2, bias=False)
    with pytest.raises(RuntimeError, match="q_norm"):
        own.load_state_dict({**layer.state_dict(), "q_norm.weight": torch.ones(4)})
    with pytest.raises(RuntimeError, match="in_proj"):
        own.load_state_dict({"q_proj.weight": torch.ones(24, 24)})
    with pytest.raises(RuntimeError, match=r"in_proj\.bias"):
        nn.SelfAttention(24, 6, kv_heads=2).load_state_dict(layer.state_dict())
