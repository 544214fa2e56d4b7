"""A view: what it accepts and refuses, the files that it writes, and its frame in a notebook."""

import base64
import hashlib
import html
import json
import re
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pytest

import regard
import viewer_documents as documents
from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View, module_path
from regard.viewer.view import VIEWS


def test_a_view_takes_records_documents_and_steps():
    record, steps = documents.alignment()[0], documents.steps()
    for shown in (record, [record, record], Document("x", (record,)), steps[0], steps[1], [record, steps[0]]):
        assert View(shown).payload()["format"] == 1


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"view": "heatmap"}, UnknownNameError, "view"),
        ({"view": "image"}, ArgumentError, "view"),
        ({"view": ["grid"]}, KindError, 'view="pattern"; it is a list'),
        ({"theme": ["dark"]}, KindError, "theme"),
        ({"language": 3}, KindError, "language"),
        ({"steps": 5}, KindError, r"steps=\[\(0, 1\)\]; it is an int"),
        ({"steps": [0, 1]}, KindError, r"one entry is '0'"),
        ({"survey": 5}, KindError, "regard.survey.*int"),
        ({"head": np.array([0, 1])}, ArgumentError, "head"),
        ({"layer": np.array([0])}, ArgumentError, "layer"),
        ({"theme": "blue"}, UnknownNameError, "theme"),
        ({"height": 3}, ArgumentError, "height"),
        ({"layer": 1}, ArgumentError, "layer"),
        ({"head": 2}, ArgumentError, "head"),
        ({"head": -1}, ArgumentError, "head"),
        ({"budget_bytes": -1}, ArgumentError, "budget_bytes"),
    ],
)
def test_options_are_checked(options, error, named):
    with pytest.raises(error, match=named):
        View(documents.alignment()[0], **options).payload()


def test_a_picture_of_a_difference_needs_a_record_of_several_heads(tmp_path):
    layers = list(np.array([[[[[0.9, 0.1], [0.2, 0.8]]]], [[[[0.5, 0.5], [0.2, 0.8]]]]]))
    with pytest.raises(ArgumentError, match="needs a record of several heads"):
        View(layers, ["a", "b"], view="difference").save(tmp_path / "x.png")


def test_nothing_is_refused():
    with pytest.raises(ArgumentError):
        View([])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures_without_a_browser(view, suffix, tmp_path):
    place = View(documents.everything(), view=view).save(tmp_path / f"x.{suffix}")
    content = place.read_bytes()
    if suffix == "png":
        assert content.startswith(b"\x89PNG")
    else:
        assert ET.fromstring(content).tag.endswith("svg")


def test_a_masked_and_a_missing_weight_are_drawn(tmp_path):
    axis = TokenAxis(("a", "b"))
    weights = np.array([[[1.0, 0.0], [np.nan, 0.5]]], np.float32)
    visible = np.tril(np.ones((2, 2), np.bool_))
    record = AttentionRecord("x", 0, "causal", axis, axis, weights, visible)
    plain = AttentionRecord("x", 0, "causal", axis, axis, np.nan_to_num(weights))
    assert View(record).save(tmp_path / "a.svg").read_bytes() != View(plain).save(tmp_path / "b.svg").read_bytes()


def test_long_records_are_not_drawn_with_names(tmp_path):
    record, _ = documents.alignment(queries=2, keys=500)
    with pytest.raises(ArgumentError, match="400"):
        View(record).save(tmp_path / "x.png")


def test_files_and_suffixes(tmp_path):
    view = View(documents.alignment()[0])
    assert json.loads(view.save(tmp_path / "x.json").read_text()) == view.payload()
    assert view.save(tmp_path / "x.html").read_text(encoding="utf-8") == view.to_html()
    with pytest.raises(ArgumentError, match="path"):
        view.save(tmp_path / "x.pdf")


def test_the_policy_of_a_file():
    """Nothing may be loaded; only the loader, the module that it unpacks, and the one style may run and style."""
    page = View(documents.alignment()[0]).to_html()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    loader = re.search(r'<script type="module">(.*?)</script>', page, re.S)[1]
    module = zlib.decompress(base64.b64decode(re.search(r'id="module">([^<]*)</script>', page)[1])).decode()
    style = re.search("<style>(.*?)</style>", page, re.S)[1]
    one, other, third = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (loader, module, style)
    )
    assert policy == (
        f"default-src 'none'; script-src {one} {other}; style-src {third}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    assert module.startswith(module_path().read_text(encoding="utf-8"))
    assert re.findall(r'(?:src|href)="([^"]*)"', page.partition("<script")[0]) == ["data:,"]


def test_the_module_imports_nothing_and_ends_no_block():
    source = module_path().read_text(encoding="utf-8")
    assert not re.search(
        r"^\s*import\b|\bimport\(|\beval\(|\bfetch\(|innerHTML|https?://(?!www\.w3\.org/)", source, re.M
    )
    assert "</script" not in source
    assert "<!--" not in source
    assert source.endswith("\nexport { addressOf, mount, percent, say, speak, stateOf };\n")


def test_the_frame_of_a_notebook():
    frame = View(documents.causal()[0], height=400)._repr_html_()
    assert frame.count("<iframe") == 1
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    assert "height:400px" in frame
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == View(documents.causal()[0]).to_html()


def test_the_package_has_the_name():
    assert regard.View is View
