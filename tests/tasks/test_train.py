"""`regard.train`: every task from Python, on data in memory of every form; errors speak of arguments."""

import logging
import re
import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch

import regard
from regard.errors import ArgumentError, DataError, KindError, MissingPartError, RunError
from regard.tasks import registry
from regard.tasks.stored_data import prepared, store, stored_names
from regard.tasks.task import TableTask

SHORT = {"epochs": 2, "threads": 1, "quiet": True, "accelerator": "cpu"}
CLASSIFY = {**SHORT, "architecture": "none", "embedding": 8, "learning_rate": 0.05, "batch_size": 8}
TEXTS, LABELS = ["good film", "bad film"] * 15, [1, 0] * 15
RECORDS = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]


class Frame:
    """What `regard.train` asks of a DataFrame of pandas."""

    columns = ("text", "label")

    def to_dict(self, orient):
        assert orient == "records"
        return RECORDS


FORMS = {
    "two lists": (TEXTS, LABELS),
    "arrays": (np.array(TEXTS), np.array(LABELS)),
    "tensor of labels": (TEXTS, torch.tensor(LABELS)),
    "pairs": list(zip(TEXTS, LABELS, strict=True)),
    "generator": zip(TEXTS, LABELS, strict=True),
    "dictionaries": RECORDS,
    "columns": {"text": TEXTS, "label": LABELS},
    "generators": {"text": iter(TEXTS), "label": iter(LABELS)},
    "data set": datasets.Dataset.from_list(RECORDS),
    "data frame": Frame(),
}


@pytest.fixture(autouse=True)
def _cache(own_cache):
    """The data sets of a test are cached in its own folder."""


def test_every_form_of_data_trains_the_same_model():
    states = {}
    for form, data in FORMS.items():
        run = regard.train("classify", data, validation=(["good", "bad"], [1, 0]), **CLASSIFY)
        states[form] = run.model.state_dict()
        for name, weight in states["two lists"].items():
            assert torch.equal(weight, states[form][name]), (form, name)


def test_three_texts_train_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "regard"):
        run = regard.train("classify", (["hello", "world", "welcome"], [0, 1, 1]), **CLASSIFY)
    assert "too few texts to hold some out (3)" in caplog.text
    assert run.predict(["hello"])[0].label in ("0", "1")
    assert run.evaluate((["hello"], [0])).accuracy in (0.0, 1.0)


def test_warnings_speak_of_arguments(caplog):
    with caplog.at_level(logging.WARNING, "regard"):
        regard.train("classify", ([*TEXTS, "  "], [*LABELS, 1]), **CLASSIFY)
    assert "train: left out 1 row with" in caplog.text


def test_a_temporary_run_goes_with_its_result_and_a_named_one_stays(tmp_path):
    run = regard.train("classify", (TEXTS, LABELS), validation=0.2, **CLASSIFY)
    folder = run.folder.path
    assert folder.is_dir()
    del run
    assert not folder.exists()
    named = regard.train("classify", (TEXTS, LABELS), run=tmp_path / "named", **CLASSIFY)
    assert regard.load(tmp_path / "named").labels.names == named.labels.names
    with pytest.raises(RunError, match="not empty"):
        regard.train("classify", (TEXTS, LABELS), run=tmp_path / "named", **CLASSIFY)


def test_a_temporary_folder_is_called_one(tmp_path, capsys):
    for run in (None, tmp_path / "named"):
        result = regard.train("classify", (TEXTS, LABELS), run=run, **{**CLASSIFY, "quiet": False})
        line = next(line for line in capsys.readouterr().err.splitlines() if " an epoch · " in line)
        assert str(result.folder.path) in line
        assert line.endswith("(a temporary folder: run='NAME' keeps it)") == (run is None)


def test_paths_are_those_of_the_command(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in zip(TEXTS, LABELS, strict=True)))
    run = regard.train("classify", path, validation=str(path), test=RECORDS, run=tmp_path / "run", **CLASSIFY)
    assert run.config.data.train == str(path)
    assert run.evaluate().accuracy == 1


