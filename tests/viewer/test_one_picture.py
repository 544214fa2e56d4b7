"""One picture style: the export of the browser's menu is the picture that Python saves, and nothing in it touches."""

import itertools
import xml.etree.ElementTree as ET
from collections import Counter

import numpy as np
import pytest
from matplotlib.text import Text

import viewer_documents as documents
from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer.view import View

SVG = "{http://www.w3.org/2000/svg}"
MARKS = str.maketrans({"\u2068": "", "\u2069": "", "\u200e": "", "\xa0": " ", "\u2003": " "})
WORDS = ["The", "animal", "didn't", "cross", "the", "street", "(", "as", "it", "was", "too", "tired", ")", ".", "It"]


def document(count, words=WORDS, layers=2, heads=3):
    axis = TokenAxis(tuple(itertools.islice(itertools.cycle(words), count)))
    records = [
        AttentionRecord(
            f"layers.{layer}", layer, "self", axis, axis,
            documents.attention(heads, count, count, sharpness=3.0, seed=layer).float().numpy(),
        )
        for layer in range(layers)
    ]  # fmt: skip
    return Document("a model", tuple(records))


def exported(node, x=0.0, y=0.0):
    """The texts of an SVG file of the browser with their places."""
    for one in node:
        place = one.get("transform", "") if one.tag == f"{SVG}g" else ""
        dx, dy = map(float, place[10:-1].split()) if place.startswith("translate(") else (0.0, 0.0)
        if one.tag == f"{SVG}text":
            yield one.text or "", x + float(one.get("x")), y + float(one.get("y"))
        yield from exported(one, x + dx, y + dy)


def saved(figure):
    """The same of a picture of Python."""
    figure.canvas.draw()
    height = figure.bbox.height
    for text in figure.findobj(Text):
        box = text.get_window_extent()
        if text.get_text() and text.get_visible() and text.get_text() != " ":
            for number, line in enumerate(text.get_text().split("\n")):
                yield line, box.x0, height - box.y1 + number * 10


def counted(texts):
    return Counter(" ".join(text.translate(MARKS) for text, *_ in texts).split())


def two_texts():
    sides = TokenAxis(("le", "chat", "noir", ".", "</s>"), (False,) * 4 + (True,)), TokenAxis(("the", "cat", "sat"))
    weights = documents.attention(2, 5, 3, sharpness=3.0, seed=3).float().numpy()
    return Document("a model", (AttentionRecord("x", 0, "cross", *sides, weights),))


MARKED = ["[CLS]", "The", "animal", "was", "too", "tired", ".", "[SEP]", "it"]

DRAWN = {
    "few": lambda: document(4),
    "some": lambda: document(13),
    "many": lambda: document(40, layers=1),
    "special": lambda: document(9, MARKED, layers=1),
    "two texts": two_texts,
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        *[(name, drawn) for name in ("pattern", "words", "lines", "difference", "grid") for drawn in ("few", "some")],
        *[("difference", "many"), ("words", "special"), ("words", "two texts")],
    ],
)
def test_the_export_of_the_menu_and_the_saved_picture_say_the_same(show, need_system_fonts, name, drawn, language):
    need_system_fonts("中" if language == "zh" else "")
    view = View(DRAWN[drawn](), view=name, language=language)
    shown = show(view)
    browser, python = list(exported(ET.fromstring(shown.call("svg")))), list(saved(view.figure()))
    assert counted(browser) == counted(python)
    if language == "zh" or name == "grid" or drawn not in ("few", "some"):
        return
    orders = []
    for texts in (browser, python):
        places = {}
        for text, x, y in texts:
            places.setdefault(text.translate(MARKS), (x, y))
        scale = "difference of weights" if name == "difference" else "attention weight"
        parts = [next((t for t in places if t.startswith("a model")), ""), WORDS[1], scale]
        bars = [t for t in places if t.endswith("looks at")]
        assert len(bars) == (name in ("pattern", "difference"))
        right = max(x for text, x, _ in texts if text == WORDS[3 if drawn == "few" else 12])
        orders.append((sorted(parts, key=lambda part: places[part][1]), [places[one][0] > right for one in bars]))
    assert orders[0] == orders[1]


LETTERS = {
    "words": WORDS,
    "long": ["internationalization", "Donaudampfschifffahrt", "antidisestablishmentarianism", "a"],
    "wide": ["ＷＷＷＷ", "MMMMMMMM", "@@@@", "%%%%"],
    "chinese": ["因为", "动物", "太累了", "没有", "穿过", "街道", "。"],
}


@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("count", [3, 5, 14, 40])
@pytest.mark.filterwarnings("ignore::regard.pictures.MissingGlyphWarning")
def test_no_text_of_a_saved_picture_touches_another_or_the_frame(letters, count):
    drawn = document(count, LETTERS[letters], layers=1)
    language = "zh" if letters == "chinese" else "en"
    for name in ("pattern", "difference", "words", "lines"):
        figure = View(drawn, view=name, language=language).figure()
        figure.canvas.draw()
        texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        boxes = np.array([text.get_window_extent().extents for text in texts])
        x0, y0, x1, y1 = boxes.T
        assert x0.min() >= 0
        assert y0.min() >= 0
        assert x1.max() <= figure.bbox.x1
        assert y1.max() <= figure.bbox.y1
        across = np.minimum.outer(x1, x1) - np.maximum.outer(x0, x0)
        down = np.minimum.outer(y1, y1) - np.maximum.outer(y0, y0)
        one, other = np.argwhere(np.triu((across > 0.5) & (down > 2), 1))[:1].T
        assert not len(one), (name, texts[one[0]].get_text(), texts[other[0]].get_text())


def test_marks_that_the_model_adds_are_small_and_grey_in_saved_words():
    figure = View(document(9, MARKED, layers=1), view="words", language="en").figure()
    sizes = {text.get_text(): text.get_fontsize() for text in figure.texts if text.get_text() in MARKED}
    assert sizes["[CLS]"] == sizes["[SEP]"] < sizes["The"] == sizes["tired"]
