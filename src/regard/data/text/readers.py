"""Readers of all kinds of files: each yields pairs of texts, or raises a `DataError` that names the file and the line.

A reader stores only one line (at most 16 MiB) or one block of rows at a time. With ``numbers``, the target of a pair
may be a number or a truth value, which is read as its text: a label.
"""

import codecs
import csv
import difflib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import DataError
from regard.regular_file import LARGEST_DATA, open_regular, require_regular

if TYPE_CHECKING:
    import pyarrow as pa

Pair = tuple[str, str]

_LONGEST_LINE = 1 << 24  # bytes
_CHUNK = 1 << 20  # bytes


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without line ends (LF or CRLF) and byte order mark."""
    offset = 0
    with open_regular(path, LARGEST_DATA) as file:
        for number in itertools.count(1):
            raw = file.readline(_LONGEST_LINE)
            if not raw:
                return
            if len(raw) == _LONGEST_LINE:
                raise DataError(
                    f"{path}: line {number} is longer than 16 MiB; is this a file of sentences, one a line?"
                )
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf8(path, number, offset + error.start, raw[error.start]) from error
            offset += len(raw)
            if number == 1:
                text = text.removeprefix("\ufeff")
            yield text.removesuffix("\n").removesuffix("\r")


def not_utf8(path: Path, line: int, offset: int, byte: int) -> DataError:
    """The error of a file that is not UTF-8, with the place of the first wrong byte."""
    return DataError(
        f"{path}: line {line} is not valid UTF-8 (byte 0x{byte:02X} at offset {offset} of the file); "
        "save or convert the file as UTF-8"
    )


def count_lines(path: Path) -> int:
    """The number of lines of a file; a last line without a line end counts."""
    lines, last = 0, b"\n"
    with open_regular(path, LARGEST_DATA) as file:
        while chunk := file.read(_CHUNK):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n")


def aligned_lines(source: Path, target: Path) -> Iterator[Pair]:
    """Pairs of lines from two files, which must have the same number of lines."""
    counts = count_lines(source), count_lines(target)
    if counts[0] != counts[1]:
        raise DataError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}; "
            "line n of one must translate line n of the other: check where they differ"
        )
    yield from zip(text_lines(source), text_lines(target), strict=True)


def tab_separated(
    path: Path, source_column: str | None, target_column: str | None, numbers: bool = False
) -> Iterator[Pair]:
    """The rows of a TSV file with a header line; without quoting."""
    table = (line.split("\t") for line in text_lines(path))
    return _fields(path, enumerate(table, 1), source_column, target_column)


def comma_separated(
    path: Path, source_column: str | None, target_column: str | None, numbers: bool = False
) -> Iterator[Pair]:
    """The rows of a CSV file with a header line and the quoting of RFC 4180."""

    return _fields(path, _comma_lines(path), source_column, target_column)


def _comma_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for line in text_lines(path)), strict=True)
    line = 1
    try:
        for fields in reader:
            yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}: line {line} is not CSV ({error}); is a quotation mark left open?") from error


def _fields(
    path: Path, table: Iterator[tuple[int, list[str]]], source_column: str | None, target_column: str | None
) -> Iterator[Pair]:
    _, header = next(table)
    header = [name.strip() for name in header]
    source, target = _choose(str(path), header, source_column, target_column)
    at, to = header.index(source), header.index(target)
    for line, fields in table:
        if len(fields) != len(header) and not any(fields):
            continue  # an empty line, at the end or between blocks
        _check_width(path, line, fields, header)
        yield fields[at], fields[to]


def _check_width(path: Path, line: int, fields: list[str], header: list[str]) -> None:
    if len(fields) != len(header):
        raise DataError(
            f"{path}: line {line} has {_counted(len(fields), 'field')} where the header has {len(header)} "
            f"({', '.join(header)}); correct or remove that line"
        )


def json_objects(
    path: Path, source_column: str | None, target_column: str | None, numbers: bool = False
) -> Iterator[Pair]:
    """JSON objects, one on each line or all in one array."""
    with open_regular(path, LARGEST_DATA) as file:
        start = file.read(_CHUNK).removeprefix(codecs.BOM_UTF8).lstrip()
    records = _json_array(path) if start.startswith(b"[") else _json_lines(path)
    chosen: tuple[str, str] | None = None
    for place, record in records:
        if not isinstance(record, dict):
            raise DataError(f"{path}: {place} must be a JSON object with named columns; it is {_json_kind(record)}")
        flat = _flat(record)
        if chosen is None:
            chosen = _choose(f"{path}: {place}", list(flat), source_column, target_column)
        yield _text(path, place, flat, chosen[0]), _text(path, place, flat, chosen[1], numbers)


def record_places(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table with all their columns, and the place of each: ``"line 7"``.

    Args:
        path: a ``.tsv`` or ``.csv`` file with a header line, whose values are texts, or a ``.jsonl`` or ``.json`` file
            of objects.

    Raises:
        DataError: the file cannot be read, or a row has other columns than the header, or is no JSON object.
    """
    try:
        with open_regular(path, LARGEST_DATA) as file:
            start = file.read(_CHUNK).removeprefix(codecs.BOM_UTF8).lstrip()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; check the path") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    if not start:
        raise DataError(f"{path}: the file is empty")
    if path.suffix.lower() in (".tsv", ".csv"):
        yield from _columns(path)
        return
    for place, record in _json_array(path) if start.startswith(b"[") else _json_lines(path):
        if not isinstance(record, dict):
            raise DataError(f"{path}: {place} must be a JSON object with named columns; it is {_json_kind(record)}")
        yield place, record


