"""The first screen: its head and sentence, the cards, the even share, undo, the address, and listeners."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import viewer_documents as documents
from regard.records import AttentionRecord, TokenAxis
from regard.viewer import View


def plain(text):
    return text.replace("\u2068", "").replace("\u2069", "").replace("\u00a0", " ")


def told(shown):
    return [plain(shown.page.locator(name).text_content()) for name in (".sentence", ".shares")]


WORDS = ("a", "black", "cat", "sat", "on", "the", "mat", "because", "it", "was", "tired", "today")


def pointing(seed=3):
    """Two heads: an even one, and one of which "it" looks at "cat" with 0.7."""
    count = len(WORDS)
    weights = np.full((2, count, count), 1 / count, np.float32)
    noise = np.random.default_rng(seed).dirichlet(np.ones(count), count).astype(np.float32)
    weights[1] = 0.4 * noise + 0.6 * np.eye(count, k=-1, dtype=np.float32)
    weights[1, 0] = noise[0]
    weights[1, 8] = 0.3 / (count - 1)
    weights[1, 8, 2] = 0.7
    axis = TokenAxis(WORDS)
    return AttentionRecord("layer", 0, "self", axis, axis, weights), weights


def test_the_sentence_has_the_numbers_of_the_head_that_is_shown(show):
    record, weights = pointing()
    shown = show(View(record), size=(1440, 900))
    assert told(shown)[1] == "Each row asks where to look; its weights add up to 1."  # they stand beside
    shown.page.set_viewport_size({"width": 760, "height": 900})
    shown.settle()
    assert shown.call("state")["head"] == 1  # not the mean, and not the even head
    sentence, shares = told(shown)
    assert sentence == "“it” gives 70 % of its attention to “cat”."
    assert shares.startswith("it → cat 0.70 · ")
    assert "8 more" in shares
    assert shares.endswith("an equal share is 0.08 (1 ÷ 12 tokens)")
    for row, column in ((5, 2), (3, 2), (8, 0), (11, 10)):
        shown.hover(row=row, column=column)
        sentence, shares = told(shown)
        assert (
            sentence
            == f"“{WORDS[row]}” gives {100 * weights[1, row, column]:.0f} % of its attention to “{WORDS[column]}”."
        )
        order = np.argsort(-weights[1, row], kind="stable")
        first = re.findall(r"(\w+) (\d\.\d\d)", shares.partition("→")[2])[:4]
        assert [name for name, _ in first] == [WORDS[key] for key in order[:4]]
        assert [float(number) for _, number in first] == pytest.approx(weights[1, row, order[:4]].tolist(), abs=0.00501)
        rest = float(re.search(r"8 more ([\d.]+)", shares)[1])
        assert rest == pytest.approx(float(weights[1, row, order[4:]].sum()), abs=0.01)
    shown.page.get_by_label("Head", exact=True).select_option("mean")
    shown.settle()
    shown.hover(row=8, column=2)
    assert (
        told(shown)[0]
        == f"Mean of 2 heads: “it” gives {100 * weights[:, 8, 2].mean():.0f} % of its attention to “cat”."
    )


def test_a_masked_pair_is_said_and_uniform_counts_what_is_seen(show):
    record, _ = documents.causal()
    shown = show(View(record, head=2), size=(600, 500))  # no room for bars
    shown.call("set", {"words": False})
    shown.hover(row=1, column=4)
    assert "cannot look at" in told(shown)[0]
    shown.hover(row=1, column=0)
    assert told(shown)[1].endswith("an equal share is 0.50 (1 ÷ 2 tokens)")


def test_even_attention_looks_even_and_the_even_share_is_marked(show):
    count = len(WORDS)
    noise = np.random.default_rng(0).uniform(-0.02, 0.02, (1, count, count)).astype(np.float32)
    weights = 1 / count + (noise - noise.mean(-1, keepdims=True)) / count
    axis = TokenAxis(WORDS)
    shown = show(View(AttentionRecord("x", 0, "self", axis, axis, weights)))
    svg = shown.call("svg")
    texts = {element.text: element for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}
    ticks = re.findall(r'<text x="([\d.]+)" y="32"[^>]*>([^<]*)</text>', svg)
    assert float(ticks[-1][1]) == 0.5  # the round number above four even shares
    assert "equal share 0.08 (1 ÷ 12 tokens)" in texts
    at = float(re.search(r'd="M([\d.]+) 12L', svg.rpartition('<g transform="translate(0 ')[2])[1])
    left, right = float(ticks[0][0]), float(ticks[-1][0])
    assert (at - left) / (right - left) == pytest.approx(1 / count / 0.5, abs=0.01)
    colors = [shown.pixel(x - 6, y - 6) for x, y in (shown.middle({"row": row, "column": 3}) for row in range(count))]
    assert np.ptp(np.array(colors), axis=0).max() <= 12


def test_undo_and_redo_by_keys_and_menu(show):
    shown = show(View(documents.everything(), view="pattern"))
    start = shown.call("state")
    shown.page.get_by_role("button", name="Next head (])").click()
    shown.settle()
    shown.show("lines")
    shown.page.wait_for_url("**#view=lines**")
    changed = shown.call("state")
    shown.press("Control+z")
    assert shown.call("state")["view"] == "pattern"
    shown.page.wait_for_url("**#view=pattern**")
    shown.press("Control+z")
    assert shown.call("state") == start
    shown.press("Control+Shift+z")
    shown.menu().get_by_role("button", name="Redo (Ctrl+Shift+Z)").click()
    shown.settle()
    assert shown.call("state") == changed


def test_the_address_opens_what_was_seen(show):
    view = View(documents.everything())
    shown = show(view)
    shown.show("lines", record=1, head=3, locked=[2, 0], words=True)
    shown.page.wait_for_url("**#view=lines**")
    address, state = shown.page.url, shown.call("state")
    again = show(view)
    again.page.goto("about:blank")
    again.page.goto(address)
    again.page.wait_for_selector("canvas")
    again.settle()
    assert again.call("state") == state


def test_an_address_of_anything_harms_nothing(show):
    view = View(documents.alignment()[0])
    shown = show(view)
    place = shown.page.url.partition("#")[0]
    shown.page.goto("about:blank")
    shown.page.goto(place + "#view=%3Cimg%20src=x%3E&head=99&record=7&locked=[400]&scale=nonsense&kept=1&__proto__=2")
    shown.page.wait_for_selector("canvas")
    shown.settle()
    state = shown.call("state")
    assert (state["view"], state["record"], state["head"], state["locked"]) == ("pattern", 0, 0, [])


def test_listeners_hear_changes_and_pointing_but_not_what_they_set(show):
    shown = show(View(documents.everything(), view="pattern", layer=0))
    shown.page.evaluate(
        """() => {
          window.heard = [];
          const view = document.getElementById('viewer').regardView;
          window.stop = view.onChange((state, item) => window.heard.push([state.head, item]));
        }"""
    )
    shown.hover(row=1, column=2)
    shown.page.get_by_label("Head", exact=True).select_option("1")
    shown.settle()
    heard = shown.page.evaluate("window.heard")
    assert {"row": 1, "column": 2} in [item for _, item in heard]
    assert heard[-1][0] == 1
    shown.call("set", {"head": 0})
    shown.settle()
    assert shown.call("state")["head"] == 0
    shown.page.mouse.move(2, 2)
    shown.settle()
    count = shown.page.evaluate("window.heard.length")
    shown.call("point", {"row": 0, "column": 1})
    shown.settle()
    assert "“⁨q0⁩” → “⁨k1⁩”" in shown.readout
    assert shown.page.evaluate("window.heard.length") == count
    shown.page.evaluate("window.stop()")
    shown.show("lines")
    assert shown.page.evaluate("window.heard.length") == count


@pytest.mark.parametrize("size", [(1300, 760), (360, 760)])
def test_cards_point_at_what_they_explain_and_cover_none_of_it(show, size):
    shown = show(View(documents.everything(), view="pattern"), size=size)
    for view in ("pattern", "lines", "words", "grid"):
        shown.show(view)
        shown.page.get_by_role("button", name="What is this?").click()
        seen = set()
        for _ in range(4):
            shown.settle()
            cards, targets = (
                [[box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]] for box in shown.boxes(name)]
                for name in (".card", ".cards .target")
            )
            assert cards
            assert len(cards) == len(targets)
            for left, top, right, bottom in cards:
                assert 0 <= left <= right <= size[0]
                for x0, y0, x1, y1 in targets:
                    assert right <= x0 or x1 <= left or bottom <= y0 or y1 <= top, view
            seen.add(shown.page.evaluate("document.getElementById('viewer').shadowRoot.activeElement.textContent"))
            shown.press("ArrowRight")
        assert len(seen) >= 3, view
        shown.press("Escape")
        assert shown.page.locator(".cards").is_hidden()
        assert shown.page.evaluate("document.getElementById('viewer').shadowRoot.activeElement.className") == "what"


def test_every_word_of_the_first_screen_is_chinese_on_request(show):
    shown = show(View(pointing()[0], language="zh"))
    assert shown.page.evaluate("document.documentElement.lang") == "zh-Hans"
    assert told(shown)[0] == "“it”把 70% 的注意力给了“cat”。"
    texts = []
    for name in ("更多", "这是什么？"):
        shown.page.get_by_role("button", name=name).click()
        seen = shown.page.locator("button, option, label, .card, .sentence, .shares, .help, .facts")
        texts += seen.all_text_contents()
        shown.press("Escape")
    tokens = {*WORDS, "PNG", "SVG"}
    left = {word for text in texts for word in re.findall(r"[A-Za-z]{2,}", text)} - tokens - {"Esc", "English"}
    assert not left
