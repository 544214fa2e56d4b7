"""A task measured in a process of its own: what ran before it changes nothing.

A process that has held much memory keeps some of it. An implementation that needs much then finds it there, and takes
a fifth of the time that it takes where each call gets its memory from the operating system.

``python -m bench.task_process TASK GIVEN`` is that process; `run_alone` starts it.
"""

import json
import sys
from dataclasses import asdict

import torch

from bench.limits import Peaks
from bench.measurement import Measurement
from bench.own_process import run_process, tell_progress
from bench.record import TaskRecord
from bench.runner import OnProgress, Options, record_of, run_task
from bench.task import Task
from bench.tasks import TASKS


def run_alone(task: Task, options: Options, peaks: Peaks, on_progress: OnProgress) -> TaskRecord:
    """`run_task` in a process of its own; if that ends without a result, its implementations failed.

    Args:
        task: one of `TASKS`.
        options: the options of the run.
        peaks: peak rates of the machine.
        on_progress: called with a description of each measurement before it starts.
    """
    given = json.dumps({"options": asdict(options), "peaks": asdict(peaks)})
    ended = run_process(__name__, task.name, given, progress=on_progress)
    if not ended.reason:
        # Libraries may print too; the result is printed last.
        return TaskRecord.from_json(json.loads(ended.output.splitlines()[-1]))
    failed = Measurement("failed", reason=f"its process: {ended.reason}")
    columns = (implementation.column for implementation in task.implementations)
    results = {column: failed for column in columns if not options.target.lacks(column)}
    return record_of(task, options, peaks, results)


def main(name: str, given: str) -> None:
    """The main function of that process: print a `TaskRecord` as JSON."""
    told = json.loads(given)
    options = Options(**told["options"])
    torch.set_num_threads(options.threads)
    task = {task.name: task for task in TASKS}[name]
    print(run_task(task, options, Peaks(**told["peaks"]), tell_progress).to_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
