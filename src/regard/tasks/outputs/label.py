"""A label as output: the labels of a run, loss, validation and metrics, predictions with probabilities, evaluation."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.configuration import RATE, option
from regard.data.label_doubts import label_doubts, merged_labels
from regard.data.labels import Labels
from regard.errors import ArgumentError, RunError
from regard.files.atomic import write_atomically
from regard.tasks.attended import AttendedPrediction
from regard.tasks.inputs.input import chunks
from regard.tasks.lazy import F, records, torch
from regard.tasks.options import BATCH, EvaluationOptions, LabelOptions
from regard.tasks.outputs.label_metrics import (
    LabelMetrics,
    balanced_weights,
    confusion_lines,
    draw_confusion,
    label_metrics,
    table_lines,
)
from regard.tasks.outputs.label_rule import LabelRule, label_rule
from regard.tasks.task import SAMPLES, TableExperiment, TableTask, gathered, summed
from regard.tasks.trained_run import RunEvaluation, TableTrained
from regard.training.config import TrainingConfig
from regard.training.metrics import Baseline, Metric, comparison_with_rule
from regard.training.results import Evaluation, rounded
from regard.training.run_folder import RunFolder
from regard.training.task import StepLoss, ValidationResult

if TYPE_CHECKING:
    from torch import Tensor

    from regard.attention.execution import RecordedCall
    from regard.explanations.model_attention import ModelAttention
    from regard.records import AttentionRecord, Axis

log = logging.getLogger("regard")

ACCURACY = Metric("accuracy", "accuracy", digits=4, perfect=1.0, unit="0 to 1")


@dataclass(frozen=True)
class LabelTraining(TrainingConfig):
    """How a classifier is trained, and for how long."""

    batch_size: int = option(64, within=BATCH)
    """Largest number of examples of a batch, on each device."""
    label_smoothing: float = option(0.1, within=RATE)
    """Probability that is distributed over all labels, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    merge_labels: bool = False
    """Labels that differ only by case, spaces and Unicode form are one label, spelt as most of them."""
    class_weights: Literal["none", "balanced"] = "none"
    """none, or balanced: an example counts in inverse proportion to the number of training examples with its label."""


