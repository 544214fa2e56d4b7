"""A notebook with two views: run, run again, and converted to HTML, all without a network."""

from pathlib import Path

import pytest

import regard

CELLS = (
    "import numpy as np\n"
    "from regard.records import AttentionRecord, TokenAxis\n"
    "from regard.viewer import View\n"
    "def record(name):\n"
    "    axis = TokenAxis((name, 'b', 'c'))\n"
    "    return AttentionRecord(name, 0, 'self', axis, axis, np.full((2, 3, 3), 1 / 3, np.float32))",
    "View(record('first'), height=500)",
    "View(record('second'), view='lines', height=500)",
)


@pytest.mark.slow
def test_two_views_of_a_notebook_survive_its_conversion(browser, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(regard.__file__).parents[1]))
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook.metadata.update(spec)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        for number, cell in [*enumerate(notebook.cells)] * 2:
            client.execute_cell(cell, number)
    exporter = HTMLExporter(template_name="basic")
    page_text, _ = exporter.from_notebook_node(notebook)
    place = tmp_path / "notebook.html"
    place.write_text(f"<!DOCTYPE html><meta charset=utf-8>{page_text}", encoding="utf-8")
    context = browser.new_context(offline=True, viewport={"width": 1000, "height": 1300})
    page = context.new_page()
    complaints, requests = [], []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    page.goto(place.as_uri())
    frames = [page.frame_locator("iframe").nth(number) for number in range(2)]
    for frame, name in zip(frames, ("first", "second"), strict=True):
        frame.locator("[role=tabpanel][aria-busy=false]").wait_for(timeout=60_000)
        assert frame.locator("h1").text_content() == name
    assert page.locator("iframe").count() == 2
    # What is done in one view does not reach the other.
    canvas = frames[0].locator("canvas")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    frames[0].locator(".readout", has_text="first").wait_for()
    assert frames[1].locator(".readout").text_content() == ""
    assert not complaints
    assert [url for url in requests if not url.startswith(("file:", "about:", "data:"))] == []
    context.close()
