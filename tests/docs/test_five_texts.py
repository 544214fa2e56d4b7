"""The five introductory texts: each calculation as the shortest program, with the numbers of the text."""

import math

import pytest
import torch

import regard
from regard import masks, nn, normalizers, positions, scores


def near(actual, expected, digits=4):
    torch.testing.assert_close(actual.float(), torch.tensor(expected), rtol=0, atol=0.51 * 10**-digits)


def test_1_one_decoder_state_and_one_annotation():
    assert regard.explain([5, 1, 20], [3, 12, 45], score="dot").scores.item() == 927


def test_1_one_decoder_state_and_four_annotations():
    steps = regard.explain([5, 1, 20], [[3, 12, 45], [59, 2, 5], [1, 43, 5], [4, 3, 45.3]], score="dot")

    assert steps.scores.tolist() == [[927, 397, 148, 929]]
    near(steps.weights, [[0.11920, 0, 0, 0.88080]], 5)
    near(steps.output, [[3.88080, 4.07283, 45.26424]], 5)
    assert steps.figure().axes


def test_1_annotations_as_columns():
    state = torch.tensor([[5.0], [1], [20]])
    annotations = torch.tensor([[3, 59, 1, 4], [12, 2, 43, 3], [45, 5, 5, 45.3]])
    near(regard.attend(state.T, annotations.T, annotations.T, score="dot").T, [[3.88080], [4.07283], [45.26424]], 5)
    with pytest.raises(regard.errors.ShapeError, match=r"write query\.mT, key\.mT, value\.mT"):
        regard.attend(state, annotations, annotations, score="dot")


def test_1_the_smallest_weight_in_extended_precision():
    annotations = torch.tensor([[3, 12, 45], [59, 2, 5], [1, 43, 5], [4, 3, 45.3]], dtype=torch.float64)
    weights = regard.explain(torch.tensor([[5.0, 1, 20]], dtype=torch.float64), annotations, score="dot").weights
    assert weights[0, 1].item() == pytest.approx(7.9e-232, rel=0.01)


def test_1_the_tanh_layer_of_the_decoder():
    state, context = torch.tensor([5.0, 1, 20]), torch.tensor([3.88080, 4.07283, 45.26424])
    weight = torch.tensor([[0.02, -0.01, 0.03, 0.01, 0.02, -0.01], [-0.03, 0.02, 0.01, 0.04, -0.02, 0.01]])
    near(torch.tanh(weight @ torch.cat([state, context])), [0.3431, 0.5345])


@pytest.mark.parametrize("name", ["additive", "concat", "general", "location"])
def test_2_alignment_scores_between_encoder_and_decoder(name):
    state, annotations = torch.randn(2, 6), torch.randn(2, 5, 6)
    attention = nn.Attention.create(name, 6, 6, max_keys=5 if name == "location" else None)
    context, weights = attention(state, annotations)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2))
    torch.testing.assert_close(context, (weights[..., None] * annotations).sum(1))


def test_2_global_local_soft_and_hard():
    x = torch.randn(1, 7, 6)
    center = torch.arange(7.0)
    everything = regard.attend_with_weights(x, x, x).weights
    window = regard.attend_with_weights(x, x, x, mask=masks.window(2, 2)).weights
    local = normalizers.local_gaussian("softmax", center, sigma=1.0)
    gaussian = regard.attend_with_weights(x, x, x, normalizer=local).weights
    hard = regard.attend_with_weights(x, x, x, normalizer="hard").weights
    distance = (center[:, None] - center).abs()
    kept = torch.where(distance <= 2, everything, 0)
    torch.testing.assert_close(window, kept / kept.sum(-1, keepdim=True))
    torch.testing.assert_close(gaussian, everything * torch.exp(-(distance**2) / 2))
    torch.testing.assert_close(hard, (everything == everything.amax(-1, keepdim=True)).float())


