"""What a fused kernel is called with."""

from typing import Annotated, NamedTuple

from regard.kernels.cpu.fields import DIFFERENTIABLE, Strides, Tensor
from regard.kernels.cpu.sizes import ceil_div
from regard.kernels.kinds import SOFTMAX

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
