"""A text as output: its tokenizer, loss and validation, the search, predictions with alignments, evaluation."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.configuration import RATE, option
from regard.data import text as text_data
from regard.data.records import shortened
from regard.errors import ArgumentError, DataError, RunError
from regard.files.atomic import write_atomically
from regard.models.configs import FREE_TOKENS
from regard.tasks.attended import AttendedPrediction, attended_words
from regard.tasks.inputs.input import Examples, chunks
from regard.tasks.inputs.run_tokenizer import text_tokenizer, tokenizer_path
from regard.tasks.lazy import np, pictures, records, torch
from regard.tasks.options import SearchOptions, search_line
from regard.tasks.outputs.decoder_attention import decoder_attention
from regard.tasks.task import SAMPLES, TableExperiment, TableTask, gathered, summed
from regard.tasks.trained_run import RunEvaluation, TableTrained
from regard.training.config import TrainingConfig
from regard.training.metrics import Baseline
from regard.training.results import AttendedParts, Evaluation, Prediction, TextAnswer
from regard.training.task import StepLoss, ValidationResult

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.text.tokenizers import Tokenizer
    from regard.explanations.model_attention import ModelAttention
    from regard.models.search import Hypothesis
    from regard.records import AttentionRecord, Axis, TokenAxis
    from regard.shapes.checks import Requested
    from regard.training.run_folder import RunFolder


@dataclass(frozen=True)
class TextTraining(TrainingConfig):
    """How a model that writes texts is trained, and for how long."""

    label_smoothing: float = option(0.1, within=RATE)
    """Probability that is distributed over all tokens, 0 to below 1 (Szegedy et al. 2016, section 7)."""

    @property
    def loss_options(self) -> dict[str, float]:
        """The options of the loss of a model."""
        return {"label_smoothing": self.label_smoothing}


@dataclass(frozen=True)
class SampledTextTraining(TextTraining):
    """How a model that writes texts is trained, with some of its own tokens as input."""

    scheduled_sampling: float = option(0.0, within=RATE)
    """Probability that a decoder step reads the predicted token, 0 to below 1 (Bengio et al. 2015)."""

    def check_architecture(self, model: Any) -> None:
        """Raises ArgumentError if the decoder of a model has no steps that could read predicted tokens."""
        if model.architecture == "transformer" and self.scheduled_sampling:
            raise ArgumentError("scheduled_sampling must be 0 with architecture 'transformer', which has no steps")

    @property
    def loss_options(self) -> dict[str, float]:
        return {**super().loss_options, "sampling_probability": self.scheduled_sampling}


class TextTask(TableTask):
    """A task that writes a text.

    Attributes:
        length_option: the option of the data that limits the length of a text.
        sample_names: the names of an input, its reference and its text in ``samples.jsonl``.
        reports: patterns of the files that an evaluation writes besides the numbers.
    """

    sample_names: ClassVar[tuple[str, str, str]]
    length_option: ClassVar[str] = "max_length"
    reports: ClassVar[tuple[str, ...]] = ()

    @property
    def results(self) -> tuple[str, ...]:
        return (*self.reports, *super().results)

    def loaders(self) -> dict[str, tuple[str, Callable[[Path], Any]]]:
        return {"tokenizer": ("tokenizer.json", text_data.tokenizers.Tokenizer.load)}

    def learn(self, run: Any, folder: RunFolder, rows: Any, held_out: Any) -> dict[str, Any]:
        texts = (text for texts in self.references(rows) for text in texts)
        min_count = getattr(run.data, "min_count", 1)
        return {"tokenizer": text_tokenizer(tokenizer_path(folder), run, texts, min_count)}

    def sizes(self, experiment: TableExperiment) -> list[str]:
        return [f"vocabulary {len(experiment.files['tokenizer'])}"]

    def references(self, rows: Any) -> list[Sequence[str]]:
        """Returns the true texts of each row."""
        return [(text,) for text in self.input.targets(rows)]

    def compared(self, files: Mapping[str, Any], texts: Iterable[str]) -> list[str]:
        """Returns texts as they are scored: normalized by the tokenizer of the answers.

        A true text is as the user wrote it, and an answer has what the tokenizer left of such texts: composed letters,
        single spaces. Both are normalized, so that the same answer has the same score however it was written.
        """
        return [self.target(files).normalize(text) for text in texts]  # pyright: ignore[reportAttributeAccessIssue]

    @abstractmethod
    def scores(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
        """Returns the task's metrics of predicted texts."""

    def simple_texts(self, rows: Any, references: Sequence[str]) -> tuple[str, list[str]] | None:
        """Returns a simple rule that a model should beat, and the texts that it writes; None if there is none."""
        return None

    def longest(self, run: Any, model: Any, batch: Any) -> int | list[int]:
        """Returns the largest number of tokens that a validation writes for each row of a batch."""
        lengths = self.input.batch_annotations(batch, model.config)
        return [min(getattr(run.data, self.length_option), model.config.longest(length)) for length in lengths]

    def forbidden(self, run: Any, files: Mapping[str, Any]) -> tuple[int, ...]:
        """Returns the tokens that are never written, besides padding and ``bos``."""
        return ()


