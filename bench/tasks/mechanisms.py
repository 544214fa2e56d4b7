"""Every score with softmax, and every normalizer with scaled dot products, a task for each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench import eager
from bench.inner_product import (
    QKV,
    make_inputs,
    pairs,
    plain,
    random_tensor,
    regard,
    sizes,
    x_transformers,
)  # fmt: skip
from bench.oracle import by_rows
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, Sizes, Task, Work
from bench.tasks.rows import attention_task, attention_work
from regard import normalizers, scores

HIDDEN = 16
"""Units of the hidden layer of the MLP score."""

CHANNELS, KERNEL = 8, 31
"""Filters of the location-aware score, and keys that each sees."""


@dataclass(frozen=True)
class Mechanism:
    """One score or normalizer.

    Attributes:
        name: its name.
        options: inputs → keywords of `regard.attend`.
        function: the same in plain PyTorch; it takes the named inputs.
        names: its inputs beside query, key and value.
        units: numbers that plain PyTorch stores for each pair.
        work: for each pair: multiply-adds, reciprocals and exponentials beside the two matrix products.
        others: implementations beside regard and eager and compiled PyTorch.
        faster: how many times as fast as plain PyTorch regard must be at least, and is meant to be; None: not told.
        limited_by: what limits it, and what was tried.
    """

    name: str
    options: Callable[[Inputs], dict[str, Any]]
    function: Callable[..., Tensor]
    names: tuple[str, ...] = ()
    units: int = 2
    work: tuple[float, float, float] = (0.0, 0.0, 1.0)
    others: tuple[Implementation, ...] = ()
    faster: tuple[float, float | None] | None = None
    limited_by: str = ""


def _inputs(sizes: Sizes) -> Inputs:
    D, K = sizes["dim"], sizes["keys"]
    scale = D**-0.5
    return {
        **make_inputs(sizes),
        "weight": random_tensor(D, seed=10) * scale,
        "matrix": random_tensor(D, D, seed=11) * scale,
        "hidden": random_tensor(HIDDEN, 2 * D, seed=12) * scale,
        "out": random_tensor(1, HIDDEN, seed=13) * HIDDEN**-0.5,
        "places": random_tensor(K, D, seed=14) * scale,
        "filters": random_tensor(CHANNELS, 1, KERNEL, seed=15) * KERNEL**-0.5,
        "located": random_tensor(D, CHANNELS, seed=16) * CHANNELS**-0.5,
        "previous": torch.softmax(random_tensor(sizes["batch"], K, seed=17), dim=-1),
        "center": torch.linspace(0, K - 1, sizes["heads"])[:, None],
    }


def _cosine(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return eager.attention(nn.functional.normalize(query, dim=-1), nn.functional.normalize(key, dim=-1), value, None, 5)


def _distance(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    squares = (query**2).sum(-1)[..., :, None] + (key**2).sum(-1)[..., None, :]
    return eager.mix(2 * query @ key.transpose(-2, -1) - squares, value)


def _general(query: Tensor, key: Tensor, value: Tensor, matrix: Tensor) -> Tensor:
    return eager.attention(query @ matrix, key, value, None, 1.0)


def _mlp(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, out: Tensor) -> Tensor:
    D = query.shape[-1]
    query_hidden, key_hidden = query @ hidden[:, :D].T, key @ hidden[:, D:].T
    return eager.mix(
        (torch.relu(query_hidden[..., :, None, :] + key_hidden[..., None, :, :]) @ out.T).squeeze(-1), value
    )


def _location(query: Tensor, key: Tensor, value: Tensor, places: Tensor) -> Tensor:
    return eager.mix(query @ places.T, value)


def _location_aware(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, filters: Tensor, located: Tensor, previous: Tensor
) -> Tensor:
    seen = nn.functional.conv1d(previous[:, None], filters, padding=KERNEL // 2).transpose(1, 2) @ located.T
    return eager.additive(query, key + seen[:, None], value, weight)


def _location_aware_options(inputs: Inputs) -> dict[str, Any]:
    D = inputs["weight"].shape[0]
    convolution = nn.Conv1d(1, CHANNELS, KERNEL, padding=KERNEL // 2, bias=False)
    projection = nn.Linear(CHANNELS, D, bias=False)
    with torch.no_grad():
        convolution.weight.copy_(inputs["filters"])
        projection.weight.copy_(inputs["located"])
    score = scores.LocationAware(inputs["weight"], convolution, projection)
    return {"score": score.given(inputs["previous"])}


def _mlp_options(inputs: Inputs) -> dict[str, Any]:
    first, last = nn.Linear(inputs["hidden"].shape[1], HIDDEN, bias=False), nn.Linear(HIDDEN, 1, bias=False)
    with torch.no_grad():
        first.weight.copy_(inputs["hidden"])
        last.weight.copy_(inputs["out"])
    return {"score": scores.MLP(nn.Sequential(first, nn.ReLU(), last))}


def _soft_cap(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return eager.mix(2.0 * torch.tanh(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5 / 2.0), value)


def _slope(head: Any, key_index: Any) -> Any:
    return (1 + head) * key_index * 0.001


def _modify(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
    return score - _slope(head, key_index)


def _modified(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    head, key_index = torch.arange(query.shape[1])[:, None, None], torch.arange(key.shape[2])
    return eager.mix(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5 - _slope(head, key_index), value)


def _local(query: Tensor, key: Tensor, value: Tensor, center: Tensor) -> Tensor:
    weights = torch.softmax(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5, dim=-1)
    away = torch.arange(key.shape[2], dtype=query.dtype) - center[..., None]
    return weights * torch.exp(-(away**2) / (2 * 16.0**2)) @ value


def _bisected(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Entmax 1.3: the threshold by bisection, then normalized once."""
    scores = 0.3 * (query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5)
    low = scores.amax(-1, keepdim=True) - 1
    high = low + 1 - scores.shape[-1] ** -0.3
    for _ in range(50 if query.dtype == torch.float64 else 24):
        middle = (low + high) / 2
        above = ((scores - middle).clamp_min(0) ** (1 / 0.3)).sum(-1, keepdim=True) >= 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    weights = (scores - low).clamp_min(0) ** (1 / 0.3)
    return weights / weights.sum(-1, keepdim=True) @ value


