"""Guesses the task for a file or a folder of data if none is named."""

from pathlib import Path

from regard.data.class_folders import IMAGE_SUFFIXES, SOUND_SUFFIXES
from regard.data.column_roles import columns_are_determined, guessed_columns
from regard.errors import RegardError
from regard.tasks import registry

_FILE_TASKS = "segment", "images", "caption", "sounds", "transcribe"
"""Tasks whose inputs are files, in the order in which they are tried."""

_TEXT_TASKS = "summarize", "classify", "translate"


def guessed_task(path: Path) -> str | None:
    """Returns the name of the most probable task for a file or a folder that exists; None if no task stands out."""
    try:
        return _of_folder(path) if path.is_dir() else _of_file(path)
    except (RegardError, OSError):
        return None


def _of_folder(folder: Path) -> str | None:
    from regard.data.images.masked_images import IMAGES, MASKS

    if (folder / IMAGES).is_dir() and any((folder / name).is_dir() for name in MASKS):
        return "segment"
    suffixes = {path.suffix.lower() for one in folder.iterdir() if one.is_dir() for path in one.iterdir()}
    for task, own in (("images", IMAGE_SUFFIXES), ("sounds", SOUND_SUFFIXES), ("classify", (".txt",))):
        if suffixes & set(own):
            return task
    return "language" if any(folder.glob("*.txt")) else None


def _of_file(path: Path) -> str | None:
    from regard.data.tables import READERS, open_records

    if path.suffix.lower() not in READERS:
        return "language"
    records = open_records(path)
    for name in (*_FILE_TASKS, *_TEXT_TASKS):
        roles = registry.find(name).input.column_roles()  # pyright: ignore[reportAttributeAccessIssue]
        if columns_are_determined(records, roles):
            return name
    for name in ("classify", "translate"):
        roles = registry.find(name).input.column_roles()  # pyright: ignore[reportAttributeAccessIssue]
        if guessed_columns(records, roles, {one.field: None for one in roles}):
            return name
    return None
