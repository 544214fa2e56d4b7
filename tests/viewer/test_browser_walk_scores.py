"""The walk tells each score by its mechanism, and what serves as key and value once."""

import re

import numpy as np
import pytest
import torch

import regard
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


def softmax_of_many(language):
    """Twelve tokens whose queries have 32 numbers, so that tables show few of their rows."""
    vectors = torch.randn(3, 1, 1, 12, 32, generator=torch.Generator().manual_seed(4))
    return View(regard.explain(*vectors), list("abcdefghijkl"), view="walk", language=language)


def projected(language):
    """Four tokens of 9 numbers, whose queries, keys and values open into input × W."""
    text, *weights = (
        torch.randn(*shape, generator=torch.Generator().manual_seed(5)) for shape in [(4, 9)] + [(9, 3)] * 3
    )
    one = regard.explain(text, **dict(zip(("w_query", "w_key", "w_value"), weights, strict=True)))
    return View(one, list("abcd"), view="walk", language=language)


def sparse(language):
    vectors = torch.randn(3, 1, 1, 12, 4, generator=torch.Generator().manual_seed(6))
    return View(regard.explain(*vectors, normalizer="sparsemax"), list("abcdefghijkl"), view="walk", language=language)


def printed(value):
    """A number as the walk prints it."""
    size, sign = abs(value), "−" if value < 0 else ""
    if size == 0:
        return "0"
    if size < 0.001:
        digits, power = f"{size:.3e}".split("e")
        return f"{sign}{digits}e−{abs(int(power))}"
    digits = next((4 - place for place, most in enumerate((0.99995, 9.9995, 99.995, 999.95)) if size < most), 0)
    return f"{sign}{size:.{digits}f}"


def number(text):
    return float(text.replace("−", "-")) if text else None


def tables(shown, id):
    """The head, the rows and the foot of each table of a station, and what is said below it."""
    return (
        shown.station(id)
        .locator(".sum")
        .evaluate_all(
            """all => all.map((one) => {
          const texts = (line) => [...line.querySelectorAll('th, td:not(.share)')].map((cell) => cell.textContent);
          const few = one.querySelector('.folding');
          return { head: texts(one.querySelector('thead tr')), said: few?.firstChild.textContent ?? '',
            rows: [...one.querySelectorAll('tbody tr:not(.rest)')].map(texts),
            rest: [...one.querySelectorAll('tr.rest')].map(texts),
            foot: [...one.querySelectorAll('tfoot tr')].map(texts) };
        })"""
        )
    )


MAKES = {
    "score": {2: lambda row, *_: row[0] * row[1]},
    "vectors": {2: lambda row, *_: row[0] * row[1]},
    "output": {2: lambda row, *_: row[0] * row[1]},
    "scale": {1: lambda row, foot, dim: row[0] / dim**0.5},
    "weights": {1: lambda row, *_: np.exp(row[0]), 2: lambda row, foot, _: row[1] / foot[1]},
}
"""What makes a number of a row, from those before it, the row of sums and the dimension, by station and column."""


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("make", "dim"), [(softmax_of_many, 32), (projected, 3), (sparse, 4)])
def test_tables_come_out_with_their_printed_digits_and_say_what_they_leave_out(show, make, dim, language):
    """Or "≈" stands at the number, or at the head of the column; of few numbers it is said why these."""
    shown = show(make(language), size=(1300, 900))
    checked = signs = 0
    for row, column in ((3, 2), (0, 0), (1, 3)):
        shown.call("show", "walk", {"kept": {"row": row, "column": column}})
        for id in shown.page.locator(".strip button").evaluate_all("all => all.map((one) => one.dataset.goes)"):
            shown.station(id)
            if id in ("vectors", "output") and (cells := shown.station(id).locator("button.cell")).count():
                cells.first.click()
                shown.settle()
            folded = tables(shown, id)
            exported = shown.words
            sums = [
                text for table in folded for line in table["foot"] for text in line if id not in ("vectors", "output")
            ]
            assert not [text for text in sums if text not in exported], id
            for table in folded:
                values = [[number(text) for text in line[1:]] for line in table["rows"]]
                foot = [number(text.replace("≈\u2009", "")) for line in table["foot"] for text in line[1:]]
                for place, text in enumerate(one for line in table["foot"] for one in line[1:]):
                    if not text:
                        continue
                    added = [line[place] for line in values if line[place] is not None]
                    added += [number(line[1 + place]) for line in table["rest"]]
                    assert (printed(sum(added)) == text) == ("≈" not in text), (id, table)
                    checked, signs = checked + 1, signs + ("≈" in text)
                for place, makes in MAKES.get(id, {}).items():
                    if place >= len(table["head"]) - 1 or (id == "weights" and make is sparse):
                        continue
                    rough = any(printed(makes(line, foot, dim)) != printed(line[place]) for line in values)
                    assert rough == ("≈" in table["head"][1 + place]), (id, table)
                    checked, signs = checked + 1, signs + rough
                if not table["rest"]:
                    assert not table["said"]
                    continue
                count = [int(one) for one in re.findall(r"\d+", table["said"])]
                extra = int("“" in table["said"])  # the key of the pair is named besides
                assert sorted(count) == sorted(
                    [len(values) - extra, len(values) + int(re.search(r"\d+", table["rest"][0][0])[0])]
                )
    assert checked > 12
    assert signs > 0
