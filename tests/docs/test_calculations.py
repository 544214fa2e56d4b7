"""The pages of docs/calculations: every number of the classics, and that the pages say what the code gives."""

import importlib.util
import math
import re
from functools import cache
from pathlib import Path

import pytest
import torch

import regard
from regard.explanations.layers import decoder_output

DOCS = Path(__file__).parents[2] / "docs"


def load():
    specification = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


make = load()


@cache
def run(name: str):
    return make.Run(getattr(make, name))


def values(name: str, step: str) -> torch.Tensor:
    return torch.tensor(run(name).step(step)["values"], dtype=torch.float64)


def near(actual: torch.Tensor, expected, digits: int = 4):
    torch.testing.assert_close(
        actual, torch.tensor(expected, dtype=actual.dtype), rtol=0, atol=0.5 * 10**-digits + 1e-12
    )


def test_one_state_and_one_annotation():
    assert values("ONE_PAIR", "scores").tolist() == [[927]]
    assert "5·3 + 1·12 + 20·45 = 927" in run("ONE_PAIR").arithmetic


def test_one_state_and_four_annotations():
    assert values("ONE_STATE", "scores").tolist() == [[927, 397, 148, 929]]
    near(values("ONE_STATE", "weights"), [[0.1192, 0, 0, 0.8808]])
    near(values("ONE_STATE", "output"), [[3.8808, 4.0728, 45.2642]])
    near(values("ONE_STATE", "state and context"), [[5, 1, 20, 3.8808, 4.0728, 45.2642]])


def test_the_decoder_output_is_the_tanh_layer():
    weight = values("ONE_STATE", "W_decoder")
    state, context = values("ONE_STATE", "query"), values("ONE_STATE", "output")
    first = math.tanh(0.02 * 5 - 0.01 * 1 + 0.03 * 20 + 0.01 * 3.88079708 + 0.02 * 4.07282630 - 0.01 * 45.26423912)
    assert values("ONE_STATE", "decoder output")[0, 0].item() == pytest.approx(first, abs=1e-6)
    near(values("ONE_STATE", "decoder output"), [[0.3431, 0.5345]])
    torch.testing.assert_close(values("ONE_STATE", "decoder output"), decoder_output(state, context, weight))


def test_the_same_in_float32():
    state = torch.tensor([[5.0, 1, 20]])
    annotations = torch.tensor([[3, 12, 45], [59, 2, 5], [1, 43, 5], [4, 3, 45.3]])
    steps = regard.explain(state, annotations, annotations, score="dot")
    assert steps.scores.tolist() == [[927, 397, 148, 929]]
    near(steps.output.double(), [[3.8808, 4.0728, 45.2642]])


def test_three_inputs():
    assert values("THREE_INPUTS", "key").tolist() == [[0, 1, 1], [4, 4, 0], [2, 3, 1]]
    assert values("THREE_INPUTS", "query").tolist() == [[1, 0, 2], [2, 2, 2], [2, 1, 3]]
    assert values("THREE_INPUTS", "value").tolist() == [[1, 2, 3], [2, 8, 0], [2, 6, 3]]
    assert values("THREE_INPUTS", "scores").tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    assert "scaled" not in [step["name"] for step in run("THREE_INPUTS").steps]
    near(values("THREE_INPUTS", "weights"), [[0.0634, 0.4683, 0.4683], [0.0, 0.9820, 0.0180], [0.0003, 0.8805, 0.1192]])
    near(
        values("THREE_INPUTS", "output"),
        [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]],
    )


def test_weighted_values_are_three_vectors_for_each_of_three_queries():
    weighted = values("THREE_INPUTS", "weighted values").unflatten(0, (3, 3))
    assert weighted.shape == (3, 3, 3)
    torch.testing.assert_close(weighted.sum(1), values("THREE_INPUTS", "output"))
    near(weighted[0], [[0.0634, 0.1268, 0.1901], [0.9366, 3.7465, 0], [0.9366, 2.8099, 1.4049]])


def test_this_is_book():
    shapes = {step["name"]: [len(step["rows"]), len(step["columns"])] for step in run("SENTENCE").steps}
    assert shapes == {
        "input": [3, 5], "W_query": [5, 3], "W_key": [5, 3], "W_value": [5, 3], "query": [3, 3], "key": [3, 3],
        "value": [3, 3], "scores": [3, 3], "scaled": [3, 3], "weights": [3, 3], "weighted values": [9, 3],
        "output": [3, 3],
    }  # fmt: skip
    assert run("SENTENCE").step("scores")["columns"] == ["This", "is", "book"]
    near(values("SENTENCE", "input")[0], [1.54, -0.29, -2.18, 0.57, -1.08], 9)
    near(values("SENTENCE", "weights"), [[0.2320, 0.4527, 0.3153], [0.4092, 0.2659, 0.3250], [0.2820, 0.3790, 0.3390]])
    near(values("SENTENCE", "output")[0], [0.5906, -0.7531, -0.5543])


def test_this_is_book_follows_from_its_weights():
    query, key, value = (values("SENTENCE", "input") @ values("SENTENCE", f"W_{n}") for n in ("query", "key", "value"))
    torch.testing.assert_close(values("SENTENCE", "query"), query)
    torch.testing.assert_close(values("SENTENCE", "scaled"), query @ key.T / 3**0.5)
    torch.testing.assert_close(values("SENTENCE", "output"), (query @ key.T / 3**0.5).softmax(-1) @ value)


def test_eight_heads_are_concatenated_and_projected():
    steps = run("EIGHT_HEADS").steps
    outputs = [torch.tensor(step["values"], dtype=torch.float64) for step in steps if step["name"] == "output"]
    assert [tuple(output.shape) for output in outputs] == [(3, 64)] * 8
    joined = values("EIGHT_HEADS", "concatenated")
    assert joined.shape == (3, 512)
    torch.testing.assert_close(joined, torch.cat(outputs, dim=1))
    torch.testing.assert_close(values("EIGHT_HEADS", "projected"), joined @ values("EIGHT_HEADS", "W_output"))
    assert values("EIGHT_HEADS", "projected").shape == (3, 512)
    near(values("EIGHT_HEADS", "weights")[0], [0.5370, 0.3013, 0.1617])

    inputs = [values("EIGHT_HEADS", "input") @ values("EIGHT_HEADS", f"W_{n}") for n in ("query", "key", "value")]
    heads = [tensor.unflatten(1, (8, 64)).transpose(0, 1) for tensor in inputs]
    torch.testing.assert_close(joined, regard.attend(*heads).transpose(0, 1).flatten(1))


@pytest.mark.parametrize(("name", "length", "dim"), [("POSITIONS", 50, 128), ("FEW_POSITIONS", 6, 8)])
def test_positions(name, length, dim):
    table = values(name, "positions")
    assert table.shape == (length, dim)
    for position in range(length):
        for feature in range(dim):
            angle = position / 10000 ** (feature // 2 * 2 / dim)
            expected = math.cos(angle) if feature % 2 else math.sin(angle)
            assert table[position, feature].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", make.PAGES)
def test_the_page_says_what_the_code_gives(name):
    assert (DOCS / "calculations" / name).read_text(encoding="utf-8") == make.PAGES[name]()


def test_every_picture_of_a_page_exists_and_is_small():
    text = "".join((DOCS / "calculations" / page).read_text(encoding="utf-8") for page in make.PAGES)
    shown = set(re.findall(r"\(\.\./pictures/(.*?)\)", text))
    assert shown == set(make.PICTURES)
    for name in shown:
        data = (DOCS / "pictures" / name).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) < 200_000
