"""The list of all keys, by "?" and from the menu: of the views that the document has, in the viewer's language."""

import re

import pytest

import viewer_documents as documents
from regard.viewer import View

FOCUSED = "document.getElementById('viewer').shadowRoot.activeElement.localName"


@pytest.mark.parametrize(("language", "title"), [("en", "Keys"), ("zh", "按键")])
def test_a_question_mark_lists_all_keys_and_escape_gives_the_focus_back(show, language, title):
    shown = show(View(documents.everything(), language=language))
    shown.page.locator("canvas").focus()
    shown.press("Enter")
    locked = shown.call("state")["locked"]
    assert locked
    shown.press("?")
    listed = shown.page.get_by_role("dialog", name=title)
    assert {title, *listed.locator("h3").all_text_contents()} >= (
        {"Keys", "Walk", "Sound", "In the picture"} if language == "en" else {"按键", "逐步计算", "声音", "在图中"}
    )
    if language == "zh":
        assert not [text for text in listed.locator("dd, h3").all_text_contents() if re.search("[A-Za-z]{3,}", text)]
    box = listed.bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 800
    shown.press("Escape")
    assert shown.page.locator("dialog").count() == 0
    assert shown.page.evaluate(FOCUSED) == "canvas"
    assert shown.call("state")["locked"] == locked


def test_the_menu_lists_the_keys_of_the_views_that_there_are(show):
    shown = show(View(documents.causal()[0], language="en"), size=(320, 700))
    shown.menu().get_by_role("button", name="All keys (?)").click()
    assert "Sound" not in shown.page.get_by_role("dialog").locator("h3").all_text_contents()
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shown.page.get_by_role("dialog").get_by_role("button", name="Close").click()
    assert shown.page.evaluate(FOCUSED) == "button"
