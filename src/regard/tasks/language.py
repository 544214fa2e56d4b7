"""The task ``language``: the next token of running text, predicted by a Transformer decoder."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.configuration import AT_LEAST_0, RATE, option
from regard.data import text as text_data
from regard.data.column_roles import TEXT, guessed_columns
from regard.data.records import quoted_names
from regard.errors import DataError
from regard.models.configs import LanguageModelConfig
from regard.tasks.fitting import DataSize
from regard.tasks.inputs.input import Examples, Generated, Input, held_out_size
from regard.tasks.inputs.run_tokenizer import initial_tokenizer, tokenizer_path
from regard.tasks.inputs.text import file_text
from regard.tasks.lazy import tables
from regard.tasks.options import BATCH, VOCABULARY, DataOptions, SequenceOptions, WordVectorOptions
from regard.tasks.outputs.next_token import NextTokenExperiment, NextTokenTask, TrainedNextTokens
from regard.tasks.registry import BUILT_IN_TASKS
from regard.tasks.rules import LANGUAGE
from regard.tasks.sequence_lines import check_lines
from regard.training.config import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.batches import Batches
    from regard.data.text.batches import IdEncoder
    from regard.data.text.running_text import TokenTable
    from regard.training.run_folder import RunFolder


@dataclass(frozen=True)
class LanguageData(WordVectorOptions, DataOptions):
    """The text of a run, and how it is split into tokens."""

    train: str | None = None
    """Training text: UTF-8 text files: a file, several with commas between them, a folder (its .txt files), a pattern
    such as 'books/**/*.md', or 'bundled' for the generated English text. A file is a document."""
    bundled: int = 0
    """Number of sentences of the generated text to train on, instead of train."""
    held_out: float = 100_000
    """Tokens of the end of the training text that are used for validation when there is no validation text; at most a
    tenth of the text."""
    tokenizer: Literal["bpe", "word", "char"] = "bpe"
    """bpe (sub-words of bytes), word or char; each keeps every space and line end."""
    vocabulary: int = option(8000, within=VOCABULARY)
    """Largest size of the vocabulary of bpe and word, in tokens; bpe has at least the 256 bytes."""

    default_bundled = 20_000
    generated = "sentences of the bundled text"


@dataclass(frozen=True)
class LanguageTrainingConfig(SequenceOptions, TrainingConfig):
    """How a language model is trained, and for how long."""

    batch_size: int = option(32, within=BATCH)
    """Windows of a batch, on each device, or on each group of sequence_processes devices."""
    windows: Literal["random", "consecutive"] = "random"
    """Windows begin at any token (random), or an epoch has every token once (consecutive), in random order."""
    steps_per_epoch: int = option(0, within=AT_LEAST_0)
    """Batches of an epoch; 0: as many as the text has windows for."""
    label_smoothing: float = option(0.0, within=RATE)
    """Probability that is distributed over all tokens, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    validation_tokens: int = option(0, within=AT_LEAST_0)
    """Tokens that each validation predicts: the first of the validation text; 0: all."""


class TokenExamples(Examples):
    """Tokens of a text, in windows."""

    def __init__(self, table: TokenTable, context: int):
        self.table, self._context = table, context
        self.description = f"{len(table):,} tokens to train on"

    def __len__(self) -> int:
        return len(self.table)

    def epochs(self, training: Any, rank: int, world_size: int) -> Batches[int, Tensor]:
        return text_data.running_text.window_batches(
            self.table,
            training.batch_size,
            self._context,
            order=training.windows,
            steps=training.steps_per_epoch,
            seed=training.seed,
            rank=rank,
            world_size=world_size,
        )


