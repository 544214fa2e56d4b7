"""Twenty small jobs as newcomers write them from memory; each is judged by PyTorch or by plain arithmetic."""

import math

import pytest
import torch
from torch.nn import functional as F

import regard
from regard import View, masks, nn, normalizers, positions, scores

ANNOTATIONS = [[3, 12, 45], [59, 2, 5], [1, 43, 5], [4, 3, 45.3]]
QUICK = {
    "epochs": 30,
    "architecture": "none",
    "embedding": 8,
    "learning_rate": 0.05,
    "quiet": True,
    "accelerator": "cpu",
}


def vectors(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_1_a_drop_in_for_multi_head_attention():
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x = vectors(2, 5, 16)

    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    attention.load_state_dict(theirs.state_dict())
    output, weights = attention(x, x, x)

    torch.testing.assert_close((output, weights), theirs(x, x, x))


def test_2_attention_over_batch_length_dim():
    x = vectors(2, 5, 16)

    output = regard.attend(x, x, x)

    torch.testing.assert_close(output, F.scaled_dot_product_attention(x, x, x))


def test_3_causal_attention():
    x = vectors(2, 4, 5, 16)

    output = regard.attend(x, x, x, mask="causal")

    torch.testing.assert_close(output, F.scaled_dot_product_attention(x, x, x, is_causal=True))


def test_4_padded_keys():
    x = vectors(2, 5, 16)

    output = regard.attend(x, x, x, mask=masks.lengths([5, 3]))

    visible = torch.arange(5) < torch.tensor([[[5]], [[3]]])
    torch.testing.assert_close(output, F.scaled_dot_product_attention(x, x, x, attn_mask=visible))


def test_5_sparse_weights():
    x = vectors(2, 5, 16)

    output, weights = regard.attend_with_weights(x, x, x, normalizer="sparsemax")

    # Martins & Astudillo 2016, algorithm 1.
    z, _ = (x @ x.mT / 4).sort(descending=True)
    support = 1 + torch.arange(1, 6) * z > z.cumsum(-1)
    count = support.sum(-1, keepdim=True)
    threshold = (z.cumsum(-1).gather(-1, count - 1) - 1) / count
    torch.testing.assert_close(weights, (x @ x.mT / 4 - threshold).clamp(min=0))
    torch.testing.assert_close(output, weights @ x)


def test_6_entmax_as_a_function():
    weights = normalizers.entmax15(torch.tensor([1.0, 0.5, -2.0]), dim=-1)
    others = normalizers.entmax(1.5)([1.0, 0.5, -2.0])

    # [s/2 − τ]², where (1/2 − τ)² + (1/4 − τ)² = 1.
    threshold = (0.75 - math.sqrt(0.75**2 - 2 * (0.25 + 0.0625 - 1))) / 2
    expected = torch.tensor([(0.5 - threshold) ** 2, (0.25 - threshold) ** 2, 0.0])
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(others, expected)
    with pytest.raises(regard.errors.KindError, match=r"write normalizers.entmax\(alpha\)\(scores, dim=-1\)"):
        normalizers.entmax(torch.zeros(2, 3), 1.5)


def test_7_bahdanaus_attention_of_a_decoder():
    state, annotations = vectors(2, 3), vectors(2, 7, 6)

    attention = nn.Attention.create("additive", 3, 6)
    context, weights = attention(state, annotations)

    w, u, v = attention.score.query_projection, attention.score.key_projection, attention.score.weight
    expected = torch.softmax(torch.tanh(w(state)[:, None] + u(annotations)) @ v, dim=-1)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(context, (expected[..., None] * annotations).sum(1))


def test_8_luongs_general_score():
    state, annotations, weight = vectors(2, 3), vectors(2, 7, 6), vectors(3, 6)

    context, weights = nn.Attention(scores.General(weight))(state, annotations)

    expected = torch.softmax(torch.einsum("bq,qk,bjk->bj", state, weight, annotations), dim=-1)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(context, torch.einsum("bj,bjk->bk", expected, annotations))


def test_9_every_step_from_lists():
    steps = regard.explain([5, 1, 20], ANNOTATIONS, score="dot")

    assert steps.scores.tolist() == [[927, 397, 148, 929]]
    assert "h2: 5·59 + 1·2 + 20·5 = 397" in steps.labelled(keys=["h1", "h2", "h3", "h4"]).arithmetic(0)
    assert steps.weights[0, 3].item() == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-6)


def test_10_a_picture_from_weights_and_tokens(tmp_path):
    weights = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]

    figure = regard.pictures.heatmap(weights, ["the", "cat", "sat"], ["the", "cat", "sat"])
    View(weights, ["the", "cat", "sat"]).save(tmp_path / "cat.html")

    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["the", "cat", "sat"]
    assert "cat" in (tmp_path / "cat.html").read_text(encoding="utf-8")


def test_11_the_attentions_of_a_model_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.set_attn_implementation("eager")

    outputs = model(torch.tensor([[1, 2, 3]]), output_attentions=True)
    view = View(outputs.attentions, ["a", "b", "c"])

    assert [record.weights.shape for record in view.document.records] == [(2, 3, 3)] * 2
    assert view.document.records[1].weights == pytest.approx(outputs.attentions[1][0].detach().numpy())


