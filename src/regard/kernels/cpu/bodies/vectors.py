"""Vectors as values in kernels, which stay in registers throughout a loop.

The compiler vectorizes most loops by itself. It does not keep a row of sums in registers while an outer loop adds to
them, but reads and writes the row in each iteration. Where that matters, a kernel uses vectors explicitly::

    total = zeros
    for d in range(features):
        total = total + broadcast(weight[d], zeros) * load(address + d * distance, zeros)

A vector's type states the number and the type of its lanes. Functions that make a vector take one of the same type as
an example.
"""

import operator
import platform
from functools import partial, reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from regard.kernels.cpu.bodies.parts import has_feature
from regard.kernels.cpu.sizes import LANES

CONTRACTION = ("contract",)
"""A product and a sum may be contracted. Without any flag, Numba would add those of the function."""

_INDEX = ir.IntType(32)


class Vector(types.Type):
    """A vector of lanes of one type."""

    def __init__(self, number: Any, lanes: int):
        self.number, self.lanes = number, lanes
        super().__init__(f"vector({lanes} x {number})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector):
        number = manager.lookup(kind.number).get_value_type()
        super().__init__(manager, kind, ir.VectorType(number, kind.lanes))


def register_bytes() -> int:
    """Returns the bytes of a vector register on the target processor, as far as the compiler uses them."""
    return 64 if has_feature("avx512vbmi2") else 32 if has_feature("avx2") else 16


def has_many_registers() -> bool:
    """Whether there are 32 vector registers instead of 16: on ARM, and on x86 with AVX-512."""
    return has_feature("avx512vbmi2") or platform.machine() in ("aarch64", "arm64")


def _zeros(many: int, few: int) -> Any:
    @intrinsic
    def zeros(typing: Any, example: Any) -> Any:
        number = types.unliteral(example)
        registers = many if has_many_registers() else few
        kind = Vector(number, registers * register_bytes() * 8 // number.bitwidth)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return ir.Constant(context.get_value_type(kind), None)

        return kind(example), generate

    return zeros


one_register, two_registers, four_registers = _zeros(1, 1), _zeros(2, 1), _zeros(4, 2)
"""``(example) -> vector``: zeros of a number's type that fill one, two or four registers; on processors with few
registers, one, one or two."""


@intrinsic
def padded_zeros(typing: Any, example: Any) -> Any:
    """Returns zeros of a number's type in as many lanes as padded rows are multiples of."""
    kind = Vector(types.unliteral(example), LANES)
    return kind(example), lambda context, builder, signature, arguments: ir.Constant(context.get_value_type(kind), None)


@intrinsic
def lanes_of(typing: Any, vector: Any) -> Any:
    """Returns the number of lanes."""
    return types.int64(vector), lambda context, builder, signature, arguments: ir.Constant(ir.IntType(64), vector.lanes)


def _define(operation: Any, instruction: str) -> None:
    """Defines a Python operator as an instruction on two vectors of one type."""

    @infer_global(operation)
    class _Operation(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]:
                return signature(args[0], *args)
            return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments, flags=CONTRACTION)

    lower_builtin(operation, Vector, Vector)(generate)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


def splat(builder: Any, number: Any, lanes: int) -> Any:
    """Builds a vector with a number in all lanes."""
    first = builder.insert_element(
        ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined), number, ir.Constant(_INDEX, 0)
    )
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INDEX, lanes), None))


@intrinsic
def broadcast(typing: Any, number: Any, like: Any) -> Any:
    """Returns a number in all lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return splat(builder, arguments[0], like.lanes)

    return like(like.number, like), generate


@intrinsic
def broadcast_at(typing: Any, address: Any, like: Any) -> Any:
    """Returns the number at an address in all lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], context.get_value_type(like.number).as_pointer())
        return splat(builder, builder.load(pointer), like.lanes)

    return like(types.int64, like), generate


@intrinsic
def load(typing: Any, address: Any, like: Any) -> Any:
    """Returns the vector at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], context.get_value_type(like).as_pointer())
        return builder.load(pointer, align=like.number.bitwidth // 8)

    return like(types.int64, like), generate


@intrinsic
def store(typing: Any, vector: Any, address: Any) -> Any:
    """Writes a vector to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[1], arguments[0].type.as_pointer())
        builder.store(arguments[0], pointer, align=vector.number.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(vector, types.int64), generate


def prefetch(builder: Any, address: Any) -> None:
    """Prefetches the cache line at an address, which need not be readable."""
    int32, byte_pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    function_type = ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32])
    function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
    # A read, into the second-level cache, of data.
    builder.call(function, [builder.inttoptr(address, byte_pointer), *(ir.Constant(int32, flag) for flag in (0, 2, 1))])


