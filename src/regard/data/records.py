"""Records: the rows of a table, the texts in some of its columns, and the lines of text files.

`regard.data.tables` opens tables of every kind as `Records`; `text_rows` takes some of their columns as texts. Whatever
cannot be read raises a `DataError` that names the file and the line.
"""

import codecs
import difflib
import io
import itertools
import math
import re
import reprlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import ArgumentError, DataError, RegardError
from regard.files.platforms import quoted
from regard.files.regular import LARGEST_DATA, open_regular

LONGEST_LINE = 1 << 24
"""Bytes of a line, at most."""

CHUNK = 1 << 20
"""Bytes that are read at once."""

MOST_POSITIONS = 3
"""Rows that a message names."""

_MOST_LISTED_NAMES = 20  # names of columns in a message

Say = Callable[[str], None]
"""A function that gets a line for the user."""


class Records(NamedTuple):
    """The rows of a table, which can be read several times."""

    name: str
    """Names the table in messages."""
    header: str
    """Names the part of the table that has the names of its columns, in messages."""
    columns: list[str]
    """The names of the columns; ``"translation.de"`` is a field of an object."""
    rows: Callable[[Sequence[str] | None], Iterator[tuple[str, Mapping[str, Any]]]]
    """Gives each row that is not an empty line, after its position, such as ``"line 7"``. Given names, a row has
    at least those of these columns for which it has values; given None, it has all columns, with objects left
    whole."""
    others: Sequence[str] = ()
    """Columns that the first row lacks and some later rows have."""
    advice: str = ""
    """Says what the file seems to be instead of a table with these columns, and what to do if one is missing."""
    doubt: str = ""
    """Says that the names of the columns may be a row; for users who do not name the columns."""
    remark: str = ""
    """A remark on the table for the user, whether or not the columns are named."""


def check_limit(limit: int | None) -> None:
    """Raises ArgumentError unless a largest number of rows is None or at least 1."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ArgumentError(f"limit must be a whole number of at least 1; got {limit!r}")


def check_file(path: Path, content: str) -> None:
    """Raises DataError unless a file exists and is not empty.

    Args:
        content: what it should hold, for the message.
    """
    with file_errors(path):
        if path.is_dir():
            raise DataError(f"{path}: is a folder; name the file inside it")
        with open_regular(path, LARGEST_DATA) as file:
            if not file.read(CHUNK).removeprefix(codecs.BOM_UTF8).strip():
                raise DataError(f"{path}: the file is empty; it should hold {content}")


@contextmanager
def file_errors(name: object, advice: str = "check the file") -> Iterator[None]:
    """Turns an error of the file system into a `DataError` of one line, which names the file and says what to do.

    Args:
        name: names the file in messages.
        advice: what to do if the file is there, but cannot be read.
    """
    try:
        yield
    except RegardError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{name}: no such file; check the path") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise DataError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error}); {advice}") from error


def text_rows(
    records: Records, columns: Sequence[str], numbers: Collection[str] = (), files: Collection[str] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yields some columns of a table, row by row, as texts; a missing value (see `is_null`) is the empty text.

    Args:
        records: the table.
        columns: names of its columns.
        numbers: those whose values may be numbers or truth values, which are read as their texts: labels.
        files: those whose values may be files inside of the table, which are given as they are.

    Raises:
        DataError: a value is no text that a file could hold.
    """
    return (texts for _, texts in placed_text_rows(records, columns, numbers, files))


