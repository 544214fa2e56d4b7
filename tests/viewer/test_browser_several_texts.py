"""Records of one attention on several texts are told apart by their texts, and no text is called the same."""

import numpy as np
import pytest

from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View
from regard.viewer.static_pictures import figure

TEXTS = (
    "the animal did not cross because it was too tired",
    "the animal did not cross because it was too wide",
    "a trophy did not fit because it was too large now",
)


def record(text, layer=0):
    axis = TokenAxis(tuple(text.split()))
    weights = np.full((2, len(axis), len(axis)), 1 / len(axis), np.float32)
    return AttentionRecord(f"{text[:9]}: layers.{layer}", layer, "self", axis, axis, weights)


def plain(text):
    return text.replace("\u2068", "").replace("\u2069", "")


def test_rows_and_choices_name_the_text(show):
    shown = show(View(Document("x", tuple(record(text, layer) for text in TEXTS for layer in range(2)))))
    names = ["the animal … tired", "the animal … wide", "a trophy did not …"]
    choices = shown.page.locator("select[aria-label=Layer] option").all_text_contents()
    assert [plain(choice) for choice in choices] == [
        f"layer {layer} · text {number}: {name}" for number, name in enumerate(names, 1) for layer in range(2)
    ]
    assert shown.page.locator(".facts").text_content() == "3 texts × 2 layers × 2 heads"
    shown.show("grid")
    assert plain(shown.page.locator(".sentence").text_content()).startswith("4 heads on 3 texts: ")
    written = plain(shown.words)
    assert all(f"text {number}: {name}" in written for number, name in enumerate(names, 1))
    assert "text 2: the animal … wide" in plain(shown.hover(row=3, column=1))
    shown.show("grid", order="entropy")
    assert "text 1" in plain(shown.words)


@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS[:1] * 2])
def test_one_text_has_no_number(show, texts):
    records = [record(text, layer) for layer, text in enumerate(texts)]
    shown = show(View(records), size=(900, 700))
    shown.show("grid")
    assert "read the same text" in shown.page.locator(".sentence").text_content()
    assert "text 1" not in shown.words


def test_pictures_number_the_texts():
    document = Document("x", tuple(record(text) for text in TEXTS))
    names = [axes.get_ylabel() for axes in figure(document, "grid").axes if axes.get_ylabel().startswith("layer")]
    assert names == [f"layer 0\nself\ntext {number}" for number in (1, 2, 3)]
