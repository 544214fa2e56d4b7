"""Which files of a run folder regard wrote; only these are ever deleted."""

import contextlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from regard.errors import RunError
from regard.training.manifest import ManifestFile
from regard.training.run_lock import LOCK, OWNER

OF_EVERY_RUN = (
    "config.yaml", ManifestFile.NAME, LOCK, OWNER, "model.safetensors", "metrics.csv", "samples.jsonl",
    "checkpoints/step-[0-9]*.ckpt", "pictures/curves.png", ".*.tmp*", "checkpoints/.*.tmp*", "pictures/.*.tmp*",
    "corpus/.*.tmp*", "evaluation-*.json", "csv/version_*/metrics.csv", "csv/version_*/hparams.yaml",
    "tensorboard/events.out.tfevents.*", "tensorboard/hparams.yaml", "mlflow.db",
)  # fmt: skip

OF_VERSION_0_1 = (
    "tokenizer-source.json", "tokenizer-target.json", "evaluation-*.txt", "pictures/alignment-[0-9]*.png",
    "pictures/bleu-by-length-*.png", "corpus/train.tsv", "corpus/validation.tsv", "corpus/test.tsv",
)  # fmt: skip
"""Version 0.1 wrote no manifest, and translated only."""


def strangers(folder: Path) -> list[Path]:
    """The files, links and folders in a run folder that regard did not write, sorted."""
    patterns = _patterns(folder)
    return sorted(path for path in _contents(folder) if not _is_own(path, folder, patterns))


def remove_own_files(folder: Path) -> None:
    """Delete the files that regard wrote, and the folders that are empty then. Links are not followed.

    Raises:
        RunError: a file cannot be deleted.
    """
    if folder.is_symlink():
        raise RunError(f"{folder} is a link; nothing is deleted through it")
    patterns = _patterns(folder)
    try:
        # The configuration goes last: until then, what is left is still known to be a run.
        for path in sorted(_contents(folder), key=lambda path: path.name in ("config.yaml", ManifestFile.NAME)):
            if not path.is_dir() and _is_own(path, folder, patterns):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"cannot delete {error.filename or folder}: {error.strerror}") from error
    folders = [path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()]
    for place in [*sorted(folders, key=lambda path: -len(path.parts)), folder]:
        with contextlib.suppress(OSError):  # it is not empty
            place.rmdir()


def _patterns(folder: Path) -> tuple[str, ...]:
    return (*OF_EVERY_RUN, *(ManifestFile(folder).read().patterns or OF_VERSION_0_1))


def _contents(folder: Path) -> Iterator[Path]:
    # Files, links, and folders without anything in them; links to folders are not entered.
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir() or not any(path.iterdir()):
            yield path


def _is_own(path: Path, folder: Path, patterns: Iterable[str]) -> bool:
    relative = PurePosixPath(path.relative_to(folder).as_posix())
    if path.is_symlink():
        return False
    if path.is_dir():
        return any(relative == PurePosixPath(pattern).parent for pattern in patterns)
    return any(_matches(relative, PurePosixPath(pattern)) for pattern in patterns)


def _matches(path: PurePosixPath, pattern: PurePosixPath) -> bool:
    # Part by part: a star does not match a slash.
    return len(path.parts) == len(pattern.parts) and all(map(fnmatchcase, path.parts, pattern.parts))
