import datasets
import pytest
import torch

from regard.data.generated import write_corpus
from regard.training.config import DataConfig, RunConfig, TrainingConfig

SIZES = {"train": 150, "validation": 11, "test": 13}
MODEL = {"embedding_dim": 6, "hidden_dim": 10, "dropout": 0.2}


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """The files of a corpus of 150 pairs."""
    return write_corpus(tmp_path_factory.mktemp("corpus"), SIZES, 7)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """These tests cache their tables in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(autouse=True)
def _same_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny(corpus):
    """Makes the configuration of a run of two short epochs."""

    def make(model=None, **training):
        data = DataConfig(
            train=str(corpus["train"]), validation=str(corpus["validation"]), source_column="english",
            target_column="spanish", tokenizer="word", vocabulary=300,
        )  # fmt: skip
        chosen = {
            "epochs": 2, "tokens_per_batch": 200, "learning_rate": 0.01, "schedule": "cosine", "warmup": 3,
            "scheduled_sampling": 0.2, "threads": 1, "accelerator": "cpu",
        }  # fmt: skip
        return RunConfig(data, TrainingConfig(**{**chosen, **training}), {**MODEL, **(model or {})})

    return make


@pytest.fixture(scope="session")
def train():
    """Trains in a run folder, silently."""
    from regard.training.reporter import SilentReporter
    from regard.training.run_folder import RunFolder
    from regard.training.translation import train_translation

    def call(config, path, *, overwrite=False, resume=False, reporter=None, **options):
        folder = RunFolder.open(path) if resume else RunFolder.create(path, overwrite)
        return train_translation(config, folder, resume=resume, reporter=reporter or SilentReporter(), **options)

    return call


@pytest.fixture(scope="session")
def signal_at():
    """A reporter that sends a signal to its own process when a step has been reported so many times."""
    import os

    from regard.training.reporter import SilentReporter

    class SignalAt(SilentReporter):
        def __init__(self, step, number):
            self.left, self.number = step, number

        def step(self, fraction, text):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), self.number)

    return SignalAt
