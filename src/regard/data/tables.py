"""Tables of every kind of file, as `regard.data.records.Records`.

A reader stores only one line (at most 16 MiB) or one block of rows at a time.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.data.delimited import delimited
from regard.data.json_rows import json_objects
from regard.data.parquet import parquet
from regard.data.records import Records, check_file, file_errors
from regard.errors import DataError

READERS: dict[str, Callable[[Path], Records]] = {
    ".tsv": delimited,
    ".csv": delimited,
    ".jsonl": json_objects,
    ".json": json_objects,
    ".parquet": parquet,
}
"""Suffix → the function that opens such a table."""


def open_records(path: Path) -> Records:
    """Opens a table; raises DataError if it cannot be read, or its suffix is not in `READERS`."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: unknown kind of file {path.suffix!r}; give {', '.join(READERS)}")
    return reader(path)


def tables_in(folder: Path) -> list[Path]:
    """Returns the tables of several columns in a folder, sorted; those of training data first."""
    with file_errors(folder, "check its permissions"):
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in READERS and path.is_file())
    tables = [path for path in files if not path.name.startswith(".") and _has_columns(path)]
    return sorted(tables, key=lambda path: "train" not in path.stem.lower())


def _has_columns(path: Path) -> bool:
    try:
        records = open_records(path)
    except DataError:
        return False
    return not records.advice and len(records.columns) > 1


def column_names(path: Path) -> list[str]:
    """Returns the columns of a table, as its header or its first row names them; raises as `open_records`."""
    return open_records(path).columns


def record_places(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the rows of a table with all columns, each after its position, without empty lines of a .tsv or .csv.
    Raises DataError if the file cannot be read or is empty, a row has other columns than the header, or is no JSON
    object."""
    check_file(path, "rows")
    rows = open_records(path).rows(None)
    may_be_empty = path.suffix.lower() in (".tsv", ".csv")
    return (row for row in rows if not may_be_empty or any(value != "" for value in row[1].values()))
