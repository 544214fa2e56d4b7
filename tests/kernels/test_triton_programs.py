"""Kernels of ``triton`` are compiled for a GPU without one, to Triton's intermediate code; other lengths share them."""

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from regard.kernels.triton.call import CODES, Call

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
if os.environ.get("TRITON_INTERPRET", "0") != "0":
    pytest.skip("Triton's interpreter compiles nothing", allow_module_level=True)

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime import jit

from regard.kernels.triton import launch

TARGET = GPUTarget("cuda", 90, 32)
QUERIES, KEYS = 100, 130


class Recorded:
    """A kernel that notes its arguments in place of running."""

    def __init__(self, kernel, launches):
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.launches.append((self.kernel, arguments, options))


@pytest.fixture
def launches(monkeypatch):
    launches = []
    for name in ("program", "unit_powers"):
        monkeypatch.setattr(launch, name, Recorded(getattr(launch, name), launches))
    return launches


def specialization(backend, kernel, arguments, options):
    """What Triton tells the compiled forms of a kernel apart by."""
    binder = jit.create_function_from_signature(kernel.signature, kernel.params, backend)
    return binder(*arguments, **options, debug=False)


def intermediate_code(kernel, arguments, options):
    backend = make_backend(TARGET)
    bound, special, _ = specialization(backend, kernel, arguments, options)
    parsed, signature, constants, attributes = kernel._pack_args(
        backend, {**options, "debug": False}, bound, special, options
    )
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = ASTSource(kernel, signature, constants, attributes)
    codegen = backend.get_codegen_implementation(parsed)
    return str(source.make_ir(TARGET, parsed, codegen, backend.get_module_map(), context))


def leaf(*sizes, dtype=torch.float32):
    return torch.zeros(sizes, dtype=dtype, requires_grad=True)


def call(heads=4, kv_heads=2, queries=QUERIES, keys=KEYS, dim=64, value_dim=64, dtype=torch.float16, **parts):
    query, key, value = (
        leaf(2, *sizes, dtype=dtype)
        for sizes in ((heads, queries, dim), (kv_heads, keys, dim), (kv_heads, keys, value_dim))
    )
    return Call(query, key, value, **parts)


def spans(runs, queries=QUERIES) -> dict[str, Any]:
    start = torch.zeros(2, 1, queries, runs, dtype=torch.int32)
    return {"start": start, "stop": start + 1}


def run(one):
    """Runs all passes of a call."""
    output, maximum, total = launch.attend(one)
    output.sum().backward()
    readings = {name: torch.zeros_like(total) for name in ("lse", "entropy", "peak", "distance")}
    readings["received"] = total.new_zeros(*total.shape[:2], one.key.shape[2])
    launch.read(one, maximum, total, readings, 30)


@pytest.mark.parametrize(
    "make",
    [
        lambda normalizer: call(normalizer=normalizer, **spans(1)),
        lambda normalizer: call(normalizer=normalizer, dropout=0.5, bias=leaf(1, 4, QUERIES, KEYS), cap=3),
        lambda normalizer: call(
            normalizer=normalizer, dtype=torch.float32, bias=leaf(4, QUERIES + KEYS - 1), **spans(2)
        ),
        lambda normalizer: call(
            normalizer=normalizer, dim=33, weight=leaf(4, 33), sink=leaf(4) if normalizer == "softmax" else None,
            mask=torch.ones(2, 1, QUERIES, KEYS, dtype=torch.bool),
        ),
    ],
    ids=["spans", "bias", "diagonals", "units"],
)  # fmt: skip
@pytest.mark.parametrize("normalizer", CODES)
def test_kernels_have_intermediate_code(launches, make, normalizer):
    run(make(normalizer))
    names = {intermediate_code(*one).partition("tt.func public @")[2].partition("(")[0] for one in launches}
    assert names - {"unit_powers"} == {"forward", "backward_rows", "backward_columns", "read_rows"}


def test_other_lengths_heads_and_alignments_compile_nothing(launches):
    """Integers of 1 and multiples of 16 are other kernels to Triton, unless it is told that they are not."""

    def kernels(heads, kv_heads, queries, keys, batch_bias):
        launches.clear()
        bias = leaf(heads, queries + keys - 1) if batch_bias else leaf(1, queries + keys - 1)
        run(call(heads, kv_heads, queries, keys, bias=bias, dropout=0.5, seed=queries, **spans(1, queries)))
        backend = make_backend(TARGET)
        return [str(specialization(backend, *one)[1:]) for one in launches]

    expected = kernels(4, 2, 100, 130, True)
    assert len(expected) == 4
    for sizes in ((16, 16, 16, 16, True), (3, 1, 17, 1, True), (1, 1, 1, 131, False), (2, 2, 131, 64, True)):
        assert kernels(*sizes) == expected, sizes
