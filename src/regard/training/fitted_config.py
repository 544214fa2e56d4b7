"""The configuration of a new run, in which the data decide the options that the user has not set."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from regard.training.config import RunConfig, make_config, options_by_section, section_kinds
from regard.training.task import Choice, Task


class FittedConfig(NamedTuple):
    """The configuration of a run, and the options of it that the data decided."""

    config: RunConfig
    reasons: dict[str, str]
    """Option that the data decided → why."""

    def summary(self) -> str:
        """Returns the options that the data decided in a line; only names, which are no sizes, have a reason."""
        return " · ".join(
            f"{name} {_shown_number(value)}" + (f" ({self.reasons[name]})" if isinstance(value, str) else "")
            for name, value in self._values().items()
        )

    def lines(self) -> list[str]:
        """Returns a line with the reason for each option that the data decided."""
        return [f"{name} {_shown_number(value)}: {self.reasons[name]}" for name, value in self._values().items()]

    def _values(self) -> dict[str, Any]:
        options = {name: value for section in self.config.to_dict().values() if isinstance(section, dict)
                   for name, value in section.items()}  # fmt: skip
        return {name: options[name] for name in self.reasons}


def _shown_number(value: Any) -> str:
    """Returns the value of an option for people."""
    if isinstance(value, bool):
        return str(value)
    return f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def fit_config(task: Task, fields: Mapping[str, Mapping[str, Any]], measured: bool = True) -> FittedConfig:
    """Returns the configuration of a run, in which the data decide the options that the user has not set, after a check
    of the options. Without ``measured`` the data are not read; in a distributed run only the first process reads them,
    and the others read the configuration from its run folder.

    Raises ArgumentError if a value is out of range, or values contradict each other, and DataError if the data cannot
    be read.
    """
    user_fields = {section: without_fitted_none(task, fields[section]) for section in section_kinds(task)}
    choices = task.fit(user_fields, measured=False)
    config = make_config(task, _completed(task, user_fields, choices))
    if measured and (choices or config.training.init_from is not None):
        choices = task.fit(user_fields)
        config = make_config(task, _completed(task, user_fields, choices))
    return FittedConfig(config, {name: choice.reason for name, choice in choices.items()})


def without_fitted_none(task: Task, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields without those that are None and are decided by the data."""
    return {name: value for name, value in fields.items() if not (value is None and name in task.fitted)}


def _completed(
    task: Task, user_fields: Mapping[str, Mapping[str, Any]], choices: Mapping[str, Choice]
) -> dict[str, dict[str, Any]]:
    fields = options_by_section(task, {name: choice.value for name, choice in choices.items()})
    return {section: {**fields[section], **user_fields[section]} for section in fields}
