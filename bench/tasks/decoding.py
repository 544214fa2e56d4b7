"""One query a step over cached keys and values, as a language model has it when it writes a text."""

import torch
from torch import Tensor

from bench import eager
from bench.inner_product import QKV, Options, random_tensor, regard, sdpa
from bench.oracle import by_rows
from bench.own_backends import own_backends
from bench.prepared_call import FunctionAndArguments, torch_builder
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, Sizes, Task, Work
from regard import masks
from regard.shapes.grid import spread_heads


def inputs(sizes: Sizes) -> Inputs:
    """One query for each head, and the keys and values of a memory, whose rows differ in length."""
    B, H, KV, K, D = (sizes[name] for name in ("batch", "heads", "kv_heads", "keys", "dim"))
    return {
        "query": random_tensor(B, H, 1, D, seed=0),
        "key": random_tensor(B, KV, K, D, seed=1),
        "value": random_tensor(B, KV, K, D, seed=2),
        "lengths": torch.linspace(K // 16, K, B).long(),
    }


def _keep(inputs: Inputs) -> Tensor:
    return (torch.arange(inputs["key"].shape[2]) < inputs["lengths"][:, None])[:, None, None, :]


def attention_of_groups(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None = None) -> Tensor:
    """Attention whose heads share keys and values in groups, in plain PyTorch."""
    heads = query.shape[1]
    return eager.attention(query, spread_heads(key, heads), spread_heads(value, heads), keep)


def _work(sizes: Sizes, *, ragged: bool) -> Work:
    keys = sizes["batch"] * (0.5 * (1 + 1 / 16) if ragged else 1.0) * sizes["keys"]
    return Work(
        multiply_adds=2.0 * keys * sizes["heads"] * sizes["dim"],
        exponentials=keys * sizes["heads"],
        bytes=8.0 * keys * sizes["kv_heads"] * sizes["dim"],
        said="two matrix products and an exponential for every pair that is seen; each key and value is read once",
    )


def _task(
    name: str,
    title: str,
    sizes: dict[str, int],
    options: Options | None,
    requirement: Requirement,
    *,
    ragged: bool = False,
) -> Task:
    grouped = sizes["heads"] != sizes["kv_heads"]

    def bind(inputs: Inputs) -> FunctionAndArguments:
        return attention_of_groups, (*(inputs[each] for each in QKV), *((_keep(inputs),) if ragged else ()))

    return Task(
        name=f"decode-{name}",
        title=f"one query a step{title}, {{batch}}×{{heads}}×{{keys}}×{{dim}}",
        group="Decoding",
        sizes=sizes,
        quick={**sizes, "batch": min(sizes["batch"], 2), "keys": 256},
        inputs=inputs,
        implementations=(
            regard(options),
            *own_backends("cpu", "sdpa", options=options),
            Implementation("eager", torch_builder(bind)),
            sdpa(keep=_keep if ragged else None, grouped=grouped, note="a dense mask" if ragged else ""),
        ),
        work=lambda sizes: _work(sizes, ragged=ragged),
        oracle=by_rows(attention_of_groups, QKV, keep=_keep if ragged else None),
        requirements=(requirement,),
        limited_by=LIMITED_BY,
    )


LIMITED_BY = """\
A step reads keys and values once, 128 MiB for the groups of heads, at about the rate at which the machine copies memory
(see the table of limits below). So the ratio is what the time of PyTorch's kernel is to that of reading memory."""


def _sizes(batch: int, heads: int, kv_heads: int, keys: int) -> dict[str, int]:
    return {"batch": batch, "heads": heads, "kv_heads": kv_heads, "queries": 1, "keys": keys, "dim": 64}


TASKS = (
    _task("plain", "", _sizes(1, 8, 8, 4096), None, Requirement("faster", 1.0, "sdpa", 1.5)),
    _task(
        "causal", ", causal()", _sizes(1, 8, 8, 4096), lambda inputs: {"mask": masks.causal()},
        Requirement("faster", 1.0, "sdpa", 1.5),
    ),
    _task(
        "ragged", ", lengths 64…{keys}", _sizes(32, 8, 8, 1024),
        lambda inputs: {"mask": masks.lengths(inputs["lengths"])},
        Requirement("faster", 1.5, "sdpa", 2.0), ragged=True,
    ),
    _task("grouped", " on {kv_heads} heads of keys", _sizes(32, 32, 8, 1024), None, Requirement("faster", 2, "sdpa")),
)  # fmt: skip
