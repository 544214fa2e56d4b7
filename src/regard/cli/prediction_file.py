"""Writes the predictions of many inputs into a file, in their order, so that a stopped command can go on."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ArgumentError, DataError, WriteError
from regard.files.atomic import AtomicFile
from regard.files.regular import LARGEST_DATA, require_regular
from regard.training.results import answer_rows

if TYPE_CHECKING:
    from regard.training.results import Prediction

SUFFIXES = (".tsv", ".csv", ".jsonl")


class PredictionFile:
    """A file of predictions, a row for each answer: a table (``.tsv``, ``.csv``) or JSON objects (``.jsonl``).

    Until all predictions are made they are in ``<name>.part``, a JSON object a line, whose first line says of which
    inputs, model and options they are: they are continued only if inputs and ``identity`` are the same. The complete
    file then replaces an older one. A ``.csv`` has each text as it is, quoted as in RFC 4180; in a ``.tsv``, which is
    raw, white space within a text is one space.

    ``numbers`` are the rows of the inputs in their own file; None: counted from 1. ``block`` inputs are predicted
    together: what an earlier command wrote of a block that is not whole is predicted again, since draws may depend on
    the other inputs of the block. ``done`` is the number of inputs whose predictions an earlier command has written, a
    multiple of ``block``; from ``damaged_line`` of ``<name>.part`` on predictions are made again; 0: none is damaged.

    Raises ArgumentError if the name ends in no known suffix, or ``<name>.part`` has other predictions, and DataError if
    there can be no such file.
    """

    def __init__(
        self,
        path: Path,
        inputs: Sequence[Any],
        identity: dict[str, Any],
        numbers: Sequence[int] | None = None,
        ranked: bool = False,
        block: int = 1,
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
        self._numbers = range(1, len(inputs) + 1) if numbers is None else numbers
        text = json.dumps(identity | {"inputs": inputs, "rows": list(self._numbers)}, sort_keys=True, default=str)
        self._first = (
            json.dumps({"predictions of": hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()}).encode()
            + b"\n"
        )
        self.done = self._earlier()

    def _earlier(self) -> int:
        """Returns the inputs of the blocks whose predictions are complete; what is after them is deleted."""
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
            starts, end, before = [], file.tell(), 0
            for number, line in enumerate(file, 2):
                if not line.endswith(b"\n"):
                    break
                rank = self._rank(line, len(starts))
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

    def _rank(self, line: bytes, done: int) -> int:
        """Returns the rank of the answer that a line holds after ``done`` inputs with answers, 1 if answers have none;
        0: the line is damaged."""
        try:
            fields = json.loads(line)
            rank, row, written = int(fields["rank"]) if self._ranked else 1, fields["row"], fields["input"]
        except (ValueError, KeyError, TypeError, RecursionError):  # UnicodeDecodeError is a ValueError
            return 0
        number = done if rank == 1 else done - 1
        if not 0 <= number < len(self._inputs) or row != self._numbers[number]:
            return 0
        source = self._inputs[number]
        return rank if not isinstance(source, str) or written == source else 0

    def append(self, predictions: Sequence["Prediction"]) -> None:
        """Writes the next predictions."""
        numbers = self._numbers[self.done : self.done + len(predictions)]
        rows = answer_rows(predictions, self._ranked, numbers, details=self.path.suffix == ".jsonl")
        content = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
        try:
            with self.part.open("ab" if self.done else "wb") as file:
                file.write(content if self.done else self._first + content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(f"cannot write {self.part}: {error.strerror}; the same command continues it") from error
        self.done += len(predictions)

    def complete(self) -> None:
        """Replaces the file by the complete one; raises DataError if it cannot be written: the predictions stay in
        ``<name>.part``."""
        try:
            with AtomicFile(self.path) as temporary, temporary.open("wb") as file:
                for line in self._lines():
                    file.write(line)
        except WriteError as error:
            raise DataError(f"{error}; the predictions are in {self.part}") from error
        self.part.unlink()

    def _lines(self) -> Iterator[bytes]:
        """Yields the lines of the complete file."""
        with self.part.open("rb") as file:
            file.readline()
            if self.path.suffix == ".jsonl":
                yield from file
                return
            for number, row in enumerate(map(json.loads, file)):
                if not number:
                    yield self._of_table(row)
                yield self._of_table(row.values())

    def _of_table(self, fields: Iterable[Any]) -> bytes:
        if self.path.suffix == ".tsv":
            return ("\t".join(" ".join(str(field).split()) for field in fields) + "\n").encode()
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(fields)
        return line.getvalue().encode()