def test_2_the_two_column_view_and_the_alignment(tmp_path):
    words = ["The", "animal", "didn't", "cross", "the", "street", "because", "it", "was", "too", "tired"]
    view = regard.View(torch.softmax(torch.randn(8, 11, 11), dim=-1), words)
    view.save(tmp_path / "animal.html")
    assert view.document.records[0].heads == 8
    areas = regard.View(
        torch.eye(3).flip(0), rows=["zone", "économique", "européenne"], columns=["European", "Economic", "Area"]
    )
    assert areas.document.records[0].keys.labels == ("European", "Economic", "Area")


def test_3_this_is_book():
    x = torch.randn(3, 5)
    w_query, w_key, w_value = torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 3)

    query, key, value = x @ w_query, x @ w_key, x @ w_value
    output, weights = regard.attend_with_weights(query, key, value, score=scores.ScaledDot(1 / math.sqrt(5)))

    for word in range(3):
        powers = [math.exp((query[word] @ key[other]).item() / math.sqrt(5)) for other in range(3)]
        assert weights[word].tolist() == pytest.approx([power / sum(powers) for power in powers], abs=1e-5)
        total = sum(power * value[other] for other, power in enumerate(powers)) / sum(powers)
        torch.testing.assert_close(output[word], total)


def test_3_eight_heads_side_by_side():
    x = torch.randn(1, 3, 512)
    output, weights = nn.MultiheadAttention(512, 8, batch_first=True)(x, x, x, average_attn_weights=False)
    assert (output.shape, weights.shape) == ((1, 3, 512), (1, 8, 3, 3))


def test_4_three_inputs_of_four_numbers():
    x = torch.tensor([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
    w_key = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
    w_query = torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])
    w_value = torch.tensor([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])

    steps = regard.explain(x @ w_query, x @ w_key, x @ w_value, score="dot")

    assert steps.key.tolist() == [[0, 1, 1], [4, 4, 0], [2, 3, 1]]
    assert steps.query.tolist() == [[1, 0, 2], [2, 2, 2], [2, 1, 3]]
    assert steps.value.tolist() == [[1, 2, 3], [2, 8, 0], [2, 6, 3]]
    assert steps.scores.tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    near(steps.weights, [[0.0634, 0.4683, 0.4683], [0.0000, 0.9820, 0.0180], [0.0003, 0.8805, 0.1192]])
    near(steps.output, [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]])


def test_4_cosine_and_a_small_network_as_scores():
    x = torch.randn(3, 4)
    network = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    cosine = regard.explain(x, score="cosine").scores
    mlp = regard.explain(x, score=scores.MLP(network)).scores
    torch.testing.assert_close(cosine, torch.cosine_similarity(x[:, None], x[None], dim=-1))
    torch.testing.assert_close(mlp, torch.stack([network(torch.cat([q.expand(3, 4), x], -1))[:, 0] for q in x]))


def test_4_channels_space_and_fusion():
    features, other = torch.randn(2, 8, 4, 6), torch.randn(2, 8, 4, 6)
    assert nn.ChannelAttention(8).weights(features).shape == (2, 8, 8)
    assert nn.PositionAttention(8)(features).shape == features.shape
    fused = nn.AFF(8)(features, other)
    gate = (fused - other) / (features - other)
    assert fused.shape == features.shape
    assert bool(((gate > -1e-3) & (gate < 2 + 1e-3)).all())


def test_5_sinusoidal_positions():
    encoded = positions.Sinusoidal(8)(torch.zeros(1, 6, 8))[0]
    for position in range(6):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert encoded[position, 2 * i : 2 * i + 2].tolist() == pytest.approx(
                [math.sin(angle), math.cos(angle)], abs=1e-6
            )


def test_5_the_classifier_that_was_meant():
    words = torch.tensor([[0], [1], [2]])
    labels = torch.tensor([0, 1, 1])

    embedding, attention = torch.nn.Embedding(3, 5), nn.AttentionPooling(5, score_dim=10)
    linear = torch.nn.Linear(5, 2)
    parameters = [*embedding.parameters(), *attention.parameters(), *linear.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.05)
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(linear(attention(embedding(words)).output.flatten(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    assert loss.item() < 0.1
