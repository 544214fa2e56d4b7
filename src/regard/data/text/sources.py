"""Opens pairs of texts, and texts with labels, as one memory-mapped table.

The pairs come from files, a folder of classes, a data set of the Hugging Face hub, or lists of Python.
"""

import itertools
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.cache import cached_table, file_state, fingerprint, require_datasets
from regard.data.class_folders import ClassFiles, class_files, warn_of_left_out
from regard.data.column_roles import LABEL, PAIR, TEXT, Roles, choose_columns
from regard.data.parquet import arrow_rows, class_names, flattened
from regard.data.records import (
    MOST_POSITIONS,
    Records,
    Say,
    aligned_records,
    check_file,
    check_limit,
    check_utf8,
    file_errors,
    named_positions,
    placed_text_rows,
)
from regard.data.tables import READERS, open_records
from regard.errors import ArgumentError, DataError
from regard.files.regular import LARGEST_RECORD, read_bytes
from regard.names.counted import counted

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

log = logging.getLogger("regard")

_BLOCK = 16384  # rows in memory at once
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(:[\w.-]+)?")

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Pair = tuple[str, tuple[str, ...]]
"""Where a row is, such as ``"line 7"``, and its two texts."""


def open_pairs(
    source: Source,
    source_column: str | None = None,
    target_column: str | None = None,
    *,
    split: str | None = None,
    lowercase: bool = False,
    limit: int | None = None,
    numbers: bool = False,
    roles: Roles = PAIR,
) -> "datasets.Dataset":
    """Opens pairs of sentences as a memory-mapped table.

    The pairs are read once, block by block, into an Arrow file in the cache folder of Hugging Face ``datasets``; a
    file that has not changed is not read again. White space around a sentence is removed. A pair with an empty side is
    left out, and the logger ``regard`` warns with the number of such pairs, for each side, and the first of them. A
    byte order mark and Windows line ends are accepted.

    Args:
        source: one of

            - a table: ``.tsv`` (with a header line; raw, so a ``"`` is a character), ``.csv`` (with a header line and
              the quoting of RFC 4180), ``.jsonl`` or ``.json`` (objects, one a line or all in one array), ``.parquet``;
            - two text files, in which line n of one translates line n of the other: a tuple of paths, or
              ``"a.de,b.en"``;
            - the name of a Hugging Face data set, ``"owner/name"`` or ``"owner/name:configuration"``, when no such
              file exists.
        source_column: the column to translate from; ``None`` means the column ``source``, or the first column of a
            table that has exactly two. A dot selects a field of an object: ``"translation.de"``. Two text files have no
            columns: it is not used.
        target_column: the column to translate to; ``None`` means the column ``target``, or the second one.
        split: the part of a Hugging Face data set, ``"train"`` unless given. Files have no parts.
        lowercase: whether to turn every sentence into lower case.
        limit: largest number of pairs to read; None: all pairs.
        numbers: whether a target may be a number or a truth value, which is read as its text. A class of a Hugging Face
            data set is then read as its name.
        roles: what the two columns have, and how they may be called.

    Returns:
        a data set with exactly the columns ``source`` and ``target``, both text; never empty.

    Raises:
        DataError: the data cannot be used; the message says in one line what is wrong, where, and what to do.
        ArgumentError: ``limit`` is below 1, or ``split`` was given for a file.
        MissingPartError: ``datasets`` is not installed.
    """
    check_limit(limit)
    require_datasets()
    paths = local_files(source)
    columns = source_column, target_column
    reading = lowercase, limit, *numbers * ["numbers"], *(one.option for one in roles)
    if paths is None:
        where, loaded = str(source), _load_from_hub(str(source), split or "train")
        key = fingerprint("hub", loaded._fingerprint, *columns, *reading)
    elif split is not None:
        raise ArgumentError(f"split belongs to Hugging Face data sets; {paths[0]} is a file (got split={split!r})")
    else:
        for path in paths:
            check_file(path, "sentences")
        for path in paths:
            if len(paths) == 2 and path.suffix.lower() in READERS:
                raise DataError(
                    f"{path}: is a table, and each of two files must be text, whose line n belongs to line n of the "
                    "other; name one table with both columns"
                )
        where, loaded = " and ".join(map(str, paths)), None
        key = fingerprint("pairs", tuple(map(file_state, paths)), columns if len(paths) == 1 else None, *reading)

    def read(say: Say) -> tuple[Sequence[str], Iterator[Pair]]:
        if paths is None:
            records = _hub_records(where, loaded)
        elif len(paths) == 2:
            return [str(path) for path in paths], placed_text_rows(aligned_records(*paths), ("source", "target"))
        elif paths[0].suffix.lower() in READERS:
            records = open_records(paths[0])
        else:
            raise DataError(
                f"{where}: unknown kind of file {paths[0].suffix!r}; give {', '.join(READERS)}, "
                "or two text files with a comma between them"
            )
        chosen = choose_columns(records, roles, columns, say)
        return chosen, placed_text_rows(records, chosen, chosen[1:] if numbers else ())

    return pair_table(key, where, read, lowercase, limit)


