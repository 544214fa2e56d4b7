"""The interface between a task and the training of any model.

A `Task` has a name, a configuration, and the functions that prepare and load a run. An `Experiment` is one prepared
run: all that the training loop needs. A `Trained` run predicts and evaluates. This module imports no PyTorch, so that
the options of a task can be listed without it.
"""

import dataclasses
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from regard.errors import ArgumentError, ColumnError
from regard.names.old_names import unknown_name
from regard.training.config import RunConfig, TrainingConfig
from regard.training.metrics import Baseline, Metric
from regard.training.results import AttendedParts, Evaluation, Prediction, Predictions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.explanations.model_attention import ModelAttention
    from regard.exports.export import Exported
    from regard.exports.formats import Format
    from regard.records import Document
    from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")

_OPTION = re.compile("--([a-z-]+)")
"""An option of a command in a message."""

InputKind = Literal["text", "image", "sound"]
"""The input of a task: a text, or the path or the content of a file."""


class Choice(NamedTuple):
    """The value of an option that the user has not set."""

    value: Any
    reason: str
    """The reason: ``"6,920 texts"``."""


class StepLoss(NamedTuple):
    """The loss of a training batch."""

    total: "Tensor"
    """The scalar that the optimizer minimizes: the mean over the units of the batch."""
    mean: "float | Tensor"
    """The reported loss of a unit (`Experiment.unit`), without regularization. A scalar on the model's device is read
    every few steps, so that the host need not wait for an accelerator."""
    units: int
    """The number of units in the batch, on the host."""


@dataclass(frozen=True)
class ValidationResult:
    """The results of one validation."""

    loss: float
    """Mean loss of a unit, without regularization; the schedule ``plateau`` follows it."""
    metrics: dict[str, float]
    """A value for each of the task's metrics."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """Records for ``samples.jsonl``: the outputs of the model for a few inputs."""


class EpochLoader(Protocol):
    """The batches of this process, one epoch an iteration; their order depends only on a seed and the epoch.

    `regard.data.batches.Batches` is one for examples of any kind.
    """

    def __len__(self) -> int:
        """Returns the number of batches in an epoch, which is the same in every epoch and every process."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches of the next epoch, or its rest after `load_state_dict`."""
        ...

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Makes the next iteration start in ``state["epoch"]``, after ``state["position"]`` batches."""
        ...


class Experiment(ABC):
    """One prepared run of a task: a model and its data.

    Attributes:
        model: the model; ``model.safetensors`` will have its weights.
        description: the sizes of data and model, for the first line of the run.
        unit: the units over which the loss is averaged, in the plural: ``"tokens"``.
    """

    model: "nn.Module"
    description: str
    unit: str = "examples"

    @property
    def validated(self) -> int:
        """The number of validation examples if their metric shows whether a model has learned; otherwise 0."""
        return 0

    @abstractmethod
    def batches(self, rank: int, world_size: int) -> EpochLoader:
        """Returns the training batches of process ``rank`` of ``world_size``."""

    @abstractmethod
    def loss(self, batch: Any) -> StepLoss:
        """Returns the loss of a training batch, which is on the model's device. The model is in training mode."""

    @abstractmethod
    def validate(self, rank: int, world_size: int) -> ValidationResult:
        """Measures the model on the validation data.

        The model is in evaluation mode, and gradients are off. In a distributed run every process calls this, and all
        must return the same numbers.
        """

    def baseline(self) -> "Baseline | None":
        """Returns the result of a simple rule on the validation data; None if there is no such rule."""
        return None

    def try_export(self, to: "Format") -> None:
        """Exports the untrained model into a temporary folder, so that failures are known before the training.

        Raises:
            ArgumentError: the model cannot be exported so; the message says why.
            MissingPartError: a package of the extra ``export`` is not installed.
        """
        raise ArgumentError("for_export is for a task whose runs can be exported; leave it out")

    def save_model(self, path: Path) -> None:
        """Writes the model's weights in the format of safetensors."""
        from regard.models.checkpoint import save_weights

        save_weights(path, self.model)


