"""Data in memory as files that a task reads: lists, pairs, dictionaries, data frames, data sets, images, features."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.atomic_file import write_atomically
from regard.errors import ArgumentError, DataError, KindError, MissingPartError, RegardError, RunError
from regard.tasks.lazy import np

if TYPE_CHECKING:
    from regard.training.reporter import Reporter
    from regard.training.task import Task

PATH_COLUMNS = ("audio", "sound", "image", "path", "picture")
"""Names of the column of sounds or images in dictionaries, if no option names it."""


def stored_folder(run: Path) -> Path:
    """The folder of the data in memory with which a run is trained."""
    return run.absolute().with_name(f"{run.name}.data")


def prepared(task: Task, data: Any, path: Path, name: str, options: Mapping[str, Any]) -> tuple[str, Any]:
    """The file that `store` will write, as an option of the task names it, and the data for it.

    Args:
        task: the task.
        data: see `regard.train`.
        path: as in `store`.
        name: as in `store`.
        options: as in `store`.
    """
    if len(stored_columns(task, options)) > 1:
        return str(path.with_suffix(".jsonl")), data
    texts = _documents(data, name)
    return (",".join(map(str, texts)) if _are_paths(texts) else str(path)), texts


def store(task: Task, data: Any, path: Path, name: str, options: Mapping[str, Any]) -> None:
    """Write data for a task.

    Args:
        task: the task.
        data: from `prepared`.
        path: the file without a suffix; other files of the data have names that begin like it.
        name: name of the argument, for messages.
        options: the options of the training, which may name columns.

    Raises:
        ArgumentError: there are no data, or columns of different lengths.
        KindError: the data have another form.
        RunError: the files cannot be written.
        MissingPartError: Pillow or soundfile is not installed.
    """
    columns = stored_columns(task, options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if len(columns) == 1:
            _store_documents(data, path, name)
            return
    except OSError as error:
        raise RunError(f"cannot write into the folder {path.parent}: {error.strerror}") from error
    kind = task.input_kind
    lines: list[str] = []
    for number, row in enumerate(_rows(data, columns, name)):
        content = dict(row)
        if kind != "text":
            content = _path_first(content, columns[0], task, options, f"{name}[{number}]")
        for position, (column, value) in enumerate(content.items()):
            file = path.with_name(f"{path.name}-{number:06d}-{position}")
            use = None
            if kind != "text":
                use = kind if position == 0 else "mask" if column == columns[1] == "mask" else None
            content[column] = _plain(value, use, file, f"{name}[{number}]: {column}")
        # Half a surrogate pair is written as an escape, so that reading the file names its place.
        lines.append(json.dumps(content) + "\n")
    if not lines:
        raise ArgumentError(f"{name} is empty; give at least one example")
    write_atomically(path.with_suffix(".jsonl"), "".join(lines).encode())


def _path_first(row: dict[str, Any], name: str, task: Task, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A row with its image or sound first, where a table with two columns has it, under the name that is read."""
    fields = getattr(task.data_config, "columns", ())
    named, other = (options.get(field) for field in fields) if fields else (None, None)
    if named is not None and named not in row:
        raise ArgumentError(f"{where} has no column {named}; it has {', '.join(map(str, row)) or 'none'}")
    known = [one for one in (name, *PATH_COLUMNS, *row) if one in row and one != other]
    if not known:
        raise KindError(f"{where} has no {task.input_kind}")
    source = named or known[0]
    return {named or name: row[source]} | {column: value for column, value in row.items() if column != source}


