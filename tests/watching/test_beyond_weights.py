"""Norms of weighted values, direct contributions to logits, ablation of heads, and exact tiles."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError, UnseenError
from regard.watching import ablate, logit_contributions
from watching.models import CAUSAL, HAND_WRITTEN, WEIGHTS, Heads


def weights_of(model, x, scale=5**-0.5):
    query, key, value = model.heads(x)
    return (query @ key.transpose(-1, -2) * scale).softmax(-1), value


def test_norms_are_those_of_each_weighted_value():
    """‖w · v · W_O‖ of each pair, computed pair by pair."""
    model, x = Heads(HAND_WRITTEN["sdpa"][0]), torch.randn(2, 7, 10)
    with torch.no_grad(), regard.watch(model, read=WEIGHTS, norms=True) as seen:
        model(x)
        weights, value = weights_of(model, x)
    found = seen.calls[0].weighted_norms()
    projection = model.out_proj.weight.detach()
    for b, h, i, j in ((0, 0, 0, 0), (1, 1, 3, 5), (0, 1, 6, 2)):
        part = projection[:, 5 * h : 5 * h + 5]
        expected = (weights[b, h, i, j] * (part @ value[b, h, j])).norm()
        torch.testing.assert_close(found[b, h, i, j], expected)
    with regard.watch(model) as seen:
        model(x)
    with pytest.raises(ArgumentError, match="norms=True"):
        seen.calls[0].weighted_norms()
    bare = nn.Sequential(Heads(HAND_WRITTEN["sdpa"][0]))
    bare[0].last, bare[0]._modules["out_proj"] = bare[0].out_proj, nn.Identity()
    with pytest.raises(ArgumentError, match="no output projection"), regard.watch(bare, norms=True):
        bare(x)


def test_norms_of_torch_modules_and_gpt2():
    layer = nn.TransformerEncoderLayer(12, 2, 14, batch_first=True).eval()
    x = torch.randn(2, 5, 12)
    with torch.no_grad(), regard.watch(layer, norms=True) as seen:
        layer(x)
        value = F.linear(x, layer.self_attn.in_proj_weight[24:], layer.self_attn.in_proj_bias[24:])
        part = value[..., 6:] @ layer.self_attn.out_proj.weight[:, 6:].t()
    torch.testing.assert_close(seen.calls[0].value_norms[:, 1], part.norm(dim=-1))
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=31, n_embd=12, n_layer=1, n_head=3, n_positions=9)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad(), regard.watch(model, norms=True) as seen:
        hidden = model(torch.arange(7)[None], output_hidden_states=True).hidden_states[0]
        block = model.transformer.h[0]
        value = block.attn.c_attn(block.ln_1(hidden))[..., 24:]
        part = value[..., 4:8] @ block.attn.c_proj.weight[4:8]
    torch.testing.assert_close(seen.calls[0].value_norms[:, 1], part.norm(dim=-1))


class Language(nn.Module):
    """One layer of attention between an embedding and an unembedding: logits are sums of contributions."""

    def __init__(self):
        super().__init__()
        self.embedding, self.attention = nn.Embedding(13, 10), Heads(HAND_WRITTEN["sdpa-causal"][0])
        self.unembedding = nn.Linear(10, 13, bias=False)

    def get_output_embeddings(self):
        return self.unembedding

    def forward(self, ids, scale=1.0):
        x = self.embedding(ids)
        return self.unembedding((x + self.attention(x)) * scale)


def test_contributions_sum_to_the_logits():
    model, ids = Language(), torch.randint(13, (3, 7))
    scale = torch.rand(3, 7, 10) + 0.5
    with torch.no_grad():
        with regard.watch(model, outputs=True) as seen:
            logits = model(ids, scale)
        found = logit_contributions(model, seen.calls[0], range(13), scale=scale)
        rest = model.unembedding((model.embedding(ids) + model.attention.out_proj.bias) * scale)
    assert found.shape == (3, 2, 7, 13)
    torch.testing.assert_close(found.sum(1) + rest, logits)
    one = logit_contributions(model, seen.calls[0], [4], scale=scale)
    torch.testing.assert_close(one[..., 0], found[..., 4])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"token_ids": [13]}, ArgumentError, "token_ids must be from 0 to 12"),
        ({"token_ids": [0.5]}, KindError, "token_ids must be integers"),
        ({"unembedding": torch.zeros(13, 4)}, ShapeError, "unembedding must be"),
        ({"scale": torch.ones(3)}, ShapeError, "scale must broadcast"),
    ],
)
def test_contributions_refuse_bad_arguments(change, error, message):
    model = Language()
    with regard.watch(model, outputs=True) as seen:
        model(torch.randint(13, (3, 7)))
    with pytest.raises(error, match=message):
        logit_contributions(model, seen.calls[0], **{"token_ids": [1], **change})


def test_contributions_need_outputs_and_an_unembedding():
    model, x = Heads(HAND_WRITTEN["sdpa"][0]), torch.randn(1, 7, 10)
    with regard.watch(model, outputs=True) as seen:
        model(x)
    with pytest.raises(ArgumentError, match="unembedding must be given"):
        logit_contributions(model, seen.calls[0], [1])
    with regard.watch(model) as seen:
        model(x)
    with pytest.raises(ArgumentError, match="outputs=True"):
        logit_contributions(model, seen.calls[0], [1])


def without_head(model, x, head, how, scale):
    """The output of `Heads` in which one head is switched off by hand."""
    weights, value = weights_of(model, x, scale)
    heads = weights @ value
    heads[:, head] = 0.0 if how == "zero" else heads[:, head].mean((0, 1), keepdim=True)
    return model.out_proj(heads.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("how", ["zero", "mean"])
@pytest.mark.parametrize("name", ["sdpa", "softmax-einsum", "softmax-bmm", "regard-observe"])
def test_an_ablated_head_gives_nothing(name, how):
    model, x = Heads(HAND_WRITTEN[name][0]), torch.randn(3, 7, 10)
    with torch.no_grad():
        plain = model(x)
        with ablate(model, layer=0, head=1, how=how):
            changed = model(x)
        assert torch.equal(model(x), plain)
        expected = without_head(model, x, 1, how, 1.0 if name.startswith("softmax") else 5**-0.5)
        torch.testing.assert_close(changed, expected)
        assert not torch.allclose(changed, plain)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("need_weights", [False, True])
def test_ablation_of_torch_modules(need_weights):
    """Every path of PyTorch's module, its kernel for evaluation and the one with weights among them."""
    model, x = nn.MultiheadAttention(12, 2, batch_first=True).eval(), torch.randn(3, 5, 12)
    with torch.no_grad():
        _, weights = model(x, x, x, average_attn_weights=False)
        value = F.linear(x, model.in_proj_weight[24:], model.in_proj_bias[24:])
        heads = torch.cat([torch.zeros(3, 5, 6), weights[:, 1] @ value[..., 6:]], dim=-1)
        with ablate(model, 0, 0):
            output, given = model(x, x, x, need_weights=need_weights, average_attn_weights=False)
        torch.testing.assert_close(output, model.out_proj(heads))
        if need_weights:
            torch.testing.assert_close(given, weights)
        layer = nn.TransformerEncoderLayer(12, 2, 14, batch_first=True).eval()
        plain = layer(x)
        with ablate(layer, 0, [0, 1]):
            changed = layer(x)
        bias = layer.norm1(x + layer.self_attn.out_proj.bias)
        torch.testing.assert_close(changed, layer.norm2(bias + layer._ff_block(bias)))
        assert torch.equal(layer(x), plain)
    assert torch.backends.mha.get_fastpath_enabled()


