"""Several texts are a list, and each has its own views at the layer and head that are chosen."""

import numpy as np
import pytest

from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View
from regard.viewer.static_pictures import figure

TEXTS = (
    "the animal did not cross because it was too tired",
    "the animal did not cross because it was too wide",
    "a brown trophy did not fit because it was too large",
)


def record(text, layer=0):
    axis = TokenAxis(tuple(text.split()))
    weights = np.full((2, len(axis), len(axis)), 1 / len(axis), np.float32)
    return AttentionRecord(f"{text[:9]}: layers.{layer}", layer, "self", axis, axis, weights)


@pytest.fixture
def texts(show):
    """A view of three texts, and the entries of its list."""

    def opened(**options):
        records = tuple(record(text, layer) for text in TEXTS for layer in range(2))
        shown = show(View(Document("x", records), layer=0, head=0), **options)
        return shown, shown.page.get_by_role("option").and_(shown.page.locator(".textlist > *"))

    return opened


@pytest.mark.parametrize("width", [1440, 400, 320])
def test_texts_are_a_list_and_layers_are_layers(texts, width):
    shown, entries = texts(size=(width, 800))
    words = entries.locator("bdi").all_text_contents()
    told = shown.page.locator(".sentence").text_content()
    assert all(f" % in text {number}" in told.replace("\xa0", " ") for number in (1, 2))
    asking = told.partition("”")[0].lstrip("“")
    results = entries.locator(".result").all_text_contents()
    assert [result.startswith(f"{asking} → ") for result in results[:2]] == [True, True]
    assert words == list(TEXTS) if width > 1000 else words[0].endswith("too tired") and words[1].endswith("too wide")
    assert entries.locator("b").all_text_contents() == ["tired", "wide"]  # no other text is like the third
    choices = shown.page.locator("select[aria-label=Layer] option").all_text_contents()
    assert choices == ["layer 0", "layer 1"]
    assert shown.page.locator(".facts").text_content() == "3 texts × 2 layers × 2 heads"
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("size", "words"), [((1440, 900), 0), ((900, 900), 0), ((400, 800), 0), ((1440, 900), 90)])
def test_rows_of_compared_texts_are_drawn_and_a_click_goes_to_one(show, size, words):
    documents = []
    for number, text in enumerate(TEXTS[:2]):
        axis = TokenAxis((*text.split(), *(f"more{one}" for one in range(words))))
        weights = np.full((1, len(axis), len(axis)), (0.4 + 0.2 * number) / (len(axis) - 1), np.float32)
        weights[:, :, 1] = 0.6 - 0.2 * number
        documents.append(AttentionRecord(f"text {number}", 0, "self", axis, axis, weights))
    shown = show(View(Document("x", tuple(documents))), size=size)
    shown.call("set", {"locked": [6]})
    shown.settle()
    told = (
        shown.page.locator(".sentence").text_content().replace("\u2068", "").replace("\u2069", "").replace("\xa0", " ")
    )
    assert told == "“it” gives “animal” 60 % in text 1 and 40 % in text 2."
    drawn = shown.words.replace("\xa0", " ")
    rows = drawn[drawn.index("text 1 the animal") :]
    first, second = rows[: rows.index(" text 2 ")], rows[rows.index(" text 2 ") :]
    assert first.startswith("text 1 the animal 60 % did not")
    assert second.startswith(" text 2 the animal 40 % did not")
    assert " it " in first
    assert " it " in second
    assert words == 0 or "…" in first
    if size[0] < 480 or words:
        return
    box = shown.page.locator("canvas").bounding_box()
    places = [(x, y) for y in range(20, int(box["height"]), 16) for x in (box["width"] - 100, box["width"] / 3)]
    for x, y in places:
        shown.page.mouse.move(box["x"] + x, box["y"] + y)
        shown.settle()
        if shown.readout == "Click to show text 2.":
            break
    shown.page.mouse.down()
    shown.page.mouse.up()
    shown.settle()
    assert (shown.call("state")["record"], shown.call("state")["locked"]) == (1, [6])


