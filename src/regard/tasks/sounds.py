"""The task ``sounds``: the label of a sound, told by the encoder of a transcriber with attention pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.models.speech.configs import SoundClassifierConfig
from regard.tasks.inputs.sound import (
    HeardSound,
    SoundInput,
    SoundOptions,
    SoundPrediction,
    SoundTraining,
    TrainedSounds,
    generated_speech,
)
from regard.tasks.options import EvaluationOptions, LabelColumn, LabelOptions, SoundColumn
from regard.tasks.outputs.label import (
    LabelEvaluation,
    LabelPrediction,
    LabelTask,
    LabelTraining,
    Outputs,
    TrainedLabels,
)
from regard.tasks.registry import BUILT_IN_TASKS
from regard.tasks.rules import SOUNDS
from regard.training.results import rounded

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explanations.model_attention import ModelAttention
    from regard.records import AttentionRecord
    from regard.shapes.checks import Requested
    from regard.training.results import Prediction


@dataclass(frozen=True)
class SoundsData(SoundOptions):
    """The sounds of a run and their features; the texts are labels. A folder with a folder of sounds for each label is
    a table too."""

    label_column: str | None = None
    """Column of the labels. Default: the only one of a usual name, or the second of a table with two columns."""

    columns = ("sound_column", "label_column")
    least_bundled = 35


@dataclass(frozen=True)
class SoundsTrainingConfig(SoundTraining, LabelTraining):
    """How a classifier of sounds is trained, and for how long."""

    batch_size: int = 32


@dataclass(frozen=True)
class SoundsPredictionOptions(LabelOptions):
    """How sounds are classified."""

    batch_size: int = 32


@dataclass(frozen=True)
class SoundsEvaluationOptions(LabelColumn, SoundColumn, EvaluationOptions):
    """How a classifier of sounds is measured on a data set."""

    batch_size: int = 32


@dataclass(frozen=True, repr=False)
class SoundLabel(SoundPrediction, LabelPrediction):
    """A sound, its label, and the attention weights.

    Attributes:
        sound: the sound as the model hears it.
        label: the name of the most probable label.
        probabilities: label → probability, the most probable first.
        weights: float32 ``[heads, annotations]``; None for a model without attention pooling.
    """

    sound: HeardSound
    label: str
    probabilities: dict[str, float]
    weights: Requested[Tensor]

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("sound", self.sound.name), ("label", self.label)

    def record(self) -> AttentionRecord | None:
        return self.pooling_record(self.weights, self.axis)

    def details(self) -> dict[str, Any]:
        """Returns the probabilities, the seconds of a column and the weights ``[head][time]``."""
        content = {**super().details(), "seconds": self.sound.seconds}
        if self.weights is not None:
            content["weights"] = rounded(self.weights)
        return content


@dataclass(frozen=True, repr=False)
class SoundsEvaluation(LabelEvaluation):
    """How good a classifier of sounds is on a data set."""

    sounds: int
    """Evaluated sounds."""
    seconds_of_sound: float

    example: ClassVar[str] = "sound"

    def counted(self) -> str:
        return f"{self.sounds} sounds, {self.seconds_of_sound / 60:.1f} min"


class TrainedListener(TrainedSounds, TrainedLabels):
    """The best model of a run with its labels."""

    def prediction(self, one: HeardSound, label: str, probabilities: dict[str, float], weights: Any) -> SoundLabel:
        return SoundLabel(one, label, probabilities, weights)

    def evaluation(
        self, shared: dict[str, Any], source: Any, rows: Any, inputs: list[HeardSound], outputs: Outputs
    ) -> SoundsEvaluation:
        seconds = sum(one.duration for one in inputs)
        return SoundsEvaluation(**shared, sounds=len(inputs), seconds_of_sound=seconds)

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, SoundLabel)
        calls = self.recorded(prediction.sound)
        axis, prefix = prediction.sound.axis(), "encoder.transformer.layers"
        return self.attentions_of(calls, bool(self.model.attends), axis, prediction.label, prefix)


class SoundsTask(LabelTask):
    """Telling the labels of sounds."""

    name = "sounds"
    hub_task = "audio-classification"
    summary = BUILT_IN_TASKS[name]
    input = SoundInput(generated_speech(seed=2, words=1), labelled=True)
    input_hint = "A sound to classify"
    data_config = SoundsData
    model_config = SoundClassifierConfig
    training_config = SoundsTrainingConfig
    rules = SOUNDS
    prediction_config = SoundsPredictionOptions
    evaluation_config = SoundsEvaluationOptions
    trained = TrainedListener
    model_class = "regard.models.speech.sound_classifier:SoundClassifier"
    variant = ("model", "architecture")
    picture_prefix = "sound"
    lack = "which does not classify sounds"

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        return {"width": train.features.width, "labels": len(files["labels"])}


TASK = SoundsTask()
