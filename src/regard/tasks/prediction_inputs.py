"""The inputs of predictions: typed ones, the lines of a text file, a column of a table, the files of a folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.column_roles import TEXT, expecting, input_column
from regard.data.records import Records, check_file, check_no_subtitles, is_null, named_positions
from regard.errors import ArgumentError, DataError, KindError
from regard.files.regular import LARGEST_TEXT, read_bytes
from regard.names.counted import counted
from regard.tasks.lazy import tables
from regard.tasks.memory_rows import a_type, column_values, is_list, is_table, memory_rows

log = logging.getLogger("regard")


class Numbered(NamedTuple):
    """Inputs with the number of each in its file, from 1: of its line, or of its row of a table, those without an input
    counted."""

    inputs: list[Any]
    numbers: Sequence[int]

    @classmethod
    def from_one(cls, inputs: list[Any]) -> Numbered:
        """Returns inputs none of which is left out."""
        return cls(inputs, range(1, len(inputs) + 1))


def given_inputs(trained: Any, inputs: Any, column: str | None = None) -> Any:
    """Returns the inputs that an argument of `Trained.predict` holds: a list of inputs; or a table or a folder, by its
    path or in memory, in any form of training data. ``column`` None: that of the training, or the only one that can be
    meant.

    Raises ArgumentError for one text, or if there is no such column, KindError if it is no list and no table, and
    DataError if the file cannot be read.
    """
    if isinstance(inputs, Path) or (isinstance(inputs, str) and _is_collection(inputs)):
        return file_inputs(trained, Path(inputs), column).inputs
    if isinstance(inputs, str):
        raise ArgumentError(
            f"inputs must be a list of inputs, or the path of a table; for one {trained.input.kind}, give a list of one"
        )
    if not isinstance(inputs, Mapping) and not is_table(inputs):
        if not isinstance(inputs, Iterable) and not is_list(inputs):
            raise KindError(f"inputs must be a list of inputs, or a table; it is {a_type(inputs)}")
        inputs = column_values(inputs)
        if not is_row(next(iter(inputs), None)):
            return inputs
    return _column_of_rows(trained, memory_rows(inputs, ("input",), "inputs"), column)


def is_row(value: Any) -> bool:
    """Whether a value is the row of a table, and no sound or file in memory."""
    return isinstance(value, Mapping) and not {"array", "sampling_rate"} <= value.keys() != {"bytes", "path"}


def file_inputs(trained: Any, path: Path, column: str | None = None) -> Numbered:
    """Returns the inputs in a file or a folder, read as in a training; raises what `given_inputs` raises.

    A table gives its column of inputs, a folder its files (one for each input), a text file its lines.
    """
    source = trained.input
    if path.is_dir():
        return Numbered.from_one(_of_folder(trained, path))
    if path.suffix.lower() in tables.READERS and source.reads_tables:
        return _of_table(trained, path, column)
    if column is not None:
        raise ArgumentError(f"--column names a column of a table ({', '.join(tables.READERS)}), and {path} is none")
    if path.suffix.lower() in source.suffixes and source.kind != "text":
        return Numbered.from_one([str(path)])
    return Numbered.from_one(text_inputs(path))


def text_inputs(path: Path) -> list[Any]:
    """Returns the lines of a text file, the empty ones too, so that answer n belongs to line n; raises DataError if the
    file cannot be read, is empty, or is subtitles."""
    check_file(path, "one input a line")
    check_no_subtitles(path)
    try:
        return lines_of(read_bytes(path, LARGEST_TEXT), str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def lines_of(content: bytes, name: str) -> list[str]:
    """Returns the lines of a text; raises DataError if it is empty or not UTF-8."""
    if len(content) > LARGEST_TEXT:
        raise DataError(f"{name}: has more than {LARGEST_TEXT:,} bytes; predict in parts")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}, line {line}: not valid UTF-8; convert it to UTF-8") from error
    if not text:
        raise DataError(f"{name}: the file is empty; it should have one sentence a line")
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def _is_collection(text: str) -> bool:
    """Whether a text is the path of a table or of a folder."""
    try:
        path = Path(text)
        return path.is_dir() if path.suffix.lower() not in tables.READERS else path.exists()
    except (OSError, ValueError):  # a text that is too long for a path
        return False


def expanded(trained: Any, inputs: Sequence[str]) -> list[Any]:
    """Returns typed inputs; where inputs are files, it reads tables and folders among them."""
    if trained.input.kind == "text":
        for text in inputs:
            if os.path.isfile(text):
                log.warning("%s is read as a text; --file %s reads the file", text, text)
        return list(inputs)
    read: list[Any] = []
    for one in inputs:
        read += file_inputs(trained, Path(one)).inputs if _is_collection(one) else [one]
    return read


def _of_folder(trained: Any, folder: Path) -> list[Any]:
    from regard.data.class_folders import warn_of_left_out

    source = trained.input
    files, left_out = [], []
    for path in source.files_below(folder):
        shown = not any(part.startswith(".") for part in path.relative_to(folder).parts)
        is_input = shown and path.suffix.lower() in source.suffixes
        (files if is_input else left_out).append(path)
    warn_of_left_out(folder, left_out, source.examples)
    if not files:
        raise DataError(f"{folder}: has no {source.examples} ({', '.join(source.suffixes)}); name another folder")
    return [source.of_file(path) for path in files]


def _of_table(trained: Any, path: Path, column: str | None) -> Numbered:
    check_file(path, "inputs")
    records = tables.open_records(path)
    if records.remark:
        log.warning("%s: %s", path, records.remark)
    chosen = _input_column(trained, records, column)
    # In JSON an image may be an object, the description of a scene.
    is_whole = trained.input.kind == "image" and path.suffix.lower() in (".json", ".jsonl")
    inputs, numbers, left_out = [], [], []
    for number, (position, row) in enumerate(records.rows(None if is_whole else [chosen]), 1):
        value = row.get(chosen)
        if is_null(value) or (isinstance(value, str) and not value.strip()):
            left_out.append(position)
        else:
            inputs.append(trained.input.of_cell(value, chosen, path.parent, f"{path}: {position}"))
            numbers.append(number)
    _say_left_out(str(path), chosen, left_out, len(inputs))
    return Numbered(inputs, numbers)


def _column_of_rows(trained: Any, rows: Iterable[Mapping[str, Any]], column: str | None) -> list[Any]:
    from regard.data.json_rows import flat_fields
    from regard.tasks.stored_data import is_nothing, python_number

    is_text = trained.input.kind == "text"
    rows = [dict(flat_fields(row)) if is_text else row for row in rows]
    columns = list(dict.fromkeys(name for row in rows for name in row))  # a row may lack some
    if not rows:
        _say_left_out("inputs", "", (), 0)
    records = Records(
        "inputs", "inputs", columns, lambda _: ((f"row {number}", row) for number, row in enumerate(rows))
    )
    chosen = _input_column(trained, records, column)
    inputs, left_out = [], []
    for number, row in enumerate(rows):
        value = python_number(row.get(chosen))
        if isinstance(value, Mapping) and value.keys() == {"bytes", "path"}:  # a file that is not decoded
            value = value["bytes"] or value["path"]
        if is_nothing(value) or (isinstance(value, str) and not value.strip()):
            left_out.append(f"row {number}")
            continue
        inputs.append(value)
    _say_left_out("inputs", chosen, left_out, len(inputs))
    return inputs


def _input_column(trained: Any, records: Records, named: str | None) -> str:
    """Returns a table's column of inputs: the named one, that of the training, or the only possible one."""
    source = trained.input
    roles = expecting(source.column_roles() or (TEXT, TEXT), trained.config.data.named_columns or (None, None))
    generated = next(iter(source.generated.columns), None)
    return input_column(records, expecting(roles, (generated, None)), named)


def _say_left_out(where: str, column: str, left_out: Sequence[str], count: int) -> None:
    if left_out:
        named = named_positions(left_out, len(left_out))
        log.warning(
            "%s: left out %s without %r (%s), which have no answer; %d are left",
            where, counted(len(left_out), "row"), column, named, count,
        )  # fmt: skip
    if not count:
        said = f"no row has an input in the column {column!r}" if left_out else "there are no rows"
        raise DataError(f"{where}: {said}; check the data")
