"""Windows and unequal lengths: masks that reduce the number of pairs."""

from typing import Any

import torch
from torch import Tensor

from bench import eager
from bench.inner_product import (
    QKV,
    jax,
    keras,
    make_inputs,
    onnxruntime,
    plain,
    regard,
    sdpa,
    sizes,
    x_transformers,
)  # fmt: skip
from bench.oracle import by_rows
from bench.own_backends import own_backends
from bench.requirement import Requirement
from bench.task import Inputs, Sizes, Task, Work
from regard import masks

WINDOW = 512
"""Keys before its own key that a query of the window task sees."""

NARROW, PREFIX = 128, 4
"""The same of the task with a prefix, and the first keys, which every query from their own on sees."""


def _window(inputs: Inputs) -> Tensor:
    query = torch.arange(inputs["query"].shape[2])[:, None]
    key = torch.arange(inputs["key"].shape[2])[None, :]
    return ((key <= query) & (key >= query - WINDOW))[None, None]


def _window_and_prefix(inputs: Inputs) -> Tensor:
    query = torch.arange(inputs["query"].shape[2])[:, None]
    key = torch.arange(inputs["key"].shape[2])[None, :]
    return ((key <= query) & ((key >= query - NARROW) | (key < PREFIX)))[None, None]


def _windowed_with_prefix(inputs: Inputs) -> dict[str, Any]:
    return {"mask": masks.window(NARROW, 0) | masks.prefix(PREFIX) & masks.causal()}


def _window_and_prefix_work(sizes: Sizes) -> Work:
    width = min(NARROW + 1, sizes["keys"])
    seen = sizes["queries"] * width - width * (width - 1) / 2
    # Of the first keys, those before a row's window.
    seen += sum(min(PREFIX, max(0, row - NARROW)) for row in range(sizes["queries"]))
    return _work(sizes, sizes["batch"] * sizes["heads"] * seen)


def _windowed(inputs: Inputs) -> dict[str, Any]:
    return {"mask": masks.window(WINDOW, 0)}


def _window_work(sizes: Sizes) -> Work:
    width = min(WINDOW + 1, sizes["keys"])
    seen = sizes["batch"] * sizes["heads"] * (sizes["queries"] * width - width * (width - 1) / 2)
    return _work(sizes, seen)


def _work(sizes: Sizes, seen: float) -> Work:
    rows = sizes["batch"] * sizes["heads"] * (sizes["queries"] + sizes["keys"])
    return Work(
        multiply_adds=2.0 * seen * sizes["dim"],
        exponentials=seen,
        bytes=4.0 * 2 * rows * sizes["dim"],
        said="two matrix products and an exponential for every pair that the mask allows",
    )


def _ragged_inputs(sizes: Sizes) -> Inputs:
    inputs = make_inputs(sizes)
    longest = sizes["queries"]
    generator = torch.Generator().manual_seed(16)
    lengths = torch.randint(16, longest + 1, (sizes["batch"],), generator=generator)
    return {**inputs, "lengths": lengths, "valid": (torch.arange(longest) < lengths[:, None])[:, None, :, None]}


def _padding(inputs: Inputs) -> Tensor:
    return (torch.arange(inputs["key"].shape[2]) < inputs["lengths"][:, None])[:, None, None, :]


def _ragged_work(sizes: Sizes, *, keys_only: bool) -> Work:
    # The same seeded lengths again, since the number of operations depends on them.
    lengths = _ragged_inputs({**sizes, "heads": 1, "dim": 1})["lengths"].double()
    seen = (lengths * sizes["queries"] if keys_only else lengths**2).sum()
    return _work(sizes, float(seen) * sizes["heads"])


def _ragged(name: str, title: str, *, keys_only: bool, about: str) -> Task:
    def options(inputs: Inputs) -> dict[str, Any]:
        lengths = inputs["lengths"]
        return {"mask": masks.lengths(lengths) if keys_only else masks.lengths(lengths, lengths)}

    padded = "" if keys_only else "computes the padded queries as well"

    def lengths_of(inputs: Inputs, jnp: Any) -> dict[str, Any]:
        lengths = jnp.asarray(inputs["lengths"].numpy().astype("int32"))
        return {"key_value_seq_lengths": lengths} if keys_only else {
            "key_value_seq_lengths": lengths, "query_seq_lengths": lengths
        }  # fmt: skip

    return Task(
        name=name,
        title=title + ", batch {batch}, {heads} heads, lengths 16…{queries}, dim {dim}",
        group="Masks",
        sizes=sizes(32, 4, 512),
        quick=sizes(4, 2, 128),
        large=sizes(32, 16, 2048),
        inputs=_ragged_inputs,
        implementations=(
            regard(options),
            *(() if keys_only else own_backends("cpu", "sdpa", "triton", options=options)),
            *plain(eager.attention, keep=_padding, note=padded),
            sdpa(keep=_padding, note=padded),
            keras(keep=_padding, note=padded),
            jax(keywords=lengths_of),
            onnxruntime(keep=_padding, note=padded),
            x_transformers(keep=_padding, note=padded),
        ),
        work=lambda sizes: _ragged_work(sizes, keys_only=keys_only),
        oracle=by_rows(eager.attention, QKV, keep=_padding, per_pair=2),
        requirements=(Requirement("faster", 1.8, "sdpa", 2.2),),
        about=about,
        limited_by=RAGGED_LIMITED_BY,
    )


CHOSEN = 256
"""Keys that each query of the tasks of lists chooses."""


