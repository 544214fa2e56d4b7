"""The next token as output: the loss and measures of running text, continuations, and what could come next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.configuration import AT_LEAST_0, SEED, Configuration, Range, check_finite, option
from regard.data import text as text_data
from regard.data.text.words import word_spans
from regard.errors import ArgumentError, RunError
from regard.tasks.attended import AttendedPrediction, attended_words, document_figure
from regard.tasks.lazy import fonts, np, pictures, records, torch
from regard.tasks.outputs.text_loss import text_loss, window_loss
from regard.tasks.sequence_lines import LineExperiment
from regard.tasks.task import TableExperiment, TableTask
from regard.tasks.trained_run import RunEvaluation, TableTrained
from regard.training.metrics import Baseline, Metric
from regard.training.results import AttendedParts, Prediction, TextAnswer, rounded
from regard.training.task import StepLoss, ValidationResult

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.text.tokenizers import TextTokenizer
    from regard.explanations.model_attention import ModelAttention
    from regard.records import AttentionRecord, TokenAxis
    from regard.shapes.checks import Requested

MOST_TOKENS = 10_000_000
"""Largest number of tokens of a continuation."""

MOST_COUNTED_TOKENS = 10_000_000
"""Training tokens whose frequencies are a baseline."""

SAMPLE_PROMPT, SAMPLE_TOKENS = 16, 100
"""Tokens of the validation text that a sample continues, and of the sample."""

MOST_NAMED_PIECES = 10
"""The most unknown pieces that a message names; it counts the others."""


@dataclass(frozen=True)
class ContinuationOptions(Configuration):
    """How a text is continued."""

    tokens: int = option(200, within=Range(0, MOST_TOKENS))
    """Largest number of new tokens; 0: none."""
    temperature: float = option(0.8, within=Range(0, 1000))
    """Below 1, likely tokens become more likely; above 1, less likely; 0: always the most likely token."""
    top_k: int = option(0, within=AT_LEAST_0)
    """Number of most likely tokens to draw from; 0: all."""
    top_p: float = 1.0
    """Draw from the most likely tokens whose probabilities add up to this, above 0 to 1; 1: all."""
    seed: int = option(1, within=SEED)
    """Seed of the draws."""
    next: int = option(0, within=AT_LEAST_0)
    """Number of most likely next tokens of each input to show, with their probabilities."""
    n_best: int = option(1, within=Range(1, 1000))
    """Continuations for each input, the most probable first: as many are drawn, and equal texts are one, so there may
    be fewer."""
    layer: int | None = option(None, within=AT_LEAST_0)
    """Layer whose attention weights are in pictures, and as the mean over its heads in JSON, from 0. Default: the one
    with the clearest pair of words in pictures, none in JSON."""

    def check(self) -> None:
        super().check()
        check_finite(self)
        if not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p must be above 0 and at most 1; it is {self.top_p}")
        if self.n_best > 1 and not self.tokens:
            raise ArgumentError(f"n_best must be 1 with tokens 0; it is {self.n_best}: give next {self.n_best} instead")
        if self.n_best > 1 and not self.temperature:
            raise ArgumentError(
                f"n_best must be 1 with temperature 0, with which every draw is the same; it is {self.n_best}: give a "
                "temperature above 0 too"
            )


@dataclass(frozen=True)
class TextLossOptions(Configuration):
    """How a language model is measured on a text."""

    stride: int = option(0, within=AT_LEAST_0)
    """Tokens between the starts of windows, up to the context; a smaller one gives each token more context and takes
    longer; 0: the context."""
    limit: int = option(0, within=AT_LEAST_0)
    """Number of tokens to predict, from the first; 0: all."""


class NextTokenExperiment(LineExperiment):
    """A language model and its text; the validation examples have a ``table`` of tokens."""

    unit = "tokens"

    def examine(self, rows: Any) -> None:
        self.batches(0, 1)  # a text that is too short is an error now

    def baseline(self) -> Baseline:
        train, text = self.train.table, self.validation.table  # pyright: ignore[reportAttributeAccessIssue]
        tokenizer, most = self.files["tokenizer"], self.training.validation_tokens or len(text)
        counts = np.bincount(train.ids(0, min(len(train), MOST_COUNTED_TOKENS)), minlength=len(tokenizer)) + 1
        ids = text.ids(1, min(len(text), 1 + most))
        bits = -np.log2(counts[ids] / counts.sum()).sum()
        return Baseline("the frequencies of the tokens", float(bits / max(1, tokenizer.byte_lengths[ids].sum())))

    def loss(self, batch: Tensor) -> StepLoss:
        loss = window_loss(self.model, batch, self.lines, self.training.label_smoothing)
        return StepLoss(loss.total, self.lines.sums(loss.nll.sum()) / batch[:, 1:].numel(), loss.nll.numel())

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        measured = text_loss(
            self.model,
            self.validation.table,  # pyright: ignore[reportAttributeAccessIssue]
            self.files["tokenizer"],
            limit=self.training.validation_tokens,
            rank=rank,
            world_size=world_size,
            lines=self.lines,
        )
        metrics = {"bits_per_byte": measured.bits_per_byte, "perplexity": measured.perplexity}
        return ValidationResult(measured.loss, metrics, [self._sample()])

    def _sample(self) -> dict[str, Any]:
        from regard.models.search import TokenChoice
        from regard.models.text_continuation import continue_tokens

        tokenizer = self.files["tokenizer"]
        prompt = self.validation.table.ids(0, 1 + SAMPLE_PROMPT).tolist()  # pyright: ignore[reportAttributeAccessIssue]
        continued = continue_tokens(
            self.model,
            prompt,
            SAMPLE_TOKENS,
            TokenChoice(temperature=0.8),
            end=tokenizer.END,
            forbidden=(tokenizer.UNK,),
            # The same draws at every validation, and none of the training's.
            generator=torch.Generator(self.device).manual_seed(1),
        )
        return {"prompt": tokenizer.decode(prompt), "continuation": tokenizer.decode(continued.tokens)}


@dataclass(frozen=True)
class NextToken:
    """A token that may come next."""

    token: str
    """Its label: a space is ``␣``, a line end ``↵``."""
    probability: float


@dataclass(frozen=True, repr=False)
class Continuation(AttendedPrediction, TextAnswer):
    """A text and its continuation.

    Attributes:
        source: the beginning of the text, unchanged.
        text: its continuation, the new part alone.
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

    source: str
    text: str
    log_probability: float
    ended: bool
    next: tuple[NextToken, ...]
    ids: tuple[int, ...] = field(repr=False)
    layer: int | None = None
    tokens: tuple[str, ...] = field(default=(), repr=False)
    weights: Requested[Tensor] = field(default=None, repr=False)
    unknown: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """The text with its continuation."""
        return self.source + self.text

    def record(self) -> AttentionRecord | None:
        if self.weights is None or self.layer is None:
            return None
        axis, weights = records.TokenAxis(self.tokens), self.weights.float().cpu().numpy()
        return records.AttentionRecord(
            f"layer {self.layer}, mean of its heads", self.layer, "causal", axis, axis, weights[None]
        )

    @property
    def is_empty(self) -> bool:
        # A continuation of no tokens may be what was requested.
        return self.ended and not self.text.strip()

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("prompt", self.source), *((("continuation", self.text),) if self.text else ())

    def ranked(self) -> tuple[tuple[str, float], ...]:
        return tuple((one.token, one.probability) for one in self.next)

    def lines(self) -> list[str]:
        """Returns the text and a line for each of the most likely next tokens."""
        return [self.whole, *(f"{one.probability:.4f} {one.token}" for one in self.next)]

    def report(self) -> str | None:
        return "\n".join(self.lines()[1:]) or None

    @property
    def certainty(self) -> dict[str, float]:
        return {"score": self.log_probability}

    def details(self) -> dict[str, Any]:
        """Whether the text ended, unknown pieces; next tokens, weights ``[token][token]`` if requested."""
        content: dict[str, Any] = {"ended": self.ended, "unknown": list(self.unknown)}
        if self.next:
            content["next"] = [{"token": one.token, "probability": rounded(one.probability)} for one in self.next]
        if self.weights is not None:
            content["layer"], content["tokens"] = self.layer, list(self.tokens)
            content["weights"] = rounded(self.weights)
        return content


