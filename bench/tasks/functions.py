"""Scores and masks that a user's function computes, compared with compiled FlexAttention."""

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from bench import eager
from bench.inner_product import QKV, make_inputs, pairs, quadratic, random_tensor, regard, sizes
from bench.oracle import whole
from bench.prepared_call import FunctionAndArguments, torch_builder
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, Outputs, PreparedCall, Sizes, Task, Work
from regard import masks, scores
from regard.attention import plan
from regard.attention.flex_attention import flex_attention

STEP = 7
"""A query sees its own key and every one that is not a multiple of this before it."""


def _inputs(sizes: Sizes) -> Inputs:
    return {**make_inputs(sizes), "slopes": random_tensor(sizes["heads"], seed=4).abs() * 0.01}


def _added(slopes: Tensor) -> Callable[..., Tensor]:
    """A function of a score as FlexAttention takes it."""

    def modify(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return 30.0 * torch.tanh((score - slopes[head] * (query - key).abs()) / 30.0)

    return modify


def _seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (key <= query) & ((query - key) % STEP != 1)


def _keep(inputs: Inputs) -> Tensor:
    Q, K = inputs["query"].shape[2], inputs["key"].shape[2]
    index = torch.arange(max(Q, K))
    return _seen(index, index, index[:Q, None], index[:K])[None, None]


def _bias(inputs: Inputs) -> Tensor:
    Q, K = inputs["query"].shape[2], inputs["key"].shape[2]
    distance = (torch.arange(Q)[:, None] - torch.arange(K)).abs()
    return -inputs["slopes"][:, None, None] * distance


def _plainly(inputs: Inputs, *, score: bool, mask: bool) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The same in plain PyTorch; distances and mask are made dense before."""
    bias, keep = _bias(inputs), _keep(inputs) if mask else None

    def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if not score:
            return eager.attention(query, key, value, keep)
        found = query @ key.mT * query.shape[-1] ** -0.5
        return eager.mix(30.0 * torch.tanh((found + bias) / 30.0), value, keep)

    return function


def _flex(*, score: bool, mask: bool) -> Implementation:
    """FlexAttention, compiled; on a CPU it has no backward pass."""

    def build(inputs: Inputs) -> PreparedCall:
        module = importlib.import_module("torch.nn.attention.flex_attention")
        torch._dynamo.reset()
        B, H, Q, _ = inputs["query"].shape
        blocks = module.create_block_mask(_seen, B, H, Q, inputs["key"].shape[2], device="cpu") if mask else None
        options = {"score_mod": _added(inputs["slopes"]) if score else None, "block_mask": blocks}
        compiled = torch.compile(module.flex_attention, dynamic=False)

        def bind(inputs: Inputs) -> FunctionAndArguments:
            return (lambda *tensors: compiled(*tensors, **options)), tuple(inputs[name] for name in QKV)

        return torch_builder(bind)(inputs)

    return Implementation("flex", build, note="compiled", memory_measured=False)


def _own_flex() -> Implementation:
    """`regard.flex_attention`, with FlexAttention's own arguments."""

    def bind(inputs: Inputs) -> FunctionAndArguments:
        module = importlib.import_module("torch.nn.attention.flex_attention")
        B, H, Q, _ = inputs["query"].shape
        blocks = module.create_block_mask(_seen, B, H, Q, inputs["key"].shape[2], device="cpu")
        modify = _added(inputs["slopes"])
        return (lambda *tensors: flex_attention(*tensors, modify, blocks)), tuple(inputs[name] for name in QKV)

    def backend(inputs: Inputs) -> str:
        score = scores.Modified("scaled_dot", _added(inputs["slopes"]))
        return plan(*(inputs[name] for name in QKV), score=score, mask=masks.where(_seen)).backend

    return Implementation("regard", torch_builder(bind), backend=backend)


def _work(sizes: Sizes, *, score: bool, mask: bool, backward: bool) -> Work:
    seen = (0.5 * (STEP - 1) / STEP if mask else 1.0) * pairs(sizes)
    rows = sizes["batch"] * sizes["heads"] * (sizes["queries"] + sizes["keys"])
    return Work(
        multiply_adds=2.0 * (3.5 if backward else 1.0) * seen * sizes["dim"],
        exponentials=(2.0 if score else 1.0) * (2.0 if backward else 1.0) * seen,
        bytes=8.0 * rows * sizes["dim"] * (2.0 if backward else 1.0),
        said="as scaled dot products, and an exponential for the function's tanh",
    )


def _task(name: str, title: str, *, score: bool = False, mask: bool = False, backward: bool = False) -> Task:
    gradients = QKV if backward else ()

    def options(inputs: Inputs) -> dict[str, object]:
        given: dict[str, object] = {"mask": masks.where(_seen)} if mask else {}
        return given | ({"score": scores.Modified("scaled_dot", _added(inputs["slopes"]))} if score else {})

    def bind(inputs: Inputs) -> FunctionAndArguments:
        return _plainly(inputs, score=score, mask=mask), tuple(inputs[each] for each in QKV)

    def truth(inputs: Inputs) -> Outputs:
        return whole(_plainly(inputs, score=score, mask=mask), QKV, gradients)(inputs)

    own = _own_flex() if score and mask else regard(options, gradients)
    needed = quadratic(7.0 if backward else 3.0)
    return Task(
        name=f"function-{name}",
        title=f"{title}{', forward + backward' if backward else ''}, {{batch}}×{{heads}}×{{queries}}×{{dim}}",
        group="Functions of pairs",
        sizes=sizes(1, 4, 1024),
        quick=sizes(1, 2, 256),
        inputs=_inputs,
        implementations=(
            own,
            Implementation("eager", torch_builder(bind, gradients), bytes=needed),
            Implementation("compile", torch_builder(bind, gradients, compiled=True), bytes=needed),
            *(() if backward else (_flex(score=score, mask=mask),)),
        ),
        work=lambda sizes: _work(sizes, score=score, mask=mask, backward=backward),
        oracle=truth,
        requirements=(Requirement("faster", 3.0 if backward else 1.5, "eager" if backward else "flex"),),
        backward=backward,
        about="The function is Python of one pair's numbers; plain PyTorch gets its distances as a dense matrix.",
    )


TASKS = (
    _task("score", "a function of the score", score=True),
    _task("score-backward", "a function of the score", score=True, backward=True),
    _task("mask", "a function as a mask", mask=True),
    _task("both", "flex_attention with a function and a BlockMask", score=True, mask=True),
)
