"""Attention with readings: output, entropy, the largest weights and the column sums."""

import torch
from torch import Tensor

from bench import eager
from bench.inner_product import QKV, make_inputs, pairs, plain, sdpa, sizes
from bench.oracle import by_rows
from bench.own_process import tell_progress
from bench.prepared_call import FunctionAndArguments, torch_builder
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, Outputs, PreparedCall, Sizes, Task, Work
from regard.attention import Readings, observe, plan

READ = Readings(entropy=True, top_k=8, received=True)

SLICE = 4096
"""Queries of a slice of the long task, which prints its progress after each slice."""


def _observed(query: Tensor, key: Tensor, value: Tensor) -> dict[str, Tensor | None]:
    found = observe(query, key, value, read=READ)
    return {
        "output": found.output,
        "entropy": found.entropy,
        "top weights": found.top_weights,
        "received": found.received,
    }


def _backend(inputs: Inputs) -> str:
    return plan(*(inputs[name] for name in QKV)).backend


def _regard() -> Implementation:
    def bind(inputs: Inputs) -> FunctionAndArguments:
        return _observed, tuple(inputs[name] for name in QKV)

    return Implementation("regard", torch_builder(bind), backend=_backend)


def _regard_in_slices() -> Implementation:
    def build(inputs: Inputs) -> PreparedCall:
        query, key, value = (inputs[name] for name in QKV)

        def call() -> Outputs:
            slices = query.split(SLICE, dim=2)
            entropy, received = [], torch.zeros(key.shape[:3])
            output = torch.empty(*query.shape[:3], value.shape[-1])
            for number, part in enumerate(slices):
                found = observe(part, key, value, read=READ)
                assert found.entropy is not None
                assert found.received is not None
                output[:, :, number * SLICE : number * SLICE + part.shape[2]] = found.output
                entropy.append(found.entropy)
                received += found.received
                tell_progress(f"{number + 1} of {len(slices)}")
            return {"output": output, "entropy": torch.cat(entropy, 2), "received": received}

        return PreparedCall(call, lambda raw: raw)

    return Implementation("regard", build, backend=_backend, note=f"observe, {SLICE} queries at a time")


def _work(sizes: Sizes) -> Work:
    rows = sizes["batch"] * sizes["heads"] * (sizes["queries"] + sizes["keys"])
    return Work(
        multiply_adds=3.0 * pairs(sizes) * sizes["dim"],
        exponentials=2.0 * pairs(sizes),
        bytes=4.0 * 3 * rows * sizes["dim"],
        said="the products and exponentials of attention; scores and exponentials once more for the readings",
    )


LIMITED_BY = """\
Of the extra memory 8 MiB are the output and 3.5 MiB the readings, which are the result; the rest are keys transposed
for a head at a time and each thread's block of scores. Runs differ by 0.4 MiB."""

TASKS = (
    Task(
        name="observe",
        title="observe entropy, top 8, received, {batch}×{heads}×{queries}×{dim}",
        group="Readings",
        sizes=sizes(1, 8, 4096),
        quick=sizes(1, 2, 512),
        large=sizes(1, 16, 8192),
        inputs=make_inputs,
        implementations=(
            _regard(),
            *plain(eager.readings, matrices=5.0, compiled_matrices=4.0),
            sdpa(note="output only, no readings"),
        ),
        work=_work,
        oracle=by_rows(eager.readings, QKV, per_pair=4),
        requirements=(
            Requirement("slower", 2.2, "sdpa", 1.7),
            Requirement("faster", 4, "eager", 6),
            Requirement("memory share", 0.05, "eager"),
            Requirement("memory", 15 << 20),
        ),
        limited_by=LIMITED_BY,
    ),
    Task(
        name="observe-long",
        title="observe {queries} tokens, one head, dim {dim}",
        group="Readings",
        sizes=sizes(1, 1, 100_000),
        quick=sizes(1, 1, 8_209),
        inputs=make_inputs,
        implementations=(_regard_in_slices(),),
        work=_work,
        requirements=(Requirement("resident", 1 << 30),),
        timed=False,
        long=True,
        about="Measured in a separate process, which prints its progress after each slice of queries.",
    ),
)