TEXT = {"tokenizer": "word", "embedding": 6, "hidden": 8, "tokens_per_batch": 100}
SOUND = {"pyramid_layers": 1, "hidden": 8, "batch_size": 4}
PIXELS = [np.full((16, 16, 3), 20 * (number % 2), np.uint8) for number in range(12)]
FEATURES = [np.full((20, 13), number % 2, np.float32) for number in range(12)]
CLASSES = ["dark", "light"] * 6
TASKS = {
    "translate": ([("a b", "b a"), ("c d", "d c")] * 6, "a b", TEXT),
    "summarize": ((["a b c d", "c d a b"] * 6, ["a b", "c d"] * 6), "a b c d", TEXT),
    "language": (["the cat sat on the mat. " * 20] * 2, "the",
                 {"tokenizer": "char", "context": 13, "layers": 1, "hidden": 8, "heads": 2, "batch_size": 4}),
    "images": ((PIXELS, CLASSES), PIXELS[0], {"architecture": "cnn", "image_size": 16, "stages": 1, "batch_size": 4}),
    "caption": ((PIXELS, [["all dark", "no light"], "all light"] * 6), PIXELS[0],
                {"image_size": 16, "stages": 1, "embedding": 6, "hidden": 8, "batch_size": 4}),
    "segment": (list(zip(PIXELS, [np.eye(16, dtype=np.uint8)] * 12, strict=True)), PIXELS[0],
                {"channels": 4, "levels": 3, "blocks": 1, "decoder_channels": 8, "batch_size": 4}),
    "sounds": ((FEATURES, CLASSES), FEATURES[0], SOUND),
    "transcribe": ((FEATURES, CLASSES), FEATURES[0],
                   {**SOUND, "embedding": 6, "decoder_hidden": 8, "score_features": 5}),
}  # fmt: skip
"""Task → data in memory, an input, and options of a tiny model."""


@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_on_data_in_memory(task, tmp_path):
    data, source, options = TASKS[task]
    run = regard.train(task, data, run=tmp_path / "run", **SHORT, **options)
    assert run.task.name == task
    if isinstance(source, str):
        assert run.predict([source])[0].texts()
    measured = run.evaluate(data)
    assert measured.data == "data"


@pytest.mark.parametrize(
    ("data", "options", "error", "words"),
    [
        ((TEXTS, LABELS), {"epoch": 3}, ArgumentError, "did you mean 'epochs'"),
        ((TEXTS, LABELS), {"verbose": 0}, ArgumentError, "there is no option 'verbose'; here it is 'quiet'"),
        ((TEXTS, LABELS), {"max_seconds": 3}, ArgumentError, "here it is 'max_minutes'"),
        ((TEXTS, LABELS), {"output_dir": "x"}, ArgumentError, "here it is 'run'"),
        ((TEXTS, LABELS), {"max_minutes": "20s"}, ArgumentError, "^max_minutes must be a number.*; for 20s write 0.33"),
        ((TEXTS, LABELS), {"epochs": 0}, ArgumentError, "epochs must be at least 1"),
        ((TEXTS, LABELS[1:]), {}, ArgumentError, "train must have equally many of each column; it has 30 of text"),
        (([], []), {}, ArgumentError, "train is empty"),
        ([("a", 1, 2)], {}, KindError, r"train\[0\] must be a dictionary, or have text and label"),
        ([("a", 1), b"a"], {}, KindError, r"train\[1\]"),
        ([(b"a", 1)], {}, KindError, r"train\[0\]: .*it is a bytes"),
        (3, {}, KindError, "train must be a path"),
        (None, {}, ArgumentError, "there is nothing to train on; give train"),
        (TEXTS, {}, KindError, r"train\[0\]"),
        ((["a", "b"], [1, 1]), {}, DataError, "^train.*nothing to tell apart"),
        ((("a", "b"), ("c", "d")), {}, KindError, r"give lists \(\[inputs\], \[targets\]\) or a list of pairs"),
        (3, {}, KindError, "it is an int"),
        ((TEXTS, LABELS), {"device": "cuda:99"}, ArgumentError, "device 'cuda:99' cannot be used"),
        ((TEXTS, LABELS), {"lowercase": "no"}, ArgumentError, "^lowercase must be true or false; it is 'no'"),
        ((TEXTS, LABELS), {"epochs": 1.5}, ArgumentError, "^epochs must be a whole number; it is 1.5"),
        ((TEXTS, LABELS), {"hidden": "16"}, ArgumentError, "^hidden must be a whole number"),
        ((TEXTS, LABELS), {"attention": "transformer"}, ArgumentError, "is now architecture='transformer'"),
        ((TEXTS, LABELS), {"validation": 1.5}, ArgumentError, "^validation must be"),
        ((TEXTS, LABELS), {"validation": -0.1}, ArgumentError, "^validation must be"),
        ((TEXTS, LABELS), {"validation": 0.1, "held_out": 0.2}, ArgumentError, "^validation and held_out"),
        ("bundled", {"validation": 0.1}, ArgumentError, "^validation cannot be a share of generated data"),
    ],
)
def test_errors_speak_of_arguments(data, options, error, words):
    with pytest.raises(error, match=words) as raised:
        regard.train("classify", data, **{**CLASSIFY, **options})
    assert "--" not in str(raised.value)
    assert "/" not in str(raised.value)


