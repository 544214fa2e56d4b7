"""`regard.train`: every task from Python, on data in memory of every form; errors speak of arguments."""

import logging

import datasets
import numpy as np
import pytest
import torch

import regard
from regard.errors import ArgumentError, DataError, KindError, RunError

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
    assert "train: left out 1 rows" in caplog.text


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
    "summarize": ((["a b c d"] * 12, ["a b"] * 12), "a b c d", TEXT),
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
    ],
)
def test_errors_speak_of_arguments(data, options, error, words):
    with pytest.raises(error, match=words) as raised:
        regard.train("classify", data, **{**CLASSIFY, **options})
    assert "--" not in str(raised.value)
    assert "/" not in str(raised.value)
