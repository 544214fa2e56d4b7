"""Small problems on every backend that can run them, where the overhead of a call decides."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench import eager
from bench.inner_product import QKV, Options, make_inputs, pairs, plain, regard, sizes
from bench.oracle import by_rows
from bench.own_backends import own_backends
from bench.requirement import Requirement
from bench.task import Inputs, Sizes, Task, Work
from bench.tasks import additive
from regard import masks, normalizers
from regard.attention.verbs import BackendName

HEADS = 4


def _ragged(sizes: Sizes) -> Inputs:
    inputs = make_inputs(sizes)
    lengths = torch.linspace(sizes["keys"] // 3 + 1, sizes["keys"], sizes["batch"]).long()
    return {**inputs, "lengths": lengths}


def _keep(inputs: Inputs) -> Tensor:
    return (torch.arange(inputs["key"].shape[2]) < inputs["lengths"][:, None])[:, None, None, :]


def _work(sizes: Sizes) -> Work:
    rows = sizes["batch"] * sizes["heads"] * (sizes["queries"] + sizes["keys"])
    return Work(
        multiply_adds=2.0 * pairs(sizes) * sizes["dim"],
        exponentials=1.0 * pairs(sizes),
        bytes=8.0 * rows * sizes["dim"],
        said="two matrix products and an exponential for each pair, without those of masks and sparse normalizers",
    )


def _task(
    name: str,
    title: str,
    length: int,
    options: Options,
    function: Callable[..., Any],
    backends: tuple[BackendName, ...],
    *,
    inputs: Callable[[Sizes], Inputs] = make_inputs,
    names: tuple[str, ...] = QKV,
    keep: Callable[[Inputs], Tensor] | None = None,
    work: Callable[[Sizes], Work] = _work,
    requirements: tuple[Requirement, ...] = (),
) -> Task:
    usual, _ = plain(function, names, keep=keep)
    return Task(
        name=f"small-{name}",
        title=title + ", {batch}×{heads}×{queries}×{dim}",
        group="Small problems",
        sizes=sizes(2, HEADS, length, 32),
        quick=sizes(2, HEADS, length, 32),
        inputs=inputs,
        implementations=(regard(options), *own_backends(*backends, options=options), usual),
        work=work,
        oracle=by_rows(function, names, keep=keep),
        requirements=requirements,
        about="In regard's column `auto` chooses the backend; in the other columns the backend is named.",
    )


TASKS = (
    _task(
        "additive", "additive", 16, additive.options, eager.additive, ("reference", "cpu", "tiled"),
        inputs=additive.make_additive, names=additive.NAMES, work=additive.work,
        requirements=(Requirement("faster", 1.0, "eager", 1.5),),
    ),
    _task(
        "sparsemax", "sparsemax attention", 32, lambda inputs: {"normalizer": normalizers.sparsemax},
        partial(eager.attention, normalize="sparsemax"), ("reference", "cpu", "tiled"),
    ),
    _task(
        "lengths", "keys of unequal lengths", 32, lambda inputs: {"mask": masks.lengths(inputs["lengths"])},
        eager.attention, ("reference", "cpu", "sdpa", "tiled"), inputs=_ragged, keep=_keep,
        requirements=(Requirement("faster", 0.7, "eager", 1.0),),
    ),
)  # fmt: skip
