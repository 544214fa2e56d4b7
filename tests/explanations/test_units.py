"""Scores that compute units for each pair show them: the sum, its tanh, the weighted sum; the layers of a network."""

import json

import pytest
import torch
from torch import nn

import regard
from cases import B, H, K, Q
from regard import scores

D, UNITS = 3, 5
LEADING = {2: (), 3: (B,), 4: (B, H)}


def inputs(rank):
    torch.manual_seed(7)
    keys = (B, 1) if rank == 4 else LEADING[rank]
    sizes = (*LEADING[rank], Q, D), (*keys, K, D), (*keys, K, D)
    return [torch.randn(size, dtype=torch.float64) for size in sizes]


def created(score):
    torch.manual_seed(8)
    with torch.no_grad():
        for parameter in score.double().parameters():
            parameter.normal_()
    return score


def linear(layer, x):
    return x @ layer.weight.T + (0 if layer.bias is None else layer.bias)


def of_pairs(query, key):
    """Every query beside every key: ``[..., queries, keys, dim]`` of each."""
    return torch.broadcast_tensors(query[..., :, None, :], key[..., None, :, :])


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("kind", ["additive", "concat", "weights by head", "capped"])
def test_an_additive_score_is_a_sum_its_tanh_and_a_weighted_sum(kind, rank):
    query, key, value = inputs(rank)
    heads = (H if rank == 4 else 1) if kind == "weights by head" else None
    make = scores.Additive.concat if kind == "concat" else scores.Additive.create
    additive = created(make(D, D, UNITS, heads))
    steps = regard.explain(query, key, value, score=scores.SoftCap(additive, 0.5) if kind == "capped" else additive)
    left, right = of_pairs(linear(additive.query_projection, query), linear(additive.key_projection, key))
    torch.testing.assert_close(steps["sum"], left + right)
    torch.testing.assert_close(steps["tanh"], (left + right).tanh())
    assert torch.equal(steps["unit_weights"], additive.weight)
    weight = additive.weight if heads != H else additive.weight[:, None, None]
    torch.testing.assert_close(steps.scores, ((left + right).tanh() * weight).sum(-1))
    names = [name for name in steps.step_names if not name.startswith("score_")]
    assert names[:7] == ["query", "key", "value", "sum", "tanh", "unit_weights", "scores"]
    (projection,) = (name for name in steps.step_names if name.endswith("query_projection.weight"))
    assert torch.equal(steps[projection], additive.query_projection.weight)


def test_the_sum_of_a_location_aware_score_has_the_features_of_the_previous_weights():
    query, key, value = inputs(3)
    score = created(scores.LocationAware.create(D, D, UNITS, channels=2, kernel_size=3))
    previous = torch.rand(B, K, dtype=torch.float64)
    steps = regard.explain(query, key, value, score=score.given(previous))
    features = nn.functional.conv1d(previous[:, None], score.convolution.weight, padding=1).mT
    location = linear(score.location_projection, features)[:, None]
    left, right = of_pairs(linear(score.query_projection, query), linear(score.key_projection, key))
    torch.testing.assert_close(steps["sum"], left + right + location)
    assert "sum: query + key + U f" in str(steps).replace(f" [{Q * K}×{UNITS}]", "")


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.GELU])
@pytest.mark.parametrize("hidden", [(UNITS,), (UNITS, 4)])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_a_network_shows_its_layers(rank, hidden, activation):
    query, key, value = inputs(rank)
    score = created(scores.MLP.create(D, D, hidden, activation))
    steps = regard.explain(query, key, value, score=score)
    units = torch.cat(of_pairs(query, key), dim=-1)
    for number, layer in enumerate(score.network[:-1]):
        units = layer(units)
        torch.testing.assert_close(steps[f"network.{number}"], units)
    last = score.network[-1]
    torch.testing.assert_close(steps.scores, units @ steps["unit_weights"] + steps["unit_bias"])
    assert torch.equal(steps["unit_weights"], last.weight[0])
    assert torch.equal(steps["unit_bias"], last.bias)


