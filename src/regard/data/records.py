"""Records: the rows of tables of every kind, and the lines of text files.

`open_records` opens a table (``.tsv``, ``.csv``, ``.jsonl``, ``.json``, ``.parquet``) as rows with named columns;
`text_rows` takes some columns of it as texts. Whatever cannot be read raises a `DataError` that names the file and the
line. A reader stores only one line (at most 16 MiB) or one block of rows at a time.
"""

import codecs
import difflib
import itertools
import json
import math
import reprlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.errors import ArgumentError, DataError
from regard.regular_file import LARGEST_DATA, open_regular, require_regular

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST_LINE = 1 << 24  # bytes
_CHUNK = 1 << 20  # bytes
_MOST_DIGITS = 4000  # of a whole number; Python itself reads at most 4,300
_MOST_LISTED = 20  # names of columns in a message

_DELIMITERS = {".tsv": "\t", ".csv": ","}
"""What separates the columns of a file, by its suffix."""

_DELIMITER_NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons (';')", "|": "bars ('|')"}


class Records(NamedTuple):
    """The rows of a table, which can be read once."""

    name: str
    """Names the table in messages."""
    header: str
    """Names the part of the table that has the names of its columns, in messages."""
    columns: list[str]
    """The names of the columns; ``"translation.de"`` is a field of an object."""
    rows: Callable[[Sequence[str] | None], Iterator[tuple[str, Mapping[str, Any]]]]
    """Gives each row that is not an empty line, after its position, such as ``"line 7"``. With names, a row has at
    least these columns, as far as it has values for them; with None, it has all columns, and objects in it are
    whole."""


def open_records(path: Path) -> Records:
    """Open a table.

    Raises:
        DataError: it cannot be read, or its suffix is not in `READERS`.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: unknown kind of file {path.suffix!r}; give {', '.join(READERS)}")
    return reader(path)


def column_names(path: Path) -> list[str]:
    """The columns of a table, as its header or its first row names them; raises as `open_records`."""
    return open_records(path).columns


def record_places(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a table with all their columns, each after its position; empty lines of a .tsv or .csv are left out.

    Raises:
        DataError: the file cannot be read or is empty, a row has other columns than the header, or is no JSON object.
    """
    check_file(path, "rows")
    rows = open_records(path).rows(None)
    if path.suffix.lower() not in (".tsv", ".csv"):
        return iter(rows)
    return (row for row in rows if any(value != "" for value in row[1].values()))


