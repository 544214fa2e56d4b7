"""What kernels are called with: the inputs of attention, the readings, and the layout of the numbers that kernels read.

A kernel is given the address of its arguments: numbers that are filled in Python and read by every thread. Addresses
and strides are in elements, not bytes; a stride of 0 repeats, an address of 0 means "none".

Fields are declared once. An annotation of `KernelInputs` or `ReadingOptions` says a field's type and, in ``Annotated``,
what a kernel is given of it: the operators' schema, the layout of the arguments and their filling follow from it. A new
field is one line.

Compiling a kernel needs this file, and no PyTorch, which takes longer to import than a small kernel to compile.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from regard.errors import KindError
from regard.kernels.cpu.sizes import ceil_div
from regard.kernels.kinds import SOFTMAX

if TYPE_CHECKING:
    from torch import Tensor
else:

    class Tensor:
        """The name of PyTorch's tensors in a record."""


class Strides(NamedTuple):
    """What a kernel is given of a tensor besides its address.

    Attributes:
        axes: names of the first axes, whose strides follow as ``<prefix>_<axis>``, in numbers.
        prefix: of these names; None: the field's own name.
        repeats: whether an axis of length 1 stands for any length, so that its stride is 0.
    """

    axes: tuple[str, ...]
    prefix: str | None = None
    repeats: bool = True


class Items(NamedTuple):
    """Names, after the field's own, of the numbers in a list; the list may be empty."""

    names: tuple[str, ...]


DIFFERENTIABLE = "differentiable"
"""Marks an input whose gradient the backward pass returns."""

_SCHEMA = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    bool: "bool",
    int: "int",
    float: "float",
    Sequence[int]: "int[]",
}


class Field(NamedTuple):
    """One field of a record.

    Attributes:
        name: its own.
        type: the operator's.
        strides, items: what a kernel is given besides the address or the number.
        differentiable: whether it has a gradient.
    """

    name: str
    type: str
    strides: Strides | None
    items: Items | None
    differentiable: bool


@cache
def fields_of(record: type) -> tuple[Field, ...]:
    """The fields of a NamedTuple's type, in its order."""
    declared = []
    for name, hint in get_type_hints(record, include_extras=True).items():
        plain, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        strides = next((mark for mark in marks if isinstance(mark, Strides)), None)
        items = next((mark for mark in marks if isinstance(mark, Items)), None)
        declared.append(Field(name, _SCHEMA[plain], strides, items, DIFFERENTIABLE in marks))
    return tuple(declared)


def schema_of(record: type) -> str:
    """The arguments of an operator that takes the record's fields."""
    return ", ".join(f"{field.type} {field.name}" for field in fields_of(record))


def differentiable(record: type) -> tuple[str, ...]:
    """Names of the fields that have a gradient."""
    return tuple(field.name for field in fields_of(record) if field.differentiable)


def layout_of(record: type) -> dict[str, str]:
    """The numbers that a kernel is given of a record: names, each with its format for `struct`, ``q`` or ``d``."""
    layout: dict[str, str] = {}
    for field in fields_of(record):
        names = _names(field)
        layout.update(dict.fromkeys(names, "d" if field.type == "float" else "q"))
        if field.differentiable:
            layout[f"grad_{field.name}"] = "q"
    return layout


def address_of(tensor: "Tensor | None") -> int:
    """Where a kernel finds a tensor's numbers; 0 for None. Every address that a kernel gets is taken here.

    Raises:
        KindError: its numbers do not lie in a CPU's memory as they are: `regard.transforms.in_memory`.
    """
    if tensor is None:
        return 0
    if tensor.is_neg() or tensor._is_zerotensor() or not tensor.is_cpu:
        raise KindError(
            f"a compiled kernel reads numbers where they lie in a CPU's memory, and those of this tensor "
            f"{list(tensor.shape)} are not there (a lazily negated view, zeros without memory, or another device): "
            "pass tensor.cpu().clone()"
        )
    return tensor.data_ptr()


