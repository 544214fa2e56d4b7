"""What every kind of input has: where the data of a run are, how they are opened and split, how they become batches."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data import text as text_data
from regard.data.column_roles import choose_columns, chosen_columns, expecting, guessed_columns, unused_columns
from regard.data.records import kind_of, quoted_names
from regard.errors import ColumnError, DataError, FolderError
from regard.files.atomic import temporary_folder
from regard.names.counted import counted
from regard.tasks.fitting import DataSize
from regard.tasks.lazy import np, tables, torch
from regard.training.processes import is_on_cpu, process_count
from regard.training.run_folder import RunFolder
from regard.training.task import Choice

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.records import Records
    from regard.data.speech.log_mel import LogMel
    from regard.data.text.batches import IdEncoder
    from regard.tasks.options import DataOptions
    from regard.training.task import EpochLoader, InputKind

log = logging.getLogger("regard")

PARTS = ("train", "validation", "test")
"""The parts of a run's data."""

IGNORED = -1
"""The class of pixels and frames that neither losses nor metrics count."""


@dataclass
class Generated:
    """The generated corpus of a task, whose truth is known."""

    write: Callable[[Any, dict[str, int]], Mapping[str, Path]]
    """Writes parts of these sizes into a folder, and returns their files."""
    validation: int
    """Examples of the validation part."""
    test: int
    """Examples of the test part."""
    suffix: str = ".tsv"
    """End of the names of its files."""
    columns: tuple[str | None, ...] = (None, None)
    """The columns of its files."""
    lengths: tuple[float, float] = (0.0, 0.0)
    """Mean lengths of an input and of a text to write, in bytes or frames; 0 if no rule depends on them."""


class Examples(ABC):
    """Encoded examples, which are given in batches."""

    description: str
    """The number of examples, for the first line of a run: ``"120 texts"``."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def epochs(self, training: Any, rank: int, world_size: int) -> EpochLoader:
        """Returns the batches for training, whose size the options of the training set."""

    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the length of each input, in tokens or frames, and the number of tokens of its target."""
        raise NotImplementedError(f"{type(self).__name__} has no lengths")

    def in_order(self, training: Any) -> Iterator[Any]:
        """Returns all batches in a fixed order."""
        raise NotImplementedError(f"{type(self).__name__} has no batches in a fixed order")


