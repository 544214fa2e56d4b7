"""Attention in half precision: steps of a decoder over many keys, and dense calls."""

import torch

from bench import eager
from bench.inner_product import QKV, all_implementations, causal_keep, make_inputs, openvino, pairs, regard, sdpa, sizes
from bench.oracle import by_rows
from bench.own_backends import own_backends
from bench.prepared_call import FunctionAndArguments, torch_builder
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, Sizes, Task, Work
from bench.tasks.decoding import attention_of_groups
from bench.tasks.decoding import inputs as decoding_inputs
from regard import masks

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def in_dtype(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Queries, keys, values and gradients, rounded."""
    return {name: part.to(dtype) if part.is_floating_point() else part for name, part in inputs.items()}


def name_of(dtype: torch.dtype) -> str:
    """Returns the dtype's name."""
    return str(dtype).removeprefix("torch.")


def _step(name: str, heads: int, kv_heads: int, dtype: torch.dtype, faster: float) -> Task:
    item, grouped = dtype.itemsize, heads != kv_heads

    def bind(inputs: Inputs) -> FunctionAndArguments:
        return attention_of_groups, tuple(inputs[each] for each in QKV)

    def work(sizes: Sizes) -> Work:
        keys, dim = sizes["batch"] * sizes["keys"], sizes["dim"]
        return Work(
            multiply_adds=2.0 * keys * sizes["heads"] * dim,
            exponentials=1.0 * keys * sizes["heads"],
            bytes=2.0 * item * keys * sizes["kv_heads"] * dim,
            said="each key and value is read once, in its own dtype",
        )

    return Task(
        name=f"half-step-{name}",
        title=f"one query a step in {name_of(dtype)}, {{heads}} heads on {{kv_heads}}, {{keys}}×{{dim}}",
        group="Half precision",
        sizes={"batch": 1, "heads": heads, "kv_heads": kv_heads, "keys": 8192, "dim": 128},
        quick={"batch": 1, "heads": heads, "kv_heads": kv_heads, "keys": 512, "dim": 128},
        inputs=lambda sizes: in_dtype(decoding_inputs(sizes), dtype),
        implementations=(
            regard(),
            *own_backends("cpu", "sdpa"),
            Implementation("eager", torch_builder(bind), memory_measured=False),
            sdpa(grouped=grouped),
        ),
        work=work,
        oracle=by_rows(attention_of_groups, QKV),
        requirements=(Requirement("faster", faster, "sdpa"),),
    )


def _dense(
    name: str, length: int, dim: int, dtype: torch.dtype, *, causal: bool = False, backward: bool = False
) -> Task:
    gradients = QKV if backward else ()
    said = f"{', causal' if causal else ''}{', forward + backward' if backward else ''}"
    taken = {"regard", "eager", "compile", "sdpa"}
    options = (lambda inputs: {"mask": masks.causal()}) if causal else None
    rivals = tuple(one for one in all_implementations(gradients, causal=causal) if one.column in taken)

    def work(sizes: Sizes) -> Work:
        rows = sizes["batch"] * sizes["heads"] * (sizes["queries"] + sizes["keys"])
        seen = pairs(sizes) * (0.5 if causal else 1.0)
        return Work(
            multiply_adds=2.0 * (3.5 if backward else 1.0) * seen * sizes["dim"],
            exponentials=(2.0 if backward else 1.0) * seen,
            bytes=2.0 * dtype.itemsize * rows * sizes["dim"] * (2.0 if backward else 1.0),
            said="as in float32: the limit counts multiply-adds of float32",
        )

    return Task(
        name=f"half-dot-{name}",
        title=f"scaled dot product in {name_of(dtype)}{said}, {{batch}}×{{heads}}×{{queries}}×{{dim}}",
        group="Half precision",
        sizes=sizes(1, 8, length, dim),
        quick=sizes(1, 2, 256, dim),
        inputs=lambda sizes: in_dtype(make_inputs(sizes), dtype),
        implementations=(
            *rivals,
            *(() if backward else (*own_backends("cpu", "sdpa", options=options), openvino(causal=causal))),
        ),
        work=work,
        oracle=by_rows(eager.attention, QKV, gradients, per_pair=4, keep=causal_keep if causal else None),
        requirements=(
            Requirement("slower", 1.03, "sdpa"),
            *(() if backward else (Requirement("faster", 1.0, "openvino"),)),
        ),
        backward=backward,
    )


TASKS = (
    *(_step(name, 8, 8, dtype, 1.0 if name == "fp32" else 5.0) for name, dtype in DTYPES.items()),
    _step("shared-fp16", 32, 8, torch.float16, 5.0),
    _dense("fp32-wide", 1024, 128, torch.float32),
    _dense("bf16", 1024, 64, torch.bfloat16),
    _dense("bf16-wide", 512, 128, torch.bfloat16),
    _dense("bf16-causal", 1024, 64, torch.bfloat16, causal=True),
    _dense("bf16-backward", 1024, 64, torch.bfloat16, backward=True),
    _dense("fp16", 1024, 64, torch.float16),
)
