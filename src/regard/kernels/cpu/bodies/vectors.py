"""Vectors of numbers as values of kernels: what a loop keeps in registers from its first round to its last.

The compiler makes vectors of most loops by itself. It does not keep a row of sums in registers while an outer loop adds
to them, and reads and writes it in each round. Where that counts, a kernel says what it means by vectors::

    total = zeros
    for d in range(features):
        total = total + broadcast(weight[d], zeros) * load(address + d * distance, zeros)

A vector's type says how many numbers it has, and of which type. Functions that make a vector are given one of the same
type.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false, reportOptionalCall=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

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

from regard.kernels.cpu.bodies.microkernel import prefetch
from regard.kernels.cpu.bodies.parts import has_feature

_FUSED = ("contract",)
"""A product and a sum may be one operation. Without any flag, Numba would add those of the function."""

_INDEX = ir.IntType(32)


class Vector(types.Type):
    """So many numbers of a type."""

    def __init__(self, number: Any, lanes: int):
        self.number, self.lanes = number, lanes
        super().__init__(f"vector({lanes} x {number})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector):
        number = manager.lookup(kind.number).get_value_type()
        super().__init__(manager, kind, ir.VectorType(number, kind.lanes))


def register_bytes() -> int:
    """Bytes of a vector register of the processor that kernels are compiled for, as far as the compiler uses them."""
    return 64 if has_feature("avx512vbmi2") else 32 if has_feature("avx2") else 16


def has_many_registers() -> bool:
    """Whether there are 32 vector registers and not 16: on ARM, and on x86 where AVX-512's are used."""
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
"""``(example) -> vector``: zeros of a number's type, as many as one, two or four registers hold. Processors with few
registers use one, one or two of them."""


@intrinsic
def lanes_of(typing: Any, vector: Any) -> Any:
    """How many numbers a vector has."""
    return types.int64(vector), lambda context, builder, signature, arguments: ir.Constant(ir.IntType(64), vector.lanes)


def _define(operation: Any, instruction: str) -> None:
    """Let an operator of Python stand for an instruction on two vectors of one type."""

    @infer_global(operation)
    class _Operation(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]:
                return signature(args[0], *args)
            return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments, flags=_FUSED)

    lower_builtin(operation, Vector, Vector)(generate)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


def spread(builder: Any, number: Any, lanes: int) -> Any:
    """A number in all lanes of a vector, as intrinsics build it."""
    first = builder.insert_element(
        ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined), number, ir.Constant(_INDEX, 0)
    )
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INDEX, lanes), None))


@intrinsic
def broadcast(typing: Any, number: Any, like: Any) -> Any:
    """A number in all lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return spread(builder, arguments[0], like.lanes)

    return like(like.number, like), generate


@intrinsic
def broadcast_at(typing: Any, address: Any, like: Any) -> Any:
    """The number at an address in all lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], context.get_value_type(like.number).as_pointer())
        return spread(builder, builder.load(place), like.lanes)

    return like(types.int64, like), generate


