"""Deletion and replacement of run folders; only files that regard wrote are ever deleted.

With ``--overwrite`` the new run is trained in a folder of its own, which replaces the old one when the run is complete.
"""

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from regard.errors import RegardError, RunError
from regard.files.regular import path_inside
from regard.training.card_seal import CARD, is_own_card
from regard.training.config import read_yaml, run_sections
from regard.training.manifest import ManifestFile
from regard.training.run_lock import LOCK_FILE, OWNER_FILE
from regard.training.training_facts import FACTS

NEW_SUFFIX, OLD_SUFFIX = ".new", ".old"

FILES_OF_EVERY_RUN = (
    "config.yaml", ManifestFile.NAME, LOCK_FILE, OWNER_FILE, CARD, FACTS, "model.safetensors", "metrics.csv",
    "samples.jsonl", "checkpoints/step-[0-9]*.ckpt", "pictures/curves.png", ".*.tmp*", "checkpoints/.*.tmp*",
    "pictures/.*.tmp*", "corpus/.*.tmp*", "evaluation-*.json", "csv/version_*/metrics.csv",
    "csv/version_*/hparams.yaml", "tensorboard/events.out.tfevents.*", "tensorboard/hparams.yaml", "mlflow.db",
)  # fmt: skip

FILES_OF_VERSION_0_1 = (
    "tokenizer-source.json", "tokenizer-target.json", "evaluation-*.txt", "pictures/alignment-[0-9]*.png",
    "pictures/bleu-by-length-*.png", "corpus/train.tsv", "corpus/validation.tsv", "corpus/test.tsv",
)  # fmt: skip
"""Version 0.1 wrote no manifest, and translated only."""


def foreign_files(folder: Path) -> list[Path]:
    """Returns the files, links and folders in a run folder that regard did not write, sorted."""
    patterns = _patterns(folder)
    return sorted(path for path in _contents(folder) if not _is_own(path, folder, patterns))


def remove_own_files(folder: Path) -> None:
    """Deletes the files that regard wrote, and the folders that are then empty; follows no links. Raises RunError if a
    file cannot be deleted."""
    if folder.is_symlink():
        raise RunError(f"{folder} is a link; nothing is deleted through it")
    patterns = _patterns(folder)
    try:
        # The configuration is deleted last: until then, the rest is still known to be a run.
        for path in sorted(_contents(folder), key=lambda path: path.name in ("config.yaml", ManifestFile.NAME)):
            if not path.is_dir() and _is_own(path, folder, patterns):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"cannot delete {error.filename or folder}: {error.strerror}") from error
    folders = [path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()]
    for path in [*sorted(folders, key=lambda path: -len(path.parts)), folder]:
        with contextlib.suppress(OSError):  # it is not empty
            path.rmdir()


def named_path(path: Path) -> Path:
    """Returns a path whose last part is the name of the folder: ``.`` and ``..`` are made absolute. Raises RunError for
    the root of the file system, which has no name."""
    named = path if path.name not in ("", "..") else Path(os.path.realpath(path))
    if not named.name:
        raise RunError(f"{path} has no name, so it is not a run folder; name another folder")
    return named


def replacement_path(path: Path) -> Path:
    """Returns the folder in which the run that will replace ``path`` is trained."""
    return path.with_name(path.name + NEW_SUFFIX)


def require_replaceable(path: Path) -> None:
    """Raises RunError unless a folder is a run and holds only files that regard wrote."""
    if path.is_symlink():
        raise RunError(
            f"{path} is a link to {os.path.realpath(path)}; --overwrite replaces nothing through a link, so name that "
            "folder"
        )
    try:
        _require_run(path)
    except RegardError as error:
        raise RunError(f"{path} isn't a run and is not overwritten: {error}") from error
    if files := foreign_files(path):
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        raise RunError(
            f"{path} holds {files[0].relative_to(path)}{more}, which regard did not write; move it elsewhere, "
            "or name another run with --run"
        )


def _require_run(path: Path) -> None:
    """Raises RunError unless a training has made a folder: its configuration and its manifest are those of a run.
    Version 0.1 wrote no manifest; each of its configurations says whether it logs for TensorBoard."""
    config = path_inside(path, "config.yaml")
    training = run_sections(read_yaml(config), str(config))["training"]
    if not ManifestFile(path).read().began_in and not {"tensorboard", "tokens_per_batch", "epochs"} <= training.keys():
        raise RunError(f"it has no {ManifestFile.NAME}")


def replace_run(new: Path, old: Path) -> None:
    """Puts a run folder in the place of another one, and deletes the files that regard wrote into the other one.

    Where the system can exchange two folders at once (Linux), ``old`` names a whole run at every moment. Elsewhere it
    names none for an instant, in which the old run is called ``<old>.old``; `restore` renames it if that fails. Raises
    RunError if the folders cannot be renamed; both are whole.
    """
    discarded = old.with_name(old.name + OLD_SUFFIX)
    try:
        if discarded.exists():
            remove_own_files(discarded)
        if not old.exists():
            os.rename(new, old)
            return
        if _exchange(new, old):
            os.rename(new, discarded)
        else:
            os.rename(old, discarded)
            os.rename(new, old)
    except OSError as error:
        raise RunError(f"cannot replace {old} by {new}: {error.strerror}; both are kept") from error
    with contextlib.suppress(RunError):  # the next replacement deletes the rest
        remove_own_files(discarded)


def restore(path: Path) -> None:
    """Restores the name of an old run if a process was killed while it replaced the run."""
    discarded = path.with_name(path.name + OLD_SUFFIX)
    if not path.exists() and replacement_path(path).exists() and discarded.exists():
        with contextlib.suppress(OSError):
            os.rename(discarded, path)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two names by Linux's renameat2 with RENAME_EXCHANGE; returns False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), str(other))


def _patterns(folder: Path) -> tuple[str, ...]:
    return (*FILES_OF_EVERY_RUN, *(ManifestFile(folder).read().patterns or FILES_OF_VERSION_0_1))


def _contents(folder: Path) -> Iterator[Path]:
    """Yields files, links and empty folders; links to folders are not entered."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir() or not any(path.iterdir()):
            yield path


def _is_own(path: Path, folder: Path, patterns: Iterable[str]) -> bool:
    relative = PurePosixPath(path.relative_to(folder).as_posix())
    if path.is_symlink():
        return False
    if path.is_dir():
        return any(relative == PurePosixPath(pattern).parent for pattern in patterns)
    if relative == PurePosixPath(CARD):  # the user may have written another one
        return is_own_card(path)
    return any(_matches(relative, PurePosixPath(pattern)) for pattern in patterns)


def _matches(path: PurePosixPath, pattern: PurePosixPath) -> bool:
    """Whether a path matches a pattern part by part: a star does not match a slash."""
    return len(path.parts) == len(pattern.parts) and all(map(fnmatchcase, path.parts, pattern.parts))
