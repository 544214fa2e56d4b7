"""Indexed attention: the equations of DeepSeek-V3.2, its layers in transformers, and the loss of its indexer."""

import pytest
import torch

import regard
from regard import masks, nn, positions
from regard.attention.backends import tiled
from regard.errors import ArgumentError, UnseenError
from regard.nn import indexer
from regard.shapes.grid import Grid

BATCH, LENGTH, DIM, HEADS = 2, 11, 12, 3
SIZES = {
    "kv_rank": 7,
    "query_rank": 5,
    "rotary_dim": 2,
    "head_dim": 5,
    "value_dim": 3,
    "index_heads": 2,
    "index_dim": 6,
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(tiled, "BLOCK_ELEMENTS", 2 * BATCH * HEADS * LENGTH)
    torch.manual_seed(1)


def double_layer(**options):
    options = {"selected": 4, "position": "rotary"} | SIZES | options
    return nn.IndexedAttention(DIM, HEADS, **options).double().eval()


def tokens():
    return torch.randn(BATCH, LENGTH, DIM, dtype=torch.float64)


def visible_pairs(mask):
    return mask.dense(Grid.whole(BATCH, HEADS, LENGTH, LENGTH))[:, 0]


def turned(vector, position):
    """The first two features, rotated by a position (whose only angle is 1)."""
    a, b = vector[0], vector[1]
    sin, cos = torch.tensor(float(position)).double().sin(), torch.tensor(float(position)).double().cos()
    return torch.cat([torch.stack([a * cos - b * sin, a * sin + b * cos]), vector[2:]])


def literal_scores(layer, row):
    """I [queries, keys] of one sequence, token by token (eq. 1)."""
    own, scores = layer.indexer, torch.zeros(LENGTH, LENGTH, dtype=torch.float64)
    compressed = layer.query_norm(layer.query_down(row))
    for t in range(LENGTH):
        query = [turned(part, t) for part in own.query_proj(compressed[t]).view(own.num_heads, -1)]
        weight = own.head_weights(row[t]) * own.num_heads**-0.5
        for s in range(LENGTH):
            key = turned(own.key_norm(own.key_proj(row[s])), s)
            scores[t, s] = sum(
                w * (q @ key * own.head_dim**-0.5).clamp(min=0) for w, q in zip(weight, query, strict=True)
            )
    return scores


def literal_selection(scores, visible, count):
    """The lists of selected keys of each token (eq. 2)."""
    lists = []
    for t in range(len(scores)):
        seen = [s for s in range(len(scores)) if visible[t, s]]
        lists.append(sorted(seen, key=lambda s, t=t: -scores[t, s])[:count])
    return lists


def dense_twin(layer):
    """Latent attention with the layer's parameters."""
    options = {name: size for name, size in SIZES.items() if "index" not in name}
    twin = nn.LatentAttention(DIM, HEADS, position="rotary", **options).double().eval()
    twin.load_state_dict({name: value for name, value in layer.state_dict().items() if "indexer" not in name})
    return twin


MASKS = {
    "all": lambda: masks.window(),
    "causal": lambda: masks.causal(),
    "padded": lambda: masks.causal() & masks.lengths([LENGTH, 6]),
    "nobody": lambda: masks.where(lambda b, h, i, j: (i != 3) & (j <= i)),
}


@pytest.mark.parametrize("kind", MASKS)
def test_indexed_attention_is_the_equation(kind):
    layer, x, mask = double_layer(), tokens().requires_grad_(), MASKS[kind]()
    visible = visible_pairs(mask)
    chosen = torch.zeros_like(visible)
    for b in range(BATCH):
        for t, listed in enumerate(literal_selection(literal_scores(layer, x[b]), visible[b], 4)):
            chosen[b, t, listed] = True
    with regard.watch(layer, read=regard.Readings(recall=True)) as seen:
        attended = layer(x, mask=mask, need_weights=True)
    dense = dense_twin(layer)(x, mask=mask, need_weights=True).weights
    torch.testing.assert_close(seen.calls[0].recall, (dense * chosen[:, None]).sum(-1))
    expected = dense_twin(layer)(x, mask=masks.keep(chosen[:, None]), need_weights=True)
    torch.testing.assert_close(attended.output, expected.output)
    torch.testing.assert_close(attended.weights, expected.weights)
    assert torch.equal((attended.weights > 0).any(1), chosen)
    factor = torch.randn_like(x)
    (found,), (truth,) = (torch.autograd.grad((one.output * factor).sum(), x) for one in (attended, expected))
    torch.testing.assert_close(found, truth)  # none through the selection


def literal_loss(layer, x, visible, selected):
    """Equation 3, or 4 over lists of selected keys, in loops."""
    divergences = []
    weights = dense_twin(layer)(x, mask=masks.keep(selected[:, None]), need_weights=True).weights.detach()
    for b in range(BATCH):
        scores = literal_scores(layer, x[b].detach())
        for t in range(LENGTH):
            keys = selected[b, t].nonzero()[:, 0]
            if len(keys):
                attention = weights[b, :, t, keys].sum(0) / weights[b, :, t, keys].sum()
                divergences.append((attention * (attention.log() - scores[t, keys].log_softmax(0))).sum())
    return sum(divergences) / len(divergences)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["causal", "padded", "nobody"])
