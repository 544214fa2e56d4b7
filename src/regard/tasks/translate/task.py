"""The task ``translate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.tasks.run_files import PARTS
from regard.tasks.translate import config
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Metric, Task

if TYPE_CHECKING:
    from regard.tasks.translate.trained_translator import TrainedTranslator

TranslationRun = RunConfig[config.DataConfig, config.ModelConfig, config.TranslationTrainingConfig]
"""The configuration of a run that trains a translator."""


class TranslateTask(Task):
    """Translating text."""

    name = "translate"
    summary = "Translate text: a Transformer, or a recurrent translator with or without attention."
    metrics = (Metric("bleu", "BLEU"), Metric("chrf", "chrF"))
    files = ("tokenizer-source.json", "tokenizer-target.json", *(f"corpus/{part}.tsv" for part in PARTS))
    results = ("evaluation-*.txt", "pictures/alignment-[0-9]*.png", "pictures/bleu-by-length-*.png",
               "pictures/translations.html")  # fmt: skip
    data_config = config.DataConfig
    model_config = config.ModelConfig
    training_config = config.TranslationTrainingConfig
    prediction_config = config.PredictionConfig
    evaluation_config = config.EvaluationConfig

    def prepare(self, config: TranslationRun, folder: RunFolder) -> Experiment:
        from regard.tasks.translate.experiment import TranslationExperiment

        return TranslationExperiment(config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> "TrainedTranslator":
        from regard.tasks.translate.trained_translator import TrainedTranslator

        return TrainedTranslator(folder, device)

    def data_files(self, folder: RunFolder, config: TranslationRun) -> dict[str, tuple[Path, ...]]:
        from regard.tasks.run_data import located_files

        # The test data decide nothing about a model, and may be others with --resume.
        return located_files(folder, {part: getattr(config.data, part) for part in ("train", "validation")})

    def test_data(self, folder: RunFolder, config: TranslationRun) -> str | None:
        from regard.tasks.run_data import test_source

        return test_source(folder, config.data)

    def run_name(self, config: TranslationRun) -> str:
        return f"{self.name}-{config.model.attention}"

    def upgraded(self, sections: dict[str, Any]) -> dict[str, Any]:
        return config.upgraded(sections)


TASK = TranslateTask()