def check_limit(limit: int | None) -> None:
    """Raise ArgumentError unless a largest number of rows is None or at least 1."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ArgumentError(f"limit must be a whole number of at least 1; got {limit!r}")


def check_file(path: Path, content: str) -> None:
    """Raise DataError unless a file exists and is not empty.

    Args:
        path: the file.
        content: what it should hold, for the message.
    """
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a folder; name the file inside it")
        with open_regular(path, LARGEST_DATA) as file:
            if not file.read(_CHUNK).removeprefix(codecs.BOM_UTF8).strip():
                raise DataError(f"{path}: the file is empty; it should hold {content}")
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; check the path") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from error


def text_rows(records: Records, columns: Sequence[str], numbers: Collection[str] = ()) -> Iterator[tuple[str, ...]]:
    """Some columns of a table, row by row, as texts.

    Args:
        records: the table.
        columns: names of its columns.
        numbers: those whose values may be numbers or truth values, which are read as their texts: labels.

    Raises:
        DataError: a value is missing, or is no text that a file could hold.
    """
    for position, record in records.rows(columns):
        texts = []
        for column in columns:
            value = record.get(column)
            text = label_text(value) if column in numbers else value
            if not isinstance(text, str):
                raise _not_text(records.name, position, column, value, column in numbers)
            if not text.isascii():
                checked_text(text, f"{records.name}: {position}, column {column!r}")
            texts.append(text)
        yield tuple(texts)


SIDES = "--source-column", "--target-column"
"""The options that name the columns of pairs."""


def choose_columns(
    records: Records, source: str | None, target: str | None, options: tuple[str, str] = SIDES
) -> tuple[str, str]:
    """The two named columns; where neither is named, the only two columns of the table.

    Args:
        records: the table.
        source: name of the first.
        target: name of the second.
        options: what names them, for the message where one is not named.

    Raises:
        DataError: a column does not exist, occurs twice, or is not named although there are more than two.
    """
    where, names = records.header, records.columns
    if not names:
        raise DataError(f"{records.name}: there are no rows; check the file")
    _check_different(where, [name for name in names if name])
    if source is None and target is None and len(names) == 2:
        return names[0], names[1]
    for option, name in zip(options, (source, target), strict=True):
        if name is None:
            raise DataError(
                f"{where}: say with {option} which column it is; there are {len(names)} (columns: {_quoted(names)})"
            )
        if name not in names:
            nearest = nearest_column(name, names)
            hint = "name one of these" if nearest is None else f"did you mean {shortened(nearest)}?"
            raise DataError(f"{where}: there is no column {name!r}; {hint} (columns: {_quoted(names)})")
    assert source is not None
    assert target is not None
    return source, target


def decoded(path: Path, size: int, *, by_line: bool = False) -> Iterator[str]:
    """The text of a UTF-8 file in parts of at most ``size`` bytes, without the byte order mark at its start.

    Args:
        path: the file.
        size: bytes that are read at once.
        by_line: whether a part ends after each line end.

    Raises:
        DataError: the file is not UTF-8.
    """
    decoder, offset, line, begun = codecs.getincrementaldecoder("utf-8")(), 0, 1, False
    with open_regular(path, LARGEST_DATA) as file:
        read = file.readline if by_line else file.read
        while True:
            raw = read(size)
            if not offset:
                check_utf8(path, raw)
            if by_line and len(raw) >= _LONGEST_LINE:
                raise DataError(f"{path}: line {line} is longer than 16 MiB; is this a file of sentences, one a line?")
            try:
                text = decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                before = offset - (
                    len(error.object) - len(raw)
                )  # the object begins with what was left of the last part
                line += error.object[: error.start].count(b"\n")
                raise DataError(
                    f"{path}: line {line} is not valid UTF-8 (byte 0x{error.object[error.start]:02X} at offset "
                    f"{before + error.start} of the file); save or convert the file as UTF-8"
                ) from error
            if not raw:
                return
            offset += len(raw)
            line += text.count("\n")
            if text and not begun:
                text, begun = text.removeprefix("\ufeff"), True
            if text:
                yield text


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without line ends (LF or CRLF) and byte order mark."""
    for number, text in enumerate(decoded(path, _LONGEST_LINE, by_line=True), 1):
        if number == 1 and "\r" in text.rstrip("\r\n") and not text.endswith("\n"):
            raise DataError(
                f"{path}: lines end with carriage returns (CR); convert the file to line feeds (LF or CRLF)"
            )
        yield text.removesuffix("\n").removesuffix("\r")


def check_utf8(path: Path, start: bytes) -> None:
    """Raise DataError if the first bytes of a file are those of UTF-16 or UTF-32."""
    # Every other byte of common text in UTF-16 is zero; in UTF-8, a zero is a rare control character.
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 4 * start[:4096].count(0) > len(start[:4096]):
        raise DataError(f"{path}: is UTF-16 or UTF-32, not UTF-8; save or convert the file as UTF-8")


def aligned_records(source: Path, target: Path) -> Records:
    """The lines of two text files with the same number of lines, as the columns ``source`` and ``target``."""
    counts = _count_lines(source), _count_lines(target)
    for path in (source, target):
        next(text_lines(path), None)  # a file whose lines cannot be read has no lines to count
    if counts[0] != counts[1]:
        raise DataError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}; "
            "line n of one must translate line n of the other: check where they differ"
        )

    def rows(_: object) -> Iterator[tuple[str, dict[str, str]]]:
        for number, (one, other) in enumerate(zip(text_lines(source), text_lines(target), strict=True), 1):
            yield f"line {number}", {"source": one, "target": other}

    where = f"{source} and {target}"
    return Records(where, where, ["source", "target"], rows)


def _count_lines(path: Path) -> int:
    """The number of lines of a file; a last line without a line end counts."""
    lines, last = 0, b"\n"
    with open_regular(path, LARGEST_DATA) as file:
        while chunk := file.read(_CHUNK):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n")


def _delimited(path: Path) -> Records:
    """A TSV file, whose quotation marks are characters, or a CSV file with the quoting of RFC 4180."""
    tabs = enumerate((line.split("\t") for line in text_lines(path)), 1)
    lines = tabs if path.suffix.lower() == ".tsv" else _comma_lines(path)
    header = _header(path, lines)

    def rows(_: object) -> Iterator[tuple[str, dict[str, str]]]:
        for line, fields in lines:
            if len(fields) == len(header):
                yield f"line {line}", dict(zip(header, fields, strict=True))
            elif any(fields):  # else an empty line, at the end or between blocks
                advice = "correct or remove that line"
                if any("\r" in field for field in fields):
                    advice = "a carriage return (CR) inside it ends no line: convert the line ends to LF or CRLF"
                raise DataError(
                    f"{path}: line {line} has {len(fields)} {'field' if len(fields) == 1 else 'fields'} where the "
                    f"header has {len(header)} ({_listed(header)}); {advice}"
                )

    return Records(str(path), str(path), header, rows)


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


