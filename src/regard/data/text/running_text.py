"""Running text: UTF-8 files of any size, read block by block without a change of a character."""

import codecs
import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.class_folders import warn_of_left_out
from regard.data.text.readers import check_utf8, not_utf8
from regard.errors import DataError
from regard.regular_file import LARGEST_DATA, open_regular

SUFFIX = ".txt"
"""Files of a folder that are read."""

_BLOCK = 1 << 16  # bytes, about
_LONGEST_PIECE = 1 << 16  # bytes of a line that are read at once

TextSource = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def text_files(source: TextSource) -> tuple[Path, ...]:
    """The files that a source of text names.

    Args:
        source: a file; a folder, which stands for all files below it that end in ``.txt``; a pattern such as
            ``"books/**/*.md"``; several of these in a list, or in one text with commas between them. The files of a
            folder and of a pattern are sorted by name.

    Raises:
        DataError: there is no such file, a folder or pattern has no file, or a file is named twice.
    """
    if isinstance(source, (str, os.PathLike)):
        # The name of a file may have a comma.
        parts = source.split(",") if isinstance(source, str) and not os.path.exists(source) else [source]
    else:
        parts = list(source)
    found = [path for part in parts for path in _files_of(part)]
    if not found:
        raise DataError("no text file is named; give one, a folder or a pattern")
    counts = Counter(path.resolve() for path in found)
    if len(counts) < len(found):
        twice = next(path for path in found if counts[path.resolve()] > 1)
        raise DataError(f"{twice}: the file is named twice; name each file once")
    return tuple(found)


def _files_of(part: str | os.PathLike[str]) -> list[Path]:
    text = os.fspath(part).strip()
    if "://" in text:
        raise DataError(f"{text}: web addresses are not read; download the file and give its path")
    if not text or "\0" in text:
        raise DataError(f"{text!r} is not the name of a file; check the path")
    path = Path(text)
    try:
        if path.is_dir():
            files, left_out = [], []
            for file in sorted(file for file in path.rglob("*") if file.suffix.lower() == SUFFIX):
                (files if file.is_file() and not file.name.startswith(".") else left_out).append(file)
            warn_of_left_out(path, left_out, "text files")
            if not files:
                raise DataError(f"{path}: the folder has no {SUFFIX} files; give a pattern, such as '{path}/*.md'")
            return files
        if path.exists():
            return [path]
        if glob.has_magic(text):
            files = sorted(file for file in map(Path, glob.glob(text, recursive=True)) if file.is_file())
            if not files:
                raise DataError(f"{text}: no file fits this pattern; check it")
            return files
    except OSError as error:
        raise DataError(f"{text}: cannot be read ({error.strerror}); check the path") from error
    raise DataError(f"{text}: no such file; check the path")


def text_blocks(path: Path) -> Iterator[str]:
    """The text of a UTF-8 file in blocks of about 64 KiB, which end after a line end where lines are shorter.

    Every character is kept, line ends included; only a byte order mark at the start is left out. Where the blocks end
    depends only on the content of the file.

    Raises:
        DataError: the file cannot be read, or is not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    block: list[str] = []
    size = offset = 0
    line, begun = 1, False
    try:
        with open_regular(path, LARGEST_DATA) as file:
            while raw := file.readline(_LONGEST_PIECE):
                if not offset:
                    check_utf8(path, raw)
                pending = len(decoder.getstate()[0])
                try:
                    text = decoder.decode(raw)
                except UnicodeDecodeError as error:
                    place = offset - pending + error.start
                    raise not_utf8(path, line, place, error.object[error.start]) from error
                if text and not begun:
                    text, begun = text.removeprefix("\ufeff"), True
                block.append(text)
                offset += len(raw)
                size += len(raw)
                line += raw.endswith(b"\n")
                if size >= _BLOCK and (joined := "".join(block)):
                    yield joined
                    block, size = [], 0
            if unfinished := decoder.getstate()[0]:
                raise not_utf8(path, line, offset - len(unfinished), unfinished[0])
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    if joined := "".join(block):
        yield joined
