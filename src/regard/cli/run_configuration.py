"""The configuration of a run from a file and from options, which win."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.config_options import field_names, option, options_of
from regard.cli.option_names import options_named
from regard.errors import ArgumentError, DataError, RunError

if TYPE_CHECKING:
    from regard.training.config import RunConfig
    from regard.training.task import Task

SECTIONS = ("data", "model", "training")

RESUMABLE = (
    "epochs", "max_minutes", "patience", "checkpoint_minutes", "checkpoint_steps", "threads", "accelerator", "devices",
    "strategy", "logger", "test",
)  # fmt: skip
"""Fields that may change with ``--resume``: the length of the run, the machine, and the data of its last test."""


def composed(task: "Task", file: Path | None, given: Mapping[str, Any]) -> "RunConfig[Any, Any, Any]":
    """The configuration that a file and options describe together.

    Args:
        task: the task.
        file: a YAML file with some of the fields of the sections ``data``, ``model`` and ``training``; None: no file.
        given: the options that the user typed, by the names of their fields.

    Raises:
        DataError: the file cannot be read.
        RunError: a section or a field of the file is unknown, or of a wrong type.
        ArgumentError: a value is out of its range.
    """
    from regard.training.config import RunConfig
    from regard.training.sections import checked_fields

    sections = {} if file is None else _read(file, task)
    kinds = _kinds(task)
    fields = {
        section: {
            **checked_fields(kind, sections.get(section, {}), f"{file}: {section}"),
            **{name: given[name] for name in field_names(kind) if name in given},
        }
        for section, kind in kinds.items()
    }
    with options_named(all_options(task)):
        return RunConfig(task.name, **{section: kind(**fields[section]) for section, kind in kinds.items()})


def resumed(task: "Task", old: "RunConfig[Any, Any, Any]", given: Mapping[str, Any]) -> "RunConfig[Any, Any, Any]":
    """The configuration of a run that goes on with other options.

    Args:
        task: the task.
        old: the configuration of the run.
        given: the options that the user typed with ``--resume``, by the names of their fields.

    Raises:
        ArgumentError: an option differs that cannot change within a run.
    """
    for section, kind in _kinds(task).items():
        for name in field_names(kind):
            before = getattr(getattr(old, section), name)
            if name in given and given[name] != before and name not in RESUMABLE:
                raise ArgumentError(
                    f"{option(name)} is {before!r} in this run and cannot become {given[name]!r} with --resume; "
                    "leave it out, or start another run"
                )
    changes = {
        section: {name: given[name] for name in field_names(kind) if name in given and name in RESUMABLE}
        for section, kind in _kinds(task).items()
    }
    with options_named(all_options(task)):
        new = dataclasses.replace(
            old,
            **{section: dataclasses.replace(getattr(old, section), **fields) for section, fields in changes.items()},
        )
    if new.training.epochs != old.training.epochs and new.training.schedule in ("cosine", "linear"):
        raise ArgumentError(f"--epochs must stay {old.training.epochs} with --schedule {new.training.schedule}")
    return new


def all_options(task: "Task") -> dict[str, str]:
    """Field of a configuration → its option."""
    return options_of(*_kinds(task).values())


def as_yaml(config: "RunConfig[Any, Any, Any]") -> str:
    """A configuration as the text of a file for ``--config``."""
    from regard.training.config import yaml_text

    return yaml_text(config.to_dict())


def _kinds(task: "Task") -> dict[str, type[Any]]:
    return {"data": task.data_config, "model": task.model_config, "training": task.training_config}


def _read(file: Path, task: "Task") -> dict[str, Any]:
    from regard.training.config import read_yaml
    from regard.training.sections import shown

    try:
        content = read_yaml(file)
    except RunError as error:
        raise DataError(f"--config: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f"--config: {file} must have sections: {', '.join(SECTIONS)}")
    for name in content:
        if name not in (*SECTIONS, "task", "versions"):
            raise RunError(f"--config: {file} has a section {shown(name)}; it may have task, {', '.join(SECTIONS)}")
    if content.get("task", task.name) != task.name:
        raise RunError(f"--config: {file} is for the task {shown(content['task'])}, not for {task.name!r}")
    return content