def test_the_indexer_learns_from_the_published_loss_alone(kind, sparse):
    layer, x, mask = double_layer(), tokens().requires_grad_(), MASKS[kind]()
    visible = selected = visible_pairs(mask).expand(BATCH, -1, -1)
    if sparse:
        selected = (layer(x, mask=mask, need_weights=True).weights > 0).any(1)
    loss, expected = layer.index_loss(x, mask=mask, sparse=sparse), literal_loss(layer, x, visible, selected)
    torch.testing.assert_close(loss, expected)
    parameters = dict(layer.indexer.named_parameters())
    truth = torch.autograd.grad(expected, [*parameters.values()])
    loss.backward()
    for (name, parameter), gradient in zip(parameters.items(), truth, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, msg=name)
    assert x.grad is None
    assert all(value.grad is None for name, value in layer.named_parameters() if not name.startswith("indexer."))


def test_the_loss_of_an_indexer_is_no_attention_of_a_watched_model(recwarn):
    layer, x = double_layer(), tokens()
    with regard.watch(layer) as seen:
        loss = layer.index_loss(x, mask="causal")
        layer(x, mask="causal")
    assert len(seen.calls) == 1
    assert torch.equal(loss, layer.index_loss(x, mask="causal"))
    with pytest.raises(UnseenError, match=r"'indexer.*' \(.+\).* ran, but"), regard.watch(layer):
        layer.index_loss(x, mask="causal")
    assert not recwarn.list


def test_training_the_indexer_raises_the_recall_of_its_selection():
    layer, x = double_layer(), tokens()
    optimizer = torch.optim.Adam(layer.indexer.parameters(), 0.05)

    def recall():
        with torch.no_grad(), regard.watch(layer, read=regard.Readings(recall=True)) as seen:
            layer(x, mask="causal")
        return seen.calls[0].recall.mean().item()

    before, losses = recall(), []
    for _ in range(25):
        optimizer.zero_grad()
        losses.append(layer.index_loss(x, mask="causal"))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]
    assert recall() > before


def test_few_tokens_are_all_selected_and_positions_are_optional():
    for position in (None, "alibi", "rotary"):
        options = {} if position == "rotary" else {"rotary_dim": None}
        layer = double_layer(position=position, selected=LENGTH, **options)
        latent = {name: size for name, size in (SIZES | options).items() if "index" not in name}
        twin = nn.LatentAttention(DIM, HEADS, position=position, **latent).double()
        twin.load_state_dict({name: value for name, value in layer.state_dict().items() if "indexer" not in name})
        x = tokens()
        assert torch.equal(layer(x, mask="causal").output, twin(x, mask="causal").output)
        assert layer.index_loss(x, mask="causal") > 0
    for sizes in ((0, LENGTH), (BATCH, 0), (BATCH, 1)):
        x = torch.zeros(*sizes, DIM, dtype=torch.float64)
        assert layer(x, mask="causal").output.shape == x.shape
        assert layer.index_loss(x, mask="causal") == 0