MODIFIED_BY = """\
The function is the user's, and only PyTorch can run it. PyTorch's two matrix products take 61 % of regard's time,
softmax 15 %, the function 14 %. Plain PyTorch does the same on whole matrices, regard on blocks of rows: that saves
memory, and no operation. How much time it saves depends on what the C library does with freed memory: a call maps 0 to
20 MiB anew, plain PyTorch's 0 to 50 MiB, and a MiB takes 0.2 to 0.7 ms. Done: scores are scaled in their memory.
Tried: blocks of 1, 2 and 4 MiB, without a difference; a kernel that normalizes a block's scores and mixes its values,
1.3 times as fast as plain PyTorch here, but 1.7 times slower in training and 1.35 times slower at 1×8×4096×64 than what
there is."""

MLP_BY = """\
Plain PyTorch's time decides: its hidden layer takes 512 MiB. Where each call maps this memory anew, plain PyTorch
takes 220 to 250 ms and regard is 21 to 28 times as fast; in a process that keeps it from call to call, it takes 48 ms
and regard is 6 to 7 times as fast. Regard takes 7 to 9 ms in both."""


def _learned_alpha(inputs: Inputs) -> dict[str, Any]:
    return {"normalizer": normalizers.entmax(nn.Parameter(torch.full((inputs["query"].shape[1],), 1.3)))}


SCORES = (
    Mechanism("dot", lambda inputs: {"score": "dot"}, partial(eager.attention, scale=1.0)),
    Mechanism("cosine", lambda inputs: {"score": scores.Cosine(temperature=0.2)}, _cosine),
    Mechanism(
        "distance", lambda inputs: {"score": "distance"}, _distance,
        others=(x_transformers(l2_distance=True, scale=1.0, note="l2_distance"),),
    ),
    Mechanism("general", lambda inputs: {"score": scores.General(inputs["matrix"])}, _general, ("matrix",)),
    Mechanism(
        "additive", lambda inputs: {"score": scores.Additive(inputs["weight"])}, eager.additive, ("weight",), 128,
        (192.0, 32.0, 1.0),
    ),
    Mechanism(
        "mlp", _mlp_options, _mlp, ("hidden", "out"), 2 * HIDDEN, (2.0 * HIDDEN, 0.0, 1.0), faster=(12, None),
        limited_by=MLP_BY,
    ),
    Mechanism("location", lambda inputs: {"score": scores.Location(inputs["places"])}, _location, ("places",)),
    Mechanism(
        "location-aware", _location_aware_options, _location_aware, ("weight", "filters", "located", "previous"), 128,
        (192.0, 32.0, 1.0),
    ),
    Mechanism(
        "soft-cap", lambda inputs: {"score": scores.SoftCap(scores.ScaledDot(), 2.0)}, _soft_cap, work=(1.0, 1.0, 2.0),
        others=(x_transformers(softclamp_logits=True, logit_softclamp_value=2.0, note="softclamp_logits"),),
    ),
    Mechanism(
        "modified", lambda inputs: {"score": scores.Modified(scores.ScaledDot(), _modify)}, _modified, faster=(1.2, 2),
        limited_by=MODIFIED_BY,
    ),
)  # fmt: skip