def stored_columns(task: Task, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the columns of the input and of what is predicted; one name: the task reads running text."""
    source = getattr(task, "input", None)
    if source is None:
        raise ArgumentError(f"the task {task.name!r} reads files; give paths")
    kind, columns = task.data_config, source.stored_columns
    names = getattr(kind, "columns", ()) or (None,) * len(columns)
    return tuple(
        (name and (options.get(name) or getattr(kind, name, None))) or column
        for name, column in zip(names, columns, strict=True)
    )


Renames = Callable[[str], str]
"""Replaces the names of options and files in a text by those of arguments."""


@contextmanager
def stored_names(stored: Mapping[str, str]) -> Iterator[Renames]:
    """In this context errors and warnings name arguments, not options of the command, and not the files of `store`.

    Args:
        stored: name of an argument → the file that holds its data.

    Yields:
        what replaces the names.
    """

    def renamed(text: str) -> str:
        for name, path in stored.items():
            file = path.removesuffix(".jsonl")
            for one in dict.fromkeys((file, _relative(file))):
                text = re.sub(
                    rf"{re.escape(one)}(?:-(\d{{6,}})-\d+\.(?:png|npy|wav)|/(\d{{8,}})\.txt|\.jsonl|(?![\w.-]))",
                    lambda match, name=name: f"{name}[{int(match[1] or match[2])}]" if match[1] or match[2] else name,
                    text,
                )
        if "regard train " in text:  # a command for a shell
            return text
        return re.sub(r"(?<![\w-])--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), text)

    def rename(record: logging.LogRecord) -> bool:
        record.msg, record.args = renamed(record.getMessage()), ()
        return True

    logger = logging.getLogger("regard")
    logger.addFilter(rename)
    try:
        yield renamed
    except RegardError as error:
        error.args = (renamed(error.args[0] if error.args and isinstance(error.args[0], str) else str(error)),)
        raise
    finally:
        logger.removeFilter(rename)


def _relative(path: str) -> str:
    try:
        return os.path.relpath(path)
    except (OSError, ValueError):  # another drive, or the working directory was deleted
        return path


def named_reporter(quiet: bool, renamed: Renames) -> Reporter:
    """The reporter of a training from Python, whose lines name arguments."""
    from regard.training.reporter import SilentReporter, default_reporter

    if quiet:
        return SilentReporter()
    reporter = default_reporter()
    print_line = reporter.print_line
    reporter.print_line = lambda text: print_line(renamed(text))
    return reporter


def _a(value: Any) -> str:
    """The type of a value with its article: ``"an int"``."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def python_number(value: Any) -> Any:
    """A number of NumPy or PyTorch as one of Python; other values as they are."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def _is_column(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, set, Mapping))


def _rows(data: Any, columns: tuple[str, ...], name: str) -> Iterator[Mapping[str, Any]]:
    rows: Any = data
    if isinstance(data, tuple) and len(data) == 2 and all(map(_is_column, data)):
        if all(isinstance(part, tuple) and len(part) == 2 for part in data):
            raise KindError(
                f"{name} may be two columns or two pairs; give lists ([inputs], [targets]) or a list of pairs"
            )
        rows = dict(zip(columns, data, strict=True))
    if isinstance(rows, Mapping):
        for column, values in rows.items():
            if not _is_column(values) and not _is_list(values):
                raise KindError(f"{name}: the column {column} must be a list; it is {_a(values)}")
        rows = {column: values if _is_list(values) else list(values) for column, values in rows.items()}
        lengths = {column: len(values) for column, values in rows.items()}
        if len(set(lengths.values())) > 1:
            said = " and ".join(f"{length} of {column}" for column, length in lengths.items())
            raise ArgumentError(f"{name} must have equally many of each column; it has {said}")
        for row in zip(*rows.values(), strict=True):
            yield dict(zip(rows, row, strict=True))
        return
    rows = _records(rows)
    if isinstance(rows, (str, bytes)) or (not isinstance(rows, Iterable) and not hasattr(rows, "__getitem__")):
        raise KindError(f"{name} must be a path, two lists, or an iterable of pairs or dictionaries; "
                        f"it is {_a(data)}")  # fmt: skip
    for number, row in enumerate(rows):
        if isinstance(row, Mapping):
            yield row
        elif _is_list(row) and len(row) == len(columns):
            yield dict(zip(columns, row, strict=True))
        else:
            said = f"has {len(row)} parts" if _is_list(row) else f"is {_a(row)}"
            raise KindError(
                f"{name}[{number}] must be a dictionary, or have {' and '.join(columns)} as its {len(columns)} parts; "
                f"it {said}"
            )


def _records(data: Any) -> Any:
    """The rows of a data frame; other data as they are."""
    if hasattr(data, "iter_rows"):  # polars
        return data.iter_rows(named=True)
    return data.to_dict("records") if hasattr(data, "columns") and hasattr(data, "to_dict") else data  # pandas


def _is_list(value: Any) -> bool:
    return not isinstance(value, (str, bytes, Mapping)) and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def _plain(value: Any, use: str | None, path: Path, where: str) -> Any:
    """A value as JSON has it; the arrays and images of a use (image, mask or sound) become files."""
    if isinstance(value, Path) or (use and isinstance(value, str)):
        return str(Path(value).absolute())
    if use and value is not None:
        try:
            return _store_array(value, use, path, where)
        except OSError as error:  # of the disk, or of Pillow, which reads an image only now
            raise DataError(f"{where} cannot be stored: {error.strerror or error}") from error
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    number = python_number(value)
    if number is not value:
        return number
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return list(value)
    raise KindError(f"{where} must be text, a number or a list of texts; it is {_a(value)}")


USES = {
    "image": "a path, an image of Pillow or an array uint8 [height, width, 3]",
    "mask": "a path, an image of Pillow or an array of the classes 0 to 255, [height, width]",
    "sound": "a path, features float [frames, features] or {'array': samples, 'sampling_rate': rate}",
}
"""What an array is used as → what it may be, for messages."""


def _store_array(value: Any, use: str, path: Path, where: str) -> str:
    """The file of an image, of a mask, or of the samples or the features of a sound."""
    is_pillow = hasattr(value, "getexif") and hasattr(value, "convert")
    array: Any = value
    if use == "sound" and isinstance(value, Mapping) and {"array", "sampling_rate"} <= value.keys():
        return _store_samples(value, path.with_suffix(".wav"), where)
    if use == "image" and is_pillow:
        return _store_picture(value, path.with_suffix(".png"))
    if use == "mask" and is_pillow:
        from PIL import ImageOps

        array = ImageOps.exif_transpose(array)
    if isinstance(value, (Mapping, bytes, set)):
        raise KindError(f"{where} must be {USES[use]}; it is {_a(value)}")
    try:
        array = np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    except (TypeError, ValueError) as error:
        raise KindError(f"{where} must be {USES[use]}; it is {_a(value)}") from error
    file = path.with_suffix(".npy" if use == "sound" else ".png")
    said = f"{array.dtype} {list(array.shape)}" if array.ndim else _a(value)
    if use == "sound":
        if array.dtype.kind == "f" and array.ndim == 2:
            np.save(file, array.astype(np.float32))
            return str(file)
        if array.ndim == 1:
            said += ", and samples need their rate"
    elif use == "mask":
        if array.ndim == 3 and 1 in (array.shape[0], array.shape[2]):
            array = array[0] if array.shape[0] == 1 else array[..., 0]
        if array.ndim == 2 and array.size and array.dtype.kind in "biu":
            low, high = int(array.min()), int(array.max())
            if low >= 0 and high <= 255:
                return _save_png(file, array.astype(np.uint8))
            said += f" from {low} to {high}"
    elif array.dtype == np.uint8 and array.size:
        if array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4)):
            return _save_png(file, array[..., 0] if array.shape[2:] == (1,) else array)
        if array.ndim == 3 and array.shape[0] in (1, 3, 4):
            said += "; its channels must be last"
    raise KindError(f"{where} must be {USES[use]}; it is {said}")


def _save_png(path: Path, pixels: Any) -> str:
    from regard.data.images.reading import save_png

    save_png(path, np.ascontiguousarray(pixels))
    return str(path)


def _store_picture(image: Any, path: Path) -> str:
    """The file of an image of Pillow, upright, with the colours that it shows."""
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(image)
    # The reader of files shows transparent pixels on white.
    keeps = upright.mode in ("L", "LA", "RGB", "RGBA", "P", "I;16")
    (upright if keeps else upright.convert("RGB")).save(path, "PNG")
    return str(path)


def _store_samples(value: Mapping[str, Any], path: Path, where: str) -> str:
    samples, rate = value["array"], value["sampling_rate"]
    samples = np.asarray(samples.detach().cpu() if hasattr(samples, "detach") else samples)
    if samples.ndim != 1 or samples.dtype.kind not in "fi":
        raise KindError(f"{where}: array must be samples [samples]; it is {samples.dtype} {list(samples.shape)}")
    if samples.dtype.kind == "i":
        samples = samples / -float(np.iinfo(samples.dtype).min)
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: its library cannot be loaded
        raise MissingPartError("soundfile", "speech") from error
    try:
        soundfile.write(str(path), samples.astype(np.float32), int(rate), subtype="FLOAT")
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise KindError(f"{where} cannot be a sound of {rate} samples a second: {error}") from error
    return str(path)


def _documents(data: Any, name: str) -> list[Any]:
    """The texts of data for a task that reads running text; or paths."""
    if isinstance(data, Mapping):
        data = list(_rows(data, ("text",), name))
    rows = _records(data)
    if isinstance(rows, bytes) or not isinstance(rows, Iterable):
        raise KindError(f"{name} must be a path or a list of texts; it is {_a(data)}")
    return [_document(row, f"{name}[{number}]") for number, row in enumerate(rows)]


def _document(row: Any, where: str) -> Any:
    if not isinstance(row, Mapping):
        return row
    if "text" not in row and len(row) != 1:
        raise KindError(f"{where} must have one column, or a column text; it has {', '.join(map(str, row)) or 'none'}")
    return row["text"] if "text" in row else next(iter(row.values()))


def _are_paths(texts: list[Any]) -> bool:
    return bool(texts) and all(isinstance(text, Path) for text in texts)


def _store_documents(texts: list[Any], path: Path, name: str) -> None:
    if _are_paths(texts):
        return
    if not texts:
        raise ArgumentError(f"{name} is empty; give at least one text")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise KindError(f"{name}[{number}] must be text; it is {_a(text)}")
    path.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        # Not synced to the disk, which would take minutes for many: the folder is complete, or it is not used.
        (path / f"{number:08d}.txt").write_bytes(text.encode())