@dataclass(frozen=True, repr=False)
class LanguageEvaluation(RunEvaluation):
    """How well a language model predicts a text."""

    tokens: int
    """Predicted tokens; the ends of documents but the last one are among them."""
    bytes: int
    """Bytes of the predicted tokens in UTF-8; an unknown piece has none."""
    unknown: int
    """Predicted tokens that are unknown pieces, of which only that they are unknown is predicted."""
    loss: float
    """Mean −log p of a token, in nats."""
    perplexity: float
    """exp(loss). It depends on the tokenizer: compare it only between runs with the same tokenizer."""
    bits_per_byte: float
    """−log₂ p of the text, divided by its bytes; comparable between tokenizers that know every piece."""
    stride: int
    """Tokens between the starts of windows."""
    seconds: float
    """Duration of the prediction."""

    def lines(self) -> list[str]:
        lines = [
            f"{self.data}: {self.tokens:,} tokens, {self.bytes:,} bytes · bits/byte {self.bits_per_byte:.4f} · "
            f"perplexity {self.perplexity:.2f} · {self.loss:.4f} nats a token"
        ]
        if self.unknown:
            lines.append(
                f"{self.unknown:,} tokens are not in the model's vocabulary: what they are is not predicted, so "
                "bits/byte and perplexity do not compare with those of other tokenizers"
            )
        return lines