def open_labelled(
    source: Source, text_column: str | None = None, label_column: str | None = None, *, limit: int | None = None
) -> "datasets.Dataset":
    """Opens texts and their labels as a memory-mapped table.

    Args:
        source: a source of `open_pairs` (line n of the second of two text files is the label of line n of the first),
            or a folder with a folder for each label, in which each ``.txt`` file is a text.
        text_column: the column of the texts; None: ``text``, or the only one of a usual name. Files in a folder have no
            columns.
        label_column: the column of the labels: texts, numbers or truth values; None: ``label``, or the only one of a
            usual name.
        limit: largest number of texts to read; None: all.

    Returns:
        a data set with exactly the columns ``source`` (the texts) and ``target`` (their labels, as texts); never empty.

    Raises:
        DataError: the data cannot be used; the message says in one line what is wrong, where, and what to do.
        ArgumentError: ``limit`` is below 1.
        MissingPartError: ``datasets`` is not installed.
    """
    folder = Path(source) if isinstance(source, (str, os.PathLike)) else None
    if folder is None or not folder.is_dir():
        return open_pairs(source, text_column, label_column, limit=limit, numbers=True, roles=(TEXT, LABEL))
    require_datasets()
    files, left_out = class_texts(folder)
    warn_of_left_out(folder, left_out, "texts", (".txt",))
    key = fingerprint("classes", tuple(map(file_state, files)), limit)
    return pair_table(key, str(folder), lambda _: (("text", "label"), _class_pairs(files[:limit])))


def class_texts(folder: Path) -> ClassFiles:
    """Returns the text files in the folders of a folder; raises as `regard.data.class_folders.class_files`."""
    return class_files(folder, (".txt",), "texts")


def local_files(source: Source) -> tuple[Path, ...] | None:
    """Returns the files that a source of `open_pairs` names; None for the name of a Hugging Face data set."""
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
    if _HUB_NAME.fullmatch(source) and path.suffix not in READERS and path.suffix != ".txt":
        return None
    return (path,)


def _class_pairs(files: Sequence[Path]) -> Iterator[Pair]:
    for path in files:
        with file_errors(path):
            content = read_bytes(path, LARGEST_RECORD)
        check_utf8(path, content)
        try:
            text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: is not valid UTF-8 (byte at offset {error.start}); save or convert the file as UTF-8"
            ) from error
        yield str(path), (text, path.parent.name)


def _load_from_hub(name: str, split: str) -> "datasets.Dataset":
    import datasets

    path, _, configuration = name.partition(":")
    answers = _hub_answers()
    with _quiet_datasets(offline=not answers):
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
    return loaded


