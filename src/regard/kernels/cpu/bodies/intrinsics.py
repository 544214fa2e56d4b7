"""What kernels need and Numba's Python does not have: addresses, atomic counters, bit patterns, matrix products."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
from numba.np.arrayobj import make_array, populate_array

from regard.kernels.cpu import sizes
from regard.kernels.cpu.bodies.parts import OF_A_PART, chosen_for, inlined

for _function in (sizes.ceil_div, sizes.padded_length, sizes.even_length):
    register_jitable(**OF_A_PART)(_function)

_WORDS = {types.float32: types.int32, types.float64: types.int64}
_REALS = {types.int32: types.float32, types.int64: types.float64}


@intrinsic
def array_at(typing: Any, address: Any, length: Any, example: Any) -> Any:
    """The numbers of ``example``'s type that lie at an address."""
    return _array_of(1, example), _generate_array


@intrinsic
def matrix_at(typing: Any, address: Any, rows: Any, columns: Any, example: Any) -> Any:
    """The matrix of ``example``'s type that lies at an address, row by row."""
    return _array_of(2, example), _generate_array


def _array_of(axes: int, example: Any) -> Any:
    """The signature ``(address, lengths of the axes, example) -> array``."""
    return types.Array(types.unliteral(example), axes, "C")(types.int64, *[types.int64] * axes, example)


def _generate_array(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """An array over memory that it does not own. Numba's own `carray` is a function more to compile for each type."""
    kind, (address, *lengths, _) = signature.return_type, arguments
    number = context.get_data_type(kind.dtype)
    strides = [context.get_constant(types.intp, context.get_abi_sizeof(number))]
    for length in reversed(lengths[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    array = make_array(kind)(context, builder)
    place = builder.inttoptr(address, number.as_pointer())
    populate_array(array, data=place, shape=lengths, strides=strides, itemsize=strides[-1], meminfo=None)
    return array._getvalue()


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """The address of an array's first number, an int64. Numba's own is a uint64: its sum with an int64 is a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = make_array(array)(context, builder, value=arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), generate


@inlined
def copy(source: Any, target: Any) -> None:
    """Write the first numbers of one row to all places of another.

    Numba compiles an assignment of slices together with its error messages about shapes, which takes seconds.
    """
    for j in range(target.size):
        target[j] = source[j]


@intrinsic
def stack_memory(typing: Any, size: Any) -> Any:
    """The address of so many unfilled bytes, a literal number of them, which a part has until it returns."""
    if not isinstance(size, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Numba's own `alloca_once` fills it with zeros, which takes LLVM seconds for each thousand of bytes.
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(ir.IntType(8), size.literal_value))
        place.align = sizes.CACHE_LINE
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(size), generate


def size_of(example):  # type: ignore[no-untyped-def]
    """Bytes of a number."""
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
    """The int64 at an address before it was raised by one; of many threads, no two get the same."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        place = builder.inttoptr(arguments[0], word.as_pointer())
        return builder.atomic_rmw("add", place, ir.Constant(word, 1), "monotonic")

    return types.int64(types.int64), generate


@intrinsic
def bits_of(typing: Any, real: Any) -> Any:
    """The bit pattern of a real number, as an integer of its size."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return _WORDS[real](real), generate


@intrinsic
def real_of(typing: Any, bits: Any) -> Any:
    """The real number of a bit pattern."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return _REALS[bits](bits), generate


@intrinsic
def nearest(typing: Any, real: Any) -> Any:
    """The nearest whole number, as a real one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        name = "llvm.rint.f32" if signature.return_type == types.float32 else "llvm.rint.f64"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name)
        return builder.call(function, arguments)

    return real(real), generate


@intrinsic
def call_gemm(typing, function, transposes, size, factor, a, b, c, keep):  # type: ignore[no-untyped-def]
    """BLAS's ``gemm`` (Fortran's calling convention, 32-bit integers) at an address.

    Args:
        function: its address.
        transposes: two numbers: whether the first and the second matrix are transposed.
        size: rows of the result, its columns and the terms of each sum, as Fortran counts them.
        factor: of the product.
        a, b, c: address and row stride of each matrix.
        keep: factor of what ``c`` holds.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, letter = ir.IntType(32), ir.IntType(8)
        place = letter.as_pointer()

        def reference(value: Any) -> Any:
            return builder.bitcast(cgutils.alloca_once_value(builder, value), place)

        def transposed(flag: Any) -> Any:
            yes = builder.icmp_signed("!=", flag, ir.Constant(flag.type, 0))
            return reference(builder.select(yes, ir.Constant(letter, ord("T")), ir.Constant(letter, ord("N"))))

        def matrix(pair: Any) -> list[Any]:
            address, row = builder.extract_value(pair, 0), builder.extract_value(pair, 1)
            return [builder.inttoptr(address, place), reference(builder.trunc(row, word))]

        function, transposes, size, factor, a, b, c, keep = arguments
        passed = [
            *(transposed(builder.extract_value(transposes, index)) for index in range(2)),
            *(reference(builder.trunc(builder.extract_value(size, index), word)) for index in range(3)),
            reference(factor),
            *matrix(a),
            *matrix(b),
            reference(keep),
            *matrix(c),
        ]
        kind = ir.FunctionType(ir.VoidType(), [place] * len(passed))
        builder.call(builder.inttoptr(function, kind.as_pointer()), passed)
        return context.get_dummy_value()

    return types.void(types.int64, transposes, size, factor, a, b, c, factor), generate


@intrinsic
def _call_with_word(typing: Any, function: Any, word: Any) -> Any:
    """The C function ``int64_t f(int64_t)`` at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(word, [word])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])

    return types.int64(types.int64, types.int64), generate


@inlined
def allocate(p: Any, size: int) -> int:
    """The address of unfilled memory of so many bytes, for `release`; 0 if there is none."""
    return _call_with_word(p.malloc, size + sizes.CACHE_LINE)


@inlined
def release(p: Any, memory: int) -> None:
    """Give memory of `allocate` back."""
    _call_with_word(p.free, memory)


@inlined
def cache_line(address: int) -> int:
    """The first cache line from an address on; from that of `allocate` on there is room for what was asked for."""
    return sizes.ceil_div(address, sizes.CACHE_LINE) * sizes.CACHE_LINE


@intrinsic
def call_kernel(typing: Any, function: Any, address: Any) -> Any:
    """The kernel whose machine code is at an address, with its arguments at another one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def call_with_number(typing: Any, function: Any, number: Any) -> Any:
    """The C function ``int f(int)`` at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        kind = ir.FunctionType(word, [word])
        result = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [builder.trunc(arguments[1], word)])
        return builder.sext(result, ir.IntType(64))

    return types.int64(types.int64, types.int64), generate
