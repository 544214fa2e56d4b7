"""A hundred thousand tokens: what is planted is seen from afar, found by name, and exact at close range."""

import re

import numpy as np
import pytest

import viewer_documents as documents
from regard.records import AttentionRecord, DenseTiles, TokenAxis
from regard.viewer import View, tile_payload


def test_a_planted_weight_is_seen_and_exact(show):
    source = documents.PlantedTiles
    query, key, weight = source.spike
    shown = show(documents.planted())
    shown.show("long", pooling="maximum", head=1)
    place = shown.call("locate", {"row": query, "column": key})
    near = [shown.pixel(place["x"] + dx, place["y"] + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
    far = shown.pixel(place["x"] + 60, place["y"] - 40)
    assert min(sum(color) for color in near) < sum(far) - 200
    wanted = re.compile(rf"head 1: .* \(query {query:,}\) gives {100 * weight:.2g}\s% to .* \(key {key:,}\)")
    (label,) = filter(wanted.match, shown.page.locator("option").all_text_contents())
    shown.page.get_by_label("Go to").select_option(label=label)
    shown.settle()
    assert f"query {query:,} " in shown.readout
    assert f": {weight:.4f} (exact; head 1)" in shown.readout
    shown.press("ArrowRight")
    assert f"key {key + 1:,} " in shown.readout
    assert ": 1.000e−7 (exact" in shown.readout
    session = shown.page.context.new_cdp_session(shown.page)
    session.send("HeapProfiler.collectGarbage")  # of what the page showed before
    assert session.send("Runtime.getHeapUsage")["usedSize"] < 300e6


def test_findings_name_the_sink_and_the_diagonal():
    findings = documents.planted().payload()["records"][0]["overview"]["findings"]
    assert [(one["head"], one["key"]) for one in findings["sinks"]] == [(1, 40_001)]
    assert findings["sinks"][0]["share"] == pytest.approx(0.25, abs=1e-3)
    assert [(one["head"], one["offset"]) for one in findings["diagonals"]] == [(0, -1)]
    assert findings["diagonals"][0]["share"] == pytest.approx(0.6, abs=0.02)
    assert [(one["head"], one["query"], one["key"]) for one in findings["spikes"]] == [(1, 61_234, 23_456)]


def test_a_file_without_single_weights_says_so(show):
    shown = show(documents.planted())
    assert "this file holds no single weights here" in shown.hover(row=50_000, column=90_000)


def test_tiles_are_fetched_where_a_server_gives_them(browser):
    """`options.fetchTile` is asked for what is seen at close range; its numbers are shown as exact."""
    import json

    from regard.viewer import module_path, payload
    from regard.viewer.view import as_document

    record, weights = documents.tiled(length=300, heads=2)
    page = browser.new_page(viewport={"width": 900, "height": 700})
    asked = []

    def tile(number, q0, q1, k0, k1):
        asked.append((number, q0, q1, k0, k1))
        return tile_payload(record, (q0, q1), (k0, k1))

    page.expose_function("tile", tile)
    page.set_content('<div id="viewer" style="height:600px"></div>')
    given = json.dumps(payload(as_document(record), budget_bytes=0))
    options = "{ fetchTile: (...place) => window.tile(...place), selection: { head: null, words: false } }"
    start = f"\nmount(document.getElementById('viewer'), {given}, {options});"
    page.add_script_tag(type="module", content=module_path().read_text(encoding="utf-8") + start)
    page.wait_for_selector("canvas")
    page.wait_for_timeout(200)
    page.locator("canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "document.getElementById('viewer').shadowRoot.querySelector('.readout').textContent.includes('exact;')"
    )
    text = page.locator(".readout").text_content()
    row = int(text.split()[1])
    value = float(text.split(": ")[1].split()[0].replace("−", "-"))
    assert value == pytest.approx(weights[:, row, 0].mean().item(), abs=0.00005)
    assert asked
    assert all(number == 0 and q1 - q0 <= 64 and k1 - k0 <= 64 for number, q0, q1, k0, k1 in asked)
    page.close()


def test_exact_numbers_are_fetched_for_codes(browser):
    """Where the payload carries codes alone and a server gives exact numbers, the numbers become exact."""
    import json

    from regard.viewer import module_path, payload
    from regard.viewer.view import as_document

    record, weights = documents.causal(heads=3)
    page = browser.new_page(viewport={"width": 900, "height": 700})
    page.expose_function("tile", lambda number, q0, q1, k0, k1: tile_payload(record, (q0, q1), (k0, k1)))
    page.set_content('<div id="viewer" style="height:600px"></div>')
    given = json.dumps(payload(as_document(record), budget_bytes=0))
    options = "{ fetchTile: (...place) => window.tile(...place), selection: { head: null, words: false } }"
    start = f"\nmount(document.getElementById('viewer'), {given}, {options});"
    page.add_script_tag(type="module", content=module_path().read_text(encoding="utf-8") + start)
    page.locator("[role=tabpanel][aria-busy=false]").wait_for()
    page.wait_for_timeout(300)
    page.locator("canvas").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_timeout(100)
    text = page.locator(".readout").text_content()
    assert f": {weights[:, 1, 0].mean().item():.4f} (mean of 3 heads" in text
    page.close()


def test_a_finding_says_over_how_many_queries_its_mean_is(show):
    weights = documents.attention(1, 40, 40, sharpness=0.3).float().numpy()
    rows = np.arange(15, 40)
    weights[0, rows, rows - 15] += 0.5
    axis = TokenAxis(tuple(f"t{number}" for number in range(40)))
    record = AttentionRecord("x", 0, "self", axis, axis, None, source=DenseTiles(weights))
    options = show(View(record, view="long")).page.locator("select[aria-label='Go to'] option").all_text_contents()
    wanted = re.compile("look 15 places back, .* on average over the 25 of 40 queries that have one$")
    assert any(map(wanted.search, options))
