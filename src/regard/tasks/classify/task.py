"""The task ``classify``."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.tasks.classify import config
from regard.tasks.run_files import PARTS
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Metric, Task

if TYPE_CHECKING:
    from regard.tasks.classify.trained_classifier import TrainedClassifier

ClassificationRun = RunConfig[config.DataConfig, config.ModelConfig, config.ClassificationTrainingConfig]
"""The configuration of a run that trains a text classifier."""


class ClassifyTask(Task):
    """Telling the labels of texts."""

    name = "classify"
    summary = "Tell the label of a text: a recurrent network or a Transformer, with attention pooling."
    metrics = (Metric("accuracy", "accuracy", digits=4), Metric("macro_f1", "macro F1", digits=4))
    files = ("tokenizer.json", "labels.json", *(f"corpus/{part}.tsv" for part in PARTS))
    results = ("evaluation-*.tsv", "pictures/confusion-*.png", "pictures/words-[0-9]*.png")
    data_config = config.DataConfig
    model_config = config.ModelConfig
    training_config = config.ClassificationTrainingConfig
    prediction_config = config.PredictionConfig
    evaluation_config = config.EvaluationConfig

    def prepare(self, config: ClassificationRun, folder: RunFolder) -> Experiment:
        from regard.tasks.classify.experiment import ClassificationExperiment

        return ClassificationExperiment(config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> "TrainedClassifier":
        from regard.tasks.classify.trained_classifier import TrainedClassifier

        return TrainedClassifier(folder, device)

    def data_files(self, folder: RunFolder, config: ClassificationRun) -> dict[str, tuple[Path, ...]]:
        from regard.data.text.sources import class_texts
        from regard.tasks.run_data import located_files

        # The test data decide nothing about a model, and may be others with --resume.
        found = located_files(folder, {part: getattr(config.data, part) for part in ("train", "validation")})
        return {
            part: tuple(file for path in paths for file in (class_texts(path).files if path.is_dir() else [path]))
            for part, paths in found.items()
        }

    def test_data(self, folder: RunFolder, config: ClassificationRun) -> str | None:
        from regard.tasks.run_data import test_source

        return test_source(folder, config.data)

    def run_name(self, config: ClassificationRun) -> str:
        return f"{self.name}-{config.model.encoder}"


def labels_path(folder: RunFolder) -> Path:
    """The names of the labels in a run folder, in the order of the model's outputs."""
    return folder.file("labels.json")


TASK = ClassifyTask()
