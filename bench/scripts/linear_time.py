"""Measures attention in linear time on one thread: cost by length, plain PyTorch beside it, and decoding.

    python -m bench.scripts.linear_time [--lengths 1024 4096 16384 65536] [--gradient]

Prints for each mechanism the seconds of a call by length, their ratio for a doubling, and the ratio of plain PyTorch
(chunks with a cumulative sum, and the quadratic form where it fits) to regard. Then the memory and the time of a step
of decoding after few and after many tokens.
"""

import argparse
import math
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

import regard
from regard import nn, scores
from regard.normalizers import NormalizerName

HEADS, DIM, CHUNK = 4, 64, 64
QUADRATIC = 4096
"""The longest sequence of the quadratic form."""


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """Returns the shortest time of some calls, after one that is not counted."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def inputs(length: int, gradient: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Query, key, value, a decay a token, a decay a feature, and strengths."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, HEADS, length, DIM, generator=generator) for _ in range(3))
    token = -0.2 * torch.rand(1, HEADS, length, generator=generator)
    feature = -0.2 * torch.rand(1, HEADS, length, DIM, generator=generator)
    beta = torch.rand(1, HEADS, length, generator=generator)
    return (
        query.requires_grad_(gradient),
        key.requires_grad_(gradient),
        value.requires_grad_(gradient),
        token,
        feature,
        beta,
    )


def plain_chunks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Kernel features in chunks, whose states are a cumulative sum."""
    query, key = F.elu(query) + 1, F.elu(key) + 1
    value = F.pad(value, (0, 1), value=1.0)
    query, key, value = (tensor.unflatten(2, (-1, CHUNK)) for tensor in (query, key, value))
    added = key.mT @ value
    before = added.cumsum(2) - added
    output = (query @ before + (query @ key.mT).tril() @ value).flatten(2, 3)
    return output[..., :-1] / output[..., -1:]


def plain_square(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Kernel features by all pairs."""
    weights = ((F.elu(query) + 1) @ (F.elu(key) + 1).mT).tril()
    return weights / weights.sum(-1, keepdim=True) @ value


def plain_decay(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """A decay a token, in chunks whose states follow one another in a loop."""
    query, key, value = (tensor.unflatten(2, (-1, CHUNK)) for tensor in (query * DIM**-0.5, key, value))
    sums = log_decay.unflatten(2, (-1, CHUNK)).cumsum(-1)[..., None]
    inside = ((query @ key.mT) * (sums - sums.mT).clamp(max=0).exp()).tril() @ value
    added = (key * (sums[..., -1:, :] - sums).exp()).mT @ value
    kept = sums[..., -1:, :].exp()
    state, states = torch.zeros_like(added[:, :, 0]), []
    for index in range(added.shape[2]):
        states.append(state)
        state = kept[:, :, index] * state + added[:, :, index]
    return ((query * sums.exp()) @ torch.stack(states, dim=2) + inside).flatten(2, 3)


def measured(call: Callable[[], Tensor], gradient: bool) -> float:
    return seconds((lambda: call().sum().backward()) if gradient else call)


def calls_of(length: int, gradient: bool) -> dict[str, Callable[[], Tensor] | None]:
    """Returns the calls that are measured by their name; None: the sequence is too long for this form."""
    query, key, value, token, feature, beta = inputs(length, gradient)

    def attend(score: scores.Score, normalizer: NormalizerName = "identity") -> Callable[[], Tensor]:
        return lambda: regard.attend(
            query, key, value, score=score, normalizer=normalizer, mask="causal", backend="linear"
        )

    return {
        "features": attend(scores.Features("elu"), "ratio"),
        "  plain chunks": lambda: plain_chunks(query, key, value),
        "  plain square": (lambda: plain_square(query, key, value)) if length <= QUADRATIC else None,
        "decay a token": attend(scores.Decayed("scaled_dot", token)),
        "  plain decay": lambda: plain_decay(query, key, value, token),
        "decay a feature": attend(scores.Decayed("scaled_dot", feature)),
        "delta rule": attend(scores.DeltaRule("cosine", beta)),
        "gated delta": attend(scores.DeltaRule(scores.Decayed("cosine", token), beta)),
    }


def costs(lengths: list[int], gradient: bool) -> None:
    rows: dict[str, list[float]] = {}
    for length in lengths:
        for name, call in calls_of(length, gradient).items():
            rows.setdefault(name, []).append(math.nan if call is None else measured(call, gradient))
    print(f"seconds, {HEADS} heads of {DIM}" + ", with gradient" * gradient)
    print(f"{'':16}" + "".join(f"{length:>10,}" for length in lengths) + "   a doubling")
    doublings = max(1.0, math.log2(lengths[-1] / lengths[0]))
    for name, times in rows.items():
        ratio = (times[-1] / times[0]) ** (1.0 / doublings)
        print(f"{name:16}" + "".join(f"{each:10.4f}" for each in times) + f"{ratio:13.2f}")


@torch.no_grad()
def decoding() -> None:
    print("\na step of decoding, 4 heads of 64: elements of the cache, and microseconds")
    for name, kind in (("linear", nn.LinearAttention), ("retention", nn.Retention), ("gated delta", nn.GatedDeltaNet)):
        layer, parts = kind(HEADS * DIM, HEADS).eval(), []
        for length in (64, 16_384):
            x = torch.randn(1, length, HEADS * DIM)
            cache = layer(x, mask="causal", cache=layer.new_cache()).cache
            taken = seconds(partial(layer, x[:, :1], mask="causal", cache=cache), 30)
            parts.append(f"after {length:,}: {cache.state.numel():,} elements, {taken * 1e6:,.0f} µs")
        print(f"{name:12} " + "; ".join(parts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096, 16_384, 65_536])
    parser.add_argument("--gradient", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    costs(options.lengths, options.gradient)
    decoding()