def _columns(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    table = enumerate((line.split("\t") for line in text_lines(path)), 1)
    lines = table if path.suffix.lower() == ".tsv" else _comma_lines(path)
    header = [name.strip() for name in next(lines)[1]]
    for line, fields in lines:
        if any(fields):
            _check_width(path, line, fields, header)
            yield f"line {line}", dict(zip(header, fields, strict=True))


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text_lines(path), 1):
        if line and not line.isspace():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}: line {number} is not JSON ({error}); correct or remove that line") from error


def _json_array(path: Path) -> Iterator[tuple[str, Any]]:
    decoder, text, position, count = json.JSONDecoder(), "", 0, 0
    chunks = _decoded(path)
    while True:
        # Skip white space and commas between two objects, and the opening bracket of the array.
        while position < len(text) and text[position] in " \t\r\n,[\ufeff":
            position += 1
        if position < len(text) and text[position] == "]":
            return
        try:
            record, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            chunk = next(chunks, "")
            text, position = text[position:] + chunk, 0
            if not chunk or len(text) > _LONGEST_LINE:
                raise DataError(
                    f"{path}: object {count + 1} of the array is not JSON ({error}); correct or remove it"
                ) from error
            continue
        count += 1
        yield f"object {count}", record


def _decoded(path: Path) -> Iterator[str]:
    decoder, before, line = codecs.getincrementaldecoder("utf-8")(), 0, 1
    with open_regular(path, LARGEST_DATA) as file:
        while True:
            chunk = file.read(_CHUNK)
            pending = decoder.getstate()[0]
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                offset = before - len(pending) + error.start
                raise not_utf8(path, line, offset, error.object[error.start]) from error
            if not chunk:
                return
            before += len(chunk)
            line += text.count("\n")
            yield text


