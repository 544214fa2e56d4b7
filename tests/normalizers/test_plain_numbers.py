"""The normalizers and `explain` take lists, NumPy arrays and integers."""

import numpy as np
import pytest
import torch

import regard
from regard import normalizers
from regard.errors import ArgumentError, KindError, ShapeError

ROW = [1.0, 2.0, 1.5]
NORMALIZERS = {
    "softmax": normalizers.softmax,
    "softmax_with_sink": normalizers.softmax_with_sink(0.0),
    "sparsemax": normalizers.sparsemax,
    "entmax15": normalizers.entmax15,
    "sigmoid": normalizers.sigmoid,
    "hard": normalizers.hard("argmax"),
    "local_gaussian": normalizers.local_gaussian("softmax", torch.tensor(1.0), 1.0),
    "custom": normalizers.as_normalizer(lambda scores: scores.relu()),
}
FORMS = {
    "list": (ROW, torch.float32),
    "float32": (np.array(ROW, np.float32), torch.float32),
    "float64": (np.array(ROW), torch.float64),
    "reversed": (np.array(ROW[::-1], np.float32)[::-1], torch.float32),
    "integers": ([1, 2, 3], torch.float32),
    "integer array": (np.array([1, 2, 3]), torch.float32),
    "integer tensor": (torch.tensor([1, 2, 3]), torch.float32),
    "tensors": ([torch.tensor(1.0), torch.tensor(2.0)], torch.float32),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NORMALIZERS)
def test_a_normalizer_takes_plain_numbers(name, form):
    value, dtype = FORMS[form]
    weights = NORMALIZERS[name](value)
    expected = NORMALIZERS[name](torch.tensor([float(each) for each in value], dtype=dtype))
    assert weights.dtype == dtype
    assert torch.equal(weights, expected)


def test_a_list_of_tensors_keeps_their_gradients():
    score = torch.tensor(1.0, requires_grad=True)
    normalizers.softmax([score, 2.0])[0].backward()
    assert score.grad is not None


@pytest.mark.parametrize(
    ("value", "error"),
    [("text", KindError), (None, KindError), ([[1.0], [1.0, 2.0]], ShapeError), (["a"], ArgumentError),
     ([torch.ones(2), torch.ones(3)], ShapeError)],
    ids=["text", "None", "rows", "strings", "tensors"],
)  # fmt: skip
def test_values_without_numbers_are_errors(value, error):
    with pytest.raises(error, match="scores"):
        normalizers.sparsemax(value)


@pytest.mark.parametrize("convert", [list, np.array, np.float32, lambda rows: torch.tensor(rows).long()],
                         ids=["lists", "float64", "float32", "integers"])  # fmt: skip
def test_explain_takes_plain_numbers(convert):
    rows = [[1.0, 2.0], [3.0, 4.0]]
    explained = regard.explain(convert(rows[:1]), convert(rows), convert(rows))
    dtype = explained.output.dtype
    query, key = (torch.tensor(each, dtype=dtype) for each in (rows[:1], rows))
    assert torch.equal(explained.output, regard.explain(query, key, key).output)
