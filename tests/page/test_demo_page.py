"""The page that ``regard demo`` writes: each translation with its attention and its worked steps, in one file."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import regard
from regard.cli.demo import SENTENCES, write_page
from regard.tasks.translate import TASK
from regard.training.run_replacement import foreign_files
from viewer_decoding import unpacked_numbers


@pytest.fixture
def written(run_of, tmp_path):
    """The trained run with pictures in a folder of the test, the translations, and the page."""
    trained = regard.load(run_of("luong-at-once"))
    translations = trained.predict(SENTENCES)
    folder = SimpleNamespace(path=tmp_path / "demo", file=lambda name: tmp_path / Path(name).name)
    place = write_page(SimpleNamespace(attentions=trained.attentions, folder=folder), translations)
    return trained, translations, place


def test_the_demo_page_has_every_translation(written):
    _, translations, place = written
    text = place.read_text()
    payload = json.loads(text.split('id="input">')[1].split("</script>")[0])["payload"]
    assert place.name == "translations.html"
    assert [words for _, words in payload["texts"]] == [f"{one.source} →" for one in translations if not one.text]
    assert len(payload["records"]) == len(payload["steps"]) == sum(bool(one.text) for one in translations)
    shown = [one for one in translations if one.text]
    for record, steps, translation in zip(payload["records"], payload["steps"], shown, strict=True):
        assert translation.text in record["name"]
        weights = unpacked_numbers(record["exact"])[0]
        np.testing.assert_allclose(weights, translation.weights.numpy(), atol=2e-5)
        np.testing.assert_allclose(unpacked_numbers(steps["matrices"]["weights"]), weights, atol=2e-6)


def test_the_demo_page_requests_no_other_file(written, pages):
    _, _, place = written
    asked, errors = [], []
    listeners = {
        "request": lambda request: asked.append(request.url),
        "console": lambda message: errors.append(message.text),
        "pageerror": lambda error: errors.append(str(error)),
    }
    with pages.opened(listeners=listeners) as page:
        page.goto(place.as_uri())
        page.locator("#viewer").wait_for()
        page.wait_for_timeout(300)
    assert asked == [place.as_uri()]
    assert not errors


def test_a_run_may_be_replaced_with_it(run_of):
    """``--overwrite`` knows the file: it is no stranger in the run folder."""
    assert "pictures/translations.html" in TASK.results
    path = run_of("luong")
    before = foreign_files(path)
    (path / "pictures").mkdir(exist_ok=True)
    (path / "pictures" / "translations.html").write_text("")
    try:
        assert foreign_files(path) == before
    finally:
        (path / "pictures" / "translations.html").unlink()
