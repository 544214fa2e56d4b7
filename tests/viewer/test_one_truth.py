"""One weight has one form: in cells, at bars, in sentences, of browser and picture, in both languages."""

import re
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from matplotlib.text import Text

import regard
from regard.pictures.numbers import cell_number, percent, short_weight
from regard.records import AttentionRecord, Document, GridAxis, TokenAxis
from regard.viewer import View
from regard.viewer.opening import Opening, opening, sentence
from regard.viewer.words import say

TOKENS = ("The", "cat", "saw", "a", "bird", "cat")
RNG = np.random.default_rng(8)
SOFT = RNG.dirichlet(np.full(6, 0.4), (2, 6))
CAUSAL = np.tril(np.ones((6, 6), np.bool_))
BAND = CAUSAL & ~np.tril(CAUSAL, -3)
EDGE = np.array([0.9996, 4e-4, 0, 0, 0, 0])

DOCUMENTS = {
    "soft": (SOFT, None),
    "alike": (np.full((2, 6, 6), 1 / 6), None),
    "halves": (np.stack([np.roll([0.125, 0.375, 0.005, 0.295, 0.1, 0.1], n) for n in range(6)])[None], None),
    "bounds": (np.stack([np.roll(EDGE, n) for n in range(6)] + [np.roll([0.99999, 1e-5, 0, 0, 0, 0], 1)] * 6)
               .reshape(2, 6, 6), None),
    "sigmoid": (1 / (1 + np.exp(-RNG.normal(size=(2, 6, 6)))), None),
    "sink": (0.985 * SOFT, None),
    "causal": (SOFT * CAUSAL / (SOFT * CAUSAL).sum(-1, keepdims=True), CAUSAL),
    "band": (SOFT * BAND / (SOFT * BAND).sum(-1, keepdims=True), BAND),
    "signed": (RNG.normal(size=(2, 6, 6)), None),
}  # fmt: skip


def plain(text):
    return re.sub("[\u2068\u2069]", "", text).replace("\xa0", " ")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_number_of_a_view_is_its_weight_in_one_form(name, language, show):
    """Cells, bars, sentences and the mark of the equal share, against the weights."""
    weights, visible = DOCUMENTS[name]
    axis = TokenAxis(TOKENS)
    document = Document("m", (AttentionRecord("x", 0, "self", axis, axis, weights, visible, signed=name == "signed"),))
    first = opening(document)
    own = weights[first.head]
    seen = np.ones((6, 6), np.bool_) if visible is None else visible
    whole = name != "signed" and bool(abs(own.sum(-1) - 1).max() < 0.005)
    view = View(document, language=language, view="pattern")
    shown = show(view, size=(1440, 900))
    drawn = [text.get_text() for text in view.figure().findobj(Text)] if language == "en" else []
    written = shown.page.locator(".told").text_content()
    said = sentence(document, first, language)
    assert plain("".join(said)) == plain(written)
    value = float(own[first.row, first.column])
    assert (percent(value, language) if whole else short_weight(value)) in said[0]
    assert whole == ({"en": "its weights add up to 1.", "zh": "其权重加起来等于 1。"}[language] in said[1])
    cells = [cell_number(float(one)) for one in own[seen]]
    row = own[first.row]
    order = sorted(np.flatnonzero(seen[first.row]), key=lambda key: -abs(row[key]))
    bars = [short_weight(float(row[key])) for key in order[:4]]
    if len(order) > 4:
        sums = whole and not any(text.startswith((">", "<")) for text in bars)
        bars += [short_weight(round(1 - sum(map(float, bars)), 4) if sums else float(row[order[4:]].sum()))]
    svg = re.findall(r"<text[^>]*>([^<]*)</text>", shown.call("svg").replace("&gt;", ">").replace("&lt;", "<"))
    for texts in (svg, drawn):
        assert not texts or not Counter(filter(None, cells)) - Counter(texts)
        assert not texts or not set(bars) - set(texts)
        even = any("equal share" in text or "均分" in text for text in texts)
        assert not texts or even == whole
    shown.show("words")
    assert plain("".join(sentence(document, first, language, "words"))) == plain(
        shown.page.locator(".told").text_content()
    )


class Sigmoid(torch.nn.Module):
    def forward(self, query, key, value):
        return regard.attend(query, key, value, normalizer="sigmoid")


def test_the_walk_gives_no_percent_where_rows_do_not_add_up(show):
    torch.manual_seed(0)
    model = Sigmoid()
    with regard.watch(model, keep=True) as watched:
        model(*(torch.randn(1, 1, 4, 8) for _ in range(3)))
    shown = show(View(watched, list("abcd"), steps=[(0, 0)], view="walk"), size=(1440, 900))
    assert "%" not in shown.words
    assert re.search(r"gives “.” the weight 0\.\d\d", plain(shown.words))
    assert "learned matrices of this head" not in shown.words


