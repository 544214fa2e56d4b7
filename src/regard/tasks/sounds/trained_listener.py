"""A trained classifier of sounds, loaded from its run folder: tells labels, and when it heard them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attention.execution import recorded_calls
from regard.data.labels import Labels
from regard.data.speech.batches import SpeechBatch
from regard.errors import ArgumentError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.speech.sound_classifier import SoundClassifier
from regard.records import TokenAxis
from regard.tasks.run_data import chunks, load_files_and_model, on_device
from regard.tasks.sound_inputs import HeardSound, TrainedOnSounds
from regard.tasks.sounds.config import EvaluationConfig, PredictionConfig
from regard.tasks.sounds.task import TASK, SoundsRun, labels_path
from regard.training.run_folder import RunFolder
from regard.training.task import Prediction

if TYPE_CHECKING:
    from regard.tasks.sounds.evaluation import Evaluation


@dataclass(frozen=True, slots=True, repr=False)
class SoundLabel(Prediction):
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
    weights: Tensor | None

    @property
    def text(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.label

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("sound", self.sound.name), ("label", self.label)

    def ranked(self) -> tuple[tuple[str, float], ...]:
        return tuple(self.probabilities.items())

    def to_dict(self) -> dict[str, Any]:
        """Sound, label, probabilities, seconds of a column and weights ``[head][time]``."""
        found: dict[str, Any] = {
            "sound": self.sound.name,
            "label": self.label,
            "probabilities": {label: round(value, 6) for label, value in self.probabilities.items()},
            "seconds": self.sound.seconds,
        }
        if self.weights is not None:
            found["weights"] = [[round(weight, 4) for weight in row] for row in self.weights.tolist()]
        return found


class TrainedListener(TrainedOnSounds):
    """The best model of a run with its labels.

    Args:
        folder: the run folder, or its path. Only safetensors, JSON and safe YAML are read.
        device: PyTorch device of the model.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
    """

    def __init__(self, folder: RunFolder | str, device: str = "cpu"):
        self.task = TASK
        self.folder = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
        self.config: SoundsRun = self.folder.read_config(TASK)
        (self.labels,), model = load_files_and_model(
            self.folder, {labels_path(self.folder): Labels.load}, SoundClassifier, "which does not classify sounds"
        )
        if len(self.labels) != model.config.labels:
            raise RunError(f"{self.folder.path}: the number of labels and that of the model differ")
        self.model: SoundClassifier = on_device(model, device)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.device = device

    def predict_with(self, inputs: Sequence[Any], options: PredictionConfig) -> list[SoundLabel]:
        sounds = self.hear(inputs)
        logits, weights = self.outputs(sounds, options.batch_size, need_weights=self.model.attends)
        return [self._label(sound, logits[row], weights[row] if weights else None) for row, sound in enumerate(sounds)]

    def outputs(
        self, sounds: Sequence[HeardSound], batch_size: int = 32, *, need_weights: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """What the model gives for sounds, in their order.

        Args:
            sounds: what `hear` gives.
            batch_size: sounds, of similar length, that are classified at once.
            need_weights: whether to give the attention weights.

        Returns:
            logits, float32 ``[sounds, labels]``, and for each sound weights ``[heads, annotations]``, or [].
        """
        logits = torch.zeros(len(sounds), len(self.labels))
        weights: list[Tensor] = [torch.empty(0)] * len(sounds) if need_weights else []
        order = sorted(range(len(sounds)), key=lambda row: len(sounds[row].features))
        with torch.inference_mode():
            for rows in chunks(order, batch_size):
                batch = SpeechBatch.of([sounds[row].features for row in rows]).to(self.device)
                found = self.model(batch.source, batch.source_lengths, need_weights=need_weights)
                logits[rows] = found.logits.float().cpu()
                if found.weights is not None:
                    for place, row in enumerate(rows):
                        weights[row] = found.weights[place, :, : sounds[row].annotations].float().cpu().clone()
        return logits, weights

    def _label(self, sound: HeardSound, logits: Tensor, weights: Tensor | None) -> SoundLabel:
        probabilities = logits.double().softmax(-1)
        order = probabilities.argsort(descending=True, stable=True).tolist()
        ranked = {self.labels.names[number]: float(probabilities[number]) for number in order}
        return SoundLabel(sound, self.labels.names[order[0]], ranked, weights)

    def evaluate_with(self, data: Any, options: EvaluationConfig) -> Evaluation:
        from regard.tasks.run_files import bundled_path
        from regard.tasks.sounds.evaluation import evaluate

        trained_on = self.config.data
        columns = options.sound_column or trained_on.sound_column, options.text_column or trained_on.text_column
        if isinstance(data, str) and data == "bundled" and not Path(data).exists():
            # The test part does not depend on the number of training sounds, so a run on other data makes it again.
            from regard.tasks.sounds.experiment import write_bundled_test

            with tempfile.TemporaryDirectory(prefix="regard-") as folder:
                test = write_bundled_test(folder)
                named = {"sound_column": "audio", "text_column": "text"}
                return replace(self.evaluate_with(test, replace(options, **named)), data="bundled")
        if isinstance(data, (str, Path)) and Path(data) == bundled_path(self.folder, "test"):
            columns = "audio", "text"
        return evaluate(self, data, *columns, options)

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        from regard.tasks.sounds.pictures import draw_labels

        if not self.model.attends:
            raise ArgumentError(
                f"{self.folder.path} has no attention weights (its pooling is {self.model.config.pooling!r}); there is "
                "nothing to draw"
            )
        return draw_labels(folder, [found for found in predictions if isinstance(found, SoundLabel)])

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, SoundLabel)
        batch = SpeechBatch.of([prediction.sound.features]).to(self.device)
        with torch.inference_mode(), recorded_calls() as calls:
            self.model(batch.source, batch.source_lengths)
        axis = prediction.sound.axis()
        layers = len(calls) - bool(self.model.attends)
        found = [
            ModelAttention(f"encoder.transformer.layers.{layer}.self_attn", layer, "self", axis, axis, [call])
            for layer, call in enumerate(calls[:layers])
        ]
        if self.model.attends:
            # The learned query of each head stands for no token.
            query = TokenAxis((prediction.label,), (True,))
            found.append(ModelAttention("pooling", layers, "cross", query, axis, calls[layers:]))
        return found
