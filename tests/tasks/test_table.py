"""A task is an input and an output: files import in one direction, and an empty cell of the table can be filled."""

import ast
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import regard.tasks
from regard.data.labels import Labels
from regard.tasks.inputs.sound import SoundInput, SoundOptions, SoundTraining
from regard.tasks.outputs.mask import MaskTask, MaskTraining
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder

ROOM = Path(regard.tasks.__file__).parent
CLASSES, WIDTH = ("high", "low", "silent"), 5


def imports(file):
    """The files of the room that a file imports, at module level, in functions, or for annotations."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard.tasks"):
            below = node.module.split(".")[2:]
            names = [[*below, alias.name] for alias in node.names]
            for path in (ROOM.joinpath(*parts).with_suffix(".py") for parts in [below, *names] if parts):
                if path.is_file():
                    yield path


def test_no_files_import_each_other_in_a_circle():
    imported = {file: set(imports(file)) for file in ROOM.rglob("*.py")}
    assert any(imported.values())
    while imported:
        lowest = {file for file, below in imported.items() if not below & imported.keys()}
        assert lowest, f"a circle: {sorted(str(file.relative_to(ROOM)) for file in imported)}"
        imported = {file: below for file, below in imported.items() if file not in lowest}


# The cell sound → mask: the class of each frame. It needs options, a model, and the names of the classes.


@dataclass(frozen=True)
class FrameModel:
    """The model of a run."""

    hidden: int = 12
    """Channels."""


@dataclass(frozen=True)
class FrameTraining(SoundTraining, MaskTraining):
    """How the model is trained."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model."""

    width: int
    reduction: int = 1


class FrameNetwork(nn.Module):
    """A class for each frame, from the frames beside it."""

    def __init__(self, hidden, classes):
        super().__init__()
        self.config = Sizes(WIDTH)
        self.layers = nn.Sequential(
            nn.Conv1d(WIDTH, hidden, 3, padding=1), nn.ReLU(), nn.Conv1d(hidden, classes, 3, padding=1)
        )

    def forward(self, features, lengths):
        return self.layers(features.transpose(1, 2))


class FrameClasses(Labels):
    """The names of classes; a text names the class of each frame."""

    def encode_batch(self, texts):
        return [[self.number(word) for word in text.split()] for text in texts]


@dataclass(frozen=True)
class FrameOptions(SoundOptions):
    """The sounds of a run, and the column of their texts."""

    text_column: str | None = None
    columns = ("sound_column", "text_column")


class FramesTask(MaskTask):
    """Telling the class of each frame of a sound."""

    name = "frames"
    summary = "Tell the class of each frame."
    input = SoundInput()
    data_config = FrameOptions
    model_config = FrameModel
    training_config = FrameTraining

    def loaders(self):
        return {"classes": ("classes.json", FrameClasses.load)}

    def learn(self, run, folder, rows, held_out):
        words = {word for text in self.input.targets(rows) for word in text.split()}
        classes = FrameClasses.of(words, run.data.train)
        classes.save(folder.file("classes.json"))
        return {"classes": classes}

    def build_model(self, run, files, train):
        return FrameNetwork(run.model.hidden, len(files["classes"]))


TASK = FramesTask()


@pytest.fixture
def files(tmp_path):
    """Tables of sounds whose frames are high, low or silent."""
    patterns = np.eye(WIDTH, dtype=np.float32)[: len(CLASSES)] * 2
    found = {}
    for part, size in (("train", 30), ("validation", 6), ("test", 7)):
        random = np.random.default_rng([5, size])
        lines = ["audio\ttext\n"]
        for number in range(size):
            classes = random.integers(0, len(CLASSES), random.integers(3, 7)).repeat(4)
            features = patterns[classes] + 0.1 * random.normal(size=(len(classes), WIDTH)).astype(np.float32)
            np.save(tmp_path / f"{part}-{number}.npy", features.astype(np.float32))
            lines.append(f"{part}-{number}.npy\t{' '.join(CLASSES[one] for one in classes)}\n")
        found[part] = tmp_path / f"{part}.tsv"
        found[part].write_text("".join(lines))
    return found


def test_an_empty_cell_is_filled_from_outside(files, tmp_path):
    config = RunConfig(
        "frames",
        FrameOptions(train=str(files["train"]), validation=str(files["validation"]), sound_column="audio",
                     text_column="text"),
        FrameModel(),
        FrameTraining(epochs=4, batch_size=4, learning_rate=0.02, threads=1, accelerator="cpu", class_weights="root"),
    )  # fmt: skip
    train_run(TASK, config, RunFolder.create(tmp_path / "run"), reporter=SilentReporter())
    folder = RunFolder.open(tmp_path / "run")
    rows = folder.read_metrics()
    assert rows[-1]["val_mean_iou"] > 0.8
    assert folder.read_samples()[-1].keys() == {"step", "source", "right", "found"}
    trained = TASK.load(folder)
    paths = [files["test"].parent / f"test-{number}.npy" for number in range(3)]
    found = trained.predict(paths, batch_size=2)
    assert [one.source for one in found] == paths
    assert [len(one.classes) for one in found] == [len(np.load(path)) for path in paths]
    assert sum(found[0].shares.values()) == pytest.approx(1, abs=1e-3)
    measured = trained.evaluate(str(files["test"]), limit=5)
    assert measured.images == 5
    assert measured.pixel_accuracy > 0.8
    frames = [len(np.load(files["test"].parent / f"test-{number}.npy")) for number in range(5)]
    assert sum(map(sum, measured.confusion)) == sum(frames)
    assert {path.suffix for path in measured.write(folder, "test")} == {".json", ".png"}
    assert trained.evaluate(str(files["test"])).lines()[0].startswith(f"{files['test']}: 7 sounds · mean IoU ")
