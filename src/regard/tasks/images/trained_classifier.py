"""A trained classifier of images, loaded from its run folder: tells labels, and shows where it attended."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.execution import recorded_calls
from regard.data.images.pictures import InputImage
from regard.data.labels import Labels
from regard.errors import ArgumentError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.vision.image_classifier import ImageClassifier, VisionTransformer
from regard.records import Document, GridAxis, TokenAxis
from regard.tasks.image_corpora import write_bundled_test
from regard.tasks.images.config import EvaluationConfig, PredictionConfig
from regard.tasks.images.image_label import ImageLabel
from regard.tasks.images.task import TASK, ImageRun, labels_path
from regard.tasks.run_data import chunks, load_files_and_model, on_device
from regard.training.run_folder import RunFolder
from regard.training.task import Prediction, Trained
from regard.watching import rollout

if TYPE_CHECKING:
    from regard.tasks.images.evaluation import Evaluation


class TrainedImageClassifier(Trained):
    """The best model of a run with its labels.

    Args:
        folder: the run folder, or its path. Only safetensors, JSON and safe YAML are read.
        device: PyTorch device of the model.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
        MissingPartError: the package of the backbone is not installed.
    """

    def __init__(self, folder: RunFolder | str, device: str = "cpu"):
        self.task = TASK
        self.folder = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
        self.config: ImageRun = self.folder.read_config(TASK)
        loaders = {labels_path(self.folder): Labels.load}
        (self.labels,), model = load_files_and_model(
            self.folder, loaders, ImageClassifier, "which does not classify images"
        )
        if len(self.labels) != model.config.labels:
            raise RunError(f"{self.folder.path}: the number of labels and that of the model's outputs differ")
        self.model: ImageClassifier = on_device(model, device)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.device = device

    def predict_with(self, inputs: Sequence[Any], options: PredictionConfig) -> list[ImageLabel]:
        return self.classify(inputs, options.batch_size)

    def classify(self, inputs: Sequence[Any], batch_size: int = 64) -> list[ImageLabel]:
        """The labels of images.

        Args:
            inputs: paths, bytes of image files, or pixels uint8 ``[height, width, 3]``.
            batch_size: images classified at once.
        """
        size, found = self.model.encoder.size, []
        for rows in chunks(list(range(len(inputs))), batch_size):
            images = [InputImage.open(inputs[row], size, self.config.data.fit, f"inputs[{row}]") for row in rows]
            pixels = torch.from_numpy(np.stack([image.pixels for image in images])).to(self.device)
            with torch.inference_mode(), recorded_calls() as calls:
                output = self.model(pixels, need_weights=self.model.pooling is not None)
            layers = [call.weights for call in calls[: self._layers]]
            for number, (image, logits) in enumerate(zip(images, output.logits.cpu(), strict=True)):
                pooled = None if output.weights is None else output.weights[number].float().mean(0).cpu()
                weights = self._weights([layer[number : number + 1] for layer in layers], pooled, image)
                found.append(self._label(image, logits, weights))
        return found

    @property
    def _layers(self) -> int:
        # Layers of self-attention: those of a Vision Transformer.
        return self.model.config.layers if isinstance(self.model.encoder, VisionTransformer) else 0

    @property
    def _leading(self) -> int:
        return self.model.encoder.leading if isinstance(self.model.encoder, VisionTransformer) else 0

    def _label(self, image: InputImage, logits: Tensor, weights: NDArray[np.float32] | None) -> ImageLabel:
        probabilities = logits.double().softmax(-1)
        order = probabilities.argsort(descending=True, stable=True).tolist()
        ranked = {self.labels.names[number]: float(probabilities[number]) for number in order}
        return ImageLabel(image, self.labels.names[order[0]], ranked, weights, self.model.grid)

    def _weights(
        self, layers: Sequence[Tensor], pooled: Tensor | None, image: InputImage
    ) -> NDArray[np.float32] | None:
        # What the output is made of: what the pooling reads of the top layer, and attention rollout below it.
        if not layers:
            return None if pooled is None else pooled.numpy()
        matrix = rollout(self._records(layers, image)).weights
        assert matrix is not None
        read = np.full(len(matrix[0]), 1 / len(matrix[0]))  # what the output is the weighted mean of
        if pooled is not None:
            read = pooled.numpy()
        elif self._leading:
            read = np.eye(len(matrix[0]))[0]
        top = read @ matrix[0]
        cells = top[self._leading :]
        return (cells / max(float(cells.sum()), 1e-12)).astype(np.float32)

    def _axis(self, image: InputImage) -> GridAxis:
        return GridAxis(*self.model.grid, image.shown, leading=self._leading, box=image.box)

    def _records(self, layers: Sequence[Tensor], image: InputImage) -> list[Any]:
        from regard.records import AttentionRecord

        axis = self._axis(image)
        return [
            AttentionRecord(
                f"encoder.layers.{number}.self_attn", number, "self", axis, axis, layer[0].float().cpu().numpy()
            )
            for number, layer in enumerate(layers)
        ]

    def evaluate_with(self, data: Any, options: EvaluationConfig) -> Evaluation:
        from regard.tasks.images.evaluation import evaluate

        if isinstance(data, str) and data == "bundled" and not Path(data).exists():
            # The test part does not depend on the number of training scenes, so a run on other data makes it again.
            with tempfile.TemporaryDirectory(prefix="regard-") as folder:
                return replace(self.evaluate_with(write_bundled_test(folder, "labels"), options), data="bundled")
        return evaluate(self, data, batch_size=options.batch_size, limit=options.limit)

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        from regard.tasks.images.pictures import draw_images

        if not self.model.attends:
            raise ArgumentError(
                f"{self.folder.path} has no attention weights over the image (its pooling is "
                f"{self.model.config.pooling!r}); there is nothing to draw"
            )
        return draw_images(folder, [found for found in predictions if isinstance(found, ImageLabel)])

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, ImageLabel)
        pixels = torch.from_numpy(prediction.image.pixels[None]).to(self.device)
        with torch.inference_mode(), recorded_calls() as calls:
            self.model(pixels)
        axis, layers = self._axis(prediction.image), self._layers
        found = [
            ModelAttention(f"encoder.layers.{layer}.self_attn", layer, "self", axis, axis, [call])
            for layer, call in enumerate(calls[:layers])
        ]
        if self.model.pooling is not None:
            # The learned query of each head stands for no cell.
            query = TokenAxis(("learned query",), (True,))
            found.append(ModelAttention("pooling", layers, "cross", query, axis, calls[layers:]))
        return found

    def document(self, prediction: Prediction, attentions: Sequence[ModelAttention] | None = None) -> Document:
        """The attention of each layer, and with a Vision Transformer its rollout at the end."""
        attentions = self.attentions(prediction) if attentions is None else attentions
        records = [attention.record() for attention in attentions]
        if self._layers:
            records.append(rollout(records[: self._layers]))
        return Document(self.folder.path.name, tuple(records), texts=prediction.texts())