class Trained(ABC):
    """A trained run: the best model, and the files that it needs.

    Attributes:
        task: the task of the run.
        folder: the run folder.
        config: the configuration of the run.
        model: the best model, in evaluation mode.
        device: PyTorch device of the model.
    """

    task: "Task"
    folder: "RunFolder"
    config: RunConfig
    model: "nn.Module"
    device: str

    @property
    def tokenizers(self) -> Mapping[str, Any]:
        """The tokenizers of the run by name; empty for a task without text."""
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder.path)!r}, device={self.device!r})"

    def predict(self, inputs: Any, *, column: str | None = None, **options: Any) -> Predictions:
        """Returns a prediction for each input, in their order, as a list that a notebook shows as a table.

        Args:
            inputs: a list of inputs, such as texts; or a table or a folder, by its path or in memory, in any form that
                the training takes. Rows without an input have no prediction.
            column: the column of a table that has the inputs. None: that of the training, or the only possible one.
            options: fields of the task's ``prediction_config``.

        Raises:
            ArgumentError: an option is unknown or out of its range, or ``inputs`` is one text and not a list.
            DataError: a table or a folder cannot be read.
        """
        config = _options(self.task.prediction_config, options)
        try:
            read = self.inputs_of(inputs, column)
        except ColumnError as error:
            raise error.in_python(f"run.predict({in_call(inputs)}") from error
        predictions = self.predict_with(read, config)
        for line in self.remarks(predictions, config):
            log.warning("%s", _OPTION.sub(lambda option: option[1].replace("-", "_"), line))
        return Predictions(predictions)

    def inputs_of(self, inputs: Any, column: str | None = None) -> Sequence[Any]:
        """Returns the inputs in an argument of `predict`."""
        if isinstance(inputs, str):
            raise ArgumentError("inputs must be a list of inputs; for one input, give a list of one")
        return inputs

    def evaluate(self, data: Any = None, **options: Any) -> Any:
        """Measures the model on a data set, and returns the `Evaluation` of the task.

        Args:
            data: a data set, in any form that the training takes; None: the run's test data.
            options: fields of the task's ``evaluation_config``.
        """
        if data is None:
            data = self.task.test_data(self.folder, self.config)
            if data is None:
                raise ArgumentError(f"{self.folder.path} has no test data; name a data set to evaluate on")
        try:
            return self.evaluate_with(data, _options(self.task.evaluation_config, options))
        except ColumnError as error:
            raise error.in_python(f"run.evaluate({in_call(data)}") from error

    def facts(self) -> str:
        """Returns a description of the model in a few words."""
        return type(self.model).__name__

    def read(self, source: Any) -> Any:
        """Returns an input as the model reads it, which `predict` also takes."""
        return source

    def delay(self, source: Any) -> str | None:
        """Returns why an input takes too long to be read while somebody waits; None if it does not."""
        return None

    def attention_size(self, source: Any) -> tuple[int, int]:
        """Returns the numbers of tokens of an input and of attention weights between them in an encoder."""
        return 0, 0

    @abstractmethod
    def predict_with(self, inputs: Sequence[Any], options: Any) -> Sequence[Prediction]:
        """Predicts as `predict`, with a ``prediction_config`` of the task."""

    def predict_part(self, inputs: Sequence[Any], first: int, options: Any) -> Sequence[Prediction]:
        """Predicts as `predict_with` for a part of many inputs, whose first has the number ``first`` among all."""
        return self.predict_with(inputs, options)

    def remarks(self, predictions: Sequence[Prediction], options: Any) -> list[str]:
        """Returns remarks on these predictions, a line each; `predict` logs them as warnings."""
        return []

    def attended(self, prediction: Prediction) -> AttendedParts:
        """Returns where the model attended on the way to a prediction, in words."""
        return prediction.attended()

    @abstractmethod
    def evaluate_with(self, data: Any, options: Any) -> Evaluation:
        """Evaluates as `evaluate`, with an ``evaluation_config`` of the task."""

    def attentions(self, prediction: Prediction) -> "Sequence[ModelAttention]":
        """Returns each attention of the model on the way to a prediction; () if it has no attention.

        The model runs once more, on the input and the predicted tokens.
        """
        return ()

    def document(self, prediction: Prediction, attentions: "Sequence[ModelAttention] | None" = None) -> "Document":
        """Returns a prediction and its attention, for `regard.viewer` and the page.

        Args:
            attentions: the result of `attentions` for it; None: the model runs once more.
        """
        from regard.records import Document

        attentions = self.attentions(prediction) if attentions is None else attentions
        records = tuple(attention.record() for attention in attentions)
        return Document(self.folder.path.name, records, texts=prediction.texts())

    def export(
        self,
        to: "Format",
        folder: str | Path | None = None,
        *,
        overwrite: bool = False,
        int8: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> "Exported":
        """Writes the model for other programs, and compares their results with those of the model.

        ::

            exported = regard.load("runs/classify-lstm").export("onnx", "classifier-onnx")
            exported.differences  # {"model": 6.0e-08}

        Args:
            to: ``torch`` (``torch.export`` programs, which need PyTorch alone), ``onnx``, or ``hf`` (a folder of
                Hugging Face transformers).
            folder: a new folder. None: RUN-onnx, RUN-torch or RUN-hf, beside the run folder if that is in the working
                directory, else in the working directory.
            overwrite: whether an export in this folder may be replaced.
            int8: whether the weights become numbers of 8 bits, for ``onnx``.
            report: gets a line when a step begins.

        Returns:
            the files, and the largest differences.

        Raises:
            ArgumentError: the model cannot be exported so; the message says why.
            RunError: the folder is not empty, or the exported model gives other numbers.
            MissingPartError: a package of the extra ``export`` is not installed.
        """
        raise ArgumentError(f"{self.folder.path}: runs of the task {self.task.name!r} cannot be exported")

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        """Draws a picture of each prediction into a folder, and returns the files.

        Raises:
            ArgumentError: there is nothing to draw.
        """
        raise ArgumentError(f"{self.folder.path}: the task {self.task.name!r} has no pictures of predictions")


@dataclass(frozen=True)
class NoOptions:
    """The options of a task that has none."""


class Task(ABC):
    """One kind of task. The configurations are frozen dataclasses with a docstring under each field.

    Attributes:
        name: as in ``regard train <name>``.
        input_kind: the kind of an input of `Trained.predict`: a text, or an image or a sound, as a path or as the bytes
            of a file.
        input_hint: the input to type or to choose, for a viewer.
        answer_name: the name of a prediction, for a viewer: ``"Translation"``.
        choice_name: the name of the ranked choices of a prediction, if it is another one: ``"Next token"``.
        typing_options: options of `Trained.predict` for a text that is read while somebody types it.
        summary: one line for the help.
        hub_task: the Hugging Face hub's name of the task, for the model card; empty: it has none.
        metrics: the metrics of a validation. The first one decides which model is the best.
        files: files that `prepare` writes into the run folder and a trained run needs, relative to it. The run's
            manifest has their sums.
        results: patterns of the other files that the task writes there. ``--overwrite`` deletes what ``files`` and
            ``results`` name, and refuses a run folder that holds anything else.
        data_config: the section ``data`` of a run's configuration.
        model_config: the section ``model``.
        training_config: the section ``training``: `TrainingConfig` or a subclass of it.
        prediction_config: the options of `Trained.predict`.
        evaluation_config: the options of `Trained.evaluate`.
    """

    name: ClassVar[str]
    input_kind: ClassVar[InputKind] = "text"
    input_hint: ClassVar[str] = "A text"
    answer_name: ClassVar[str] = "Output"
    choice_name: ClassVar[str] = ""
    typing_options: ClassVar[Mapping[str, Any]] = {}
    summary: ClassVar[str]
    hub_task: ClassVar[str] = ""
    metrics: ClassVar[tuple[Metric, ...]]
    files: ClassVar[tuple[str, ...]] = ()
    results: ClassVar[tuple[str, ...]] = ()
    data_config: ClassVar[type[Any]]
    model_config: ClassVar[type[Any]]
    training_config: ClassVar[type[TrainingConfig]] = TrainingConfig
    prediction_config: ClassVar[type[Any]] = NoOptions
    evaluation_config: ClassVar[type[Any]] = NoOptions

    @property
    def fitted(self) -> frozenset[str]:
        """The options of ``data``, ``model`` and ``training`` whose default `fit` chooses from the data."""
        return frozenset()

    def check_run(self, run: RunConfig) -> None:  # noqa: B027 (most sections fit each other)
        """Raises ArgumentError if sections of a configuration contradict each other."""

    def fit(self, fields: Mapping[str, Mapping[str, Any]], measured: bool = True) -> dict[str, Choice]:
        """Chooses options that the user has not set, by the size of the data and by the machine.

        Other options have the default of their field.

        Args:
            fields: section → the options that the user has set.
            measured: whether the data can be read; else any valid options will do.

        Returns:
            option → its value and the reason.

        Raises:
            ArgumentError: an option is out of its range.
            DataError: the data cannot be read.
        """
        return {}

    @abstractmethod
    def prepare(self, config: RunConfig, folder: "RunFolder") -> Experiment:
        """Opens the data, writes the files of the run folder besides the weights, and builds the model.

        The global generators of random numbers are seeded before this call: the seed decides the initial weights.
        """

    @abstractmethod
    def load(self, folder: "RunFolder", device: str = "cpu") -> Trained:
        """Returns a run with its best model.

        Raises:
            RunError: a file of the run is missing, damaged, or of another run.
        """

    def data_files(self, folder: "RunFolder", config: RunConfig) -> Mapping[str, Sequence[Path]]:
        """Returns the files of each part of the data outside of the run folder, whose sums the manifest records."""
        return {}

    def test_data(self, folder: "RunFolder", config: RunConfig) -> Any:
        """Returns the data for the evaluation of a run after its training; None if there are none."""
        return None

    def run_name(self, config: RunConfig) -> str:
        """Returns the default name of a run."""
        return self.name

    def report(self, folder: "RunFolder") -> list[Path]:
        """Draws the pictures of a finished run, and returns the files."""
        from regard.pictures import Quality

        return folder.draw_curves(
            {f"val_{one.name}": Quality(one.label, one.unit, one.higher_is_better) for one in self.metrics}
        )


def in_call(data: Any) -> str:
    """Returns data as they are written in a call."""
    return repr(str(data)) if isinstance(data, (str, Path)) else "data"


def _options(kind: type[Any], options: dict[str, Any]) -> Any:
    known = {field.name for field in dataclasses.fields(kind)}
    for name in options:
        if name not in known:
            raise ArgumentError(f"{unknown_name('option', name, known)} (known: {', '.join(sorted(known)) or 'none'})")
    return kind(**options)
