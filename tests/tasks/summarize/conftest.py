"""Fixtures of tests that train a summarizer: a corpus and the configuration of a tiny run."""

import pytest

from regard.data.text.articles import write_articles
from regard.tasks.summarize import PointerConfig, SummarizeData, SummaryTrainingConfig
from regard.training.config import RunConfig

MODELS = {
    "recurrent": {"embedding": 6, "hidden": 10},
    "transformer": {
        "architecture": "transformer", "hidden": 12, "heads": 2, "feedforward": 13,
        "encoder_layers": 1, "decoder_layers": 1,
    },
}  # fmt: skip


@pytest.fixture(scope="session")
def articles(tmp_path_factory):
    """The files of a corpus of 60 articles."""
    return write_articles(tmp_path_factory.mktemp("articles"), {"train": 60, "validation": 7, "test": 11}, 7)


@pytest.fixture(scope="session")
def tiny_summary(articles):
    """Makes the configuration of a run of two short epochs."""

    def make(kind="recurrent", model=None, data=None, **training):
        chosen = {
            "epochs": 2, "tokens_per_batch": 500, "learning_rate": 0.01, "schedule": "cosine", "warmup": 3,
            "threads": 1, "accelerator": "cpu",
        }  # fmt: skip
        sources = {"train": str(articles["train"]), "validation": str(articles["validation"])}
        return RunConfig(
            "summarize",
            SummarizeData(**sources | {"max_summary": 30, "max_length": 60} | (data or {})),
            PointerConfig(**MODELS[kind] | {"dropout": 0.2} | (model or {})),
            SummaryTrainingConfig(**chosen | training),
        )

    return make
