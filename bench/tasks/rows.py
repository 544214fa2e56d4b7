"""Sparse normalizers: of rows of scores, and in attention."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from bench import eager
from bench.inner_product import QKV, make_inputs, pairs, plain, quadratic, random_tensor, regard, sizes
from bench.oracle import by_rows, whole
from bench.own_backends import own_backends
from bench.peers import load
from bench.prepared_call import FunctionAndArguments, torch_builder
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, Sizes, Task, Work
from regard import normalizers

NORMALIZERS: dict[str, Callable[[Tensor], Tensor]] = {
    "sparsemax": normalizers.sparsemax,
    "entmax15": normalizers.entmax(1.5),
}
PLAIN: dict[str, Callable[[Tensor], Tensor]] = {"sparsemax": eager.sparsemax, "entmax15": eager.entmax15}


def _inputs(sizes: Sizes) -> Inputs:
    shape = (sizes["rows"], sizes["columns"])
    return {"scores": random_tensor(*shape), "grad_output": random_tensor(*shape, seed=1)}


def _rows(function: Callable[[Tensor], Tensor]) -> Callable[[Inputs], FunctionAndArguments]:
    return lambda inputs: (function, (inputs["scores"],))


def _package(name: str) -> Callable[[Inputs], FunctionAndArguments]:
    def bind(inputs: Inputs) -> FunctionAndArguments:
        return partial(getattr(load("entmax"), name), dim=-1), (inputs["scores"],)

    return bind


def _work(sizes: Sizes, tensors: int) -> Work:
    numbers = sizes["rows"] * sizes["columns"]
    return Work(
        multiply_adds=2.0 * tensors * numbers,
        bytes=4.0 * tensors * numbers,
        said="scores and weights once through memory, with gradients two tensors more; two operations for each number",
    )


def _row_task(name: str, *, backward: bool) -> Task:
    gradients = ("scores",) if backward else ()
    plainly = _rows(PLAIN[name])
    return Task(
        name=f"{name}-rows" + ("-backward" if backward else ""),
        title=f"{name} of rows{', forward + backward' if backward else ''}, {{rows}}×{{columns}}",
        group="Sparse normalizers",
        sizes={"rows": 4096, "columns": 1024},
        quick={"rows": 256, "columns": 256},
        inputs=_inputs,
        implementations=(
            Implementation("regard", torch_builder(_rows(NORMALIZERS[name]), gradients), backend=lambda inputs: "rows"),
            Implementation("eager", torch_builder(plainly, gradients), note="by sorting"),
            Implementation("compile", torch_builder(plainly, gradients, compiled=True), note="by sorting"),
            Implementation("entmax", torch_builder(_package(name), gradients)),
        ),
        work=lambda sizes: _work(sizes, 4 if backward else 2),
        oracle=whole(PLAIN[name], ("scores",), gradients),
        requirements=(Requirement("faster", 10 if backward else 15, "entmax", None if backward else 30),),
        backward=backward,
    )


def _in_attention(name: str, gradients: tuple[str, ...]) -> Implementation:
    def bind(inputs: Inputs) -> FunctionAndArguments:
        normalize = getattr(load("entmax"), name)

        def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return normalize(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5, dim=-1) @ value

        return function, tuple(inputs[tensor] for tensor in QKV)

    return Implementation(
        "entmax",
        torch_builder(bind, gradients),
        note="the package between two matrix products",
        bytes=quadratic(15.0 if gradients else 6.0),
    )


def attention_work(sizes: Sizes, *, backward: bool = False) -> Work:
    """Two matrix products, and the tensors once through memory; with gradients five products more."""
    passes = 3.5 if backward else 1.0
    rows = sizes["batch"] * sizes["heads"] * (sizes["queries"] + sizes["keys"])
    return Work(
        multiply_adds=2.0 * passes * pairs(sizes) * sizes["dim"],
        bytes=4.0 * 2 * rows * sizes["dim"] * (2.0 if backward else 1.0),
        said="two matrix products; the tensors once through memory; with gradients five products more",
    )


def attention_task(
    name: str,
    group: str,
    length: tuple[int, int, int],
    requirements: tuple[Requirement, ...],
    prefix: str = "",
    *,
    backward: bool = False,
) -> Task:
    """Scaled dot products with a normalizer of the entmax family."""
    function: Callable[..., Any] = partial(eager.attention, normalize=name)
    gradients = QKV if backward else ()

    def options(inputs: Inputs) -> dict[str, Any]:
        return {"normalizer": NORMALIZERS[name]}

    return Task(
        name=f"{prefix}{name}" if prefix else f"{name}-attention{'-backward' if backward else ''}",
        title=f"{name} attention{', forward + backward' if backward else ''}, {{batch}}×{{heads}}×{{queries}}×{{dim}}",
        group=group,
        sizes=sizes(*length),
        quick=sizes(1, 2, 256),
        large=None if prefix else sizes(1, 16, 4096),
        inputs=make_inputs,
        implementations=(
            regard(options, gradients),
            *(() if prefix or backward else own_backends("cpu", "triton", "tiled", options=options)),
            *plain(function, gradients=gradients, matrices=6.0, compiled_matrices=6.0),
            _in_attention(name, gradients),
        ),
        work=lambda sizes: attention_work(sizes, backward=backward),
        oracle=by_rows(function, QKV, gradients, per_pair=8),
        requirements=requirements,
        backward=backward,
        limited_by="The limit counts two whole matrix products and nothing for the thresholds of the rows. Where most "
        "weights of a block are 0, the second product is made of the others alone: the limit can be passed.",
    )


TASKS = (
    _row_task("sparsemax", backward=False),
    _row_task("sparsemax", backward=True),
    _row_task("entmax15", backward=False),
    _row_task("entmax15", backward=True),
    attention_task("entmax15", "Sparse normalizers", (1, 8, 1024), (
        Requirement("faster", 5, "entmax", 8), Requirement("limit", 0.7, aim=0.8),
    )),
    attention_task("entmax15", "Sparse normalizers", (1, 8, 1024), (), backward=True),
)  # fmt: skip
