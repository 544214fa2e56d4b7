"""Operations that Numba's Python lacks: addresses, atomic counters, bit patterns, calls of C functions."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
from numba.np.arrayobj import make_array, populate_array

from regard.kernels.cpu import sizes
from regard.kernels.cpu.bodies.parts import PART_OPTIONS, chosen_for, inlined

for _function in (sizes.ceil_div, sizes.padded_length, sizes.even_length):
    register_jitable(**PART_OPTIONS)(_function)

_INTEGERS = {types.float32: types.int32, types.float64: types.int64}
_REALS = {types.int32: types.float32, types.int64: types.float64}


@intrinsic
def array_at(typing: Any, address: Any, length: Any, example: Any) -> Any:
    """Returns the array of ``example``'s type at an address."""
    return _array_of(1, example), _generate_array


@intrinsic
def matrix_at(typing: Any, address: Any, rows: Any, columns: Any, example: Any) -> Any:
    """Returns the row-major matrix of ``example``'s type at an address."""
    return _array_of(2, example), _generate_array


def _array_of(axes: int, example: Any) -> Any:
    """Returns the signature ``(address, lengths of the axes, example) -> array``."""
    return types.Array(types.unliteral(example), axes, "C")(types.int64, *[types.int64] * axes, example)


def _generate_array(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Builds an array over memory that it does not own. Numba's `carray` is one more function to compile per type."""
    kind, (address, *lengths, _) = signature.return_type, arguments
    element = context.get_data_type(kind.dtype)
    strides = [context.get_constant(types.intp, context.get_abi_sizeof(element))]
    for length in reversed(lengths[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    array = make_array(kind)(context, builder)
    pointer = builder.inttoptr(address, element.as_pointer())
    populate_array(array, data=pointer, shape=lengths, strides=strides, itemsize=strides[-1], meminfo=None)
    return array._getvalue()


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """Returns the address of an array as an int64. Numba's own is a uint64, whose sum with an int64 is a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = make_array(array)(context, builder, value=arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), generate


@inlined
def copy(source: Any, target: Any) -> None:
    """Fills ``target`` with the first elements of ``source``.

    For an assignment of slices, Numba also compiles its error messages about shapes, which takes seconds.
    """
    for j in range(target.size):
        target[j] = source[j]


@intrinsic
def stack_memory(typing: Any, size: Any) -> Any:
    """Returns the address of unfilled memory on the stack, a literal number of bytes, valid until the part returns."""
    if not isinstance(size, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Numba's `alloca_once` fills the memory with zeros, which takes LLVM seconds for every thousand bytes.
        with builder.goto_entry_block():
            pointer = builder.alloca(ir.ArrayType(ir.IntType(8), size.literal_value))
        pointer.align = sizes.CACHE_LINE
        return builder.ptrtoint(pointer, ir.IntType(64))

    return types.int64(size), generate


def size_of(example):  # type: ignore[no-untyped-def]
    """Bytes of a number's type."""
    raise NotImplementedError("only in kernels")


@chosen_for(size_of)
def _(example):  # type: ignore[no-untyped-def]
    size = example.bitwidth // 8
    return lambda example: size


def is_single(example):  # type: ignore[no-untyped-def]
    """Whether a number is a float32."""
    raise NotImplementedError("only in kernels")


@chosen_for(is_single)
def _(example):  # type: ignore[no-untyped-def]
    single = example == types.float32
    return lambda example: single


@intrinsic
def fetch_add(typing: Any, address: Any) -> Any:
    """Increments the int64 at an address atomically; returns its value before. No two threads get the same value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        int64 = ir.IntType(64)
        pointer = builder.inttoptr(arguments[0], int64.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(int64, 1), "acq_rel")

    return types.int64(types.int64), generate


@intrinsic
def load_shared(typing: Any, address: Any) -> Any:
    """Returns the int64 at an address that other threads change, and sees what they wrote before they changed it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(pointer, "acquire", align=8)

    return types.int64(types.int64), generate


@intrinsic
def bits_of(typing: Any, real: Any) -> Any:
    """Returns the bit pattern of a real number, as an integer of its size."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return _INTEGERS[real](real), generate


@intrinsic
def real_of(typing: Any, bits: Any) -> Any:
    """Returns the real number of a bit pattern."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return _REALS[bits](bits), generate


def _rounding(name: str) -> Any:
    @intrinsic
    def rounded(typing: Any, real: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = arguments[0].type
            bits = 32 if signature.return_type == types.float32 else 64
            function = ir.FunctionType(kind, [kind])
            return builder.call(
                cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.f{bits}"), arguments
            )

        return real(real), generate

    return rounded


nearest, floor, truncated = map(_rounding, ("rint", "floor", "trunc"))
"""Return the nearest integer, the largest one that is not above, and a number without its fraction, as real numbers."""


@intrinsic
def call_gemm(typing, function, transposes, size, factor, a, b, c, beta):  # type: ignore[no-untyped-def]
    """Calls BLAS's ``gemm`` (Fortran's calling convention, 32-bit integers).

    Args:
        function: address of ``gemm``.
        transposes: two integers: whether the first and the second matrix are transposed.
        size: rows and columns of the result and terms of each sum, in Fortran's column-major order.
        factor: factor of the product.
        a, b, c: address and row stride of each matrix.
        beta: factor of the old elements of ``c``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        int32, character = ir.IntType(32), ir.IntType(8)
        byte_pointer = character.as_pointer()

        def reference(value: Any) -> Any:
            return builder.bitcast(cgutils.alloca_once_value(builder, value), byte_pointer)

        def transposed(flag: Any) -> Any:
            is_set = builder.icmp_signed("!=", flag, ir.Constant(flag.type, 0))
            letters = (ir.Constant(character, ord(letter)) for letter in "TN")
            return reference(builder.select(is_set, *letters))

        def matrix(pair: Any) -> list[Any]:
            address, row = builder.extract_value(pair, 0), builder.extract_value(pair, 1)
            return [builder.inttoptr(address, byte_pointer), reference(builder.trunc(row, int32))]

        function, transposes, size, factor, a, b, c, beta = arguments
        call_arguments = [
            *(transposed(builder.extract_value(transposes, index)) for index in range(2)),
            *(reference(builder.trunc(builder.extract_value(size, index), int32)) for index in range(3)),
            reference(factor),
            *matrix(a),
            *matrix(b),
            reference(beta),
            *matrix(c),
        ]
        gemm = ir.FunctionType(ir.VoidType(), [byte_pointer] * len(call_arguments))
        builder.call(builder.inttoptr(function, gemm.as_pointer()), call_arguments)
        return context.get_dummy_value()

    return types.void(types.int64, transposes, size, factor, a, b, c, factor), generate


def _generate_call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Calls the C function at the address of the first argument with the others, which have the result's type."""
    address, *others = arguments
    result = ir.VoidType() if signature.return_type == types.void else others[0].type
    function_type = ir.FunctionType(result, [argument.type for argument in others])
    returned = builder.call(builder.inttoptr(address, function_type.as_pointer()), others)
    return context.get_dummy_value() if signature.return_type == types.void else returned


@intrinsic
def call_int64(typing: Any, function: Any, argument: Any) -> Any:
    """Calls the C function ``int64_t f(int64_t)`` at an address."""
    return types.int64(types.int64, types.int64), _generate_call


@intrinsic
def call_int32(typing: Any, function: Any, argument: Any) -> Any:
    """Calls the C function ``int f(int)`` at an address."""
    return types.int32(types.int64, types.int32), _generate_call


@intrinsic
def call_kernel(typing: Any, function: Any, arguments: Any) -> Any:
    """Calls the kernel at an address with the address of its arguments."""
    return types.void(types.int64, types.int64), _generate_call


@inlined
def allocate(p: Any, size: int) -> int:
    """Returns the address of unfilled memory of this many bytes, for `release`; 0 if there is none."""
    return call_int64(p.malloc, size + sizes.CACHE_LINE)


@inlined
def release(p: Any, memory: int) -> None:
    """Frees the memory of `allocate`."""
    call_int64(p.free, memory)


@inlined
def cache_line(address: int) -> int:
    """Returns the first cache line at or after an address; memory of `allocate` has room for the requested bytes
    from there."""
    return sizes.ceil_div(address, sizes.CACHE_LINE) * sizes.CACHE_LINE
