"""The records of a calculation are short to look at, and their steps are what tables and pictures show."""

import json

import pytest
import torch

import regard
from cases import B, D, H, K, Q, V, problem
from regard import masks
from regard.explanations.step import Step, json_numbers, json_text


def test_the_repr_of_an_explanation_gives_shapes_dtypes_and_ranges():
    steps = regard.explain(*problem(kv_heads=1), mask=masks.causal())
    lines = [line.strip() for line in repr(steps).splitlines()]
    shapes = {
        "query": [B, H, Q, D], "key": [B, 1, K, D], "value": [B, 1, K, V], "scores": [B, H, Q, K],
        "scaled": [B, H, Q, K], "masked": [B, H, Q, K], "weights": [B, H, Q, K], "output": [B, H, Q, V],
    }  # fmt: skip
    assert lines[0] == "Explanation("
    assert lines[-1] == ")"
    for line, (name, shape) in zip(lines[1:-1], shapes.items(), strict=True):
        assert line.startswith(f"{name}: {shape} float64, ")
    assert f"{B * H * (Q * (Q - 1) // 2)} -inf" in lines[6]


HOSTILE = ["</script><script>alert(1)</script>", "$x$ & <b>", "\u202eevil", "\x00\x1b[31m", "[red]", "x" * 5000, "a"]


def test_notebooks_get_tables_of_the_numbers():
    query, key, value = (torch.randn(length, 3) for length in (2, 7, 7))
    value[6] = torch.nan
    steps = regard.explain(query, key, value, mask=masks.lengths([6])).labelled(keys=HOSTILE)
    page = steps._repr_html_()
    assert page.count("<table") == len(steps.step_names)
    assert "<script" not in page
    assert page.count("<b>") == len(steps.step_names)
    assert not {"\x00", "\x1b", "\u202e"} & set(page)
    assert "−∞" in page
    assert "NaN" in page
    assert f"{steps.weights[0, 0].item():.4f}" in page
    assert len(page) < 60_000


def test_hostile_labels_do_nothing_but_appear_where_they_are_printed():
    query, key = torch.eye(3)[:1], torch.randn(7, 3)
    steps = regard.explain(query, key, key).labelled(["\x1b[2J\r"], HOSTILE)
    for text in (str(steps), steps.arithmetic(0)):
        assert not {"\x00", "\x1b", "\u202e", "\r"} & set(text)
        assert "␛[2J␍" in text
        assert "[red]" in text
        assert max(map(len, text.splitlines())) < 400
    assert json.loads(steps.to_json(steps="weights"))["steps"][0]["columns"] == HOSTILE


def test_notebooks_get_a_part_of_what_is_large():
    steps = regard.explain(*(torch.randn(2, 3, 101, 5) for _ in range(3)))
    page = steps._repr_html_()
    assert "… and 2 more of batch × heads are not shown" in page
    assert "…" in page
    assert len(page) < 240_000
    assert regard.explain(*(torch.zeros(0, 3, 2, 5) for _ in range(3)))._repr_html_().startswith("<table")


def test_the_repr_of_a_step_names_its_place():
    weight = torch.ones(3, 2)
    explanation = regard.explain(torch.eye(3), w_query=weight, w_key=weight, w_value=weight, heads=2)
    assert repr(explanation.matrix_steps()[0]) == "Step('input', [3, 3])"
    assert repr(explanation.matrix_steps("weights", head=1)) == "[Step('weights', [3, 3], head 1)]"


def test_the_steps_of_a_slice_are_its_matrices():
    steps = regard.explain(*problem(kv_heads=1), mask=masks.causal()).labelled(keys=list("abcdefg"))
    found = steps.matrix_steps(batch=1, head=2)
    assert [step.name.replace(" ", "_") for step in found] == list(steps.step_names)
    assert list(steps.step_names) == [name for name, _ in steps.steps()]
    for name, step in zip(steps.step_names, found, strict=True):
        assert isinstance(step, Step)
        assert torch.equal(step.matrix, steps.matrix(name, 1, 2))
        assert step.matrix.shape == (len(step.row_labels), len(step.column_labels))
        assert list(step.column_labels) == steps.column_labels(name)
        assert step.head == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_json_has_no_number_that_json_lacks(dtype: torch.dtype):
    numbers = torch.tensor([[0.5, torch.inf], [-torch.inf, torch.nan]], dtype=dtype)
    assert json_numbers(numbers) == [[0.5, "inf"], ["-inf", "nan"]]
    assert json_numbers(torch.tensor(0.25, dtype=dtype)) == 0.25
    assert json_text({"name": "ж", "values": json_numbers(numbers)}) == (
        '{"name": "ж", "values": [[0.5, "inf"], ["-inf", "nan"]]}'
    )
