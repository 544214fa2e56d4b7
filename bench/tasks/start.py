"""How long the first call of a process takes after ``import regard``, and a command that only prints its help."""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch

from bench.requirement import Requirement
from bench.task import Implementation, Inputs, PreparedCall, Sizes, Task, Work

PROGRAM = """
import json, sys, time
import torch, regard
score, threads = json.loads(sys.argv[1])
torch.set_num_threads(threads)
query = torch.randn(2, 8, 512, 64, requires_grad=True)
if score == "additive":
    score = regard.scores.Additive(torch.randn(64, requires_grad=True))
times = [time.perf_counter()]
output = regard.attend(query, query, query, score=score)
times.append(time.perf_counter())
output.sum().backward()
times.append(time.perf_counter())
print(json.dumps([stop - start for start, stop in zip(times, times[1:])]))
"""
"""The first call of a process and its backward pass; prints the seconds of both."""


def _first_call(score: str, *, cold: bool) -> list[float]:
    """Seconds of the first call and of its backward pass, in a fresh process.

    Args:
        score: ``additive``, or a name that `regard.attend` takes.
        cold: whether the process finds no compiled kernels.
    """
    given = json.dumps([score, torch.get_num_threads()])
    with tempfile.TemporaryDirectory(prefix="regard-") as empty:
        environment = {**os.environ, **({"REGARD_CACHE": empty} if cold else {})}
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM, given], env=environment, capture_output=True, text=True, check=True
        )
    return json.loads(found.stdout)


def _help() -> list[float]:
    """Seconds of ``regard --help``, from its start to its end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "regard", "--help"], capture_output=True, check=True)
    return [time.perf_counter() - began]


def _task(name: str, title: str, run: Any, part: int, at_least: float, aim: float) -> Task:
    def build(inputs: Inputs) -> PreparedCall:
        return PreparedCall(run, lambda raw: {}, lambda raw: raw[part])

    return Task(
        name=f"start-{name}",
        title=title,
        group="Start time",
        sizes={},
        quick={},
        inputs=_nothing,
        implementations=(Implementation("regard", build, memory_measured=False),),
        work=lambda sizes: Work(),
        requirements=(Requirement("time", at_least, aim=aim),),
        limited_by=LIMITED_BY if name.startswith("cold") else "",
        about="2×8×512×64, in a fresh process, after `import regard`" if name != "help" else "The whole process.",
    )


LIMITED_BY = """\
On two CPUs of a Zen 4 one kernel, the forward pass of the additive score and the softmax, takes 4.9 s of a call of
5.1 s to compile; runs of one machine gave 4.8 to 5.1 s. Done: other kernels are compiled by another process meanwhile;
products are made by a kernel that is called and not taken in; parts are put
together unoptimized and optimized once; a kernel is kept on disk, so that this is the time of the first call ever on a
machine. Not done: object code that a wheel brings along."""


def _nothing(sizes: Sizes) -> Inputs:
    return {}


TASKS = (
    _task("cold", "first call ever, additive", lambda: _first_call("additive", cold=True), 0, 5.0, 2.0),
    _task("cold-backward", "its backward pass", lambda: _first_call("additive", cold=True), 1, 4.0, 2.0),
    _task("warm", "first call of a process, additive", lambda: _first_call("additive", cold=False), 0, 0.5, 0.2),
    _task("warm-plain", "first call of a process", lambda: _first_call("scaled_dot", cold=False), 0, 0.5, 0.2),
    _task("help", "regard --help", _help, 0, 0.4, 0.2),
)
