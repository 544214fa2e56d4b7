"""Keys and values of a few queries that are stored in half precision: kernels convert them in registers."""

import ctypes

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

import regard
from covering import covering
from kernels.oracle import tensors
from regard import masks
from regard.attention.backends.cpu.inputs import is_stored_in_half
from regard.attention.problem import validate
from regard.biases import alibi
from regard.kernels.cpu import kernel_arguments, operators
from regard.kernels.cpu.bodies.compiler import compiled
from regard.kernels.cpu.bodies.stored_numbers import single_of_half_bits
from regard.kernels.cpu.sizes import LANES
from regard.normalizers import softmax_with_sink, sparsemax

HALF = [torch.bfloat16, torch.float16]
BATCH, KEYS, DIM, VALUE_DIM = 2, 71, 48, 80


def inputs_of(dtype, queries=1, heads=6, kv_heads=2, keys=KEYS):
    query, key, value = tensors(
        query=(BATCH, heads, queries, DIM), key=(BATCH, kv_heads, keys, DIM), value=(BATCH, kv_heads, keys, VALUE_DIM),
        dtype=dtype,
    ).values()  # fmt: skip
    return query, key, value


def exact_attention(query, key, value, visible=None):
    """The dense formula in float64: output and log-sum-exps."""
    query, key, value = (tensor.double() for tensor in (query, key, value))
    key, value = (tensor.repeat_interleave(query.shape[1] // tensor.shape[1], 1) for tensor in (key, value))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


@intrinsic
def convert_by_integers(typing, source, target):  # type: ignore[no-untyped-def]
    """Writes LANES float16 at an address as float32 to another."""

    def generate(context, builder, signature, arguments):
        halves = ir.VectorType(ir.IntType(16), LANES).as_pointer()
        singles = ir.VectorType(ir.FloatType(), LANES).as_pointer()
        bits = builder.load(builder.inttoptr(arguments[0], halves), align=2)
        builder.store(single_of_half_bits(builder, bits), builder.inttoptr(arguments[1], singles), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def test_every_float16_converts_without_its_instruction():
    halves, singles = np.arange(1 << 16, dtype=np.uint16), np.empty(1 << 16, np.float32)

    source, target = halves.ctypes.data, singles.ctypes.data

    def body(address):
        for j in range(0, 1 << 16, LANES):
            convert_by_integers(address + 2 * j, target + 4 * j)

    code, _ = compiled(body, "tried")
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.link())(source)
    expected = halves.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(singles, expected)
    np.testing.assert_array_equal(np.signbit(singles), np.signbit(expected))


@covering(
    dtype=HALF,
    queries=[1, 2, 8],
    kv_heads=[1, 2, 6],
    mask=[None, masks.causal(), masks.window(9) | masks.prefix(4), masks.lengths([1, 33])],
    normalizer=["softmax", softmax_with_sink(0.5), sparsemax],
)
def test_stored_half_gives_the_bits_of_float32(dtype, queries, kv_heads, mask, normalizer):
    inputs = inputs_of(dtype, queries, kv_heads=kv_heads)
    assert is_stored_in_half(validate(*inputs))
    got, expected = (
        regard.attend(*some, mask=mask, normalizer=normalizer, backend="cpu")
        for some in (inputs, [tensor.float() for tensor in inputs])
    )
    if 6 // kv_heads * queries <= kernel_arguments.FEW_ROWS:
        assert torch.equal(got, expected.to(dtype))
    else:  # float32 has larger blocks, whose products are made otherwise
        torch.testing.assert_close(got, expected.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("queries", [1, 5])
def test_stored_half_is_exact_but_for_one_rounding(dtype, queries):
    inputs = inputs_of(dtype, queries, keys=1003)
    visible = torch.arange(1003) <= torch.arange(queries)[:, None] + 1003 - queries
    exact, lse = exact_attention(*inputs, visible)
    for backend in ("cpu", "auto"):
        seen = regard.observe(*inputs, mask=masks.causal(), backend=backend)
        assert torch.equal(seen.output, regard.attend(*inputs, mask=masks.causal(), backend=backend))
    seen = regard.observe(*inputs, mask=masks.causal(), backend="cpu")
    rounding = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(seen.output.double(), exact, rtol=1.01 * rounding, atol=1e-6)
    torch.testing.assert_close(seen.lse.double(), lse, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_gradients_of_stored_half_are_those_of_float64(dtype):
    leaves = [tensor.requires_grad_() for tensor in inputs_of(dtype, 3)]
    exact = [tensor.detach().double().requires_grad_() for tensor in leaves]
    grad_output = torch.randint(-3, 4, (BATCH, 6, 3, VALUE_DIM)).to(dtype)
    got = torch.autograd.grad(regard.attend(*leaves, backend="cpu"), leaves, grad_output)
    expected = torch.autograd.grad(exact_attention(*exact)[0], exact, grad_output.double())
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.double(), theirs, rtol=torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_hidden_half_never_matters_and_visible_half_does(dtype):
    query, key, value = inputs_of(dtype)
    mask = masks.lengths([50, 60])
    clean = regard.attend(query, key, value, mask=mask, backend="cpu")
    key[0, :, 50:], value[1, :, 60:] = torch.nan, torch.inf
    for _ in range(3):  # checked, planned, bound
        assert torch.equal(regard.attend(query, key, value, mask=mask, backend="cpu"), clean)
    step = [regard.attend(query, key, value, mask=masks.window(15), backend="cpu") for _ in range(2)]
    assert step[0][0].isnan().all()
    assert torch.equal(step[0].isnan(), step[1].isnan())
    value[1, 0, 3, 5] = torch.nan
    assert regard.attend(query, key, value, mask=mask, backend="cpu")[1, :3, 0, 5].isnan().all()


def test_biases_weights_and_readings_of_stored_half():
    query, key, value = inputs_of(torch.bfloat16, 2)
    single = query.float(), key.float(), value.float()
    for bias in (alibi(6), torch.randn(6, 2, KEYS)):
        got, expected = (regard.attend(*some, bias=bias, backend="cpu") for some in ((query, key, value), single))
        assert torch.equal(got, expected.bfloat16())
    got, expected = (regard.attend_with_weights(*some, backend="cpu") for some in ((query, key, value), single))
    assert torch.equal(got.weights, expected.weights)
    read = regard.Readings(entropy=True, top_k=3, received=True, weights=True)
    got, expected = (regard.observe(*some, backend="cpu", read=read) for some in ((query, key, value), single))
    for name in ("lse", "entropy", "top_weights", "top_indices", "received", "weights"):
        assert torch.equal(getattr(got, name), getattr(expected, name))


def test_operators_refuse_what_they_cannot_read_in_half():
    query, key, value = inputs_of(torch.bfloat16)
    for odd in ((query.float()[..., 1:], key[..., 1:], value), (query.double(), key, value), (query, key, value)):
        with pytest.raises(ValueError, match="float32 or float64"):
            operators.attend(*kernel_arguments.KernelInputs(*odd))
    leaf = query.float().requires_grad_()
    with pytest.raises(ValueError, match="gradients need keys and values in float32"):
        operators.attend(*kernel_arguments.KernelInputs(leaf, key, value))[0].sum().backward()
