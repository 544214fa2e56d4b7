"""On phones: nothing is cut or pushed aside, and a tap points before it acts; the scale follows the picture."""

import itertools

import numpy as np
import pytest

import viewer_documents as documents
from regard.records import AttentionRecord, TokenAxis
from regard.viewer import View
from regard.viewer.view import VIEWS

CUT = """() => {
  const root = document.getElementById('viewer').shadowRoot;
  const texts = [...root.querySelectorAll('h1, h2, p:not(.readout), .sentence, button, label, b, li, th, td')];
  const cuts = (one) => getComputedStyle(one).overflowX !== 'visible' && one.scrollWidth > one.clientWidth + 1;
  return texts.filter((one) => one.offsetParent && cuts(one)).map((one) => one.textContent);
}"""
"""The texts that are cut at the side."""


def box(shown, name):
    return shown.page.locator(name).bounding_box()


def header_lines(shown):
    """How many lines the header has: the different heights of its parts that are shown."""
    middles = sorted(part["y"] + part["height"] / 2 for part in shown.boxes("header > *"))
    return 1 + sum(next - one > 12 for one, next in itertools.pairwise(middles))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [320, 400])
def test_every_view_fits_a_phone(show, width, language):
    document = documents.everything()
    shown = show(View(document, language=language), size=(width, 860), device_scale_factor=2, has_touch=True)
    for view in VIEWS:
        shown.show(view)
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert shown.page.evaluate("document.getElementById('viewer').scrollWidth") <= width, view
        assert shown.page.evaluate(CUT) == [], view
        assert header_lines(shown) <= 2 + bool(document.texts)
        controls = shown.boxes(".bar button, .bar select, .what, .more, [role=tab]")
        assert min(control["height"] for control in controls) >= (24 if "heads" in view else 27), view


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_entry_of_the_menu_wraps_on_a_narrow_phone(show, language):
    shown = show(View(documents.causal()[0], language=language), size=(320, 700))
    shown.page.locator(".more").click()
    buttons = shown.page.locator(".menu button").all()
    assert len(buttons) >= 7
    for button in buttons:
        assert button.bounding_box()["height"] <= 36, button.text_content()
        assert button.evaluate("(one) => one.scrollWidth <= one.clientWidth")


@pytest.mark.parametrize(("width", "height"), [(400, 860), (900, 600), (640, 640), (1920, 1080)])
def test_the_scale_follows_the_picture_and_nothing_scrolls_twice(show, width, height):
    shown = show(View(documents.causal()[0]), size=(width, height))
    stage, footer = box(shown, ".stage"), box(shown, "footer")
    assert footer["y"] == pytest.approx(stage["y"] + stage["height"], abs=1)
    bars = shown.page.evaluate(
        """() => {
          const host = document.getElementById('viewer');
          const scroll = host.shadowRoot.querySelector('.scroll');
          return [host.scrollHeight - host.clientHeight, scroll.scrollHeight - scroll.clientHeight];
        }"""
    )
    assert 0 in bars
    assert header_lines(shown) == (3 if width < 480 else 1)  # the text has its own line on a phone


def test_a_first_tap_points_and_a_second_one_acts(show):
    shown = show(View(documents.causal()[0], view="grid"), size=(400, 860), has_touch=True)
    place = shown.middle({"row": 0, "column": 2})
    shown.page.touchscreen.tap(*place)
    shown.settle()
    assert shown.call("state")["view"] == "grid"
    assert shown.page.locator(".sentence").text_content().startswith("Layer 0, head 2")
    shown.page.touchscreen.tap(*place)
    shown.settle()
    assert [shown.call("state")[name] for name in ("view", "head")] == ["pattern", 2]
    place = shown.middle({"row": 2, "column": 1})
    shown.page.touchscreen.tap(*place)
    shown.settle()
    assert shown.call("state")["locked"] == []
    assert all(word in shown.page.locator(".sentence").text_content() for word in ("noise", "unwanted"))
    shown.page.touchscreen.tap(*place)
    shown.settle()
    assert shown.call("state")["locked"] == [2]


def test_the_sentence_only_grows_while_somebody_points(show):
    weights = np.full((2, 5, 5), 0.2, np.float32)
    weights[:, 4] = [0.92, 0.02, 0.02, 0.02, 0.02]
    axis = TokenAxis(("dog", "far", "extraordinarily" * 3, "cat", "sat"))
    shown = show(View(AttentionRecord("layer", 0, "self", axis, axis, weights)), size=(700, 700))
    heights = []
    for row, column in ((0, 0), (1, 1), (2, 2), (3, 0)):
        shown.hover(row=row, column=column)
        shown.settle()
        heights.append(box(shown, ".told")["height"])
    assert heights == sorted(heights)


def drawn_texts(shown):
    """The texts that the next picture on the screen has."""
    return shown.page.evaluate(
        """async () => {
          const canvas = document.getElementById('viewer').shadowRoot.querySelector('canvas');
          const context = canvas.getContext('2d');
          const texts = [];
          context.fillText = (text) => texts.push(text);
          document.getElementById('viewer').regardView.point({ row: 0, column: 0 });
          await new Promise((done) => setTimeout(done, 150));
          return texts;
        }"""
    )


def test_a_narrow_grid_says_how_many_more_there_are(show):
    for width, more in ((400, True), (1400, False)):
        shown = show(View(documents.causal(16)[0], view="grid"), size=(width, 860))
        assert any(text.endswith("more \u2192") for text in drawn_texts(shown)) == more
