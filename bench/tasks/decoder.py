"""Steps of a recurrent decoder: one query for each sentence, over prepared memories of unequal lengths."""

import torch
from torch import Tensor

from bench.inner_product import random_tensor
from bench.oracle import whole
from bench.peers import load
from bench.prepared_call import FunctionAndArguments, torch_builder, with_gradients
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, PreparedCall, Sizes, Task, Work
from regard import scores
from regard.nn import Attention

LEAVES = ("query", "key", "value", "weight")
"""The tensors whose gradients a step computes; the key is projected."""


def _inputs(sizes: Sizes) -> Inputs:
    B, K, D = sizes["batch"], sizes["keys"], sizes["dim"]
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(K // 2, K + 1, (B,), generator=generator)
    lengths[0] = K
    value = random_tensor(B, K, D, seed=2)
    projection = random_tensor(D, D, seed=4) * D**-0.5
    return {
        "query": random_tensor(B, D, seed=1),
        "value": value,
        "key": value @ projection.T,
        "weight": random_tensor(D, seed=3) * D**-0.5,
        "query projection": random_tensor(D, D, seed=6) * D**-0.5,
        "key projection": projection,
        "keep": torch.arange(K) < lengths[:, None],
        "lengths": lengths,
        "grad_output": random_tensor(B, D, seed=7),
    }


def _eager(query: Tensor, key: Tensor, value: Tensor, weight: Tensor, projection: Tensor, keep: Tensor) -> Tensor:
    scored = torch.tanh((query @ projection.T)[:, None] + key) @ weight
    weights = torch.softmax(scored.masked_fill(~keep, -torch.inf), dim=-1)
    return (weights[:, None] @ value)[:, 0]


NAMES = (*LEAVES, "query projection", "keep")


STEPS = 40
"""Steps of a sentence."""


def _step_query(query: Tensor, step: int) -> Tensor:
    """The query of a step: each step has another query, and all depend on one leaf."""
    return query * (1 - step / STEPS)


def _eager_sentence(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, projection: Tensor, keep: Tensor
) -> Tensor:
    contexts = [_eager(_step_query(query, step), key, value, weight, projection, keep) for step in range(STEPS)]
    return torch.stack(contexts).sum(0)


def _module(inputs: Inputs) -> Attention:
    D = inputs["query"].shape[-1]
    score = scores.Additive.create(D, D, D)
    assert score.query_projection is not None
    assert score.key_projection is not None
    with torch.no_grad():
        score.weight.copy_(inputs["weight"])
        score.query_projection.weight.copy_(inputs["query projection"])
        score.key_projection.weight.copy_(inputs["key projection"])
    return Attention(score).eval()


def _regard(*, backward: bool, steps: int = 1) -> Implementation:
    def build(inputs: Inputs) -> PreparedCall:
        module = _module(inputs)
        if not backward:
            memory = module.remember(inputs["value"], inputs["lengths"])
            query = inputs["query"]
            return PreparedCall(lambda: module(query, memory).context, lambda raw: {"output": raw})
        leaves = {name: inputs[name].clone().requires_grad_() for name in ("query", "value")}
        with torch.enable_grad():
            memory = module.remember(inputs["value"], inputs["lengths"], value=leaves["value"])
        score = module.score
        assert isinstance(score, scores.Additive)
        # Gradients are computed up to the prepared memory: the steps of a sentence add them to its key and value.
        ends = {"query": leaves["query"], "key": memory.key, "value": memory.value, "weight": score.weight}

        def forward() -> Tensor:
            if steps == 1:
                return module(leaves["query"], memory).context
            return torch.stack(
                [module(_step_query(leaves["query"], step), memory).context for step in range(steps)]
            ).sum(0)

        return PreparedCall(*with_gradients(forward, ends, inputs["grad_output"]))

    def backend(inputs: Inputs) -> str:
        module = _module(inputs)
        memory = module.remember(inputs["value"], inputs["lengths"])
        return module.plan(_step_query(inputs["query"], 0) if steps > 1 else inputs["query"], memory).backend

    return Implementation("regard", build, backend=backend, note="nn.Attention with its weights, over nn.Memory")


def _implementations(*, backward: bool) -> tuple[Implementation, ...]:
    def bind(inputs: Inputs) -> FunctionAndArguments:
        return _eager, tuple(inputs[name] for name in NAMES)

    gradients = LEAVES if backward else ()
    return (
        _regard(backward=backward),
        Implementation("eager", torch_builder(bind, gradients)),
        Implementation("compile", torch_builder(bind, gradients, compiled=True)),
        _keras(gradients),
    )


def _keras(gradients: tuple[str, ...]) -> Implementation:
    def build(inputs: Inputs) -> PreparedCall:
        module = load("keras")
        layer = module.layers.AdditiveAttention(use_scale=True)
        B, K, D = inputs["value"].shape
        layer.build([[B, 1, D], [B, K, D], [B, K, D]])
        layer.scale.assign(inputs["weight"].numpy())
        leaves = {name: inputs[name].clone().requires_grad_() for name in gradients if name != "weight"}
        given = {**inputs, **leaves}
        query, key, value, projection = (given[name] for name in ("query", "key", "value", "query projection"))
        keep = [None, inputs["keep"]]

        def forward() -> Tensor:
            return layer([(query @ projection.T)[:, None], value, key], mask=keep)[:, 0]

        if not gradients:
            return PreparedCall(forward, lambda raw: {"output": raw.detach()})
        return PreparedCall(*with_gradients(forward, {**leaves, "weight": layer.scale.value}, inputs["grad_output"]))

    return Implementation("keras", build, note="AdditiveAttention on projected queries and keys")


def _work(sizes: Sizes, passes: int = 1) -> Work:
    B, K, D = sizes["batch"], sizes["keys"], sizes["dim"]
    keys = 0.75 * K
    triples = B * keys * D
    return Work(
        multiply_adds=passes * 3 * triples + (passes * 2 - 1) * (triples + B * D * D),
        reciprocals=passes * triples / 2,
        exponentials=passes * B * (keys + D) + B * keys,
        bytes=4.0 * (passes * 2 - 1) * (2 * triples + D * D + 2 * B * D),
        said="as for the additive score, over the mean of the lengths, and the projection of the queries; "
        "the keys' exponentials are prepared",
    )


LIMITED_BY = """\
The step's own kernels take 56 % of the time and the projection of the queries 20 %. The gradients of keys and
values, 6.5 MB each, are new memory in each backward pass: where the C library gives freed memory back to the system,
to map and to clear its pages takes 0.3 to 1.3 ms of 3 to 4 ms. With `MALLOC_TRIM_THRESHOLD_` raised a step takes 2.7
to 2.9 ms, and is 2.4 times as fast as plain PyTorch. Tried: the gradients of one step in one pass over the keys;
those of a sentence's steps summed by the memory and given once; vectors in place of loops; sums cleared by the
kernel."""


def _task(name: str, title: str, *, backward: bool, requirement: Requirement) -> Task:
    return Task(
        name=name,
        title=title + ", batch {batch}, memory {keys}, width {dim}",
        group="Additive score",
        sizes={"batch": 64, "keys": 50, "dim": 512},
        quick={"batch": 8, "keys": 50, "dim": 128},
        inputs=_inputs,
        implementations=_implementations(backward=backward),
        work=lambda sizes: _work(sizes, 2 if backward else 1),
        oracle=whole(_eager, NAMES, LEAVES if backward else ()),
        requirements=(requirement,),
        limited_by=LIMITED_BY if backward else "",
        backward=backward,
        about="Lengths are uniform from half the memory to all of it; the keys are already projected.",
    )


def _sentence() -> Task:
    def bind(inputs: Inputs) -> FunctionAndArguments:
        return _eager_sentence, tuple(inputs[name] for name in NAMES)

    return Task(
        name="decoder-sentence",
        title=f"{STEPS} decoder steps, forward + backward, batch {{batch}}, memory {{keys}}, width {{dim}}",
        group="Additive score",
        sizes={"batch": 64, "keys": 50, "dim": 512},
        quick={"batch": 8, "keys": 50, "dim": 128},
        inputs=_inputs,
        implementations=(_regard(backward=True, steps=STEPS), Implementation("eager", torch_builder(bind, LEAVES))),
        work=lambda sizes: _work(sizes, 2).times(STEPS),
        oracle=whole(_eager_sentence, NAMES, LEAVES),
        requirements=(Requirement("faster", 3, "eager", 5),),
        limited_by=LIMITED_BY,
        backward=True,
        about="The steps of a sentence in training: all attend to one memory, and their gradients are summed.",
    )


TASKS = (
    _task("decoder", "decoder step", backward=False, requirement=Requirement("faster", 3, "eager", 5)),
    _task(
        "decoder-backward", "decoder step, forward + backward", backward=True,
        requirement=Requirement("faster", 3, "eager", 5),
    ),
    _sentence(),
)  # fmt: skip
