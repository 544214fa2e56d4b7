"""Folders of classes: a folder for each label, which holds the files of that label."""

import itertools
import logging
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.data.records import file_errors
from regard.errors import DataError
from regard.names.counted import counted

log = logging.getLogger("regard")

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")
SOUND_SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif", ".au", ".w64", ".caf")
FEATURE_SUFFIX = ".npy"
"""The suffix of features of a sound that another program computed."""

_MOST_NAMED_ENTRIES = 3  # entries in a warning


class ClassFiles(NamedTuple):
    """The entries of a folder of classes."""

    files: list[Path]
    """The examples; their folders are their labels. The classes take turns, so that a limit keeps some of each."""
    left_out: list[Path]
    """All other entries: hidden ones, files of other suffixes, links to nothing, folders within a class, and classes
    without an example."""


def class_files(folder: Path, suffixes: Collection[str], unit: str) -> ClassFiles:
    """Returns the files in the folders of a folder, and the entries that are no examples.

    Args:
        suffixes: those of examples, in lower case.
        unit: what an example is, for messages: ``"images"``.

    Raises:
        DataError: there is no example, the folder cannot be read, or a name in it is not valid UTF-8.
    """
    if any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):
        raise DataError(
            f"{folder}: is a data set that `datasets` has saved; give what datasets.load_from_disk reads of it to "
            "regard.train, or write it as .parquet"
        )
    by_class: list[list[Path]] = []
    left_out: list[Path] = []
    with file_errors(folder, "check its permissions"):
        for one in sorted(folder.iterdir()):
            if one.name.startswith(".") or not one.is_dir():
                left_out.append(one)
                continue
            files, others = example_files(one, suffixes)
            by_class.append(files)
            left_out += others if files else [one]
    if not any(by_class):
        raise DataError(
            f"{folder}: is a folder without classes; it should hold a folder for each label, with {unit} in it "
            f"({', '.join(suffixes)}); or name a file"
        )
    turns = itertools.zip_longest(*by_class)
    return ClassFiles([path for turn in turns for path in turn if path is not None], left_out)


def example_files(folder: Path, suffixes: Collection[str]) -> tuple[list[Path], list[Path]]:
    """Returns the visible files of a folder that have one of these suffixes, and its other entries; both sorted.

    Raises:
        DataError: the name of a file is not valid UTF-8.
    """
    files, others = [], []
    for path in sorted(folder.iterdir()):
        is_example = path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
        (files if is_example else others).append(path)
    for path in files:
        try:
            str(path).encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(f"{str(path)!r}: its name is not valid UTF-8; rename it") from error
    return files, others


def warn_of_left_out(folder: Path, left_out: Sequence[Path], unit: str, suffixes: Collection[str] = ()) -> None:
    """Warns of entries of a folder that were left out: how many examples and why, how many others, and the first.

    Args:
        left_out: its entries that are not read.
        unit: what an example is: ``"images"``.
        suffixes: those of examples, whose folders are in the folder; (): no entry has one.
    """
    if not left_out:
        return
    one, beside, nested, others = unit.removesuffix("s"), 0, [], []
    for path in left_out:
        name = path.relative_to(folder)
        files = examples_below(path, suffixes)
        if files == [path]:
            beside += 1
        elif files:
            is_one_deeper = {len(file.relative_to(folder).parts) for file in files} == {3}
            depth = "nested one folder deeper" if is_one_deeper else "nested deeper"
            nested.append(f"{counted(len(files), one)} in '{name}{os.sep}': {depth}")
        else:
            others.append(repr(str(name)))
    said = nested[:_MOST_NAMED_ENTRIES]
    if len(nested) > _MOST_NAMED_ENTRIES:
        said.append(f"{one}s in {counted(len(nested) - _MOST_NAMED_ENTRIES, 'other folder')}, nested too")
    if beside:
        said.append(f"{counted(beside, one)} beside the folders of its {unit}")
    if others:
        more = ", ..." if len(others) > _MOST_NAMED_ENTRIES else ""
        named = ", ".join(others[:_MOST_NAMED_ENTRIES]) + more
        said.append(f"{counted(len(others), 'entry')} besides its {unit}: {named}")
    log.warning("%s: left out %s", folder, "; ".join(said))


def examples_below(path: Path, suffixes: Collection[str]) -> list[Path]:
    """Returns the visible files with one of these suffixes: the path itself, or those below a folder."""
    if path.name.startswith("."):
        return []
    files = path.rglob("*") if path.is_dir() else [path]
    return [
        one for one in files
        if one.suffix.lower() in suffixes and one.is_file()
        and not any(part.startswith(".") for part in one.relative_to(path).parts)
    ]  # fmt: skip