def test_layer_head_and_asking_word_stay_with_another_text(texts):
    shown, entries = texts()
    shown.call("set", {"record": 1, "head": 1, "locked": [6]})
    shown.settle()
    entries.nth(0).focus()
    shown.press("ArrowDown")
    state = shown.call("state")
    assert (state["record"], state["head"], state["locked"]) == (3, 1, [6])
    assert [entry.get_attribute("aria-selected") for entry in entries.all()] == ["false", "true", "false"]
    shown.page.wait_for_url("**#view=pattern&record=3&head=1*")  # browsers take few addresses a second
    shown.press("End")  # "it" is one word later in the third text
    assert shown.call("state")["locked"] == [TEXTS[2].split().index("it")]
    shown.call("undo")
    shown.settle()
    assert shown.call("state")["record"] == 3
    shown.call("set", {"locked": [TEXTS[1].split().index("wide")]})
    shown.settle()
    entries.nth(0).click()
    shown.settle()
    assert shown.call("state")["locked"] == []  # the first text has no "wide"


def test_a_difference_of_texts_compares_the_same_head(texts):
    shown, entries = texts()
    shown.show("difference", record=1, head=1)
    choices = shown.page.locator("select[aria-label=minus] option")
    named = choices.all_text_contents()
    assert named[-2:] == ["text 2 · head 1", "text 3 · head 1"]
    assert not any("text" in name for name in named[:-2])
    choices.locator("..").select_option(label="text 2 · head 1")
    shown.settle()
    assert "tired | wide" in shown.words
    assert "text 1 and text 2 give the same weights" in shown.page.locator(".sentence").text_content()
    shown.page.locator("select[aria-label=Head]").select_option(label="head 0")
    shown.settle()
    assert choices.locator("..").locator("option:checked").text_content() == "text 2 · head 0"
    entries.nth(1).click()
    shown.settle()
    assert choices.locator("..").locator("option:checked").text_content() == "text 1 · head 0"


@pytest.mark.parametrize("name", ["[PAD]", "<pad>"])
def test_padding_at_the_end_is_left_out_and_told(show, name):
    axis = TokenAxis(("[CLS]", "it", "was", "[SEP]", name, name))
    weights = np.full((2, 6, 6), 0.25, np.float32)
    weights[:, :, 4:] = 0
    visible = np.arange(6) < 4
    padded = AttentionRecord("a", 0, "self", axis, axis, weights, np.broadcast_to(visible, (6, 6)))
    for record in (padded, AttentionRecord("a", 0, "self", axis, axis, weights)):  # known by the mask, or by its name
        view = View(record)
        assert [len(record.keys), len(record.queries), record.padding] == [6, 6, 0]
        assert [(len(one.keys), one.weights.shape, one.padding) for one in view.document.records] == [(4, (2, 4, 4), 2)]
    shown = show(view)
    for drawn in ("pattern", "lines", "words", "grid"):
        shown.show(drawn)
        assert name not in shown.words
        assert "padding at the end is not drawn" in shown.words
    seen = np.broadcast_to(np.arange(6) < 5, (6, 6))  # a position that some query sees is none of padding
    (record,) = View(AttentionRecord("a", 0, "self", axis, axis, weights, seen)).document.records
    assert len(record.keys) == 5


def test_each_text_has_its_own_grid(texts):
    shown, entries = texts()
    shown.show("grid")
    assert shown.page.locator(".sentence").text_content().startswith("4 heads, each of which looks in its own way")
    entries.nth(2).click()
    shown.settle()
    shown.click(row=5, column=1)
    state = shown.call("state")
    assert (state["view"], state["record"], state["head"]) == ("pattern", 5, 1)
    assert "trophy" in shown.words
    shown.page.get_by_role("button", name="Next head").click()
    shown.settle()
    assert shown.call("state")["record"] == 4  # the heads of the same text, from its first


@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS[:1] * 2])
def test_one_text_has_no_number(show, texts):
    records = [record(text, layer) for layer, text in enumerate(texts)]
    shown = show(View(records), size=(900, 700))
    shown.show("grid")
    assert "heads, each of which looks in its own way" in shown.page.locator(".sentence").text_content()
    assert "text 1" not in shown.words


def test_pictures_number_the_texts():
    document = Document("x", tuple(record(text) for text in TEXTS))
    names = [axes.get_ylabel() for axes in figure(document, "grid").axes if axes.get_ylabel().startswith("layer")]
    assert names == [f"layer 0\ntext {number}" for number in (1, 2, 3)]
