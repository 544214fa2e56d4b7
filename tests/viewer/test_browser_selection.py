"""Heads and their lines, locked tokens and their sums, and a tour by keyboard alone."""

import re

import pytest

import viewer_documents as documents
from regard.viewer import View
from regard.viewer.view import VIEWS, views_of


@pytest.mark.parametrize("forced", [None, "active"])
def test_sixteen_heads_have_sixteen_lines(show, forced):
    """Pairs of colour and dash, in ordinary and in forced colours; each with its number."""
    record, _ = documents.causal(heads=16)
    shown = show(View(record, view="lines", head="mean"), forced_colors=forced)
    toggles = shown.page.locator(".heads button[data-color]")
    pairs = toggles.evaluate_all("all => all.map((one) => `${one.dataset.color} ${one.dataset.dash}`)")
    assert len(pairs) == len(set(pairs)) == 16
    assert [text.strip() for text in toggles.all_text_contents()] == [str(head) for head in range(16)]
    shown.hover(side="query", row=5)
    line = r'C[^"]*" fill="none" stroke="([^"]+)" stroke-width="[^"]+"(?: stroke-dasharray="([^"]+)")?'
    svg = shown.call("svg")
    assert set(pairs) <= {f"{color} {dash or 'none'}" for color, dash in re.findall(line, svg)}


def test_locked_tokens_are_added_and_escape_unlocks(show):
    record, weights = documents.alignment(heads=2)
    shown = show(View(record, view="lines", head="mean"))
    shown.click(side="query", row=0)
    shown.click(side="query", row=2)
    text = shown.hover(side="key", column=3)
    expected = weights[:, [0, 2], 3].mean(0).sum().item()
    assert "sum of 2 locked queries" in text
    assert abs(float(re.search(r": ([\d.]+) \(", text)[1]) - expected) <= 0.00005
    assert f">{expected:.2f}<".replace(">0.", ">.") in shown.call("svg")
    shown.page.get_by_role("button", name="head 0").click()
    shown.settle()
    alone = weights[1, [0, 2], 3].sum().item()
    assert abs(float(re.search(r": ([\d.]+) \(", shown.hover(side="key", column=3))[1]) - alone) <= 0.00005
    assert shown.call("state")["locked"] == [0, 2]
    shown.click(side="query", row=0)
    assert shown.call("state")["locked"] == [2]
    shown.press("Escape")
    assert shown.call("state")["locked"] == []
    assert "mean over all queries" in shown.hover(side="key", column=3)


def test_one_query_is_shown_as_the_words_with_their_weights(show):
    view = View([[0.1, 0.6, 0.3]], rows=["bad"], columns=["a", "dull", "film"])
    assert show(view).call("state")["view"] == "words" == views_of(view.document)[0]


def test_the_model_opens_a_head(show):
    shown = show(View(documents.everything(), view="grid"))
    assert "layer 0, head 5 · decoder, causal" in shown.hover(row=1, column=5)
    shown.click(row=1, column=5)
    state = shown.call("state")
    assert (state["view"], state["record"], state["head"]) == ("pattern", 1, 5)


def test_a_tour_by_keyboard(show):
    """Every view by the tabs' arrows; in each, the map is reached by Tab, arrows speak, Enter locks, Escape unlocks."""
    shown = show(View(documents.everything(), view="pattern"))
    shown.page.locator("[role=tab][aria-selected=true]").focus()
    seen = []
    for _ in VIEWS:
        view = shown.call("state")["view"]
        seen.append(view)
        for _ in range(40):
            shown.page.keyboard.press("Tab")
            if shown.page.evaluate("document.getElementById('viewer').shadowRoot.activeElement?.tagName") == "CANVAS":
                break
        else:
            raise AssertionError(f"the map of {view} is not reached by Tab")
        outline = "getComputedStyle(document.getElementById('viewer').shadowRoot.querySelector('canvas')).outlineWidth"
        assert shown.page.evaluate(outline) == "3px"
        shown.settle()
        first = shown.readout
        shown.press("ArrowDown" if view in ("lines", "long") else "ArrowRight")
        assert shown.readout
        assert shown.readout != first, view
        assert view == "walk" or shown.tip == shown.readout
        if view in ("pattern", "lines", "words", "image", "sound"):
            shown.press("Enter")
            assert len(shown.call("state")["locked"]) == 1, view
            shown.press("Escape")
            assert shown.call("state")["locked"] == []
        shown.page.locator("[role=tab][aria-selected=true]").focus()
        shown.press("ArrowRight")
    assert sorted(seen) == sorted(VIEWS)


def test_controls_keep_the_focus(show):
    """A choice made by keyboard leaves the focus on the control that was used."""
    shown = show(View(documents.alignment()[0]))
    scale = shown.menu().get_by_label("Scale")
    scale.focus()
    shown.press("ArrowDown")
    assert shown.call("state")["scale"] == "root"
    active = "document.getElementById('viewer').shadowRoot.activeElement.getAttribute('aria-label')"
    assert shown.page.evaluate(active) == "Scale"