def test_two_calls_of_one_module_are_one_text():
    model = regard.nn.DifferentialAttention(16, 2)
    with regard.watch(model, keep=True) as watched:
        model(torch.randn(1, 5, 16))
    document = View(watched, list("abcde")).document
    assert len(document.records) == 2
    assert document.text_numbers is None
    names = ("one", "one", "two", "two")
    records = tuple(
        AttentionRecord(name, 0, "self", TokenAxis(tuple("ab")), TokenAxis(tuple("ab")), np.full((1, 2, 2), 0.5))
        for name in names
    )
    assert Document("m", records).text_numbers is None  # each module was called twice in one pass
    assert Document("m", records[::2] * 2).text_numbers == (0, 0, 1, 1)


def test_positions_before_the_patches_are_not_counted(show):
    row = [0.3, 0.5, *np.full(15, 0.2 / 15)]
    grid = GridAxis(4, 4, np.zeros((8, 8, 3), np.uint8), leading=1)
    record = AttentionRecord("x", 0, "cross", TokenAxis(("dog",)), grid, np.array([[row]]))
    document = Document("m", (record,))
    text = plain(sentence(document, opening(document))[0])
    assert text == "“dog” gives 50 % of its attention to 1 of 16 patches of the picture."
    shown = show(View(document))
    assert plain(shown.page.locator(".sentence").text_content()) == text


def test_a_picture_of_equal_heads_names_two_and_says_that_nothing_differs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure = View(np.full((2, 4, 4), 0.25), list("abcd"), view="difference").figure()
    told = " ".join(text.get_text().replace("\n", " ") for text in figure.findobj(Text))
    assert "Nothing differs: head 0 and head 1 give the same weights." in told
    assert "gives more" not in told


def test_a_view_opens_on_a_query_that_has_a_choice():
    weights = np.where(BAND, 1.0, 0.0) / BAND.sum(-1, keepdims=True)
    axis = TokenAxis(tuple("abcdef"))
    first = opening(Document("m", (AttentionRecord("x", 0, "self", axis, axis, weights[None], BAND),)))
    assert first.row > 0


@pytest.mark.parametrize(
    ("language", "names"), [("en", ("The 2nd “a”", "the 1st “a”")), ("zh", ("第 2 个“a”", "第 1 个“a”"))]
)
def test_a_word_that_occurs_more_than_once_says_which_one(language, names, show):
    weights = np.full((1, 5, 5), 0.05)
    weights[0, range(5), [1, 0, 0, 1, 2]] = 0.8
    view = View(weights, ["a", "b", "a", "c", "a"], language=language, view="pattern")
    first = Opening(0, 0, 2, 0)
    text, shares = (plain(one) for one in sentence(view.document, first, language, "words"))
    assert text.startswith(names[0])
    assert names[1] in text
    second = names[0].replace("The", "the")
    assert shares.startswith(f"{second} → {names[1]} 0.80 · b 0.05 · {second} 0.05 · c 0.05 · ")
    shown = show(view, size=(1440, 900))
    for view_name, item in (("pattern", {"row": 2, "column": 0}), ("words", {"side": "query", "row": 2})):
        shown.show(view_name)
        shown.hover(**item)
        assert plain(shown.page.locator(".told").text_content()).startswith(text)


def test_later_keys_of_a_causal_record_are_masked_and_count_for_no_share(show):
    axis = TokenAxis(tuple("abc"))
    weights = np.array([[[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]]])
    record = AttentionRecord("x", 0, "causal", axis, axis, weights)
    assert record.visible.tolist() == np.tri(3, dtype=bool).tolist()
    shown = show(View(record, view="pattern"), size=(1440, 900))
    assert "masked" in shown.call("svg")
    weights[0, 0] = [0.9, 0, 0.1]  # a later key that has weight is seen
    assert AttentionRecord("x", 0, "causal", axis, axis, weights).visible is None


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("is_masked", [True, False])
def test_padding_that_is_masked_is_not_said_to_be_looked_at(is_masked, language, show):
    queries, keys = TokenAxis(("[CLS]", "a", "b")), TokenAxis(("[CLS]", "a", "[PAD]", "b"))
    weights = np.array([[[0.7, 0.2, 0, 0.1]] * 3])
    visible = np.broadcast_to(~np.array([False, False, is_masked, False]), (3, 4))
    view = View(AttentionRecord("x", 0, "cross", queries, keys, weights, visible), language=language, view="pattern")
    note = say("specialNote", language, tokens="[CLS]" if is_masked else "[CLS], [PAD]")
    if language == "en":
        assert note in " ".join(text.get_text().replace("\n", " ") for text in view.figure().findobj(Text))
    assert note in plain(show(view, size=(1440, 900)).words)
