"""The line with the command that follows a training: its input is one of the user's, and is typed as it stands."""

import shlex

import pytest
from PIL import Image

from regard.cli.training import example_input
from regard.tasks import registry
from regard.training.run_folder import RunFolder

FIELDS = {"classify": "text", "translate": "source", "summarize": "article", "language": "prompt"}
TYPED = ('it\'s $HOME `date` "quoted" !x; rm *', "包裹还没有到", "a\\b #c")


def examples(folder, name, *inputs, field=None):
    RunFolder(folder).write_samples([{"step": 1, field or FIELDS[name]: one} for one in inputs])
    return shlex.split(example_input(registry.find(name), RunFolder(folder)))


@pytest.mark.parametrize("name", FIELDS)
def test_a_text_of_the_validation_is_the_example_in_quotes(name, tmp_path):
    for text in TYPED:
        assert examples(tmp_path, name, text) == [text]
    assert examples(tmp_path, name, "--run", "\x1b[31mred", "two\nlines", "last") == ["two lines"]
    (long,) = examples(tmp_path, name, "word " * 200)
    assert long == " ".join(["word"] * 16)
    assert examples(tmp_path, name, "--run") == ["A text."]


@pytest.mark.parametrize("name", ["images", "caption", "segment"])
def test_an_image_that_is_still_there_is_the_example(name, tmp_path):
    there = tmp_path / "it's one.png"
    Image.new("RGB", (4, 4)).save(there)
    missing = str(tmp_path / "gone.png")
    assert examples(tmp_path, name, missing, str(there), field="image") == [str(there)]
    assert examples(tmp_path, name, missing, field="image") == ["IMAGE.png"]


@pytest.mark.parametrize("name", ["sounds", "transcribe"])
def test_a_sound_that_is_still_there_is_the_example(name, tmp_path):
    there = tmp_path / "one.wav"
    there.write_bytes(b"RIFF")
    assert examples(tmp_path, name, str(there), field="source") == [str(there)]
    assert examples(tmp_path, name, "gone.wav", field="source") == ["SOUND.wav"]
