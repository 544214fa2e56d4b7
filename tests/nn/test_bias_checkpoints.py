"""Layers with biases of positions load the parameters of other libraries' layers, and compute the same."""

import pytest
import torch

from regard import biases, nn, scores

transformers = pytest.importorskip("transformers")


def drawn(layer):
    """Returns the layer with random parameters, so that each of them matters."""
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return layer.eval()


def assert_loads(own, layer, x, expected):
    own.eval().load_state_dict(layer.state_dict())
    torch.testing.assert_close(own(x).output, expected, atol=1e-6, rtol=1e-6)


def test_window_tables_load_a_swin_layer_and_compute_the_same():
    from transformers.models.swin import modeling_swin as peer

    torch.manual_seed(0)
    config = transformers.SwinConfig(attn_implementation="eager")
    layer, x = drawn(peer.SwinAttention(config, 24, 3, 5)), torch.randn(4, 25, 24)
    assert_loads(nn.SelfAttention(24, 3, position=biases.WindowTable(3, (5, 5))), layer, x, layer(x)[0])


@pytest.mark.parametrize(
    ("pretrained", "largest", "dtype"),
    # 7 is clamped to a cosine times 100, which enlarges the rounding of float32.
    [(None, 2.0, torch.float32), ((3, 4), 2.0, torch.float32), (None, 7.0, torch.float64)],
)
def test_log_spaced_tables_load_a_swin_v2_layer_and_compute_the_same(pretrained, largest, dtype):
    from transformers.models.swinv2 import modeling_swinv2 as peer

    torch.manual_seed(0)
    config = transformers.Swinv2Config(attn_implementation="eager")
    layer = drawn(peer.Swinv2Attention(config, 24, 3, 5, pretrained_window_size=pretrained or [0, 0]))
    with torch.no_grad():
        layer.self.logit_scale.copy_(torch.tensor([0.0, 1.0, largest])[:, None, None])
    layer, x = layer.to(dtype), torch.randn(4, 25, 24, dtype=dtype)
    position = biases.LogSpacedTable(3, (5, 5), pretrained=pretrained)
    own = nn.SelfAttention(24, 3, score=scores.Cosine.create(3), position=position).to(dtype)
    assert_loads(own, layer, x, layer(x)[0])


@pytest.mark.parametrize("shape", [(5, 5), (7, 3)])
def test_decomposed_positions_load_a_sam_layer_and_compute_the_same(shape):
    from transformers.models.sam import modeling_sam as peer

    torch.manual_seed(0)
    config = transformers.SamVisionConfig(hidden_size=24, num_attention_heads=3, image_size=20, patch_size=4)
    config._attn_implementation = "eager"
    layer, image = drawn(peer.SamVisionAttention(config, 0)), torch.randn(2, *shape, 24)
    own = nn.SelfAttention(24, 3, position=biases.DecomposedPosition(8, shape, trained=(5, 5)))
    assert_loads(own, layer, image.flatten(1, 2), layer(image)[0].flatten(1, 2))


def test_transformer_xl_terms_load_a_conformer_layer_and_compute_the_same():
    from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as peer

    torch.manual_seed(0)
    config = transformers.Wav2Vec2ConformerConfig(
        hidden_size=24, num_attention_heads=3, position_embeddings_type="relative", attn_implementation="eager"
    )
    layer, x = drawn(peer.Wav2Vec2ConformerSelfAttention(config)), torch.randn(2, 7, 24)
    positions = peer.Wav2Vec2ConformerRelPositionalEmbedding(config)(x)
    expected = layer(x, relative_position_embeddings=positions)[0]
    assert_loads(nn.SelfAttention(24, 3, position=biases.TransformerXL(3, 8)), layer, x, expected)


@pytest.mark.parametrize(("buckets", "longest"), [(8, 40), (-1, 5)])
def test_disentangled_terms_load_a_deberta_layer_and_compute_the_same(buckets, longest):
    from transformers.models.deberta_v2 import modeling_deberta_v2 as peer

    torch.manual_seed(0)
    config = transformers.DebertaV2Config(
        hidden_size=24, num_attention_heads=3, relative_attention=True, position_buckets=buckets, share_att_key=True,
        max_relative_positions=longest, pos_att_type=["p2c", "c2p"],
    )  # fmt: skip
    layer, x, span = drawn(peer.DebertaV2Attention(config)), torch.randn(2, 67, 24), max(buckets, 0) or longest
    table = torch.randn(2 * span, 24)
    heads = layer.self(x, torch.ones(2, 1, 67, 67), rel_embeddings=table)[0]
    state = {name: tensor for name, tensor in layer.state_dict().items() if "LayerNorm" not in name}
    position = biases.Disentangled(3, 8, span, longest if buckets > 0 else None)
    own = nn.SelfAttention(24, 3, score=scores.ScaledDot(position.scale), position=position).eval()
    own.load_state_dict(state | {"rel_embeddings.weight": table})
    torch.testing.assert_close(own(x).output, layer.output.dense(heads), atol=1e-6, rtol=1e-6)
