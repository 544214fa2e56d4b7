"""Tiny trained runs of every task, made when a test asks for one."""

import pytest

from regard.data.text.articles import write_articles
from regard.data.text.reviews import write_reviews
from regard.tasks import registry
from regard.tasks.classify import ClassificationTrainingConfig
from regard.tasks.classify import ClassifyData as ClassificationData
from regard.tasks.classify import TextClassifierConfig as ClassifierModel
from regard.tasks.language import LanguageData, LanguageTrainingConfig
from regard.tasks.language import LanguageModelConfig as LanguageModel
from regard.tasks.summarize import PointerConfig as SummaryModel
from regard.tasks.summarize import SummarizeData as SummaryData
from regard.tasks.summarize import SummaryTrainingConfig
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder
from shared_folders import shared_folder

LARGER = {"embedding": 24, "hidden": 32, "dropout": 0.0}

TRANSFORMER = {"hidden": 24, "heads": 2, "feedforward": 16, "encoder_layers": 2, "decoder_layers": 3}

TRANSLATORS = {
    "none": {"attention": "none"},
    "bahdanau": {"attention": "bahdanau"},
    "luong": {"attention": "luong"},
    "luong-at-once": {"attention": "luong", "input_feeding": False, "score": "dot"},
    "local": {"attention": "luong", "scope": "local-p", "window": 2},
    "hard": {"attention": "hard"},
    "transformer": {"architecture": "transformer", **TRANSFORMER},
    "learned": {"architecture": "transformer", "position": "learned", **TRANSFORMER},
}  # fmt: skip

CLASSIFIERS = {
    "classify": {"embedding": 8, "hidden": 8, "pooling_heads": 3},
    "classify-transformer": {"architecture": "transformer", "hidden": 8, "heads": 2, "layers": 2, "window": 2},
    "classify-hierarchical": {"architecture": "hierarchical", "embedding": 8, "hidden": 8},
    "classify-mean": {"embedding": 8, "hidden": 8, "pooling": "mean"},
}  # fmt: skip

SUMMARIZERS = {
    "summarize": {"embedding": 6, "hidden": 10},
    "summarize-transformer": {
        "architecture": "transformer", "hidden": 12, "heads": 2, "feedforward": 13,
        "encoder_layers": 1, "decoder_layers": 2,
    },
}  # fmt: skip

TEXT = "The old owl sat in an oak.\nThe more it saw, the less it spoke;\n\n\tthe less it spoke, the more it heard.\r\n"

SHORT = {"epochs": 1, "learning_rate": 0.01, "threads": 1, "accelerator": "cpu"}


@pytest.fixture(scope="session")
def run_of(tiny, tmp_path_factory):
    """The folder of a trained run, by its name here; no test changes it."""

    def make(name):
        def train(path):
            config = _config(name, tiny, tmp_path_factory)
            train_run(registry.find(config.task), config, RunFolder.create(path), reporter=SilentReporter())

        return shared_folder(tmp_path_factory, f"page-runs/{name}", train)

    return make


def _config(name, tiny, folders):
    if name in TRANSLATORS:
        sampling = 0.0 if "heads" in TRANSLATORS[name] else 0.2
        # Trained until its translations have words, and validated once, at the end.
        larger = {"dropout": 0.0} if "heads" in TRANSLATORS[name] else LARGER
        training = {"epochs": 6, "validate_every": 1000, "learning_rate": 0.02, "scheduled_sampling": sampling}
        return tiny(model=larger | TRANSLATORS[name], **training)
    folder = folders.mktemp("page-data")
    if name in CLASSIFIERS:
        files = write_reviews(folder, {"train": 90, "validation": 20, "test": 10}, 3)
        data = ClassificationData(train=str(files["train"]), validation=str(files["validation"]), vocabulary=300)
        model = ClassifierModel(**CLASSIFIERS[name], dropout=0.1)
        return RunConfig("classify", data, model, ClassificationTrainingConfig(**SHORT, batch_size=32))
    if name in SUMMARIZERS:
        files = write_articles(folder, {"train": 40, "validation": 7, "test": 5}, 7)
        data = SummaryData(
            train=str(files["train"]), validation=str(files["validation"]), max_summary=30, max_length=60
        )
        model = SummaryModel(**SUMMARIZERS[name], dropout=0.1)
        return RunConfig("summarize", data, model, SummaryTrainingConfig(**SHORT, tokens_per_batch=500))
    for part, times in (("train", 30), ("validation", 3)):
        (folder / f"{part}.txt").write_bytes((TEXT * times).encode())
    kind = name.removeprefix("language-")
    data = LanguageData(
        train=f"{folder}/train.txt", validation=f"{folder}/validation.txt", tokenizer=kind, vocabulary=290
    )
    model = LanguageModel(context=23, layers=2, hidden=16, heads=2, dropout=0.1)
    return RunConfig(
        "language", data, model, LanguageTrainingConfig(**SHORT, batch_size=5, steps_per_epoch=5, patience=0)
    )
