"""The arguments of kernels: the inputs of attention, the readings, and the layout of the record that kernels read.

A kernel receives the address of its arguments: a record that Python fills and every thread reads. Addresses are in
bytes and strides in elements; a stride of 0 repeats an element, an address of 0 means "none".

Each field is declared once. Its annotation in `KernelInputs` or `ReadingOptions` states its type and, in
``Annotated``, what a kernel reads of it; the operators' schema, the layout of the record and the code that fills it
follow from that. A new field is one line.

Compiling a kernel imports this file, and not PyTorch, which takes longer to import than a small kernel to compile.
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
        """Stands for PyTorch's tensors in annotations."""


class Strides(NamedTuple):
    """The strides of a tensor that a kernel reads, besides its address.

    Attributes:
        axes: names of the first axes; their strides, in elements, are called ``<prefix>_<axis>``.
        prefix: prefix of these names; None: the field's own name.
        repeats: whether an axis of length 1 broadcasts, so that its stride is 0.
    """

    axes: tuple[str, ...]
    prefix: str | None = None
    repeats: bool = True


class Items(NamedTuple):
    """The items of a list, called ``<field>_<name>``; the list may be empty."""

    names: tuple[str, ...]


DIFFERENTIABLE = "differentiable"
"""Marks an input whose gradient is returned by the backward pass."""

_SCHEMA = {Tensor: "Tensor", Tensor | None: "Tensor?", bool: "bool", int: "int", float: "float", Sequence[int]: "int[]"}


class Field(NamedTuple):
    """One field of a record.

    Attributes:
        name: the field's name.
        type: its type in the operator's schema.
        strides, items: what a kernel reads besides the address or the number.
        differentiable: whether the field has a gradient.
    """

    name: str
    type: str
    strides: Strides | None
    items: Items | None
    differentiable: bool


@cache
def fields_of(record: type) -> tuple[Field, ...]:
    """Returns the fields of a NamedTuple class, in its order."""
    fields = []
    for name, hint in get_type_hints(record, include_extras=True).items():
        plain, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        strides = next((mark for mark in marks if isinstance(mark, Strides)), None)
        items = next((mark for mark in marks if isinstance(mark, Items)), None)
        fields.append(Field(name, _SCHEMA[plain], strides, items, DIFFERENTIABLE in marks))
    return tuple(fields)


def schema_of(record: type) -> str:
    """Returns the schema of an operator's arguments that are the record's fields."""
    return ", ".join(f"{field.type} {field.name}" for field in fields_of(record))


def differentiable(record: type) -> tuple[str, ...]:
    """Returns the names of the fields that have a gradient."""
    return tuple(field.name for field in fields_of(record) if field.differentiable)


def layout_of(record: type) -> dict[str, str]:
    """Returns the names of what a kernel reads of a record, each with its format for `struct`, ``q`` or ``d``."""
    layout: dict[str, str] = {}
    for field in fields_of(record):
        names = _names(field)
        layout.update(dict.fromkeys(names, "d" if field.type == "float" else "q"))
        if field.differentiable:
            layout[f"grad_{field.name}"] = "q"
    return layout


def address_of(tensor: "Tensor | None") -> int:
    """Returns the address of a tensor's elements; 0 for None. All addresses that kernels receive come from here.

    Raises:
        KindError: the elements are not stored as they are in a CPU's memory: see `regard.tracing.transforms.in_memory`.
    """
    if tensor is None:
        return 0
    address = 0 if tensor._is_zerotensor() or not tensor.is_cpu else tensor.data_ptr()
    if tensor.is_neg() or (address == 0 and tensor.numel()):
        raise KindError(
            f"a compiled kernel reads elements from a CPU's memory, and those of this tensor {list(tensor.shape)} "
            "are not stored there (a lazily negated view, zeros without memory, a subclass of Tensor without memory of "
            "its own, or another device): "
            "pass tensor.cpu().clone()"
        )
    return address


