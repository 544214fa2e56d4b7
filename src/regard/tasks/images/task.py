"""The task ``images``."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.tasks.images import config
from regard.tasks.run_files import PARTS
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Metric, Task

if TYPE_CHECKING:
    from regard.tasks.images.trained_classifier import TrainedImageClassifier

ImageRun = RunConfig[config.DataConfig, config.ModelConfig, config.ImageTrainingConfig]
"""The configuration of a run that trains a classifier of images."""


class ImagesTask(Task):
    """Telling the labels of images."""

    name = "images"
    input_kind = "image"
    summary = "Tell the label of an image: a Vision Transformer, or a convolutional network with SE or CBAM."
    metrics = (Metric("accuracy", "accuracy", digits=4), Metric("macro_f1", "macro F1", digits=4))
    files = ("labels.json", *(f"corpus/{part}.jsonl" for part in PARTS))
    results = ("evaluation-*.tsv", "pictures/confusion-*.png", "pictures/image-*.png", "corpus/test-[0-9]*.png")
    data_config = config.DataConfig
    model_config = config.ModelConfig
    training_config = config.ImageTrainingConfig
    prediction_config = config.PredictionConfig
    evaluation_config = config.EvaluationConfig

    def prepare(self, config: ImageRun, folder: RunFolder) -> Experiment:
        from regard.tasks.images.experiment import ImageExperiment

        return ImageExperiment(config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> "TrainedImageClassifier":
        from regard.tasks.images.trained_classifier import TrainedImageClassifier

        return TrainedImageClassifier(folder, device)

    def data_files(self, folder: RunFolder, config: ImageRun) -> dict[str, tuple[Path, ...]]:
        from regard.tasks.image_corpora import located_images

        return located_images(folder, config.data)

    def test_data(self, folder: RunFolder, config: ImageRun) -> str | None:
        from regard.tasks.image_corpora import image_test_source

        return image_test_source(folder, config.data)

    def run_name(self, config: ImageRun) -> str:
        return f"{self.name}-{config.model.network}"


def labels_path(folder: RunFolder) -> Path:
    """The names of the labels in a run folder, in the order of the model's outputs."""
    return folder.file("labels.json")


TASK = ImagesTask()
