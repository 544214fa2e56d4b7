"""One entry for all kernels, the tuples with names that they take, and the tensors and visible blocks of one head.

Triton specializes every integer of a tuple on its value, and every tensor on its alignment, whatever
``do_not_specialize`` says (3.6 to 3.9: `triton.runtime.jit.native_specialize_impl`); other lengths would compile other
kernels. Integers and unaligned tensors are therefore plain parameters of one function, `program`, which puts them into
tuples. In Triton 3.6 no variable and no result of a function may hold None.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false
from collections import namedtuple

import triton
import triton.language as tl

NO_MASK = tl.constexpr(0)
SPANS = tl.constexpr(1)
DENSE = tl.constexpr(2)

Form = namedtuple(
    "Form",
    "dim value_dim units block_q block_k block_d block_v normalizer is_units is_scaled has_cap has_bias "
    "has_bias_gradient mask runs has_gaps has_sink has_dropout precision",
)
"""What kernels are compiled for: widths, with the number of units of an additive score, rounded up to a multiple of 4;
the sizes of a tile; the normalizer's code (`regard.kernels.triton.call.CODES`); whether scores are multiplied by
``scale`` before a bias or a cap; `NO_MASK`, `SPANS` or `DENSE`, and the number of runs of a row; whether lists of
visible blocks are in ``order``, since they do not adjoin; how products of float32 are computed."""

Tensors = namedtuple(
    "Tensors", "query key value query_powers query_extent key_powers key_extent weight sink order bounds"
)
"""Contiguous tensors, None for those that a call lacks: of a `regard.kernels.triton.call.Call`, of a
`regard.kernels.triton.launch.Powers`, and of a `regard.kernels.triton.blocks.TileBlocks`."""

Numbers = namedtuple("Numbers", "rate scale cap factor shift exponent")
"""Floats: the rate of dropout, those of `regard.kernels.triton.call.scaling`, the soft cap, what sigmoid adds to a
score, and α − 1 of entmax."""

Sizes = namedtuple(
    "Sizes",
    "seed heads kv_heads queries keys padded_queries padded_keys row_blocks column_blocks offset "
    "weight_head sink_head span_batch span_head list_batch list_head",
)
"""Integers: the seed of dropout, lengths, the padded ones of the exponentials of units, numbers of blocks, the key
position that belongs to the first query, and strides, those of the lists of blocks in lists."""

Matrix = namedtuple("Matrix", "start batch head row column")
"""A tensor that is broadcast to all pairs, and its strides."""

Arguments = namedtuple("Arguments", "tensors numbers sizes bias grad_bias mask start stop")

INTEGERS = (
    *Sizes._fields,
    *(f"{name}_{axis}" for name in ("bias", "grad_bias", "mask") for axis in Matrix._fields[1:]),
)
"""Parameters of `program` whose values do not decide what is compiled, so that other lengths compile nothing."""

UNALIGNED = ("bias", "grad_bias", "mask", "start", "stop")
"""Tensors that may begin at any element, as diagonals do."""


@triton.jit(
    do_not_specialize=INTEGERS,
    do_not_specialize_on_alignment=UNALIGNED,
    repr=lambda specialization: specialization.constants["KERNEL"].__name__,
)
def program(
    KERNEL: tl.constexpr, tensors, own, numbers, seed, heads, kv_heads, queries, keys, padded_queries, padded_keys,
    row_blocks, column_blocks, offset, weight_head, sink_head, span_batch, span_head, list_batch, list_head, bias,
    bias_batch, bias_head, bias_row, bias_column, grad_bias, grad_bias_batch, grad_bias_head, grad_bias_row,
    grad_bias_column, mask, mask_batch, mask_head, mask_row, mask_column, start, stop, FORM: tl.constexpr,
):  # fmt: skip
    """Runs ``KERNEL(arguments, own, FORM)``; ``own`` are the tensors that only this kernel takes."""
    sizes = Sizes(
        seed, heads, kv_heads, queries, keys, padded_queries, padded_keys, row_blocks, column_blocks, offset,
        weight_head, sink_head, span_batch, span_head, list_batch, list_head,
    )  # fmt: skip
    KERNEL(Arguments(
        tensors, numbers, sizes, Matrix(bias, bias_batch, bias_head, bias_row, bias_column),
        Matrix(grad_bias, grad_bias_batch, grad_bias_head, grad_bias_row, grad_bias_column),
        Matrix(mask, mask_batch, mask_head, mask_row, mask_column), start, stop,
    ), own, FORM)  # fmt: skip


Side = namedtuple("Side", "features powers extent length padded")
"""Queries or keys of one head: their features and exponentials, how many they are, and how many with padding."""

Head = namedtuple(
    "Head",
    "query key value weight sink bias grad_bias mask start stop pair block order first left full count numbers sizes",
)
"""Where the tensors of one head begin, 0 for those that a call lacks; its number among those of all batch rows; the
program's block of rows or of columns, and its visible blocks of the other axis
(`regard.kernels.triton.blocks.TileBlocks`)."""


@triton.jit
def row_head(arguments, FORM: tl.constexpr):
    """Returns the head of a program for a block of rows. Later rows often see more keys, and begin first."""
    sizes = arguments.sizes
    pair = tl.program_id(1).to(tl.int64)
    batch = pair // sizes.heads
    head = pair % sizes.heads
    kv = batch * sizes.kv_heads + head // (sizes.heads // sizes.kv_heads)
    return head_of(*arguments, batch, head, pair, kv, tl.num_programs(0) - 1 - tl.program_id(0), False, FORM)


@triton.jit
def head_of(
    tensors, numbers, sizes, bias, grad_bias, mask, start, stop, batch, head, pair, kv, block, BY_COLUMNS: tl.constexpr,
    FORM: tl.constexpr,
):  # fmt: skip
    """Returns a head whose visible blocks are those of a block of rows, or of columns."""
    own_list = batch * sizes.list_batch + head * sizes.list_head
    if BY_COLUMNS:
        own_list = own_list * sizes.column_blocks + block
        blocks, all_full = sizes.row_blocks, sizes.queries // FORM.block_q
    else:
        own_list = own_list * sizes.row_blocks + block
        blocks, all_full = sizes.column_blocks, sizes.keys // FORM.block_k
    first, left, full, count = block_bounds(tensors.bounds, own_list, all_full, blocks, FORM)
    spans = batch * sizes.span_batch + head * sizes.span_head
    return Head(
        query=side_of(
            tensors.query, tensors.query_powers, tensors.query_extent, pair, sizes.queries, sizes.padded_queries, FORM
        ),
        key=side_of(tensors.key, tensors.key_powers, tensors.key_extent, kv, sizes.keys, sizes.padded_keys, FORM),
        value=tensors.value + kv * sizes.keys * FORM.value_dim,
        weight=moved(tensors.weight, head * sizes.weight_head), sink=moved(tensors.sink, head * sizes.sink_head),
        bias=head_matrix(bias, batch, head), grad_bias=head_matrix(grad_bias, batch, head),
        mask=head_matrix(mask, batch, head), start=moved(start, spans), stop=moved(stop, spans), pair=pair, block=block,
        order=moved(tensors.order, own_list * blocks), first=first, left=left, full=full, count=count, numbers=numbers,
        sizes=sizes,
    )  # fmt: skip


@triton.jit
def side_of(features, powers, extent, number, length, padded, FORM: tl.constexpr):
    powers, extent = moved(powers, number * padded * FORM.units), moved(extent, number * padded)
    return Side(features + number * length * FORM.dim, powers, extent, length, padded)


@triton.jit
def head_matrix(matrix, batch, head):
    start = moved(matrix.start, batch * matrix.batch + head * matrix.head)
    return Matrix(start, matrix.batch, matrix.head, matrix.row, matrix.column)


@triton.jit
def moved(pointer, elements):
    if pointer is None:
        return 0
    else:
        return pointer + elements


@triton.jit
def block_bounds(bounds, own_list, all_full, blocks, FORM: tl.constexpr):
    """Returns where the visible blocks of a list are: see `regard.kernels.triton.blocks.TileBlocks`."""
    if FORM.mask > 0:
        at = bounds + own_list * 4
        return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    elif not has_full_tiles(FORM.mask, FORM.has_bias):
        return 0, 0, 0, blocks
    else:
        return 0, 0, all_full, blocks


@triton.constexpr_function
def has_full_tiles(mask, has_bias):
    """Whether a tile may be full: a bias of −∞ hides a pair, and dense masks are not worth a second loop."""
    return mask != DENSE.value and not has_bias


@triton.jit
def over_blocks(ADD: tl.constexpr, sums, at, head, BLOCK: tl.constexpr, FORM: tl.constexpr):
    """Returns sums after ``sums = ADD(sums, positions, at, head, FULL, FORM)`` for each visible block of the list."""
    if has_full_tiles(FORM.mask, FORM.has_bias):
        for index in range(head.full):
            block = tl.load(head.order + index) if FORM.has_gaps else head.first + head.left + index
            sums = ADD(sums, block * BLOCK + tl.arange(0, BLOCK), at, head, True, FORM)
    for index in range(head.count - head.full):
        if FORM.has_gaps:
            block = tl.load(head.order + head.full + index)
        else:
            block = head.first + index + tl.where(index >= head.left, head.full, 0)
        sums = ADD(sums, block * BLOCK + tl.arange(0, BLOCK), at, head, False, FORM)
    return sums
