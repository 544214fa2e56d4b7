"""The record of a worked calculation has the numbers of the explanation."""

import json

import numpy as np
import pytest
import torch

import regard
from regard import normalizers, scores
from regard.errors import ArgumentError, KindError
from regard.viewer import payload, steps_record


def explanation(**options):
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(2, 3, length, 5, generator=generator) for length in (7, 11, 11))
    return regard.explain(query, key, value, **options)


def test_the_numbers_of_one_head():
    one = explanation(mask=regard.masks.causal())
    record = steps_record(one, batch=1, head=2)
    for name, matrix in record.matrices.items():
        assert np.array_equal(matrix, getattr(one, name)[1, 2].double().numpy())
    assert list(record.matrices) == ["query", "key", "value", "scores", "scaled", "masked", "weights", "output"]
    assert (record.score, record.normalizer, record.head) == ("dot", "softmax", 2)
    assert record.key_labels[:2] == ("k0", "k1")


def drop(score, batch, head, query_index, key_index):
    return score - (query_index - key_index).abs()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("dot", 5**-0.5, None, None, "softmax", {"temperature": 1.0})),
        ({"score": "distance"}, ("Distance", 1.0, None, None, "softmax", {"temperature": 1.0})),
        ({"score": scores.SoftCap("dot", 3.0)}, ("dot", 1.0, 3.0, None, "softmax", {"temperature": 1.0})),
        (
            {"score": scores.Modified("scaled_dot", drop)},
            ("dot", 5**-0.5, None, "drop", "softmax", {"temperature": 1.0}),
        ),
        ({"normalizer": "sparsemax"}, ("dot", 5**-0.5, None, None, "sparsemax", {})),
        (
            {"normalizer": normalizers.entmax(torch.tensor([1.2, 1.3, 1.5], dtype=torch.float64))},
            ("dot", 5**-0.5, None, None, "entmax", {"alpha": 1.5}),
        ),
        (
            {"normalizer": normalizers.softmax_with_sink(0.5)},
            ("dot", 5**-0.5, None, None, "softmax_with_sink", {"temperature": 1.0, "sink": 0.5}),
        ),
        ({"normalizer": normalizers.Sigmoid(-2.0)}, ("dot", 5**-0.5, None, None, "sigmoid", {"bias": -2.0})),
        ({"normalizer": normalizers.Custom(lambda x: x.softmax(-1))}, ("dot", 5**-0.5, None, None, "custom", {})),
    ],
)
def test_settings_of_the_head(options, expected):
    """What scales, caps and normalizes is in the record, with the parameters of this head."""
    record = steps_record(explanation(**options), head=2)
    found = (record.score, record.scale, record.cap, record.function, record.normalizer, dict(record.parameters))
    assert found == expected


def test_inputs_and_projections_of_the_head():
    generator = torch.Generator().manual_seed(4)
    text, *weights = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in [(5, 7)] + [(7, 6)] * 3
    )
    one = regard.explain(text, w_query=weights[0], w_key=weights[1], w_value=weights[2], heads=3)
    found = steps_record(one, head=1).matrices
    for name in ("query", "key", "value"):
        np.testing.assert_allclose(found[f"{name}_input"] @ found[f"w_{name}"], found[name], atol=1e-12)


def test_steps_of_what_was_watched():
    model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True).eval()
    with torch.no_grad(), regard.watch(model, read=regard.Readings(weights=True), keep=True) as watched:
        model(torch.randn(1, 5, 8))
    view = regard.View(watched, list("abcde"), steps=[(0, 1)])
    (steps,) = view.document.steps
    np.testing.assert_array_equal(steps.matrices["weights"].astype(np.float32), view.document.records[0].weights[1])
    np.testing.assert_allclose(steps.matrices["weights"] @ steps.matrices["value"], steps.matrices["output"], atol=1e-6)
    assert [(entry["record"], entry["head"]) for entry in view.payload()["steps"]] == [(0, 1), (0, 0)]
    for wrong in ([(1, 0)], [(0, 2)]):
        with pytest.raises(ArgumentError, match="layer from 0"):
            regard.View(watched, list("abcde"), steps=wrong)
    with pytest.raises(ArgumentError, match="keep=True"):
        regard.View([[1.0]], ["a"], steps=[(0, 0)])


def test_worked_steps_refuse_wrong_arguments():
    with pytest.raises(KindError):
        steps_record(3)
    with pytest.raises(ArgumentError):
        steps_record(explanation(), head=3)


def test_the_repr_of_a_record_counts_its_queries_and_keys():
    record = steps_record(regard.explain([1, 2], [[1, 0], [0, 1]]))
    assert repr(record) == "StepsRecord('head 0', 1 query, 2 keys)"


def test_a_kept_watch_carries_the_numbers_of_heads_that_fit_the_opening_head_first():
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True), 2, enable_nested_tensor=False
    ).eval()
    with torch.no_grad(), regard.watch(model, keep=True) as watched:
        model(torch.randn(1, 5, 8))

    def heads(**options):
        content = regard.View(watched, list("abcde"), **options).payload()
        used = [len(json.dumps(one)) for one in content["steps"] if one["queries"] is None]
        return [(one["record"], one["head"]) for one in content["steps"]], sum(used)

    assert sorted(heads()[0]) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert heads(layer=1, head=1)[0][0] == (1, 1)
    assert heads(steps=[(1, 0)])[0].count((1, 0)) == 1
    chosen, used = heads(layer=1, head=1, budget_bytes=4000)
    assert chosen[0] == (1, 1)
    assert len(chosen) < 4
    assert used <= 2400
    for budget in (0, 1000):  # the numbers of no head fit
        assert heads(budget_bytes=budget) == ([], 0)
        with pytest.raises(ArgumentError, match="'walk' cannot show"):
            regard.View(watched, list("abcde"), view="walk", budget_bytes=budget)
    assert payload(regard.View(watched, list("abcde")).document)["steps"] == []


def test_a_calculation_leaves_out_the_padding_that_its_record_leaves_out():
    model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True).eval()
    with torch.no_grad(), regard.watch(model, keep=True) as watched:
        model(torch.randn(1, 5, 8), src_key_padding_mask=torch.tensor([[False, False, False, True, True]]))
    view = regard.View(watched, ["a", "b", "c", "[PAD]", "[PAD]"], steps=[(0, 1)])
    (steps,) = view.document.steps
    assert steps.query_labels == steps.key_labels == ("a", "b", "c")
    np.testing.assert_allclose(steps.matrices["weights"], view.document.records[0].weights[1], atol=1e-6)
    np.testing.assert_allclose(steps.matrices["weights"] @ steps.matrices["value"], steps.matrices["output"], atol=1e-6)
    carried = view.payload()["steps"]
    assert [(one["record"], one["head"]) for one in carried] == [(0, 1), (0, 0)]
    for one in carried:
        assert {one["matrices"][name]["shape"][0] for name in ("query", "key", "value")} == {3}
