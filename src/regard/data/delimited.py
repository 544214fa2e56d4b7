"""Delimited tables: TSV files, raw or quoted, and CSV files, with the names of their columns in the first line.

A reader stores only one line, or one quoted field (each at most 16 MiB), at a time.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.records import (
    LONGEST_LINE,
    Records,
    check_different,
    listed_names,
    quoted_names,
    shortened,
    text_lines,
)
from regard.errors import DataError

CHECKED_ROWS = 1000
"""Rows that are looked at, at most, to tell what separates the columns of a CSV file."""

_DELIMITER_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}


def delimited(path: Path) -> Records:
    """Opens a CSV file with the quoting of RFC 4180, or a TSV file, whose quoting `_quoting` determines."""
    if path.suffix.lower() == ".tsv":
        separator = "\t"
        quoted, remark = _quoting(path, separator)
    else:
        separator, quoted = _separator(path), True
        remark = f"the columns are separated by {_DELIMITER_NAMES[separator]}s ({separator!r}), not by commas" * (
            separator != ","
        )

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
    """Returns the separator of a CSV file: a comma, or another mark where the header has no comma, and header and first
    rows have the same number of fields by it, at least two."""
    header = next(text_lines(path), "")
    for mark in _DELIMITER_NAMES:
        if mark == "," or "," in header or mark not in header:
            continue
        try:
            rows = [fields for _, fields, _ in itertools.islice(_quoted_lines(path, mark), CHECKED_ROWS) if any(fields)]
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


_QUOTED = re.compile(r'(?:[^"]|"")*+')
"""The part of a quoted field up to its closing quotation mark, or to the end of its line."""


def _quoted_field(
    where: str, line: str, start: int, lines: Iterator[tuple[int, str]], separator: str
) -> tuple[str, str, int]:
    """Returns the field after a quotation mark, the line in which it ends, and where the next field begins."""
    parts: list[str] = []
    length = 0
    while True:
        match = _QUOTED.match(line, start)
        assert match is not None
        parts.append(match[0].replace('""', '"'))
        if (end := match.end() + 1) <= len(line):
            if end < len(line) and line[end] != separator:
                raise DataError(
                    f"{where} (no {_DELIMITER_NAMES[separator]} after a closing quotation mark); double the marks "
                    "inside a field"
                )
            return "\n".join(parts), line, end + 1
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
        command = f"pandas.read_csv({path.name!r}, sep={other!r}).to_csv('converted.csv', index=False)"
        convert = f"convert the file, which pandas does: {command}"
        raise DataError(
            f"{path}: the header has one column, {shortened(header[0])}; its columns seem to be separated by "
            f"{_DELIMITER_NAMES[other]}s, and a {path.suffix.lower()} file has {_DELIMITER_NAMES[separator]}s between "
            f"them: {convert if separator == ',' else 'let its name end in .csv'}"
        )
    check_different(str(path), [name for name in header if name])
    return header


_MOST_WORDS, _MOST_CHARACTERS = 5, 60  # of the name of a column

_SENTENCE = re.compile(r"[.!?…。！？।؟]$|^[¿¡\"'“«„]|, ")
_FILE = re.compile(r"\.(wav|flac|ogg|mp3|aiff?|au|npy|png|jpe?g|gif|bmp|tiff?|webp|txt)$", re.IGNORECASE)
_PART = re.compile(r"[ _.\-]+|(?<=[a-z])(?=[A-Z])|(?<=\D)(?=\d)")

_LANGUAGES = (
    "aa ab af ak am an ar as ay az ba be bg bh bi bn bo br bs ca ce co cs cv cy da de dv dz ee el en eo es et eu "
    "fa fi fj fo fr fy ga gd gl gn gu gv ha he hi hr ht hu hy ia id ie ig is it iu ja jv ka kk kl km kn ko ks ku "
    "kw ky la lb lg ln lo lt lv mg mi mk ml mn mr ms mt my nb ne nl nn no nv ny oc om or os pa pl ps pt qu rm ro "
    "ru rw sa sc sd se sg sh si sk sl sm sn so sq sr st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ug uk ur "
    "uz ve vi vo wo xh yi yo zh zu eng spa fra fre deu ger ita por rus zho chi jpn kor ara hin nld dut swe dan "
    "nor fin pol ces cze tur ell gre heb ukr vie tha ind ron rum hun bul hrv cmn cat lat epo english spanish "
    "french german italian portuguese russian chinese japanese korean arabic hindi dutch swedish danish norwegian "
    "finnish polish czech turkish greek hebrew ukrainian vietnamese thai indonesian romanian hungarian bulgarian "
    "catalan latin us gb cn mx hans hant latn cyrl"
)

_USUAL_WORDS = (
    "source target src tgt trg text texts sentence sentences label labels class classes category article articles "
    "summary summaries document documents title headline abstract highlights body content review comment question "
    "answer query response prompt completion instruction input inputs output outputs translation reference "
    "original audio sound file files path paths name filename image images picture caption captions mask masks "
    "transcript transcription transcriptions transcribed features feature scene id ids idx index key row number "
    "score rating sentiment intent topic tag tags emotion target premise hypothesis alignment deciding objects "
    "segments split utterance phrase word words token tokens lang language col column field x y from to human "
    "machine raw clean"
)

_KNOWN_WORDS = frozenset(f"{_LANGUAGES} {_USUAL_WORDS}".split())


def header_doubts(header: Sequence[str]) -> tuple[str, str]:
    """Returns the advice if a first line is a row, and the doubt if it may be one; both are empty if it surely names
    the columns."""
    cells = [cell for cell in header if cell]
    # pandas names columns without names by their numbers.
    if any(map(_is_value, cells)) and cells != [str(number) for number in range(len(cells))]:
        return (
            f"line 1, {quoted_names(cells)}, seems to be a row, and must be the names of the columns: put them there "
            "(or name the columns, if these are their names)"
        ), ""
    if all(map(_is_name, cells)):
        return "", ""
    return "", (
        f"line 1, {quoted_names(cells)}, is read as the names of the columns; if it is a row, put the names before it"
    )


def _is_value(cell: str) -> bool:
    """Whether a cell is no name of a column: a sentence, a number, the name of a file, a long text."""
    is_number = re.fullmatch(r"[+-]?\d+([.,]\d+)?", cell) is not None
    is_long = len(cell) > _MOST_CHARACTERS or len(cell.split()) > _MOST_WORDS
    return is_number or is_long or bool(_SENTENCE.search(cell) or _FILE.search(cell))


def _is_name(cell: str) -> bool:
    """Whether a cell is surely the name of a column: made of usual words, letters and numbers."""
    parts = [part.lower() for part in _PART.split(cell) if part]
    return bool(parts) and all(part in _KNOWN_WORDS or part.isdigit() or len(part) == 1 for part in parts)
