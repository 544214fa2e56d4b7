"""The additive score (Bahdanau, concat) with softmax: forward, with gradients, and the memory of long inputs."""

from typing import Any

from torch import Tensor

from bench import eager
from bench.inner_product import QKV, make_inputs, pairs, random_tensor, sizes
from bench.oracle import by_rows
from bench.own_backends import own_backends
from bench.peers import load
from bench.prepared_call import FunctionAndArguments, torch_builder, with_gradients
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, Outputs, PreparedCall, Sizes, Task, Work
from regard.attention import attend, plan
from regard.scores import Additive

NAMES = (*QKV, "weight")
MIB = 1 << 20


def make_additive(sizes: Sizes) -> Inputs:
    """Inputs of an attention, and the weight of the score."""
    return {**make_inputs(sizes), "weight": random_tensor(sizes["dim"], seed=7) * sizes["dim"] ** -0.5}


def options(inputs: Inputs) -> dict[str, Any]:
    """Keywords of `regard.attend`."""
    return {"score": Additive(inputs["weight"])}


def _regard(gradients: tuple[str, ...] = ()) -> Implementation:
    def bind(inputs: Inputs) -> FunctionAndArguments:
        score = Additive(inputs["weight"])
        return (lambda *tensors: attend(*tensors, score=score)), tuple(inputs[name] for name in QKV)

    def backend(inputs: Inputs) -> str:
        given = {name: inputs[name].detach().clone().requires_grad_(name in gradients) for name in NAMES}
        return plan(*(given[name] for name in QKV), score=Additive(given["weight"])).backend

    return Implementation("regard", torch_builder(bind, gradients), backend=backend)


def _plain(gradients: tuple[str, ...] = ()) -> tuple[Implementation, ...]:
    def bind(inputs: Inputs) -> FunctionAndArguments:
        return eager.additive, tuple(inputs[name] for name in NAMES)

    # The sums and their tanh for every pair and unit are stored; with gradients, both twice.
    grids = 4.0 if gradients else 2.0
    return (
        Implementation("eager", torch_builder(bind, gradients), bytes=_grids(grids)),
        Implementation(
            "compile", torch_builder(bind, gradients, compiled=True), bytes=_grids(1.0 if gradients else 0.05)
        ),
    )


def _keras(gradients: tuple[str, ...] = ()) -> Implementation:
    def build(inputs: Inputs) -> PreparedCall:
        module = load("keras")
        folded = {name: inputs[name].flatten(0, 1).contiguous() for name in (*QKV, "grad_output")}
        layer: Any = module.layers.AdditiveAttention(use_scale=True)
        layer.build([list(folded[name].shape) for name in ("query", "value", "key")])
        layer.scale.assign(inputs["weight"].detach().numpy())
        leaves = {name: folded[name].clone().requires_grad_() for name in gradients if name != "weight"}
        query, key, value = ({**folded, **leaves}[name] for name in QKV)
        axes = inputs["query"].shape[:2]

        def forward() -> Tensor:
            return layer([query, value, key])

        def unfold(outputs: Outputs) -> Outputs:
            return {
                name: tensor.detach() if tensor.dim() == 1 else tensor.detach().unflatten(0, axes)
                for name, tensor in outputs.items()
            }

        if not gradients:
            return PreparedCall(forward, lambda raw: unfold({"output": raw}))
        call, read = with_gradients(forward, {**leaves, "weight": layer.scale.value}, folded["grad_output"])
        return PreparedCall(call, lambda raw: unfold(read(raw)))

    return Implementation(
        "keras", build, note="AdditiveAttention, its scale set to the weight", bytes=_grids(5.0 if gradients else 3.0)
    )


def _grids(number: float) -> Any:
    return lambda sizes: 4.0 * number * pairs(sizes) * sizes["dim"]


def work(sizes: Sizes, passes: int = 1) -> Work:
    """The operations of the additive score with softmax and values, for ``passes`` passes."""
    # Two units share a division. Together they need 1 + e^2a e^2b twice, a product, two cross products and two sums.
    triples, all_pairs = pairs(sizes) * sizes["dim"], pairs(sizes)
    rows = sizes["batch"] * sizes["heads"] * (sizes["queries"] + sizes["keys"])
    return Work(
        multiply_adds=passes * 3 * triples + (passes * 2 - 1) * triples,
        reciprocals=passes * triples / 2,
        exponentials=passes * (all_pairs + rows * sizes["dim"]),
        bytes=4.0 * passes * 2 * rows * sizes["dim"],
        said="for each query, key and unit three multiply-adds and half a reciprocal, for each pair an exponential and "
        "the mixing of the values; twice that with gradients, and the gradients' own products",
    )


def _task(name: str, title: str, length: int, quick: int, **more: Any) -> Task:
    return Task(
        name=name,
        title=title + ", {batch}×{heads}×{queries}×{dim}",
        group="Additive score",
        sizes=sizes(1, 1, length),
        quick=sizes(1, 1, quick),
        large=sizes(1, 4, 2 * length) if more.get("timed", True) else None,
        inputs=make_additive,
        **more,
    )


LIMITED_BY = """\
The limit counts three multiply-adds for each query, key and unit in each direction, and the products. Backward, a
kernel makes each unit again and adds its gradient to a sum for the query, to one for the key and to one for the
weight: that is seven operations for a unit and half a division. Done: one division for two reciprocals; sums of a
query in vector registers over all features; sums of a key in the thread's own memory, transposed once; exponentials
of keys in vectors; weights that are kept in place of scores that are made again. Tried without a gain: approximate
reciprocals with a step of Newton's method; one division for four reciprocals; smaller blocks of rows."""

TASKS = (
    _task(
        "additive", "additive", 1024, 256,
        implementations=(_regard(), *own_backends("cpu", "triton", "tiled", options=options), *_plain(), _keras()),
        work=work,
        oracle=by_rows(eager.additive, NAMES, per_pair=64),
        requirements=(
            Requirement("faster", 20, "eager", 30), Requirement("faster", 28, "keras", 45),
            Requirement("faster", 7, "compile", 11), Requirement("limit", 0.6, aim=0.7),
        ),
        limited_by=LIMITED_BY,
    ),
    _task(
        "additive-backward", "additive, forward + backward", 1024, 256,
        implementations=(_regard(NAMES), *_plain(NAMES), _keras(NAMES)),
        work=lambda sizes: work(sizes, 2),
        oracle=by_rows(eager.additive, NAMES, NAMES, per_pair=256),
        requirements=(Requirement("faster", 8, "eager", 14), Requirement("limit", 0.4, aim=0.55)),
        limited_by=LIMITED_BY,
        backward=True,
    ),
    _task(
        "additive-memory", "additive, memory", 8192, 1024,
        implementations=(_regard(), *_plain(), _keras()),
        work=work,
        requirements=(Requirement("memory", 64 * MIB),),
        timed=False,
        about="Measured in separate processes; an implementation that would need too much memory is skipped.",
    ),
)  # fmt: skip