def _json(path: Path) -> Records:
    """JSON objects, one on each line or all in one array."""
    with open_regular(path, LARGEST_DATA) as file:
        start = file.read(_CHUNK).removeprefix(codecs.BOM_UTF8).lstrip()
    values = _json_array(path) if start.startswith(b"[") else _json_lines(path)

    def records() -> Iterator[tuple[str, dict[str, Any]]]:
        for position, value in values:
            if not isinstance(value, dict):
                raise DataError(
                    f"{path}: {position} must be a JSON object with named columns; it is {_json_kind(value)}"
                )
            yield position, value

    objects = records()
    first = next(objects, None)
    if first is None:
        return Records(str(path), str(path), [], lambda _: iter(()))

    def rows(columns: Sequence[str] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for position, record in itertools.chain([first], objects):
            if columns is not None:
                fields = list(_flat(record))
                record = dict(fields)
                if len(record) < len(fields):
                    _check_different(f"{path}: {position}", [name for name, _ in fields])
            yield position, record

    return Records(str(path), f"{path}: {first[0]}", [name for name, _ in _flat(first[1])], rows)


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
    chunks = decoded(path, _CHUNK)
    text, position, count = next(chunks, ""), 0, 0

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


def _flat(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    # {"translation": {"de": "Ja"}} has the field "translation.de"
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parquet(path: Path) -> Records:
    import pyarrow.parquet

    @contextmanager
    def opened() -> Iterator["pyarrow.parquet.ParquetFile"]:
        try:
            require_regular(path, LARGEST_DATA)
            with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
                yield file
        except pyarrow.ArrowException as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DataError(f"{path}: is not a Parquet file, or is damaged ({reason})") from error

    with opened() as file:
        names = flattened(file.schema_arrow.empty_table()).column_names

    def rows(columns: Sequence[str] | None) -> Iterator[tuple[str, dict[str, Any]]]:
        columns = names if columns is None else columns
        with opened() as file:
            yield from arrow_rows(str(path), file.iter_batches(columns=list(columns)), columns)

    return Records(str(path), str(path), names, rows)


def arrow_rows(
    where: str, batches: Iterable["pa.RecordBatch"], columns: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Some columns of Arrow batches, as the rows of `Records`; ``where`` names the table in messages."""
    import pyarrow as pa

    first = 1
    for batch in batches:
        table = flattened(pa.Table.from_batches([batch]))
        values = []
        for name in columns:
            try:
                values.append(table.column(name).to_pylist())
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}: column {name!r} is not valid UTF-8 between rows {first} and "
                    f"{first + len(table) - 1}; write the file again from UTF-8"
                ) from error
        for row, fields in enumerate(zip(*values, strict=True), first):
            yield f"row {row}", dict(zip(columns, fields, strict=True))
        first += len(table)


def flattened(table: "pa.Table") -> "pa.Table":
    """The table with a column for each field of its objects."""
    import pyarrow as pa

    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


READERS: dict[str, Callable[[Path], Records]] = {
    ".tsv": _delimited,
    ".csv": _delimited,
    ".jsonl": _json,
    ".json": _json,
    ".parquet": _parquet,
}
"""What opens a table, by the suffix of its name."""


def nearest_column(name: str, names: Iterable[str]) -> str | None:
    """The column whose name is most like another one; None if none is like it."""
    lower = {other.lower(): other for other in names}
    nearest = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    return lower[nearest[0]] if nearest else None


def _check_different(where: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = min(name for name, count in Counter(names).items() if count > 1)
        raise DataError(f"{where}: two columns are called {shortened(twice)}; rename one (columns: {_quoted(names)})")


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


def _not_text(name: str, position: str, column: str, value: Any, number: bool) -> DataError:
    if value is None:
        return DataError(f"{name}: {position} has no field {column!r}; correct or remove it")
    if number and isinstance(value, float):
        return DataError(f"{name}: {position}, column {column!r} must be text or a finite number; it is {value}")
    return DataError(f"{name}: {position}, column {column!r} must be text; it is {_json_kind(value)}")


def _json_kind(value: Any) -> str:
    kinds = {bool: "a truth value", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), f"a {type(value).__name__}")
