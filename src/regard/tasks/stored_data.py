"""Data in memory as files that a task reads: lists, pairs, dictionaries, data frames, data sets, images, features."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.atomic_file import write_atomically
from regard.errors import ArgumentError, KindError, RegardError, RunError
from regard.tasks.lazy import np

if TYPE_CHECKING:
    from regard.training.task import Task


def store(task: Task, data: Any, path: Path, name: str, options: Mapping[str, Any]) -> str:
    """Write data for a task.

    Args:
        task: the task.
        data: see `regard.train`.
        path: the file without a suffix; other files of the data have names that begin like it.
        name: name of the argument, for messages.
        options: the options of the training, which may name columns.

    Returns:
        the file, as an option of the task names it.

    Raises:
        ArgumentError: there are no data, or columns of different lengths.
        KindError: the data have another form.
        RunError: the files cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create the folder {path.parent}: {error.strerror}") from error
    columns = stored_columns(task, options)
    if len(columns) == 1:
        return _store_documents(data, path, name)
    lines, paths = [], {columns[0], "mask"} if task.input_kind != "text" else set()
    for number, row in enumerate(_rows(data, columns, name)):
        content = {}
        for position, (column, value) in enumerate(row.items()):
            file = path.with_name(f"{path.name}-{number:06d}-{position}")
            content[column] = _plain(value, column in paths, file, f"{name}[{number}]: {column}")
        # Half a surrogate pair is written as an escape, so that reading the file names its place.
        lines.append(json.dumps(content) + "\n")
    if not lines:
        raise ArgumentError(f"{name} is empty; give at least one example")
    file = path.with_suffix(".jsonl")
    write_atomically(file, "".join(lines).encode())
    return str(file)


def stored_columns(task: Task, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the columns of the input and of what is predicted; one name: the task reads running text."""
    given = getattr(task, "input", None)
    if given is None:
        raise ArgumentError(f"the task {task.name!r} reads files; give paths")
    kind, columns = task.data_config, given.stored_columns
    names = getattr(kind, "columns", ()) or (None,) * len(columns)
    return tuple(
        (name and (options.get(name) or getattr(kind, name, None))) or column
        for name, column in zip(names, columns, strict=True)
    )


@contextmanager
def stored_names(stored: Mapping[str, str]) -> Iterator[None]:
    """In this context errors and warnings name arguments, not options of the command, and not the files of `store`.

    Args:
        stored: name of an argument → the file that holds its data.
    """

    def renamed(text: str) -> str:
        for name, path in stored.items():
            text = text.replace(path, name)
        return re.sub(r"(?<![\w-])--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), text)

    def rename(record: logging.LogRecord) -> bool:
        record.msg, record.args = renamed(record.getMessage()), ()
        return True

    logger = logging.getLogger("regard")
    logger.addFilter(rename)
    try:
        yield
    except RegardError as error:
        error.args = (renamed(str(error)),)
        raise
    finally:
        logger.removeFilter(rename)


def _rows(data: Any, columns: tuple[str, ...], name: str) -> Iterator[Mapping[str, Any]]:
    rows: Any = data
    if isinstance(data, tuple) and len(data) == 2 and all(map(_is_list, data)):
        rows = dict(zip(columns, data, strict=True))
    if isinstance(rows, Mapping):
        lengths = {column: len(values) for column, values in rows.items()}
        if len(set(lengths.values())) > 1:
            said = " and ".join(f"{length} of {column}" for column, length in lengths.items())
            raise ArgumentError(f"{name} must have equally many of each column; it has {said}")
        for row in zip(*rows.values(), strict=True):
            yield dict(zip(rows, row, strict=True))
        return
    if hasattr(rows, "columns") and hasattr(rows, "to_dict"):  # pandas
        rows = rows.to_dict("records")
    elif hasattr(rows, "iter_rows"):  # polars
        rows = rows.iter_rows(named=True)
    if isinstance(rows, (str, bytes)) or (not isinstance(rows, Iterable) and not hasattr(rows, "__getitem__")):
        raise KindError(f"{name} must be a path, two lists, or an iterable of pairs or dictionaries; "
                        f"it is a {type(data).__name__}")  # fmt: skip
    for number, row in enumerate(rows):
        if isinstance(row, Mapping):
            yield row
        elif _is_list(row) and len(row) == len(columns):
            yield dict(zip(columns, row, strict=True))
        else:
            said = f"has {len(row)} parts" if _is_list(row) else f"is a {type(row).__name__}"
            raise KindError(
                f"{name}[{number}] must be a dictionary, or have {' and '.join(columns)} as its {len(columns)} parts; "
                f"it {said}"
            )


def _is_list(value: Any) -> bool:
    return not isinstance(value, (str, bytes, Mapping)) and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def _plain(value: Any, is_path: bool, path: Path, where: str) -> Any:
    """A value as JSON has it; arrays and images become files."""
    if isinstance(value, Path) or (is_path and isinstance(value, str)):
        return str(Path(value).absolute())
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if is_path:
        return _store_array(value, path, where)
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # of NumPy and PyTorch
        return value.item()
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return list(value)
    raise KindError(f"{where} must be text, a number or a list of texts; it is a {type(value).__name__}")


def _store_array(value: Any, path: Path, where: str) -> str:
    """The file of an image or of the features of a sound."""
    from regard.data.images.reading import save_png

    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.dtype == np.uint8 and array.ndim in (2, 3):
        file = path.with_suffix(".png")
        save_png(file, array)
    elif array.dtype.kind == "f" and array.ndim == 2:
        file = path.with_suffix(".npy")
        np.save(file, array.astype(np.float32))
    else:
        raise KindError(
            f"{where} must be a path, an image uint8 [height, width, 3] or features float [frames, features]; it "
            f"is {array.dtype} {list(array.shape)}"
        )
    return str(file)


def _store_documents(data: Any, path: Path, name: str) -> str:
    if isinstance(data, (bytes, Mapping)) or not isinstance(data, Iterable):
        raise KindError(f"{name} must be a path or a list of texts; it is a {type(data).__name__}")
    texts = list(data)
    if texts and all(isinstance(text, Path) for text in texts):
        return ",".join(map(str, texts))
    path.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise KindError(f"{name}[{number}] must be text; it is a {type(text).__name__}")
        write_atomically(path / f"{number:08d}.txt", text.encode())
    if not texts:
        raise ArgumentError(f"{name} is empty; give at least one text")
    return str(path)
