"""The task ``language``."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.tasks.language import config
from regard.tasks.run_files import PARTS, bundled_path
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Metric, Task

if TYPE_CHECKING:
    from regard.tasks.language.trained_language_model import TrainedLanguageModel

SUFFIX = ".txt"
"""End of the names of the bundled text's files."""

LanguageRun = RunConfig[config.DataConfig, config.ModelConfig, config.LanguageTrainingConfig]
"""The configuration of a run that trains a language model."""


class LanguageTask(Task):
    """Modelling running text."""

    name = "language"
    summary = "Predict the next token of running text: a decoder-only Transformer."
    metrics = (
        Metric("bits_per_byte", "bits/byte", higher_is_better=False, digits=4),
        Metric("perplexity", "perplexity", higher_is_better=False),
    )
    files = ("tokenizer.json", *(f"corpus/{part}{SUFFIX}" for part in PARTS))
    results = ("pictures/attention-[0-9]*.png",)
    data_config = config.DataConfig
    model_config = config.ModelConfig
    training_config = config.LanguageTrainingConfig
    prediction_config = config.PredictionConfig
    evaluation_config = config.EvaluationConfig

    def prepare(self, config: LanguageRun, folder: RunFolder) -> Experiment:
        from regard.tasks.language.experiment import LanguageExperiment

        return LanguageExperiment(config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> "TrainedLanguageModel":
        from regard.tasks.language.trained_language_model import TrainedLanguageModel

        return TrainedLanguageModel(folder, device)

    def data_files(self, folder: RunFolder, config: LanguageRun) -> dict[str, tuple[Path, ...]]:
        from regard.tasks.language.corpus import located_text

        # The test text decides nothing about a model, and may be another one with --resume.
        sources = {part: getattr(config.data, part) for part in ("train", "validation")}
        return {part: located_text(folder, source) for part, source in sources.items() if source is not None}

    def test_data(self, folder: RunFolder, config: LanguageRun) -> str | list[Path] | None:
        from regard.tasks.language.corpus import located_text

        if config.data.test is not None:
            return list(located_text(folder, config.data.test))
        return str(bundled_path(folder, "test", SUFFIX)) if config.data.bundled else None

    def run_name(self, config: LanguageRun) -> str:
        return f"{self.name}-{config.data.tokenizer}"


TASK = LanguageTask()
