"""The widget of Jupyter: the same module and payload, and exact tiles from Python."""

import pytest

import viewer_documents as documents
from regard.viewer import View, module_path, tile_payload


@pytest.fixture
def widget():
    pytest.importorskip("anywidget")
    from regard.viewer.widget import widget

    return widget


def test_the_widget_has_the_module_and_the_payload(widget):
    record, _ = documents.alignment()
    shown = widget(record, view="lines", height=300)
    assert shown.payload == View(record).payload()
    assert shown.options["view"] == "lines"
    assert shown.height == 300
    assert module_path().read_text(encoding="utf-8") in str(shown._esm)


def test_the_widget_answers_with_exact_tiles(widget, monkeypatch):
    record, _ = documents.tiled()
    shown = widget(record)
    sent = []
    monkeypatch.setattr(type(shown), "send", lambda self, message: sent.append(message))
    shown._answer(shown, {"id": "1", "tile": [0, 2, 5, 3, 7]}, [])
    shown._answer(shown, {"id": "2", "tile": [9, 2, 5, 3, 7]}, [])
    shown._answer(shown, {"id": "3"}, [])
    assert sent[0] == {"id": "1", "tile": tile_payload(record, (2, 5), (3, 7))}
    assert [sorted(message) for message in sent[1:]] == [["error", "id"], ["error", "id"]]