def placed_text_rows(
    records: Records, columns: Sequence[str], numbers: Collection[str] = (), files: Collection[str] = ()
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields the rows of `text_rows`, each after its position, such as ``"line 7"``."""
    for position, record in records.rows(columns):
        texts = []
        for column in columns:
            value = record.get(column)
            text = "" if is_null(value) else label_text(value) if column in numbers else value
            if not isinstance(text, str) and not (column in files and isinstance(text, StoredFile)):
                raise _not_text(records.name, position, column, value, column in numbers)
            if isinstance(text, str) and not text.isascii():
                checked_text(text, f"{records.name}: {position}, column {column!r}")
            texts.append(text)
        yield position, tuple(texts)


def named_positions(positions: Sequence[str], count: int) -> str:
    """Returns the first positions of rows, for messages.

    Args:
        positions: of rows, at least the first ones.
        count: how many rows there are.
    """
    shown = positions[:MOST_POSITIONS]
    return ", ".join(shown) + (", ..." if count > len(shown) else "")


def is_null(value: object) -> bool:
    """Whether a row has no value there: it lacks the field, or has null, or NaN, by which pandas writes a null."""
    return value is None or (isinstance(value, float) and math.isnan(value))


class StoredFile(ABC):
    """A file that is a cell of a table, such as an image in Parquet."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in messages."""

    @abstractmethod
    def state(self) -> tuple[object, ...]:
        """Returns the values on which its content depends."""

    @abstractmethod
    def content(self) -> bytes:
        """Returns its bytes."""

    def __str__(self) -> str:
        return self.name


def missing_column(records: Records, name: str) -> DataError:
    """Returns the error of a table without a column of this name."""
    names = [*records.columns, *records.others]
    nearest = nearest_column(name, names)
    hint = "name one of these" if nearest is None else f"did you mean {shortened(nearest)}?"
    hint = records.advice or f"{hint} (columns: {quoted_names(names)})"
    return DataError(f"{records.header}: there is no column {name!r}; {hint}")


class _FromUtf16(io.RawIOBase):
    """The bytes of a UTF-16 file, which begins with its byte order mark, as UTF-8."""

    def __init__(self, file: io.BufferedReader, path: Path):
        self._text, self._rest, self._path = io.TextIOWrapper(file, "utf-16", newline=""), b"", path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            try:
                self._rest = self._text.read(io.DEFAULT_BUFFER_SIZE).encode()
            except UnicodeDecodeError as error:
                raise DataError(f"{self._path}: is not valid UTF-16 ({error.reason}); save it as UTF-8") from error
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        self._text.close()
        super().close()


def open_utf8(path: Path) -> io.BufferedReader:
    """Opens a text file for reading its bytes in UTF-8. One in UTF-16 is known by its byte order mark.

    Raises:
        OSError: as `regard.files.regular.open_regular`.
    """
    file = open_regular(path, LARGEST_DATA)
    start = file.peek(4)
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and start[:4] != codecs.BOM_UTF32_LE
    return io.BufferedReader(_FromUtf16(file, path)) if is_utf16 else file


def decoded(path: Path, size: int, *, by_line: bool = False) -> Iterator[str]:
    """Yields the text of a file in parts of at most ``size`` bytes, without the byte order mark at its start.

    Args:
        path: the file.
        size: bytes that are read at once.
        by_line: whether a part ends after each line end.

    Raises:
        DataError: the file is neither UTF-8 nor UTF-16 with a byte order mark.
    """
    decoder, offset, line, begun = codecs.getincrementaldecoder("utf-8")(), 0, 1, False
    with open_utf8(path) as file:
        read = file.readline if by_line else file.read
        while True:
            raw = read(size)
            if not offset:
                check_utf8(path, raw)
            if by_line and len(raw) >= LONGEST_LINE:
                raise DataError(f"{path}: line {line} is longer than 16 MiB; is this a file of sentences, one a line?")
            try:
                text = decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                before = offset + len(raw) - len(error.object)  # the object begins with the rest of the last part
                line += error.object[: error.start].count(b"\n")
                raise DataError(
                    f"{path}: line {line} is not valid UTF-8 (byte 0x{error.object[error.start]:02X} at offset "
                    f"{before + error.start} of the file); {utf8_advice(path)}"
                ) from error
            if not raw:
                return
            offset += len(raw)
            line += text.count("\n")
            if text and not begun:
                text, begun = text.removeprefix("\ufeff"), True
            if text:
                yield text


_DOUBLE_BYTE_ENCODINGS = {"CP932": "cp932", "GB18030": "gb18030", "EUC-KR": "euc_kr", "BIG5": "big5"}
_SINGLE_BYTE_ENCODINGS = {"CP1252": "cp1252", "ISO-8859-1": "latin-1"}
"""Encodings of iconv → of Python, the most common first."""


def utf8_advice(path: Path) -> str:
    """Returns advice for a file that is not UTF-8: its probable encodings, and the command that converts it.

    In double-byte encodings most bytes above 127 adjoin another one; in those of European scripts few do.
    """
    with open_regular(path, LARGEST_DATA) as file:
        content = file.read(LONGEST_LINE)
    content = content[: content.rfind(b"\n") + 1] or content
    as_utf8 = content.decode("utf-8", "replace")
    damaged = as_utf8.count("\ufffd")
    if len(re.findall("[^\\x00-\\x7f\ufffd]", as_utf8)) > damaged:
        return "save or convert the file as UTF-8"
    high = len(re.findall(rb"[\x80-\xff]", content))
    neighbours = sum(len(run) for run in re.findall(rb"[\x80-\xff]{2,}", content))
    encodings = _DOUBLE_BYTE_ENCODINGS if 2 * neighbours > high else _SINGLE_BYTE_ENCODINGS
    possible = [name for name, codec in encodings.items() if _decodes(content, codec)]
    if not possible:
        return "save or convert the file as UTF-8"
    target = path.with_name(f"{path.stem}-utf8{path.suffix}")
    command = f"iconv -f {possible[0]} -t UTF-8 {quoted(str(path))} > {quoted(str(target))}"
    others = f" or {', or '.join(possible[1:])}" if encodings is _DOUBLE_BYTE_ENCODINGS and possible[1:] else ""
    return f"it may be {possible[0]}{others}: convert it, with: {command}"


def _decodes(content: bytes, codec: str) -> bool:
    try:
        content.decode(codec)
    except UnicodeDecodeError:
        return False
    return True


def text_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a text file without line ends (LF or CRLF) and byte order mark."""
    for number, text in enumerate(decoded(path, LONGEST_LINE, by_line=True), 1):
        if number == 1 and "\r" in text.rstrip("\r\n") and not text.endswith("\n"):
            raise DataError(
                f"{path}: lines end with carriage returns (CR); convert the file to line feeds (LF or CRLF)"
            )
        yield text.removesuffix("\n").removesuffix("\r")


_BINARY_STARTS = {
    b"\x1f\x8b": ("compressed (gzip)", "unpack it"),
    b"PK\x03\x04": ("an archive (ZIP) or a workbook of Excel", "unpack it, or save the sheet as CSV with UTF-8"),
    b"PAR1": ("a Parquet file", "let its name end in .parquet"),
    b"ARROW1": ("a Feather file", "write it as Parquet"),
}
"""The first bytes of files that are no text → what they are, and what to do."""


def check_utf8(path: Path, start: bytes) -> None:
    """Raises DataError if the first bytes of a file are those of UTF-16 or UTF-32, or of a file that is no text."""
    for magic, (kind, advice) in _BINARY_STARTS.items():
        if start.startswith(magic):
            raise DataError(f"{path}: is {kind}, not text; {advice}")
    # Every other byte of common text in UTF-16 is zero; in UTF-8, a zero is a rare control character.
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 4 * start[:4096].count(0) > len(start[:4096]):
        raise DataError(
            f"{path}: is UTF-16 or UTF-32, not UTF-8; save or convert the file as UTF-8 (in Excel, instead of Unicode "
            "text: Save As, CSV UTF-8)"
        )


def aligned_records(source: Path, target: Path) -> Records:
    """Opens two text files with the same number of lines as a table with the columns ``source`` and ``target``."""
    for path in (source, target):
        check_no_subtitles(path)
    counts = _count_lines(source), _count_lines(target)
    for path in (source, target):
        next(text_lines(path), None)  # a file whose lines cannot be read has no lines to count
    if counts[0] != counts[1]:
        raise DataError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}; "
            "line n of one must translate line n of the other: check where they differ"
        )

    def rows(_: object) -> Iterator[tuple[str, dict[str, str]]]:
        for number, (one, other) in enumerate(itertools.zip_longest(text_lines(source), text_lines(target)), 1):
            if one is None or other is None:  # a byte order mark alone counts as a line
                raise DataError(
                    f"{source if one is None else target} ends before line {number}, which the other file has"
                )
            yield f"line {number}", {"source": one, "target": other}

    where = f"{source} and {target}"
    return Records(where, where, ["source", "target"], rows)


def _count_lines(path: Path) -> int:
    """Returns the number of lines of a file; a last line without a line end counts."""
    lines, last = 0, b"\n"
    with open_utf8(path) as file:
        while chunk := file.read(CHUNK):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n")


_TIME_CODE = re.compile(
    r"\s*(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}(?: *--> *|,)(?:\d+:)?\d{1,2}:\d{2}[,.]\d"  # SubRip, WebVTT, SubViewer
    r"|\{\d+\}\{\d+\}|Dialogue: *\d+,\d+:\d{2}:|\[\d+:\d{2}\.\d+\]|<p\b[^>]*\bbegin="  # MicroDVD, ASS, LRC, TTML
)
_LINES_BEFORE_TIME_CODES = 60


def check_no_subtitles(path: Path) -> None:
    """Raises DataError if one of the first lines of a text file has the time codes of subtitles."""
    for number, line in enumerate(itertools.islice(text_lines(path), _LINES_BEFORE_TIME_CODES), 1):
        if _TIME_CODE.match(line):
            raise DataError(
                f"{path}: is subtitles (line {number} has times: {shortened(line.strip())}); write their texts into a "
                "text file first, one a line, without numbers and times"
            )


def nearest_column(name: str, names: Iterable[str]) -> str | None:
    """Returns the column whose name is most like another one; None if none is like it."""
    lower = {other.lower(): other for other in names}
    nearest = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    return lower[nearest[0]] if nearest else None


def check_different(where: str, names: Sequence[str]) -> None:
    """Raises DataError if a name occurs twice."""
    if len(set(names)) < len(names):
        twice = min(name for name, count in Counter(names).items() if count > 1)
        raise DataError(
            f"{where}: two columns are called {shortened(twice)}; rename one (columns: {quoted_names(names)})"
        )


def label_text(value: object) -> str | None:
    """Returns a label as text; None if it is neither text nor a finite number.

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
    """Returns the text.

    Raises:
        DataError: it has half of a surrogate pair, as JSON can, and so is no text that a file could hold.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where} holds half a surrogate pair; correct that text") from error
    return text


def listed_names(names: Sequence[str]) -> str:
    """Returns the first names, for messages, and how many more there are."""
    more = [f"and {len(names) - _MOST_LISTED_NAMES:,} more"] * (len(names) > _MOST_LISTED_NAMES)
    return ", ".join([*names[:_MOST_LISTED_NAMES], *more])


def quoted_names(names: Sequence[str]) -> str:
    """Returns `listed_names` of the names in quotation marks."""
    return listed_names([shortened(name) for name in names]) or "none"


def shortened(value: object) -> str:
    """Returns a value for a message: its `repr`, shortened."""
    return _REPR.repr(value)


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


def _not_text(name: str, position: str, column: str, value: Any, number: bool) -> DataError:
    if number and isinstance(value, float):
        return DataError(f"{name}: {position}, column {column!r} must be text or a finite number; it is {value}")
    return DataError(f"{name}: {position}, column {column!r} must be text; it is {kind_of(value)}")


def kind_of(value: Any) -> str:
    """Names the kind of a value of JSON, for messages: ``"a list"``."""
    kinds = {bool: "a truth value", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), f"a {type(value).__name__}")