class LabelExperiment(TableExperiment):
    """A classifier and its data.

    Attributes:
        labels: the labels.
        true: the number of each validation example's label.
        rows: the training rows.
        counts: training examples of each label.
    """

    @property
    def unit(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.input.examples

    @property
    def labels(self) -> Labels:
        return self.files["labels"]

    @property
    def validated(self) -> int:
        return len(self.true) if len(set(self.true)) > 1 else 0

    def check_rows(self, folder: RunFolder) -> None:
        data, unit = self.run.data, self.input.labelled_unit
        rows = {"validation": self.validation_rows}
        if data.test is not None:
            rows["test"] = self.input.open_part(data, folder, "test")
        for part, part_rows in rows.items():
            where = getattr(data, part) or data.train or "the bundled corpus"
            self.labels.require(set(self.input.targets(part_rows)), where, unit)

    def examine(self, rows: Any) -> None:
        self.rows, counts = rows, Counter(map(self.labels.number, self.input.targets(rows)))
        self.counts = tuple(counts[number] for number in range(len(self.labels)))
        self.true = [self.labels.number(name) for name in self.input.targets(self.validation_rows)]
        balanced = self.training.class_weights == "balanced"
        self.class_weights = balanced_weights(self.counts) if balanced else None

    def baseline(self) -> Baseline:
        rule = label_rule(self.input, self.rows, lambda: self.train, self.labels.number, len(self.labels))
        contents, true = self.true, self.true
        if self.input.plain:
            rows = self.validation_rows
            contents, names = self.input.labelled_contents(rows, lambda: self.validation, len(rows))
            true = list(map(self.labels.number, names))
        return Baseline(rule.name, label_metrics(true, rule.labels(contents), self.labels.names).accuracy)

    def loss(self, batch: Any) -> StepLoss:
        logits, labels = self.model(*self.input.arguments(batch, self.training)).logits, batch.target[:, 1]
        weight = self.class_weights = None if self.class_weights is None else self.class_weights.to(logits)
        smoothing = self.training.label_smoothing
        if weight is not None and smoothing:
            # The mean of PyTorch selects the weights by a mask, and so waits for an accelerator.
            total = F.cross_entropy(logits, labels, weight, label_smoothing=smoothing, reduction="sum")
            total = total / weight.float()[labels].sum()
        else:
            total = F.cross_entropy(logits, labels, weight, label_smoothing=smoothing)
        plain = F.cross_entropy(logits.detach(), labels) if smoothing or weight is not None else total
        return StepLoss(total, plain.detach(), len(batch))

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        losses, predicted = [], {}
        for batch in islice(self.validation.in_order(self.training), rank, None, world_size):
            rows, batch = batch.index.tolist(), batch.to(self.device)
            logits = self.model(*self.input.arguments(batch)).logits
            losses.append(F.cross_entropy(logits, batch.target[:, 1], reduction="sum"))
            predicted.update(zip(rows, logits.argmax(-1).tolist(), strict=True))
        parts = gathered((summed(losses), predicted), world_size)
        loss = sum(part[0] for part in parts)
        predicted = {row: label for part in parts for row, label in part[1].items()}
        names = self.labels.names
        metrics = label_metrics(self.true, [predicted[row] for row in range(len(self.true))], names)
        samples = [
            {self.input.sample_name: name, "label": label, "found": names[predicted[row]]}
            for row, name, label in self.input.samples(self.validation_rows, SAMPLES)
        ]
        return ValidationResult(
            loss / len(self.true), {"accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1}, samples
        )


class LabelPrediction(AttendedPrediction):
    """An input and its label; a subclass is a dataclass.

    Attributes:
        label: the name of the label: the most probable one, or with ``next_best`` one after it.
        probabilities: label → probability, the most probable first.
    """

    label: str
    probabilities: dict[str, float]

    @property
    def answer(self) -> str:
        return self.label

    def ranked(self) -> tuple[tuple[str, float], ...]:
        return tuple(self.probabilities.items())

    @property
    def certainty(self) -> dict[str, float]:
        return {"probability": self.probabilities[self.label]}

    def pooling_record(self, weights: Any, axis: Axis) -> AttentionRecord | None:
        """Returns the record of the weights ``[..., annotations]`` of a pooling; None without weights."""
        if weights is None:
            return None
        weights = torch.as_tensor(weights).float().cpu().numpy()
        weights = weights.reshape(-1, 1, weights.shape[-1])
        return records.AttentionRecord("pooling", 0, "cross", records.TokenAxis((self.label,)), axis, weights)

    def details(self) -> dict[str, Any]:
        """Returns the probabilities of the labels."""
        return {"probabilities": {label: rounded(value) for label, value in self.probabilities.items()}}


@dataclass(frozen=True, repr=False)
class PlainLabel(LabelPrediction):
    """The label of an input, with the probabilities of all labels."""

    source: Any
    label: str
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Outputs:
    """What the model gives for inputs, in their order.

    Attributes:
        logits: float32 ``[inputs, labels]``, on the CPU.
        weights: for each input its attention weights, e.g. ``[heads, annotations]``; empty where they were not asked
            for.
    """

    logits: Tensor
    weights: list[Any] = field(default_factory=list)


class TrainedLabels(TableTrained):
    """The best model of a run with its labels."""

    @property
    def labels(self) -> Labels:
        """The labels, in the order of the model's outputs."""
        return self.files["labels"]

    def check_sizes(self, files: dict[str, Any], config: Any) -> None:
        if len(files["labels"]) != config.labels:
            raise RunError(f"{self.folder.path}: the number of labels and that of the model's outputs differ")

    def outputs(self, inputs: Sequence[Any], batch_size: int = 64, *, need_weights: bool = False) -> Outputs:
        """Returns the model's outputs for inputs."""
        logits = torch.zeros(len(inputs), len(self.labels))
        weights: list[Any] = [None] * len(inputs)
        order = sorted(range(len(inputs)), key=lambda row: self.input.annotations(inputs[row]))
        with torch.inference_mode():
            for rows in chunks(order, batch_size):
                logits[rows], of_batch = self.classify_batch([inputs[row] for row in rows], need_weights)
                for row, one in zip(rows, of_batch, strict=False):
                    weights[row] = one
        return Outputs(logits, weights if need_weights else [])

    def classify_batch(self, inputs: Sequence[Any], need_weights: bool) -> tuple[Tensor, list[Any]]:
        """Returns the logits ``[inputs, labels]`` of a batch of inputs, and their weights, if there are any."""
        batch = self.input.batch(inputs).to(self.device)
        output = self.model(*self.input.arguments(batch), need_weights=need_weights)
        weights = []
        if output.weights is not None:
            of_batch = output.weights.float().cpu()
            weights = [of_batch[row, :, : self.input.annotations(one)].clone() for row, one in enumerate(inputs)]
        return output.logits.float().cpu(), weights

    def predict_with(self, inputs: Sequence[Any], options: Any) -> list[Any]:
        n_best, labels = getattr(options, "n_best", 1), len(self.labels)
        if n_best > labels:
            raise ArgumentError(f"n_best must be at most {labels}, the number of labels; it is {n_best}")
        read = self.input.read(inputs, self)
        outputs = self.outputs(read, options.batch_size, need_weights=self.model.attends)
        weights = outputs.weights or [None] * len(read)
        results = zip(read, outputs.logits, weights, strict=True)
        predictions = [self.labelled(one, row, weight) for one, row, weight in results]
        return [
            one.followed_by([replace(one, label=label) for label in list(one.probabilities)[1:n_best]])
            for one in predictions
        ]

    def labelled(self, one: Any, logits: Tensor, weights: Any) -> LabelPrediction:
        """Returns the prediction of an input, from its logits ``[labels]`` and its weights."""
        probabilities = logits.double().softmax(-1)
        order = probabilities.argsort(descending=True, stable=True).tolist()
        ranked = {self.labels.names[number]: float(probabilities[number]) for number in order}
        return self.prediction(one, self.labels.names[order[0]], ranked, weights)

    def prediction(self, one: Any, label: str, probabilities: dict[str, float], weights: Any) -> LabelPrediction:
        """Returns the prediction of an input that was read."""
        return PlainLabel(self.input.original(one), label, probabilities)

    def check_drawable(self) -> None:
        if not self.model.attends:
            raise ArgumentError(
                f"{self.folder.path} has no attention weights (its pooling is {self.model.config.pooling!r}); there is "
                "nothing to draw"
            )

    def attentions_of(
        self, calls: Sequence[RecordedCall], pools: bool, axis: Axis, query: str, prefix: str = "encoder.layers"
    ) -> list[ModelAttention]:
        """Returns the attention of each layer of an encoder, and that of the pooling.

        Args:
            pools: whether the last one is that of the pooling.
            query: label of the learned query, which stands for no annotation.
            prefix: name of the list of layers in the model.
        """
        from regard.explanations.model_attention import ModelAttention

        layers = len(calls) - pools
        attentions = [
            ModelAttention(f"{prefix}.{layer}.self_attn", layer, "self", axis, axis, [call])
            for layer, call in enumerate(calls[:layers])
        ]
        if pools:
            learned = records.TokenAxis((query,), (True,))
            attentions.append(ModelAttention("pooling", layers, "cross", learned, axis, calls[layers:]))
        return attentions

    def measure(self, source: Any, columns: Sequence[str | None], options: Any) -> LabelEvaluation:
        rows = self.input.open(source, columns, self.config.data, options.limit)
        where = str(source)
        targets, names = self.input.targets(rows), self.labels.names
        self.labels.require(set(targets), where, self.input.labelled_unit)
        true = [self.labels.number(name) for name in targets]
        inputs = self.input.inputs(rows, self)
        start = time.monotonic()
        outputs = self.outputs(inputs, options.batch_size, need_weights=self.measures_weights(source, rows))
        seconds = time.monotonic() - start
        best = outputs.logits.double().softmax(-1).max(-1)
        metrics = label_metrics(true, best.indices.tolist(), names)
        shared = {
            "data": where,
            **vars(metrics),
            "loss": float(F.cross_entropy(outputs.logits.double(), torch.tensor(true))),
            "seconds": seconds,
            "labels": list(names),
            "baseline": self.baseline(inputs, true),
            "predictions": [
                (name, names[own], names[predicted], probability)
                for name, own, predicted, probability in zip(
                    self.input.names(rows), true, best.indices.tolist(), best.values.tolist(), strict=True
                )
            ],
        }
        return self.evaluation(shared, source, rows, inputs, outputs)

    @cached_property
    def rule(self) -> LabelRule | None:
        """The simple rule that the training data give; None: they are not on this machine, or have changed."""
        rows = self.input.own_training_rows(self.config.data, self.folder)
        if rows is None:
            return None

        def examples() -> Any:
            return self.input.encode(rows, self.config, self.files, self.labels, training=True)

        return label_rule(self.input, rows, examples, self.labels.number, len(self.labels))

    def baseline(self, inputs: Sequence[Any], true: Sequence[int]) -> dict[str, Any] | None:
        """Returns the rule with its accuracy and macro F1 on inputs that were read; None if there is no rule."""
        try:
            if self.rule is None:
                return None
            contents = [self.input.content(one) for one in inputs] if self.input.plain else inputs
            metrics = label_metrics(true, self.rule.labels(contents), self.labels.names)
        except Exception as error:  # training data of another form than they had
            log.warning("no simple rule was measured beside the model: %s", error)
            return None
        return {"rule": self.rule.name, "accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1}

    def measures_weights(self, source: Any, rows: Any) -> bool:
        """Whether an evaluation measures the attention weights."""
        return False

    def evaluation(self, shared: dict[str, Any], source: Any, rows: Any, inputs: list[Any], outputs: Outputs) -> Any:
        """Returns the evaluation of the task, a `LabelEvaluation`.

        Args:
            shared: the fields of `LabelEvaluation`.
        """
        return LabelEvaluation(**shared)


@dataclass(frozen=True, repr=False)
class LabelEvaluation(LabelMetrics, RunEvaluation):
    """How good a classifier is on a data set."""

    loss: float
    """Mean −log p of the true label, in nats."""
    seconds: float
    """Duration of the classification."""
    labels: list[str]
    baseline: dict[str, Any] | None
    """A simple rule and its metrics on the same examples; None where the training data are not on this machine."""
    predictions: list[tuple[str, str, str, float]]
    """Example, true label, found label and its probability."""

    examples: ClassVar[tuple[str, ...]] = ("predictions",)
    example: ClassVar[str] = "text"
    """The noun for an example, and the first column of the predictions."""

    def counted(self) -> str:
        """Returns the number of evaluated examples: ``"50 texts"``."""
        return f"{len(self.predictions)} {self.example}s"

    def others(self) -> str:
        """Returns what the first line says after the loss."""
        return ""

    def lines(self) -> list[str]:
        first = (
            f"{self.data}: {self.counted()} · accuracy {self.accuracy:.4f} · macro F1 {self.macro_f1:.4f} · "
            f"loss {self.loss:.4f}{self.others()}"
        )
        tables = table_lines(self.by_label, f"{self.example}s"), confusion_lines(self.confusion, self.labels)
        return [first, *self._scale(), *tables[0], *tables[1]]

    def _scale(self) -> list[str]:
        if self.baseline is None:
            return []
        rule, accuracy, macro_f1 = self.baseline.values()
        lines = [f"  {rule}: accuracy {accuracy:.4f} · macro F1 {macro_f1:.4f}"]
        said = comparison_with_rule(ACCURACY, self.accuracy, accuracy)
        return [*lines, f"  {said}"] if said else lines

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Writes the numbers, the predictions (``evaluation-<name>.tsv``) and a picture of the confusion matrix."""
        paths = Evaluation.write(self, folder, name)
        rows = [(self.example, "label", "found", "probability")]
        rows += [(example, label, predicted, f"{value:.6f}") for example, label, predicted, value in self.predictions]
        lines = ("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
        path = folder.file(f"evaluation-{name}.tsv")
        write_atomically(path, "".join(lines).encode())
        return [*paths, path, draw_confusion(folder, self.confusion, self.labels, f"confusion-{name}")]


class LabelTask(TableTask):
    """A task that tells the label of an input."""

    metrics = (ACCURACY, Metric("macro_f1", "macro F1", digits=4, perfect=1.0, unit="0 to 1"))
    answer_name = "Label"
    training_config = LabelTraining
    prediction_config = LabelOptions
    evaluation_config = EvaluationOptions
    experiment = LabelExperiment
    trained = TrainedLabels

    @property
    def results(self) -> tuple[str, ...]:
        return ("evaluation-*.tsv", "pictures/confusion-*.png", *super().results)

    def loaders(self) -> dict[str, tuple[str, Callable[[Path], Any]]]:
        return {**self.input.loaders(), "labels": ("labels.json", Labels.load)}

    def learn(self, run: Any, folder: RunFolder, rows: Any, held_out: Any) -> dict[str, Any]:
        """Learns the labels of the training data, held-out rows included, and what the input learns.

        A run that starts from the model of another run takes its labels.

        Raises:
            DataError: there is one label only, or with the labels of another run an unknown one.
        """
        path, initial, unit = folder.file("labels.json"), run.training.init_from, self.input.labelled_unit
        counts, where = Counter(self.input.targets(rows)), run.data.train or "the bundled corpus"
        if held_out is not None and held_out is not rows:
            counts.update(self.input.targets(held_out))
        if path.is_file():
            labels = Labels.load(path)
        elif initial is not None:
            labels = Labels.load(RunFolder.open(initial).file("labels.json"))
        else:
            labels = Labels.of(counts, where, unit, run.training.merge_labels)
        labels.require(set(counts), where, unit)
        if not path.is_file():
            labels.save(path)
            known = Counter[str]()
            for name, count in counts.items():
                known[labels.names[labels.number(name)]] += count
            merged = merged_labels(counts, lambda name: labels.names[labels.number(name)]) if labels.merged else ""
            if merged:
                log.warning("%s: --merge-labels writes %s", where, merged)
            for said in [] if run.data.bundled else label_doubts(known, unit, "--merge-labels makes one of them"):
                log.warning("%s: %s", where, said)
        return {**self.input.learn(run, folder, rows), "labels": labels}

    def sizes(self, experiment: TableExperiment) -> list[str]:
        return [f"{len(experiment.files['labels'])} labels", *self.input.sizes(experiment)]
