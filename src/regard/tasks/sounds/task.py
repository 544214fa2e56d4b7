"""The task ``sounds``."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.tasks.run_files import PARTS
from regard.tasks.sounds import config
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Metric, Task

if TYPE_CHECKING:
    from regard.tasks.sounds.trained_listener import TrainedListener

SoundsRun = RunConfig[config.DataConfig, config.ModelConfig, config.SoundsTrainingConfig]
"""The configuration of a run that trains a classifier of sounds."""


class SoundsTask(Task):
    """Telling the labels of sounds."""

    name = "sounds"
    summary = "Tell the label of a sound: the encoder of transcribe, with attention pooling."
    metrics = (Metric("accuracy", "accuracy", digits=4), Metric("macro_f1", "macro F1", digits=4))
    files = ("labels.json", *(f"corpus/{part}.tsv" for part in PARTS))
    results = ("evaluation-*.tsv", "pictures/confusion-*.png", "pictures/sound-[0-9]*.png", "corpus/sounds/*.wav")
    input_kind = "sound"
    data_config = config.DataConfig
    model_config = config.ModelConfig
    training_config = config.SoundsTrainingConfig
    prediction_config = config.PredictionConfig
    evaluation_config = config.EvaluationConfig

    def prepare(self, config: SoundsRun, folder: RunFolder) -> Experiment:
        from regard.tasks.sounds.experiment import SoundsExperiment

        return SoundsExperiment(config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> "TrainedListener":
        from regard.tasks.sounds.trained_listener import TrainedListener

        return TrainedListener(folder, device)

    def data_files(self, folder: RunFolder, config: SoundsRun) -> dict[str, tuple[Path, ...]]:
        from regard.tasks.sound_data import table_files

        return table_files(folder, config.data)

    def test_data(self, folder: RunFolder, config: SoundsRun) -> str | None:
        from regard.tasks.run_data import test_source

        return test_source(folder, config.data)

    def run_name(self, config: SoundsRun) -> str:
        return f"{self.name}-{config.model.encoder}"


TASK = SoundsTask()
"""The task, for `regard.tasks.registry`."""


def labels_path(folder: RunFolder) -> Path:
    """The labels in a run folder."""
    return folder.file("labels.json")
