"""A trained run of a task with an input and an output: its files, its model, its evaluations and its pictures."""

from __future__ import annotations

import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import ArgumentError, RunError, ShapeError
from regard.files.atomic import temporary_folder
from regard.files.regular import path_inside
from regard.names.missing_names import hinted
from regard.tasks.attended import AttendedPrediction
from regard.tasks.inputs.input import with_defaults
from regard.tasks.lazy import torch
from regard.tasks.prediction_inputs import given_inputs
from regard.tasks.stored_data import prepared, store, stored_folder, stored_names
from regard.training.results import Evaluation, Prediction
from regard.training.run_folder import RunFolder
from regard.training.task import Trained

if TYPE_CHECKING:
    from torch import nn

    from regard.attention.execution import RecordedCall
    from regard.exports.export import Exported
    from regard.exports.formats import Format
    from regard.tasks.inputs.input import Input
    from regard.tasks.task import TableTask

log = logging.getLogger("regard")

LONGEST_NAME = 60
"""The most characters of an input in a warning."""


@hinted
class TableTrained(Trained):
    """The best model of a run, with the files that it needs.

    Args:
        task: the task of the run.
        folder: the run folder. Only safetensors, JSON and safe YAML are read.
        device: PyTorch device of the model.

    Attributes:
        files: what the run needs besides the model, by name: tokenizers, labels.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
        MissingPartError: the package of a backbone is not installed.
    """

    task: TableTask

    def __init__(self, task: TableTask, folder: RunFolder, device: str = "cpu"):
        self.task, self.folder = task, folder  # pyright: ignore[reportIncompatibleVariableOverride]
        self.config = folder.read_config(task)
        self.files, model = self._load()
        self.model: Any = on_device(model, device)
        self.device = device

    def _load(self) -> tuple[dict[str, Any], nn.Module]:
        """Returns the files and the model of the run, which belong together even while a training replaces them."""
        from regard.models.checkpoint import load_model, load_weights

        folder, kind = self.folder, self.task.model_kind()
        loaders = {name: (folder.file(file), load) for name, (file, load) in self.task.loaders().items()}
        folder.require(*(path for path, _ in loaders.values()))

        def read() -> tuple[dict[str, Any], nn.Module]:
            files = {name: load(path) for name, (path, load) in loaders.items()}
            if kind is not None:
                return files, load_model(folder.model)
            model = self.task.build_model(self.config, files, None)
            load_weights(folder.model, model)
            return files, model.eval()

        files, model = folder.manifest.consistently([folder.model, *(path for path, _ in loaders.values())], read)
        if kind is not None and not isinstance(model, kind):
            raise RunError(f"{folder.model} holds a {type(model).__name__}, {self.task.lack}")
        if kind is not None:
            self.check_sizes(files, model.config)
        return files, model

    def check_sizes(self, files: dict[str, Any], config: Any) -> None:
        """Raises RunError if the sizes of the files and those of the model differ."""

    def recorded(self, one: Any) -> list[RecordedCall]:
        """Returns every call of attention while the model reads an input, which `read` has returned."""
        from regard.attention.execution import recorded_calls

        batch = self.input.batch([one]).to(self.device)
        with torch.inference_mode(), recorded_calls() as calls:
            self.model(*self.input.arguments(batch))
        return calls

    @property
    def input(self) -> Input:
        """The input of the task."""
        return self.task.input

    def inputs_of(self, inputs: Any, column: str | None = None) -> Sequence[Any]:
        return given_inputs(self, inputs, column)

    def read(self, source: Any) -> Any:
        return self.input.read([source], self)[0]

    def evaluate_with(self, data: Any, options: Any) -> Any:
        stored = stored_folder(self.folder.path) / "test"
        if isinstance(data, (str, Path)) and Path(data) in (stored, stored.with_suffix(".jsonl")):  # of `regard.train`
            with stored_names({"test": str(data)}):
                return dataclasses.replace(self._evaluated(data, options), data="test")  # pyright: ignore[reportArgumentType]
        if not isinstance(data, (str, Path)):
            with temporary_folder() as folder:
                names = self.task.data_config.columns
                columns = {name: getattr(options, name, None) or getattr(self.config.data, name) for name in names}
                path, data = prepared(self.task, data, folder / "data", "data", columns)
                with stored_names({"data": path}):
                    store(self.task, data, folder / "data", "data", columns)
                    return dataclasses.replace(self._evaluated(path, options), data="data")  # pyright: ignore[reportArgumentType]
        return self._evaluated(data, options)

    def _evaluated(self, data: str | Path, options: Any) -> Evaluation:
        named = tuple(getattr(options, name, None) for name in self.task.data_config.columns)
        if isinstance(data, str) and data == "bundled" and not Path(data).exists():
            with self.input.generated_test() as source:
                evaluation = self.measure(source, with_defaults(named, self.input.generated.columns), options)
                return dataclasses.replace(evaluation, data="bundled")  # pyright: ignore[reportArgumentType]
        return self.measure(data, self.input.columns(self.config.data, self.folder, data, named), options)

    @abstractmethod
    def measure(self, source: Any, columns: Sequence[str | None], options: Any) -> Evaluation:
        """Measures the model on a data set.

        Args:
            source: a source of the input.
            columns: its columns.
            options: the task's ``evaluation_config``.

        Raises:
            DataError: the data cannot be used.
        """

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        self.check_drawable()
        return draw_figures(folder, map(self._figure, predictions), self.task.picture_prefix)

    def _figure(self, prediction: Prediction) -> Any:
        """Returns a figure of a prediction; None, with a warning, if it is too large to be drawn."""
        from regard.pictures.fonts import visible

        try:
            return self.figure(prediction)
        except ShapeError as error:
            log.warning("no picture of %s: %s", visible(prediction.input_text, LONGEST_NAME), error)
            return None

    def export(
        self,
        to: Format,
        folder: str | Path | None = None,
        *,
        overwrite: bool = False,
        int8: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> Exported:
        from regard.exports.export import export

        if self.device != "cpu":
            raise ArgumentError(f"a run is exported from the cpu; device is {self.device!r}: load it again without one")
        run = self.task.exportable(self)
        if folder is None:
            # Next to a run in the working directory, but not next to one in the hub's cache or in a temporary folder.
            path, home = self.folder.path.resolve(), Path.cwd()
            name = f"{path.name}-{str(to).lower()}"
            folder = path.with_name(name).relative_to(home) if home in path.parents else name
        return export(run, to, folder, overwrite=overwrite, int8=int8, report=report)

    def check_drawable(self) -> None:
        """Raises ArgumentError if the model has nothing to draw."""

    def figure(self, prediction: Any) -> Any:
        """Returns a figure of a prediction; None if there is nothing to draw."""
        if isinstance(prediction, AttendedPrediction) and type(prediction).record != Prediction.record:
            return prediction.figure()
        raise ArgumentError(f"{self.folder.path}: the task {self.task.name!r} has no pictures of predictions")


def draw_figures(folder: Path, figures: Iterable[Any], prefix: str) -> list[Path]:
    """Saves figures as ``<prefix>-1.png``, ``<prefix>-2.png``, ...

    Args:
        folder: folder of the pictures; created if it does not exist.
        figures: the figures; None takes a number, but has no file.
        prefix: start of the file names.

    Returns:
        the files.
    """
    from regard.pictures import save

    folder.mkdir(parents=True, exist_ok=True)
    return [
        save(figure, path_inside(folder, f"{prefix}-{number}.png"))
        for number, figure in enumerate(figures, start=1)
        if figure is not None
    ]


@dataclasses.dataclass(frozen=True, repr=False, kw_only=True)
class RunEvaluation(Evaluation):
    """The results of an evaluation; a subclass is a dataclass."""

    data: str
    """Name of the data set."""

    examples: ClassVar[tuple[str, ...]] = ()
    """Fields that hold single examples and are no results."""

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields but those of `examples`."""
        names = [field.name for field in dataclasses.fields(self)]
        return {name: _plain(getattr(self, name)) for name in names if name not in self.examples}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def on_device(model: Any, device: str) -> Any:
    """Moves a model to a device of PyTorch; raises ArgumentError if the device cannot be used."""
    from regard.shapes.checks import unusable_device, usable_device

    usable_device(device, with_elements=True)
    try:
        return model.to(device)
    except Exception as error:
        raise unusable_device(device, error) from error
