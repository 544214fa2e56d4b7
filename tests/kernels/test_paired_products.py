"""Products of bfloat16 in pairs: their results on every processor, and the machine code for one with instructions."""

import ctypes

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from llvmlite import binding as llvm
from llvmlite import ir

import regard
from covering import covering
from kernels.oracle import tensors
from regard import masks
from regard.attention.backends.cpu import inputs
from regard.attention.problem import validate
from regard.kernels.cpu.bodies.compiler import compiled
from regard.kernels.cpu.bodies.stored_numbers import dot_pairs, rounded_bits, store_pairs, store_rounded
from regard.kernels.cpu.sizes import LANES
from regard.normalizers import softmax_with_sink

EPS = torch.finfo(torch.bfloat16).eps


@pytest.fixture
def paired(monkeypatch):
    monkeypatch.setattr(inputs, "multiplies_bfloat16", lambda: True)


def dense_attention(query, key, value, visible=None, sink=None):
    """The dense formula: output, log-sum-exps and weights."""
    key, value = (tensor.repeat_interleave(query.shape[1] // tensor.shape[1], 1) for tensor in (key, value))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    lse = scores.logsumexp(-1)
    total = lse if sink is None else torch.logaddexp(lse, torch.full_like(lse, sink))
    weights = torch.where(scores == -torch.inf, 0.0, (scores - total[..., None]).exp())
    return weights @ value, lse


@pytest.mark.skipif(
    "x86_64" not in llvm.get_process_triple() and "amd64" not in llvm.get_process_triple(), reason="for x86"
)
def test_machine_code_has_the_instructions_of_bfloat16():
    singles, integers = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(singles, [singles, integers, integers]), "multiply")
    builder = ir.IRBuilder(function.append_basic_block())
    sums, pairs, others = function.args
    builder.ret(dot_pairs(builder, rounded_bits(builder, pairs, True), others, sums, True))
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu="znver4", opt=2)
    code = machine.emit_assembly(llvm.parse_assembly(str(module)))
    assert code.count("vdpbf16ps") == 1
    assert code.count("vcvtneps2bf16") == 1


def test_rounding_and_packing_are_those_of_pytorch():
    generator = torch.Generator().manual_seed(5)
    bits = torch.randint(1 << 23, 0x7F800000, (62, 2, LANES), generator=generator, dtype=torch.int32)
    bits[1::2] |= -(1 << 31)
    bits[:, :, :8] = bits[:, :, :8] & -0x10000 | 0x8000  # halfway between two numbers
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 3.3895e38, 1.0, -1.0]).repeat(2, 2)
    numbers = torch.cat([bits.view(torch.float32), special.view(1, 2, LANES)]).contiguous()
    rounded, packed, alone = (torch.zeros(63, 2 * LANES, dtype=torch.int16) for _ in range(3))
    source, targets = numbers.data_ptr(), [tensor.data_ptr() for tensor in (rounded, packed, alone)]
    to_rounded, to_packed, to_alone = targets

    def body(address):
        for i in range(63):
            first, row = address + 8 * LANES * i, 4 * LANES * i
            store_rounded(first, to_rounded + row)
            store_rounded(first + 4 * LANES, to_rounded + row + 2 * LANES)
            store_pairs(first, first + 4 * LANES, to_packed + row, 0)
            store_pairs(first, 0, to_alone + row, 0)

    code, _ = compiled(body, "tried")
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.link())(source)
    expected = numbers.bfloat16()

    def equal(got, wanted):
        np.testing.assert_array_equal(got.view(torch.bfloat16).float().numpy(), wanted.float().numpy())

    equal(rounded, expected.flatten(1))
    equal(packed, expected.mT.flatten(1))
    equal(alone, torch.stack([expected[:, 0], torch.zeros_like(expected[:, 0])], -1).flatten(1))


@covering(
    queries=[17, 83],
    keys=[70, 201],
    features=[(64, 64), (48, 80), (33, 24)],
    kv_heads=[1, 2, 4],
    mask=["none", "causal", "window", "lengths"],
    sink=[None, 0.5],
)
def test_pairs_are_exact_but_for_rounded_weights(paired, queries, keys, features, kv_heads, mask, sink):
    dim, value_dim = features
    named = tensors(
        query=(2, 4, queries, dim), key=(2, kv_heads, keys, dim), value=(2, kv_heads, keys, value_dim),
        dtype=torch.bfloat16,
    )  # fmt: skip
    leaves = [tensor.requires_grad_() for tensor in named.values()]
    exact = [tensor.detach().double().requires_grad_() for tensor in leaves]
    distance = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
    lengths = torch.tensor([3, keys])[:, None, None, None]
    form, visible = {
        "none": (None, None),
        "causal": (masks.causal(), distance >= 0),
        "window": (masks.window(9, 2), (distance <= 9) & (distance >= -2)),
        "lengths": (masks.lengths([3, keys]), torch.arange(keys) < lengths),
    }[mask]
    arguments = {"mask": form, "normalizer": "softmax" if sink is None else softmax_with_sink(sink), "backend": "cpu"}
    assert inputs.kernel_inputs(validate(*leaves)).paired
    output = regard.attend(*leaves, **arguments)
    expected, lse = dense_attention(*exact, visible, sink)
    largest = float(exact[2].detach().abs().max())
    # Half a unit of each weight, whose sum is 1 at most, and half a unit of the output.
    torch.testing.assert_close(output.detach().double(), expected.detach(), rtol=EPS / 2, atol=EPS / 2 * largest + 1e-5)
    with torch.no_grad():
        seen = regard.observe(*leaves, **arguments)
        assert torch.equal(seen.output, regard.attend(*leaves, **arguments))
        assert torch.equal(seen.output, output)
    seen_rows = lse > -torch.inf
    torch.testing.assert_close(seen.lse.double()[seen_rows], lse.detach()[seen_rows], rtol=0, atol=1e-5)
    grad_output = torch.randint(-3, 4, output.shape, generator=torch.Generator().manual_seed(3)).bfloat16()
    got = torch.autograd.grad(output, leaves, grad_output)
    wanted = torch.autograd.grad(expected, exact, grad_output.double())
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=EPS, atol=EPS * float(theirs.abs().max()))


def test_hidden_numbers_never_reach_products_in_pairs(paired):
    query, key, value = tensors(
        query=(2, 2, 40, 32), key=(2, 2, 70, 32), value=(2, 2, 70, 32), dtype=torch.bfloat16
    ).values()
    mask = masks.lengths([50, 60])
    clean = regard.attend(query, key, value, mask=mask, backend="cpu")
    key[0, :, 50:], value[1, :, 60:] = torch.nan, torch.inf
    assert torch.equal(regard.attend(query, key, value, mask=mask, backend="cpu"), clean)
    value[1, 0, 3, 5] = torch.nan
    got = regard.attend(query, key, value, mask=mask, backend="cpu")
    assert got[1, 0, :, 5].isnan().all()
    # The specification, which computes this call, rounds no weight.
    torch.testing.assert_close(got[0], clean[0], rtol=EPS, atol=EPS)