class Writer:
    """Writes the addresses, strides and numbers of a record into the list of a kernel's arguments.

    Positions are looked up once, since looking them up by name takes as long as a short launch.

    Args:
        record: a NamedTuple class.
        positions: the position of each name of `layout_of` in the list of arguments.
    """

    def __init__(self, record: type, positions: dict[str, int]):
        tensors, lists, arguments = [], [], []
        for index, field in enumerate(fields_of(record)):
            position, *axis_positions = (positions[name] for name in _names(field))
            if field.items is not None:
                lists.append((index, (position, *axis_positions)))
            elif field.type.startswith("Tensor"):
                tensors.append(
                    (index, position, tuple(axis_positions), field.strides is not None and field.strides.repeats)
                )
            else:
                arguments.append((index, position))
        self._tensors, self._lists, self._plain = tuple(tensors), tuple(lists), tuple(arguments)

    def write(self, record: tuple[Any, ...], arguments: list[float]) -> None:
        """Writes one record. Nothing is written for None, nor for items that a list does not have."""
        for index, address_position, axis_positions, repeats in self._tensors:
            tensor = record[index]
            if tensor is None:
                continue
            arguments[address_position] = address_of(tensor)
            if repeats:
                for axis, stride, length in zip(axis_positions, tensor.stride(), tensor.shape, strict=False):
                    arguments[axis] = 0 if length == 1 else stride
            elif axis_positions:
                for axis, stride in zip(axis_positions, tensor.stride(), strict=False):
                    arguments[axis] = stride
        for index, positions in self._lists:
            for position, item in zip(positions, record[index], strict=False):
                arguments[position] = item
        for index, position in self._plain:
            arguments[position] = record[index]


@cache
def _names(field: Field) -> tuple[str, ...]:
    """Returns the names under which a kernel reads a field."""
    if field.items is not None:
        return tuple(f"{field.name}_{name}" for name in field.items.names)
    if field.strides is None:
        return (field.name,)
    prefix = field.strides.prefix or field.name
    return (field.name, *(f"{prefix}_{axis}" for axis in field.strides.axes))


CACHE_SCORES = 3 << 16
"""Scores of a block: so many leave room for keys in a core's own cache."""

TRANSPOSED_ROWS = 16
"""With so many queries or more, keys and values are transposed."""

FEW_ROWS = 8
"""With so many queries or fewer, the products of few rows are faster than BLAS."""

MIN_TASKS = 8
"""A problem with enough rows is cut into so many tasks or more, which keep a few threads evenly busy."""

SUMS_LIMIT = 1 << 22
"""Maximum number of elements in the separate sums of chunks: 16 MiB of float32."""

READING_ROWS = 24
"""Maximum rows of a block in the readings kernel: larger blocks take as long and use more memory."""

SAVED_WEIGHTS = 1 << 22
"""Maximum number of weights that are saved for the backward pass: 16 MiB of float32."""

ADDITIVE_WORK = 4.0
"""Elementary operations per query, key and feature of an additive score: half a division and its operands."""

_MATRIX = ("batch", "head", "row")


