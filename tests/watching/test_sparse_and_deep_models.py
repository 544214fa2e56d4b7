"""Models with indexed attention and with attention over depth, watched whole."""

import pytest
import torch

import regard
from regard import nn
from regard.watching import register_transformers

BATCH, LENGTH, SELECTED, LAYERS, DIM = 2, 11, 4, 3, 24


@pytest.fixture(scope="module")
def deepseek():
    """A small model like DeepSeek-V3.2, and the tokens that it reads."""
    transformers = pytest.importorskip("transformers")
    register_transformers()
    config = transformers.DeepseekV32Config(
        vocab_size=97, hidden_size=DIM, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=10, q_lora_rank=14, qk_rope_head_dim=4, v_head_dim=7,
        qk_nope_head_dim=5, index_topk=SELECTED, index_head_dim=8, index_n_heads=5, n_routed_experts=4,
        num_experts_per_tok=2, n_group=1, topk_group=1, n_shared_experts=1, max_position_embeddings=64,
        attn_implementation="regard",
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.DeepseekV32ForCausalLM(config).eval(), torch.randint(0, 97, (BATCH, LENGTH))


def chosen_by_indexers(model, ids):
    """The keys that each layer's indexer returns, as bools ``[batch, queries, keys]``."""
    chosen = []
    indexers = [layer.self_attn.indexer for layer in model.model.layers]
    hooks = [each.register_forward_hook(lambda module, args, output: chosen.append(output)) for each in indexers]
    model(ids)
    for hook in hooks:
        hook.remove()
    visible = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    return [
        torch.zeros(BATCH, LENGTH, LENGTH, dtype=torch.bool).scatter(-1, each.long(), True) & visible for each in chosen
    ]


@torch.no_grad()
def test_every_layer_of_an_indexed_model_tells_its_chosen_tokens_and_their_recall(deepseek, tmp_path):
    model, ids = deepseek
    read = regard.Readings(weights=True, recall=True)
    with regard.watch(model, read=read) as seen:
        logits = model(ids).logits
    assert torch.equal(logits, model(ids).logits)
    chosen = chosen_by_indexers(model, ids)
    assert [call.name for call in seen.calls] == [f"model.layers.{i}.self_attn" for i in range(LAYERS)]
    with regard.watch(model, read="view") as dense:
        model.config.index_topk = LENGTH
        for layer in model.model.layers:
            layer.self_attn.indexer.index_topk = LENGTH
        model(ids)
        for layer in model.model.layers:
            layer.self_attn.indexer.index_topk = SELECTED
    for call, keys in zip(seen.calls, chosen, strict=True):
        assert call.kind == "causal"
        assert call.mechanism == "latent"
        assert call.reach == LENGTH
        assert torch.equal(torch.stack([call.visible(row)[0] for row in range(BATCH)]), keys)
        assert torch.equal((call.weights > 0).any(1), keys)
    whole, kept = dense.calls[0].weights, seen.calls[0].recall  # the input of the first layer is the same
    torch.testing.assert_close(kept, (whole * chosen[0][:, None]).sum(-1))
    assert (kept[:, :, SELECTED:] < 1).all()
    path = tmp_path / "deepseek.html"
    regard.View(seen, [str(i) for i in range(LENGTH)], example=1).save(path)
    text = path.read_text()
    assert all(call.name in text for call in seen.calls)


@torch.no_grad()
def test_the_steps_of_an_indexed_model_are_one_record_a_layer(deepseek):
    model, ids = deepseek
    with regard.watch(model, read=regard.Readings(weights=True, recall=True)) as seen:
        model.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0)
    stitched = seen.stitched()
    assert [call.shape for call in stitched] == [(BATCH, 4, LENGTH + 2, LENGTH + 2)] * LAYERS
    for call in stitched:
        assert ((call.weights > 0).sum(-1)[:, :, SELECTED:] == SELECTED).all()
        assert call.recall.shape == (BATCH, 4, LENGTH + 2)


class DeepModel(torch.nn.Module):
    """Layers whose inputs are mixtures of the outputs before."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(DIM, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS).layers
        self.depths = torch.nn.ModuleList([nn.DepthAttention(DIM) for _ in range(LAYERS + 1)])
        for depth in self.depths:
            torch.nn.init.normal_(depth.query)

    def forward(self, x):
        states = [x]
        for layer, depth in zip(self.layers, self.depths, strict=False):
            states.append(layer(depth(states).output, mask="causal"))
        attended = self.depths[-1](states, need_weights=True)
        return attended.output, attended.weights


@torch.no_grad()
def test_a_watched_model_tells_which_layers_each_token_reads(tmp_path):
    torch.manual_seed(0)
    model, x = DeepModel().eval(), torch.randn(BATCH, LENGTH, DIM)
    with regard.watch(model, read="view", norms=True, heads=1) as seen:
        output, weights = model(x)
    assert torch.equal(output, model(x)[0])
    deep = [call for call in seen.calls if call.mechanism == "depth"]
    assert [call.shape for call in deep] == [(BATCH, 1, LENGTH, layers) for layers in range(1, LAYERS + 2)]
    torch.testing.assert_close(deep[-1].weights[:, 0], weights)
    torch.testing.assert_close(deep[-1].received[:, 0], weights.sum(1))
    records = seen.records([str(i) for i in range(LENGTH)], batch_row=1)
    assert len(records) == 2 * LAYERS + 1
    record = next(record for record in records if record.name == f"depths.{LAYERS}")
    assert record.keys.tokens == ("embedding", "layer 1", "layer 2", "layer 3")
    assert record.weights.shape == (1, LENGTH, LAYERS + 1)
    path = tmp_path / "deep.html"
    regard.View(seen, example=0).save(path)
    assert "layer 3" in path.read_text()


@torch.no_grad()
def test_block_attention_residuals_of_inkling_are_read_by_token():
    pytest.importorskip("transformers")
    from transformers.models.inkling2 import modeling_inkling2 as peer

    class Config:
        hidden_size, _attn_implementation = DIM, "eager"

    torch.manual_seed(0)
    module = peer.Inkling2BlockAttentionResidual(Config(), num_queries=3)
    torch.nn.init.normal_(module.query)
    blocks, part = torch.randn(BATCH, LENGTH, 4, DIM), torch.randn(BATCH, LENGTH, DIM)
    with regard.watch(module, read="view") as seen:
        module(blocks, part)
    (call,) = seen.calls
    assert (call.mechanism, call.shape) == ("depth", (BATCH, 3, LENGTH, 5))
    torch.testing.assert_close(call.weights.sum(-1), torch.ones(BATCH, 3, LENGTH))