class Input(ABC):
    """One kind of input. It needs no method that the output of its task does not call.

    Attributes:
        kind: what one input of a prediction is.
        examples: what an example is, in the plural.
        labelled_unit: what has a label, for messages.
        random_held_out: whether validation examples are taken from the training data at random, because the last ones
            of a sorted table would all be alike; else they are the last ones.
        roles: names of the constants of `regard.data.column_roles` that say what is read in the columns of a table; ():
            no table is read by its columns.
        stored_columns: the columns of data in memory that are written into a file, where no option names them.
        suffixes: those of the files in a folder of inputs.
        reads_tables: whether a training reads a table by its columns; else as running text.
        plain: the features of a linear model beside a classifier, for people; empty: there are none.
        generated: the generated corpus of the task; a task without one has an empty one.
    """

    kind: ClassVar[InputKind]
    examples: str
    labelled_unit: str = "text"
    random_held_out: bool = True
    roles: tuple[str, ...] = ()
    stored_columns: tuple[str, ...] = ("source", "target")
    suffixes: tuple[str, ...] = (".txt",)
    reads_tables: bool = True
    plain: ClassVar[str] = ""

    def __init__(self, generated: Generated | None = None, examples: str | None = None):
        self.generated = Generated(lambda *_: {}, 0, 0) if generated is None else generated
        if examples is not None:
            self.examples = examples

    @property
    def files(self) -> tuple[str, ...]:
        """Files that the input needs in a run folder, relative to it."""
        if not self.generated.test:
            return ()
        return tuple(f"corpus/{part}{self.generated.suffix}" for part in PARTS)

    @property
    def results(self) -> tuple[str, ...]:
        """Patterns of other files that it writes there."""
        return ()

    @property
    def sample_name(self) -> str:
        """The name of the input in ``samples.jsonl``."""
        return self.kind

    # Where the data are

    def generated_path(self, folder: RunFolder, part: str) -> Path:
        """Returns the file of a part of the generated corpus in a run folder."""
        return bundled_path(folder, part, self.generated.suffix)

    def located(self, folder: RunFolder, source: str) -> Any:
        """Returns a source as paths that any working directory can open; other sources stay as they are."""
        paths = text_data.sources.local_files(source)
        return source if paths is None else ",".join(folder.manifest.resolve(str(path)) for path in paths)

    def source(self, data: DataOptions, folder: RunFolder, part: str) -> Any:
        """Returns the source of a part of a run's data; None if the run has no such part."""
        option = getattr(data, part)
        if option is None:
            return str(self.generated_path(folder, part)) if data.bundled else None
        return self.located(folder, option)

    def data_files(self, folder: RunFolder, data: DataOptions) -> dict[str, tuple[Path, ...]]:
        """Returns the files of the training and validation data, to detect whether they have changed.

        The test data decide nothing about a model, and may be others with --resume.
        """
        sources = {part: getattr(data, part) for part in ("train", "validation")}
        return {
            part: paths
            for part, source in sources.items()
            if source is not None and (paths := self.source_files(folder, source)) is not None
        }

    def source_files(self, folder: RunFolder, source: str) -> tuple[Path, ...] | None:
        """Returns the files of a source, of all labels for a folder of classes; None if it is not on this machine."""
        paths = text_data.sources.local_files(self.located(folder, source))
        if paths is None:
            return None
        return tuple(file for path in paths for file in (self.class_files(path) if path.is_dir() else [path]))

    def class_files(self, folder: Path) -> Sequence[Path]:
        """Returns the files of a folder that has a folder for each label."""
        return [folder]

    def column_roles(self) -> Any:
        """Returns what the task reads in the two columns of a table, as `regard.data.column_roles.Roles`."""
        from regard.data import column_roles

        return tuple(getattr(column_roles, name) for name in self.roles)

    def chosen_columns(self, data: DataOptions) -> dict[str, Choice]:
        """Returns the columns of the training data that have neither an option nor a default name, by their field."""
        records = self.open_table(data.train)
        if records is None:
            return {}
        columns = chosen_columns(records, self.column_roles(), data.named_columns)
        return {field: Choice(*column) for field, column in columns.items()}

    def columns_of(
        self, source: Any, usual: Sequence[str | None], named: Sequence[str | None] = ()
    ) -> tuple[str | None, ...]:
        """Returns the columns of data that should have the columns of the training data.

        Args:
            usual: the columns of the training; None where the order of two columns tells them.
            named: columns that the user named for these data.

        Raises:
            ColumnError: they have others, which cannot be told.
        """
        records = self.open_table(source)
        if records is None:
            return with_defaults(named, usual)
        roles = expecting(self.column_roles(), usual)
        return choose_columns(records._replace(remark=""), roles, named or (None, None))  # its reader says the remark

    def columns_like(self, source: Any, usual: Sequence[str | None]) -> tuple[str | None, ...]:
        """Returns `columns_of` for data whose columns no option names; they need the names of the training data's."""
        try:
            return self.columns_of(source, usual)
        except ColumnError as error:
            said = str(error).partition("; by their content")[0]
            names = quoted_names([name for name in usual if name is not None])
            raise DataError(f"{said}; call its columns as those of the training data are called, {names}") from error

    def open_table(self, source: Any) -> Records | None:
        """Returns a source as a table, if the task reads its columns; None for another file, a folder or a data set."""
        if not self.roles or not isinstance(source, (str, Path)):
            return None
        path = Path(source)
        self.check_folder(path)
        return tables.open_records(path) if path.suffix.lower() in tables.READERS and path.is_file() else None

    def check_folder(self, path: Path) -> None:
        """Raises FolderError if a folder has no examples of its own but a table of examples."""
        if not path.is_dir() or self.has_examples(path):
            return
        roles = self.column_roles()
        unknown = {one.field: None for one in roles}
        paths = [one for one in tables.tables_in(path) if guessed_columns(tables.open_records(one), roles, unknown)]
        if paths:
            names = ", ".join(one.name for one in paths)
            said = f"the table {names}" if len(paths) == 1 else f"the tables {names}"
            raise FolderError(f"{path}: is a folder with {said}; name the table: {paths[0]}", str(path), str(paths[0]))

    def has_examples(self, folder: Path) -> bool:
        """Whether a folder has files in folders of classes, where what is predicted is a label."""
        is_labelled = self.column_roles()[1].content == "label"
        return is_labelled and any(path.suffix.lower() in self.suffixes for path in folder.glob("*/*"))

    def columns(self, data: DataOptions, folder: RunFolder, source: Any, named: Sequence[str | None] = ()) -> Any:
        """Returns the columns of a source to evaluate on.

        Args:
            named: columns that the user named for it.
        """
        is_generated = isinstance(source, (str, Path)) and Path(source) == self.generated_path(folder, "test")
        if is_generated:
            return with_defaults(named, self.generated.columns)
        return self.columns_of(source, data.named_columns, named)

    # How large they are

    def size(self, data: DataOptions, training: Any) -> DataSize:
        """Returns the size of the training data and the machine, which decide defaults."""
        lengths, validation, unspaced = self.generated.lengths, self.generated.validation, (0.0, 0.0)
        if data.train is None:
            rows = data.bundled
        else:
            self.open_table(data.train)
            opened = self.open(data.train, data.named_columns, data)
            rows, lengths, unspaced = len(opened), self.mean_lengths(opened, data), self.unspaced(opened)
        if data.validation is not None:
            columns = self.columns_like(data.validation, data.named_columns)
            validation = len(self.open(data.validation, columns, data))
        elif data.train is not None:
            held_out = held_out_size(rows, data.held_out)
            rows, validation = rows - held_out, held_out or rows
        return replace(self.sized(training, rows, validation, lengths), unspaced=unspaced)

    def sized(
        self, training: Any, rows: int, validation: int, lengths: tuple[float, float], unit: str | None = None
    ) -> DataSize:
        """Returns a size of data together with the machine."""
        # Processes that share texts have the same batches.
        processes = max(1, process_count(training) // getattr(training, "sequence_processes", 1))
        return DataSize(rows, unit or self.examples, *lengths, validation, is_on_cpu(training), processes)

    def mean_lengths(self, rows: Any, data: DataOptions) -> tuple[float, float]:
        """Returns the mean lengths of inputs and of texts to write, in bytes or frames; 0 if they do not count."""
        return 0.0, 0.0

    def unspaced(self, rows: Any) -> tuple[float, float]:
        """Returns the shares of letters of scripts without spaces, among the inputs and among the texts to write."""
        return 0.0, 0.0

    # How they are opened

    @abstractmethod
    def open(self, source: Any, columns: Sequence[str | None], data: Any, limit: int | None = None) -> Any:
        """Returns the examples of a source, as rows that are not encoded yet.

        Args:
            limit: largest number of rows, from the first; None: all.

        Raises:
            DataError: the data cannot be read.
        """

    def open_part(self, data: DataOptions, folder: RunFolder, part: str) -> Any:
        """Returns the rows of one part of a run's data."""
        generated, source = data.bundled and getattr(data, part) is None, self.source(data, folder, part)
        columns = self.generated.columns if generated else data.named_columns
        if part != "train" and not generated:
            columns = self.columns_like(source, columns)
        return self.open(source, columns, data)

    def open_training(self, data: DataOptions, folder: RunFolder) -> tuple[Any, Any]:
        """Returns the training and the validation rows of a run; writes a generated corpus into its folder first."""
        for part in ("validation", "test"):
            if data.train is not None and getattr(data, part) == data.train:
                log.warning("the %s data are the training data: their metrics say nothing about other data", part)
        if data.bundled and not self.generated_path(folder, "train").is_file():
            sizes = {"train": data.bundled, "validation": self.generated.validation, "test": self.generated.test}
            self.generated.write(folder.tree("corpus"), sizes)
            self.write_examples(folder)
        train = self.open_part(data, folder, "train")
        self._say_unused(data)
        parts = {}
        if data.test is not None:
            parts["test"] = self.open_part(data, folder, "test")
            self.check_rows(parts["test"])  # a mistake in them is an error now
        if data.validation or data.bundled:
            validation = self.open_part(data, folder, "validation")
        else:
            train, validation = self.held_out(train, data)
        self._say_repeated(data, train, {"validation": validation, **parts})
        return train, validation

    def _say_repeated(self, data: DataOptions, train: Any, parts: dict[str, Any]) -> None:
        """Names how many inputs of the other parts are among those of the training, which measure no other ones."""
        others = {name: rows for name, rows in parts.items() if getattr(data, name) != data.train}
        if data.train is None or not others:
            return
        known = set(map(hash, self.names(train)))
        for name, rows in others.items():
            inputs = self.names(rows)
            if repeated := sum(hash(one) in known for one in inputs):
                log.warning(
                    "%s of the %s data %s in the training data too, and say%s nothing about other data",
                    counted(repeated, self.examples[:-1]), name, *(("is", "s") if repeated == 1 else ("are", "")),
                )  # fmt: skip

    def _say_unused(self, data: DataOptions) -> None:
        """Names the columns of the training table that are not read: a subject beside a body."""
        records = None if data.train is None else self.open_table(data.train)
        if records is not None and (line := unused_columns(records, self.column_roles(), data.named_columns)):
            log.warning("%s", line)

    def own_training_rows(self, data: DataOptions, folder: RunFolder) -> Any:
        """Returns the rows that a run was trained on; None if their files are not on this machine or have changed."""
        if data.train is None:
            if not self.generated_path(folder, "train").is_file():
                return None
        else:
            files, recorded = self.source_files(folder, data.train), folder.manifest.read().data.get("train", ())
            if files is None or not all(file.is_file() for file in files):
                return None
            if [file.stat().st_size for file in files] != [file.bytes for file in recorded]:
                return None
        rows = self.open_part(data, folder, "train")
        return rows if data.validation or data.bundled else self._split(rows, data)[0]

    def write_examples(self, folder: RunFolder) -> None:  # noqa: B027 (most inputs have nothing to write)
        """Writes a few inputs of the generated test part as files that can be predicted."""

    def check_rows(self, rows: Any) -> None:  # noqa: B027 (most rows were read when they were opened)
        """Raises DataError if the file of an input cannot be found."""

    def held_out(self, rows: Any, data: DataOptions) -> tuple[Any, Any]:
        """Splits rows into those for training and those for validation; both are all rows if there are too few."""
        train, validation = self._split(rows, data)
        if validation is rows:
            log.warning(
                "too few %s to hold some out (%d): they are used for validation as well, and its results say nothing "
                "about others",
                self.examples,
                len(rows),
            )
        return train, validation

    def _split(self, rows: Any, data: DataOptions) -> tuple[Any, Any]:
        size = held_out_size(len(rows), data.held_out)
        if not size:
            return rows, rows
        order = np.arange(len(rows))[::-1]
        if self.random_held_out:
            order = np.random.default_rng(0).permutation(len(rows))
        return self.select(rows, np.sort(order[size:])), self.select(rows, np.sort(order[:size]))

    def select(self, rows: Any, numbers: Any) -> Any:
        """Returns the rows with these numbers."""
        return [rows[number] for number in numbers]

    @contextmanager
    def generated_test(self) -> Iterator[str]:
        """Yields the file of the generated test part, which exists while the context lasts.

        It does not depend on the number of training examples, so a run on other data makes it again.
        """
        sizes = {"validation": self.generated.validation, "test": self.generated.test}
        with temporary_folder() as folder:
            yield str(self.generated.write(folder, sizes)["test"])

    # What rows are

    def targets(self, rows: Any) -> list[str]:
        """Returns the text or the label of each row."""
        raise NotImplementedError

    def names(self, rows: Any) -> list[str]:
        """Returns the name of each row's input in samples and tables: the text, or the name of the file."""
        raise NotImplementedError

    def samples(self, rows: Any, count: int) -> list[tuple[int, str, str]]:
        """Returns the number, the input and the target of each of the first rows."""
        first = self.select(rows, range(min(count, len(rows))))
        return [(number, *pair) for number, pair in enumerate(zip(self.names(first), self.targets(first), strict=True))]

    def labelled_contents(
        self, rows: Any, examples: Callable[[], Examples], most: int
    ) -> tuple[Sequence[Any], list[str]]:
        """Returns the contents and the labels of at most ``most`` training examples, drawn from all."""
        raise NotImplementedError

    def content(self, one: Any) -> Any:
        """Returns the content of an input that a linear model reads: its text, its pixels or its features."""
        raise NotImplementedError

    def plain_features(self, content: Any) -> NDArray[np.float32]:
        """Returns the numbers ``[features]`` that a linear model reads of a content that is not a text."""
        raise NotImplementedError

    def inputs(self, rows: Any, trained: Any) -> list[Any]:
        """Returns the inputs of rows, as `read` gives them."""
        raise NotImplementedError

    # How they become batches

    def loaders(self) -> dict[str, tuple[str, Callable[[Path], Any]]]:
        """Returns the files of the input in a run folder, each with the function that reads it, by name."""
        return {}

    def sizes(self, experiment: Any) -> list[str]:
        """Returns the input's part of the first line of a run."""
        return []

    def learn(self, run: Any, folder: RunFolder, rows: Any) -> dict[str, Any]:
        """Learns what the input needs from the training rows, such as a tokenizer, saves it, and returns it by name."""
        return {}

    @abstractmethod
    def encode(self, rows: Any, run: Any, learnt: Mapping[str, Any], target: IdEncoder, training: bool) -> Examples:
        """Returns rows as examples that a model can learn from.

        Args:
            training: whether examples that are too long are left out; else they are cut, or kept.

        Raises:
            DataError: an input cannot be used, or none is left.
        """

    def check_examples(self, train: Examples, validation: Examples) -> None:  # noqa: B027
        """Raises DataError if validation examples have another form than the training examples."""

    def prepare_model(self, model: Any, run: Any, folder: RunFolder, train: Examples) -> None:  # noqa: B027
        """Prepares a new model by the training inputs: sets its statistics, or loads the weights of a backbone."""

    def arguments(self, batch: Any, training: Any = None) -> tuple[Tensor, ...]:
        """Returns the arguments that a model's encoder takes of a batch.

        Args:
            training: the options of the training, which may vary the input at random; None: as it is.
        """
        raise NotImplementedError

    def pair_arguments(self, batch: Any, training: Any = None) -> tuple[Tensor, ...]:
        """Returns the arguments of a batch that come before the texts in a model that predicts known texts."""
        return self.arguments(batch, training)

    def masked(self, batch: Any, training: Any = None) -> tuple[tuple[Tensor, ...], Tensor]:
        """Returns the model's arguments of a batch, and the class of each of its parts, −1 where none counts."""
        classes = batch.target[:, 1:-1]
        beyond = torch.arange(classes.shape[1], device=classes.device) >= (batch.target_lengths - 2)[:, None]
        return self.arguments(batch, training), classes.masked_fill(beyond, IGNORED)

    def class_counts(self, examples: Examples, rows: Any, classes: int) -> tuple[int, ...]:
        """Returns the number of parts of the examples that have each class.

        Raises:
            DataError: a part has a class that there is not.
        """
        return (1,) * classes

    # How a trained model reads them

    @abstractmethod
    def read(self, inputs: Sequence[Any], trained: Any) -> list[Any]:
        """Returns the inputs of a prediction as the model of a trained run reads them.

        Raises:
            DataError: a file cannot be used.
            KindError: something is given that is no such input.
        """

    def files_below(self, folder: Path) -> list[Path]:
        """Returns the files in a folder of inputs to predict and in its subfolders."""
        return sorted(path for path in folder.rglob("*") if path.is_file())

    def of_file(self, path: Path) -> Any:
        """Returns a file of a folder as the input of a prediction."""
        return str(path)

    def of_cell(self, value: Any, column: str, folder: Path, origin: str) -> Any:
        """Returns the cell of a table as the input of a prediction.

        Args:
            origin: where it is, for messages: ``"test.csv: line 7"``.

        Raises:
            DataError: it is no input.
        """
        if isinstance(value, str):
            return value
        raise DataError(f"{origin}, column {column!r} must be text; it is {kind_of(value)}")

    def original(self, one: Any) -> Any:
        """Returns the input as it was passed to a prediction."""
        return getattr(one, "source", one)

    def batch(self, inputs: Sequence[Any], targets: Sequence[Sequence[int]] | None = None) -> Any:
        """Returns a batch of inputs that were read, with the ids of their targets."""
        raise NotImplementedError

    def content_number(self, one: Any) -> int:
        """Returns a number that depends on the content that the model reads, and on nothing else."""
        content = sha256()
        for part in self.arguments(self.batch([one])):
            content.update(part.contiguous().numpy().tobytes())
        return int.from_bytes(content.digest()[:8], "little")

    def batch_annotations(self, batch: Any, config: Any) -> list[int]:
        """Returns the number of annotations that a model with this configuration makes of each input of a batch."""
        return batch.source_lengths.tolist()

    def front_end(self, trained: Any) -> LogMel | None:
        """Returns the front end that computes the features of sounds; None for a model that has none."""
        return None

    def annotations(self, one: Any) -> int:
        """Returns the number of annotations that a model makes of an input; batches have inputs of similar numbers."""
        return 1


def bundled_path(folder: RunFolder, part: str, suffix: str = ".tsv") -> Path:
    """Returns the file of a part of the generated corpus in a run folder."""
    return folder.tree("corpus") / f"{part}{suffix}"


def held_out_size(rows: int, held_out: float) -> int:
    """Returns how many training examples are used for validation; 0 if there are too few.

    Args:
        held_out: how many are wanted, of which at most a tenth of them are used; or a share below 1.
    """
    return min(round(held_out * rows), rows - 1) if held_out < 1 else min(int(held_out), rows // 10)


def chunks(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Returns the rows in parts of a size."""
    return (rows[first : first + size] for first in range(0, len(rows), size))


def drawn_rows(rows: int, most: int) -> NDArray[np.int64]:
    """Returns the numbers of at most ``most`` rows, drawn at random with a fixed seed, in a random order."""
    return np.random.default_rng(0).permutation(rows)[:most]


def some_rows(rows: int, most: int) -> range:
    """Returns the numbers of at most ``most`` rows at equal distances."""
    return range(0, rows, max(1, -(-rows // most)))


def with_defaults(columns: Sequence[str | None], defaults: Sequence[str | None]) -> tuple[str | None, ...]:
    """Returns the columns that the user named, with the default of each one left out; ``()`` leaves all out."""
    return tuple(one or other for one, other in zip(columns or (None,) * len(defaults), defaults, strict=True))
