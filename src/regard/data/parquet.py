"""Parquet tables, and the rows of Arrow batches of every origin."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.cache import file_state
from regard.data.records import Records, StoredFile
from regard.errors import DataError
from regard.files.regular import LARGEST_DATA, require_regular

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

Classes = Mapping[str, Sequence[str]]
"""Column → the names of the classes, whose numbers it has."""

_ROWS_AT_ONCE, _FILES_AT_ONCE = 1 << 16, 64
"""Rows that are in memory at once, of a table of values and of one with files."""


def parquet(path: Path) -> Records:
    """Opens a Parquet file. Cells that are files, as ``datasets`` stores images and sounds, are read where used."""
    with opened_parquet(path) as file:
        schema = file.schema_arrow
    columns = flattened(schema.empty_table()).column_names
    files = {field.name for field in schema if is_file(field.type)}

    def rows(chosen: Sequence[str] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        names = columns if chosen is None else chosen
        inside = files.intersection(names)
        with opened_parquet(path) as file:
            batches = file.iter_batches(_FILES_AT_ONCE if inside else _ROWS_AT_ONCE, columns=list(names))
            for number, (position, row) in enumerate(arrow_rows(str(path), batches, names, class_names(schema))):
                yield position, row | {name: _cell(path, name, number, row[name]) for name in inside}

    return Records(str(path), str(path), columns, rows)


@contextmanager
def opened_parquet(path: Path) -> Iterator["pyarrow.parquet.ParquetFile"]:
    """Opens a Parquet file; raises DataError if it is none, or damaged."""
    import pyarrow.parquet

    try:
        require_regular(path, LARGEST_DATA)
        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            yield file
    except pyarrow.ArrowException as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: is not a Parquet file, or is damaged ({reason})") from error


def arrow_rows(
    where: str, batches: Iterable["pa.RecordBatch"], columns: Sequence[str], classes: Classes | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields some columns of Arrow batches, named as `flattened` names them, as the rows of `Records`; numbers of
    ``classes`` become their names. ``where`` names the table in messages."""
    import pyarrow as pa

    named = {name: names for name, names in (classes or {}).items() if name in columns}
    first = 1
    for batch in batches:
        table = flattened(pa.Table.from_batches([batch]))
        values = []
        for name in columns:
            try:
                cells = table.column(name).to_pylist()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}: column {name!r} is not valid UTF-8 between rows {first} and "
                    f"{first + len(table) - 1}; write the file again from UTF-8"
                ) from error
            values.append([class_name(cell, named[name]) for cell in cells] if name in named else cells)
        for row, cells in enumerate(zip(*values, strict=True), first):
            yield f"row {row}", dict(zip(columns, cells, strict=True))
        first += len(table)


def class_name(number: Any, names: Sequence[str]) -> str | None:
    """Returns the name of a class; None for a number without a class: −1 marks a row without a label."""
    try:
        position = index(number)  # of Python, NumPy or PyTorch
    except TypeError:
        return None
    return names[position] if 0 <= position < len(names) else None


def class_names(schema: "pa.Schema") -> dict[str, list[str]]:
    """Returns the columns that are a ``ClassLabel`` of ``datasets``, which writes their names into the schema."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return dict(_class_features(features, ""))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):  # another program's metadata
        return {}


def _class_features(features: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, list[str]]]:
    for name, feature in features.items():
        if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel":
            names = feature.get("names")
            if isinstance(names, list) and all(isinstance(one, str) for one in names):
                yield f"{prefix}{name}", names
        elif isinstance(feature, Mapping) and "_type" not in feature:
            yield from _class_features(feature, f"{prefix}{name}.")


def flattened(table: "pa.Table") -> "pa.Table":
    """Returns the table with a column for each field of its objects; those that are files stay whole."""
    import pyarrow as pa

    while any(is_object(field.type) for field in table.schema):
        parts = [table.select([number]) for number in range(table.num_columns)]
        parts = [part.flatten() if is_object(part.schema.field(0).type) else part for part in parts]
        names = [name for part in parts for name in part.column_names]
        table = pa.table([column for part in parts for column in part.columns], names)
    return table


def is_object(kind: "pa.DataType") -> bool:
    """Whether a column holds objects with fields of their own."""
    import pyarrow as pa

    return pa.types.is_struct(kind) and not is_file(kind)


def is_file(kind: "pa.DataType") -> bool:
    """Whether a column holds files as ``datasets`` stores images and sounds: ``bytes`` and ``path``."""
    import pyarrow as pa

    if not pa.types.is_struct(kind) or kind.num_fields != 2 or {field.name for field in kind} != {"bytes", "path"}:
        return False
    content = kind.field("bytes").type
    return pa.types.is_binary(content) or pa.types.is_large_binary(content) or pa.types.is_null(content)


def _cell(path: Path, column: str, row: int, value: Mapping[str, Any] | None) -> "str | ParquetFileCell | None":
    """Returns a cell that holds a file: None without one, the path of a file outside the table."""
    if value is None:
        return None
    if value["bytes"]:
        return ParquetFileCell(str(path), column, row, value["path"])
    return value["path"]


@dataclass(frozen=True)
class ParquetFileCell(StoredFile):
    """A file in a cell of a Parquet table: its table, column and row, from 0, and what the table calls it, if
    anything."""

    table: str
    column: str
    row: int
    path: str | None = None

    @property
    def name(self) -> str:
        return f"{self.table}: row {self.row + 1}, {self.path or self.column}"

    def state(self) -> tuple[object, ...]:
        return file_state(self.table), self.column, self.row

    def content(self) -> bytes:
        state = file_state(self.table)
        ends = _row_groups(state)
        group = bisect_right(ends, self.row)
        if group >= len(ends):
            raise DataError(f"{self.table}: has {ends[-1] if ends else 0} rows now, and row {self.row + 1} is read")
        first = ends[group - 1] if group else 0
        content = _cells(state, self.column, group)[self.row - first].as_py()
        if not isinstance(content, bytes):
            raise DataError(f"{self.name}: is no file any more; start again")
        return content


@lru_cache(maxsize=4)
def _row_groups(state: tuple[str, int, int]) -> list[int]:
    """Returns the number of the row after each group of rows of a file."""
    with opened_parquet(Path(state[0])) as file:
        return list(accumulate(file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)))


@lru_cache(maxsize=2)  # files are read in the order of their rows
def _cells(state: tuple[str, int, int], column: str, group: int) -> "pa.ChunkedArray":
    """Returns the bytes in a column of a group of rows."""
    with opened_parquet(Path(state[0])) as file:
        table = file.read_row_group(group, columns=[f"{column}.bytes"])
        return table.flatten().column(f"{column}.bytes")
