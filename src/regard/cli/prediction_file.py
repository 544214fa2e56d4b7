"""Writes the predictions of many inputs into a file, in their order, so that a stopped command can go on."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.atomic_file import AtomicFile
from regard.errors import ArgumentError, DataError, WriteError
from regard.regular_file import LARGEST_DATA, require_regular
from regard.training.results import answer_rows

if TYPE_CHECKING:
    from regard.training.results import Prediction

SUFFIXES = (".tsv", ".csv", ".jsonl")

_TABLES = (".tsv", ".csv")


class PredictionFile:
    """A file of predictions, one line for each answer: a table (``.tsv``, ``.csv``) or JSON
    objects (``.jsonl``).

    Until all predictions are made they are in ``<name>.part``, whose first line says of which inputs, model and options
    they are. The complete file then replaces an older one.

    Args:
        path: the file.
        inputs: the inputs, in their order.
        identity: what else the predictions depend on, as plain values: they are continued only if both are the same.
        ranked: whether an input has several answers, each with its rank.
        block: inputs that are predicted together: what an earlier command wrote of a block that is not whole is
            predicted again, since draws may depend on the other inputs of the block.

    Attributes:
        done: the number of inputs whose predictions an earlier command has written, a multiple of ``block``.
        damaged_line: the first line of ``<name>.part`` that is damaged: predictions are made again from there; 0: none.

    Raises:
        ArgumentError: the name ends in no known suffix, or ``<name>.part`` has other predictions.
        DataError: there can be no such file.
    """

    def __init__(
        self, path: Path, inputs: Sequence[Any], identity: dict[str, Any], ranked: bool = False, block: int = 1
    ):
        if path.suffix not in SUFFIXES:
            raise ArgumentError(
                f"--output must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}; it is {str(path)!r}"
            )
        if path.is_dir() or not path.absolute().parent.is_dir():
            reason = "is a folder" if path.is_dir() else f"is in a folder that does not exist: {path.parent}"
            raise DataError(f"--output: {path} {reason}")
        self.path, self.part, self._ranked = path, path.with_name(path.name + ".part"), ranked
        self._block, self._inputs, self.damaged_line = block, inputs, 0
        text = json.dumps(identity | {"inputs": inputs}, sort_keys=True, default=str)
        self._first = (
            json.dumps({"predictions of": hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()}).encode()
            + b"\n"
        )
        self.done = self._earlier()

    def _earlier(self) -> int:
        """The inputs of the blocks whose predictions are complete; what is after them is deleted."""
        try:
            require_regular(self.part, LARGEST_DATA)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise DataError(f"--output: {self.part} cannot be continued: {error.strerror}") from error
        with self.part.open("r+b") as file:
            first = file.readline()
            if not first.endswith(b"\n") and self._first.startswith(first):
                return 0  # the first write was stopped
            if first != self._first:
                raise ArgumentError(
                    f"{self.part} holds predictions of other inputs, another model or other options; delete it, "
                    "or give another --output"
                )
            names = self._names(file.readline()) if self._is_table else None
            starts, end, before = [], file.tell(), 0
            for number, line in enumerate(file, 3 if self._is_table else 2):
                if not line.endswith(b"\n"):
                    break
                rank = self._rank(line, names, len(starts))
                if rank not in (1, before + 1):
                    self.damaged_line = number
                    break
                before = rank if self._ranked else 0
                if rank == 1:
                    starts.append(end)
                end += len(line)
            # It is not known how many answers the last input has, if there may be several.
            done = max(0, len(starts) - self._ranked)
            done -= done % self._block
            file.truncate(starts[done] if done < len(starts) else end)
        return done

    def _rank(self, line: bytes, names: list[str] | None, done: int) -> int:
        """The rank of the answer that a line holds, 1 if answers have none; 0: the line is damaged.

        Args:
            line: the line.
            names: of the columns; None: it is JSON.
            done: the inputs that have answers in the lines before.
        """
        try:
            fields = json.loads(line) if names is None else dict(zip(names, self._fields(line), strict=True))
            rank, written = int(fields["rank"]) if self._ranked else 1, fields["input"]
        except (ValueError, KeyError, TypeError, RecursionError, csv.Error):  # UnicodeDecodeError is a ValueError
            return 0
        number = done if rank == 1 else done - 1
        if not 0 <= number < len(self._inputs):
            return 0
        source = self._inputs[number]
        expected = source if names is None or not isinstance(source, str) else self._cell(source)
        return rank if not isinstance(source, str) or written == expected else 0

    def _fields(self, line: bytes) -> list[str]:
        """The fields of a line of a table."""
        text = line.decode().removesuffix("\n")
        return text.split("\t") if self.path.suffix == ".tsv" else next(csv.reader([text]), [])

    def _names(self, line: bytes) -> list[str]:
        """The names of the columns in the head of a table; none of a damaged one."""
        try:
            return self._fields(line)
        except (ValueError, csv.Error):
            return []

    @property
    def _is_table(self) -> bool:
        return self.path.suffix in _TABLES

    def append(self, predictions: Sequence["Prediction"]) -> None:
        """Write the next predictions.

        Raises:
            DataError: they cannot be written; those before them are kept.
        """
        rows = answer_rows(predictions, self._ranked, details=self.path.suffix == ".jsonl")
        lines = [self._line(row) for row in rows]
        if not self.done and self._is_table:
            lines.insert(0, self._row(rows[0]))
        content = "".join(f"{line}\n" for line in lines).encode()
        try:
            with self.part.open("ab" if self.done else "wb") as file:
                file.write(content if self.done else self._first + content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(f"cannot write {self.part}: {error.strerror}; the same command continues it") from error
        self.done += len(predictions)

    def _line(self, row: dict[str, Any]) -> str:
        if not self._is_table:
            return json.dumps(row, ensure_ascii=False)
        return self._row(map(self._cell, row.values()))

    def _cell(self, value: Any) -> str:
        return " ".join(str(value).split())

    def _row(self, fields: Iterable[str]) -> str:
        """A line of a table: of a .csv with the quoting of RFC 4180; a .tsv is raw."""
        if self.path.suffix == ".tsv":
            return "\t".join(fields)
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(fields)
        return line.getvalue()

    def complete(self) -> None:
        """Replace the file by the complete one.

        Raises:
            DataError: it cannot be written; the predictions are kept in ``<name>.part``.
        """
        try:
            with AtomicFile(self.path) as temporary, temporary.open("wb") as file:
                for block in self._blocks():
                    file.write(block)
        except WriteError as error:
            raise DataError(f"{error}; the predictions are in {self.part}") from error
        self.part.unlink()

    def _blocks(self) -> Iterator[bytes]:
        with self.part.open("rb") as file:
            file.readline()
            while block := file.read(1 << 20):
                yield block