def _hub_records(name: str, loaded: Any) -> Records:
    """Returns the rows of a loaded data set; class numbers become class names."""
    schema = loaded.features.arrow_schema
    columns = flattened(schema.empty_table()).column_names

    def rows(chosen: Sequence[str] | None) -> Iterator[tuple[str, dict[str, Any]]]:
        tables = loaded.with_format("arrow").iter(_BLOCK)
        blocks = itertools.chain.from_iterable(table.to_batches() for table in tables)
        return arrow_rows(name, blocks, chosen or columns, class_names(schema))

    return Records(name, name, columns, rows)


def _hub_answers() -> bool:
    """Whether the Hugging Face hub can be reached; tried once, since its own clients ask again for a minute."""
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
def _quiet_datasets(*, offline: bool) -> Iterator[None]:
    """Lets ``datasets`` show progress bars only in a terminal, and if ``offline`` look in its cache only."""
    import datasets
    import datasets.config
    from huggingface_hub import constants

    quiet = not (sys.stdout.isatty() or datasets.are_progress_bars_disabled())
    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if offline:
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    if quiet:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
        if quiet:
            datasets.enable_progress_bars()


def pair_table(
    key: str,
    where: str,
    read: Callable[[Say], tuple[Sequence[str], Iterator[Pair]]],
    lowercase: bool = False,
    limit: int | None = None,
) -> "datasets.Dataset":
    """Returns the memory-mapped table of the pairs that ``read`` yields, without those with an empty side.

    Args:
        key: key of the content in the cache.
        where: where the pairs are from, for messages.
        read: gives the names of the two sides and the pairs, and says in lines what the user should know of them; it
            is not called if the cache has the table, which has the lines too.
        lowercase: whether to turn every text into lower case.
        limit: largest number of pairs; None: all pairs.

    Raises:
        DataError: there is no pair, or ``read`` raises it.
    """
    import pyarrow as pa

    schema = pa.schema([("source", pa.string()), ("target", pa.string())])

    def batches(counts: dict[str, Any]) -> Iterator["pa.RecordBatch"]:
        counts["said"] = said = []
        names, rows = read(said.append)
        written, lacking, first = 0, Counter[tuple[bool, bool]](), list[str]()

        def full() -> Iterator[tuple[str, str]]:
            nonlocal written
            for position, (source, target) in rows:
                source, target = source.strip(), target.strip()
                if source and target:
                    written += 1
                    yield (source.lower(), target.lower()) if lowercase else (source, target)
                else:
                    lacking[bool(source), bool(target)] += 1
                    if len(first) < MOST_POSITIONS:
                        first.append(position)

        pairs = itertools.islice(full(), limit)
        while block := list(itertools.islice(pairs, _BLOCK)):
            yield pa.record_batch([pa.array(side, pa.string()) for side in zip(*block, strict=True)], schema=schema)
        if not written:
            raise DataError(f"{where}: no row has text on both sides; check the columns and the file")
        if lacking:
            said.append(f"{where}: {_left_out(lacking, names, first)}; {written:,} are left")

    table, counts = cached_table(key, schema, batches)
    for line in counts["said"]:
        log.warning("%s", line)
    return table


def _left_out(lacking: Mapping[tuple[bool, bool], int], names: Sequence[str], first: Sequence[str]) -> str:
    """Says which rows were left out: how many lack which of the two texts, and where the first of them are."""
    quoted = [repr(name) for name in names]
    sides = {(False, True): quoted[0], (True, False): quoted[1], (False, False): " and ".join(quoted)}
    parts = [(lacking[has], f"without {name}") for has, name in sides.items() if lacking.get(has)]
    total = sum(lacking.values())
    listed = parts[0][1] if len(parts) == 1 else "(" + ", ".join(f"{count:,} {what}" for count, what in parts) + ")"
    return f"left out {counted(total, 'row')} {listed}: {named_positions(first, total)}"