def test_indexed_attention_in_steps_and_on_kernels():
    x, layer = torch.randn(BATCH, 40, DIM), nn.IndexedAttention(DIM, HEADS, selected=6, position="rotary").eval()
    layer.backend = "reference"
    expected = layer(x, mask="causal").output
    for backend in ("tiled", "cpu"):
        layer.backend = backend
        torch.testing.assert_close(layer(x, mask="causal").output, expected, rtol=1e-4, atol=1e-5)
    cache, rows = layer.new_cache(), []
    for part in x.split([1, 16, 1, 22], dim=1):
        attended = layer(part, mask="causal", cache=cache)
        cache = attended.cache
        rows.append(attended.output)
    torch.testing.assert_close(torch.cat(rows, dim=1), expected, rtol=1e-4, atol=1e-5)


def test_rows_of_an_indexer_are_scored_in_blocks_of_bounded_size(monkeypatch):
    scored = []
    forward = indexer.Indexer.forward
    monkeypatch.setattr(
        indexer.Indexer,
        "forward",
        lambda self, queries, key: scored.append(queries.query.shape[2]) or forward(self, queries, key),
    )
    double_layer()(tokens(), mask="causal")
    assert scored == [3, 3, 3, 2]  # 2 · 2 · 3 · 11 pairs of two heads, 44 a row


ROPE = {
    "deepseek_v32": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "mscale": 1.0, "mscale_all_dim": 1.0,
    },
    "glm_moe_dsa": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip


@pytest.mark.parametrize("family", ROPE)
def test_layers_of_transformers_load_and_compute_the_same(family):
    transformers = pytest.importorskip("transformers")
    name = {"deepseek_v32": "DeepseekV32", "glm_moe_dsa": "GlmMoeDsa"}[family]
    peer = getattr(getattr(transformers.models, family), f"modeling_{family}")
    config = getattr(transformers, f"{name}Config")(
        hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=HEADS, kv_lora_rank=10, q_lora_rank=14,
        qk_rope_head_dim=4, v_head_dim=7, qk_nope_head_dim=5, index_topk=4, index_head_dim=8, index_n_heads=7,
        num_hidden_layers=1, attn_implementation="eager", rope_parameters=ROPE[family],
    )  # fmt: skip
    foreign = getattr(peer, f"{name}Attention")(config, 0).eval()
    rotary = getattr(peer, f"{name}RotaryEmbedding")(config)
    own = nn.IndexedAttention(
        DIM, HEADS, kv_rank=10, query_rank=14, rotary_dim=4, value_dim=7, head_dim=5, selected=4, index_dim=8,
        index_heads=7, bias=False,  # of few heads, scores are often equal: 0
        position=positions.Rotary.from_config(config), scale=foreign.scaling,
        index_position=positions.Rotary.from_config(ROPE[family], dim=4) if family == "deepseek_v32" else None,
    ).eval()  # fmt: skip
    own.load_state_dict(foreign.state_dict())
    x, sizes, first = torch.randn(BATCH, LENGTH, DIM), [4, 1, 5, 1], 0
    past, cache = transformers.DynamicCache(config=config), own.new_cache()
    for part in x.split(sizes, dim=1):
        length = first + part.shape[1]
        hidden = torch.full((part.shape[1], length), -torch.inf).triu(first + 1).expand(BATCH, 1, -1, -1)
        expected = foreign(part, rotary(part, torch.arange(first, length)[None]), hidden, past)[0]
        attended = own(part, mask="causal", cache=cache)
        torch.testing.assert_close(attended.output, expected, rtol=0, atol=1e-6)
        cache, first = attended.cache, length
    whole = own(x, mask="causal").output
    torch.testing.assert_close(whole[:, -1:], attended.output, rtol=0, atol=1e-6)


def test_an_indexer_without_room_for_rotation_is_refused():
    with pytest.raises(
        ArgumentError, match="index_dim must be at least the features that positions rotate, 2; it is 1"
    ):
        double_layer(index_dim=1)
    with pytest.raises(ArgumentError, match="selected must be"):
        double_layer(selected=0)
    with pytest.raises(ArgumentError, match="index_heads must be"):
        double_layer(index_heads=0)
