"""Weights times the length of values, and contributions to a logit: the viewer shows the readings of `regard.watch`."""

import re

import numpy as np
import pytest
import torch

import regard
import viewer_documents as documents
from regard import watching
from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.records import AttentionRecord, TokenAxis
from regard.viewer import View


class Reader(torch.nn.Module):
    """Self-attention whose output is unembedded."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, num_heads=2, bias=False, batch_first=True)
        self.unembedding = torch.nn.Linear(16, 30, bias=False)

    def get_output_embeddings(self):
        return self.unembedding

    def forward(self, x):
        return self.unembedding(self.attention(x, x, x)[0])


@pytest.fixture(scope="module")
def watched():
    """A document with both measures, and float64 products of the layer's own projections."""
    torch.manual_seed(3)
    model, inputs = Reader(), torch.randn(1, 5, 16)
    with regard.watch(model, read=regard.Readings(weights=True), norms=True, outputs=True) as seen:
        logits = model(inputs)
    weights = seen.calls[0].weights[0].double()
    value = (inputs[0] @ model.attention.in_proj_weight[32:].T).double().unflatten(-1, (2, 8))  # [keys, heads, 8]
    output = model.attention.out_proj.weight.double().unflatten(1, (2, 8))  # [features, heads, 8]
    moved = torch.einsum("hqk,khd,ohd->hqko", weights, value, output).detach()
    contributions = moved @ model.unembedding.weight[7].double().detach()
    assert torch.allclose(contributions.sum((0, 2)), logits[0, :, 7].double(), atol=1e-5)
    return seen.document(list("abcde"), logit=7), {"norms": moved.norm(dim=-1), "contributions": contributions}


@pytest.mark.parametrize("measure", ["norms", "contributions"])
@pytest.mark.parametrize("view", ["pattern", "lines", "words"])
def test_every_view_shows_the_readings(show, numbers, watched, view, measure):
    document, expected = watched
    shown = show(View(document, view=view, head=1))
    shown.page.get_by_label("Shows").select_option(measure)
    shown.settle()
    table = expected[measure][1]
    readout = shown.hover(**({"row": 2, "column": 3} if view == "pattern" else {"side": "query", "row": 2}))
    if view == "pattern":
        assert numbers(readout)[0] == pytest.approx(table[2, 3].item(), abs=6e-5)
    else:
        best = int(table[2].abs().argmax())
        listed = re.search(r"“\u2068(\w)\u2069” (−?[\d.]+)", readout.split(" looks ")[1])
        assert listed[1] == "abcde"[best]
        assert numbers(listed[2])[0] == pytest.approx(table[2, best].item(), abs=6e-5)
    name = {"norms": "length of the value", "contributions": "contribution to the logit"}[measure]
    assert name in shown.call("svg")


def test_signs_have_two_colours_and_zero_is_in_the_middle(show, watched):
    document, expected = watched
    shown = show(View(document, view="pattern", head=0))
    shown.show("pattern", measure="contributions")
    shown.page.mouse.move(2, 2)
    shown.settle()
    table = expected["contributions"][0]
    ends = [divmod(int(place), 5) for place in (table.argmax(), table.argmin(), table.abs().argmin())]
    colors = []
    for row, column in ends:
        box = shown.call("locate", {"row": row, "column": column})
        colors.append(shown.pixel(box["x"] + 5, box["y"] + 5))
    positive, negative, zero = (np.array(color, float) for color in colors)
    assert positive[2] > positive[0]
    assert negative[0] > negative[2]
    assert zero.min() > 215
    ticks = re.findall(r'<text x="[\d.]+" y="32"[^>]*>([^<]*)</text>', shown.call("svg"))
    assert ticks[1] == "0"
    assert ticks[0].replace("−", "") == ticks[2].replace("+", "")
    assert float(ticks[2]) == pytest.approx(table.abs().max().item(), rel=6e-3)


def test_records_without_measures_offer_no_choice_and_wrong_ones_are_refused(show):
    record, _ = documents.alignment()
    assert show(View(record)).page.get_by_label("Shows").count() == 0
    axis = TokenAxis(("a", "b"))
    for measures, error in (
        ({"length": np.ones((1, 2))}, UnknownNameError),
        ({"norms": np.ones(2)}, ShapeError),
        ({"norms": -np.ones((1, 2))}, ArgumentError),
        ({"contributions": np.full((1, 2, 2), np.nan)}, ArgumentError),
    ):
        with pytest.raises(error, match="measure"):
            AttentionRecord("x", 0, "self", axis, axis, np.full((1, 2, 2), 0.5), measures=measures)
    with pytest.raises(ArgumentError, match="outputs=True"):
        watching.value_logits(Reader(), regard.watching.AttentionCall("x", 0, "self", "y", *[1] * 7, (0,)), 1)