class Writer:
    """Writes a record's numbers, addresses, strides and plain numbers, to where a kernel looks for them.

    Where each of them goes is found once, since a short launch takes no longer than looking it up by name.

    Args:
        record: a NamedTuple's type.
        positions: of the names of `layout_of`, in the list of numbers.
    """

    def __init__(self, record: type, positions: dict[str, int]):
        tensors, lists, plain = [], [], []
        for index, field in enumerate(fields_of(record)):
            own, *more = (positions[name] for name in _names(field))
            if field.items is not None:
                lists.append((index, (own, *more)))
            elif field.type.startswith("Tensor"):
                tensors.append((index, own, tuple(more), field.strides is not None and field.strides.repeats))
            else:
                plain.append((index, own))
        self._tensors, self._lists, self._plain = tuple(tensors), tuple(lists), tuple(plain)

    def write(self, record: tuple[Any, ...], numbers: list[float]) -> None:
        """Write the numbers of one record; nothing for None, nor for items that a list does not have."""
        for index, own, axes, repeats in self._tensors:
            tensor = record[index]
            if tensor is None:
                continue
            numbers[own] = address_of(tensor)
            if repeats:
                for axis, step, length in zip(axes, tensor.stride(), tensor.shape, strict=False):
                    numbers[axis] = 0 if length == 1 else step
            elif axes:
                for axis, step in zip(axes, tensor.stride(), strict=False):
                    numbers[axis] = step
        for index, positions in self._lists:
            for position, item in zip(positions, record[index], strict=False):
                numbers[position] = item
        for index, own in self._plain:
            numbers[own] = record[index]


@cache
def _names(field: Field) -> tuple[str, ...]:
    """What a kernel calls the numbers of a field."""
    if field.items is not None:
        return tuple(f"{field.name}_{name}" for name in field.items.names)
    if field.strides is None:
        return (field.name,)
    prefix = field.strides.prefix or field.name
    return (field.name, *(f"{prefix}_{axis}" for axis in field.strides.axes))


CACHE_NUMBERS = 3 << 16
"""Scores of a block: as many as leave room for keys in a core's own cache."""

TRANSPOSED_ROWS = 16
"""Queries from which on keys and values are transposed."""

FEW_ROWS = 8
"""Queries up to which products of few rows are faster than BLAS's."""

LEAST_TASKS = 8
"""Into how many tasks a problem is cut, if it has so many rows: enough to keep a few threads evenly busy."""

SUMS_LIMIT = 1 << 22
"""Numbers that the separate sums of chunks may take: 16 MiB of float32."""

READING_ROWS = 24
"""Rows of a block at most whose weights are only read: with more, that takes as long and more memory."""

KEPT_WEIGHTS = 1 << 22
"""Weights that are kept for the backward pass at most: 16 MiB of float32."""

ADDITIVE_WORK = 4.0
"""Elementary operations for each query, key and feature of an additive score: half a division and what it divides."""

_MATRIX = ("batch", "head", "row")