def _chosen_inputs(sizes: Sizes) -> Inputs:
    inputs = make_inputs(sizes)
    inputs |= {name: inputs[name][:, : sizes["kv_heads"]] for name in ("key", "value")}
    Q, K = sizes["queries"], sizes["keys"]
    chosen = torch.rand(1, 1, Q, K, generator=torch.Generator().manual_seed(9))
    return {**inputs, "index": chosen.topk(min(CHOSEN, K), -1).indices.sort(-1).values}


def _chosen_keep(inputs: Inputs) -> Tensor:
    index, K = inputs["index"], inputs["key"].shape[2]
    return torch.zeros(*index.shape[:3], K, dtype=torch.bool).scatter(-1, index, True)


def _chosen_work(sizes: Sizes) -> Work:
    rows = sizes["batch"] * sizes["heads"] * sizes["queries"]
    return Work(
        multiply_adds=2.0 * rows * min(CHOSEN, sizes["keys"]) * sizes["dim"],
        exponentials=1.0 * rows * min(CHOSEN, sizes["keys"]),
        bytes=16.0 * rows * sizes["dim"],
        said=f"two matrix products and an exponential for each of {CHOSEN} keys a query",
    )


CHOSEN_LIMITED_BY = """\
Each head reads the listed keys and values of its own for each query, 128 KiB, for 32,768 multiply-adds: from the L3
cache that takes several times as long as the products. Heads that share keys read them once."""


def _chosen(heads: int, length: int, faster: float, *, shared: bool) -> Task:
    more = {"kv_heads": 1 if shared else heads}
    return Task(
        name=f"columns-{length}{'-shared' if shared else ''}",
        title=f"{CHOSEN} keys of {{keys}}, chosen by each query, {{batch}}×{{heads}}×{{queries}}×{{dim}}"
        + (", one head of keys" if shared else ""),
        group="Masks",
        sizes=sizes(1, heads, length) | more,
        quick=sizes(1, 2, 512) | {"kv_heads": 1 if shared else 2},
        inputs=_chosen_inputs,
        implementations=(
            regard(lambda inputs: {"mask": masks.columns(inputs["index"])}),
            *plain(eager.attention, keep=_chosen_keep, matrices=3.0, compiled_matrices=3.0),
            sdpa(keep=_chosen_keep, grouped=shared, note="a dense mask"),
        ),
        work=_chosen_work,
        oracle=by_rows(eager.attention, QKV, keep=_chosen_keep, per_pair=2),
        requirements=(Requirement("faster", faster, "sdpa"),),
        about="All heads share a query's list, as of an indexer or the edges of a graph.",
        limited_by="" if shared else CHOSEN_LIMITED_BY,
    )


RAGGED_LIMITED_BY = """\
On a Zen 4 rounds of 21 ms, more than half of the limit, come in turns with rounds of 45 ms. In these the C library has
given freed memory back to the system before: 6,360 pages of the output and of the threads' own memory are mapped and
cleared again, which takes 3.7 µs each on that machine. The output alone has 4,096 pages; PyTorch's kernel then takes 75
in place of 61 ms. A run's median may be of either kind."""


TASKS = (
    Task(
        name="window",
        title=f"window of {WINDOW}, {{batch}}×{{heads}}×{{queries}}×{{dim}}",
        group="Masks",
        sizes=sizes(1, 4, 8192),
        quick=sizes(1, 2, 1024),
        large=sizes(1, 16, 16384),
        inputs=make_inputs,
        implementations=(
            regard(_windowed),
            *own_backends("cpu", "sdpa", "flex", "triton", options=_windowed),
            *plain(eager.attention, keep=_window, matrices=3.0, compiled_matrices=3.0),
            sdpa(keep=_window, note="a dense mask"),
            jax(keywords=lambda inputs, jnp: {"local_window_size": (WINDOW, 0)}),
            onnxruntime(keep=_window, note="a dense mask"),
            x_transformers(keep=_window, note="flash with a dense mask", flash=True),
        ),
        work=_window_work,
        oracle=by_rows(eager.attention, QKV, keep=_window, per_pair=2),
        requirements=(Requirement("faster", 10, "sdpa", 16),),
        about="Each query sees its own key and the 512 before it.",
    ),
    Task(
        name="window-prefix",
        title=f"window of {NARROW} and the first {PREFIX} keys, {{batch}}×{{heads}}×{{queries}}×{{dim}}",
        group="Masks",
        sizes=sizes(1, 4, 8192),
        quick=sizes(1, 2, 1024),
        large=sizes(1, 16, 16384),
        inputs=make_inputs,
        implementations=(
            regard(_windowed_with_prefix),
            *plain(eager.attention, keep=_window_and_prefix, matrices=3.0, compiled_matrices=3.0),
            sdpa(keep=_window_and_prefix, note="a dense mask"),
        ),
        work=_window_and_prefix_work,
        oracle=by_rows(eager.attention, QKV, keep=_window_and_prefix, per_pair=2),
        requirements=(Requirement("faster", 10, "sdpa", 20),),
        about=f"Each query sees its own key, the {NARROW} before it, and the first {PREFIX} keys as sinks.",
    ),
    *(_chosen(8, 2048, 5.0, shared=shared) for shared in (True, False)),
    *(_chosen(4, 8192, 15.0, shared=shared) for shared in (True, False)),
    _ragged(
        "ragged", "unequal lengths", keys_only=False,
        about="Queries and keys have these lengths; padded queries are not compared.",
    ),
    _ragged(
        "ragged-keys", "unequal lengths of the keys alone", keys_only=True,
        about="Only keys have lengths; all implementations compute every query.",
    ),
)  # fmt: skip
