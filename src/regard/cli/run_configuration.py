"""The configuration of a run from a file and from command-line options, which override the file."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.config_options import option, options_of
from regard.cli.option_errors import options_named
from regard.configuration import Configuration
from regard.configuration.upgrades import upgraded_sections, with_former_meaning
from regard.errors import ArgumentError, DataError, RunError
from regard.training.config import SECTIONS, RunConfig, options_by_section, read_yaml, section_kinds, yaml_text
from regard.training.fitted_config import FittedConfig, fit_config, without_fitted_none
from regard.training.processes import is_first_process
from regard.training.sections import checked_fields, shown

if TYPE_CHECKING:
    from regard.training.task import Task

RESUMABLE_OPTIONS = (
    "epochs", "max_minutes", "patience", "patience_after", "checkpoint_minutes", "checkpoint_steps", "threads",
    "accelerator", "devices", "strategy", "logger", "test", "license",
)  # fmt: skip
"""Fields that may change with ``--resume``: the length of the run, the machine, the test data, and the licence."""

MOST_BYTES = 200
"""Longest name in bytes of UTF-8: file systems accept 255, and some files get a suffix."""


@dataclass(frozen=True)
class RunOptions:
    """The options of ``regard train TASK`` that do not belong to the configuration of the run."""

    run: str | None = None
    """Name of the run. Default: that of the task, and of what distinguishes its models."""
    runs: Path = Path("runs")
    """Folder that holds the run folders."""
    resume: bool = False
    """Continue an interrupted run with its own options (--epochs, --max-minutes, --patience and the machine may
    change)."""
    allow_changed_data: bool = False
    """With --resume: continue although the data have changed since the run began."""
    overwrite: bool = False
    """Replace the run of that name; the new run is trained in NAME.new and takes its place when it is complete."""
    config: Path | None = None
    """YAML file with options in the sections data, model and training, as config.yaml of a run; options win."""
    print_config: bool = False
    """Print the configuration that would run, as YAML for --config, and stop."""
    dry_run: bool = False
    """Check everything, print sizes, memory and the time of an epoch, and stop; writes nothing."""
    find_lr: bool = False
    """Find a learning rate: train about a hundred steps with growing rates, print the one at which the loss falls
    fastest, save a picture in the folder of the runs, and stop."""
    tensorboard: bool = False
    """The same as --logger tensorboard."""


def compose_config(task: "Task", file: Path | None, options: Mapping[str, Any]) -> FittedConfig:
    """Combines the configuration in a YAML file, if any, with the options that the user typed, by the names of their
    fields; the data decide what neither says."""
    kinds, typed = section_kinds(task), options_by_section(task, options)
    sections = {} if file is None else upgraded_sections(_read(file, task), kinds)
    fields = {}
    for section, kind in kinds.items():
        content = sections.get(section, {})
        if isinstance(content, dict):
            # A run's configuration has its versions; what an author of today leaves out has the default of today.
            if section == "model" and "versions" in sections:
                content = with_former_meaning(kind, content, typed[section])
            content = without_fitted_none(task, content)
        fields[section] = checked_fields(kind, content, f"{file}: {section}") | typed[section]
    with options_named(all_options(task)):
        return fit_config(task, fields, measured=is_first_process())


def resume_config(task: "Task", old: RunConfig, options: Mapping[str, Any]) -> RunConfig:
    """Returns the configuration of a run that continues with other options; raises ArgumentError if one differs that
    cannot change within a run."""
    for section, fields in options_by_section(task, options).items():
        for name, wanted in fields.items():
            value = getattr(getattr(old, section), name)
            if wanted != value and name not in RESUMABLE_OPTIONS:
                raise ArgumentError(
                    f"{option(name)} is {value!r} in this run and cannot become {wanted!r} with --resume; "
                    "leave it out, or start another run"
                )
    changes = options_by_section(task, {name: value for name, value in options.items() if name in RESUMABLE_OPTIONS})
    with options_named(all_options(task)):
        new = dataclasses.replace(
            old,
            **{section: dataclasses.replace(getattr(old, section), **fields) for section, fields in changes.items()},
        )
    if new.training.epochs != old.training.epochs and new.training.schedule in ("cosine", "linear"):
        raise ArgumentError(f"--epochs must stay {old.training.epochs} with --schedule {new.training.schedule}")
    return new


def all_options(task: "Task") -> dict[str, str]:
    """Returns the option of each field of the task's configurations."""
    return options_of(*section_kinds(task).values())


def as_yaml(config: RunConfig, reasons: Mapping[str, str] | None = None) -> str:
    """Returns a configuration as the text of a file for ``--config``, with the reasons of what the data decided as
    comments."""
    content = config.to_dict()
    if isinstance(config.model, Configuration):  # a Transformer has no attention of a recurrent decoder
        content["model"] = {name: value for name, value in content["model"].items() if config.model.has_meaning(name)}
    text = yaml_text(content)
    for name, reason in (reasons or {}).items():
        text = re.sub(rf"^(  {name}: .*)$", lambda line, reason=reason: f"{line[1]}  # {reason}", text, flags=re.M)
    return text


def _read(file: Path, task: "Task") -> dict[str, Any]:
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


def check_name(option: str, name: str) -> str:
    """Returns the name that an option gives if it can be that of a file or a folder; raises ArgumentError if it is
    empty, too long, a path, or has unprintable characters."""
    size = len(name.encode("utf-8", "surrogateescape"))
    if not name.strip():
        raise ArgumentError(f"{option} is empty; give a name")
    if size > MOST_BYTES:
        raise ArgumentError(f"{option} must have at most {MOST_BYTES} bytes; {name[:20]!r}... has {size}")
    if "/" in name or "\\" in name or name in (".", ".."):
        raise ArgumentError(f"{option} must be a name, not a path; it is {name!r}")
    if not name.isprintable():
        raise ArgumentError(f"{option} has characters that cannot be printed; it is {name!r}")
    return name
