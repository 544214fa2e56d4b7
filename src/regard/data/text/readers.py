"""Readers of all kinds of files: each yields pairs of texts, or raises a `DataError` that names the file and the line.

A reader stores only one line (at most 16 MiB) or one block of rows at a time. With ``numbers``, the target of a pair
may be a number or a truth value, which is read as its text: a label.
"""

import codecs
import difflib
import itertools
import json
import math
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import DataError
from regard.regular_file import LARGEST_DATA, open_regular, require_regular

if TYPE_CHECKING:
    import pyarrow as pa

Pair = tuple[str, str]

_LONGEST_LINE = 1 << 24  # bytes
_CHUNK = 1 << 20  # bytes
_MOST_DIGITS = 4000  # of a whole number; Python itself reads at most 4,300
_MOST_LISTED = 20  # names of columns in a message

_DELIMITERS = {".tsv": "\t", ".csv": ","}
"""What separates the columns of a file, by its suffix."""

_DELIMITER_NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons (';')", "|": "bars ('|')"}


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without line ends (LF or CRLF) and byte order mark."""
    offset = 0
    with open_regular(path, LARGEST_DATA) as file:
        for number in itertools.count(1):
            raw = file.readline(_LONGEST_LINE)
            if not raw:
                return
            if number == 1:
                check_utf8(path, raw)
                if b"\r" in raw.rstrip(b"\r\n") and not raw.endswith(b"\n"):
                    raise DataError(
                        f"{path}: lines end with carriage returns (CR); convert the file to line feeds (LF or CRLF)"
                    )
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


def check_utf8(path: Path, start: bytes) -> None:
    """Raise DataError if the first bytes of a file are those of UTF-16 or UTF-32."""
    # Every other byte of common text in UTF-16 is zero; in UTF-8, a zero is a rare control character.
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 4 * start[:4096].count(0) > len(start[:4096]):
        raise DataError(f"{path}: is UTF-16 or UTF-32, not UTF-8; save or convert the file as UTF-8")


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
    for path in (source, target):
        next(text_lines(path), None)  # a file whose lines cannot be read has no lines to count
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
    """The records of a CSV file, each with the number of its first line.

    A field that begins with a quotation mark ends with one, and may hold commas, line ends and doubled quotation marks
    (RFC 4180). The module ``csv`` reads long fields only if its limit is changed for the whole process.
    """
    lines = enumerate(text_lines(path), 1)
    for number, line in lines:
        if '"' not in line:
            yield number, line.split(",")
            continue
        fields, start = [], 0
        while start <= len(line):
            if line.startswith('"', start):
                field, line, start = _quoted_field(f"{path}: line {number} is not CSV", line, start + 1, lines)
            else:
                end = line.find(",", start)
                end = len(line) if end < 0 else end
                field, start = line[start:end], end + 1
            fields.append(field)
        yield number, fields


def _quoted_field(where: str, line: str, start: int, lines: Iterator[tuple[int, str]]) -> tuple[str, str, int]:
    """The field that begins after a quotation mark, the line in which it ends, and where the next field begins."""
    parts: list[str] = []
    length = 0
    while True:
        end = line.find('"', start)
        if end >= 0:
            parts.append(line[start:end])
            if line.startswith('"', end + 1):
                parts.append('"')
                start = end + 2
                continue
            if end + 1 < len(line) and line[end + 1] != ",":
                raise DataError(f"{where} (no comma after a closing quotation mark); double the marks inside a field")
            return "".join(parts), line, end + 2
        # The field continues in the next line.
        parts += line[start:], "\n"
        length += len(line) - start + 1
        following = next(lines, None)
        if following is None or length > _LONGEST_LINE:
            raise DataError(f"{where} (a field has no closing quotation mark); is a quotation mark left open?")
        line, start = following[1], 0


def _fields(
    path: Path, table: Iterator[tuple[int, list[str]]], source_column: str | None, target_column: str | None
) -> Iterator[Pair]:
    header = _header(path, table)
    source, target = _choose(str(path), header, source_column, target_column)
    at, to = header.index(source), header.index(target)
    for line, fields in table:
        if len(fields) != len(header) and not any(fields):
            continue  # an empty line, at the end or between blocks
        _check_width(path, line, fields, header)
        yield fields[at], fields[to]


def _header(path: Path, table: Iterator[tuple[int, list[str]]]) -> list[str]:
    """The names of the columns, which the first line must have."""
    first = next(table, None)
    if first is None:
        raise DataError(f"{path}: the file is empty; it must begin with the names of the columns")
    header = [name.strip() for name in first[1]]
    if not any(header):
        raise DataError(f"{path}: line 1 is empty; it must be the header, the names of the columns")
    separator = _DELIMITERS[path.suffix.lower()]
    other = next((mark for mark in _DELIMITER_NAMES if mark != separator and mark in header[0]), None)
    if len(header) == 1 and other is not None:
        raise DataError(
            f"{path}: the header has one column, {shortened(header[0])}; its columns seem to be separated by "
            f"{_DELIMITER_NAMES[other]}, and a {path.suffix.lower()} file has {_DELIMITER_NAMES[separator]} between "
            "them: convert the file"
        )
    _check_different(str(path), [name for name in header if name])
    return header


def _check_width(path: Path, line: int, fields: list[str], header: list[str]) -> None:
    if len(fields) != len(header):
        advice = "correct or remove that line"
        if any("\r" in field for field in fields):
            advice = "a carriage return (CR) inside it ends no line: convert the line ends to LF or CRLF"
        raise DataError(
            f"{path}: line {line} has {_counted(len(fields), 'field')} where the header has {len(header)} "
            f"({_listed(header)}); {advice}"
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
        fields = list(_flat(record))
        flat = dict(fields)
        if len(flat) < len(fields):
            _check_different(f"{path}: {place}", [name for name, _ in fields])
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
    if path.suffix.lower() in _DELIMITERS:
        yield from _columns(path)
        return
    for place, record in _json_array(path) if start.startswith(b"[") else _json_lines(path):
        if not isinstance(record, dict):
            raise DataError(f"{path}: {place} must be a JSON object with named columns; it is {_json_kind(record)}")
        yield place, record


def _columns(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    table = enumerate((line.split("\t") for line in text_lines(path)), 1)
    lines = table if path.suffix.lower() == ".tsv" else _comma_lines(path)
    header = _header(path, lines)
    for line, fields in lines:
        if any(fields):
            _check_width(path, line, fields, header)
            yield f"line {line}", dict(zip(header, fields, strict=True))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the name {shortened(twice)} occurs twice in an object")
    return record


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits, at most {_MOST_DIGITS:,} are read")
    return int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text_lines(path), 1):
        if line and not line.isspace():
            try:
                record = _DECODER.decode(line)
            except (ValueError, RecursionError) as error:
                advice = "correct or remove that line"
                if number == 1 and line.strip() == "{":
                    advice = "write each object on one line, or all objects in one array"
                raise DataError(f"{path}: line {number} is not JSON ({_json_reason(error)}); {advice}") from error
            yield f"line {number}", record


def _json_array(path: Path) -> Iterator[tuple[str, Any]]:
    chunks = _decoded(path)
    text, position, count = next(chunks, "").removeprefix("\ufeff"), 0, 0

    def next_mark() -> str:
        # The next character that is no white space; "" at the end of the file.
        nonlocal text, position
        while True:
            while position < len(text) and text[position] in " \t\r\n":
                position += 1
            if position < len(text):
                return text[position]
            text, position = next(chunks, ""), 0
            if not text:
                return ""

    next_mark()
    position += 1  # the opening bracket
    mark = next_mark()
    while mark != "]":
        try:
            record, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            chunk = next(chunks, "")
            text, position = text[position:] + chunk, 0
            if not chunk or len(text) > _LONGEST_LINE:
                raise DataError(
                    f"{path}: object {count + 1} of the array is not JSON ({_json_reason(error)}); correct or remove it"
                ) from error
            continue
        count += 1
        yield f"object {count}", record
        mark = next_mark()
        if mark == ",":
            position += 1
            next_mark()
        elif mark != "]":
            raise DataError(f"{path}: a comma or the closing ']' must follow object {count} of the array")
    position += 1
    if next_mark():
        raise DataError(
            f"{path}: text follows the closing ']' of the array ({shortened(text[position : position + 40])}); remove "
            "it, or write one object a line"
        )


def _json_reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _decoded(path: Path) -> Iterator[str]:
    decoder, before, line = codecs.getincrementaldecoder("utf-8")(), 0, 1
    with open_regular(path, LARGEST_DATA) as file:
        while True:
            chunk = file.read(_CHUNK)
            if not before:
                check_utf8(path, chunk)
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
            names = _flattened(file.schema_arrow.empty_table()).column_names
            chosen = _choose(str(path), names, source_column, target_column)
            yield from record_batches(str(path), file.iter_batches(columns=list(chosen)), *chosen, numbers)
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
        table = _flattened(pa.Table.from_batches([batch]))
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
            texts = [label_text(value) for value in values] if numbers and side == 1 else values
            for place, (value, text) in enumerate(zip(values, texts, strict=True), row + 1):
                if not isinstance(text, str):
                    raise _not_text(where, f"row {place}", name, value, numbers)
            sides.append(texts)
        row += batch.num_rows
        yield from zip(*sides, strict=True)


def _flattened(table: "pa.Table") -> "pa.Table":
    """The table with a column for each field of its objects."""
    import pyarrow as pa

    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


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
                return _flattened(pyarrow.parquet.read_schema(file).empty_table()).column_names
        except pa.ArrowException as error:
            raise DataError(f"{path}: is not a Parquet file, or is damaged ({_first_line(error)})") from error
    if suffix in _DELIMITERS:
        tabs = enumerate((line.split("\t") for line in text_lines(path)), 1)
        return _header(path, tabs if suffix == ".tsv" else _comma_lines(path))
    with open_regular(path, LARGEST_DATA) as file:
        start = file.read(_CHUNK).removeprefix(codecs.BOM_UTF8).lstrip()
    place, record = next(_json_array(path) if start.startswith(b"[") else _json_lines(path), ("", {}))
    if not isinstance(record, dict):
        raise DataError(f"{path}: {place} must be a JSON object with named columns; it is {_json_kind(record)}")
    return [name for name, _ in _flat(record)]


def _choose(where: str, names: list[str], source: str | None, target: str | None) -> tuple[str, str]:
    # The two named columns, or the only two columns of the table.
    _check_different(where, [name for name in names if name])
    if source is None and target is None and len(names) == 2:
        return names[0], names[1]
    for side, name in (("source", source), ("target", target)):
        if name is None:
            raise DataError(
                f"{where}: say which column is the {side}; there are {len(names)} (columns: {_quoted(names)})"
            )
        if name not in names:
            nearest = nearest_column(name, names)
            hint = "name one of these" if nearest is None else f"did you mean {shortened(nearest)}?"
            raise DataError(f"{where}: there is no column {name!r}; {hint} (columns: {_quoted(names)})")
    assert source is not None
    assert target is not None
    return source, target


def nearest_column(name: str, names: Iterable[str]) -> str | None:
    """The column whose name is most like another one; None if none is like it."""
    lower = {other.lower(): other for other in names}
    nearest = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    return lower[nearest[0]] if nearest else None


def _check_different(where: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = min(name for name, count in Counter(names).items() if count > 1)
        raise DataError(f"{where}: two columns are called {shortened(twice)}; rename one (columns: {_quoted(names)})")


def _listed(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _MOST_LISTED:,} more"] * (len(names) > _MOST_LISTED)
    return ", ".join([*names[:_MOST_LISTED], *more])


def _quoted(names: Sequence[str]) -> str:
    return _listed([shortened(name) for name in names]) or "none"


def shortened(value: object) -> str:
    """A value for a message: its `repr` in a few words."""
    return _REPR.repr(value)


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


def _flat(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    # {"translation": {"de": "Ja"}} has the field "translation.de"
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def label_text(value: object) -> str | None:
    """A label as text; None if it is neither text nor a finite number.

    Equal numbers are one label: 1.0 is "1". Truth values are written as JSON writes them.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else str(value)
    return str(value) if isinstance(value, int) else None


def _text(path: Path, place: str, record: dict[str, Any], column: str, numbers: bool = False) -> str:
    value = record.get(column)
    text = label_text(value) if numbers else value
    if not isinstance(text, str):
        raise _not_text(str(path), place, column, value, numbers)
    return checked_text(text, f"{path}: {place}, column {column!r}")


def checked_text(text: str, where: str) -> str:
    """The text itself.

    Raises:
        DataError: it has half of a surrogate pair, as JSON can, and so is no text that a file could hold.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where} holds half a surrogate pair; correct that text") from error
    return text


def _not_text(where: str, place: str, column: str, value: Any, numbers: bool = False) -> DataError:
    if value is None:
        return DataError(f"{where}: {place} has no field {column!r}; correct or remove it")
    if numbers and isinstance(value, float):
        return DataError(f"{where}: {place}, column {column!r} must be text or a finite number; it is {value}")
    return DataError(f"{where}: {place}, column {column!r} must be text; it is {_json_kind(value)}")


def _json_kind(value: Any) -> str:
    kinds = {bool: "a truth value", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), f"a {type(value).__name__}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
