"""One attention problem, checked and with all four axes: what every backend takes."""

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attention.lowered import Lowered
from regard.axes import Float
from regard.biases import Bias
from regard.masks import Mask
from regard.normalizers.normalizer import Normalizer, RowPrimitive
from regard.scores.score import Prepared, Score
from regard.shapes import Grid, is_open
from regard.summaries import record_summary
from regard.versions import Versions

if TYPE_CHECKING:
    from regard.attention.memory import CachedMemory


# Not frozen: that would be the longest part of making one, and every call makes one.
@dataclass(eq=False)
class Problem:
    """Inputs that were validated.

    Attributes:
        query: ``[batch, heads, queries, dim]``.
        key: ``[batch, kv_heads, keys, dim]``.
        value: ``[batch, kv_heads, keys, value_dim]``.
        score: how queries and keys are compared.
        normalizer: how scores become weights.
        mask: which keys a query may see; None: all.
        bias: what is added to the scores; None: nothing.
        dropout: probability of dropping a weight, in [0, 1).
        rank: how many axes the user's tensors had (2 to 4).
        memory: the keys and values as a backend prepared them for many calls; None where none did.
    """

    query: Float[Tensor, "batch heads queries dim"]
    key: Float[Tensor, "batch kv_heads keys key_dim"]
    value: Float[Tensor, "batch kv_heads keys value_dim"]
    score: Score
    normalizer: Normalizer
    mask: Mask | None = None
    bias: Bias | None = None
    dropout: float = 0.0
    rank: int = 4
    memory: "CachedMemory | None" = None
    pairs: int = field(init=False, repr=False)
    """How many pairs there are."""
    _lowered: Lowered | None = field(default=None, init=False, repr=False)
    _grid: Grid | None = field(default=None, init=False, repr=False)
    _row: RowPrimitive | None = field(default=None, init=False, repr=False)
    _hides: bool | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        batch, heads, queries, _ = self.query.shape
        self.pairs = batch * heads * queries * self.key.shape[2]

    def __repr__(self) -> str:
        shown = ((field.name, getattr(self, field.name)) for field in fields(self) if field.repr)
        return record_summary("Problem", shown)

    # Each is computed once, without `cached_property`, whose lock no compiler can enter.

    @property
    def lowered(self) -> Lowered:
        """The problem in primitives, lowered once."""
        if self._lowered is None:
            prepared = self.score.prepare(self.query, self.key)
            parts = self.normalizer, self.row, self.hiding_mask, self.bias, self.query, self.key
            self._lowered = Lowered(prepared, *parts)
        return self._lowered

    @property
    def row(self) -> RowPrimitive | None:
        """The normalizer as a row primitive; None if it is none."""
        if self._row is None:
            self._row = self.normalizer.lower()
        return self._row

    @property
    def prepared(self) -> Prepared:
        """The score lowered for these inputs."""
        return self.lowered.score

    @property
    def hiding_mask(self) -> Mask | None:
        """The mask; None where it is known to hide nothing, as a causal one from the last query."""
        if self._hides is None:
            mask = self.mask
            self._hides = mask is not None and (is_open(self.pairs) or not mask.hides_nothing(self.grid))
        return self.mask if self._hides else None

    @property
    def may_hide(self) -> bool:
        """Whether a query may have hidden keys: a bias hides those for which it is −∞."""
        return self.bias is not None or self.hiding_mask is not None

    @property
    def grid(self) -> Grid:
        """The index space of all pairs."""
        if self._grid is None:
            self._grid = Grid.of(self.query, self.key)
        return self._grid

    @property
    def wants_gradient(self) -> bool:
        """Whether a backward pass may ask for the gradient of any input or parameter."""
        if not torch.is_grad_enabled():
            return False
        if self.query.requires_grad or self.key.requires_grad or self.value.requires_grad:
            return True
        if self.bias is not None and self.bias.needs_gradient(self.query):
            return True
        return _has_leaf(self.score) or _has_leaf(self.normalizer)

    @property
    def versions(self) -> Versions:
        """The versions of all tensors that a calculation of this problem reads."""
        prepared = self.prepared
        score = self.score, prepared.primitive, prepared.scale, prepared.modifiers
        return Versions(
            query=self.query, key=self.key, value=self.value, score=score, normalizer=self.normalizer, mask=self.mask,
            bias=self.bias,
        )  # fmt: skip

    @property
    def without_numbers(self) -> "Problem":
        """The same grid, mask and bias, for what asks later who sees whom: it keeps no input in memory but a bias's."""
        if self.bias is not None:
            return self
        query, key, value = (tensor.new_empty(()).expand(tensor.shape) for tensor in (self.query, self.key, self.value))
        return replace(self, query=query, key=key, value=value, memory=None)

    def restore(self, tensor: Tensor) -> Tensor:
        """A result ``[batch, heads, ...]`` with the leading axes that the user's tensors had."""
        if self.rank == 4:
            return tensor
        return tensor[0] if self.rank == 3 else tensor[0, 0]


def _has_leaf(module: torch.nn.Module) -> bool:
    """Whether a parameter or buffer of a module wants a gradient; most modules have neither, and answer at once."""
    if not (module._parameters or module._buffers or module._modules):
        return False
    return any(tensor.requires_grad for tensor in (*module.parameters(), *module.buffers()))