class TrainedNextTokens(TableTrained):
    """The best model of a run with its tokenizer."""

    @property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer of the text."""
        return self.files["tokenizer"]

    @property
    def tokenizers(self) -> Mapping[str, TextTokenizer]:
        return {"text": self.tokenizer}

    def check_sizes(self, files: dict[str, Any], config: Any) -> None:
        if len(files["tokenizer"]) != config.vocabulary:
            raise RunError(f"{self.folder.path}: the vocabulary sizes of the tokenizer and of the model differ")

    def predict_with(self, inputs: Sequence[str], options: ContinuationOptions) -> list[Continuation]:
        return self.predict_part(inputs, 0, options)

    def predict_part(self, inputs: Sequence[str], first: int, options: ContinuationOptions) -> list[Continuation]:
        layers = self.model.config.layers
        if options.layer is not None and options.layer >= layers:
            raise ArgumentError(f"layer must be from 0 to {layers - 1}; it is {options.layer}")
        return [self._best(text, number, options) for number, text in enumerate(inputs, first)]

    def _best(self, text: str, number: int, options: ContinuationOptions) -> Continuation:
        """Returns the most probable of several drawn continuations, with the others after it."""
        draws = [(number,), *((number, draw) for draw in range(1, options.n_best))]
        drawn = [self._continued(text, draw, options) for draw in draws]
        best, *others = sorted(drawn, key=lambda one: one.log_probability, reverse=True)
        return best.followed_by(others)

    def remarks(self, predictions: Sequence[Prediction], options: ContinuationOptions) -> list[str]:
        continuations = [one for one in predictions if isinstance(one, Continuation)]
        unknown = list(dict.fromkeys(piece for one in continuations for piece in one.unknown))
        lines = []
        if unknown:
            named = ", ".join(f"'{fonts.visible(piece)}'" for piece in unknown[:MOST_NAMED_PIECES])
            rest = f" and {len(unknown) - MOST_NAMED_PIECES} more" if len(unknown) > MOST_NAMED_PIECES else ""
            lines.append(f"not in the model's vocabulary: {named}{rest}")
        context = self.model.config.context
        longest = max((len(self.tokenizer.encode(one.source)) for one in continuations), default=0)
        if longest > context:
            lines.append(f"the longest input has {longest} tokens; the model reads the last {context} of a text")
        return lines

    def measure(self, source: Any, columns: Sequence[str | None], options: TextLossOptions) -> LanguageEvaluation:
        context = self.model.config.context
        if options.stride > context:
            raise ArgumentError(f"stride must be at most {context}, the context of the model; it is {options.stride}")
        start = time.monotonic()
        table = text_data.running_text.encode_text(self.input.open(source, columns, self.config.data), self.tokenizer)
        measured = text_loss(self.model, table, self.tokenizer, stride=options.stride, limit=options.limit)
        return LanguageEvaluation(
            data=",".join(map(str, source)) if isinstance(source, (list, tuple)) else str(source),
            tokens=measured.tokens,
            bytes=measured.bytes,
            unknown=measured.unknown,
            loss=measured.loss,
            perplexity=measured.perplexity,
            bits_per_byte=measured.bits_per_byte,
            stride=options.stride or context,
            seconds=time.monotonic() - start,
        )

    def attention(self, text: str | Sequence[int], layer: int) -> tuple[list[str], Tensor]:
        """Returns the attention weights over a text, as the mean over the heads of a layer.

        Args:
            text: the text, or its ids; of a longer one, the last tokens that the model reads at once.

        Returns:
            a label for each token, and ``float32 [tokens, tokens]``: row t has what token t attends to.
        """
        ids = [self.tokenizer.END, *self.tokenizer.encode(text)] if isinstance(text, str) else list(text)
        ids = ids[-self.model.config.context :]
        with torch.inference_mode():
            weights = self.model.attention_weights(torch.tensor([ids], device=self.device), layer)
        return self.tokenizer.labels(ids), weights[0].float().cpu()

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        from regard.attention.execution import recorded_calls
        from regard.explanations.model_attention import ModelAttention

        assert isinstance(prediction, Continuation)
        ids = prediction.ids[-self.model.config.context :]
        axis, new = token_axis(self.tokenizer, ids), self._new_tokens(prediction)
        if new > 0:
            axis = replace(axis, generated=max(0, len(ids) - new))
        with torch.inference_mode(), recorded_calls() as calls:
            self.model(torch.tensor([ids], device=self.device))
        return [
            ModelAttention(f"stack.layers.{layer}.self_attn", layer, "causal", axis, axis, [call])
            for layer, call in enumerate(calls)
        ]

    def _new_tokens(self, prediction: Continuation) -> int:
        """Returns the number of tokens that the model wrote: all but the start and those of the prompt."""
        return len(prediction.ids) - len(self.tokenizer.encode(prediction.source)) - 1

    def figure(self, prediction: Continuation) -> Any:
        return document_figure(self.document(prediction), prediction.layer)

    def facts(self) -> str:
        return f"Transformer, {self.model.config.layers} layers × {self.model.config.heads} heads"

    def attended(self, prediction: Prediction) -> AttendedParts:
        """Returns the words with the largest weights in the last layer, where the new tokens are predicted."""
        assert isinstance(prediction, Continuation)

        tokenizer, last = self.tokenizer, self.model.config.layers - 1
        _, weights = self.attention(prediction.ids, last if prediction.layer is None else prediction.layer)
        ids, new = prediction.ids[-len(weights) :], self._new_tokens(prediction)
        # A token is predicted in the row of the token before it.
        first = max(0, len(weights) - 1 - new)
        rows = weights[first : len(weights) - 1] if new and len(weights) > 1 else weights[-1:]
        axis = token_axis(tokenizer, ids)
        words = [
            "the start" if axis.special[word.start] else tokenizer.decode(ids[word.start : word.stop]).strip() or "␣"
            for word in axis.words
        ]
        return attended_words(words, pictures.merge(rows, None, axis.words))

    def _continued(self, text: str, draw: Sequence[int], options: ContinuationOptions) -> Continuation:
        from regard.models.search import TokenChoice
        from regard.models.search.token_choice import own_generator
        from regard.models.text_continuation import continue_tokens

        tokenizer = self.tokenizer
        prompt = [tokenizer.END, *tokenizer.encode(text)]
        continued = continue_tokens(
            self.model,
            prompt,
            options.tokens,
            TokenChoice(options.temperature, options.top_k, options.top_p),
            end=tokenizer.END,
            forbidden=(tokenizer.UNK,),
            # Inputs have draws of their own, so that one does not depend on the others.
            generator=own_generator(options.seed, *draw, device=self.device),
        )
        likely = continued.first.exp().topk(min(options.next, len(tokenizer)))
        ids = (*prompt, *continued.tokens)
        tokens, weights = self.attention(ids, options.layer) if options.layer is not None else ([], None)
        return Continuation(
            source=text,
            text=tokenizer.decode(continued.tokens),
            log_probability=continued.log_probability,
            ended=continued.ended,
            next=tuple(map(NextToken, tokenizer.labels(likely.indices.tolist()), likely.values.tolist())),
            ids=ids,
            layer=options.layer,
            tokens=tuple(tokens),
            weights=weights,
            unknown=tuple(tokenizer.unknown(text)),
        )


def token_axis(tokenizer: TextTokenizer, ids: Sequence[int]) -> TokenAxis:
    """Returns the axis of tokens."""
    labels = tokenizer.labels(ids)
    pieces = ["" if id == tokenizer.END else tokenizer.decode([id]) for id in ids]
    starts, length = [], 0
    for piece in pieces:
        # A word begins with its first character, not with the space before it.
        starts.append(length + len(piece) - len(piece.lstrip()))
        length += len(piece)
    word_at = {position: number for number, span in enumerate(word_spans("".join(pieces))) for position in span}
    words: list[range] = []
    before = None
    for number, (start, piece) in enumerate(zip(starts, pieces, strict=True)):
        word = word_at.get(start) if piece.strip() else None
        if words and word is not None and word == before:
            words[-1] = range(words[-1].start, number + 1)
        else:
            words.append(range(number, number + 1))
        before = word
    # The mark of a space before a word is one that viewers take off when they merge its tokens.
    shown = tuple("▁" + label[1:] if label.startswith("␣") and len(label) > 1 else label for label in labels)
    return records.TokenAxis(shown, tuple(id == tokenizer.END for id in ids), tuple(words))


class NextTokenTask(TableTask):
    """A task that predicts the next token of running text."""

    metrics = (
        Metric("bits_per_byte", "bits/byte", higher_is_better=False, digits=4, unit="bits"),
        Metric("perplexity", "perplexity", higher_is_better=False),
    )
    prediction_config = ContinuationOptions
    evaluation_config = TextLossOptions
    answer_name = "Continuation"
    choice_name = "Next token"
    typing_options = {"tokens": 12, "temperature": 0, "next": 8}  # noqa: RUF012 (a mapping that never changes)
    experiment = NextTokenExperiment
    trained = TrainedNextTokens
    picture_prefix = "attention"
    lack = "which is no language model"

    def loaders(self) -> dict[str, tuple[str, Callable[[Path], Any]]]:
        return {"tokenizer": ("tokenizer.json", text_data.tokenizers.TextTokenizer.load)}

    def validated_size(self, experiment: TableExperiment) -> int:
        return len(experiment.validation) - 1

    def sizes(self, experiment: TableExperiment) -> list[str]:
        return [f"vocabulary {len(experiment.files['tokenizer'])}"]