def test_ablation_measures_the_change_of_a_loss():
    """A language model of Hugging Face with grouped heads, while generating one token too."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=20, max_position_embeddings=32,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(31, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    with torch.no_grad():
        with regard.watch(model, read=WEIGHTS) as seen:
            before = model(ids, labels=ids).loss
        with seen.ablate(layer=1, head=2):
            after = model(ids, labels=ids).loss
        projection = model.model.layers[1].self_attn.o_proj.weight.data
        kept = projection.clone()
        projection[:, 8:12] = 0  # the columns of head 2
        expected = model(ids, labels=ids).loss
        by_hand = model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0)
        projection.copy_(kept)
        with ablate(model, 1, 2):
            generated = model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0)
    torch.testing.assert_close(after, expected)
    assert after != before
    assert torch.equal(generated, by_hand)


def test_ablation_trains_what_is_left():
    model, x = Heads(HAND_WRITTEN["sdpa"][0]), torch.randn(3, 7, 10)
    with ablate(model, 0, 0):
        model(x).sum().backward()
    gradient = model.project.weight.grad[20:]  # of the values
    assert bool((gradient[:5] == 0).all())
    assert bool((gradient[5:] != 0).any())


def test_ablation_refuses_wrong_heads():
    model, x = Heads(HAND_WRITTEN["sdpa"][0]), torch.randn(3, 7, 10)
    for arguments, error in (
        ((-1, 0), ArgumentError),
        ((0, "one"), KindError),
        ((0, 0, "half"), UnknownNameError),
        ((0, []), ArgumentError),
    ):
        with pytest.raises(error), ablate(model, *arguments):
            pass
    with pytest.raises(KindError, match="model"), ablate(F.relu, 0, 0):
        pass
    with pytest.raises(ArgumentError, match="head must be below 2"), ablate(model, 0, 2):
        model(x)
    with (
        pytest.raises(UnseenError, match=r"no attention of layer 3 was called; layers that were: \[0\]"),
        ablate(model, 3, 0),
    ):
        model(x)
    model(x)


@pytest.mark.parametrize("name", ["sdpa-causal", "sdpa-lowest", "softmax", "regard"])
def test_tiles_are_exact(name):
    model, x = Heads(HAND_WRITTEN[name][0]), torch.randn(3, 7, 10)
    with torch.no_grad():
        with regard.watch(model, read=WEIGHTS, keep=True, heads=[1]) as seen:
            model(x)
        with regard.watch(model, keep=True, heads=[1]) as kept:
            model(x)
    weights = seen.calls[0].weights.numpy()
    (call,) = kept.calls
    assert call.weights is None
    for row, source in enumerate(call.tiles):
        assert (source.heads, source.queries, source.keys) == (1, 7, 7)
        np.testing.assert_allclose(source.tile((2, 6), (1, 7)), weights[row][:, 2:6, 1:7], rtol=1e-5, atol=1e-6)
        mean, highest = source.pooled(2, 3)
        expected = regard.records.DenseTiles(weights[row]).pooled(2, 3)
        np.testing.assert_allclose(mean, expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(highest, expected[1], rtol=1e-5, atol=1e-6)
        with pytest.raises(ArgumentError, match="queries must be"):
            source.tile((3, 9), (0, 1))
    (record,) = kept.records([f"w{i}" for i in range(7)], batch_row=1)
    assert record.weights is None
    assert record.source is call.tiles[1]
    assert np.array_equal(record.visible, CAUSAL.numpy())


def test_tiles_of_padding_and_bias():
    class Biased(nn.Module):
        def forward(self, x, mask):
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    model, x = Biased(), torch.randn(2, 3, 7, 4)
    padding = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    padding[1, ..., 4:] = False
    for mask in (
        padding,
        padding & CAUSAL,
        torch.randn(2, 3, 7, 7),
        torch.randn(1, 3, 7, 7).masked_fill(~CAUSAL, -torch.inf),
    ):
        with regard.watch(model, read=WEIGHTS, keep=True) as seen:
            model(x, mask)
        (call,) = seen.calls
        for row in range(2):
            np.testing.assert_allclose(
                call.tiles[row].tile((0, 7), (0, 7)), call.weights[row].numpy(), rtol=1e-5, atol=1e-6
            )
