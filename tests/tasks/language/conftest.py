"""A text, and a run that is trained on it."""

import pytest

from regard.tasks.language import TASK, LanguageData, LanguageModelConfig, LanguageTrainingConfig
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder

TEXT = "The old owl sat in an oak.\nThe more it saw, the less it spoke;\n\n\tthe less it spoke, the more it heard.\r\n"


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A training text and a validation text."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.txt").write_bytes((TEXT * 40).encode())
    (folder / "validation.txt").write_bytes((TEXT[10:] * 4).encode())
    return folder


@pytest.fixture(scope="session")
def small(texts):
    """Makes the configuration of a small run."""

    def make(data=None, model=None, **training):
        sections = {
            "data": {"train": f"{texts}/train.txt", "validation": f"{texts}/validation.txt", "tokenizer": "char"},
            "model": {"context": 13, "layers": 2, "hidden": 16, "heads": 2, "dropout": 0.1},
            "training": {
                "batch_size": 5, "epochs": 3, "steps_per_epoch": 7, "learning_rate": 0.01, "schedule": "cosine",
                "warmup": 3, "threads": 1, "accelerator": "cpu", "patience": 0,
            },
        }  # fmt: skip
        return RunConfig(
            "language",
            LanguageData(**sections["data"] | (data or {})),
            LanguageModelConfig(**sections["model"] | (model or {})),
            LanguageTrainingConfig(**sections["training"] | training),
        )

    return make


@pytest.fixture(scope="session")
def train():
    """Trains in a run folder, silently."""

    def call(config, path, *, resume=False, reporter=None):
        folder = RunFolder.open(path) if resume else RunFolder.create(path)
        return train_run(TASK, config, folder, resume=resume, reporter=reporter or SilentReporter())

    return call


@pytest.fixture(scope="session")
def run(small, train, tmp_path_factory):
    """The folder of a trained run, which no test changes."""
    path = tmp_path_factory.mktemp("runs") / "small"
    train(small(), path)
    return path
