"""A machine of which another process keeps one core busy: the calls of other tasks under this load."""

from dataclasses import replace

from bench.requirement import Requirement
from bench.task import Task
from bench.tasks import decoding, masked, scaled_dot

NAMES = ("dot-1024", "dot-causal", "dot-backward", "dot-batch", "window", "decode-plain")
"""The tasks that are measured under load too."""


def _under_load(task: Task) -> Task:
    implementations = tuple(one for one in task.implementations if one.column in ("regard", "sdpa"))
    return replace(
        task, name=f"busy-{task.name}", title=f"one core busy: {task.title}", group="A busy machine", large=None,
        implementations=tuple(replace(one, memory_measured=False) for one in implementations),
        requirements=(Requirement("slower", 1.03, "sdpa"),), loaded=True,
    )  # fmt: skip


_BY_NAME = {task.name: task for task in (*scaled_dot.TASKS, *masked.TASKS, *decoding.TASKS)}
TASKS = tuple(_under_load(_BY_NAME[name]) for name in NAMES)