class KernelInputs(NamedTuple):
    """The inputs of a kernel; float32 or float64. The operators' schema and the kernels' record follow from this class.

    Attributes:
        query: ``[batch, heads, queries, dim]``.
        key: ``[batch, kv_heads, keys, dim]``; in half precision it `is_stored_in_half`, as the values.
        value: ``[batch, kv_heads, keys, value_dim]``.
        weight: weight of an additive score, ``[heads or 1, dim]``; None for an inner product.
        relu: whether the units of an additive score are rectified instead of tanh.
        paired: whether queries, keys and values are bfloat16 numbers, which are multiplied in pairs.
        exponentials, extents: what ``torch.ops.regard_cpu.exponentials`` returns for an additive score's keys; for
            rectified units, the transposed keys themselves.
        start, stop: the runs of visible keys of each row, ascending, with a gap between neighbours and empty runs last,
            int32 ``[batch or 1, heads or 1, queries or 1, runs]``; None: all keys.
        mask: which keys of the runs are visible, bool ``[batch or 1, heads or 1, queries or 1, keys]``; None: all.
        bias: broadcastable to ``[batch, heads, queries, keys]``, or diagonals ``[heads or 1, queries + keys − 1]``.
        diagonal: whether ``bias`` holds diagonals.
        sink: score of softmax's sink, ``[heads or 1]``.
        shift: bias of sigmoid, added to scores, ``[heads or 1]``.
        alphas: alpha of entmax, ``[heads or 1]``; None: ``alpha``.
        center, sigma: center and sigma of a Gaussian window over the weights, ``[batch, heads, queries]``.
        normalizer: a code of `regard.kernels.kinds`.
        alpha: alpha of entmax if it is a single number.
        scale: factor of an inner product.
        temperature: divisor of the biased scores.
        cap: soft cap of the scores before the bias; 0 for none.
        dropout: probability of dropping a weight.
        seed: seed of dropout.
        return_weights: whether to return the weights before dropout, which takes quadratic memory.
        score_function, gradient_function: addresses of the functions that change a row of scores before the bias, and
            the gradient of these scores; see `bodies.row_functions`. 0 for none.
        mask_function: address of the function that hides keys of a row; 0 for none.
        score_data, mask_data: what these functions read, int64.
        function_row: index of the first query, for these functions.
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
    paired: bool = False
    score_function: int = 0
    gradient_function: int = 0
    mask_function: int = 0
    score_data: Tensor | None = None
    mask_data: Tensor | None = None
    function_row: int = 0

    @property
    def units(self) -> str:
        """The units of the score, as in kernels' names: ``product``, or ``tanh`` or ``relu`` of an additive score."""
        if self.weight is None:
            return "product"
        return "relu" if self.relu else "tanh"

    @property
    def block(self) -> int:
        """Rows of a block; a function of shapes alone, so that results do not depend on the number of threads."""
        batch, heads, queries, _ = self.query.shape
        cached = max(16, min(64, CACHE_SCORES // max(self.key.shape[2], 1)))
        balanced = ceil_div(batch * heads * queries, MIN_TASKS)
        return max(1, min(cached, balanced, queries, FEW_ROWS if self.is_stored_in_half else queries))

    @property
    def is_stored_in_half(self) -> bool:
        """Whether keys and values are in half precision, which the products of few rows convert in registers."""
        return self.key.element_size() < self.query.element_size()

    @property
    def transposes(self) -> bool:
        """Whether there are enough rows that transposing keys and values for wide vectors pays off."""
        return self.query.shape[2] >= TRANSPOSED_ROWS and not self.is_stored_in_half

    @property
    def saves_weights(self) -> bool:
        """Whether returned weights are saved for the backward pass.

        Recomputing an additive score takes longer than reading it. Weights of longer inputs would need more memory than
        a linear pass may use. If scores are capped or changed by a function, or weights multiplied by a window, weights
        alone are not enough.
        """
        batch, heads, queries, _ = self.query.shape
        few = batch * heads * queries * self.key.shape[2] <= SAVED_WEIGHTS
        is_plain = not self.cap and not self.score_function and self.center is None
        return self.weight is not None and few and is_plain

    @property
    def runs(self) -> int:
        """Maximum number of runs of visible keys in a row."""
        return 1 if self.start is None else self.start.shape[3]

    @property
    def work(self) -> float:
        """A rough number of elementary operations."""
        each = 1.0 if self.weight is None else ADDITIVE_WORK
        return each * self.query.numel() * self.key.shape[2]

    def chunks(self, sums_per_key: int, tasks: int) -> int:
        """Returns the number of chunks of a head's rows, if each chunk has ``sums_per_key`` sums for each key."""
        blocks = ceil_div(self.query.shape[2], self.block)
        affordable = max(1, SUMS_LIMIT // max(tasks * self.key.shape[2] * sums_per_key, 1))
        return min(blocks, affordable, ceil_div(MIN_TASKS, max(tasks, 1)))


MIN_LANE_QUERIES = 8
"""With so many queries or more, the lanes of a vector hold different rows: with fewer, half of them are empty."""

MAX_LANE_KEYS = 1024
"""With so many keys or fewer, rows are read side by side; with more, each row fills vectors by itself."""


class ReadingOptions(NamedTuple):
    """The readings that a kernel computes. The operator's schema and the kernel's record follow from this class.

    Attributes:
        entropy, peak, received, distance: whether to compute this reading.
        top_k: how many of the largest weights of each row to return.
        pooled: rows and columns of a coarse map, or empty.
        row_slots: int64 ``[queries]``: the row of ``weights`` that stores each query's weights, −1 for none; None: no
            weights are stored.
        stored_rows: number of rows of ``weights``.
        first_stored_key, stored_keys: the first key of ``weights``, and their number.
        only_stored: whether rows that are not stored need no reading at all.
        key_offset: what to add to a query's index to get the index of its own key.
        first_row, all_rows: the index of the first of these rows in the whole problem, and the number of its rows.
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
        """Whether the kernel that reads rows with few keys side by side supports these readings.

        It computes the statistics of inner products with softmax if each row has at most one run of visible keys.
        """
        from torch import float32

        queries = inputs.query.shape[2]
        plain = inputs.key.dtype == float32 and inputs.weight is None and inputs.normalizer == SOFTMAX
        others = (inputs.sink, inputs.bias, inputs.mask, inputs.center, self.row_slots)
        return (
            plain
            and queries >= MIN_LANE_QUERIES
            and inputs.key.shape[2] <= MAX_LANE_KEYS
            and inputs.runs == 1
            and inputs.cap == 0
            and inputs.score_function == 0
            and inputs.mask_function == 0
            and inputs.temperature == 1
            and not self.top_k
            and not self.pooled
            and not self.only_stored
            and all(tensor is None for tensor in others)
        )

    def sizes(self, inputs: KernelInputs) -> dict[str, int]:
        """Returns the lengths of the axes of readings."""
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
        """Returns unfilled tensors for all readings, in the operator's order; empty ones for readings not requested."""
        from torch import int64

        batch, heads = inputs.query.shape[:2]
        sizes = self.sizes(inputs)
        tensors = {}
        for reading in READINGS:
            shape = [sizes[axis] for axis in reading.axes]
            if reading.over_rows is not None:
                shape = [chunks, *shape]
            if not reading.is_requested(self):
                shape = [0] * len(shape)
            dtype = int64 if reading.integer else inputs.query.dtype
            tensors[reading.name] = inputs.query.new_empty(batch, heads, *shape, dtype=dtype)
        return tensors


class ReadingTensor(NamedTuple):
    """One tensor that the readings operator returns.

    Attributes:
        name: name of the reading; in the kernel, name of its address.
        is_requested: whether the options request it.
        axes: names of the axes after batch and heads; `ReadingOptions.sizes` has their lengths.
        over_rows: how the chunks of a reading over many rows are combined; None for a reading of single rows.
        initial: the value where a kernel writes nothing.
        integer: whether the elements are integers; otherwise they have the inputs' dtype.
    """

    name: str
    is_requested: Callable[[ReadingOptions], bool]
    axes: tuple[str, ...]
    over_rows: Callable[[Tensor], Tensor] | None = None
    initial: float = 0.0
    integer: bool = False


def sum_of_chunks(chunks: Tensor) -> Tensor:
    """Returns the sum over chunks, axis 2."""
    return chunks[:, :, 0].contiguous() if chunks.shape[2] == 1 else chunks.sum(2)


READINGS = (
    ReadingTensor("lse", lambda options: not options.only_stored, ("queries",), initial=-math.inf),
    ReadingTensor("entropy", lambda options: options.entropy, ("queries",)),
    ReadingTensor("peak", lambda options: options.peak, ("queries",)),
    ReadingTensor("top_weights", lambda options: options.top_k > 0, ("queries", "top_k")),
    ReadingTensor("top_indices", lambda options: options.top_k > 0, ("queries", "top_k"), initial=-1, integer=True),
    ReadingTensor("received", lambda options: options.received, ("keys",), over_rows=sum_of_chunks),
    ReadingTensor("distance", lambda options: options.distance, ("queries",)),
    ReadingTensor("pooled_sum", lambda options: bool(options.pooled), ("pooled_rows", "pooled_columns"), sum_of_chunks),
    ReadingTensor(
        "pooled_max",
        lambda options: bool(options.pooled),
        ("pooled_rows", "pooled_columns"),
        lambda chunks: chunks.amax(2),
    ),
    ReadingTensor("weights", lambda options: options.row_slots is not None, ("stored_rows", "stored_keys")),
)
"""All readings, in the operator's order."""


SIZES = ("batch", "heads", "kv_heads", "queries", "keys", "dim", "value_dim", "block", "chunks", "runs")
"""Sizes of a launch. A block is the rows that are computed together; the rows of a head are cut into chunks, each with
its own sums; a row has a few runs of visible keys."""

_LAUNCH_FIELDS = (
    # The next task, and the number of tasks. The counter is first: tasks are counted at the record's own address.
    ("counter", "tasks"),
    # Whether an output was not finite: a forward kernel writes 1.
    ("nonfinite",),
    # C's malloc and free.
    ("malloc", "free"),
    # BLAS's gemm, and the function that limits its threads; 0 for none. Transposed keys and values for the microkernel,
    # [batch, kv_heads, features, padded keys].
    ("gemm", "limit_threads", "key_transposed", "value_transposed"),
    # The default method for products, and the kernel for all methods but BLAS; 0 if it is not needed.
    ("products", "multiply"),
    SIZES,
    # Bytes of an element of keys and values, which may be stored in half precision.
    ("stored_bytes",),
    # A code of `regard.kernels.kinds`.
    ("bias_kind",),
    # Dropout: weights whose 32 random bits are below the threshold are dropped.
    ("threshold",),
    # Forward: [batch, heads, queries, value_dim], two statistics of each row [batch, heads, queries, 2], and on request
    # the weights before dropout [batch, heads, queries, keys].
    ("output", "statistics", "returned_weights"),
    # Backward: gradients of the output and of the returned weights. Each chunk has its own sums over rows.
    ("grad_output", "grad_weights"),
    # Steps over a memory: gradients of scores, and weights after dropout, [batch, queries, keys].
    ("grad_score", "mixed_weights"),
)

_DERIVED = ("inverse_temperature", "dropout_scale")
"""1 / temperature; 1 / (1 − dropout)."""

FORMATS: dict[str, str] = {
    **{name: "q" for group in _LAUNCH_FIELDS for name in group},
    **layout_of(KernelInputs),
    **layout_of(ReadingOptions),
    **{reading.name: "q" for reading in READINGS},
    **dict.fromkeys(_DERIVED, "d"),
}
"""Names in the record, each with its format for `struct`: those of a launch, of its inputs and of its readings."""

POSITIONS = {name: position for position, name in enumerate(FORMATS)}

LAYOUT = np.dtype([(name, np.int64 if kind == "q" else np.float64) for name, kind in FORMATS.items()])

BLAS, WIDE, PAIRED, PLAIN, PLAIN_TRANSPOSED, FEW_SCORES, FEW_MIXTURES = range(7)
"""Methods of matrix products: BLAS, the microkernel, the same with pairs of bfloat16, plain loops (``a b`` or
``a bᵀ``), and for an ``a`` of few rows, scores (``a bᵀ``) and mixtures of values (``a b``)."""

PRODUCT_RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("method", "beta", "rows", "columns", "depth")),
        *((name, np.int64) for name in ("a", "a_row", "a_column", "b", "b_row", "c", "c_row")),
        ("factor", np.float64),
    ]
)
"""Arguments of the kernel that multiplies: ``c = factor · a b + beta · c``; see `bodies.wide_product`."""