class KernelInputs(NamedTuple):
    """The inputs of a kernel; float32 or float64. The operators' schema and the kernels' record follow from it.

    Attributes:
        query: ``[batch, heads, queries, dim]``.
        key: ``[batch, kv_heads, keys, dim]``.
        value: ``[batch, kv_heads, keys, value_dim]``.
        weight: of an additive score, ``[heads or 1, dim]``; None for an inner product.
        relu: whether the units of an additive score are rectified, and not tanh.
        exponentials, extents: of an additive score's keys, from ``torch.ops.regard_cpu.exponentials``; of rectified
            units they are the keys themselves, transposed.
        start, stop: the runs of visible keys of each row, which ascend and do not meet, empty ones behind the others,
            int32 ``[batch or 1, heads or 1, queries or 1, runs]``; None: all keys.
        mask: who of them is visible, bool ``[batch or 1, heads or 1, queries or 1, keys]``; None: all.
        bias: broadcastable to ``[batch, heads, queries, keys]``, or diagonals ``[heads or 1, queries + keys − 1]``.
        diagonal: which of both.
        sink: score of softmax's sink, ``[heads or 1]``.
        shift: sigmoid's bias, added to scores, ``[heads or 1]``.
        alphas: entmax's alpha, ``[heads or 1]``; None: ``alpha``.
        center, sigma: of a Gaussian window over the weights, ``[batch, heads, queries]``.
        normalizer: of `regard.kernels.kinds`.
        alpha: entmax's, where it is one number.
        scale: of an inner product.
        temperature: by which scores with their bias are divided.
        cap: of scores before the bias, or 0.
        dropout: probability of dropping a weight.
        seed: of dropout.
        return_weights: whether the weights are wanted, before dropout; quadratic memory.
    """

    query: Annotated[Tensor, Strides(_MATRIX, repeats=False), DIFFERENTIABLE]
    key: Annotated[Tensor, Strides(_MATRIX, repeats=False), DIFFERENTIABLE]
    value: Annotated[Tensor, Strides(_MATRIX, repeats=False), DIFFERENTIABLE]
    weight: Annotated[Tensor | None, Strides(("head",)), DIFFERENTIABLE] = None
    exponentials: Tensor | None = None
    extents: Tensor | None = None
    start: Annotated[Tensor | None, Strides((*_MATRIX, "run"), prefix="span")] = None
    stop: Annotated[Tensor | None, Strides((*_MATRIX, "run"), prefix="span")] = None
    mask: Annotated[Tensor | None, Strides(_MATRIX)] = None
    bias: Annotated[Tensor | None, Strides((*_MATRIX, "key")), DIFFERENTIABLE] = None
    diagonal: bool = False
    sink: Annotated[Tensor | None, Strides(("head",)), DIFFERENTIABLE] = None
    shift: Annotated[Tensor | None, Strides(("head",)), DIFFERENTIABLE] = None
    alphas: Annotated[Tensor | None, Strides(("head",)), DIFFERENTIABLE] = None
    center: Annotated[Tensor | None, Strides(("batch", "head"), prefix="window"), DIFFERENTIABLE] = None
    sigma: Annotated[Tensor | None, Strides(("batch", "head"), prefix="window"), DIFFERENTIABLE] = None
    normalizer: int = SOFTMAX
    alpha: float = 0.0
    scale: float = 1.0
    temperature: float = 1.0
    cap: float = 0.0
    dropout: float = 0.0
    seed: int = 0
    return_weights: bool = False
    relu: bool = False

    @property
    def units(self) -> str:
        """What the score is made of, as kernels are named: ``product``, or an additive score's ``tanh`` or ``relu``."""
        if self.weight is None:
            return "product"
        return "relu" if self.relu else "tanh"

    @property
    def block(self) -> int:
        """Rows of a block; a function of shapes alone, so that it never depends on threads."""
        batch, heads, queries, _ = self.query.shape
        fitting = max(16, min(64, CACHE_NUMBERS // max(self.key.shape[2], 1)))
        shared = ceil_div(batch * heads * queries, LEAST_TASKS)
        return max(1, min(fitting, shared, queries))

    @property
    def transposes(self) -> bool:
        """Whether there are rows enough to make it worth while to transpose keys and values for wide vectors."""
        return self.query.shape[2] >= TRANSPOSED_ROWS

    @property
    def keeps_weights(self) -> bool:
        """Whether weights that are returned are kept for the backward pass.

        An additive score takes longer to make again than to read; the weights of longer inputs would take more than a
        linear pass may. Where scores were capped or weights multiplied by a window, weights alone are not enough.
        """
        batch, heads, queries, _ = self.query.shape
        few = batch * heads * queries * self.key.shape[2] <= KEPT_WEIGHTS
        return self.weight is not None and few and not self.cap and self.center is None

    @property
    def runs(self) -> int:
        """Runs of visible keys that a row may have."""
        return 1 if self.start is None else self.start.shape[3]

    @property
    def work(self) -> float:
        """A rough number of elementary operations."""
        each = 1.0 if self.weight is None else ADDITIVE_WORK
        return each * self.query.numel() * self.key.shape[2]

    def chunks(self, numbers_per_key: int, tasks: int) -> int:
        """Into how many chunks the rows of one head are cut, where each has ``numbers_per_key`` sums for each key."""
        blocks = ceil_div(self.query.shape[2], self.block)
        affordable = max(1, SUMS_LIMIT // max(tasks * self.key.shape[2] * numbers_per_key, 1))
        return min(blocks, affordable, ceil_div(LEAST_TASKS, max(tasks, 1)))


LEAST_QUERIES = 8
"""Queries from which on vectors hold numbers of different rows: with fewer, half of their lanes are empty."""

MOST_KEYS = 1024
"""Keys up to which rows are read side by side; with more, each row fills vectors by itself."""


class ReadingOptions(NamedTuple):
    """Which readings to take. The operator's schema and the kernel's record follow from it.

    Attributes:
        entropy, peak, received, distance: whether to.
        top_k: how many of the largest weights of each row.
        pooled: rows and columns of a coarse map, or empty.
        row_slots: int64 ``[queries]``: the row of ``weights`` that each query's weights are stored in, −1 for none;
            None: no weights are stored.
        stored_rows: how many rows ``weights`` has.
        first_stored_key, stored_keys: which keys it has: the first, and how many.
        only_stored: whether rows that are not stored need no reading at all.
        key_offset: what to add to a query's index to get the key it stands at.
        first_row, all_rows: the first of these rows in the whole problem, and how many that one has.
    """

    entropy: bool = False
    peak: bool = False
    top_k: int = 0
    received: bool = False
    distance: bool = False
    pooled: Annotated[Sequence[int], Items(("rows", "columns"))] = ()
    row_slots: Tensor | None = None
    stored_rows: int = 0
    first_stored_key: int = 0
    stored_keys: int = 0
    only_stored: bool = False
    key_offset: int = 0
    first_row: int = 0
    all_rows: int = 1

    def fit_lanes(self, inputs: KernelInputs) -> bool:
        """Whether these are readings of rows with few keys, which are read side by side.

        That is so for the statistics of inner products with softmax, where at most one run of keys is seen.
        """
        from torch import float32

        queries = inputs.query.shape[2]
        plain = inputs.query.dtype == float32 and inputs.weight is None and inputs.normalizer == SOFTMAX
        others = (inputs.sink, inputs.bias, inputs.mask, inputs.center, self.row_slots)
        return (
            plain
            and queries >= LEAST_QUERIES
            and inputs.key.shape[2] <= MOST_KEYS
            and inputs.runs == 1
            and inputs.cap == 0
            and inputs.temperature == 1
            and not self.top_k
            and not self.pooled
            and not self.only_stored
            and all(tensor is None for tensor in others)
        )

    def sizes(self, inputs: KernelInputs) -> dict[str, int]:
        """Lengths of the axes that readings have."""
        rows, columns = self.pooled or (0, 0)
        return {
            "queries": inputs.query.shape[2],
            "keys": inputs.key.shape[2],
            "top_k": self.top_k,
            "pooled_rows": rows,
            "pooled_columns": columns,
            "stored_rows": self.stored_rows,
            "stored_keys": self.stored_keys,
        }

    def tensors(self, inputs: KernelInputs, chunks: int) -> dict[str, Tensor]:
        """Unfilled tensors for all readings, in the operator's order; empty ones for those that are not wanted."""
        from torch import int64

        batch, heads = inputs.query.shape[:2]
        sizes = self.sizes(inputs)
        tensors = {}
        for reading in READINGS:
            shape = [sizes[axis] for axis in reading.axes]
            if reading.over_rows is not None:
                shape = [chunks, *shape]
            if not reading.wanted(self):
                shape = [0] * len(shape)
            dtype = int64 if reading.integer else inputs.query.dtype
            tensors[reading.name] = inputs.query.new_empty(batch, heads, *shape, dtype=dtype)
        return tensors


class Reading(NamedTuple):
    """One tensor that the readings operator returns.

    Attributes:
        name: its own; in the kernel, that of its address.
        wanted: whether it is asked for.
        axes: after batch and heads; lengths are those of `ReadingOptions.sizes`.
        over_rows: for a reading over many rows, which each chunk of rows makes apart: how chunks are put together.
        initial: what it holds where a kernel writes nothing.
        integer: whether its numbers are integers; else they have the inputs' dtype.
    """

    name: str
    wanted: Callable[[ReadingOptions], bool]
    axes: tuple[str, ...]
    over_rows: Callable[[Tensor], Tensor] | None = None
    initial: float = 0.0
    integer: bool = False


def sum_of_chunks(chunks: Tensor) -> Tensor:
    """The sum over chunks, axis 2."""
    return chunks[:, :, 0].contiguous() if chunks.shape[2] == 1 else chunks.sum(2)


READINGS = (
    Reading("lse", lambda options: not options.only_stored, ("queries",), initial=-math.inf),
    Reading("entropy", lambda options: options.entropy, ("queries",)),
    Reading("peak", lambda options: options.peak, ("queries",)),
    Reading("top_weights", lambda options: options.top_k > 0, ("queries", "top_k")),
    Reading("top_indices", lambda options: options.top_k > 0, ("queries", "top_k"), initial=-1, integer=True),
    Reading("received", lambda options: options.received, ("keys",), over_rows=sum_of_chunks),
    Reading("distance", lambda options: options.distance, ("queries",)),
    Reading("pooled_sum", lambda options: bool(options.pooled), ("pooled_rows", "pooled_columns"), sum_of_chunks),
    Reading(
        "pooled_max",
        lambda options: bool(options.pooled),
        ("pooled_rows", "pooled_columns"),
        lambda chunks: chunks.amax(2),
    ),
    Reading("weights", lambda options: options.row_slots is not None, ("stored_rows", "stored_keys")),
)
"""All readings, in the operator's order."""


SIZES = ("batch", "heads", "kv_heads", "queries", "keys", "dim", "value_dim", "block", "chunks", "runs")
"""Rows of a block are calculated together; the rows of one head are cut into chunks that share no sum; a row sees a few
runs of keys."""

_OF_A_LAUNCH = (
    # The next task, and how many there are: the counter is first, since tasks are counted at the record's own address.
    ("counter", "tasks"),
    # C's malloc and free.
    ("malloc", "free"),
    # BLAS's gemm, and what keeps it to one thread; 0: there is none. For the microkernel: keys and values transposed,
    # [batch, kv_heads, features, padded keys].
    ("gemm", "limit_threads", "key_transposed", "value_transposed"),
    # How products are made that need not be made in another way, and the kernel for all ways but BLAS; 0: not needed.
    ("products", "multiply"),
    SIZES,
    # Of `regard.kernels.kinds`.
    ("bias_kind",),
    # Dropout: weights whose 32 random bits are below the threshold are dropped.
    ("threshold",),
    # Forward: [batch, heads, queries, value_dim], two statistics of each row [batch, heads, queries, 2], and if they
    # are wanted the weights before dropout, over pairs.
    ("output", "statistics", "returned_weights"),
    # Backward: gradients of the output and of the weights that were returned. Sums over rows are made in each chunk.
    ("grad_output", "grad_weights"),
    # Steps over a memory: gradients of scores, and weights after dropout, [batch, queries, keys].
    ("grad_score", "mixed_weights"),
)

_DERIVED = ("inverse_temperature", "kept")
"""1 / temperature; 1 / (1 − dropout)."""

FORMATS: dict[str, str] = {
    **{name: "q" for group in _OF_A_LAUNCH for name in group},
    **layout_of(KernelInputs),
    **layout_of(ReadingOptions),
    **{reading.name: "q" for reading in READINGS},
    **dict.fromkeys(_DERIVED, "d"),
}
"""Names of the record's numbers, each with its format for `struct`: those of a launch, of its inputs and readings."""

POSITIONS = {name: position for position, name in enumerate(FORMATS)}

LAYOUT = np.dtype([(name, np.int64 if kind == "q" else np.float64) for name, kind in FORMATS.items()])

BLAS, WIDE, PLAIN, PLAIN_TRANSPOSED, FEW_SCORES, FEW_MIXTURES = range(6)
"""How products are made: by BLAS, by the microkernel, in plain loops (``a b``, or ``a bᵀ``), and where ``a`` has a few
rows, with keys (``a bᵀ``) or with values (``a b``)."""

PRODUCT = np.dtype(
    [
        *((name, np.int64) for name in ("way", "keep", "rows", "columns", "depth")),
        *((name, np.int64) for name in ("a", "a_row", "a_column", "b", "b_row", "c", "c_row")),
        ("factor", np.float64),
    ]
)
"""What the kernel that multiplies is given: ``c = factor · a b + keep · c``, as `bodies.wide_product` has it."""

PACKED_MATRICES = ("query", "key", "value", "output", "grad_output", "grad_query", "grad_key", "grad_value")

PACKED = np.dtype(
    [
        *((name, np.int64) for name in ("counter", "batch", "heads", "kv_heads", "dim", "value_dim")),
        *((name, np.int64) for name in ("query_starts", "query_counts", "key_starts", "key_counts")),
        *((name, np.int64) for name in ("before", "after", "threshold", "seed", "multiply")),
        *((name + part, np.int64) for name in PACKED_MATRICES for part in ("", "_row")),
        ("scale", np.float64),
        ("kept", np.float64),
    ]
)
"""What kernels of attention of packed rows are given, as `packed_attention` has it: of each matrix its address, and how
many numbers lie between its rows."""
