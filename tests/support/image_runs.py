"""Tiny trained runs on generated scenes, of the tasks on images."""

import pytest

from regard.tasks import registry
from regard.tasks.caption import CaptionData, CaptionTrainingConfig
from regard.tasks.caption import CaptionerConfig as CaptionModel
from regard.tasks.images import ImageClassifierConfig as ImageModel
from regard.tasks.images import ImagesData as ImageData
from regard.tasks.images import ImageTrainingConfig
from regard.training import run
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run_folder import RunFolder
from shared_folders import shared_folder

SHORT = {"epochs": 2, "learning_rate": 0.01, "threads": 1, "accelerator": "cpu", "batch_size": 5}
NETWORK = {"grid": 8, "stages": 2, "patch": 8, "dropout": 0.1}

CAPTIONERS = {
    "caption-soft": {"embedding": 7, "hidden": 9, "doubly_stochastic": 0.1},
    "caption-hard": {"attention": "hard", "embedding": 7, "hidden": 9},
    "caption-none": {"attention": "none", "embedding": 7, "hidden": 9},
    "caption-transformer": {
        "architecture": "transformer",
        "gate": "global_context",
        "hidden": 8,
        "heads": 2,
        "feedforward": 11,
    },
}
CLASSIFIERS = {
    "images-vit": {"hidden": 8, "layers": 2, "heads": 2},
    "images-vit-pooled": {"hidden": 8, "layers": 1, "heads": 2, "pooling": "attention"},
    "images-se": {"architecture": "cnn", "gate": "se", "grid": 16, "stages": 1, "patch": 8},
    "images-pooled": {
        "architecture": "cnn",
        "gate": "global_context",
        "grid": 16,
        "stages": 1,
        "patch": 8,
        "pooling": "attention",
    },
}


def config_of(name, **training):
    """The configuration of a run, by its name here."""
    if name == "caption-transformer":
        training = {"epochs": 15, "learning_rate": 0.02, "patience": 0, **training}  # until it says something
    if name in CAPTIONERS:
        model = CaptionModel(**NETWORK, **CAPTIONERS[name])
        data = CaptionData(bundled=23, max_length=11)
        return RunConfig("caption", data, model, CaptionTrainingConfig(**{**SHORT, "jitter": 0.1, **training}))
    model = ImageModel(**CLASSIFIERS[name], dropout=0.1)
    return RunConfig("images", ImageData(bundled=53), model, ImageTrainingConfig(**{**SHORT, "flip": True, **training}))


def train_run(config, path, resume=False, reporter=None):
    folder = RunFolder.open(path) if resume else RunFolder.create(path)
    task, reporter = registry.find(config.task), reporter or SilentReporter()
    return run.train_run(task, config, folder, resume=resume, reporter=reporter)


@pytest.fixture
def small_corpora(monkeypatch):
    """Validation and test parts of the bundled corpora are small."""
    for name in registry.names():
        generated = registry.find(name).input.generated
        monkeypatch.setattr(generated, "validation", 7)
        monkeypatch.setattr(generated, "test", 7)


@pytest.fixture
def image_run(small_corpora, tmp_path_factory):
    """The folder of a trained run, by its name here; no test changes it."""

    def make(name):
        return shared_folder(tmp_path_factory, f"image-runs/{name}", lambda path: train_run(config_of(name), path))

    return make
