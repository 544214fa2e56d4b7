"""A head has the number that it has in the model, wherever it is named, also where some heads alone were recorded."""

import re
from urllib.parse import unquote

import pytest
import torch

import regard
from regard.errors import ArgumentError, ShapeError
from regard.records import AttentionRecord, TokenAxis

TOKENS = ["the", "animal", "did", "not", "cross", "the", "street", "because", "it", "was", "tired"]
CHOSEN = [1, 5, 11]


@pytest.fixture
def watched():
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([torch.nn.MultiheadAttention(24, 12, batch_first=True) for _ in range(2)])
    x = torch.randn(1, len(TOKENS), 24)
    with torch.no_grad(), regard.watch(layers, heads=CHOSEN, read="view", keep=True) as seen:
        for layer in layers:
            x = layer(x, x, x, need_weights=False)[0]
    return seen


def test_every_view_calls_recorded_heads_by_their_numbers_in_the_model(show, watched):
    shown = show(regard.View(watched, TOKENS, head=11, steps=[(1, 5)]))
    options = shown.page.locator("select[aria-label=Head] option").all_text_contents()
    assert options == [*(f"head {number}" for number in CHOSEN), "mean of all"]
    assert shown.page.locator("select[aria-label=Head] option:checked").text_content() == "head 11"
    assert "head 11" in shown.hover(row=3, column=2)
    shown.show("lines", head=None)
    assert shown.page.locator(".heads button[data-color]").all_text_contents() == [str(number) for number in CHOSEN]
    assert shown.page.locator(".heads button[data-color]").last.get_attribute("aria-label") == "head 11"
    assert "head 5" in shown.hover(side="key", column=2, head=1)
    shown.show("difference", head=0)
    assert re.search("head 1 − head (5|11)$", shown.page.locator("canvas").get_attribute("aria-label"))
    shown.show("grid")
    assert [word for word in ("head 0", "head 1", "head 5", "head 11") if word in shown.words] == [
        "head 1", "head 5", "head 11",
    ]  # fmt: skip
    assert "layer 1, head 5" in shown.hover(row=1, column=1)
    shown.show("walk", record=1, head=1)
    assert "head 5" in shown.page.locator(".walk").text_content()


def test_pictures_and_tables_call_recorded_heads_by_their_numbers_in_the_model(watched):
    from matplotlib.text import Text

    from regard.viewer.static_pictures import figure

    document = regard.View(watched, TOKENS, title="t").document
    assert "head 1, the first of 3" in document.records[0]._repr_html_()
    written = [text.get_text() for text in figure(document, "pattern", 0, 2).findobj(Text)]
    assert any("head 11" in text for text in written)
    legend = [text.get_text() for text in figure(document, "lines", 0, "mean").findobj(Text)]
    assert [text for text in legend if text.startswith("head ")] == [f"head {number}" for number in CHOSEN]
    assert [axes.get_title() for axes in figure(document, "grid").axes[:3]] == [f"head {number}" for number in CHOSEN]


def test_heads_that_were_not_recorded_are_refused_by_number(watched):
    with pytest.raises(ArgumentError, match="recorded heads 1, 5, 11"):
        regard.View(watched, TOKENS, head=0)
    with pytest.raises(ArgumentError, match=r"head one of \[1, 5, 11\]; one is \(0, 2\)"):
        regard.View(watched, TOKENS, steps=[(0, 2)])
    record = watched.records(TOKENS)[0]
    assert record.numbers_of_heads == tuple(CHOSEN)
    axis = TokenAxis(("a", "b"))
    weights = torch.full((2, 2, 2), 0.5).numpy()
    with pytest.raises(ShapeError, match="head_numbers must be 2 numbers"):
        AttentionRecord("a", 0, "self", axis, axis, weights, head_numbers=(1,))
    with pytest.raises(ArgumentError, match="must differ"):
        AttentionRecord("a", 0, "self", axis, axis, weights, head_numbers=(1, 1))


def test_a_survey_of_all_heads_names_the_recorded_ones(watched):
    from regard.watching import HeadStatistics

    heads = [
        HeadStatistics(name, layer, "self", head, {"offset -1": head / 100})
        for layer, name in enumerate(("0", "1"))
        for head in range(12)
    ]
    record = regard.View(watched, TOKENS, survey=heads).document.records[1]
    assert [values["offset -1"] for values in record.statistics] == [0.01, 0.05, 0.11]


def test_a_single_recorded_head_has_its_number(show, watched):
    record = watched.records(TOKENS)[0]
    one = AttentionRecord("a", 0, "self", record.queries, record.keys, record.weights[2:], head_numbers=(11,))
    shown = show(regard.View(one))
    assert "head 11" in shown.hover(row=0, column=0)
    assert "head 11" in shown.page.locator(".bar").text_content()


def test_the_address_says_the_number_of_a_head_and_old_ones_its_position(show, watched):
    shown = show(regard.View(watched, TOKENS, view="lines"))
    shown.show("lines", record=1, head=2)
    shown.show("difference", head=2, other={"record": 0, "head": 1})
    shown.page.wait_for_url(re.compile("view=difference"))
    assert "&head=11&" in shown.page.url
    assert '"head":5' in unquote(shown.page.url)
    seen = shown.call("state")
    for address in ("#view=difference&record=1&head=2&other={%22record%22:0,%22head%22:1}", shown.page.url):
        shown.page.goto("about:blank")
        shown.page.goto(shown.file + "#" + address.partition("#")[2])
        shown.page.wait_for_selector("canvas")
        shown.settle()
        assert {name: shown.call("state")[name] for name in ("view", "record", "head", "other")} == {
            name: seen[name] for name in ("view", "record", "head", "other")
        }
    shown.page.goto(shown.file + "#head=1&record=0&view=pattern")  # a link of before, pasted into the address
    shown.settle()
    assert "head 5" in shown.hover(row=3, column=2)