def test_12_the_attention_of_any_model():
    model, x = torch.nn.MultiheadAttention(16, 4, batch_first=True), vectors(1, 3, 16)

    with regard.watch(model, read=regard.Readings(entropy=True, weights=True)) as watched:
        model(x, x, x)
    view = View(watched, ["a", "b", "c"])

    _, expected = model(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(watched.calls[0].weights, expected)
    torch.testing.assert_close(watched.calls[0].entropy, torch.special.entr(expected).sum(-1))
    assert view.document.records[0].keys.labels == ("a", "b", "c")


def test_13_what_would_run():
    x = vectors(2, 8, 10, 64)

    text = str(regard.plan(x, x, x, mask="causal"))

    assert text.startswith("batch 2 · heads 8 · queries 10 · keys 10 · dim 64\n→ sdpa")


def test_14_alibi_is_a_bias():
    x = vectors(2, 4, 5, 16)

    output = regard.attend(x, x, x, bias="alibi", mask="causal")

    # Press et al. 2022, section 3: slopes of 4 heads are 1/4, 1/16, ...
    slopes = torch.tensor([2.0 ** -(2 * head) for head in range(1, 5)])[:, None, None]
    bias = -slopes * (torch.arange(5)[:, None] - torch.arange(5)).float()
    bias = bias.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(x, x, x, attn_mask=bias))


def test_15_rotary_positions():
    x = vectors(1, 2, 5, 4)

    rotated = positions.Rotary(4)(x)

    # Su et al. 2021, eq. 14: features i and i + dim/2 as a complex number, turned by position · 10000^(−2i/dim).
    angle = torch.arange(5.0)[:, None] * torch.tensor([1.0, 0.01])
    turned = torch.complex(x[..., :2], x[..., 2:]) * torch.polar(torch.ones(5, 2), angle)
    torch.testing.assert_close(rotated, torch.cat([turned.real, turned.imag], dim=-1))
    layer = nn.TransformerEncoderLayer(16, 4, batch_first=True, position="rotary")
    assert layer(vectors(2, 5, 16)).shape == (2, 5, 16)


def test_16_a_score_function_of_ones_own():
    x = vectors(2, 5, 16)

    near = regard.attend(x, x, x, score=lambda query, key: -torch.cdist(query, key))
    local = regard.attend(
        x, x, x, score=scores.Modified("scaled_dot", lambda score, batch, head, i, j: score - (i - j).abs())
    )

    torch.testing.assert_close(near, torch.softmax(-torch.cdist(x, x), -1) @ x)
    distance = (torch.arange(5)[:, None] - torch.arange(5)).abs()
    torch.testing.assert_close(local, torch.softmax(x @ x.mT / 4 - distance, -1) @ x)


def test_17_decoding_with_a_cache():
    layer = nn.TransformerEncoderLayer(16, 4, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).eval(), vectors(2, 3, 16)

    first, caches = model.step(x[:, :1])
    second, caches = model.step(x[:, 1:2], caches)
    third, caches = model.step(x[:, 2:], caches)

    torch.testing.assert_close(torch.cat([first, second, third], dim=1), model(x, mask="causal"))


def test_18_cbam_on_a_feature_map():
    features = vectors(2, 8, 4, 4)

    cbam = nn.CBAM(8, reduction=2, kernel_size=3)
    output = cbam(features)

    # Woo et al. 2018, eq. 2 to 5.
    pooled = features.mean((2, 3)), features.amax((2, 3))
    channel = torch.sigmoid(sum(cbam.channel.expand(cbam.channel.reduce(each).relu()) for each in pooled))
    refined = features * channel[:, :, None, None]
    maps = torch.stack([refined.mean(1), refined.amax(1)], dim=1)
    weight = cbam.spatial.convolution.weight
    torch.testing.assert_close(output, refined * torch.sigmoid(F.conv2d(maps, weight, padding=1)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The classifier of the fifth text."""
    folder = tmp_path_factory.mktemp("words") / "run"
    texts, labels = ["hello", "world", "welcome"], [0, 1, 1]

    regard.train("classify", (texts, labels), validation=(texts, labels), run=folder, **QUICK)

    return folder


def test_19_a_classifier_from_two_lists(run):
    trained = regard.load(run)

    predictions = trained.predict(["hello", "world", "welcome"])

    assert [prediction.label for prediction in predictions] == ["0", "1", "1"]
    assert trained.evaluate((["hello", "world"], [0, 1])).accuracy == 1.0


def test_20_the_same_model_without_regard(run, tmp_path):
    trained = regard.load(run)

    exported = trained.export("torch", tmp_path / "exported")

    assert max(exported.differences.values()) < 1e-4
    program = torch.export.load(tmp_path / "exported" / "model.pt2").module()
    logits, *_ = program(torch.tensor([[4, 5, 6], [5, 4, 4]]), torch.tensor([3, 2]))
    assert logits.shape == (2, 2)
