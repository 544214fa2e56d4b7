"""Opens labelled texts from files, a folder of classes, a Hugging Face data set, or lists of Python."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.data.cache import fingerprint, require_datasets
from regard.data.class_folders import ClassFiles, class_files, warn_of_left_out
from regard.data.text.readers import Pair, check_utf8, label_text
from regard.data.text.sources import Source, open_pairs, pair_table
from regard.errors import ArgumentError, DataError, KindError
from regard.regular_file import LARGEST_RECORD, read_bytes

if TYPE_CHECKING:
    import datasets


def open_labelled(
    source: Source, text_column: str = "text", label_column: str = "label", *, limit: int | None = None
) -> "datasets.Dataset":
    """Open texts and their labels as a memory-mapped table.

    Args:
        source: a source of `regard.data.text.sources.open_pairs` (line n of the second of two text files is the label
            of line n of the first), or a folder with a folder for each label, in which each ``.txt`` file is a text.
        text_column: the column of the texts; files in a folder have no columns.
        label_column: the column of the labels: texts, numbers or truth values.
        limit: largest number of texts to read; None: all.

    Returns:
        a data set with exactly the columns ``source`` (the texts) and ``target`` (their labels, as texts); never empty.

    Raises:
        DataError: the data cannot be used; the message says in one line what is wrong, where, and what to do.
        ArgumentError: ``limit`` is below 1.
        MissingPartError: ``datasets`` is not installed.
    """
    folder = folder_of_classes(source)
    if folder is None:
        return open_pairs(source, text_column, label_column, limit=limit, numbers=True)
    require_datasets()
    files, left_out = class_texts(folder)
    warn_of_left_out(folder, left_out, "texts")
    state = tuple((str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    chosen = files if limit is None else files[:limit]
    return pair_table(fingerprint("classes", state, limit), str(folder), lambda: _read(chosen))


def folder_of_classes(source: Source) -> Path | None:
    """The folder that a source names; None if it names something else."""
    if isinstance(source, str) or not isinstance(source, Sequence):
        path = Path(source)
        return path if path.is_dir() else None
    return None


def class_texts(folder: Path) -> ClassFiles:
    """The text files in the folders of a folder.

    Raises:
        DataError: there is none, or the folder cannot be read.
    """
    found = class_files(folder, (".txt",))
    if not found.files:
        raise DataError(
            f"{folder}: is a folder without classes; it should hold a folder for each label, with .txt files in it, "
            "or name a file"
        )
    return found


def labelled_lists(texts: Sequence[str], labels: Sequence[str | int]) -> "datasets.Dataset":
    """Texts and labels of Python as `open_labelled` gives them; labels that are no texts become their text.

    Raises:
        ArgumentError: the lists are empty or of different lengths.
        KindError: a text is no text, or a label neither text nor number.
        DataError: a text or a label is empty.
    """
    require_datasets()
    import datasets

    if isinstance(texts, str) or isinstance(labels, str):
        raise ArgumentError("texts and labels must be lists, not one text")
    if len(texts) != len(labels) or not len(texts):
        raise ArgumentError(f"texts and labels must be equally many, and some; got {len(texts)} and {len(labels)}")
    names = []
    for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
        if not isinstance(text, str):
            raise KindError(f"texts[{number}] must be text; it is a {type(text).__name__}")
        item = getattr(label, "item", None)  # of numbers of NumPy and PyTorch
        name = label_text(item() if callable(item) else label)
        if name is None:
            raise KindError(f"labels[{number}] must be text or a number; it is a {type(label).__name__}")
        if not text.strip() or not name:
            raise DataError(f"{'labels' if text.strip() else 'texts'}[{number}] is empty; leave that text out")
        names.append(name)
    return datasets.Dataset.from_dict({"source": [text.strip() for text in texts], "target": names})


def _read(files: Sequence[Path]) -> Iterator[Pair]:
    for path in files:
        try:
            content = read_bytes(path, LARGEST_RECORD)
            check_utf8(path, content)
            text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
            yield text, path.parent.name
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: is not valid UTF-8 (byte at offset {error.start}); save or convert the file as UTF-8"
            ) from error
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from error
