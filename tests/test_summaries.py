"""A tensor in one line: what it says, and that it never reads what cannot be read."""

from dataclasses import is_dataclass

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from regard import attention, models, nn, summaries
from regard.summaries import parameter_summary, record_html, record_summary, tensor_summary


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.tensor([[0.25, 1.0]]), "[1, 2] float32, 0.25 to 1"),
        (torch.tensor(2.0, dtype=torch.float64), "[] float64, 2"),
        (torch.tensor([1.0, -torch.inf, torch.nan, torch.inf, -torch.inf]), "[5] float32, 1, 2 -inf, 1 inf, 1 NaN"),
        (torch.full((2, 3), -torch.inf), "[2, 3] float32, 6 -inf"),
        (torch.zeros(0, 3), "[0, 3] float32"),
        (torch.tensor([3, -1]), "[2] int64, -1 to 3"),
        (torch.tensor([True, False, True]), "[3] bool, 2 of 3 True"),
        (torch.tensor([0.5], dtype=torch.bfloat16, requires_grad=True), "[1] bfloat16, 0.5"),
        (torch.zeros(2, 3, device="meta"), "[2, 3] float32 on meta"),
        (torch.zeros(2, dtype=torch.complex64), "[2] complex64"),
        (torch.eye(2).to_sparse(), "[2, 2] float32"),
    ],
)
def test_shape_dtype_and_range(tensor, text):
    assert tensor_summary(tensor) == text


def test_numbers_that_cannot_be_read_are_not_read(monkeypatch):
    with FakeTensorMode():
        assert tensor_summary(torch.zeros(3)) == "[3] float32"
    seen = []
    torch.vmap(lambda row: seen.append(tensor_summary(row)) or row)(torch.zeros(2, 3))
    assert seen == ["[3] float32"]
    monkeypatch.setattr(summaries, "RANGE_LIMIT", 5)
    assert tensor_summary(torch.zeros(6)) == "[6] float32"


def test_records_are_short_and_escaped():
    fields = [("output", torch.zeros(3, 5)), ("label", "<script>" + "x" * 1000)]
    text = record_summary("Record", fields)
    assert text.splitlines()[:2] == ["Record(", "  output: [3, 5] float32, 0"]
    assert len(text) < 200
    page = record_html("Record", fields)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "[3, 5] float32, 0" in page
    assert record_summary("Empty", []) == "Empty()"


def test_summaries_of_parameters_show_value_or_shape():
    assert parameter_summary(0.5) == "0.5"
    assert parameter_summary(torch.nn.Parameter(torch.tensor([0.5]))) == "0.5"
    assert parameter_summary(torch.ones(3, dtype=torch.float64)) == "[3] float64, 1"


def test_a_text_in_a_table_has_no_quotes():
    fields = [("name", "layers.0.self_attn"), ("kind", 'it\'s "self"'), ("heads", (0, 1)), ("mask", None)]
    assert record_summary("Call", fields).splitlines()[1:3] == ["  name: layers.0.self_attn", '  kind: it\'s "self"']
    page = record_html("Call", fields)
    assert ">layers.0.self_attn</td>" in page
    assert ">(0, 1)</td>" in page


OTHER_RECORDS = {"Problem", "Readings", "Hypothesis"}
"""Records that are no results of layers: the first two have a text of their own, a hypothesis prints its tokens."""


def results_with_tensors():
    for room in (attention, nn, models):
        for name in room.__all__:
            one = getattr(room, name)
            annotations = getattr(one, "__annotations__", {})
            is_record = isinstance(one, type) and (hasattr(one, "_fields") or is_dataclass(one))
            if (
                is_record
                and name not in OTHER_RECORDS
                and not issubclass(one, torch.nn.Module)
                and "Tensor" in str(annotations.values())
            ):
                yield pytest.param(one, annotations, id=f"{room.__name__}.{name}")


@pytest.mark.parametrize(("record", "annotations"), [*results_with_tensors()])
def test_results_of_layers_print_shapes_and_no_elements(record, annotations):
    text = repr(record(**{name: torch.zeros(2, 3) for name in annotations}))
    assert text.startswith(f"{record.__name__}(\n  ")
    assert "[2, 3] float32, 0" in text
    assert "tensor(" not in text


def test_a_record_in_a_record_has_a_line_for_each_of_its_fields():
    cache = nn.KeyValueCache(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))
    assert repr(nn.SequenceOutput(torch.zeros(2), None, cache)).splitlines() == [
        "SequenceOutput(",
        "  output: [2] float32, 0",
        "  cache: KeyValueCache(",
        "    length: 3",
        "    key: [1, 2, 3, 4] float32, 0",
        "    value: [1, 2, 3, 4] float32, 0",
        "  )",
        ")",
    ]