@pytest.mark.parametrize(
    ("network", "shown"),
    [
        (nn.Sequential(nn.Linear(2 * D, UNITS), nn.Dropout(0.5), nn.Linear(UNITS, 1)), [0]),
        (nn.Sequential(nn.Linear(2 * D, UNITS), nn.Tanh(), nn.Linear(UNITS, 1), nn.Tanh()), [0, 1, 2]),
        (nn.Sequential(nn.Linear(2 * D, 1)), []),
        (nn.Sequential(nn.LayerNorm(2 * D), nn.Linear(2 * D, 1)), []),
        (nn.Linear(2 * D, 1), []),
    ],
)
def test_a_network_is_shown_as_far_as_its_layers_are_known(network, shown):
    steps = regard.explain(*inputs(3), score=scores.MLP(network.double()))
    units = [name for name in steps.step_names if name.startswith(("network", "unit"))]
    assert units == [f"network.{number}" for number in shown]


def test_units_are_in_tables_pictures_arithmetic_and_json():
    """Bahdanau's state and annotations by hand: v · tanh(s + h)."""
    additive = scores.Additive(torch.tensor([1.0, -2.0]))
    steps = regard.explain([[0.5, 0.0]], [[0.5, 1.0], [-0.5, 2.0]], [[1.0], [3.0]], score=additive)
    assert steps["sum"].tolist() == [[[1.0, 1.0], [0.0, 2.0]]]
    lines = steps.arithmetic(0).splitlines()
    assert lines[2:12] == [
        "Sum: query + key, unit by unit.",
        "  k0: (0.5 + 0.5, 0 + 1) = (1, 1)",
        "  k1: (0.5 + (−0.5), 0 + 2) = (0, 2)",
        "",
        "Tanh: tanh of each sum.",
        "  k0: (0.7616, 0.7616)",
        "  k1: (0, 0.9640)",
        "",
        "Scores: each unit times its weight in (1, −2), and all added.",
        "  k0: 0.7616·1 + 0.7616·(−2) = −0.7616",
    ]
    names = ["query", "key", "value", "sum", "tanh", "unit_weights", "scores"]
    record = {step["name"].replace(" ", "_"): step["values"] for step in json.loads(steps.to_json())["steps"]}
    assert [name for name in record if name in names] == names
    assert record["unit_weights"] == [[1, -2]]
    written = [text.get_text() for text in steps.figure(steps.step_names).texts]
    assert [text for text in written if text[:1] in "4567" and text[1:3] == "  "] == [
        "4  sum", "5  tanh", "6  unit weights", "7  scores"
    ]  # fmt: skip
    assert "tanh · unit weights" in str(steps)
    with pytest.raises(regard.errors.UnknownNameError, match="unknown step 'tan'; did you mean 'tanh'"):
        steps["tan"]


def test_the_units_of_each_head_and_batch_row_have_their_arithmetic():
    steps = regard.explain(*inputs(4), score=created(scores.Additive.create(D, D, 2, H)))
    for batch, head in ((0, 0), (1, 2)):
        weights = ", ".join(f"{number:.4f}" for number in steps["unit_weights"][head].tolist()).replace("-", "−")
        assert f"its weight in ({weights})" in steps.arithmetic(1, batch=batch, head=head)
    with pytest.raises(regard.errors.ArgumentError, match="batch must be from 0 to 1 and head from 0 to 2"):
        steps.arithmetic(0, head=H)


def test_an_explanation_shows_the_weights_of_the_units_once():
    score = created(scores.Additive.create(D, D, 2))
    names = regard.explain(torch.eye(3).double(), score=score).step_names
    assert names.count("unit_weights") == 1
    assert "score_weight" not in names
    assert names.index("sum") < names.index("tanh") < names.index("unit_weights") < names.index("scores")
