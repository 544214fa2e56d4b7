"""Data in memory, stored as files that a task reads: texts, labels, images, class maps, sounds, features."""

from __future__ import annotations

import json
import logging
import numbers
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.column_roles import input_of_row
from regard.errors import ArgumentError, DataError, KindError, RegardError, RunError
from regard.files.atomic import write_atomically
from regard.names.counted import counted
from regard.tasks.lazy import np
from regard.tasks.memory_rows import a_type, memory_rows, table_rows
from regard.training.reporter import Reporter, SilentReporter, default_reporter

if TYPE_CHECKING:
    from regard.data.speech.sounds import Sound
    from regard.training.task import Task

log = logging.getLogger("regard")

PATH_COLUMNS = ("audio", "sound", "image", "path", "picture")
"""Names of the column of sounds or images if no option names it."""


def stored_folder(run: Path) -> Path:
    """Returns the folder of the data in memory with which a run is trained."""
    return run.absolute().with_name(f"{run.name}.data")


def prepared(task: Task, data: Any, path: Path, name: str, options: Mapping[str, Any]) -> tuple[str, Any]:
    """Returns the file that `store` will write, as an option of the task names it, and the data for it; arguments as
    `store`, and for ``data`` as `regard.train`."""
    if len(stored_columns(task, options)) > 1:
        return str(path.with_suffix(".jsonl")), data
    texts = _documents(data, name)
    return (",".join(map(str, texts)) if _are_paths(texts) else str(path)), texts


