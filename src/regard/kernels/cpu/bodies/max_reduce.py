"""The largest of many numbers in vector registers; compilers do not dare to reorder comparisons that NaN may enter."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.parts import inlined

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

_MAXIMA = 64
"""Numbers that are compared at once: four vectors of sixteen, so that none waits for the one before."""

_VECTORS = 4


@intrinsic
def _largest_in(typing: Any, address: Any, blocks: Any, least: Any) -> Any:
    """The largest of ``blocks · _MAXIMA`` numbers of ``least``'s type at an address, and of ``least``; no NaN wins."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, blocks, least = arguments
        word, lanes = ir.IntType(64), _MAXIMA // _VECTORS
        real = context.get_value_type(signature.return_type)
        vector = ir.VectorType(real, lanes)
        size = 4 if signature.return_type == types.float32 else 8
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
        undefined = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(undefined, least, ir.Constant(ir.IntType(32), 0))
        start = builder.shuffle_vector(one, undefined, zeros)

        def larger(new: Any, old: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", new, old), new, old)

        before, loop, after = builder.block, builder.append_basic_block("compare"), builder.append_basic_block("found")
        builder.branch(loop)
        builder.position_at_end(loop)
        block = builder.phi(word)
        block.add_incoming(ir.Constant(word, 0), before)
        tops = [builder.phi(vector) for _ in range(_VECTORS)]
        base = builder.add(address, builder.mul(block, ir.Constant(word, _MAXIMA * size)))
        found = []
        for index, top in enumerate(tops):
            top.add_incoming(start, before)
            place = builder.inttoptr(builder.add(base, ir.Constant(word, index * lanes * size)), vector.as_pointer())
            found.append(larger(builder.load(place, align=size), top))
        following = builder.add(block, ir.Constant(word, 1))
        block.add_incoming(following, loop)
        for top, new in zip(tops, found, strict=True):
            top.add_incoming(new, loop)
        builder.cbranch(builder.icmp_signed("<", following, blocks), loop, after)

        builder.position_at_end(after)
        best = larger(larger(found[0], found[1]), larger(found[2], found[3]))
        kind = ir.FunctionType(real, [vector])
        name = f"llvm.vector.reduce.fmax.v{lanes}f{size * 8}"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [best])

    return least(types.int64, types.int64, least), generate


@inlined
def largest(row: Any) -> Any:
    """The largest number of a row; −inf if it is empty. NaN is passed over."""
    top = row.dtype.type(-np.inf)
    whole = row.size - row.size % _MAXIMA
    if whole > 0:
        top = _largest_in(row.ctypes.data, whole // _MAXIMA, top)
    for j in range(whole, row.size):
        top = row[j] if row[j] > top else top
    return top
