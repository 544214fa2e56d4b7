"""Every intermediate of a calculation: its numbers, its order, and how it prints, exports and draws."""

import json

import pytest
import torch

import regard
from cases import B, H, K, Q, problem
from regard import masks, positions, scores
from regard.errors import BackendError, DataError, KindError, ShapeError

ANNOTATIONS = torch.tensor([[3, 12, 45], [59, 2, 5], [1, 43, 5], [4, 3, 45.3]])
STATE = torch.tensor([[5.0, 1, 20]])


def full():
    return regard.explain(
        *problem(kv_heads=1),
        score=scores.SoftCap(scores.ScaledDot(), 2.0),
        bias=positions.alibi(H),
        mask=masks.causal(),
    )


def test_each_step_follows_from_the_one_before():
    steps = full()
    key, value = (t.expand(-1, H, -1, -1) for t in (steps.key, steps.value))
    torch.testing.assert_close(steps.scores, steps.query @ key.mT)
    torch.testing.assert_close(steps.scaled, steps.scores / steps.query.shape[-1] ** 0.5)
    torch.testing.assert_close(steps.capped, 2 * torch.tanh(steps.scaled / 2))
    assert ((steps.biased - steps.capped) <= 0).all()
    seen = torch.arange(K) <= torch.arange(Q)[:, None] + K - Q
    assert torch.equal(steps.masked, steps.biased.masked_fill(~seen, -torch.inf))
    torch.testing.assert_close(steps.weights, steps.masked.softmax(-1))
    torch.testing.assert_close(steps.weighted_values, steps.weights[..., None] * value[:, :, None])
    torch.testing.assert_close(steps.output, steps.weighted_values.sum(-2))
    names = [name for name, _ in steps.steps()]
    assert names == [
        "query", "key", "value", "scores", "scaled", "capped", "biased", "masked", "weights",
        "weighted_values", "output",
    ]  # fmt: skip


def test_steps_that_the_calculation_does_not_have_are_left_out():
    steps = regard.explain(STATE, ANNOTATIONS, ANNOTATIONS, score="dot")
    assert [name for name, _ in steps.steps()] == [
        "query",
        "key",
        "value",
        "scores",
        "weights",
        "weighted_values",
        "output",
    ]
    assert steps.masked is steps.scores


def test_projections_of_the_score_are_shown():
    weight = torch.randn(3, 3)
    steps = regard.explain(STATE, ANNOTATIONS, ANNOTATIONS, score=scores.General(weight))
    torch.testing.assert_close(steps.query, STATE @ weight)
    torch.testing.assert_close(steps.scores, STATE @ weight @ ANNOTATIONS.T)


def test_every_step_is_differentiable():
    inputs = problem(requires_grad=True)
    for _, tensor in regard.explain(*inputs, mask=masks.lengths([3, K])).steps():
        grads = torch.autograd.grad(tensor[torch.isfinite(tensor)].sum(), inputs, allow_unused=True, retain_graph=True)
        assert any(grad is not None for grad in grads)


def test_prints_aligned_tables_in_order():
    text = str(regard.explain(STATE, ANNOTATIONS, ANNOTATIONS, score="dot").labelled(["s"], list("abcd")))
    for part in ("4. scores [1×4]", "927", "929", "0.1192", "0.8808", "45.2642", "7. output [1×3]"):
        assert part in text
    assert text.index("scores") < text.index("weights") < text.index("output")
    tables = text.split("\n\n")
    assert all(line == line.rstrip() for line in text.splitlines()), tables


def test_a_notebook_gets_the_same_text(monkeypatch):
    """Rich writes into the notebook's output, unless it is told not to, and leaves the text empty."""
    steps = regard.explain([1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]])
    text = str(steps)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(steps) == text


def test_masked_scores_print_as_infinite():
    assert "−∞" in str(full())


def test_only_some_of_many_heads_and_columns_are_printed():
    inputs = problem(queries=40, keys=40)
    text = str(regard.explain(*inputs))
    assert "batch row 0, head 0" in text
    assert f"… and {B * H - 4} more" in text
    assert "…" in text


def test_exports_json_that_reads_back(tmp_path):
    steps = full().labelled([f"q{i}" for i in range(Q)], [f"k{i}" for i in range(K)])
    text = steps.to_json(tmp_path / "steps.json")
    record = json.loads((tmp_path / "steps.json").read_text())
    assert record == json.loads(text)
    read = {(step["name"], step["batch"], step["head"]): step for step in record["steps"]}
    assert len(read) == B * H * 11
    assert read["masked", 0, 0]["values"][0][-1] == "-inf"
    for batch, head in steps.slices:
        output = torch.tensor(read["output", batch, head]["values"], dtype=torch.float64)
        torch.testing.assert_close(output, steps.output[batch, head])
    assert read["weights", 1, 2]["rows"] == [f"q{i}" for i in range(Q)]


def test_json_that_cannot_be_written_is_one_error_and_keeps_the_old_file(tmp_path):
    steps = regard.explain(STATE, ANNOTATIONS, ANNOTATIONS).labelled(["\ud800"])
    for path in (tmp_path / "nowhere" / "a.json", tmp_path, "nul\0"):
        with pytest.raises(DataError, match="cannot write"):
            steps.to_json(path)
    file = tmp_path / "a.json"
    assert json.loads(steps.to_json(file)) == json.loads(file.read_text())
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_draws_one_panel_for_each_chosen_step():
    figure = full().figure(full().step_names, batch=1, head=2)
    written = [text.get_text() for text in figure.texts]
    places = [
        next(place for place, text in enumerate(written) if text.startswith(f"{number}  {name.replace('_', ' ')}"))
        for number, (name, _) in enumerate(full().steps(), start=1)
    ]
    assert places == sorted(places)
    assert len(places) == 11


def test_labels_must_fit():
    with pytest.raises(ShapeError, match="queries must have 1 labels; got 2"):
        regard.explain(STATE, ANNOTATIONS, ANNOTATIONS).labelled(["a", "b"])


def test_no_other_backend_has_intermediates():
    with pytest.raises(BackendError, match="no intermediates to explain"):
        regard.explain(*problem(), backend="sdpa")


def test_masked_keys_are_not_in_an_explanation():
    query, key, value = (torch.randn(length, 3) for length in (2, 5, 5))
    key[4], value[4] = torch.nan, torch.inf
    mask = regard.masks.lengths([4])
    explanation = regard.explain(query, key, value, mask=mask)
    expected = regard.explain(query, key[:4], value[:4])
    torch.testing.assert_close(explanation.output, expected.output)
    torch.testing.assert_close(explanation.weights[:, :4], expected.weights)
    assert explanation.scores[:, 4].isnan().all()
    assert not explanation.weights[:, 4].any()


def test_text_and_other_things_that_are_no_numbers_get_what_python_and_the_command_take():
    for text in ("a sentence", ["a", "sentence"]):
        with pytest.raises(KindError, match=r"nested lists; it is text.*regard explain \"a sentence\""):
            regard.explain(text)
    with pytest.raises(KindError, match="query must be a tensor, an array or nested lists of numbers; it is a dict"):
        regard.explain({})
    assert regard.explain([[1.0, 2.0]]).output.shape == (1, 2)
