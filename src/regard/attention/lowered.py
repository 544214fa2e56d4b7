"""A problem in primitives: what a backend that has kernels of its own is asked for, and what stands in its way.

The score lowers to a primitive of prepared queries and keys, the normalizer to a row primitive, the mask to a few runs
of visible keys in each row, the bias to its diagonals; where one of them does not, it stays what it is. Nothing here
depends on the device: a backend states its `Capabilities`, and `obstacle` compares both.
"""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from regard.biases import Bias
from regard.masks import Band, Mask, Spans
from regard.normalizers.normalizer import Normalizer, RowPrimitive
from regard.scores.score import Prepared, Primitive
from regard.shapes import Grid, upcast


@dataclass(eq=False)
class Lowered:
    """One problem in primitives.

    It refers to the parts of a problem and not to the problem, which refers to it: a cycle of references would keep
    tensors until Python's collector runs.

    Attributes:
        score: ``modifiers(scale · primitive(query', key'))`` of prepared queries and keys.
        normalizer: as the user gave it.
        row: the normalizer as a row primitive; None if it is none.
        mask: which keys a query may see; None: all.
        bias: what is added to the scores; None: nothing.
        query, key: as the user gave them, ``[batch, heads, length, dim]``.
    """

    score: Prepared
    normalizer: Normalizer
    row: RowPrimitive | None
    mask: Mask | None
    bias: Bias | None
    query: Tensor
    key: Tensor

    @cached_property
    def grid(self) -> Grid:
        """The index space of all pairs."""
        return Grid.of(self.query, self.key)

    @cached_property
    def spans(self) -> Spans | None:
        """The visible keys of each row, if there is a mask and they are a few runs in every row."""
        return None if self.mask is None else self.mask.spans(self.grid)

    @property
    def dense_mask(self) -> Mask | None:
        """The mask, if the visible keys of its rows are no few runs, so that it has to be made dense."""
        return self.mask if self.spans is None else None

    @property
    def needs_no_mask(self) -> bool:
        """Whether all pairs are seen and none is biased, or the mask is causal from the first key on."""
        mask = self.mask
        if self.bias is not None or not (mask is None or isinstance(mask, Band)):
            return False
        if mask is None:
            return True
        offset = mask.offset_on(self.grid)
        return mask.before is None and mask.after == 0 and isinstance(offset, int) and offset == 0

    @cached_property
    def diagonals(self) -> Tensor | None:
        """The bias by its diagonals ``[heads or 1, queries + keys − 1]``, if it is a function of distance alone."""
        return None if self.bias is None else self.bias.diagonals(self.grid, upcast(self.score.query).dtype)

    def dense_bias(self) -> Tensor | None:
        """The bias as a tensor of four axes that broadcasts to all pairs; None where there is none."""
        if self.bias is None:
            return None
        bias = self.bias(self.query, self.grid).to(upcast(self.score.query).dtype)
        return bias[(None,) * (4 - bias.dim())]


@dataclass(frozen=True)
class Capabilities:
    """What a backend's kernels take.

    Attributes:
        primitives: classes of score primitives.
        rows: kinds of row primitives.
        devices: types of devices; None: all.
        modifiers: classes of modifiers of scores, of which a problem may have one.
        row_tensors: parameters of row primitives that may be tensors; others are numbers.
    """

    primitives: tuple[type[Primitive], ...]
    rows: frozenset[str]
    devices: frozenset[str] | None = None
    modifiers: tuple[type, ...] = ()
    row_tensors: frozenset[str] = frozenset()

    def obstacle(self, lowered: Lowered) -> str | None:
        """Why a problem cannot be run; None if nothing is in the way."""
        device = lowered.query.device
        # Tensors on ``meta`` stand for tensors anywhere.
        if self.devices is not None and device.type not in (*self.devices, "meta"):
            return f"the inputs are on {device}"
        score = lowered.score
        if not isinstance(score.primitive, self.primitives):
            names = " and ".join(primitive.__name__ for primitive in self.primitives)
            return f"the score lowers to {type(score.primitive).__name__}; there are kernels for {names}"
        if len(score.modifiers) > bool(self.modifiers):
            return "the score is modified after its primitive"
        if score.modifiers and not isinstance(score.modifiers[0], self.modifiers):
            return "the score is modified by a function"
        row = lowered.row
        if row is None or row.kind not in self.rows:
            return f"there is no kernel for {type(lowered.normalizer).__name__}"
        for value in row:
            if isinstance(value, Tensor):
                return self._tensor_obstacle(row)
        return None

    def _tensor_obstacle(self, row: RowPrimitive) -> str | None:
        for name, value in zip(row._fields, row, strict=True):
            if isinstance(value, Tensor) and name not in self.row_tensors:
                return f"the normalizer's {name} is a tensor"
        return None
