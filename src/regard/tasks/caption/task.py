"""The task ``caption``."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.tasks.caption import config
from regard.tasks.run_files import PARTS
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Metric, Task

if TYPE_CHECKING:
    from regard.tasks.caption.trained_captioner import TrainedCaptioner

CaptionRun = RunConfig[config.DataConfig, config.ModelConfig, config.CaptionTrainingConfig]
"""The configuration of a run that trains a captioner."""


class CaptionTask(Task):
    """Saying in words what an image shows."""

    name = "caption"
    input_kind = "image"
    summary = "Say in words what an image shows: soft or hard attention to its parts, or a Transformer."
    # CIDEr first: BLEU-4 is exactly 0 as long as no four words in a row are right, and would choose the first model.
    metrics = (Metric("cider", "CIDEr", digits=3), Metric("bleu4", "BLEU-4"), Metric("bleu1", "BLEU-1"))
    files = ("tokenizer.json", *(f"corpus/{part}.jsonl" for part in PARTS))
    results = ("evaluation-*.tsv", "pictures/caption-*.png", "corpus/test-[0-9]*.png")
    data_config = config.DataConfig
    model_config = config.ModelConfig
    training_config = config.CaptionTrainingConfig
    prediction_config = config.PredictionConfig
    evaluation_config = config.EvaluationConfig

    def prepare(self, config: CaptionRun, folder: RunFolder) -> Experiment:
        from regard.tasks.caption.experiment import CaptionExperiment

        return CaptionExperiment(config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> "TrainedCaptioner":
        from regard.tasks.caption.trained_captioner import TrainedCaptioner

        return TrainedCaptioner(folder, device)

    def data_files(self, folder: RunFolder, config: CaptionRun) -> dict[str, tuple[Path, ...]]:
        from regard.tasks.image_corpora import located_images

        return located_images(folder, config.data)

    def test_data(self, folder: RunFolder, config: CaptionRun) -> str | None:
        from regard.tasks.image_corpora import image_test_source

        return image_test_source(folder, config.data)

    def run_name(self, config: CaptionRun) -> str:
        return f"{self.name}-{config.model.attention}"


TASK = CaptionTask()
