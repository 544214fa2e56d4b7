"""Every task of the benchmark, in the order of the report."""

from fnmatch import fnmatchcase

from bench.task import Task
from bench.tasks import (
    additive,
    bahdanau,
    decoder,
    decoding,
    functions,
    half_precision,
    linear_time,
    loaded,
    masked,
    mechanisms,
    readings,
    rows,
    scaled_dot,
    small,
    start,
    whole_models,
)
from regard.errors import UnknownNameError

TASKS: tuple[Task, ...] = (
    *additive.TASKS,
    *decoder.TASKS,
    *bahdanau.TASKS,
    *whole_models.TASKS,
    *rows.TASKS,
    *masked.TASKS,
    *readings.TASKS,
    *scaled_dot.TASKS,
    *decoding.TASKS,
    *half_precision.TASKS,
    *linear_time.TASKS,
    *functions.TASKS,
    *loaded.TASKS,
    *small.TASKS,
    *start.TASKS,
    *mechanisms.TASKS,
)


def find(names: list[str] | None, *, long: bool = False) -> list[Task]:
    """Select tasks.

    Args:
        names: names, or patterns such as ``score-*``; None or empty: all tasks.
        long: whether to include long tasks; a task given by its full name is always included.

    Raises:
        UnknownNameError: no task has this name or matches this pattern.
    """
    if not names:
        return [task for task in TASKS if long or not task.long]
    chosen: list[Task] = []
    for name in names:
        found = [task for task in TASKS if fnmatchcase(task.name, name)]
        if not found:
            raise UnknownNameError("task", name, [task.name for task in TASKS])
        chosen += [task for task in found if task not in chosen and (long or not task.long or task.name == name)]
    return chosen
