"""Texts as input: tables of texts with labels or of pairs of texts, their tokenizers, and their batches."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.configuration import Range, option
from regard.data import text as text_data
from regard.data.text.words import unspaced_share
from regard.errors import DataError, KindError
from regard.tasks.inputs.input import Examples, Generated, Input, drawn_rows, some_rows
from regard.tasks.inputs.run_tokenizer import text_tokenizer, tokenizer_path
from regard.tasks.lazy import np, tables
from regard.tasks.memory_rows import a_type
from regard.tasks.options import BATCH, TokenOptions
from regard.training.config import TrainingConfig

if TYPE_CHECKING:
    import datasets
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.batches import Batches
    from regard.data.text.batches import IdEncoder, PairBatch
    from regard.data.text.tokenizers import Tokenizer
    from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")

Value = TypeVar("Value")

MEASURED_TEXTS = 1_000
"""The most texts whose lengths are measured before a training."""

LABEL_TOKENS = 3
"""The tokens of a label as a target: ``bos``, its own token and ``eos``."""


@dataclass(frozen=True)
class ReadText:
    """A text as a model reads it.

    Attributes:
        text: the text.
        ids: of the tokens that the model reads.
        cut: tokens at its end that the model does not read.
    """

    text: str
    ids: list[int] = field(repr=False)
    cut: int = 0


class TextExamples(Examples):
    """Encoded texts with encoded targets, in batches of similar lengths."""

    def __init__(self, table: datasets.Dataset, source: TextInput):
        self.table, self._source = table, source
        self._in_order: Batches[int, PairBatch] | None = None
        self.description = f"{len(table)} {source.examples}"

    def __len__(self) -> int:
        return len(self.table)

    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.asarray(self.table["source_length"]), np.asarray(self.table["target_length"])

    def epochs(self, training: Any, rank: int, world_size: int) -> Batches[int, PairBatch]:
        return self._loader(training, shuffle=True, rank=rank, world_size=world_size)

    def in_order(self, training: Any) -> Iterator[PairBatch]:
        if self._in_order is None:
            self._in_order = self._loader(training, shuffle=False)
        self._in_order.set_epoch(0)
        return iter(self._in_order)

    def _loader(self, training: Any, **options: Any) -> Batches[int, PairBatch]:
        tokens, source_tokens = self._source.batch_tokens(training)
        return text_data.batches.pair_batches(
            self.table, tokens, seed=training.seed, source_tokens_per_batch=source_tokens, **options
        )


class TextInput(Input):
    """Texts; the rows are a table with the columns ``source`` and ``target``."""

    kind = "text"

    def batch_tokens(self, training: Any) -> tuple[int, int | None]:
        """Returns the largest numbers of target and source tokens of a batch; None is twice the target tokens."""
        return training.tokens_per_batch, None

    def select(self, rows: datasets.Dataset, numbers: Any) -> datasets.Dataset:
        return rows.select(numbers)

    def targets(self, rows: datasets.Dataset) -> list[str]:
        return list(rows["target"])

    def names(self, rows: datasets.Dataset) -> list[str]:
        return list(rows["source"])

    def inputs(self, rows: datasets.Dataset, trained: Any) -> list[ReadText]:
        return self.read(list(rows["source"]), trained)

    def mean_lengths(self, rows: datasets.Dataset, data: Any) -> tuple[float, float]:
        some = rows.select(some_rows(len(rows), MEASURED_TEXTS))
        return _mean_bytes(some["source"]), _mean_bytes(some["target"])

    def unspaced(self, rows: datasets.Dataset) -> tuple[float, float]:
        # Languages may alternate, and rows at equal distances be all of one.
        some = rows.select(drawn_rows(len(rows), MEASURED_TEXTS))
        return unspaced_share(some["source"]), unspaced_share(some["target"])

    def tokenizer(self, learnt: Mapping[str, Any]) -> Tokenizer:
        """Returns the tokenizer of the texts that are read."""
        return learnt["tokenizer"]

    def loaders(self) -> dict[str, tuple[str, Callable[[Path], Any]]]:
        return {"tokenizer": ("tokenizer.json", text_data.tokenizers.Tokenizer.load)}

    def sizes(self, experiment: Any) -> list[str]:
        return [f"vocabulary {len(experiment.files['tokenizer'])}"]

    def learn(self, run: Any, folder: RunFolder, rows: datasets.Dataset) -> dict[str, Any]:
        return {"tokenizer": text_tokenizer(tokenizer_path(folder), run, column(rows, "source"))}

    def encode(
        self, rows: datasets.Dataset, run: Any, learnt: Mapping[str, Any], target: IdEncoder, training: bool
    ) -> TextExamples:
        table = text_data.batches.encode_pairs(
            rows,
            self.tokenizer(learnt),
            target,  # pyright: ignore[reportArgumentType] (a tokenizer, or labels)
            max_length=run.data.max_length,
            overlong="drop" if training else "cut",
            unit=self.examples,
        )
        return TextExamples(table, self)

    def arguments(self, batch: PairBatch, training: Any = None) -> tuple[Tensor, ...]:
        return batch.source, batch.source_lengths

    def read(self, inputs: Sequence[Any], trained: Any) -> list[ReadText]:
        for number, text in enumerate(inputs):
            if not isinstance(text, (str, ReadText)):
                raise KindError(f"inputs[{number}] must be text; it is {a_type(text)}")
        texts = [one.text if isinstance(one, ReadText) else one for one in inputs]
        return [ReadText(text, ids) for text, ids in zip(texts, self._ids(texts, trained), strict=True)]

    def _ids(self, texts: list[str], trained: Any) -> list[list[int]]:
        return self.tokenizer(trained.files).encode_batch(texts)

    def of_file(self, path: Path) -> str:
        return file_text(path)

    def original(self, one: ReadText) -> str:
        return one.text

    def batch(self, inputs: Sequence[ReadText], targets: Sequence[Sequence[int]] | None = None) -> PairBatch:
        return text_data.batches.PairBatch.of([one.ids for one in inputs], targets)

    def annotations(self, one: ReadText) -> int:
        return len(one.ids)


@dataclass(frozen=True)
class LabelledTextOptions(TokenOptions):
    """Texts with labels, and how they are split into tokens."""

    train: str | None = None
    """Training texts: a .tsv, .csv, .jsonl or .parquet file, a folder with a folder of .txt files for each label, a
    Hugging Face data set 'owner/name', or 'bundled' for generated texts."""
    held_out: float = 1000
    text_column: str | None = None
    """Column of the texts. Default: text, or the only one of a usual name, such as Review or Message."""
    label_column: str | None = None
    """Column of the labels: texts or numbers. Default: label, or the only one of a usual name, such as Category."""
    vocabulary: int = 20000
    max_length: int = 512
    """Largest number of tokens of a text; longer ones are cut."""

    columns = ("text_column", "label_column")


@dataclass(frozen=True)
class LabelledTextTraining(TrainingConfig):
    """The batches of texts with labels."""

    tokens_per_batch: int = option(16384, within=Range(1, 1000 * BATCH.high))
    """Largest number of tokens of a batch, padding included; a longer text is a batch of one."""


class LabelledTexts(TextInput):
    """Texts with labels; a text that is too long is cut."""

    examples = "texts"
    roles = "TEXT", "LABEL"
    stored_columns = ("text", "label")
    plain = "words and characters"

    def labelled_contents(
        self, rows: datasets.Dataset, examples: Callable[[], Examples], most: int
    ) -> tuple[list[str], list[str]]:
        drawn = self.select(rows, drawn_rows(len(rows), most))
        return self.names(drawn), self.targets(drawn)

    def content(self, one: ReadText) -> str:
        return one.text

    def batch_tokens(self, training: Any) -> tuple[int, int | None]:
        return LABEL_TOKENS * training.batch_size, training.tokens_per_batch

    def class_files(self, folder: Path) -> Sequence[Path]:
        return text_data.sources.class_texts(folder).files

    def open(self, source: Any, columns: Sequence[str | None], data: Any, limit: int | None = None) -> datasets.Dataset:
        return text_data.sources.open_labelled(source, *columns, limit=limit)

    def encode(
        self, rows: datasets.Dataset, run: Any, learnt: Mapping[str, Any], target: IdEncoder, training: bool
    ) -> TextExamples:
        return super().encode(rows, run, learnt, target, training=False)

    def read(self, inputs: Sequence[Any], trained: Any) -> list[ReadText]:
        longest = trained.config.data.max_length
        return [
            ReadText(one.text, one.ids[:longest], max(0, len(one.ids) - longest))
            for one in super().read(inputs, trained)
        ]


class PairedTexts(TextInput):
    """Texts with the texts that they become; pairs with a text that is too long are not trained on."""

    random_held_out = False
    roles = "SOURCE", "TARGET"

    def __init__(self, generated: Generated, examples: str = "pairs"):
        super().__init__(generated, examples)

    def open(self, source: Any, columns: Sequence[str | None], data: Any, limit: int | None = None) -> datasets.Dataset:
        return text_data.sources.open_pairs(
            source, *columns, lowercase=data.lowercase, limit=limit, roles=self.column_roles()
        )


def _mean_bytes(texts: Sequence[str]) -> float:
    return sum(len(text.encode()) for text in texts) / len(texts)


def column(rows: datasets.Dataset, *names: str) -> Iterator[str]:
    """Yields the texts of some columns, which it reads block by block."""
    block: Any
    for block in rows.iter(10_000):
        yield from itertools.chain.from_iterable(block[name] for name in names)


def row_values(
    data: Any, name: str, rows: int, parse: Callable[[Any], Value], counts: str, suffixes: Sequence[str] = (".tsv",)
) -> list[Value] | None:
    """Returns the parsed values of a further column of a file, one for each row; None if it has no such column.

    Args:
        counts: words for the values and their rows, for messages: ``"{} alignments for {} pairs"``.

    Raises:
        DataError: a value cannot be parsed, or there are fewer values than rows.
    """
    path = Path(data) if isinstance(data, (str, Path)) else Path()
    if path.suffix not in suffixes or not path.is_file():
        return None
    values = []
    for number, (_, row) in enumerate(tables.record_places(path), start=1):
        if name not in row:
            return None
        if number > rows:
            break
        try:
            values.append(parse(row[name]))
        except DataError as error:
            raise DataError(f"{path}: row {number}: {error}") from error
    if len(values) != rows:
        raise DataError(f"{path} has {counts.format(len(values), rows)}; correct or remove the column")
    return values


def file_text(path: Path) -> str:
    """Returns the text of a file; raises DataError if the file cannot be read or is not UTF-8."""
    return "".join(text_data.running_text.text_blocks(path))
