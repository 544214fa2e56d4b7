"""Scaled dot-product attention with softmax, compared with PyTorch's own kernel."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bench import eager
from bench.inner_product import QKV, all_implementations, causal_keep, make_inputs, pairs, random_tensor, sizes
from bench.oracle import by_rows
from bench.own_backends import own_backends
from bench.peers import load
from bench.prepared_call import FunctionAndArguments, torch_builder
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, PreparedCall, Sizes, Task, Work
from regard import masks, nn

LARGEST_RATIO = 1.03
"""Largest ratio of regard's time to that of PyTorch's `scaled_dot_product_attention`."""


def _work(sizes: Sizes, passes: float = 1.0, seen: float = 1.0) -> Work:
    rows = sizes["batch"] * sizes["heads"] * (sizes["queries"] + sizes["keys"])
    return Work(
        multiply_adds=2.0 * passes * seen * pairs(sizes) * sizes["dim"],
        exponentials=(1.0 if passes == 1 else 2.0) * seen * pairs(sizes),
        bytes=4.0 * 2 * rows * sizes["dim"] * (1.0 if passes == 1 else 2.0),
        said="two matrix products and an exponential for each pair; with gradients five more and the exponential again",
    )


def _with_less_memory_measured(implementations: tuple[Implementation, ...]) -> tuple[Implementation, ...]:
    """Measure the memory of three implementations only: each process takes seconds, and larger tasks measure all."""
    return tuple(replace(one, memory_measured=one.column in ("regard", "eager", "sdpa")) for one in implementations)


def _causal(inputs: Inputs) -> dict[str, Any]:
    return {"mask": masks.causal()}


def _plain(name: str, batch: int, heads: int, length: int, *, causal: bool = False, backward: bool = False) -> Task:
    gradients = QKV if backward else ()
    implementations = all_implementations(gradients, causal=causal)
    implementations += own_backends("cpu", "sdpa", "triton", options=_causal) if causal else ()
    extra = f"{', causal' if causal else ''}{', forward + backward' if backward else ''}"
    return Task(
        name=name,
        title="scaled dot product" + extra + ", {batch}×{heads}×{queries}×{dim}",
        group="Scaled dot products",
        sizes=sizes(batch, heads, length),
        quick=sizes(min(batch, 2), 2, min(length, 256)),
        large=sizes(batch, 16, 8192) if length == 1024 else None,
        inputs=make_inputs,
        implementations=implementations if length >= 1024 else _with_less_memory_measured(implementations),
        work=lambda sizes: _work(sizes, 3.5 if backward else 1.0, 0.5 if causal else 1.0),
        oracle=by_rows(eager.attention, QKV, gradients, per_pair=4, keep=causal_keep if causal else None),
        requirements=(
            Requirement("slower", LARGEST_RATIO, "sdpa"),
            *((Requirement("limit", 0.7, aim=0.8),) if name in ("dot-1024", "dot-4096") else ()),
        ),
        backward=backward,
    )


def _layer_inputs(sizes: Sizes) -> Inputs:
    B, L, D = sizes["batch"], sizes["length"], sizes["dim"]
    return {
        "input": random_tensor(B, L, D),
        "weight": random_tensor(3 * D, D, seed=1) * D**-0.5,
        "out": random_tensor(D, D, seed=2) * D**-0.5,
        "heads": torch.tensor(sizes["heads"]),
    }


def _torch_layer(kind: Any) -> Any:
    def bind(inputs: Inputs) -> FunctionAndArguments:
        D = inputs["input"].shape[-1]
        layer = kind(D, int(inputs["heads"]), bias=False, batch_first=True).eval()
        with torch.no_grad():
            layer.in_proj_weight.copy_(inputs["weight"])
            layer.out_proj.weight.copy_(inputs["out"])

        def function(given: Tensor) -> Tensor:
            return layer(given, given, given, need_weights=False)[0]

        return function, (inputs["input"],)

    return bind


def _keras_layer() -> Implementation:
    def build(inputs: Inputs) -> PreparedCall:
        module, given = load("keras"), inputs["input"]
        H, D = int(inputs["heads"]), given.shape[-1]
        layer = module.layers.MultiHeadAttention(num_heads=H, key_dim=D // H, use_bias=False)
        layer.build(list(given.shape), list(given.shape))
        projections = inputs["weight"].view(3, H, D // H, D).permute(0, 3, 1, 2)
        # The order of its weights: query, key, value, output.
        layer.set_weights([kernel.numpy() for kernel in (*projections, inputs["out"].T.reshape(H, D // H, D))])
        return PreparedCall(lambda: layer(given, given), lambda raw: {"output": raw.detach()})

    return Implementation("keras", build, note="MultiHeadAttention")


def _layer_oracle(inputs: Inputs) -> dict[str, Tensor]:
    given, heads = inputs["input"].double(), int(inputs["heads"])
    query, key, value = (
        part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (given @ inputs["weight"].double().T).chunk(3, -1)
    )
    mixed = eager.attention(query, key, value).transpose(1, 2).flatten(2)
    return {"output": mixed @ inputs["out"].double().T}


def _layer_work(sizes: Sizes) -> Work:
    B, L, D, H = sizes["batch"], sizes["length"], sizes["dim"], sizes["heads"]
    return Work(
        multiply_adds=4.0 * B * L * D * D + 2.0 * B * L * L * D,
        exponentials=1.0 * B * H * L * L,
        bytes=4.0 * (2 * B * L * D + 4 * D * D),
        said="four projections, two matrix products of attention and its exponentials",
    )


TASKS = (
    Task(
        name="tiny",
        title="overhead of a call, {batch}×{heads}×{queries}×{dim}",
        group="Scaled dot products",
        sizes=sizes(1, 1, 4, 8),
        quick=sizes(1, 1, 4, 8),
        inputs=make_inputs,
        implementations=_with_less_memory_measured(all_implementations()),
        work=_work,
        oracle=by_rows(eager.attention, QKV),
        requirements=(Requirement("overhead", 15e-6, "sdpa"),),
        about="The problem is tiny, so the time is the overhead of a call.",
        limited_by="The time is Python's: a call's kind is looked up, and queries of short rows are summed to see "
        "that all are finite. Done: a call is planned once for its kind.",
    ),
    _plain("dot-128", 1, 8, 128),
    _plain("dot-1024", 1, 8, 1024),
    _plain("dot-4096", 1, 8, 4096),
    _plain("dot-batch", 8, 8, 256),
    _plain("dot-causal", 1, 8, 1024, causal=True),
    _plain("dot-backward", 1, 8, 1024, backward=True),
    Task(
        name="layer",
        title="multi-head layer, {batch}×{length}×{dim}, {heads} heads",
        group="Scaled dot products",
        sizes={"batch": 4, "length": 256, "dim": 512, "heads": 8},
        quick={"batch": 2, "length": 64, "dim": 128, "heads": 4},
        inputs=_layer_inputs,
        implementations=(
            Implementation(
                "regard", torch_builder(_torch_layer(nn.MultiheadAttention)), backend=lambda inputs: "layer"
            ),
            Implementation(
                "eager", torch_builder(_torch_layer(torch.nn.MultiheadAttention)), note="torch.nn's own layer"
            ),
            Implementation("compile", torch_builder(_torch_layer(torch.nn.MultiheadAttention), compiled=True)),
            _keras_layer(),
        ),
        work=_layer_work,
        oracle=_layer_oracle,
        requirements=(Requirement("memory", 30 << 20),),
        about="With projections, without returned weights.",
    ),
)