def length_ratio(train: Examples, reduction: int = 1) -> float:
    """Returns the field ``length_ratio`` of a model's configuration: a fifth more than the training texts need.

    Unless its input bounds the text, a model that has only begun to learn writes without end, which costs time and
    makes its word error rate meaningless. One text in a thousand may be longer.

    Args:
        reduction: parts of an input for each annotation.
    """
    inputs, targets = train.lengths()
    annotations = np.maximum(1, -(-inputs // reduction))
    needed = np.quantile(np.maximum(0, targets - FREE_TOKENS) / annotations, 0.999)
    return round(1.2 * max(float(needed), float(targets.sum() / annotations.sum())), 4)


class TextExperiment(TableExperiment):
    """A model that writes texts, and its data.

    Attributes:
        references: the true texts of each validation example, as they are written.
    """

    unit = "tokens"
    task: TextTask

    def examine(self, rows: Any) -> None:
        self.references = self.task.references(self.validation_rows)
        if len({text for texts in self.references for text in texts}) == 1 and len(rows) > 1:
            different = {text for texts in self.task.references(rows) for text in texts}
            if len(different) == 1:
                raise DataError(
                    f"{self.run.data.train or 'the data'}: every text to write is {shortened(different.pop())}; there "
                    "is nothing to learn: name another column or other data"
                )
        self._compared = [self.task.compared(self.files, texts) for texts in self.references]

    @property
    def validated(self) -> int:
        return len(self.references) if len({text for (text, *_) in self.references}) > 1 else 0

    def scores(self, texts: Iterable[str]) -> dict[str, float]:
        """Returns the task's metrics of a text for each validation example."""
        return self.task.scores(self.task.compared(self.files, texts), self._compared)

    def baseline(self) -> Baseline | None:
        simple = self.task.simple_texts(self.validation_rows, [text for (text, *_) in self.references])
        if simple is None:
            return None
        rule, texts = simple
        return Baseline(rule, self.scores(texts)[self.task.metrics[0].name])

    def loss(self, batch: Any) -> StepLoss:
        loss = self.model.loss(
            *self.input.pair_arguments(batch, self.training),
            batch.target,
            batch.target_lengths,
            **self.training.loss_options,
        )
        return StepLoss(loss.total, loss.nll, batch.target_tokens)

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        losses, tokens, texts = [], 0, {}
        forbidden = self.task.forbidden(self.run, self.files)
        for batch in islice(self.validation.in_order(self.training), rank, None, world_size):
            rows, longest = batch.index.tolist(), self.task.longest(self.run, self.model, batch)
            batch = batch.to(self.device)
            arguments = self.input.pair_arguments(batch)
            loss = self.model.loss(*arguments, batch.target, batch.target_lengths, label_smoothing=0.0)
            losses.append(loss.nll * batch.target_tokens)
            tokens += batch.target_tokens
            encoded = self.model.encode(*self.input.arguments(batch))
            hypotheses = self.model.search(encoded, max_length=longest, forbidden=forbidden)
            for row, hypothesis in zip(rows, hypotheses, strict=True):
                texts[row] = self.decode(row, hypothesis.tokens)
        parts = gathered((summed(losses), tokens, texts), world_size)
        texts = {row: text for part in parts for row, text in part[2].items()}
        predicted = [texts[row] for row in range(len(self.references))]
        samples = [
            dict(zip(self.task.sample_names, (name, self.sampled(row), predicted[row]), strict=True))
            for row, name, _ in self.input.samples(self.validation_rows, SAMPLES)
        ]
        loss = sum(part[0] for part in parts) / max(1, sum(part[1] for part in parts))
        return ValidationResult(loss, self.scores(predicted), samples)

    def decode(self, row: int, tokens: list[int]) -> str:
        """Returns the text of the tokens that were predicted for a validation example."""
        return self.task.target(self.files).decode(tokens)  # pyright: ignore[reportAttributeAccessIssue] (a tokenizer)

    def sampled(self, row: int) -> Any:
        """Returns the reference of a validation example, for ``samples.jsonl``."""
        return self.references[row][0]


@dataclass(frozen=True)
class WrittenTexts:
    """The texts that a model wrote for a data set.

    Attributes:
        source: the data.
        columns: its columns of the input and of the text.
        rows: its rows.
        inputs: their inputs, as they were read.
        predictions: what the model wrote.
        texts: their texts, as they are scored.
        references: the true texts of each row, as they are scored.
        fields: the fields of `TextEvaluation` but the loss.
    """

    source: Any
    columns: Sequence[str | None]
    rows: Any
    inputs: list[Any]
    predictions: list[Any]
    texts: list[str]
    references: list[list[str]]
    fields: dict[str, Any]


class TrainedText(TableTrained):
    """The best model of a run that writes texts, with its tokenizer."""

    task: TextTask  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the texts that are written."""
        return self.task.target(self.files)  # pyright: ignore[reportReturnType]

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {"text": self.tokenizer}

    def check_sizes(self, files: dict[str, Any], config: Any) -> None:
        if len(self.task.target(files)) != config.target_vocabulary:  # pyright: ignore[reportArgumentType]
            raise RunError(f"{self.folder.path}: the vocabulary sizes of the tokenizer and of the model differ")

    def predict_with(self, inputs: Sequence[Any], options: Any) -> list[Any]:
        return self.write_texts(self.input.read(inputs, self), options)

    def write_texts(self, inputs: Sequence[Any], options: SearchOptions) -> list[Any]:
        """Returns the predictions of inputs that were read, in their order; batches inputs of similar length."""
        predictions: dict[int, Any] = {}
        lengths = [self.input.annotations(one) for one in inputs]
        order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: lengths[row])
        with torch.inference_mode():
            for rows in chunks(order, options.batch_size):
                part = [inputs[row] for row in rows]
                predictions.update(zip(rows, self._ranked(part, self.search(part, options)), strict=True))
        return [predictions[row] if row in predictions else self.empty(one) for row, one in enumerate(inputs)]

    def _ranked(self, inputs: Sequence[Any], best: Sequence[Hypothesis]) -> list[Any]:
        """Returns the predictions of a batch of inputs, each followed by those of the next best hypotheses."""
        hypotheses = [
            (one, each) for one, first in zip(inputs, best, strict=True) for each in (first, *first.next_best)
        ]
        made = iter(self.predictions([one for one, _ in hypotheses], [each for _, each in hypotheses]))
        return [next(made).followed_by([next(made) for _ in first.next_best]) for first in best]

    def search(self, inputs: Sequence[Any], options: Any) -> list[Hypothesis]:
        """Returns the best hypothesis for each input, without ``bos`` and ``eos``."""
        batch = self.input.batch(inputs).to(self.device)
        longest, risk = self.longest(inputs, options), options.minimum_risk
        return self.model.search(
            self.model.encode(*self.input.arguments(batch)),
            width=options.beam,
            length_penalty=options.length_penalty,
            risk=risk,
            numbers=None if risk is None else [self.input.content_number(one) for one in inputs],
            max_length=longest,
            forbidden=self.forbidden(),
            decoder=self.decoder(options),
            n_best=getattr(options, "n_best", 1),
        )

    @abstractmethod
    def longest(self, inputs: Sequence[Any], options: Any) -> int | list[int]:
        """Returns the largest number of tokens that are written for each input."""

    def length_bounds(self, inputs: Sequence[Any], options: Any) -> tuple[int, int]:
        """Returns the smallest and the largest result of `longest` over all inputs."""
        longest = self.longest(inputs, options) if inputs else 0
        each = [longest] if isinstance(longest, int) else longest
        return min(each), max(each)

    def bounded(self, inputs: Sequence[Any], most: float = math.inf) -> list[int]:
        """Returns enough tokens for each input, judged by the training data (`length_ratio`), but at most ``most``."""
        bounds = (self.model.config.longest(self.input.annotations(one)) for one in inputs)
        return [int(min(most, bound)) for bound in bounds]

    def forbidden(self) -> tuple[int, ...]:
        """Returns the tokens that are never written, besides padding and ``bos``."""
        return self.task.forbidden(self.config, self.files)

    def decoder(self, options: Any) -> Any:
        """Returns the module that predicts the next token in the search; None is the model itself."""
        return None

    @abstractmethod
    def predictions(self, inputs: Sequence[Any], hypotheses: Sequence[Hypothesis]) -> list[Any]:
        """Returns the predictions of a batch of inputs."""

    def empty(self, one: Any) -> Any:
        """Returns the prediction of an input without annotations."""
        raise NotImplementedError(f"an input of the task {self.task.name!r} is never empty")

    def check_drawable(self) -> None:
        if not self.model.attends:
            raise ArgumentError(f"{self.folder.path} is a model without attention; there is nothing to draw")

    def measure(self, source: Any, columns: Sequence[str | None], options: Any) -> Any:
        rows = self.input.open(source, columns, self.config.data, options.limit)
        inputs = self.input.inputs(rows, self)
        bounds, start = self.length_bounds(inputs, options), time.monotonic()
        predictions = self.write_texts(inputs, options)
        fields = {
            "data": str(source),
            "width": options.beam,
            "length_penalty": options.length_penalty,
            "risk": None if options.minimum_risk is None else asdict(options.minimum_risk),
            "length_bounds": bounds,
            "seconds": time.monotonic() - start,
        }
        texts = self.compared(one.text for one in predictions)
        references = [self.compared(true) for true in self.task.references(rows)]
        written = WrittenTexts(source, columns, rows, inputs, predictions, texts, references, fields)
        return self.evaluation(written, options)

    def compared(self, texts: Iterable[str]) -> list[str]:
        """Returns `TextTask.compared` with the files of the run."""
        return self.task.compared(self.files, texts)

    @abstractmethod
    def evaluation(self, written: WrittenTexts, options: Any) -> TextEvaluation:
        """Returns the evaluation of the task, whose options are its ``evaluation_config``."""

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        if not isinstance(prediction, AttendedText):
            return []
        one = self.read(prediction.model_input)
        if not self.input.annotations(one):
            return []
        arguments = self.input.arguments(self.input.batch([one]).to(self.device))
        is_hard = getattr(self.config.model, "attention", None) == "hard" and prediction.weights is not None
        chosen = torch.as_tensor(prediction.weights) if is_hard else None
        ids, axes = prediction.target_ids, prediction.axes()
        return decoder_attention(self.model, lambda: self.model.encode(*arguments), ids, *axes, chosen)

    def known_texts(
        self, inputs: Sequence[Any], targets: Sequence[Any], batch_size: int, *, need_weights: bool = False
    ) -> tuple[float, list[Tensor]]:
        """Returns the mean −log p of a token of known texts, in nats, given the tokens before it; ``eos`` counts.

        Args:
            targets: the ids of the text of each, or of several texts.

        Returns:
            the mean, and for each input the weights float32 ``[target tokens, annotations]``, or [].
        """
        order = sorted(range(len(inputs)), key=lambda row: self.input.annotations(inputs[row]))
        total, tokens = 0.0, 0
        weights: list[Any] = [None] * len(inputs) if need_weights else []
        with torch.inference_mode():
            for rows in chunks(order, batch_size):
                batch = self.input.batch([inputs[row] for row in rows], [targets[row] for row in rows])
                batch = batch.to(self.device)
                arguments, target, lengths = self.input.pair_arguments(batch), batch.target, batch.target_lengths
                if need_weights:
                    predicted = self.model(*arguments, target, lengths)
                    loss = self.model.loss_of(predicted, target, lengths, 0.0)
                    of_batch = predicted.weights.float().cpu()
                    for position, row in enumerate(rows):
                        annotations = self.input.annotations(inputs[row])
                        weights[row] = of_batch[position, : len(targets[row]), :annotations]
                else:
                    loss = self.model.loss(*arguments, target, lengths, label_smoothing=0.0)
                total += float(loss.nll) * batch.target_tokens
                tokens += batch.target_tokens
        return total / max(1, tokens), weights


class AttendedText(AttendedPrediction, TextAnswer):
    """A text that was written for an input, and the attention weights of its tokens; a subclass is a dataclass.

    Attributes:
        score: log-probability of the text in nats, divided by the length penalty of the search.
        weights: float32 ``[tokens, annotations]``; None for a model without attention.
        target_ids: ids of the tokens, without ``eos``.
        attended_input: the noun for the input in the name of the record: ``"attention to the source"``.
    """

    score: float
    weights: Any
    target_ids: tuple[int, ...]
    attended_input: ClassVar[str] = "source"

    @property
    def model_input(self) -> Any:
        """The input as the run reads it again."""
        return self.source

    @abstractmethod
    def axes(self) -> tuple[Axis, TokenAxis]:
        """Returns the axes of the input and of the text's tokens, for records."""

    @property
    def certainty(self) -> dict[str, float]:
        return {"score": self.score}

    def record(self) -> AttentionRecord | None:
        source, target = self.axes()
        if self.weights is None or not len(target):
            return None
        weights = torch.as_tensor(self.weights).float().cpu().numpy()
        name = f"attention to the {self.attended_input}"
        return records.AttentionRecord(name, 0, "cross", target, source, weights[None])


@dataclass(frozen=True, repr=False, kw_only=True)
class TextPrediction(AttendedText):
    """A text that was written for a text, and the attention weights.

    Attributes:
        source: the source text.
        text: the text that was written.
        score: its log-probability in nats, divided by the length penalty of the search.
        source_tokens: labels of the source tokens that were read.
        target_tokens: labels of the target tokens, without ``eos``.
        source_words: positions of the tokens of each source word.
        target_words: positions of the tokens of each target word.
        weights: float32 ``[target tokens, source tokens]``; None for a model without attention, or an empty source.
        merge_words: whether pictures show whole words instead of tokens.
        target_ids: ids of the target tokens.
    """

    source: str
    text: str = ""
    score: float = 0.0
    source_tokens: list[str] = field(default_factory=list)
    target_tokens: list[str] = field(default_factory=list)
    source_words: list[range] = field(default_factory=list)
    target_words: list[range] = field(default_factory=list)
    weights: Requested[Tensor] = None
    merge_words: bool = False
    target_ids: tuple[int, ...] = field(default=(), repr=False)

    def attended(self) -> AttendedParts:
        if self.weights is None:
            return AttendedParts()
        words = [word_text(self.source_tokens, word) for word in self.source_words]
        return attended_words(words, pictures.merge(self.weights, None, self.source_words))

    def figure(self) -> Any:
        drawn = self if self.merge_words else replace(self, source_words=[], target_words=[])
        return AttendedPrediction.figure(drawn)

    def axes(self) -> tuple[TokenAxis, TokenAxis]:
        return (
            records.TokenAxis(tuple(self.source_tokens), words=tuple(self.source_words)),
            records.TokenAxis(tuple(self.target_tokens), words=tuple(self.target_words)),
        )


def word_text(tokens: Sequence[str], word: range) -> str:
    """Returns a word as it is written, from the labels of its tokens."""
    return "".join(tokens[position].strip("▁␣·") for position in word)


def encoder_decoder_facts(config: Any) -> str:
    """Returns a short description of a model that writes a text for a text."""
    if config.architecture == "transformer":
        return f"Transformer, {config.encoder_layers} + {config.decoder_layers} layers × {config.heads} heads"
    named = {"none": "no", "bahdanau": "Bahdanau", "luong": "Luong"}
    return f"{config.architecture.upper()}, {named.get(config.attention, config.attention)} attention"


def perplexity(loss: float) -> float:
    """Returns exp(loss), which depends on the tokenizer: compare it only between runs with the same one."""
    return math.exp(min(loss, 700.0))


@dataclass(frozen=True, repr=False, kw_only=True)
class TextEvaluation(RunEvaluation):
    """How good the texts of a model are on a data set."""

    loss: float
    """Mean −log p of a token of the true texts, in nats, given the tokens before it."""
    width: int
    """Beam width: the hypotheses kept for each input; without a meaning if samples are drawn (``risk``)."""
    length_penalty: float
    """Exponent α of the beam's length normalization."""
    risk: dict[str, Any] | None
    """How samples were drawn and compared; None: a beam search."""
    length_bounds: tuple[int, int]
    """The most tokens that could be written, for the input with the fewest and for that with the most."""
    seconds: float
    """Duration of the search."""

    def search_line(self, *others: str) -> str:
        """Returns a line that says how the texts were searched for; ``others`` are further parts of the line."""
        return search_line(self.width, self.length_penalty, self.risk, self.length_bounds, *others)

    def write_table(self, folder: RunFolder, file_name: str, lines: Sequence[str], name: str) -> list[Path]:
        """Writes the numbers as ``evaluation-<name>.json``, and lines of text into another file."""
        path = folder.file(file_name)
        paths = Evaluation.write(self, folder, name)
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
        return [*paths, path]
