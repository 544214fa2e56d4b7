"""The walk tells each score by its mechanism, and what serves as key and value once."""

import re

import numpy as np
import pytest

from regard.records import AttentionRecord, Document, StepsRecord, TokenAxis
from regard.viewer import View

TARGET, SOURCE = ("das", "Tier", "schlief"), ("the", "animal", "slept", ".")
RNG = np.random.default_rng(0)
STATES, ANNOTATIONS = RNG.normal(size=(3, 5)), RNG.normal(size=(4, 6))
W, U, V = RNG.normal(size=(5, 6)), RNG.normal(size=(6, 6)), RNG.normal(size=(6, 1))


def document(comparison, score, query, key, scores, **inputs):
    """A decoder's attention over annotations that are values, and keys unless the score projects them."""
    exponentials = np.exp(scores)
    weights = exponentials / exponentials.sum(-1, keepdims=True)
    matrices = {"query": query, "key": key, "value": ANNOTATIONS, "scores": scores, "weights": weights}
    steps = StepsRecord(
        "decoder.attention, head 0", matrices | {"output": weights @ ANNOTATIONS} | inputs, TARGET, SOURCE,
        score=score, comparison=comparison, layer=0, head=0, attention="decoder.attention",
    )  # fmt: skip
    axes = TokenAxis(TARGET), TokenAxis(SOURCE)
    record = AttentionRecord("decoder.attention", 0, "cross", *axes, weights[None].astype(np.float32))
    return Document("Luong", (record,), (steps,))


def general():
    query = STATES @ W
    return document(
        "General", "dot", query, ANNOTATIONS, query @ ANNOTATIONS.T, query_input=STATES, w_query=W
    )  # fmt: skip


def additive():
    query, key = STATES @ W, ANNOTATIONS @ U
    scores = (np.tanh(query[:, None] + key) @ V)[..., 0]
    return document(
        "Additive", "Additive", query, key, scores,
        query_input=STATES, w_query=W, key_input=ANNOTATIONS, w_key=U, w_score=V,
    )  # fmt: skip


def cosine():
    query = STATES @ W
    lengths = [np.linalg.norm(each, axis=-1) for each in (query, ANNOTATIONS)]
    return document("Cosine", "Cosine", query, ANNOTATIONS, query @ ANNOTATIONS.T / lengths[0][:, None] / lengths[1])


def location():
    return document("Location", "Location", STATES @ W, ANNOTATIONS, STATES @ RNG.normal(size=(5, 4)))


def perceptron():
    return document("MLP", "MLP", STATES @ W, ANNOTATIONS, RNG.normal(size=(3, 4)))


def plain(text):
    return text.replace("\u2068", "").replace("\u2069", "")


@pytest.mark.parametrize(
    ("make", "title", "says"),
    [
        (general, "General score", "Multiply the query by the score’s matrix W (5 × 6)"),
        (additive, "Additive score", "take tanh of each of the 6 sums"),
        (cosine, "Cosine", "divided by the lengths of both lists"),
        (location, "Score of the place", "what stands there is not compared"),
        (perceptron, "Score of a small network", "A small network reads query and key together"),
    ],
)
def test_a_decoder_s_state_asks_and_each_score_has_its_own_station(show, make, title, says):
    shown = show(View(make(), view="walk"), size=(1300, 900))
    told = ""
    for entry in shown.page.locator(".strip button").all():
        entry.click()
        shown.settle()
        told += plain(shown.page.locator(".walk").text_content())
    assert says in told
    assert title in told
    assert "The decoder’s state asks, where it writes" in told
    assert "which is its key and its value" in told
    assert "three lists" not in told
    assert "Dot product" not in told
    assert "feed-forward" not in told
    assert "The decoder joins this list, the context, with its state" in told


def test_the_matrix_of_a_general_score_opens_as_a_sum(show):
    shown = show(View(general(), view="walk"), size=(1300, 900))
    shown.call("show", "walk", {"kept": {"row": 1, "column": 2}, "station": "score"})
    shown.settle()
    query = (STATES @ W)[1]
    number = f"{query[3]:.4f}".replace("-", "−")
    button = shown.page.get_by_role("button", name=re.compile(f"W · query of .*Tier.* 3: {number}"))
    assert button.count() == 1
    button.click()
    shown.settle()
    told = plain(shown.page.locator(".walk").text_content())
    for place in range(5):
        assert (
            f"{STATES[1, place] * W[place, 3]:.{'4' if abs(STATES[1, place] * W[place, 3]) < 1 else '3'}f}".replace(
                "-", "−"
            )
            in told
        )


def test_one_text_s_own_values_that_are_keys_are_two_lists(show):
    words = ("a", "b", "c")
    x = RNG.normal(size=(3, 4))
    weights = np.full((3, 3), 1 / 3)
    matrices = {
        "query": x[::-1],
        "key": x,
        "value": x,
        "scores": x[::-1] @ x.T,
        "weights": weights,
        "output": weights @ x,
    }
    steps = StepsRecord("one", matrices, words, words, comparison="Dot")
    told = plain(show(View(Document("x", (), (steps,)), view="walk")).page.locator(".walk").text_content())
    assert "There are two lists: 4 numbers to ask with (query)" in told
    assert "decoder" not in told
