"""Monotonic attention of decoders: its decoding in linear time is the hard one, and it trains."""

import pytest
import torch

from regard import nn, scores
from regard.errors import RegardError
from regard.nn import monotonic_attention

FOUR = nn.EarlierWeights(torch.zeros(2, 4))


def layer(width, score="additive", **options):
    torch.manual_seed(width)
    return nn.MonotonicAttention.create(score, 3, 5, 7, width=width, bias=0.0, **options).double()


@pytest.mark.parametrize("width", [1, 3])
def test_decoding_in_blocks_is_hard_attention_over_all_keys(width, monkeypatch):
    monkeypatch.setattr(monotonic_attention, "BLOCK_KEYS", 2)
    attention = layer(width).eval()
    query, annotations = torch.randn(4, 6, 3, dtype=torch.float64), torch.randn(4, 11, 5, dtype=torch.float64)
    memory = attention.remember(annotations, torch.tensor([11, 7, 1, 0]))
    whole = attention(query, memory)
    assert set(whole.stops.flatten().tolist()) <= {0.0, 1.0}
    assert whole.weights.any()
    earlier = None
    for step in range(6):
        output, weights, stops = attention(query[:, step], memory, earlier=earlier)
        earlier = nn.EarlierWeights(stops)
        torch.testing.assert_close(output, whole.output[:, step])
        torch.testing.assert_close(weights, whole.weights[:, step])
    torch.testing.assert_close(stops, whole.stops)


def behind(score, batch, head, query, key):
    return torch.where(key > 18, 9.0 + 0 * score, -9.0 + 0 * score)


@pytest.mark.parametrize("place", ["score", "chunk_score"])
@pytest.mark.parametrize(
    "score",
    [
        scores.Modified("dot", behind),
        scores.SoftCap(scores.Modified("dot", behind), 5.0),
        scores.Location(torch.randn(32, 3, generator=torch.Generator().manual_seed(3))),
        scores.Features(lambda x: x.cumsum(-2)),
    ],
    ids=["modified", "capped", "location", "features"],
)
def test_scores_that_read_positions_see_those_of_all_keys(score, place):
    torch.manual_seed(0)
    pair = {"score": "dot", "chunk_score": "dot", place: score}
    attention = nn.MonotonicAttention(**pair, width=20, bias=-1.0).eval()
    query, memory = torch.randn(2, 3), attention.remember(torch.randn(2, 32, 3))
    stopped, whole = attention(query, memory), attention(query[:, None], memory)
    torch.testing.assert_close(stopped.stops, whole.stops)
    torch.testing.assert_close(stopped.weights, whole.weights[:, 0])
    assert whole.weights.any()
    if isinstance(score, scores.Modified) and place == "score":
        assert stopped.stops.argmax(1).tolist() == [19, 19]


def test_the_number_of_scores_is_linear(monkeypatch):
    pairs, forward = [], scores.Dot.forward

    def counted(self, query, key):
        pairs.append(key.shape[2])
        return forward(self, query, key)

    monkeypatch.setattr(scores.Dot, "forward", counted)
    attention = nn.MonotonicAttention("dot", bias=-0.5).eval()
    keys, steps = 640, 20
    annotations = torch.zeros(1, keys, 1)
    annotations[0, :: keys // steps] = 1.0
    memory = attention.remember(annotations)
    earlier, visited = None, []
    for _ in range(steps):
        _, weights, stops = attention(torch.ones(1, 1), memory, earlier=earlier)
        earlier = nn.EarlierWeights(stops)
        visited.append(weights.argmax().item())
        memory.key[0, visited[-1]] = 0.0
    assert visited == list(range(0, keys, keys // steps))
    assert 0 < sum(pairs) <= keys + (steps + 1) * monotonic_attention.BLOCK_KEYS


@pytest.mark.parametrize("width", [1, 3])
def test_gradients_reach_every_parameter_in_training_and_the_steps_before(width):
    attention = layer(width, noise=0.0).train()
    query, annotations = torch.randn(2, 3, 3, dtype=torch.float64), torch.randn(2, 6, 5, dtype=torch.float64)
    memory = attention.remember(annotations, torch.tensor([6, 4]))
    whole = attention(query, memory)
    earlier, outputs = None, []
    for step in range(3):
        output, _, stops = attention(query[:, step], memory, earlier=earlier)
        earlier = nn.EarlierWeights(stops)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, 1), whole.output)
    outputs[-1].square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in attention.parameters())


def test_a_score_of_nan_is_not_lost():
    attention = nn.MonotonicAttention("dot", bias=0.0).eval()
    annotations = torch.tensor([[[-1.0], [torch.nan], [1.0]]])
    output, weights, _ = attention(torch.ones(1, 1), attention.remember(annotations))
    assert output.isnan().all()
    assert weights[0, 1].isnan()


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda layer, memory: layer(torch.zeros(3, 3), memory), "query must be .* memory's batch, 2"),
        (lambda layer, memory: layer([0.0], memory), "query must be a tensor"),
        (
            lambda layer, memory: layer(torch.zeros(2, 3), memory, earlier=nn.EarlierWeights(torch.zeros(2, 4))),
            r"earlier\.previous must be .* \[2, 5\]",
        ),
        (
            lambda layer, memory: layer(torch.zeros(2, 3), memory, earlier=torch.zeros(2, 5)),
            "must be an EarlierWeights",
        ),
        (lambda layer, memory: layer(torch.zeros(2, 3), memory, stops=0), r"write earlier=nn\.EarlierWeights\(stops\)"),
        (lambda layer, memory: layer(torch.zeros(2, 3), torch.zeros(2, 5, 3)), "memory must be what remember"),
        (lambda layer, memory: layer(torch.zeros(2, 3), layer.attention.remember(torch.zeros(2, 5, 3))), "a Memory"),
        (lambda layer, memory: nn.MonotonicAttention("dot", bias="a"), "bias must be a number; it is 'a'"),
        (lambda layer, memory: nn.MonotonicAttention("dot", "dot"), "chunk_score weighs .* width=1 has none"),
        (lambda layer, memory: nn.MonotonicAttention("dot", width=2), "width=2 needs a chunk_score"),
    ],
)
def test_monotonic_attention_refuses_wrong_inputs(width, call, message):
    layer = nn.MonotonicAttention("dot", *["dot"] * (width - 1), width=width).eval()
    with pytest.raises(RegardError, match=message):
        call(layer, layer.remember(torch.zeros(2, 5, 3)))
