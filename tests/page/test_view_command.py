"""``regard view``: a model's attention as a file, without a server."""

import json
import xml.etree.ElementTree

import pytest

import regard
from regard.page.models import open_model
from regard.pictures import MissingGlyphWarning
from regard.viewer import View
from regard.viewer.opening import opening, sentence
from viewer_decoding import unpacked_numbers

SENTENCE = "My sister gives the old book to her friend."


@pytest.fixture
def view(run_command, run_of, tmp_path):
    def call(name, text, file, *options):
        path = tmp_path / file
        return path, *run_command("view", run_of(name), text, "-o", path, *options)

    return call


@pytest.mark.parametrize("name", ["bahdanau", "transformer", "classify", "summarize", "language-bpe"])
def test_every_kind_of_file(view, run_of, name):
    trained = regard.load(run_of(name))
    path, code, output, error = view(name, SENTENCE, "a.json")
    assert code == 0, error
    assert f"view: {path}" in error
    options = {"tokens": 12, "temperature": 0, "next": 8} if name.startswith("language") else {}
    (prediction,) = trained.predict([SENTENCE], **options)
    shown = f"{prediction.answer}\n" if prediction.answer else ""
    assert output.startswith(shown)
    assert len(output.removeprefix(shown).splitlines()) == len(prediction.ranked())
    records = json.loads(path.read_text())["records"]
    expected = trained.document(prediction).records
    assert [record["name"] for record in records] == [record.name for record in expected]
    assert (unpacked_numbers(records[-1]["exact"]) == expected[-1].weights).all()
    for file, start in (("a.html", b"<!DOCTYPE html>"), ("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")):
        path, code, output, error = view(name, SENTENCE, file)
        assert code == 0, error
        assert path.read_bytes().startswith(start)


def test_the_picture_of_the_command_says_what_its_view_opens_on(view, run_of, tmp_path):
    reading = open_model(str(run_of("bahdanau")), "cpu").read(SENTENCE)
    path, code, _, error = view("bahdanau", SENTENCE, "a.svg")
    assert code == 0, error
    own = View(reading.document, view=reading.view, layer=reading.first).save(tmp_path / "own.svg")
    drawn, expected = (
        [one.text for one in xml.etree.ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")]
        for file in (path, own)
    )
    assert drawn == expected
    marks = str.maketrans("", "", "\u2068\u2069\xa0 \n")
    for said in sentence(reading.document, opening(reading.document, reading.first)):
        assert said.translate(marks) in "".join(filter(None, drawn)).translate(marks)


def test_options_of_view_choose_the_first_screen(view):
    path, code, _, error = view("transformer", SENTENCE, "a.html", "--steps", "--attention", 3, "--head", 1)
    assert code == 0, error
    text = path.read_text()
    shown = json.loads(text.split('id="input">')[1].split("</script>")[0])
    assert shown["options"]["view"] == "walk"
    assert shown["options"]["selection"] == {"record": 3, "head": 1}
    steps = shown["payload"]["steps"][0]  # those of the other heads follow
    assert (steps["name"], steps["head"]) == ("decoder.layers.0.multihead_attn, head 1", 1)
    path, code, _, error = view("transformer", SENTENCE, "a.html")
    shown = json.loads(path.read_text().split('id="input">')[1].split("</script>")[0])
    assert shown["options"]["selection"]["record"] == 5
    path, code, _, error = view("classify", SENTENCE, "a.html", "--theme", "dark")
    options = json.loads(path.read_text().split('id="input">')[1].split("</script>")[0])["options"]
    assert (options["view"], options["theme"], options["language"]) == ("words", "dark", "auto")
    path, code, _, error = view("classify", SENTENCE, "a.html", "--language", "zh")
    assert '"language":"zh"' in path.read_text()
    _, code, _, error = view("classify", SENTENCE, "b.html", "--language", "fr")
    assert code == 2
    assert "--language" in error


def test_without_a_name_each_page_is_a_new_file(run_command, run_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("attention.html", "attention-2.html", "attention-3.html"):
        code, _, error = run_command("view", run_of("classify"), SENTENCE)
        assert (code, f"view: {name}" in error) == (0, True), error
    assert len(list(tmp_path.iterdir())) == 3


def test_hostile_text_stays_text(view):
    hostile = "</script><img src=x onerror=alert(1)> \u202e \U0001f98a &amp; '\" \x07"
    path, code, _, error = view("classify", hostile, "a.html")
    assert code == 0, error
    page = path.read_text()
    assert "<img" not in page
    assert page.count("</script>") == 3
    with pytest.warns(MissingGlyphWarning, match=r"U\+2407.* U\+1F98A"):  # Matplotlib's fonts have neither
        path, code, _, error = view("classify", hostile, "a.svg")
    assert code == 0, error
    xml.etree.ElementTree.parse(path)


def test_a_model_without_a_source_opens_on_its_clearest_head(view):
    for options in ((), ("--steps",)):
        path, code, _, error = view("language-bpe", SENTENCE, "a.html", *options)
        assert code == 0, error
        shown = json.loads(path.read_text().split('id="input">')[1].split("</script>")[0])
        assert shown["options"]["selection"] == {}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("none", [], ["none", "the model has no attention"]),
        ("classify-mean", [], ["the model has no attention"]),
        ("transformer", ["--attention", 99], ["--attention must be from 0 to 7", "99"]),
        ("transformer", ["--head", 2], ["--head must be from 0 to 1"]),
        ("transformer", ["--view", "image"], ["--view 'image'", "pattern"]),
        ("bahdanau", ["--view", "long"], ["--view 'long'"]),
    ],
)
def test_views_that_do_not_exist_are_one_line(view, name, options, words):
    path, code, _, error = view(name, SENTENCE, "a.html", *options)
    assert code == 2
    (line,) = error.splitlines()
    for word in words:
        assert word in line
    assert not path.exists()
