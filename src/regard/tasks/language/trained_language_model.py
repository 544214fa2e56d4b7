"""A trained language model, loaded from its run folder: continues texts and gives the attention weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.execution import recorded_calls
from regard.data.text.tokenizers import TextTokenizer
from regard.errors import ArgumentError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.language_model import LanguageModel
from regard.models.search import TokenChoice
from regard.models.text_continuation import continue_tokens
from regard.pictures.fonts import visible
from regard.regular_file import path_inside
from regard.tasks.language.config import EvaluationConfig, PredictionConfig
from regard.tasks.language.running_tokens import token_axis
from regard.tasks.language.task import TASK, LanguageRun
from regard.tasks.run_data import load_files_and_model, on_device
from regard.tasks.run_files import tokenizer_path
from regard.training.run_folder import RunFolder
from regard.training.task import Prediction, Trained

if TYPE_CHECKING:
    from regard.tasks.language.evaluation import LanguageEvaluation

MOST_NAMED = 10
"""Unknown pieces beyond which a message counts the others."""


@dataclass(frozen=True, slots=True)
class NextToken:
    """A token that may come next."""

    token: str
    """Its label: a space is ``␣``, a line end ``↵``."""
    probability: float


@dataclass(frozen=True, slots=True, repr=False)
class Continuation(Prediction):
    """A text and its continuation.

    Attributes:
        prompt: the given text, unchanged.
        text: the given text and its continuation.
        continuation: the new part alone.
        log_probability: log p of the new tokens in nats, without temperature.
        ended: whether the model ended the text, before the largest number of tokens.
        next: the most likely tokens after the given text, the most likely first, as many as were asked for.
        ids: the tokens of the whole text, the end of the document before it first.
        layer: the layer that was asked for, from 0; None: none.
        tokens: labels of the last tokens of the text, as many as the model reads at once; empty without a layer.
        weights: float32 ``[tokens, tokens]``, attention weights in ``layer`` as the mean over its heads; None without a
            layer.
        unknown: the pieces of the given text that the tokenizer does not know.
    """

    prompt: str
    text: str
    continuation: str
    log_probability: float
    ended: bool
    next: tuple[NextToken, ...]
    ids: tuple[int, ...] = field(repr=False)
    layer: int | None = None
    tokens: tuple[str, ...] = field(default=(), repr=False)
    weights: Tensor | None = field(default=None, repr=False)
    unknown: tuple[str, ...] = ()

    def texts(self) -> tuple[tuple[str, str], ...]:
        written = (("continuation", self.continuation),) if self.continuation else ()
        return ("prompt", self.prompt), *written

    def ranked(self) -> tuple[tuple[str, float], ...]:
        return tuple((found.token, found.probability) for found in self.next)

    def lines(self) -> list[str]:
        """The text, and a line for each of the most likely next tokens."""
        return [self.text, *(f"{found.probability:.4f} {found.token}" for found in self.next)]

    def to_dict(self) -> dict[str, Any]:
        """Prompt, text, continuation, log-probability in nats; next tokens, weights ``[token][token]`` if asked for."""
        found: dict[str, Any] = {
            "prompt": self.prompt,
            "text": self.text,
            "continuation": self.continuation,
            "log_probability": round(self.log_probability, 4),
            "ended": self.ended,
            "unknown": list(self.unknown),
        }
        if self.next:
            found["next"] = [{"token": one.token, "probability": round(one.probability, 6)} for one in self.next]
        if self.weights is not None:
            found["layer"], found["tokens"] = self.layer, list(self.tokens)
            found["weights"] = [[round(weight, 4) for weight in row] for row in self.weights.tolist()]
        return found


class TrainedLanguageModel(Trained):
    """The best model of a run with its tokenizer.

    Args:
        folder: the run folder, or its path. Only safetensors, JSON and safe YAML are read.
        device: PyTorch device of the model.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
    """

    def __init__(self, folder: RunFolder | str, device: str = "cpu"):
        self.task = TASK
        self.folder = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
        self.config: LanguageRun = self.folder.read_config(TASK)
        (self.tokenizer,), model = load_files_and_model(
            self.folder, {tokenizer_path(self.folder): TextTokenizer.load}, LanguageModel, "which is no language model"
        )
        if len(self.tokenizer) != model.config.vocabulary:
            raise RunError(f"{self.folder.path}: the vocabulary sizes of the tokenizer and of the model differ")
        self.model: LanguageModel = on_device(model, device)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.device = device

    @property
    def tokenizers(self) -> Mapping[str, TextTokenizer]:
        return {"text": self.tokenizer}

    def predict_with(self, inputs: Sequence[str], options: PredictionConfig) -> list[Continuation]:
        layers = self.model.config.layers
        if options.layer is not None and options.layer >= layers:
            raise ArgumentError(f"layer must be from 0 to {layers - 1}; it is {options.layer}")
        return [self._continued(text, number, options) for number, text in enumerate(inputs)]

    def remarks(self, predictions: Sequence[Prediction], options: PredictionConfig) -> list[str]:
        found = [one for one in predictions if isinstance(one, Continuation)]
        unknown = list(dict.fromkeys(piece for one in found for piece in one.unknown))
        lines = []
        if unknown:
            named = ", ".join(f"'{visible(piece)}'" for piece in unknown[:MOST_NAMED])
            rest = f" and {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
            lines.append(f"not in the model's vocabulary: {named}{rest}")
        context = self.model.config.context
        longest = max((len(self.tokenizer.encode(one.prompt)) for one in found), default=0)
        if longest > context:
            lines.append(f"the longest input has {longest} tokens; the model reads the last {context} of a text")
        return lines

    def evaluate_with(self, data: Any, options: EvaluationConfig) -> LanguageEvaluation:
        from regard.tasks.language.evaluation import evaluate

        return evaluate(self, data, stride=options.stride, limit=options.limit)

    def attention(self, text: str | Sequence[int], layer: int) -> tuple[list[str], Tensor]:
        """The attention weights over a text, as the mean over the heads of a layer.

        Args:
            text: the text, or its ids; of a longer one, the last tokens that the model reads at once.
            layer: number of the layer, from 0.

        Returns:
            a label for each token, and ``float32 [tokens, tokens]``: row t has what token t attends to.
        """
        ids = [self.tokenizer.END, *self.tokenizer.encode(text)] if isinstance(text, str) else list(text)
        ids = ids[-self.model.config.context :]
        with torch.inference_mode():
            weights = self.model.attention_weights(torch.tensor([ids], device=self.device), layer)
        return self.tokenizer.labels(ids), weights[0].float().cpu()

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, Continuation)
        ids = prediction.ids[-self.model.config.context :]
        axis = token_axis(self.tokenizer, ids)
        with torch.inference_mode(), recorded_calls() as calls:
            self.model(torch.tensor([ids], device=self.device))
        return [
            ModelAttention(f"stack.layers.{layer}.self_attn", layer, "causal", axis, axis, [call])
            for layer, call in enumerate(calls)
        ]

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        from regard.pictures import alignment, save

        folder.mkdir(parents=True, exist_ok=True)
        layers, heads = self.model.config.layers, self.model.config.heads
        paths = []
        for number, found in enumerate(predictions, start=1):
            assert isinstance(found, Continuation)
            layer = layers - 1 if found.layer is None else found.layer
            tokens, weights = self.attention(found.ids, layer)
            of_layer = f"layer {layer}, one of {layers}"
            title = f"Self-attention of {of_layer}, mean of {heads} heads; each row is a token that attends"
            picture = path_inside(folder, f"attention-{number}.png")
            paths.append(save(alignment(weights, tokens, tokens, title=title), picture))
        return paths

    def _continued(self, text: str, number: int, options: PredictionConfig) -> Continuation:
        tokenizer = self.tokenizer
        given = [tokenizer.END, *tokenizer.encode(text)]
        # Inputs have draws of their own, so that one does not depend on the others.
        seed = int(np.random.SeedSequence([options.seed, number]).generate_state(1, np.uint64)[0])
        found = continue_tokens(
            self.model,
            given,
            options.tokens,
            TokenChoice(options.temperature, options.top_k, options.top_p),
            end=tokenizer.END,
            forbidden=(tokenizer.UNK,),
            generator=torch.Generator(self.device).manual_seed(seed),
        )
        likely = found.first.exp().topk(min(options.next, len(tokenizer)))
        ids = (*given, *found.tokens)
        tokens, weights = self.attention(ids, options.layer) if options.layer is not None else ([], None)
        continuation = tokenizer.decode(found.tokens)
        return Continuation(
            prompt=text,
            text=text + continuation,
            continuation=continuation,
            log_probability=found.log_probability,
            ended=found.ended,
            next=tuple(map(NextToken, tokenizer.labels(likely.indices.tolist()), likely.values.tolist())),
            ids=ids,
            layer=options.layer,
            tokens=tuple(tokens),
            weights=weights,
            unknown=tuple(tokenizer.unknown(text)),
        )
