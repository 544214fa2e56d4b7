"""Fixtures of tests that train a translator: a corpus, a cache of their own, and the configuration of a tiny run."""

import datasets
import pytest
import torch

from regard.data.text.generated import write_corpus
from regard.tasks.translate import TranslateData, TranslationTrainingConfig, TranslatorConfig
from regard.training.config import RunConfig

SIZES = {"train": 150, "validation": 11, "test": 13}
MODEL = {"embedding": 6, "hidden": 10, "dropout": 0.2}


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
def same_threads():
    """The number of threads is as before the test."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny(corpus):
    """Makes the configuration of a run of two short epochs."""

    def make(model=None, **training):
        data = TranslateData(
            train=str(corpus["train"]), validation=str(corpus["validation"]), source_column="english",
            target_column="spanish", tokenizer="word", vocabulary=300,
        )  # fmt: skip
        chosen = {
            "epochs": 2, "tokens_per_batch": 200, "learning_rate": 0.01, "schedule": "cosine", "warmup": 3,
            "scheduled_sampling": 0.2, "threads": 1, "accelerator": "cpu",
        }  # fmt: skip
        options = {**MODEL, **(model or {})}
        if options.get("architecture") == "transformer":
            del options["embedding"]
        return RunConfig("translate", data, TranslatorConfig(**options), TranslationTrainingConfig(**chosen | training))

    return make