def test_zoom_keeps_the_cell_and_fits_again(show):
    shown = show(View(documents.alignment(queries=61, keys=53)[0]))
    before = shown.call("locate", {"row": 30, "column": 30})
    shown.page.mouse.move(before["x"] + 2, before["y"] + 2)
    shown.page.locator("canvas").click(position={"x": 300, "y": 300})
    shown.press("+", "+")
    zoomed = shown.call("locate", {"row": 30, "column": 30})
    assert zoomed["width"] > 2 * before["width"]
    assert shown.page.get_by_role("button", name="Show the whole map").is_visible()
    shown.press("0")
    stage = shown.page.locator("#stage").bounding_box()
    first, last = shown.call("locate", {"row": 0, "column": 0}), shown.call("locate", {"row": 60, "column": 52})
    assert stage["x"] < first["x"] < last["x"] + last["width"] <= stage["x"] + stage["width"]
    assert stage["y"] < first["y"] < last["y"] + last["height"] <= stage["y"] + stage["height"]


def test_a_map_that_fits_has_no_zoom(show):
    shown = show(View(documents.alignment()[0]))
    assert shown.page.get_by_role("button", name="Show the whole map").is_hidden()


OF_COLORS = ["color-contrast", "link-in-text-block"]


@pytest.mark.parametrize("colors", ["light", "dark", "forced"])
def test_axe_finds_nothing_in_the_viewer(show, colors):
    from axe_playwright_python.sync_playwright import Axe

    every = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice", "experimental"]
    # The other rules read no colour.
    rules = {"runOnly": every if colors == "light" else {"type": "rule", "values": OF_COLORS}}
    options = {"forced_colors": "active"} if colors == "forced" else {"color_scheme": colors}
    shown = show(View(documents.everything()), **options)
    for view in VIEWS:
        shown.show(view)
        if view == "walk":
            shown.station("output").locator("button.cell").first.click()
        violations = Axe().run(shown.page, options=rules).response["violations"]
        assert not [(one["id"], one["help"]) for one in violations], view


def squares(svg):
    """The opacities of the filled squares of lines, by (x, y) of their left upper corners."""
    box = r'<rect x="([\d.]+)" y="([\d.]+)" width="9.5" height="9.5" fill="(#\w+)"(?: opacity="([\d.]+)")?/>'
    return {(float(x), float(y)): (color, float(alpha or 1)) for x, y, color, alpha in re.findall(box, svg)}


def test_squares_are_as_opaque_as_the_weights(show):
    """Beside each key, a square of each head's colour for what the pointed query gives; beside queries, for a key."""
    record, weights = documents.alignment(heads=3)
    shown = show(View(record, view="lines", head="mean"))
    for side, item, expected in (
        ("key", {"side": "query", "row": 1}, weights[:, 1].T),
        ("query", {"side": "key", "column": 4}, weights[..., 4].T),
    ):
        shown.hover(**item)
        svg = shown.call("svg")
        middle = float(re.search(r'width="([\d.]+)"', svg)[1]) / 2
        ours = {place: one for place, one in squares(svg).items() if (place[0] > middle) == (side == "key")}
        rows = sorted({y for _, y in ours})
        assert len(rows) == len(expected)
        for y, of_heads in zip(rows, expected, strict=True):
            one = [ours[place] for place in sorted(ours) if place[1] == y]
            assert [alpha for _, alpha in one] == pytest.approx(of_heads.tolist(), abs=0.006)
            assert len({color for color, _ in one}) == 3
    text = shown.hover(side="key", column=4, head=2)
    assert text.startswith("head 2: “⁨k4⁩” gets")
    assert abs(float(re.search(r"gets ([\d.]+)", text)[1]) - weights[2, :, 4].mean().item()) <= 0.00005


def test_tooltips_of_lines_list_the_strongest(show):
    record, weights = documents.alignment(heads=6, queries=4, keys=7)
    shown = show(View(record, view="lines", head="mean"))
    listed = r"“⁨(\w+)⁩” ([\d.]+) \(head (\d)\)"
    for text, table, names in (
        (shown.hover(side="query", row=2), weights[:, 2], "k"),
        (shown.hover(side="key", column=5), weights[..., 5], "q"),
    ):
        best = table.flatten().topk(4).indices.tolist()
        expected = [(f"{names}{number % table.shape[1]}", number // table.shape[1]) for number in best]
        assert [(token, int(head)) for token, _, head in re.findall(listed, text)] == expected
        for token, value, head in re.findall(listed, text):
            assert abs(float(value) - table[int(head), int(token[1:])].item()) <= 0.00005


def test_lines_begin_with_the_chosen_head_and_a_line_is_found_by_the_pointer(show):
    record, weights = documents.alignment(heads=3)
    shown = show(View(record, view="lines", head=1))
    pressed = shown.page.locator(".heads button[aria-pressed=true][data-color]").all_text_contents()
    assert [text.strip() for text in pressed] == ["1"]
    row, column = divmod(int(weights[1].argmax()), 5)
    item = {"side": "line", "row": row, "column": column, "head": 1}
    text = shown.hover(**item)
    assert f"“⁨q{row}⁩” → “⁨k{column}⁩”: {weights[1].max().item():.4f} (head 1)" == text
    shown.page.get_by_role("button", name="head 2").dblclick()
    shown.settle()
    assert shown.call("state")["head"] == 2
    assert shown.page.locator(".heads button[aria-pressed=true][data-color]").count() == 1


@pytest.mark.parametrize("view", ["lines", "pattern"])
def test_a_tooltip_goes_with_the_pointer_after_a_click(show, view):
    shown = show(View(documents.causal()[0], view=view))
    item = {"side": "query", "row": 2} if view == "lines" else {"row": 2, "column": 1}
    shown.hover(**item)
    assert shown.tip
    shown.click(**item)
    shown.page.mouse.move(5, 5)
    shown.settle()
    assert shown.tip is None
    assert shown.call("state")["locked"] == [2]
    shown.press("ArrowDown")
    assert shown.tip
