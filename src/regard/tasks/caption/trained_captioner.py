"""A trained captioner, loaded from its run folder: says what images show, and where it attended."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.data.images.pictures import InputImage
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.search import Hypothesis, MinimumRisk
from regard.models.vision.captioner import Captioner
from regard.records import TokenAxis
from regard.tasks.caption.caption import Caption
from regard.tasks.caption.config import EvaluationConfig, PredictionConfig
from regard.tasks.caption.task import TASK, CaptionRun
from regard.tasks.image_corpora import write_bundled_test
from regard.tasks.run_data import chunks, load_files_and_model, on_device
from regard.tasks.run_files import tokenizer_path
from regard.tasks.translator_attention import decoder_attention
from regard.training.run_folder import RunFolder
from regard.training.task import Prediction, Trained

if TYPE_CHECKING:
    from regard.tasks.caption.evaluation import Evaluation


class TrainedCaptioner(Trained):
    """The best model of a run with its tokenizer.

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
        self.config: CaptionRun = self.folder.read_config(TASK)
        loaders = {tokenizer_path(self.folder): Tokenizer.load}
        (self.tokenizer,), model = load_files_and_model(
            self.folder, loaders, Captioner, "which does not caption images"
        )
        if len(self.tokenizer) != model.config.target_vocabulary:
            raise RunError(f"{self.folder.path}: the vocabulary sizes of the tokenizer and of the model differ")
        self.model: Captioner = on_device(model, device)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.device = device

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {"text": self.tokenizer}

    def predict_with(self, inputs: Sequence[Any], options: PredictionConfig) -> list[Caption]:
        return self.caption(
            inputs,
            width=options.beam,
            length_penalty=options.length_penalty,
            risk=options.minimum_risk,
            batch_size=options.batch_size,
        )

    def caption(
        self,
        inputs: Sequence[Any],
        *,
        width: int = 5,
        length_penalty: float = 1.0,
        risk: MinimumRisk | None = None,
        batch_size: int = 32,
    ) -> list[Caption]:
        """The captions of images.

        Args:
            inputs: paths, bytes of image files, or pixels uint8 ``[height, width, 3]``.
            width: beam width, hypotheses for each image; 1: greedy search.
            length_penalty: exponent α of the beam's length normalization.
            risk: choose from samples, instead of a beam: `regard.models.search.minimum_risk`.
            batch_size: images captioned at once.
        """
        size = self.model.encoder.size
        found = []
        for rows in chunks(list(range(len(inputs))), batch_size):
            images = [InputImage.open(inputs[row], size, self.config.data.fit, f"inputs[{row}]") for row in rows]
            pixels = torch.from_numpy(np.stack([image.pixels for image in images])).to(self.device)
            hypotheses = self.model.caption(
                pixels,
                width=width,
                length_penalty=length_penalty,
                risk=risk,
                max_length=self.config.data.max_length,
                # An unknown word says nothing of an image.
                forbidden=(self.tokenizer.UNK,),
            )
            found += [self._caption(image, one) for image, one in zip(images, hypotheses, strict=True)]
        return found

    def _caption(self, image: InputImage, hypothesis: Hypothesis) -> Caption:
        weights = hypothesis.weights
        return Caption(
            image=image,
            text=self.tokenizer.decode(hypothesis.tokens),
            score=hypothesis.score,
            tokens=self.tokenizer.tokens(hypothesis.tokens),
            words=self.tokenizer.word_groups(hypothesis.tokens),
            weights=None if weights is None else weights.numpy().astype(np.float32),
            grid=self.model.grid,
            token_ids=tuple(hypothesis.tokens),
        )

    def evaluate_with(self, data: Any, options: EvaluationConfig) -> Evaluation:
        from regard.tasks.caption.evaluation import evaluate

        if isinstance(data, str) and data == "bundled" and not Path(data).exists():
            # The test part does not depend on the number of training scenes, so a run on other data makes it again.
            with tempfile.TemporaryDirectory(prefix="regard-") as folder:
                return replace(self.evaluate_with(write_bundled_test(folder, "captions"), options), data="bundled")
        return evaluate(
            self,
            data,
            width=options.beam,
            length_penalty=options.length_penalty,
            risk=options.minimum_risk,
            batch_size=options.batch_size,
            limit=options.limit,
        )

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        from regard.tasks.caption.pictures import draw_captions

        if not self.model.attends:
            raise ArgumentError(f"{self.folder.path} is a model without attention; there is nothing to draw")
        return draw_captions(folder, [found for found in predictions if isinstance(found, Caption)])

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, Caption)
        pixels = torch.from_numpy(prediction.image.pixels[None]).to(self.device)
        weights = prediction.weights
        hard = getattr(self.model.config, "attention", None) == "hard" and weights is not None
        return decoder_attention(
            self.model,
            lambda: self.model.encode(pixels),
            prediction.token_ids,
            prediction.axis,
            TokenAxis(tuple(prediction.tokens), words=tuple(prediction.words)),
            torch.from_numpy(weights) if hard and weights is not None else None,
        )
