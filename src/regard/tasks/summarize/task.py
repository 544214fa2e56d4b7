"""The task ``summarize``."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.tasks.run_files import PARTS
from regard.tasks.summarize import config
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Metric, Task

if TYPE_CHECKING:
    from regard.tasks.summarize.trained_summarizer import TrainedSummarizer

SummaryRun = RunConfig[config.DataConfig, config.ModelConfig, config.SummaryTrainingConfig]
"""The configuration of a run that trains a summarizer."""


class SummarizeTask(Task):
    """Summarizing text."""

    name = "summarize"
    summary = "Summarize text: a recurrent network or a Transformer that can copy words of the article."
    metrics = (Metric("rouge_l", "ROUGE-L"), Metric("rouge_1", "ROUGE-1"), Metric("rouge_2", "ROUGE-2"))
    files = ("tokenizer.json", *(f"corpus/{part}.tsv" for part in PARTS))
    results = ("evaluation-*.txt", "pictures/alignment-[0-9]*.png")
    data_config = config.DataConfig
    model_config = config.ModelConfig
    training_config = config.SummaryTrainingConfig
    prediction_config = config.PredictionConfig
    evaluation_config = config.EvaluationConfig

    def prepare(self, config: SummaryRun, folder: RunFolder) -> Experiment:
        from regard.tasks.summarize.experiment import SummaryExperiment

        return SummaryExperiment(config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> "TrainedSummarizer":
        from regard.tasks.summarize.trained_summarizer import TrainedSummarizer

        return TrainedSummarizer(folder, device)

    def data_files(self, folder: RunFolder, config: SummaryRun) -> dict[str, tuple[Path, ...]]:
        from regard.tasks.run_data import located_files

        # The test data decide nothing about a model, and may be others with --resume.
        return located_files(folder, {part: getattr(config.data, part) for part in ("train", "validation")})

    def test_data(self, folder: RunFolder, config: SummaryRun) -> str | None:
        from regard.tasks.run_data import test_source

        return test_source(folder, config.data)

    def run_name(self, config: SummaryRun) -> str:
        return f"{self.name}-{config.model.model}"


TASK = SummarizeTask()