def parquet(path: Path, source_column: str | None, target_column: str | None, numbers: bool = False) -> Iterator[Pair]:
    """The rows of a Parquet file, a block at a time."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        require_regular(path, LARGEST_DATA)
        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            yield from record_batches(str(path), file.iter_batches(), source_column, target_column, numbers)
    except pa.ArrowException as error:
        raise DataError(f"{path}: is not a Parquet file, or is damaged ({_first_line(error)})") from error


def record_batches(
    where: str,
    batches: Iterable["pa.RecordBatch"],
    source_column: str | None,
    target_column: str | None,
    numbers: bool = False,
) -> Iterator[Pair]:
    """The rows of Arrow batches; ``where`` names them in messages."""
    import pyarrow as pa

    row, chosen = 0, None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        while any(pa.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        if chosen is None:
            chosen = _choose(where, table.column_names, source_column, target_column)
        sides = []
        for side, name in enumerate(chosen):
            column = table.column(name)
            try:
                values = column.to_pylist()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}: column {name!r} is not valid UTF-8 between rows {row + 1} and "
                    f"{row + len(column)}; write the file again from UTF-8"
                ) from error
            if numbers and side == 1:
                values = [_number_text(value) for value in values]
            for place, value in enumerate(values, row + 1):
                if not isinstance(value, str):
                    raise _not_text(where, f"row {place}", name, value)
            sides.append(values)
        row += batch.num_rows
        yield from zip(*sides, strict=True)


READERS: dict[str, Callable[[Path, str | None, str | None, bool], Iterator[Pair]]] = {
    ".tsv": tab_separated,
    ".csv": comma_separated,
    ".jsonl": json_objects,
    ".json": json_objects,
    ".parquet": parquet,
}
"""The reader of a file, by the suffix of its name."""


def column_names(path: Path) -> list[str]:
    """The columns of a file, as its first row or its header names them.

    Raises:
        DataError: the file cannot be read, or its suffix is not in `READERS`.
    """
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise DataError(f"{path}: unknown kind of file {path.suffix!r}; give {', '.join(READERS)}")
    if suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet

        try:
            with open_regular(path, LARGEST_DATA) as file:
                table = pyarrow.parquet.read_schema(file).empty_table()
        except pa.ArrowException as error:
            raise DataError(f"{path}: is not a Parquet file, or is damaged ({_first_line(error)})") from error
        while any(pa.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        return table.column_names
    if suffix in (".tsv", ".csv"):
        lines = text_lines(path)
        names = next(lines, "").split("\t") if suffix == ".tsv" else next(csv.reader(line + "\n" for line in lines), [])
        return [name.strip() for name in names]
    with open_regular(path, LARGEST_DATA) as file:
        start = file.read(_CHUNK).removeprefix(codecs.BOM_UTF8).lstrip()
    _, record = next(_json_array(path) if start.startswith(b"[") else _json_lines(path), ("", None))
    return list(_flat(record)) if isinstance(record, dict) else []


def _choose(where: str, names: list[str], source: str | None, target: str | None) -> tuple[str, str]:
    # The two named columns, or the only two columns of the table.
    listed = ", ".join(repr(name) for name in names) or "none"
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{where}: two columns are called {twice[0]!r}; rename one (columns: {listed})")
    if source is None and target is None and len(names) == 2:
        return names[0], names[1]
    for side, name in (("source", source), ("target", target)):
        if name is None:
            raise DataError(f"{where}: say which column is the {side}; there are {len(names)} (columns: {listed})")
        if name not in names:
            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else "; name one of these"
            raise DataError(f"{where}: there is no column {name!r}{hint} (columns: {listed})")
    assert source is not None
    assert target is not None
    return source, target


def _flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    # {"translation": {"de": "Ja"}} becomes {"translation.de": "Ja"}
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _number_text(value: Any) -> Any:
    # A number or a truth value as JSON writes it; anything else as it is.
    return json.dumps(value) if isinstance(value, int) or (isinstance(value, float) and value == value) else value


def _text(path: Path, place: str, record: dict[str, Any], column: str, numbers: bool = False) -> str:
    value = _number_text(record.get(column)) if numbers else record.get(column)
    if not isinstance(value, str):
        raise _not_text(str(path), place, column, value)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: {place}, column {column!r} holds half a surrogate pair; correct that text") from error
    return value


def _not_text(where: str, place: str, column: str, value: Any) -> DataError:
    if value is None:
        return DataError(f"{where}: {place} has no field {column!r}; correct or remove it")
    return DataError(f"{where}: {place}, column {column!r} must be text; it is {_json_kind(value)}")


def _json_kind(value: Any) -> str:
    kinds = {bool: "a truth value", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), f"a {type(value).__name__}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
