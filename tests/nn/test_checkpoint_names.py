"""Layers load the parameters of other libraries' layers, and compute the same."""

import pytest
import torch

from regard import nn
from regard.errors import ShapeError
from regard.nn.checkpoint_names import ORIGINS
from regard.positions import Rotary, YaRN

transformers = pytest.importorskip("transformers")


def llama(bias, **options):
    """Returns an attention layer of transformers, and its output for random tokens and positions of a causal model."""
    from transformers.models.llama import modeling_llama as peer

    config = transformers.LlamaConfig(
        hidden_size=24, num_attention_heads=6, num_key_value_heads=2, attention_bias=bias, attn_implementation="eager",
        **options,
    )  # fmt: skip
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


SCALED = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4, "mscale": 0.7, "mscale_all_dim": 1.0},
    {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 9.0],
     "original_max_position_embeddings": 4, "factor": 8.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 32},
    {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 100.0},
]  # fmt: skip


@pytest.mark.parametrize("longest", [5, 64])  # the tokens are 7
@pytest.mark.parametrize("parameters", SCALED, ids=lambda parameters: parameters["rope_type"])
@pytest.mark.filterwarnings("ignore")
def test_self_attention_loads_a_layer_with_scaled_rotary_positions(parameters, longest):
    options = {"rope_parameters": dict(parameters), "max_position_embeddings": longest}
    layer, x, expected = llama(False, **options)
    own = nn.SelfAttention(24, 6, kv_heads=2, position=Rotary.from_config(layer.config), bias=False).eval()
    own.load_state_dict(layer.state_dict())
    torch.testing.assert_close(own(x, mask="causal").output, expected, atol=1e-6, rtol=0)
    is_scaled = parameters["rope_type"] != "dynamic" or longest < 7
    assert torch.allclose(expected, llama(False)[2], atol=1e-4) != is_scaled


def test_self_attention_loads_a_qwen_layer_with_yarn():
    from transformers.models.qwen3 import modeling_qwen3 as peer

    config = transformers.Qwen3Config(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=8, attn_implementation="eager",
        rope_parameters={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
    )  # fmt: skip
    layer, x = peer.Qwen3Attention(config, 0).eval(), torch.randn(3, 7, 24)
    rotated = peer.Qwen3RotaryEmbedding(config)(x, torch.arange(7)[None])
    scaling = YaRN(factor=4.0, original_length=8192)
    own = nn.SelfAttention(24, 3, kv_heads=1, qk_norm="rms", position=Rotary(8, scaling=scaling), bias=False).eval()
    own.load_state_dict(layer.state_dict())
    expected = layer(x, rotated, torch.full((7, 7), -torch.inf).triu(1)[None, None])[0]
    torch.testing.assert_close(own(x, mask="causal").output, expected, atol=1e-6, rtol=0)


def test_layers_without_positions_load_smollm3():
    from transformers.models.smollm3 import modeling_smollm3 as peer

    config = transformers.SmolLM3Config(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=4, attn_implementation="eager",
        no_rope_layer_interval=2, pad_token_id=None,
    )  # fmt: skip
    x, hidden = torch.randn(3, 7, 24), torch.full((7, 7), -torch.inf).triu(1)[None, None]
    rotated = peer.SmolLM3RotaryEmbedding(config)(x, torch.arange(7)[None])
    for number, has_rotary in enumerate(config.no_rope_layers):
        layer = peer.SmolLM3Attention(config, number).eval()
        position = Rotary.from_config(config) if has_rotary else "none"
        own = nn.SelfAttention(24, 3, kv_heads=1, position=position, bias=False).eval()
        own.load_state_dict(layer.state_dict())
        torch.testing.assert_close(own(x, mask="causal").output, layer(x, rotated, hidden)[0], atol=1e-6, rtol=0)
    assert config.no_rope_layers == [1, 0, 1, 0]


@pytest.mark.parametrize(("family", "rank"), [("DeepseekV2", None), ("DeepseekV2", 11), ("DeepseekV3", 11)])
def test_latent_attention_loads_a_deepseek_layer(family, rank):
    folder = family.replace("V", "_v").lower()
    peer = getattr(getattr(transformers.models, folder), f"modeling_{folder}")
    config = getattr(transformers, f"{family}Config")(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=10, q_lora_rank=rank, v_head_dim=7,
        qk_nope_head_dim=6, qk_rope_head_dim=4, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    layer, x = getattr(peer, f"{family}Attention")(config, 0).eval(), torch.randn(3, 7, 24)
    rotated = getattr(peer, f"{family}RotaryEmbedding")(config)(x, torch.arange(7)[None])
    hidden = torch.full((7, 7), -torch.inf).triu(1)[None, None]
    expected = layer(hidden_states=x, position_embeddings=rotated, attention_mask=hidden)[0]
    position = Rotary.from_config(config, dim=4)
    sizes = {"kv_rank": 10, "query_rank": rank, "value_dim": 7, "head_dim": 6, "rotary_dim": 4}
    own = nn.LatentAttention(24, 3, position=position, bias=False, **sizes).eval()
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
    with pytest.raises(RuntimeError, match=r"nothing for in_proj\.bias, out_proj\.bias .*: make it with bias=False"):
        nn.SelfAttention(24, 6, kv_heads=2).load_state_dict(layer.state_dict())


def test_a_number_of_heads_that_a_checkpoint_cannot_have_is_an_error():
    names = {name for origin in ORIGINS["LatentAttention"][1].values() for name in origin.names}
    with pytest.raises(
        ShapeError, match="num_heads must divide the 50 rows of a projection of the checkpoint; it is 3"
    ):
        nn.LatentAttention(24, 3, bias=False).load_state_dict({name: torch.ones(50, 10) for name in names})
