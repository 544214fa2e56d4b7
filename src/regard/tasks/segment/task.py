"""The task ``segment``."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.tasks.run_files import PARTS, bundled_path
from regard.tasks.segment import config
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Metric, Task

if TYPE_CHECKING:
    from regard.tasks.segment.trained_segmenter import TrainedSegmenter

SegmentationRun = RunConfig[config.DataConfig, config.ModelConfig, config.SegmentationTrainingConfig]
"""The configuration of a run that trains a segmentation."""


class SegmentTask(Task):
    """Telling the class of each pixel of images."""

    name = "segment"
    input_kind = "image"
    summary = "Tell the class of each pixel: a small network with channel, position and fusion attention."
    metrics = (Metric("mean_iou", "mean IoU", digits=4), Metric("pixel_accuracy", "pixel accuracy", digits=4))
    files = ("classes.json", *(f"corpus/{part}.tsv" for part in PARTS))
    results = ("pictures/confusion-*.png", "pictures/segments-*.png", "corpus/test-[0-9]*.png")
    data_config = config.DataConfig
    model_config = config.ModelConfig
    training_config = config.SegmentationTrainingConfig
    prediction_config = config.PredictionConfig
    evaluation_config = config.EvaluationConfig

    def prepare(self, config: SegmentationRun, folder: RunFolder) -> Experiment:
        from regard.tasks.segment.experiment import SegmentationExperiment

        return SegmentationExperiment(config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> "TrainedSegmenter":
        from regard.tasks.segment.trained_segmenter import TrainedSegmenter

        return TrainedSegmenter(folder, device)

    def data_files(self, folder: RunFolder, config: SegmentationRun) -> dict[str, tuple[Path, ...]]:
        from regard.data.images.masked_images import source_files

        # The test data decide nothing about a model, and may be others with --resume.
        found = {part: part_source(folder, config, part) for part in ("train", "validation")}
        return {
            part: tuple(source_files(source))
            for part, source in found.items()
            if source is not None and getattr(config.data, part) is not None
        }

    def test_data(self, folder: RunFolder, config: SegmentationRun) -> str | None:
        return part_source(folder, config, "test")

    def run_name(self, config: SegmentationRun) -> str:
        return f"{self.name}-{'attention' if config.model.attends else 'plain'}"


def classes_path(folder: RunFolder) -> Path:
    """The classes in a run folder, in the order of the model's outputs."""
    return folder.file("classes.json")


def part_source(folder: RunFolder, config: SegmentationRun, part: str) -> str | None:
    """Where a part of a run's data is, so that it is found from any working directory; None: there is none.

    Args:
        folder: the run folder, which has the tables of the bundled corpus.
        config: the configuration of the run.
        part: ``"train"``, ``"validation"`` or ``"test"``.
    """
    given = getattr(config.data, part)
    if given is None:
        return str(bundled_path(folder, part)) if config.data.bundled else None
    return folder.manifest.resolve(given)


TASK = SegmentTask()