class RunningText(Input):
    """Running text; the rows are its files."""

    kind = "text"
    examples = "texts"
    stored_columns = ("text",)
    reads_tables = False

    def located(self, folder: RunFolder, source: str) -> list[Path]:

        began_in = folder.manifest.read().began_in

        def resolved(part: str) -> str:
            path = os.path.join(began_in, part)  # an absolute part stays as it is
            return path if os.path.exists(path) or glob.has_magic(part) else part

        whole = resolved(source)
        parts = [whole] if os.path.exists(whole) else [resolved(part.strip()) for part in source.split(",")]
        return list(text_data.running_text.text_files(parts))

    def source_files(self, folder: RunFolder, source: str) -> tuple[Path, ...]:
        return tuple(self.located(folder, source))

    def columns(self, data: DataOptions, folder: RunFolder, source: Any, named: Sequence[str | None] = ()) -> Any:
        return ()

    def open(self, source: Any, columns: Sequence[str | None], data: Any, limit: int | None = None) -> tuple[Path, ...]:
        files = text_data.running_text.text_files(source)
        for path in files:
            check_no_table(path)
        return files

    def held_out(self, rows: tuple[Path, ...], data: DataOptions) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        return rows, ()  # the tokens are split when they are known

    def size(self, data: Any, training: Any) -> DataSize:
        if data.train is None:
            length, _ = self.generated.lengths
            rows, validation = int(data.bundled * length), int(self.generated.validation * length)
        else:
            rows = sum(path.stat().st_size for path in self.open(data.train, (), data))
            # A number of tokens, each of some bytes.
            validation = held_out_size(rows, data.held_out * (3 if data.held_out >= 1 else 1))
        if data.validation is not None:
            validation = sum(path.stat().st_size for path in self.open(data.validation, (), data))
        elif data.train is not None:
            rows -= validation
        return self.sized(training, rows, validation, (0.0, 0.0), "bytes")

    def learn(self, run: Any, folder: RunFolder, rows: tuple[Path, ...]) -> dict[str, Any]:
        from regard.data.text.running_text import read_text

        path, initial, data = tokenizer_path(folder), run.training.init_from, run.data
        if path.is_file():
            return {"tokenizer": text_data.tokenizers.TextTokenizer.load(path)}
        if initial is not None:
            tokenizer = initial_tokenizer(text_data.tokenizers.TextTokenizer, initial, path.name, data)
        elif any(file.stat().st_size for file in rows):
            tokenizer = text_data.tokenizers.TextTokenizer.train(read_text(rows), data.tokenizer, data.vocabulary)
        else:
            raise DataError(f"{text_data.running_text.names_of(rows)}: empty; it should hold text")
        tokenizer.save(path)
        return {"tokenizer": text_data.tokenizers.TextTokenizer.load(path)}

    def encode(
        self, rows: tuple[Path, ...], run: Any, learnt: Mapping[str, Any], target: IdEncoder, training: bool
    ) -> TokenExamples:
        return TokenExamples(text_data.running_text.encode_text(rows, learnt["tokenizer"]), run.model.context)

    def names(self, rows: Any) -> list[str]:
        return []  # a text has no examples

    def of_file(self, path: Path) -> str:
        return file_text(path)

    def read(self, inputs: Sequence[str], trained: Any) -> list[str]:
        return list(inputs)


def check_no_table(path: Path) -> None:
    """Raises DataError if a file is a table with several columns, whose names and separators are no running text."""
    try:
        records = tables.open_records(path) if path.suffix.lower() in tables.READERS else None
    except DataError:  # a text whose name ends as that of a table
        return
    names = [] if records is None else [name for name in records.columns if name]
    if records is None or len(names) < 2 or records.advice:
        return
    column = next(iter(guessed_columns(records, (TEXT, TEXT), {TEXT.field: None}).values()), names[0])
    read = {".csv": "csv({})", ".tsv": "csv({}, sep='\\t')", ".parquet": "parquet({})", ".json": "json({})"}
    call = read.get(path.suffix.lower(), "json({}, lines=True)").format(repr(str(path)))
    raise DataError(
        f"{path}: is a table (columns: {quoted_names(names)}), and a language model reads running text: train on a "
        f"column in Python, regard.train('language', pandas.read_{call}[{column!r}]), or let the name end in .txt for "
        "all of it"
    )


class LanguageExperiment(NextTokenExperiment):
    """A language model and its text."""

    def encode(self, rows: Any, folder: RunFolder) -> None:
        data, context = self.run.data, self.run.model.context
        if data.validation or data.bundled:
            super().encode(rows, folder)
        else:
            train = self.input.encode(rows, self.run, self.files, self.files["tokenizer"], training=True).table  # pyright: ignore[reportAttributeAccessIssue]
            size = held_out_size(len(train), data.held_out)
            if not size:
                raise DataError(f"{data.train} has {len(train)} tokens, too few to hold some out; give --validation")
            cut = len(train) - size
            self.train = TokenExamples(train.part(0, cut), context)
            self.validation = TokenExamples(train.part(cut - 1, len(train)), context)
        if data.test is not None or data.bundled:  # a mistake in it does not wait for the end of the training
            test = self.input.open_part(data, folder, "test")
            self.input.encode(test, self.run, self.files, self.files["tokenizer"], training=False)


class TrainedLanguageModel(TrainedNextTokens):
    """The best model of a run with its tokenizer."""


def _write_text(folder: Any, sizes: dict[str, int]) -> Mapping[str, Path]:
    from regard.data.text.generated import write_text

    return write_text(folder, sizes, 1)


class LanguageTask(NextTokenTask):
    """Modelling running text."""

    name = "language"
    hub_task = "text-generation"
    summary = BUILT_IN_TASKS[name]
    input = RunningText(
        Generated(_write_text, validation=1000, test=1000, suffix=".txt", columns=(), lengths=(41.0, 0.0))
    )
    input_hint = "The beginning of a text"
    data_config = LanguageData
    model_config = LanguageModelConfig
    training_config = LanguageTrainingConfig
    rules = LANGUAGE
    experiment = LanguageExperiment
    trained = TrainedLanguageModel
    model_class = "regard.models.language_model:LanguageModel"
    variant = ("data", "tokenizer")

    def check_run(self, run: Any) -> None:
        super().check_run(run)
        check_lines(run)

    def learn(self, run: Any, folder: RunFolder, rows: Any, held_out: Any) -> dict[str, Any]:
        return self.input.learn(run, folder, rows)

    def word_embeddings(self, run: Any, model: Any) -> tuple[list[Any], str]:
        return [model.input.embedding], "hidden"

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        return {"vocabulary": len(files["tokenizer"])}


TASK = LanguageTask()
