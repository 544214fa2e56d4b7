"""Sparse normalizers: of rows of scores, and in attention."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from regard import normalizers
from regard.bench import eager
from regard.bench.bar import Bar
from regard.bench.inner_product import QKV, made, make_inputs, pairs, plain, quadratic, regard, sizes
from regard.bench.oracle import by_rows, whole
from regard.bench.own import held_to
from regard.bench.peers import load
from regard.bench.running import Bound, torch_ready
from regard.bench.task import Contender, Inputs, Sizes, Task, Work

NORMALIZERS: dict[str, Callable[[Tensor], Tensor]] = {
    "sparsemax": normalizers.sparsemax,
    "entmax15": normalizers.entmax(1.5),
}
PLAIN: dict[str, Callable[[Tensor], Tensor]] = {"sparsemax": eager.sparsemax, "entmax15": eager.entmax15}


def _inputs(sizes: Sizes) -> Inputs:
    shape = (sizes["rows"], sizes["columns"])
    return {"scores": made(*shape), "gradient": made(*shape, seed=1)}


def _rows(function: Callable[[Tensor], Tensor]) -> Callable[[Inputs], Bound]:
    return lambda inputs: (function, (inputs["scores"],))


def _package(name: str) -> Callable[[Inputs], Bound]:
    def bind(inputs: Inputs) -> Bound:
        return partial(getattr(load("entmax"), name), dim=-1), (inputs["scores"],)

    return bind


def _work(sizes: Sizes, tensors: int) -> Work:
    numbers = sizes["rows"] * sizes["columns"]
    return Work(
        multiply_adds=2.0 * tensors * numbers,
        bytes=4.0 * tensors * numbers,
        said="every tensor once through memory: scores and weights, with gradients two more; two operations a number",
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
        contenders=(
            Contender("regard", torch_ready(_rows(NORMALIZERS[name]), gradients), backend=lambda inputs: "rows"),
            Contender("eager", torch_ready(plainly, gradients), note="by sorting"),
            Contender("compile", torch_ready(plainly, gradients, compiled=True), note="by sorting"),
            Contender("entmax", torch_ready(_package(name), gradients)),
        ),
        work=lambda sizes: _work(sizes, 4 if backward else 2),
        oracle=whole(PLAIN[name], ("scores",), gradients),
        bars=(Bar("faster", 10 if backward else 15, "entmax", None if backward else 30),),
        backward=backward,
    )


def _in_attention(name: str) -> Contender:
    def bind(inputs: Inputs) -> Bound:
        normalize = getattr(load("entmax"), name)

        def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return normalize(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5, dim=-1) @ value

        return function, tuple(inputs[tensor] for tensor in QKV)

    return Contender("entmax", torch_ready(bind), note="the package between two matrix products", bytes=quadratic(6.0))


def attention_work(sizes: Sizes) -> Work:
    """Two matrix products, and the tensors once through memory."""
    rows = sizes["batch"] * sizes["heads"] * (sizes["queries"] + sizes["keys"])
    return Work(
        multiply_adds=2.0 * pairs(sizes) * sizes["dim"],
        bytes=4.0 * 2 * rows * sizes["dim"],
        said="two matrix products; the tensors once through memory",
    )


def attention_task(
    name: str, group: str, length: tuple[int, int, int], bars: tuple[Bar, ...], prefix: str = ""
) -> Task:
    """Scaled dot products with a normalizer of the entmax family."""
    function: Callable[..., Any] = partial(eager.attention, normalize=name)

    def options(inputs: Inputs) -> dict[str, Any]:
        return {"normalizer": NORMALIZERS[name]}

    return Task(
        name=f"{prefix}{name}" if prefix else f"{name}-attention",
        title=f"{name} attention, {{batch}}×{{heads}}×{{queries}}×{{dim}}",
        group=group,
        sizes=sizes(*length),
        quick=sizes(1, 2, 256),
        inputs=make_inputs,
        contenders=(
            regard(options),
            *(() if prefix else held_to("cpu", options=options)),
            *plain(function, matrices=6.0, compiled_matrices=6.0),
            _in_attention(name),
        ),
        work=attention_work,
        oracle=by_rows(function, QKV, per_pair=8),
        bars=bars,
    )


TASKS = (
    _row_task("sparsemax", backward=False),
    _row_task("sparsemax", backward=True),
    _row_task("entmax15", backward=False),
    _row_task("entmax15", backward=True),
    attention_task("entmax15", "Sparse normalizers", (1, 8, 1024), (Bar("faster", 5, "entmax", 8),)),
)
