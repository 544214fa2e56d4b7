"""A task as a cell of a table: an input, an output, and the model between them.

The input (`regard.tasks.inputs`) knows where examples are, how they are read, and how they become batches. The output
(`regard.tasks.outputs`) knows the loss, the validation, the predictions and the evaluation. A task adds its name, its
options, its model, and anything peculiar to it.
"""

from __future__ import annotations

import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from regard.configuration import Configuration
from regard.configuration.options import CHOOSING, is_option, option_fields
from regard.errors import ArgumentError
from regard.exports.formats import Format, UnexportableError, option_text
from regard.files.atomic import temporary_folder
from regard.tasks.fitting import DataSize, Rules, fit
from regard.tasks.lazy import torch
from regard.training.config import section_kinds
from regard.training.task import Choice, EpochLoader, Experiment, Task, Trained

if TYPE_CHECKING:
    from torch import nn

    from regard.data.text.batches import IdEncoder
    from regard.exports.export import Exportable
    from regard.tasks.inputs.input import Examples, Input
    from regard.training.config import RunConfig
    from regard.training.run_folder import RunFolder

PREPARATION = (
    "lowercase", "max_length", "image_size", "fit", "rate", "bands", "window_seconds", "hop_seconds", "lowest",
    "highest",
)  # fmt: skip
"""Options of the data that say how an input becomes tensors; an export stores them."""

UNKNOWN_SIZE = 64
"""The value of each size that the data will decide, in a model that is made before they are read."""

SAMPLES = 4
"""The number of validation examples whose predictions are recorded in ``samples.jsonl``."""