def store(task: Task, data: Any, path: Path, name: str, options: Mapping[str, Any]) -> None:
    """Writes data, from `prepared`, for a task, into files whose names begin like ``path``, which has no suffix;
    ``options`` of the training may name columns.

    Raises ArgumentError if there are no data, or columns of different lengths, KindError for data of another form,
    RunError if the files cannot be written, and MissingPartError if Pillow or soundfile is not installed.
    """
    columns = stored_columns(task, options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if len(columns) == 1:
            _store_documents(data, path, name)
            return
    except OSError as error:
        raise RunError(f"cannot write into the folder {path.parent}: {error.strerror}") from error
    kind, path_column, first_columns = task.input_kind, None, ()
    lines: list[str] = []
    for number, row in enumerate(memory_rows(data, columns, name)):
        content, first_columns = dict(row), first_columns or tuple(row)
        if kind != "text":
            path_column = path_column or _path_column(content, columns, task, options)
            content = {columns[0]: content.pop(path_column, None) if path_column else None} | content
        needed = _needed(content, columns, kind == "text")
        for position, (column, value) in enumerate(list(content.items())):
            file = path.with_name(f"{path.name}-{number:06d}-{position}")
            use = None
            if kind != "text":
                use = kind if position == 0 else "mask" if column == columns[1] == "mask" else None
            try:
                content[column] = _plain(value, use, file, f"{name}[{number}]: {column}")
            except KindError:
                if column in needed:
                    raise
                del content[column]  # a date, an array, ...
        # Half a surrogate pair is written as an escape, so that reading the file names its place.
        lines.append(json.dumps(content) + "\n")
    if not lines:
        raise ArgumentError(f"{name} is empty; give at least one example")
    if kind != "text" and path_column is None:
        listed = ", ".join(map(str, first_columns)) or "none"
        raise ArgumentError(f"{name} has no column {columns[0]}; it has {listed}")
    write_atomically(path.with_suffix(".jsonl"), "".join(lines).encode())


def _needed(row: Mapping[str, Any], columns: tuple[str, ...], is_text: bool) -> set[str]:
    """Returns the columns of a row that its task may read."""
    if is_text:
        return set(columns) if row.keys() >= set(columns) else set(row)
    return {*list(row)[:1], *columns, "captions", "caption", "objects"}


def _path_column(
    row: Mapping[str, Any], columns: tuple[str, ...], task: Task, options: Mapping[str, Any]
) -> str | None:
    """Returns the column of a row's image or sound: the named one, one of a usual name, or the first; or None."""
    fields = getattr(task.data_config, "columns", ())
    named = options.get(fields[0]) if fields else None
    others = {*columns[1:], "captions", "caption", "objects"}
    if named is not None:
        return named if named in row and named not in others else None
    inputs = {name: value for name, value in row.items() if name not in others}
    likely = input_of_row(inputs, task.input.column_roles()[0])  # pyright: ignore[reportAttributeAccessIssue]
    return next((one for one in (columns[0], likely, *PATH_COLUMNS, *inputs) if one in inputs), None)


def stored_columns(task: Task, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the columns of input and target; only one for a task that reads running text."""
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
    """Makes errors and warnings in this context name arguments, not options of the command or files of `store`, by the
    file that holds the data of each argument. Yields the function that replaces the names in a text."""

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
    """Returns the reporter of a training from Python, whose lines name arguments."""
    if quiet:
        return SilentReporter()
    reporter = default_reporter()
    print_line = reporter.print_line
    reporter.print_line = lambda text: print_line(renamed(text))
    return reporter


def python_number(value: Any) -> Any:
    """Returns a number of NumPy or PyTorch as one of Python, and other values unchanged."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def is_nothing(value: Any) -> bool:
    """Whether a value is missing: None, NaN, or a value of pandas or NumPy such as NaT and NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return True
    number = python_number(value)  # an image must not be compared, which decodes it
    return isinstance(number, numbers.Number) and bool(number != number)


def _plain(value: Any, use: str | None, path: Path, where: str) -> Any:
    """Returns a value for JSON; the arrays and images of a use (image, mask or sound) become files."""
    if is_nothing(value) or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, Mapping) and all(map(is_nothing, value.values())):  # a null of Arrow, whose fields are null
        return None
    if isinstance(value, Path) or (use and isinstance(value, str)):
        return str(Path(value).absolute())
    if use:
        try:
            return _store_array(value, use, path, where)
        except OSError as error:  # of the disk, or of Pillow, which reads an image only now
            raise DataError(f"{where} cannot be stored: {error.strerror or error}") from error
    if isinstance(value, (str, bool, int, float)):
        return value
    number = python_number(value)
    if number is not value:
        return number
    if isinstance(value, Mapping):
        return {str(name): _plain(one, None, path, where) for name, one in value.items()}
    if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1:
        return [_plain(one, None, path, where) for one in value]
    raise KindError(f"{where} must be text, a number or a list of texts; it is {a_type(value)}")


FORMS_OF_USES = {
    "image": "a path, the bytes of a file, an image of Pillow or an array uint8 [height, width, 3]",
    "mask": "a path, the bytes of a file, an image of Pillow or an array of the classes 0 to 255, [height, width]",
    "sound": "a path, the bytes of a file, features float [frames, features], {'array': samples, 'sampling_rate': rate}"
    " or {'bytes': content, 'path': path}",
}
"""Use of an array → the forms that it may have, for messages."""


def _store_array(value: Any, use: str, path: Path, where: str) -> str:
    """Writes an image, a mask, or the samples or the features of a sound into a file, and returns its path."""
    is_pillow = hasattr(value, "getexif") and hasattr(value, "convert")
    array: Any = value
    content = _file_content(value) if use != "sound" else None
    if isinstance(content, str):  # a file of its own
        return str(Path(content).absolute())
    if content is not None:
        file = path.with_suffix(".png")  # whatever its format is: images are recognized by their content
        file.write_bytes(content)
        return str(file)
    if use == "sound":
        from regard.data.speech.sounds import sound_of

        sound = sound_of(value, where)
        if sound is not None:
            return _store_sound(sound, path)
    if use == "image" and is_pillow:
        return _store_picture(value, path.with_suffix(".png"))
    if use == "mask" and is_pillow:
        from regard.data.images.reading import class_numbers

        array = class_numbers(array, where)
    if isinstance(value, (Mapping, bytes, set)):
        raise KindError(f"{where} must be {FORMS_OF_USES[use]}; it is {a_type(value)}")
    try:
        array = np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    except (TypeError, ValueError) as error:
        raise KindError(f"{where} must be {FORMS_OF_USES[use]}; it is {a_type(value)}") from error
    stored, remark = {"image": _pixels, "mask": _mask_classes, "sound": _features}[use](array)
    if stored is None:
        form = f"{array.dtype} {list(array.shape)}" if array.ndim else a_type(value)
        raise KindError(f"{where} must be {FORMS_OF_USES[use]}; it is {form}{remark}")
    if use == "sound":
        np.save(path.with_suffix(".npy"), stored)
        return str(path.with_suffix(".npy"))
    from regard.data.images.reading import save_png

    save_png(path.with_suffix(".png"), np.ascontiguousarray(stored))
    return str(path.with_suffix(".png"))


def _features(array: np.ndarray) -> tuple[np.ndarray | None, str]:
    """Returns the features of a sound; None, and a remark, if an array has none."""
    if array.dtype.kind == "f" and array.ndim == 2:
        return array.astype(np.float32), ""
    return None, ", and samples need their rate" if array.ndim == 1 else ""


def _mask_classes(array: np.ndarray) -> tuple[np.ndarray | None, str]:
    """Returns the classes of a mask; None, and a remark, if an array has none."""
    if array.ndim == 3 and 1 in (array.shape[0], array.shape[2]):
        array = array[0] if array.shape[0] == 1 else array[..., 0]
    if array.ndim != 2 or not array.size or array.dtype.kind not in "biu":
        return None, ""
    low, high = int(array.min()), int(array.max())
    return (array.astype(np.uint8), "") if low >= 0 and high <= 255 else (None, f" from {low} to {high}")


def _pixels(array: np.ndarray) -> tuple[np.ndarray | None, str]:
    """Returns the pixels of an image; None, and a remark, if an array has none."""
    if array.dtype != np.uint8 or not array.size:
        return None, ""
    if array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4)):
        return array[..., 0] if array.shape[2:] == (1,) else array, ""
    return None, "; its channels must be last" if array.ndim == 3 and array.shape[0] in (1, 3, 4) else ""


def _file_content(value: Any) -> bytes | str | None:
    """Returns the bytes or the path of an image that is not decoded, as in ``datasets``; None for other values."""
    if isinstance(value, (bytes, bytearray)) and value:
        return bytes(value)
    if isinstance(value, Mapping) and value.keys() == {"bytes", "path"}:
        return value["bytes"] or value["path"]
    return None


def _store_picture(image: Any, path: Path) -> str:
    """Writes an image of Pillow into a file, upright and with its visible colours, and returns its path."""
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(image)
    # The reader of files shows transparent pixels on white.
    keeps = upright.mode in ("L", "LA", "RGB", "RGBA", "P", "I;16")
    (upright if keeps else upright.convert("RGB")).save(path, "PNG")
    return str(path)


def _store_sound(sound: Path | bytes | Sound, path: Path) -> str:
    from regard.data.speech.sounds import is_features, write_sound

    if isinstance(sound, Path):
        return str(sound.absolute())
    if isinstance(sound, bytes):  # sounds are recognized by their content
        path = path.with_suffix(".npy" if is_features(sound) else ".wav")
        path.write_bytes(sound)
        return str(path)
    write_sound(path.with_suffix(".wav"), sound.samples, sound.rate, exact=True)
    return str(path.with_suffix(".wav"))


def _documents(data: Any, name: str) -> list[Any]:
    """Returns the texts or the paths in the data of a task that reads running text."""
    rows = table_rows(data, name)
    if isinstance(rows, Mapping):
        rows = list(memory_rows(rows, ("text",), name))
    if isinstance(rows, bytes) or not isinstance(rows, Iterable):
        raise KindError(f"{name} must be a path or a list of texts; it is {a_type(data)}")
    texts = [_document(row, f"{name}[{number}]") for number, row in enumerate(rows)]
    present = [text for text in texts if not is_nothing(text)]
    if len(present) < len(texts):
        rows_left = counted(len(texts) - len(present), "row")
        log.warning("%s: left out %s without text; %d are left", name, rows_left, len(present))
    return present


def _document(row: Any, where: str) -> Any:
    if isinstance(row, tuple) and len(row) == 1:
        return row[0]
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
            raise KindError(f"{name}[{number}] must be text; it is {a_type(text)}")
    path.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        # Not synced to the disk, which would take minutes for many: the folder is complete, or it is not used.
        (path / f"{number:08d}.txt").write_bytes(text.encode())