LISTED_RUNS = 16
"""Maximum number of runs of visible keys that are listed of a row of a mask that is a function."""

FUNCTION_RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("data", "batch", "head", "group", "row", "chunk")),
        *((name, np.int64) for name in ("first", "keys", "scores", "gradient")),
    ]
)
"""Arguments of the functions of a row of scores; see `bodies.row_functions`; `visible_runs` there has other uses
for some."""

STAGE_RECORD = np.dtype([(name, np.int64) for name in ("kernel", "arguments", "entered", "left")])
"""A stage of a launch: the addresses of the kernel and of its arguments, and how many threads have entered and left."""

PACKED_MATRICES = ("query", "key", "value", "output", "grad_output", "grad_query", "grad_key", "grad_value")

PACKED_RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("counter", "batch", "heads", "kv_heads", "dim", "value_dim")),
        *((name, np.int64) for name in ("query_starts", "query_counts", "key_starts", "key_counts")),
        *((name, np.int64) for name in ("before", "after", "threshold", "seed", "multiply")),
        *((name + part, np.int64) for name in PACKED_MATRICES for part in ("", "_row")),
        ("scale", np.float64),
        ("dropout_scale", np.float64),
    ]
)
"""Arguments of the kernels of attention on packed rows, see `packed_attention`: of each matrix, its address and the
stride of its rows."""
