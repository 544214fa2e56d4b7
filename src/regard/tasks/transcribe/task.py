"""The task ``transcribe``."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.tasks.run_files import PARTS
from regard.tasks.transcribe import config
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Metric, Task

if TYPE_CHECKING:
    from regard.tasks.transcribe.trained_transcriber import TrainedTranscriber

TranscriptionRun = RunConfig[config.DataConfig, config.ModelConfig, config.TranscriptionTrainingConfig]
"""The configuration of a run that trains a transcriber."""


class TranscribeTask(Task):
    """Writing what is said."""

    name = "transcribe"
    summary = "Write what is said: a pyramidal recurrent network or a Transformer that attends to sound."
    metrics = (
        Metric("wer", "WER", higher_is_better=False, digits=4),
        Metric("cer", "CER", higher_is_better=False, digits=4),
    )
    files = ("tokenizer.json", *(f"corpus/{part}.tsv" for part in PARTS))
    results = ("evaluation-*.txt", "pictures/sound-[0-9]*.png", "corpus/sounds/*.wav")
    input_kind = "sound"
    data_config = config.DataConfig
    model_config = config.ModelConfig
    training_config = config.TranscriptionTrainingConfig
    prediction_config = config.PredictionConfig
    evaluation_config = config.EvaluationConfig

    def prepare(self, config: TranscriptionRun, folder: RunFolder) -> Experiment:
        from regard.tasks.transcribe.experiment import TranscriptionExperiment

        return TranscriptionExperiment(config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> "TrainedTranscriber":
        from regard.tasks.transcribe.trained_transcriber import TrainedTranscriber

        return TrainedTranscriber(folder, device)

    def data_files(self, folder: RunFolder, config: TranscriptionRun) -> dict[str, tuple[Path, ...]]:
        from regard.tasks.sound_data import table_files

        return table_files(folder, config.data)

    def test_data(self, folder: RunFolder, config: TranscriptionRun) -> str | None:
        from regard.tasks.run_data import test_source

        return test_source(folder, config.data)

    def run_name(self, config: TranscriptionRun) -> str:
        return f"{self.name}-{config.model.encoder}"


TASK = TranscribeTask()
"""The task, for `regard.tasks.registry`."""