@intrinsic
def prefetch_line(typing: Any, address: Any) -> Any:
    """Prefetches the cache line at an address, which need not be readable."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        prefetch(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def store_transposed(typing: Any, source: Any, source_row: Any, target: Any, target_row: Any, like: Any) -> Any:
    """Transposes a square matrix with as many rows and columns as ``like`` has lanes.

    Args:
        source, target: addresses of the first elements.
        source_row, target_row: row strides in bytes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, align, lanes = arguments[4].type, like.number.bitwidth // 8, like.lanes

        def row_pointer(address: Any, stride: Any, index: int) -> Any:
            row_address = builder.add(address, builder.mul(stride, ir.Constant(ir.IntType(64), index)))
            return builder.inttoptr(row_address, kind.as_pointer())

        rows = [builder.load(row_pointer(*arguments[:2], index), align=align) for index in range(lanes)]
        # Each round interleaves row n with row n + lanes / 2; after log2(lanes) rounds, each row is a column.
        order = [n + lanes * other for n in range(lanes) for other in range(2)]
        halves = [ir.Constant(ir.VectorType(_INDEX, lanes), half) for half in (order[:lanes], order[lanes:])]
        for _ in range(lanes.bit_length() - 1):
            pairs = zip(rows[: lanes // 2], rows[lanes // 2 :], strict=True)
            rows = [builder.shuffle_vector(*two, half) for two in pairs for half in halves]
        for index, column in enumerate(rows):
            builder.store(column, row_pointer(*arguments[2:4], index), align=align)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64, like), generate


def _part(builder: Any, vector: Any, first: int, lanes: int) -> Any:
    """Extracts some lanes of a vector."""
    chosen = ir.Constant(ir.VectorType(_INDEX, lanes), list(range(first, first + lanes)))
    return builder.shuffle_vector(vector, vector, chosen)


@intrinsic
def folded(typing: Any, vector: Any, like: Any) -> Any:
    """Returns the sum of the parts of a vector, each with the lanes of ``like``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [_part(builder, arguments[0], first, like.lanes) for first in range(0, vector.lanes, like.lanes)]
        return reduce(partial(builder.fadd, flags=CONTRACTION), parts)

    return like(vector, like), generate


def _reduction(builder: Any, operation: str, kind: Any, *start: Any) -> Any:
    """Returns LLVM's function that reduces a vector to one number; some take a number to start from."""
    name = f"llvm.vector.reduce.{operation}.v{kind.count}f{32 if kind.element == ir.FloatType() else 64}"
    function = ir.FunctionType(kind.element, [*start, kind])
    return cgutils.get_or_insert_function(builder.module, function, name)


@intrinsic
def sum_of(typing: Any, vector: Any) -> Any:
    """Returns the sum of all lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = arguments[0].type.element
        reduction = _reduction(builder, "fadd", arguments[0].type, number)
        return builder.call(reduction, [ir.Constant(number, -0.0), arguments[0]], fastmath=("reassoc",))

    return vector.number(vector), generate


@intrinsic
def lane_max(typing: Any, new: Any, old: Any) -> Any:
    """Returns the larger element in each lane; NaN in the first vector is ignored."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return new(new, old), generate


def _where(comparison: str) -> Any:
    @intrinsic
    def where(typing: Any, left: Any, right: Any, yes: Any, no: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.select(builder.fcmp_ordered(comparison, *arguments[:2]), *arguments[2:])

        return yes(left, right, yes, no), generate

    return where


where_less, where_equal = _where("<"), _where("==")
"""``(left, right, yes, no) -> vector``: ``yes`` in the lanes where the comparison holds, else ``no``, also for NaN."""


@intrinsic
def has_nan(typing: Any, vector: Any) -> Any:
    """Whether a lane is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(builder.fcmp_unordered("uno", *arguments, *arguments), ir.IntType(vector.lanes))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(vector), generate


@intrinsic
def nearest_of(typing: Any, vector: Any) -> Any:
    """Returns the nearest integers, as real numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        name = f"llvm.rint.v{kind.count}f{vector.number.bitwidth}"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name)
        return builder.call(function, arguments)

    return vector(vector), generate


@intrinsic
def power_of_two(typing: Any, exponents: Any) -> Any:
    """Returns 2 to the power of integers from −126 to 127, given in float32."""
    if exponents.number != types.float32:
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.VectorType(ir.IntType(32), exponents.lanes)
        bias, shift = (ir.Constant(kind, [number] * exponents.lanes) for number in (127, 23))
        biased = builder.add(builder.fptosi(arguments[0], kind), bias)
        return builder.bitcast(builder.shl(biased, shift), arguments[0].type)

    return exponents(exponents), generate


@intrinsic
def max_of(typing: Any, vector: Any) -> Any:
    """Returns the maximum of all lanes, none of which is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.call(_reduction(builder, "fmax", arguments[0].type), arguments)

    return vector.number(vector), generate
