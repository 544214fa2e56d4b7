"""A trained text classifier, loaded from its run folder: tells labels and gives the weights of words."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attention.execution import recorded_calls
from regard.data.labels import Labels
from regard.data.text.batches import LabelledBatch
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, KindError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.text_classifier import TextClassifier
from regard.records import TokenAxis
from regard.tasks.classify.classification import Classification, words_of
from regard.tasks.classify.config import EvaluationConfig, PredictionConfig
from regard.tasks.classify.task import TASK, ClassificationRun, labels_path
from regard.tasks.run_data import chunks, load_files_and_model, on_device
from regard.tasks.run_files import bundled_path, tokenizer_path
from regard.training.run_folder import RunFolder
from regard.training.task import Prediction, Trained

if TYPE_CHECKING:
    from regard.tasks.classify.evaluation import Evaluation


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the model gives for texts, in their order.

    Attributes:
        logits: float32 ``[texts, labels]``, on the CPU.
        weights: for each text float32 ``[heads, tokens]``, on the CPU; empty where they were not asked for.
        cut: for each text whether it was cut.
    """

    logits: Tensor
    weights: list[Tensor]
    cut: list[bool]


class TrainedClassifier(Trained):
    """The best model of a run with its tokenizer and its labels.

    Args:
        folder: the run folder, or its path. Only safetensors, JSON and safe YAML are read.
        device: PyTorch device of the model.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
    """

    def __init__(self, folder: RunFolder | str, device: str = "cpu"):
        self.task = TASK
        self.folder = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
        self.config: ClassificationRun = self.folder.read_config(TASK)
        loaders = {tokenizer_path(self.folder): Tokenizer.load, labels_path(self.folder): Labels.load}
        (self.tokenizer, self.labels), model = load_files_and_model(
            self.folder, loaders, TextClassifier, "which does not classify texts"
        )
        if (len(self.tokenizer), len(self.labels)) != (model.config.vocabulary, model.config.labels):
            raise RunError(f"{self.folder.path}: the sizes of the tokenizer or the labels and of the model differ")
        self.model: TextClassifier = on_device(model, device)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.device = device

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {"text": self.tokenizer}

    def predict_with(self, inputs: Sequence[str], options: PredictionConfig) -> list[Classification]:
        for number, text in enumerate(inputs):
            if not isinstance(text, str):
                raise KindError(f"inputs[{number}] must be text; it is a {type(text).__name__}")
        found = self.outputs(inputs, options.batch_size, need_weights=self.model.attends)
        return [
            self._classification(text, logits, found.weights[row] if found.weights else None, found.cut[row])
            for row, (text, logits) in enumerate(zip(inputs, found.logits, strict=True))
        ]

    def remarks(self, predictions: Sequence[Prediction], options: PredictionConfig) -> list[str]:
        cut = sum(found.cut for found in predictions if isinstance(found, Classification))
        empty = sum(not found.text.strip() for found in predictions if isinstance(found, Classification))
        lines = [f"{cut} of {len(predictions)} texts have more than {self.max_length} tokens and were cut"] * bool(cut)
        return lines + [f"{empty} of {len(predictions)} texts are empty; their label says nothing"] * bool(empty)

    def evaluate_with(self, data: Any, options: EvaluationConfig) -> Evaluation:
        from regard.tasks.classify.evaluation import evaluate

        if isinstance(data, str) and data == "bundled" and not Path(data).exists():
            # The test part does not depend on the number of training texts, so a run on other data makes it again.
            from regard.tasks.classify.corpora import write_bundled_test

            columns = {"text_column": "text", "label_column": "label"}
            with tempfile.TemporaryDirectory(prefix="regard-") as folder:
                test = write_bundled_test(folder)
                return replace(self.evaluate_with(test, replace(options, **columns)), data="bundled")
        trained_on = self.config.data
        columns = trained_on.text_column, trained_on.label_column
        if isinstance(data, (str, Path)) and Path(data) == bundled_path(self.folder, "test"):
            columns = "text", "label"
        return evaluate(
            self,
            data,
            options.text_column or columns[0],
            options.label_column or columns[1],
            batch_size=options.batch_size,
            limit=options.limit,
        )

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        from regard.tasks.classify.pictures import draw_words

        if not self.model.attends:
            raise ArgumentError(
                f"{self.folder.path} has no attention weights (its pooling is {self.model.config.pooling!r}); there is "
                "nothing to draw"
            )
        return draw_words(folder, [found for found in predictions if isinstance(found, Classification)])

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, Classification)
        text = prediction.text
        ids = self.tokenizer.encode(text)[: self.max_length]
        if not ids:
            return []
        axis = TokenAxis(
            tuple(self.tokenizer.tokens(self.tokenizer.encode(text), text)[: len(ids)]),
            words=tuple(words_of(self.tokenizer, text, len(ids))[0]),
        )
        batch = LabelledBatch.of([ids]).to(self.device)
        with torch.inference_mode(), recorded_calls() as calls:
            self.model(batch.tokens, batch.lengths)
        layers = len(calls) - bool(self.model.attends)
        found = [
            ModelAttention(f"encoder.layers.{layer}.self_attn", layer, "self", axis, axis, [call])
            for layer, call in enumerate(calls[:layers])
        ]
        if self.model.attends:
            # The learned query of each head stands for no token.
            query = TokenAxis(("learned query",), (True,))
            found.append(ModelAttention("pooling", layers, "cross", query, axis, calls[layers:]))
        return found

    @property
    def max_length(self) -> int:
        """Tokens of a text that the model reads; the others are cut."""
        return self.config.data.max_length

    def outputs(self, texts: Sequence[str], batch_size: int = 64, *, need_weights: bool = False) -> Outputs:
        """What the model gives for texts.

        Args:
            texts: the texts; an empty one has no tokens.
            batch_size: texts, of similar length, that are classified at once.
            need_weights: whether to give the attention weights.
        """
        ids = self.tokenizer.encode_batch(list(texts))
        cut = [len(row) > self.max_length for row in ids]
        ids = [row[: self.max_length] for row in ids]
        logits = torch.zeros(len(ids), len(self.labels))
        weights: list[Tensor] = [torch.empty(0)] * len(ids) if need_weights else []
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        with torch.inference_mode():
            for rows in chunks(order, batch_size):
                batch = LabelledBatch.of([ids[row] for row in rows]).to(self.device)
                found = self.model(batch.tokens, batch.lengths, need_weights=need_weights)
                logits[rows] = found.logits.float().cpu()
                if found.weights is not None:
                    of_batch = found.weights.float().cpu()
                    for number, row in enumerate(rows):
                        weights[row] = of_batch[number, :, : len(ids[row])].clone()
        return Outputs(logits, weights, cut)

    def _classification(self, text: str, logits: Tensor, weights: Tensor | None, cut: bool) -> Classification:
        from regard.pictures import merge

        probabilities = logits.double().softmax(-1)
        order = probabilities.argsort(descending=True, stable=True).tolist()
        ranked = {self.labels.names[number]: float(probabilities[number]) for number in order}
        length = min(len(self.tokenizer.encode(text)), self.max_length) if weights is None else weights.shape[1]
        groups, spans = words_of(self.tokenizer, text, length)
        merged = None if weights is None else torch.from_numpy(merge(weights, None, groups)).float()
        words = [text[span.start : span.stop] for span in spans]
        return Classification(text, self.labels.names[order[0]], ranked, words, spans, merged, cut)
