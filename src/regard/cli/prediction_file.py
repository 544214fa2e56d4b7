"""Writes the predictions of many inputs into a file, in their order, so that a stopped command can go on."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.atomic_file import AtomicFile
from regard.errors import ArgumentError, DataError, WriteError
from regard.regular_file import LARGEST_DATA, require_regular
from regard.training.results import answer_rows

if TYPE_CHECKING:
    from regard.training.results import Prediction

SUFFIXES = (".tsv", ".jsonl")


class PredictionFile:
    """A file of predictions, one line for each answer: a table (``.tsv``) or JSON objects (``.jsonl``).

    Until all predictions are made they are in ``<name>.part``, whose first line says of which inputs, model and options
    they are. The complete file then replaces an older one.

    Args:
        path: the file.
        identity: what the predictions depend on, as plain values: they are continued only if it is the same.
        ranked: whether an input has several answers, each with its rank.
        block: inputs that are predicted together: what an earlier command wrote of a block that is not whole is
            predicted again, since draws may depend on the other inputs of the block.

    Attributes:
        done: the number of inputs whose predictions an earlier command has written, a multiple of ``block``.

    Raises:
        ArgumentError: the name ends in no known suffix, or ``<name>.part`` has other predictions.
        DataError: there can be no such file.
    """

    def __init__(self, path: Path, identity: dict[str, Any], ranked: bool = False, block: int = 1):
        if path.suffix not in SUFFIXES:
            raise ArgumentError(f"--output must end in {' or '.join(SUFFIXES)}; it is {str(path)!r}")
        if path.is_dir() or not path.absolute().parent.is_dir():
            reason = "is a folder" if path.is_dir() else f"is in a folder that does not exist: {path.parent}"
            raise DataError(f"--output: {path} {reason}")
        self.path, self.part, self._ranked = path, path.with_name(path.name + ".part"), ranked
        self._block = block
        text = json.dumps(identity, sort_keys=True, default=str)
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
            head = file.readline() if self.path.suffix == ".tsv" else b""
            starts, end = [], file.tell()
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if self._rank(line, head) == 1:
                    starts.append(end)
                end += len(line)
            # It is not known how many answers the last input has, if there may be several.
            done = max(0, len(starts) - self._ranked)
            done -= done % self._block
            file.truncate(starts[done] if done < len(starts) else end)
        return done

    def _rank(self, line: bytes, head: bytes) -> int:
        """The rank of the answer that a line holds, below the head of the table."""
        if not self._ranked:
            return 1
        if self.path.suffix == ".jsonl":
            return json.loads(line)["rank"]
        names, values = (one.rstrip(b"\n").split(b"\t") for one in (head, line))
        return int(values[names.index(b"rank")])

    def append(self, predictions: Sequence["Prediction"]) -> None:
        """Write the next predictions.

        Raises:
            DataError: they cannot be written; those before them are kept.
        """
        rows = answer_rows(predictions, self._ranked, details=self.path.suffix == ".jsonl")
        lines = [self._line(row) for row in rows]
        if not self.done and self.path.suffix == ".tsv":
            lines.insert(0, "\t".join(rows[0]))
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
        if self.path.suffix == ".jsonl":
            return json.dumps(row, ensure_ascii=False)
        return "\t".join(" ".join(str(value).split()) for value in row.values())

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
