"""Linear attention: decays a head or a feature, with sums or the delta rule, compared with a quadratic softmax."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.inner_product import QKV, random_tensor, sdpa, sizes
from bench.oracle import whole
from bench.peers import load
from bench.plain.linear_time import CHUNK, chunked
from bench.prepared_call import FunctionAndArguments, torch_builder
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, PreparedCall, Sizes, Task, Work
from regard import linear

ANOTHER = "another function: softmax under a causal mask"


def _inputs(*, features: bool, delta: bool) -> Callable[[Sizes], Inputs]:
    def inputs(sizes: Sizes) -> Inputs:
        B, H, L, D = (sizes[name] for name in ("batch", "heads", "queries", "dim"))
        given = {name: random_tensor(B, H, L, D, seed=seed) for seed, name in enumerate((*QKV, "grad_output"))}
        given["query"], given["key"] = (F.normalize(given[name], dim=-1) for name in ("query", "key"))
        # Decays between 0.9 and 1, as trained models have them.
        given["log_decay"] = -0.1 * torch.sigmoid(random_tensor(B, H, L, D if features else 1, seed=5))
        if delta:
            given["beta"] = torch.sigmoid(random_tensor(B, H, L, seed=6))
        return given

    return inputs


def _transformers(gradients: tuple[str, ...]) -> Implementation:
    """The function of the models of Qwen3-Next; its layout is ``[batch, length, heads, dim]``."""

    def bind(inputs: Inputs) -> FunctionAndArguments:
        module = load("transformers", "transformers.models.qwen3_next.modeling_qwen3_next")

        def function(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
            parts = query * query.shape[-1] ** 0.5, key, value, log_decay.squeeze(-1), beta
            return module.torch_chunk_gated_delta_rule(*(part.transpose(1, 2) for part in parts))[0].transpose(1, 2)

        return function, tuple(inputs[name] for name in (*QKV, "log_decay", "beta"))

    return Implementation("transformers", torch_builder(bind, gradients), note="torch_chunk_gated_delta_rule")


def _softmax(gradients: tuple[str, ...]) -> Callable[[Inputs], PreparedCall]:
    """PyTorch's kernel under a causal mask; nothing of it is compared with the oracle."""
    build = sdpa(tuple(name for name in gradients if name in QKV), causal=True).build
    return lambda inputs: replace(build(inputs), read=lambda raw: {})


def _work(sizes: Sizes, *, features: bool, delta: bool, passes: float) -> Work:
    tokens, dim = sizes["batch"] * sizes["heads"] * sizes["queries"], sizes["dim"]
    products = 2 + 2 + (3 if delta else 0)  # within a chunk, with the state, and for the delta rule
    return Work(
        multiply_adds=passes * products * tokens * CHUNK * dim,
        exponentials=3.0 * passes * tokens * (dim if features else 1),
        bytes=4.0 * (4 if passes == 1 else 8) * tokens * dim,
        said=f"four products of {CHUNK}×{CHUNK}×dim a chunk, with the delta rule seven; three times with gradients",
    )


def _task(
    name: str, title: str, length: int, faster: float, *, features: bool = False, delta: bool = False,
    backward: bool = False,
) -> Task:  # fmt: skip
    names = (*QKV, "log_decay", *(("beta",) if delta else ()))
    gradients = names if backward else ()

    def bind(inputs: Inputs) -> FunctionAndArguments:
        return (lambda *parts: linear.chunked(*parts)[0]), tuple(inputs[each] for each in names)

    def plain(inputs: Inputs) -> FunctionAndArguments:
        return chunked, tuple(inputs[each] for each in names)

    rival = "transformers" if delta and not features else "eager"
    return Task(
        name=f"linear-{name}-{length}{'-backward' if backward else ''}",
        title=f"{title}{', forward + backward' if backward else ''}, {{batch}}×{{heads}}×{{queries}}×{{dim}}",
        group="Linear time",
        sizes=sizes(1, 8, length),
        quick=sizes(1, 2, 256),
        inputs=_inputs(features=features, delta=delta),
        implementations=(
            Implementation("regard", torch_builder(bind, gradients), backend=lambda inputs: "linear"),
            # Compiled, its loop over the chunks is written out, which takes minutes.
            Implementation("eager", torch_builder(plain, gradients), note="in chunks"),
            Implementation("sdpa", _softmax(gradients), note=ANOTHER, memory_measured=False),
            *((_transformers(gradients),) if rival == "transformers" else ()),
        ),
        work=lambda sizes: _work(sizes, features=features, delta=delta, passes=3.0 if backward else 1.0),
        oracle=whole(chunked, names, gradients),
        requirements=(
            Requirement("faster", faster, rival),
            *((Requirement("faster", 4.0, "sdpa"),) if length == 4096 else ()),
        ),
        backward=backward,
    )  # fmt: skip


KINDS = {
    "head": ("one decay a head", {}),
    "feature": ("one decay a feature", {"features": True}),
    "delta": ("gated delta rule", {"delta": True}),
    "kimi": ("delta rule, one decay a feature", {"features": True, "delta": True}),
}

TASKS = tuple(
    _task(name, title, length, 6.0 if name == "delta" else 1.5, backward=backward, **options)
    for name, (title, options) in KINDS.items()
    for length in ((2048, 4096) if name == "delta" else (4096,))
    for backward in (False, True)
)
