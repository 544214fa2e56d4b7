"""The rows of data in memory: lists, pairs, dictionaries, columns, data frames, Arrow tables, data sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from regard.errors import ArgumentError, DataError, KindError
from regard.names.counted import counted


def memory_rows(data: Any, columns: tuple[str, ...], name: str) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of data in memory as dictionaries; ``columns`` are names of the parts of a row that has no names.

    Raises ArgumentError for columns of different lengths, two columns of one name, or several tables, KindError for
    data of another form, and DataError for a table that cannot be computed.
    """
    rows: Any = data
    if isinstance(data, tuple) and len(data) == 2 and all(map(_is_column, data)):
        if all(isinstance(part, tuple) and len(part) == 2 for part in data):
            raise KindError(
                f"{name} may be two columns or two pairs; give lists ([inputs], [targets]) or a list of pairs"
            )
        rows = dict(zip(columns, data, strict=True))
    rows = table_rows(rows, name)
    if isinstance(rows, Mapping):
        yield from _of_columns(rows, name)
        return
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise KindError(f"{name} must be a path, two lists, or an iterable of pairs or dictionaries; "
                        f"it is {a_type(data)}")  # fmt: skip
    for number, row in enumerate(rows):
        names = getattr(getattr(row, "dtype", None), "names", None)  # of a structured array
        if isinstance(row, Mapping):
            yield row
        elif names:
            yield {one: row[one] for one in names}
        elif is_list(row) and len(row) == len(columns):
            yield dict(zip(columns, row, strict=True))
        else:
            said = f"has {counted(len(row), 'part')}" if is_list(row) else f"is {a_type(row)}"
            raise KindError(
                f"{name}[{number}] must be a dictionary, or have {' and '.join(columns)} as its {len(columns)} parts; "
                f"it {said}"
            )


def table_rows(data: Any, name: str) -> Any:
    """Returns the rows of a table of another library or of a data set with a length; other data stay as they are."""
    if isinstance(data, Mapping) and data and all(map(is_table, data.values())):
        parts = ", ".join(map(repr, data))
        raise ArgumentError(f"{name} has the parts {parts}; give one of them, such as data[{next(iter(data))!r}]")
    for belongs, rows in _TABLES:
        if belongs(data):
            return rows(data, name)
    return data


def is_table(data: Any) -> bool:
    """Whether data are a table of another library."""
    return any(belongs(data) for belongs, _ in _TABLES[:-1])


def _has(*names: str) -> Callable[[Any], bool]:
    """Whether data have all of these attributes: no library is imported to recognize its tables."""
    return lambda data: not isinstance(data, type) and all(hasattr(data, name) for name in names)


def _of_data_set(data: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """Returns the rows of a Hugging Face data set without its format for another library; files stay files."""
    from regard.data.parquet import class_names

    if (getattr(data, "format", None) or {}).get("type") != "custom":  # `set_transform` makes rows of its own
        data = data.with_format(None)
        for column, feature in (data.features or {}).items():
            if type(feature).__name__ in ("Audio", "Image") and feature.decode:
                data = data.cast_column(column, dataclasses.replace(feature, decode=False))
    classes = class_names(data.features.arrow_schema) if data.features else {}
    return (_with_class_names(row, classes) for row in data)


def _with_class_names(row: Mapping[str, Any], classes: Mapping[str, Sequence[str]]) -> Mapping[str, Any]:
    """Returns a row with the names of its classes instead of their numbers."""
    from regard.data.parquet import class_name

    for path, names in classes.items():
        first, _, rest = path.partition(".")
        value = row.get(first)
        if rest:
            value = _with_class_names(value, {rest: names}) if isinstance(value, Mapping) else value
        elif not isinstance(value, str):  # a name, in a row that `set_transform` made
            value = class_name(value, names)
        row = {**row, first: value}
    return row


def _of_arrow(data: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """Returns the rows of a table, a batch, a reader or a data set of Arrow."""
    from regard.data.parquet import class_names

    classes = class_names(data.schema)
    batches = data.to_batches() if hasattr(data, "to_batches") else [data] if hasattr(data, "to_pylist") else data
    return (_with_class_names(row, classes) for batch in batches for row in batch.to_pylist())


def _of_lazy_frame(data: Any, name: str) -> Iterator[Mapping[str, Any]]:
    try:
        frame = data.collect()
    except Exception as error:  # of polars, or of a function of the user
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{name}: the {type(data).__name__} cannot be collected ({reason})") from error
    return frame.iter_rows(named=True)


def _of_pandas(data: Any, name: str) -> Iterable[Any]:
    """Returns the rows of a DataFrame without its index: as tuples if its columns are numbers."""
    names = list(data.columns)
    if len(set(names)) < len(names):
        twice = next(one for number, one in enumerate(names) if one in names[:number])
        raise ArgumentError(f"{name} has two columns {twice!r}; rename one")
    if names == list(range(len(names))):
        return data.itertuples(index=False, name=None)
    if any(not isinstance(one, (str, int)) for one in names):
        raise KindError(f"{name} must have columns named by texts; it has {', '.join(map(repr, names))}")
    return data.to_dict("records")


def _of_numbered(data: Any, name: str) -> Iterator[Any]:
    """Returns the rows of a data set with a length, such as one of PyTorch: not every one ends with an IndexError."""
    return (data[number] for number in range(len(data)))


_TABLES: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], Any]], ...] = (
    (_has("features", "column_names", "with_format"), _of_data_set),
    (_has("collect", "collect_schema"), _of_lazy_frame),
    (_has("columns", "iter_rows"), lambda data, name: data.iter_rows(named=True)),  # of polars
    (lambda data: _has("schema")(data) and any(_has(one)(data) for one in _ARROW_ROWS), _of_arrow),
    (_has("columns", "to_dict"), _of_pandas),
    (lambda data: _has("__getitem__", "__len__")(data) and not isinstance(data, Iterable), _of_numbered),
)
"""A function that recognizes the tables of a library, and one that returns their rows."""

_ARROW_ROWS = ("to_batches", "to_pylist", "read_next_batch")


def _of_columns(data: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    for column, values in data.items():
        if not _is_column(values) and not is_list(values):
            raise KindError(f"{name}: the column {column} must be a list; it is {a_type(values)}")
    rows = {column: column_values(values) for column, values in data.items()}
    lengths = {column: len(values) for column, values in rows.items()}
    if len(set(lengths.values())) > 1:
        said = " and ".join(f"{length} of {column}" for column, length in lengths.items())
        raise ArgumentError(f"{name} must have equally many of each column; it has {said}")
    for row in zip(*rows.values(), strict=True):
        yield dict(zip(rows, row, strict=True))


def column_values(values: Any) -> Any:
    """Returns the values of a column; for a Hugging Face column, the names of its classes and its files."""
    if hasattr(values, "source") and hasattr(values, "column_name"):
        rows = _of_data_set(values.source.select_columns([values.column_name]), "")
        return [row[values.column_name] for row in rows]
    if hasattr(values, "to_pylist"):  # of Arrow
        return values.to_pylist()
    if not isinstance(values, Iterable):  # a data set that has a length
        return list(_of_numbered(values, ""))
    return values if is_list(values) else list(values)


def _is_column(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, set, Mapping))


def is_list(value: Any) -> bool:
    """Whether a value is a sequence that is no text."""
    return not isinstance(value, (str, bytes, Mapping)) and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def a_type(value: Any) -> str:
    """Returns the type of a value with its article: ``"an int"``."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
