"""Tables of JSON: an object on each line, or all in one array."""

import codecs
import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.records import (
    CHUNK,
    LONGEST_LINE,
    Records,
    check_different,
    decoded,
    is_null,
    kind_of,
    open_utf8,
    shortened,
    text_lines,
)
from regard.errors import DataError
from regard.files.regular import LARGEST_TEXT, read_text

_MOST_DIGITS = 4000  # of a whole number; Python itself reads at most 4,300

_FIRST_ROWS = 100
"""Rows that are looked at for the names of columns: the first one may lack some."""


def json_objects(path: Path) -> Records:
    """Opens a file of JSON objects, one on each line or all in one array."""
    with open_utf8(path) as file:
        start = file.read(CHUNK).removeprefix(codecs.BOM_UTF8).lstrip()
    _check_caption_file(path, start)
    is_array = start.startswith(b"[")

    def records() -> Iterator[tuple[str, dict[str, Any]]]:
        for position, value in (_json_array if is_array else _json_lines)(path):
            if not isinstance(value, dict):
                raise DataError(f"{path}: {position} must be a JSON object with named columns; it is {kind_of(value)}")
            yield position, value

    def rows(columns: Sequence[str] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for position, record in records():
            if columns is not None:
                fields = list(flat_fields(record))
                record = dict(fields)
                if len(record) < len(fields):
                    check_different(f"{path}: {position}", [name for name, _ in fields])
            yield position, record

    rest = records()
    first = list(itertools.islice(rest, 1))
    with contextlib.suppress(DataError):  # an error in any row but the first is left to those who read that row
        first.extend(itertools.islice(rest, _FIRST_ROWS - 1))
    if not first:
        return Records(str(path), str(path), [], rows)
    # A row may lack a field, or have null for an object; the first one with the most values names the columns.
    position, header = max(first, key=lambda row: sum(not is_null(value) for _, value in flat_fields(row[1])))
    columns = [name for name, _ in flat_fields(header)]
    seen = dict.fromkeys(name for _, row in first for name, _ in flat_fields(row))
    others = tuple(name for name in seen if name not in columns)
    advice = "" if is_array or len(first) > 1 else _container_advice(header)
    return Records(str(path), f"{path}: {position}", columns, rows, others, advice)


_CAPTION_FILE = re.compile(
    rb'\{\s*"(?:info|licenses|categories|images|annotations|type|dataset)"\s*:\s*(?:[\[{]|"[^"]*"\s*,\s*"images"\s*:\s*\[)'
)
"""How the files of COCO begin, and those of Karpathy's splits."""


_CAPTION_ROWS = {
    b'"sentences"': "Karpathy's splits: [{'image': i['filename'], 'captions': [s['raw'] for s in i['sentences']]} "
    "for i in d['images'] if i['split'] == 'train']",
    b'"file_name"': "COCO's annotations: [{'image': n[a['image_id']], 'caption': a['caption']} "
    "for n in [{i['id']: i['file_name'] for i in d['images']}] for a in d['annotations']]",
}
"""A name in such a file → what the file is, and the expression of its rows."""


def _check_caption_file(path: Path, start: bytes) -> None:
    """Raises DataError if the start of a file is that of COCO's annotations or of Karpathy's splits."""
    rows = next((rows for name, rows in _CAPTION_ROWS.items() if name in start), None)
    if rows is None or b'"images"' not in start or not _CAPTION_FILE.match(start):
        return
    kind, _, rows = rows.partition(": ")
    raise DataError(
        f"{path}: is one JSON object, {kind}, and no table; write its rows in the folder of the images, in Python: "
        f"import json; from pathlib import Path; d = json.loads(Path({str(path)!r}).read_text()); "
        f"Path('captions.json').write_text(json.dumps({rows}))"
    )


def _container_advice(content: Mapping[str, Any]) -> str:
    """Returns what the only object of a file should be instead of rows; "" if it is a row."""
    one = "the file is one JSON object, and a table has one for each row"
    values = list(content.values())
    lists = [name for name, value in content.items() if isinstance(value, list) and value and
             all(isinstance(row, dict) for row in value)]  # fmt: skip
    if lists:
        return f"{one}: write the list {shortened(max(lists, key=lambda name: len(content[name])))} as the file"
    lengths = {len(value) if isinstance(value, (list, dict)) else -1 for value in values}
    is_split = isinstance(content.get("columns"), list) and isinstance(content.get("data"), list)  # of pandas
    is_alike = len(values) > 1 and len(lengths) == 1 and lengths != {-1} and len({type(value) for value in values}) == 1
    if is_split or is_alike:
        return f"{one}: write its columns as rows (pandas: to_json(path, orient='records', lines=True))"
    return ""


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
                whole = _whole_object(path) if number == 1 and line.lstrip().startswith("{") else None
                if whole is not None or (number == 1 and line.strip() == "{"):
                    advice = _container_advice(whole or {}) or (
                        "write each object on one line, or all objects in one array"
                    )
                raise DataError(f"{path}: line {number} is not JSON ({_json_reason(error)}); {advice}") from error
            yield f"line {number}", record


def _whole_object(path: Path) -> dict[str, Any] | None:
    """Returns the one object that a file holds over several lines; None if it does not."""
    try:
        content = _DECODER.decode(read_text(path, LARGEST_TEXT).removeprefix("\ufeff"))
    except (OSError, ValueError, RecursionError, DataError):
        return None
    return content if isinstance(content, dict) else None


def _json_array(path: Path) -> Iterator[tuple[str, Any]]:
    chunks = decoded(path, CHUNK)
    text, position, count = next(chunks, ""), 0, 0

    def next_mark() -> str:
        """Returns the next character that is no white space; "" at the end of the file."""
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
            if not chunk or len(text) > LONGEST_LINE:
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


def flat_fields(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the fields of a row: ``{"translation": {"de": "Ja"}}`` has ``translation.de``."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from flat_fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