def test_data_without_a_task_or_in_two_arguments_are_refused():
    right = re.escape('write regard.train("classify", (texts, labels))')
    with pytest.raises(KindError, match=right):
        regard.train(TEXTS, LABELS)  # pyright: ignore
    with pytest.raises(KindError, match=right):
        regard.train("classify", TEXTS, LABELS)  # pyright: ignore


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RunError, OSError])
def test_an_error_keeps_what_was_trained(kind, monkeypatch):
    def load(*_):
        raise kind("stopped")

    monkeypatch.setattr(TableTask, "load", load)
    with pytest.raises(kind, match="stopped") as raised:
        regard.train("classify", (TEXTS, LABELS), validation=np.float32(0.2), **CLASSIFY)
    said = " ".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
    folder = Path(said.split("kept in ")[1].split(";")[0])
    assert (folder / "model.safetensors").is_file()
    assert "--resume" in said
    shutil.rmtree(folder.parent)


def test_data_of_the_user_are_not_overwritten(tmp_path):
    (tmp_path / "run.data").mkdir()
    (tmp_path / "run.data" / "train.jsonl").write_text("mine")
    with pytest.raises(RunError, match=r"run\.data exists"):
        regard.train("classify", (TEXTS, LABELS), run=tmp_path / "run", **CLASSIFY)
    assert (tmp_path / "run.data" / "train.jsonl").read_text() == "mine"
    with pytest.raises(KindError):
        regard.train("classify", [*RECORDS, 3], run=tmp_path / "other", **CLASSIFY)
    assert not (tmp_path / "other.data").exists()
    with pytest.raises(RunError) as raised:
        regard.train("classify", (TEXTS, LABELS), run=tmp_path, **CLASSIFY)
    assert str(raised.value) == f"{tmp_path} is not empty; name another folder with run"


