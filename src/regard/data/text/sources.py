"""Opens parallel text from files or a Hugging Face data set, as one memory-mapped table of pairs."""

import itertools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.cache import cached_table, fingerprint, require_datasets
from regard.data.text import readers
from regard.data.text.readers import Pair
from regard.errors import ArgumentError, DataError
from regard.regular_file import LARGEST_DATA, open_regular

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

log = logging.getLogger("regard")

_BLOCK = 16384  # rows in memory at once
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(:[\w.-]+)?")

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def open_pairs(
    source: Source,
    source_column: str | None = None,
    target_column: str | None = None,
    *,
    split: str | None = None,
    lowercase: bool = False,
    limit: int | None = None,
    numbers: bool = False,
) -> "datasets.Dataset":
    """Open pairs of sentences as a memory-mapped table.

    The pairs are read once, block by block, into an Arrow file in the cache folder of Hugging Face ``datasets``; a
    file that has not changed is not read again. White space around a sentence is removed. A pair with an empty side is
    left out, and the logger ``regard`` warns with the number of such pairs. A byte order mark and Windows line ends are
    accepted.

    Args:
        source: one of

            - a table: ``.tsv`` (with a header line; raw, so a ``"`` is a character), ``.csv`` (with a header line and
              the quoting of RFC 4180), ``.jsonl`` or ``.json`` (objects, one a line or all in one array), ``.parquet``;
            - two text files, in which line n of one translates line n of the other: a tuple of paths, or
              ``"a.de,b.en"``;
            - the name of a Hugging Face data set, ``"owner/name"`` or ``"owner/name:configuration"``, when no such
              file exists.
        source_column: the column to translate from; ``None`` means the first column of a table that has exactly two.
            A dot selects a field of an object: ``"translation.de"``. Two text files have no columns: it is not used.
        target_column: the column to translate to; ``None`` means the second column of a table that has exactly two.
        split: the part of a Hugging Face data set, ``"train"`` unless given. Files have no parts.
        lowercase: whether to turn every sentence into lower case.
        limit: largest number of pairs to read; None: all pairs.
        numbers: whether a target may be a number or a truth value, which is read as its text. A class of a Hugging Face
            data set is then read as its name.

    Returns:
        a data set with exactly the columns ``source`` and ``target``, both text; never empty.

    Raises:
        DataError: the data cannot be used; the message says in one line what is wrong, where, and what to do.
        ArgumentError: ``limit`` is below 1, or ``split`` was given for a file.
        MissingPartError: ``datasets`` is not installed.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ArgumentError(f"limit must be a whole number of at least 1; got {limit!r}")
    require_datasets()
    paths = local_files(source)
    if paths is None:
        return _from_hub(str(source), source_column, target_column, split or "train", lowercase, limit, numbers)
    if split is not None:
        raise ArgumentError(f"split belongs to Hugging Face data sets; {paths[0]} is a file (got split={split!r})")
    for path in paths:
        _check_file(path)
    columns = source_column, target_column
    state = tuple((str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths)
    where = " and ".join(map(str, paths))
    key = fingerprint("pairs", state, columns if len(paths) == 1 else None, lowercase, limit, *numbers * ["numbers"])
    return pair_table(key, where, lambda: _read(paths, *columns, numbers), lowercase, limit)


def local_files(source: Source) -> tuple[Path, ...] | None:
    """The files that a source of `open_pairs` names; None for the name of a Hugging Face data set."""
    if not isinstance(source, (str, os.PathLike)):
        if len(source) != 2:
            raise ArgumentError(f"source must be a path, a name or two paths; got {len(source)} of them")
        return Path(source[0]), Path(source[1])
    if isinstance(source, str) and "://" in source:
        raise DataError(f"{source}: web addresses are not read; download the file and give its path")
    path = Path(source)
    if path.exists() or not isinstance(source, str):
        return (path,)
    if "," in source:
        first, _, second = source.partition(",")
        return Path(first.strip()), Path(second.strip())
    if _HUB_NAME.fullmatch(source) and path.suffix not in readers.READERS and path.suffix != ".txt":
        return None
    return (path,)


def _check_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a folder; name the file inside it")
        with open_regular(path, LARGEST_DATA) as file:
            if not file.read(1):
                raise DataError(f"{path}: the file is empty; it should hold sentences")
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; check the path") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from error


def _read(
    paths: tuple[Path, ...], source_column: str | None, target_column: str | None, numbers: bool
) -> Iterator[Pair]:
    if len(paths) == 2:
        return readers.aligned_lines(*paths)
    (path,) = paths
    reader = readers.READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path}: unknown kind of file {path.suffix!r}; give {', '.join(readers.READERS)}, "
            "or two text files with a comma between them"
        )
    return reader(path, source_column, target_column, numbers)


def _from_hub(
    name: str,
    source_column: str | None,
    target_column: str | None,
    split: str,
    lowercase: bool,
    limit: int | None,
    numbers: bool,
) -> "datasets.Dataset":
    import datasets

    path, _, configuration = name.partition(":")
    answers = _hub_answers()
    with _without_progress_bars(), nullcontext() if answers else _offline():
        try:
            loaded = datasets.load_dataset(path, configuration or None, split=split)
        # The hub, the network and the loaders raise many kinds of errors; each means that there is no data.
        except Exception as error:
            if not answers:
                raise DataError(
                    f"{name}: no such file, and the Hugging Face hub, which may have the data set, cannot be reached; "
                    "check the path or the network"
                ) from error
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DataError(
                f"{name}: no such file, and no Hugging Face data set of that name could be loaded "
                f"(split {split!r}): {reason}; check the path or the name"
            ) from error
    if not isinstance(loaded, datasets.Dataset):
        raise DataError(f"{name}: split {split!r} is not one table of rows; name a single split")
    rest = *numbers * ["numbers"], source_column, target_column, lowercase, limit
    key = fingerprint("hub", loaded._fingerprint, *rest)
    classes = loaded.features.get(target_column) if numbers and target_column is not None else None

    def pairs() -> Iterator[Pair]:
        blocks: Iterator[Any] = (table.to_batches() for table in loaded.with_format("arrow").iter(_BLOCK))  # pyright: ignore
        read = readers.record_batches(
            name, itertools.chain.from_iterable(blocks), source_column, target_column, numbers
        )
        return _named(name, read, classes.names) if isinstance(classes, datasets.ClassLabel) else read

    return pair_table(key, name, pairs, lowercase, limit)


def _named(where: str, pairs: Iterator[Pair], names: Sequence[str]) -> Iterator[Pair]:
    # The targets are numbers of classes; −1 marks a row without a class, as in the test parts of some benchmarks.
    for text, number in pairs:
        if not 0 <= int(number) < len(names):
            raise DataError(
                f"{where}: a row has the class {number}; the data set has {len(names)}, so it has no labels"
            )
        yield text, names[int(number)]


def _hub_answers() -> bool:
    """Whether the Hugging Face hub can be reached; asked once, since its own clients ask again for a minute."""
    import huggingface_hub
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # of the HTTP library that this version of the hub's client uses
        return False
    return True


@contextmanager
def _offline() -> Iterator[None]:
    """Let ``datasets`` look for a data set in its cache only."""
    import datasets.config
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def pair_table(
    key: str, where: str, read: Callable[[], Iterator[Pair]], lowercase: bool = False, limit: int | None = None
) -> "datasets.Dataset":
    """The memory-mapped table of the pairs that ``read`` yields, without those with an empty side.

    Args:
        key: key of the content in the cache.
        where: where the pairs are from, for messages.
        read: gives the pairs; it is not called if the cache has the table.
        lowercase: whether to turn every text into lower case.
        limit: largest number of pairs; None: all pairs.

    Raises:
        DataError: there is no pair, or ``read`` raises it.
    """
    import pyarrow as pa

    schema = pa.schema([("source", pa.string()), ("target", pa.string())])

    def batches(counted: dict[str, int]) -> Iterator["pa.RecordBatch"]:
        counted["empty"] = counted["kept"] = 0

        def kept() -> Iterator[Pair]:
            for source, target in read():
                source, target = source.strip(), target.strip()
                if source and target:
                    counted["kept"] += 1
                    yield (source.lower(), target.lower()) if lowercase else (source, target)
                else:
                    counted["empty"] += 1

        pairs = itertools.islice(kept(), limit)
        while block := list(itertools.islice(pairs, _BLOCK)):
            yield pa.record_batch([pa.array(side, pa.string()) for side in zip(*block, strict=True)], schema=schema)
        if not counted["kept"]:
            raise DataError(f"{where}: no row has text on both sides; check the columns and the file")

    table, counted = cached_table(key, schema, batches)
    if counted["empty"]:
        log.warning("%s: left out %d rows with an empty side; %d are left", where, counted["empty"], counted["kept"])
    return table


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    import datasets

    if sys.stdout.isatty() or datasets.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()