@intrinsic
def load(typing: Any, address: Any, like: Any) -> Any:
    """The numbers that lie at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], context.get_value_type(like).as_pointer())
        return builder.load(place, align=like.number.bitwidth // 8)

    return like(types.int64, like), generate


@intrinsic
def store(typing: Any, vector: Any, address: Any) -> Any:
    """Write a vector's numbers to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[1], arguments[0].type.as_pointer())
        builder.store(arguments[0], place, align=vector.number.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(vector, types.int64), generate


@intrinsic
def prefetch_line(typing: Any, address: Any) -> Any:
    """Ask for the cache line at an address, which may be one that must not be read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        prefetch(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def store_transposed(typing: Any, source: Any, source_row: Any, target: Any, target_row: Any, like: Any) -> Any:
    """Write a square of numbers transposed: as many rows and columns as ``like`` has lanes.

    Args:
        source, target: addresses of the first number.
        source_row, target_row: bytes from a row to the next.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, align, lanes = arguments[4].type, like.number.bitwidth // 8, like.lanes

        def row(address: Any, distance: Any, index: int) -> Any:
            at = builder.add(address, builder.mul(distance, ir.Constant(ir.IntType(64), index)))
            return builder.inttoptr(at, kind.as_pointer())

        rows = [builder.load(row(*arguments[:2], index), align=align) for index in range(lanes)]
        # Numbers of a row and of the one that is half of all rows behind it, in turn: after log2 of the lanes such
        # rounds each row is a column.
        pairs = [n + lanes * other for n in range(lanes) for other in range(2)]
        halves = [ir.Constant(ir.VectorType(_INDEX, lanes), half) for half in (pairs[:lanes], pairs[lanes:])]
        for _ in range(lanes.bit_length() - 1):
            both = zip(rows[: lanes // 2], rows[lanes // 2 :], strict=True)
            rows = [builder.shuffle_vector(*two, half) for two in both for half in halves]
        for index, column in enumerate(rows):
            builder.store(column, row(*arguments[2:4], index), align=align)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64, like), generate


def _part(builder: Any, vector: Any, first: int, lanes: int) -> Any:
    """Some lanes of a vector."""
    chosen = ir.Constant(ir.VectorType(_INDEX, lanes), list(range(first, first + lanes)))
    return builder.shuffle_vector(vector, vector, chosen)


@intrinsic
def folded(typing: Any, vector: Any, like: Any) -> Any:
    """The sum of a vector's parts that have the lanes of ``like``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [_part(builder, arguments[0], first, like.lanes) for first in range(0, vector.lanes, like.lanes)]
        return reduce(partial(builder.fadd, flags=_FUSED), parts)

    return like(vector, like), generate


def _reduction(builder: Any, operation: str, kind: Any, *start: Any) -> Any:
    """LLVM's function from all lanes of a vector to one number; some are given a number to start from."""
    name = f"llvm.vector.reduce.{operation}.v{kind.count}f{32 if kind.element == ir.FloatType() else 64}"
    function = ir.FunctionType(kind.element, [*start, kind])
    return cgutils.get_or_insert_function(builder.module, function, name)


@intrinsic
def sum_of(typing: Any, vector: Any) -> Any:
    """The sum of all lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = arguments[0].type.element
        reduction = _reduction(builder, "fadd", arguments[0].type, number)
        return builder.call(reduction, [ir.Constant(number, -0.0), arguments[0]], fastmath=("reassoc",))

    return vector.number(vector), generate


@intrinsic
def larger(typing: Any, new: Any, old: Any) -> Any:
    """The larger number in each lane; NaN in the first vector is passed over."""

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
"""``(left, right, yes, no) -> vector``: ``yes`` in the lanes where the comparison holds, else ``no``; no for NaN."""


@intrinsic
def has_nan(typing: Any, vector: Any) -> Any:
    """Whether a lane is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(builder.fcmp_unordered("uno", *arguments, *arguments), ir.IntType(vector.lanes))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(vector), generate


@intrinsic
def nearest_of(typing: Any, vector: Any) -> Any:
    """The nearest whole numbers, as real ones."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        name = f"llvm.rint.v{kind.count}f{vector.number.bitwidth}"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name)
        return builder.call(function, arguments)

    return vector(vector), generate


@intrinsic
def power_of_two(typing: Any, exponents: Any) -> Any:
    """2 to the power of whole numbers of float32, from −126 to 127."""
    if exponents.number != types.float32:
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.VectorType(ir.IntType(32), exponents.lanes)
        bias, place = (ir.Constant(kind, [number] * exponents.lanes) for number in (127, 23))
        whole = builder.add(builder.fptosi(arguments[0], kind), bias)
        return builder.bitcast(builder.shl(whole, place), arguments[0].type)

    return exponents(exponents), generate


@intrinsic
def largest_of(typing: Any, vector: Any) -> Any:
    """The largest number of all lanes, of which none is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.call(_reduction(builder, "fmax", arguments[0].type), arguments)

    return vector.number(vector), generate