def test_other_processes_store_nothing(tmp_path, monkeypatch):
    calls = []

    def train(task, config, folder, reporter, chosen):
        calls.append((config.data.train, folder.path, list(tmp_path.iterdir())))
        raise RunError("enough")

    monkeypatch.setattr("regard.training.run.train_run", train)
    for rank in ("1", "0"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        with pytest.raises(RunError, match="enough"):
            regard.train("classify", (TEXTS, LABELS), run=tmp_path / "run", **CLASSIFY)
    assert calls[0] == (str(tmp_path / "run.data" / "train.jsonl"), tmp_path / "run", [])
    assert calls[1][:2] == calls[0][:2]
    assert calls[1][2] == [tmp_path / "run.data"]


def test_lines_of_the_progress_name_arguments(capfd):
    regard.train("classify", (TEXTS, LABELS), **{**CLASSIFY, "quiet": False, "epochs": 500, "max_minutes": 0.0001})
    assert "--" not in capfd.readouterr().err


def stored(task, data, folder, options=None):
    """The rows that a task reads of data in memory."""
    kind = registry.find(task)
    path, data = prepared(kind, data, folder / "train", "train", options or {})
    store(kind, data, folder / "train", "train", options or {})
    return kind.input.open(path, (), type("Data", (), {"lowercase": False}))


def test_images_of_pillow_have_the_colours_that_they_show(tmp_path):
    from PIL import Image

    red = Image.new("RGB", (6, 4), (255, 0, 0))
    turned = red.copy()
    turned.getexif()[0x0112] = 6
    images = [red, red.convert("P"), red.convert("CMYK"), turned, np.full((4, 6, 1), 9, np.uint8)]
    rows = stored("images", (images, ["a"] * 5), tmp_path)
    pixels = [row.picture.pixels() for row in rows]
    for number in range(3):
        assert pixels[number].shape == (4, 6, 3)
        assert np.abs(pixels[number].astype(int) - [255, 0, 0]).max() < 3
    assert pixels[3].shape == (6, 4, 3)
    assert np.all(pixels[4] == 9)
    with pytest.raises(KindError, match=r"train\[0\]: image .*its channels must be last"):
        stored("images", ([np.zeros((3, 8, 9), np.uint8)], ["a"]), tmp_path)


def test_masks_are_classes_of_any_integer(tmp_path):
    from PIL import Image

    pixels, mask = np.zeros((4, 6, 3), np.uint8), np.arange(24).reshape(4, 6)
    palette = Image.fromarray(mask.astype(np.uint8)).convert("P")
    palette.putpalette([7] * 768)
    for one in (mask, torch.tensor(mask), palette, mask.astype(np.uint16)):
        (row,) = stored("segment", [(pixels, one)], tmp_path)
        assert np.array_equal(row.load().classes, mask)
    with pytest.raises(KindError, match="from 0 to 2300"):
        stored("segment", [(pixels, mask * 100)], tmp_path)


def test_samples_with_their_rate_are_a_sound(tmp_path):
    from regard.data.speech.sounds import read_sound

    samples = np.linspace(-0.5, 0.5, 800, dtype=np.float32)
    waves = [{"array": samples, "sampling_rate": 8000}, {"array": samples.tolist(), "sampling_rate": 8000}]
    for data in ((waves, ["a", "b"]), [{"label": label, "audio": one} for label, one in zip("ab", waves, strict=True)]):
        rows = stored("sounds", data, tmp_path)
        assert [row.text for row in rows] == ["a", "b"]
        sound = read_sound(rows[1].path)
        assert sound.rate == 8000
        assert np.array_equal(sound.samples, samples)
    with pytest.raises(KindError, match=r"'sampling_rate'.*samples need their rate"):
        stored("sounds", ([samples], ["a"]), tmp_path)


def test_samples_need_soundfile(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(MissingPartError, match="soundfile"):
        stored("sounds", ([{"array": np.zeros(8, np.float32), "sampling_rate": 8000}], ["a"]), tmp_path)


def test_dictionaries_of_images_name_their_column(tmp_path):
    rows = stored("images", [{"id": 3, "label": "a", "picture": PIXELS[1]}], tmp_path)
    assert rows[0].picture.pixels().max() == 20
    with pytest.raises(ArgumentError, match="train has no column photo; it has image, label"):
        stored("images", [{"image": PIXELS[0], "label": "a"}], tmp_path, {"image_column": "photo"})


@pytest.mark.parametrize(
    "data",
    [
        ["one text", "another"],
        [{"text": "one text", "id": 1}, {"text": "another", "id": 2}],
        {"body": ["one text", "another"]},
        datasets.Dataset.from_dict({"text": ["one text", "another"]}),
    ],
)
def test_running_text_is_in_a_column(data, tmp_path):
    assert [file.read_text() for file in stored("language", data, tmp_path)] == ["one text", "another"]


def test_running_text_without_a_known_column(tmp_path):
    with pytest.raises(KindError, match=r"train\[0\] must have one column, or a column text; it has a, b"):
        stored("language", [{"a": "x", "b": "y"}], tmp_path)


def test_messages_name_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "run.data" / "train.jsonl")
    with stored_names({"train": path, "test": str(tmp_path / "run.data" / "test")}) as renamed:
        assert renamed(f"{path}: row 3: {path[:-6]}-000012-1.png: truncated") == "train: row 3: train[12]: truncated"
        assert renamed("run.data/test/00000007.txt: empty; raise --max-minutes") == "test[7]: empty; raise max_minutes"
        assert renamed("run.data/train-000003-0.npy") == "train[3]"
        assert renamed("run.data/training.txt") == "run.data/training.txt"
        assert renamed("continue: regard train x --resume") == "continue: regard train x --resume"


def test_the_test_data_are_called_test():
    run = regard.train("classify", (TEXTS, LABELS), test=RECORDS, **CLASSIFY)
    assert run.evaluate().data == "test"
