"""What a viewer does while its records change, while its address changes, and with keys on its controls."""

import json

import numpy as np
import pytest

from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View
from regard.viewer.html_file import module_path
from regard.viewer.payload import payload

WORDS = ("a", "black", "cat", "sat", "on", "the", "mat", "because", "it", "was", "tired", "today")


def record(heads=4, pointing=2, seed=3):
    """Heads of noise, and one that looks at the token before."""
    count = len(WORDS)
    weights = np.random.default_rng(seed).dirichlet(np.full(count, 8), (heads, count)).astype(np.float32)
    weights[pointing] = 0.1 / count + 0.9 * np.eye(count, k=-1, dtype=np.float32)
    weights[pointing, 0] = 1 / count
    axis = TokenAxis(WORDS)
    return AttentionRecord("layer", 0, "self", axis, axis, weights)


def given(*records):
    return json.loads(json.dumps(payload(Document("x", records))))


def test_an_emptied_viewer_complains_of_nothing_and_comes_back(show):
    shown = show(View(record()))
    shown.call("update", {**given(record()), "records": []})
    shown.page.mouse.move(300, 300)
    shown.page.set_viewport_size({"width": 800, "height": 700})
    shown.page.keyboard.press("Escape")
    assert "There is no attention" in shown.call("svg")
    assert "There is no attention" in shown.page.locator(".sentence").text_content()
    shown.call("undo")
    shown.call("set", {"head": 1})
    shown.call("update", given(record()))
    shown.settle()
    assert shown.page.locator("canvas").first.is_visible()
    assert "of its attention" in shown.page.locator(".sentence").text_content()
    assert shown.complaints == []


def test_an_update_at_once_still_opens_on_the_head_that_does_something(show, pages):
    shown = show(View(record(pointing=3)))
    opened = shown.call("state")["head"]
    with pages.opened() as page:
        page.set_content("<div id='viewer' style='height: 600px'></div><div id='other' style='height: 500px'></div>")
        first, after = json.dumps(given(record())), json.dumps(given(record(pointing=3)))
        start = f"const handle = mount(document.getElementById('viewer'), {first}); handle.update({after});"
        # A page has one language: that of its first viewer.
        start += f" mount(document.getElementById('other'), {first}, {{ language: 'zh' }});"
        page.add_script_tag(type="module", content=f"{module_path().read_text('utf-8')}\n{start}")
        for place in ("#viewer", "#other"):
            page.locator(place).get_by_text("of its attention").first.wait_for()
        assert page.evaluate("document.getElementById('viewer').regardView.state().head") == opened
    assert opened != 0
    shown.show("pattern", head=1)
    shown.call("update", given(record(pointing=0)))
    shown.settle()
    assert shown.call("state")["head"] == 1  # somebody chose it


def test_heads_rows_and_links_that_are_not_there_are_left_out(show):
    shown = show(View(record()))
    shown.show("lines", heads=[2, 3], queries=[1, 1, 40])
    state = shown.call("state")
    assert (state["locked"], state["heads"]) == ([1], [2, 3])
    shown.call("update", given(record(heads=2, pointing=1)))
    shown.settle()
    assert shown.call("state")["heads"] is None
    shown.show("grid")
    shown.page.locator(".bar select").first.focus()
    shown.press("Escape")
    assert shown.call("state")["overall"] is False  # the grid shows no rows


def test_a_link_that_is_pasted_is_shown(show):
    shown = show(View(record()))
    before = shown.call("state")
    shown.page.evaluate("() => { location.hash = '#view=lines&head=1&scale=constructor&zoom=1e300' }")
    shown.page.wait_for_function("() => document.getElementById('viewer').regardView.state().view === 'lines'")
    state = shown.call("state")
    assert (state["head"], state["scale"], state["zoom"]) == (1, before["scale"], 1)


def test_small_factors_are_carried_however_little_room_is_left():
    """One number a key takes no room that matters."""
    axis = TokenAxis(tuple(f"t{one}" for one in range(128)))
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(128), (12, 128)).astype(np.float32)
    records = [
        AttentionRecord("layer", layer, "self", axis, axis, weights, measures={"norms": np.ones((12, 128), np.float32)})
        for layer in range(12)
    ]
    entries = payload(Document("x", tuple(records)), budget_bytes=1000)["records"]
    assert all("norms" in entry["measures"] for entry in entries if entry["codes"])
    assert any(entry["codes"] for entry in entries)


def test_the_steps_of_a_root_module_belong_to_its_record():
    torch = pytest.importorskip("torch")
    from regard.watching import watch

    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 5, 8)
    with watch(module, keep=True) as session:
        module(x, x, x)
    view = View(session, list("abcde"), steps=[(0, 1)])
    assert [entry["record"] for entry in payload(view.document)["steps"]] == [0]
