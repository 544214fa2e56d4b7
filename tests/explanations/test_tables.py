"""What tables say of a part of a calculation: how much is left out, what it adds up to, and heads counted from 0."""

import re

import pytest
import torch

import regard


def sixteen():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (2 * torch.randn(count, 3, generator=generator, dtype=torch.float64) for count in (2, 16, 16))
    return regard.explain(query, key, value)


def test_the_weights_that_are_left_out_are_counted_and_summed():
    """In a terminal and in a notebook, the numbers of a row of weights add up to 1."""
    explanation = sixteen()
    lines = str(explanation).splitlines()
    start = next(number for number, line in enumerate(lines) if "weights [2×16]" in line)
    head = next(line for line in lines[start + 1 :] if "k0" in line)
    assert re.search(r"… \d+ more, sum", head)
    rows = [line.split()[1:] for line in lines[start + 1 : start + 8] if line.split()[:1] in (["q0"], ["q1"])]
    page = explanation._repr_html_()
    (table,) = (part for part in page.split("<table") if "weights</b>" in part and "normalized over the keys" in part)
    assert "… 9 more, sum" in table
    rows += [re.findall(r"<td[^>]*>([\d.]+)</td>", row) for row in table.split("<tr>")[2:]]
    assert len(rows) == 4
    for row in rows:
        assert sum(map(float, row)) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
def test_the_arithmetic_lists_the_largest_weights_and_sums_the_rest(normalizer):
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(1, 3, generator=generator, dtype=torch.float64), torch.randn(40, 3, generator=generator)
    explanation = regard.explain(query, key.double(), key.double(), normalizer=normalizer)
    part = explanation.arithmetic(0).partition("Weights")[2].partition("Output")[0]
    listed = {int(key): float(weight) for key, weight in re.findall(r"^  k(\d+):.* ([\d.]+)$", part, re.M)}
    count, rest = re.search(r"… (\d+) more, whose weights add up to ([\d.]+)", part).groups()
    weights = explanation.weights[0]
    assert set(listed) == set(weights.argsort(descending=True, stable=True)[:11].tolist())
    assert len(listed) + int(count) == 40
    assert sum(listed.values()) + float(rest) == pytest.approx(1, abs=1e-3)
    assert "… 29 more" in explanation.arithmetic(0).partition("Scaled")[0]


def test_heads_queries_keys_and_features_count_from_0_everywhere():
    weight = torch.ones(3, 2)
    explanation = regard.explain(torch.eye(3), w_query=weight, w_key=weight, w_value=weight, heads=2)
    shown = {
        "terminal": str(explanation),
        "notebook": explanation._repr_html_(),
        "picture": " ".join(text.get_text() for text in explanation.figure(head=None).texts),
    }
    for where, text in shown.items():
        assert set(re.findall(r"head (\d)", text)) == {"0", "1"}, where
    both = explanation.matrix_steps("weights", head=None)
    assert [step.head for step in both] == [0, 1]
    assert both[0].row_labels == ("q0", "q1", "q2")
    assert both[0].column_labels == ("k0", "k1", "k2")
    assert explanation.column_labels("output") == ["0"]
    assert "feature 0: " in sixteen().arithmetic(0)
