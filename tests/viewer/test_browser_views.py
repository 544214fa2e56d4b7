"""Each view's file in a browser without a network: one request, no complaint, a picture; and of any size and theme."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import viewer_documents as documents
from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View
from regard.viewer.view import VIEWS


@pytest.mark.parametrize("view", VIEWS)
def test_a_file_needs_one_request_and_shows_a_picture(show, view):
    shown = show(View(documents.everything(), view=view))
    assert len(shown.requests) == 1
    assert shown.call("state")["view"] == view
    assert shown.colors > 12
    assert shown.page.locator("[role=tab][aria-selected=true]").text_content() == {"long": "Overview"}.get(
        view, view.capitalize()
    )


def test_narrow_windows_lose_nothing(show):
    """320 pixels: the page itself never scrolls sideways, and every control is reached."""
    shown = show(View(documents.everything()), size=(320, 640))
    for view in VIEWS:
        shown.show(view)
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 320
        boxes = shown.page.locator(
            "button:not([role=tab], .strip *), select, .tabs, [aria-selected=true], .strip, .strip [aria-current]"
        ).evaluate_all("all => all.map((one) => [one.getBoundingClientRect().left, one.getBoundingClientRect().right])")
        assert all(left >= 0 and right <= 320 for left, right in boxes), view
        if view == "walk":
            shown.page.get_by_role("button", name="Map of weights").click()
            shown.settle()
        assert shown.colors > 12


def test_svg_parses_and_has_the_tokens_and_the_selection(show):
    shown = show(View(documents.everything()))
    expected = {"pattern": "q1", "lines": "q1", "words": "q1", "image": "red", "sound": "two", "walk": "is"}
    for view in VIEWS:
        shown.show(view, record=0)
        sided = view in ("lines", "words", "image")
        text = shown.hover(**({"side": "query", "row": 1} if sided else {"row": 1, "column": 1}))
        tree = ET.fromstring(shown.call("svg"))
        words = {element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")}
        if view in expected:
            assert expected[view] in words
        assert text
        assert text in tree.find("{http://www.w3.org/2000/svg}desc").text


def test_short_tokens_are_not_cut(show):
    tokens = ("mat", "WWW", "illicit", "مرحبا")
    axes = [TokenAxis(("a", token, "b")) for token in tokens]
    weights = np.full((2, 3, 3), 1 / 3, np.float32)
    records = [AttentionRecord(f"layer {layer}", layer, "self", axis, axis, weights) for layer, axis in enumerate(axes)]
    shown = show(View(Document("short", tuple(records))))

    def words():
        return [element.text for element in ET.fromstring(shown.call("svg")).iter("{http://www.w3.org/2000/svg}text")]

    for view in ("pattern", "lines"):
        for number, token in enumerate(tokens):
            shown.show(view, record=number)
            assert words().count(token) >= 2
            shown.click(side="query", row=1) if view == "lines" else shown.click(row=1, column=1)
            assert words().count(token) >= 2


def test_a_locked_row_is_in_the_svg(show):
    shown = show(View(documents.alignment()[0], view="lines"))
    before = shown.call("svg")
    shown.click(side="query", row=1)
    shown.page.mouse.move(2, 2)
    shown.settle()
    after = shown.call("svg")
    assert "locked: “⁨q1⁩”" in after
    assert "locked" not in before


def test_buttons_write_the_picture_of_what_is_on_the_screen(show, tmp_path):
    from PIL import Image

    shown = show(View(documents.alignment()[0]))
    for name, suffix in (("Save the picture as PNG", "png"), ("Save the picture as SVG", "svg")):
        with shown.page.expect_download() as waiting:
            shown.menu().get_by_role("button", name=name).click()
        place = tmp_path / f"saved.{suffix}"
        waiting.value.save_as(place)
        assert waiting.value.suggested_filename == f"attention-pattern.{suffix}"
        if suffix == "png":
            picture = np.asarray(Image.open(place).convert("RGB"))
            cells = [shown.middle({"row": row, "column": column}) for row in range(3) for column in range(5)]
            corners = np.subtract(cells, (16, 12))
            seen = np.array([shown.pixel(*corner) for corner in corners])
            assert len(np.unique(seen, axis=0)) > 5
            missing = [color for color in seen if not (np.abs(picture.astype(int) - color).max(axis=2) <= 1).any()]
            assert not missing, "each cell has its colour on paper too"
            ink = np.argwhere((picture < 250).any(axis=2))
            empty = [*ink.min(axis=0), *(picture.shape[:2] - ink.max(axis=0))]
            assert max(empty) <= 2 * 20, "the picture is cropped to what is drawn"
        else:
            tree = ET.parse(place).getroot()
            texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
            assert texts[0].startswith("decoder.cross · ")
            assert "gives" in texts[1]
            assert texts[2].startswith("Each row asks where to look; its weights add up to 1.")
            assert {"each row asks ↓", "each column is looked at →"} <= set(texts)
            assert [2 * int(tree.get(side)) for side in ("height", "width")] == list(picture.shape[:2])


def test_system_theme_and_own_theme(show):
    record = documents.alignment()[0]
    corner = (3, 200)
    light, dark = (show(View(record), color_scheme=scheme) for scheme in ("light", "dark"))
    assert min(light.pixel(*corner)) > 240
    assert max(dark.pixel(*corner)) < 40
    chosen = show(View(record, theme="dark"), color_scheme="light")
    assert max(chosen.pixel(*corner)) < 40
    chosen.menu().get_by_label("Theme").select_option("light")
    chosen.settle()
    assert min(chosen.pixel(*corner)) > 240


def test_masked_zero_and_nan_look_different(show):
    weights = np.full((1, 1, 4), 0.5, np.float32)
    weights[0, 0] = [1.0, 0.0, np.nan, 0.0]
    visible = np.array([[True, True, True, False]])
    record = AttentionRecord("x", 0, "cross", TokenAxis(("q",)), TokenAxis(tuple("abcd")), weights, visible)
    shown = show(View(record, view="pattern"))
    # Read before the mouse moves: a canvas is empty until the next frame where something changes.
    middles = [shown.middle({"row": 0, "column": column}) for column in range(4)]
    colors = [tuple(shown.pixel(x - 15, y - 15)) for x, y in middles]
    for column in range(4):
        text = shown.hover(row=0, column=column)
        shown.page.mouse.move(2, 2)
        assert [": 1.0000", ": 0 ", ": NaN", ": masked"][column] in text
    assert len(set(colors)) == 4


def test_update_show_and_two_views_on_one_page(pages):
    """Two viewers of one page keep their own states; `update` replaces the data and keeps the view."""
    import json

    from regard.viewer import module_path, payload

    record = documents.alignment()[0]
    first = payload(Document("first", (record,)))
    other = payload(Document("other", (documents.causal()[0],)))
    with pages.opened() as page:
        page.set_content('<div id="a" style="height:600px"></div><div id="b" style="height:600px"></div>')
        page.add_script_tag(
            type="module",
            content=module_path().read_text(encoding="utf-8")
            + f"\nwindow.views = ['a', 'b'].map((id) => mount(document.getElementById(id), {json.dumps(first)}));"
            + f"\nwindow.other = {json.dumps(other)};",
        )
        page.wait_for_function("window.views")
        page.evaluate("views[0].show('lines', {queries: [1]}); views[1].update(other)")
        page.wait_for_timeout(200)
        states = page.evaluate("views.map((view) => view.state())")
        assert [state["view"] for state in states] == ["lines", "pattern"]
        assert [state["locked"] for state in states] == [[1], []]
        assert page.locator("h2").all_text_contents() == ["first", "other"]
        assert page.evaluate("() => { try { views[0].show('nonsense'); } catch (error) { return error.message; } }")
        page.evaluate("views[0].destroy()")
        assert page.locator("canvas").count() == 1


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 1)])
def test_empty_and_single_axes(show, sizes):
    """No tokens at all, or one: every view opens, keys and mouse do no harm."""
    queries, keys = sizes
    rows, columns = TokenAxis(tuple("abc"[:queries])), TokenAxis(tuple("xyz"[:keys]))
    weights = np.full((2, queries, keys), 1 / max(1, keys), np.float32)
    shown = show(View(AttentionRecord("x", 0, "cross", rows, columns, weights)))
    for view in ("pattern", "lines", "grid", "words"):
        shown.show(view)
        shown.page.mouse.move(400, 500)
        shown.page.locator("canvas").focus()
        shown.press("ArrowRight", "ArrowDown", "Enter", "Escape", "+")
        assert shown.call("svg").startswith("<svg")


def test_hiding_all_tokens_leaves_a_sentence(show):
    axis = TokenAxis(("[CLS]", "[SEP]"), (True, True))
    shown = show(View(AttentionRecord("x", 0, "self", axis, axis, np.full((1, 2, 2), 0.5, np.float32))))
    shown.hover(row=1, column=1)
    shown.menu().get_by_label("Hide special tokens").check()
    shown.settle()
    assert "No tokens are left to show." in shown.call("svg")
    shown.show("lines")
    shown.show("words")