NORMALIZERS = (
    Mechanism("sink", lambda inputs: {"normalizer": normalizers.softmax_with_sink(0.0)},
              partial(eager.attention, normalize="sink"), units=4),
    Mechanism("entmax13", lambda inputs: {"normalizer": normalizers.entmax(1.3)}, _bisected, units=6,
              work=(2.0, 0.0, 0.0), faster=(15, None)),
    Mechanism("learned-alpha", _learned_alpha, _bisected, units=6, work=(2.0, 0.0, 0.0), faster=(15, None)),
    Mechanism("sigmoid", lambda inputs: {"normalizer": "sigmoid"}, partial(eager.attention, normalize="sigmoid"),
              work=(0.0, 1.0, 1.0), others=(x_transformers(sigmoid=True, note="sigmoid"),)),
    Mechanism("hard", lambda inputs: {"normalizer": normalizers.hard()}, partial(eager.attention, normalize="hard"),
              units=3, work=(0.0, 0.0, 0.0), others=(x_transformers(hard=True, note="hard"),), faster=(1.2, 2)),
    Mechanism("local-gaussian",
              lambda inputs: {"normalizer": normalizers.local_gaussian("softmax", inputs["center"], 16.0)},
              _local, ("center",), units=3, work=(1.0, 0.0, 2.0)),
)  # fmt: skip


def _plain(mechanism: Mechanism, names: tuple[str, ...]) -> tuple[Implementation, Implementation]:
    units = mechanism.units
    usual, compiled = plain(mechanism.function, names, matrices=units, compiled_matrices=min(4, units))
    # The compilation in seventeen processes would take as long as all other measurements of these tasks.
    return usual, replace(compiled, memory_measured=False)


def _task(kind: str, mechanism: Mechanism) -> Task:
    additional = mechanism.work
    # One product is that of the weights and the values; the other is that of queries and keys, if there is one.
    products = 1.0 if mechanism.units >= HIDDEN else 2.0

    def work(sizes: Sizes) -> Work:
        base = attention_work(sizes)
        number = pairs(sizes)
        return Work(
            multiply_adds=products * number * sizes["dim"] + additional[0] * number,
            reciprocals=additional[1] * number,
            exponentials=additional[2] * number,
            bytes=base.bytes,
            said="the matrix products, and the other operations of each pair",
        )

    names, faster = (*QKV, *mechanism.names), mechanism.faster
    return Task(
        name=f"{kind}-{mechanism.name}",
        title=(f"{mechanism.name} score" if kind == "score" else f"{mechanism.name} normalizer")
        + ", {batch}×{heads}×{queries}×{dim}",
        group="Every score, with softmax" if kind == "score" else "Every normalizer, of scaled dot products",
        sizes=sizes(1, 4, 1024),
        quick=sizes(1, 2, 128),
        inputs=_inputs,
        implementations=(regard(mechanism.options), *_plain(mechanism, names), *mechanism.others),
        work=work,
        oracle=by_rows(mechanism.function, names, per_pair=max(4, mechanism.units)),
        requirements=() if faster is None else (Requirement("faster", faster[0], "eager", faster[1]),),
        limited_by=mechanism.limited_by,
    )


TASKS = (
    *(_task("score", mechanism) for mechanism in SCORES),
    *(_task("normalizer", mechanism) for mechanism in NORMALIZERS),
    *(
        attention_task(name, "Every normalizer, of scaled dot products", (1, 4, 1024), (), "normalizer-")
        for name in ("sparsemax", "entmax15")
    ),
)
