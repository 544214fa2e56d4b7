"""Delimited tables: TSV files, raw or quoted, and CSV files, with the names of their columns in the first line.

A reader stores only one line, or one quoted field (each at most 16 MiB), at a time.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from regard.data.header_names import header_doubts
from regard.data.records import LONGEST_LINE, Records, check_different, listed_names, shortened, text_lines
from regard.errors import DataError

_DELIMITERS = {".tsv": "\t", ".csv": ","}
"""What separates the columns of a file, by its suffix."""

CERTAIN = 1000
"""Rows that are looked at, at most, to tell what separates the columns of a CSV file."""

_DELIMITER_NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons (';')", "|": "bars ('|')"}


def delimited(path: Path) -> Records:
    """Opens a CSV file with the quoting of RFC 4180, or a TSV file, whose quoting `_quoting` determines."""
    separator = _DELIMITERS[path.suffix.lower()]
    if separator == ",":
        separator = _separator(path)
        quoted, remark = True, ""
        if separator != ",":
            remark = f"the columns are separated by {_DELIMITER_NAMES[separator]}, and are read so"
    else:
        quoted, remark = _quoting(path, separator)

    def lines() -> Iterator[tuple[int, list[str]]]:
        if quoted:
            return ((number, fields) for number, fields, _ in _quoted_lines(path, separator))
        return enumerate((line.split(separator) for line in text_lines(path)), 1)

    header = _header(path, separator, lines())

    def rows(_: object) -> Iterator[tuple[str, dict[str, str]]]:
        for line, fields in itertools.islice(lines(), 1, None):
            if len(fields) == len(header):
                yield f"line {line}", dict(zip(header, fields, strict=True))
            elif any(fields):  # else an empty line, at the end or between blocks
                advice = "correct or remove that line"
                if any("\r" in field for field in fields):
                    advice = "a carriage return (CR) inside it ends no line: convert the line ends to LF or CRLF"
                raise DataError(
                    f"{path}: line {line} has {len(fields)} {'field' if len(fields) == 1 else 'fields'} where the "
                    f"header has {len(header)} ({listed_names(header)}); {advice}"
                )

    advice, doubt = header_doubts(header)
    return Records(str(path), str(path), header, rows, advice=advice, doubt=doubt, remark=remark)


def _separator(path: Path) -> str:
    """Returns the separator of a CSV file: a comma, or another mark where that is certain.

    It is certain if the header has no comma, and the header and the first rows have the same number of fields by the
    other mark, at least two.
    """
    header = next(text_lines(path), "")
    for mark in _DELIMITER_NAMES:
        if mark == "," or "," in header or mark not in header:
            continue
        try:
            rows = [fields for _, fields, _ in itertools.islice(_quoted_lines(path, mark), CERTAIN) if any(fields)]
        except DataError:
            continue
        if len(rows) > 1 and len(rows[0]) > 1 and len({len(fields) for fields in rows}) == 1:
            return mark
    return ","


def _quoting(path: Path, separator: str) -> tuple[bool, str]:
    """Whether the quotation marks of a TSV file enclose fields, as pandas and Excel write them, or are characters.

    They enclose fields if every field with a quotation mark is a well-formed quoted field (RFC 4180), every line then
    has as many fields as the first, and one of them has a reason to be quoted: a doubled quotation mark, a separator or
    a line end inside, no text at all, or a whole column that is quoted, its name too. A raw file has a sentence such as
    ``He said "yes".`` somewhere, which is no quoted field.

    Returns:
        whether they enclose fields; and a line for the user where that cannot be told.
    """
    width, doubtful_line = 0, 0
    has_reason, plain, quoted = False, set[int](), set[int]()
    try:
        for number, fields, marks in _quoted_lines(path, separator):
            width = width or len(fields)
            if len(fields) != width and any(fields):
                return False, ""
            if not marks:
                plain.update(column for column, text in enumerate(fields) if text)
                continue
            for column, (text, is_marked) in enumerate(zip(fields, marks, strict=True)):
                if not is_marked and '"' in text:
                    return False, ""
                if is_marked:
                    quoted.add(column)
                    has_reason = has_reason or re.search(r'["\t\n\r]', text) is not None
                    doubtful_line = doubtful_line or (number if text else 0)
                elif text:
                    plain.add(column)
    except DataError:
        return False, ""
    if has_reason or not doubtful_line or not quoted & plain:
        return bool(quoted), ""
    return False, (
        f"line {doubtful_line} has a field in quotation marks, which are read as characters of the text; if they only "
        "enclose it, write the table as .csv"
    )


def _quoted_lines(path: Path, separator: str) -> Iterator[tuple[int, list[str], list[bool]]]:
    """Yields the records of a file with quoting: the number of the first line, the fields, and which are quoted.

    A field that begins with a quotation mark ends with one, and may hold separators, line ends and doubled quotation
    marks (RFC 4180). Of a record without a quotation mark the third is empty. The module ``csv`` reads long fields only
    if its limit is changed for the whole process.
    """
    lines = enumerate(text_lines(path), 1)
    for number, line in lines:
        if '"' not in line:
            yield number, line.split(separator), []
            continue
        fields, marks, start = [], [], 0
        while start <= len(line):
            marks.append(line.startswith('"', start))
            if marks[-1]:
                where = f"{path}: line {number} is not {path.suffix[1:].upper()}"
                field, line, start = _quoted_field(where, line, start + 1, lines, separator)
            else:
                end = line.find(separator, start)
                end = len(line) if end < 0 else end
                field, start = line[start:end], end + 1
            fields.append(field)
        yield number, fields, marks


def _quoted_field(
    where: str, line: str, start: int, lines: Iterator[tuple[int, str]], separator: str
) -> tuple[str, str, int]:
    """Returns the field after a quotation mark, the line in which it ends, and where the next field begins."""
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
            if end + 1 < len(line) and line[end + 1] != separator:
                raise DataError(
                    f"{where} (no {_DELIMITER_NAMES[separator][:-1]} after a closing quotation mark); double the marks "
                    "inside a field"
                )
            return "".join(parts), line, end + 2
        # The field continues in the next line.
        parts += line[start:], "\n"
        length += len(line) - start + 1
        following = next(lines, None)
        if following is None or length > LONGEST_LINE:
            raise DataError(f"{where} (a field has no closing quotation mark); is a quotation mark left open?")
        line, start = following[1], 0


def _header(path: Path, separator: str, table: Iterator[tuple[int, list[str]]]) -> list[str]:
    """Returns the names of the columns, which the first line must have."""
    first = next(table, None)
    if first is None:
        raise DataError(f"{path}: the file is empty; it must begin with the names of the columns")
    header = [name.strip() for name in first[1]]
    if not any(header):
        raise DataError(f"{path}: line 1 is empty; it must be the header, the names of the columns")
    other = next((mark for mark in _DELIMITER_NAMES if mark != separator and mark in header[0]), None)
    if len(header) == 1 and other is not None:
        raise DataError(
            f"{path}: the header has one column, {shortened(header[0])}; its columns seem to be separated by "
            f"{_DELIMITER_NAMES[other]}, and a {path.suffix.lower()} file has {_DELIMITER_NAMES[separator]} between "
            "them: "
            + (
                "let its name end in .csv"
                if separator != ","
                else f"convert the file, which pandas does: pandas.read_csv({path.name!r}, sep={other!r})"
                f".to_csv('converted.csv', index=False)"
            )
        )
    check_different(str(path), [name for name in header if name])
    return header