class TableTask(Task):
    """A task that is made of an input and an output.

    Attributes:
        input: the input.
        rules: the rules of the options whose default the data decide (`regard.tasks.fitting`).
        experiment: the class of its prepared runs.
        trained: the class of its trained runs.
        picture_prefix: start of the names of the pictures of predictions.
        model_class: module and class of a model that `regard.models` saves with its configuration; None: `build_model`
            makes it again.
        variant: a section and its options, of which the first that has a meaning is a part of a run's name; None: the
            name of the task is enough.
        lack: the reason why a model of another class cannot be used: ``"which does not translate"``.
    """

    input: ClassVar[Input]
    rules: ClassVar[Rules] = {}
    model_class: ClassVar[str | None] = None
    variant: ClassVar[tuple[str, ...] | None] = None
    lack: ClassVar[str] = "which is the model of another task"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "input" in vars(cls):
            cls.input_kind = cls.input.kind

    experiment: ClassVar[type[TableExperiment]]
    trained: ClassVar[Callable[..., Trained]]
    picture_prefix: ClassVar[str] = "prediction"

    @property
    def files(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return (*(file for file, _ in self.loaders().values()), *self.input.files)

    @property
    def results(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return (f"pictures/{self.picture_prefix}-[0-9]*.png", *self.input.results)

    @property
    def fitted(self) -> frozenset[str]:
        return frozenset(self.rules)

    def check_run(self, run: RunConfig) -> None:
        if getattr(run.model, "self_attention", None) == "indexed":
            raise ArgumentError(
                "self_attention 'indexed' learns from nn.IndexedAttention.index_loss as well, which the loss of a task "
                "does not have: train such a model in a loop of your own, or give self_attention 'latent'"
            )

    def fit(self, fields: Mapping[str, Mapping[str, Any]], measured: bool = True) -> dict[str, Choice]:
        typed = {name: value for section in fields.values() for name, value in section.items()}
        initial, size, columns = {}, DataSize(10_000), {}
        data, training = self.data_config(**fields["data"]), self.training_config(**fields["training"])
        data.check_new()
        if measured:
            if training.init_from is not None:
                initial = self.initial_options(training.init_from, typed)
            columns = self.input.chosen_columns(data)
            if self.rules.keys() - typed.keys() - initial.keys():
                named = dataclasses.replace(data, **{name: choice.value for name, choice in columns.items()})
                with _without_warnings():  # the training reads the data again, and warns
                    size = self.input.size(named, training)
        kinds, typed = list(section_kinds(self).values()), typed | _values(initial)
        if training.for_export is not None:
            initial |= self.exported_options(
                training.for_export, data, typed, lambda one: fit(self.rules, size, kinds, one)
            )
        return columns | initial | fit(self.rules, size, kinds, typed | _values(initial))

    def exported_options(
        self, to: Format, data: Any, typed: Mapping[str, Any], fit: Callable[[dict[str, Any]], dict[str, Choice]]
    ) -> dict[str, Choice]:
        """Returns the options of the model that an export of a format needs in addition to the user's.

        Args:
            to: the format.
            data: the options of the data.
            typed: the options that the user has set.
            fit: the options that the data decide, with others.

        Raises:
            ArgumentError: no model with the given options can be exported so; the message says what to write instead.
        """
        required: dict[str, Any] = {}
        while self.model_kind() is not None:
            options = {**typed, **required}
            options |= _values(fit(options))
            known = {one.name: options[one.name] for one in option_fields(self.model_config) if one.name in options}
            mistake = None
            try:
                config = self.model_config(**known)
            except ArgumentError as error:
                if required:
                    needs = option_text(required)
                    raise ArgumentError(f"--for-export {to} needs a training {needs}: {error}") from error
                # Options may be those of the model that is still to be chosen.
                mistake, config = error, self.model_config(**{name: known[name] for name in CHOOSING if name in known})
            try:
                self.check_export(config, data, to)
            except UnexportableError as error:
                new = {name: value for name, value in error.options.items() if name not in typed}
                is_refused = any(typed.get(name, value) != value for name, value in error.options.items())
                if is_refused or not new.keys() - required.keys():
                    raise ArgumentError(f"--for-export {to}: {error}") from error
                required |= new
            else:
                if mistake is not None:
                    raise mistake
                break
        return {name: Choice(value, f"for_export {to}") for name, value in required.items()}

    def check_export(self, config: Any, data: Any, to: Format) -> None:
        """Raises ArgumentError if the model of a configuration, completed by any data, has no export of a format."""
        from regard.exports.export import check
        from regard.models.checkpoint import create_model

        size = getattr(data, "image_size", UNKNOWN_SIZE)
        decided = [one.name for one in dataclasses.fields(config) if not is_option(one) and one.default is None]
        # Only the form of the weights counts; a program of another format runs once, to know its outputs.
        with torch.random.fork_rng(devices=[]), torch.device("meta" if to == "hf" else "cpu"):
            model = create_model(dataclasses.replace(config, **dict.fromkeys(decided, size)))
        check(model.eval(), to)

    def exportable(self, run: Any) -> Exportable:
        """Returns the parts of a run that an export needs; the run has a folder, a configuration, files and a model."""
        from regard.exports.export import Exportable

        files = {name: (run.files[name], run.folder.file(file)) for name, (file, _) in self.loaders().items()}
        preparation = {name: getattr(run.config.data, name) for name in PREPARATION if hasattr(run.config.data, name)}
        front_end = self.input.front_end(run)
        return Exportable(run.folder.path.name, self.name, run.model, files, preparation, front_end)

    def initial_options(self, path: str, typed: Mapping[str, Any]) -> dict[str, Choice]:
        """Returns the options of the run from whose weights this one starts, as far as the user has not set them.

        Raises:
            RunError: there is no such run.
        """
        from regard.training.run import initial_run

        other = initial_run(self, path).read_config(self)
        options = {
            field.name: getattr(other.model, field.name)
            for field in option_fields(self.model_config)
            if not isinstance(other.model, Configuration) or other.model.has_meaning(field.name)
        }
        if any(options.get(name, typed[name]) != typed[name] for name in CHOOSING if name in typed):
            return {}  # weights of another kind of model; the training refuses them
        options |= {name: value for name, value in vars(other.data).items() if name in self.rules}
        return {name: Choice(value, f"as in {path}") for name, value in options.items() if name not in typed}

    def build_model(self, run: RunConfig, files: Mapping[str, Any], train: Examples | None) -> nn.Module:
        """Returns a new model: that of the section ``model``, completed by the fields that the data decide.

        Args:
            run: the configuration of the run.
            files: the contents of the files of `loaders`: tokenizers, labels.
            train: the training examples; None: the model of a finished run is rebuilt.
        """
        from regard.models.checkpoint import create_model

        return create_model(dataclasses.replace(run.model, **self.data_fields(run, files, train)))

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        """Returns the fields of the model's configuration that the data decide; arguments as in `build_model`."""
        raise NotImplementedError(f"the task {self.name!r} has neither a model of its own nor the sizes of one")

    def model_kind(self) -> type[nn.Module] | None:
        """Returns the class of the model if `regard.models` saves it with its configuration, else None."""
        if self.model_class is None:
            return None
        module, name = self.model_class.split(":")
        return getattr(import_module(module), name)

    def run_name(self, config: RunConfig) -> str:
        if self.variant is None:
            return self.name
        section, *names = self.variant
        fields = getattr(config, section)
        name = next((one for one in names[:-1] if fields.has_meaning(one)), names[-1])
        return f"{self.name}-{getattr(fields, name)}"

    @abstractmethod
    def loaders(self) -> dict[str, tuple[str, Callable[[Path], Any]]]:
        """Returns the files that a trained run needs: name → file, and the function that reads it."""

    @abstractmethod
    def learn(self, run: RunConfig, folder: RunFolder, rows: Any, held_out: Any) -> dict[str, Any]:
        """Learns the contents of the files of `loaders` from the training rows and saves them, unless they exist.

        Args:
            run: the configuration of the run.
            rows: the training rows.
            held_out: the training rows that are used for validation, or None.
        """

    def target(self, files: Mapping[str, Any]) -> IdEncoder:
        """Returns the encoder of the texts or labels that are predicted."""
        return list(files.values())[-1]

    def word_embeddings(self, run: RunConfig, model: Any) -> tuple[list[nn.Embedding], str]:
        """Returns the embeddings for pretrained vectors of words, and the option that sets their number of features."""
        raise ArgumentError(f"word_vectors has no meaning for the task {self.name!r}")

    def read_tokenizer(self, files: Mapping[str, Any]) -> Any:
        """Returns the tokenizer of the words that a model reads."""
        return files["source"] if "source" in files else files["tokenizer"]

    def validation_limit(self, run: RunConfig) -> int:
        """Returns the largest number of validation examples; 0 for all."""
        return 0

    def validated_size(self, experiment: TableExperiment) -> int:
        """Returns the number of examples on which the model is measured in a training."""
        return len(experiment.validation)

    def sizes(self, experiment: TableExperiment) -> list[str]:
        """Returns further parts of the first line of a run, after the numbers of examples."""
        return []

    def prepare(self, config: RunConfig, folder: RunFolder) -> TableExperiment:
        return self.experiment(self, config, folder)

    def load(self, folder: RunFolder, device: str = "cpu") -> Trained:
        return self.trained(self, folder, device)

    def data_files(self, folder: RunFolder, config: RunConfig) -> Mapping[str, Sequence[Path]]:
        return self.input.data_files(folder, config.data)

    def test_data(self, folder: RunFolder, config: RunConfig) -> Any:
        return self.input.source(config.data, folder, "test")


class TableExperiment(Experiment):
    """One prepared run: its data and its model.

    Args:
        run: the configuration of the run.
        folder: the run folder, in which the learnt files and the generated corpus are.

    Attributes:
        files: what the task learnt from the training data: tokenizers, labels.
        train: the training examples.
        validation: the validation examples.
        validation_rows: the same, not encoded.
    """

    def __init__(self, task: TableTask, run: RunConfig, folder: RunFolder):
        from regard.training.randomness import seed_step

        self.task, self.run, self.training, self.input = task, run, run.training, task.input
        self.folder = folder
        task.check_run(run)
        rows, validation = self.input.open_training(run.data, folder)
        limit = task.validation_limit(run) or len(validation)
        self.validation_rows = validation
        if limit < len(validation):
            self.validation_rows = self.input.select(validation, range(limit))
        own_validation = run.data.validation or run.data.bundled
        self.files = task.learn(run, folder, rows, None if own_validation else validation)
        self.check_rows(folder)
        self.encode(rows, folder)
        self.examine(rows)
        # The libraries that opened the data may have drawn random numbers.
        seed_step(self.training.seed, -1)
        self.model: Any = task.build_model(run, self.files, self.train)
        vectors = self.copy_word_vectors(folder)
        self.input.prepare_model(self.model, run, folder, self.train)
        parts = [self.train.description, f"{task.validated_size(self):,} to validate on", *task.sizes(self), *vectors]
        self.description = " · ".join(parts)

    @property
    def validated(self) -> int:
        return len(self.validation)

    def copy_word_vectors(self, folder: RunFolder) -> list[str]:
        """Copies pretrained vectors into the embeddings of a new model; returns their number for the run's first line.

        Raises:
            ArgumentError: the vectors have another number of features than the embeddings.
            DataError: the file cannot be used.
        """
        path = getattr(self.run.data, "word_vectors", None)
        if path is None or any(folder.checkpoints.glob("step-*.ckpt")):  # a checkpoint has them
            return []
        from regard.data.text.word_vectors import OtherDimensionError, read_word_vectors

        embeddings, option = self.task.word_embeddings(self.run, self.model)
        tokenizer = self.task.read_tokenizer(self.files)
        ids, dim = tokenizer.word_ids(), embeddings[0].embedding_dim
        try:
            vectors = read_word_vectors(folder.manifest.resolve(path), ids, dim, len(tokenizer))
        except OtherDimensionError as error:
            name = option.replace("_", "-")
            raise ArgumentError(f"--word-vectors: {error}; give --{name} {error.dim}, or other vectors") from error
        with torch.no_grad():
            for embedding in embeddings:
                rows = torch.tensor(vectors.rows, device=embedding.weight.device)
                embedding.weight[rows] = torch.from_numpy(vectors.vectors).to(embedding.weight)
        return [f"vectors for {vectors.words:,} of {len(ids):,} words"]

    def check_rows(self, folder: RunFolder) -> None:
        """Raises DataError if validation or test data contradict what was learnt from the training data."""

    def encode(self, rows: Any, folder: RunFolder) -> None:
        """Encodes the training rows and the validation rows."""
        target = self.task.target(self.files)
        self.train = self.input.encode(rows, self.run, self.files, target, training=True)
        self.validation = self.input.encode(self.validation_rows, self.run, self.files, target, training=False)
        self.input.check_examples(self.train, self.validation)

    def examine(self, rows: Any) -> None:
        """Computes values of the rows that the loss or the validation needs."""

    @property
    def device(self) -> Any:
        """The device of the model."""
        return next(self.model.parameters()).device

    def batches(self, rank: int, world_size: int) -> EpochLoader:
        return self.train.epochs(self.training, rank, world_size)

    def try_export(self, to: Format) -> None:
        from regard.exports.export import export

        training = self.model.training
        run = SimpleNamespace(folder=self.folder, config=self.run, files=self.files, model=self.model.eval())
        with torch.random.fork_rng(devices=[]), temporary_folder() as folder:
            export(self.task.exportable(run), to, folder / to)
        self.model.train(training)

    def save_model(self, path: Path) -> None:
        if self.task.model_kind() is None:
            super().save_model(path)
        else:
            from regard.models.checkpoint import save_model

            save_model(path, self.model)


def _values(choices: Mapping[str, Choice]) -> dict[str, Any]:
    return {name: choice.value for name, choice in choices.items()}


@contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("regard")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def summed(losses: Sequence[torch.Tensor]) -> float:
    """Returns the sum of the losses of batches; the host waits for an accelerator only once."""
    return sum(torch.stack(list(losses)).tolist()) if losses else 0.0


def gathered(part: Any, world_size: int) -> list[Any]:
    """Returns the parts of all processes of a distributed run, in their order."""
    if world_size == 1:
        return [part]
    parts: list[Any] = [None] * world_size
    torch.distributed.all_gather_object(parts, part)
    return parts
