"""One attention problem: checked arguments, in the form that every backend takes.

`validate` checks the arguments of a verb once, and inner code trusts them. `Problem` holds them with all four axes.
`Problem.lowered` states the problem in primitives: the score lowers to a primitive of prepared queries and keys, the
normalizer to a row primitive, the mask to a few runs of visible keys in each row, the bias to its diagonals. A part
that has no such form stays as it is. None of this depends on the device: a backend states its `Capabilities`, and
`Capabilities.obstacle` says what keeps it from running a problem.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Generic, Literal, TypeVar, overload

import torch
from torch import Tensor

from regard.attention.changed_pairs import PairChanges
from regard.attention.result import Attended
from regard.attention.sharding.placement import Placed, is_placed
from regard.biases import Bias, bias_for
from regard.errors import ArgumentError, BackendError, KindError, RegardError, ShapeError
from regard.masks import Band, Documents, Mask, Spans, as_mask, causal
from regard.masks.mask import joined_masks
from regard.normalizers import as_normalizer
from regard.normalizers.normalizer import Normalizer, RowPrimitive
from regard.scores import DeltaRule, Modified, Prepared, Primitive, Score, Scoring, as_score
from regard.shapes.axes import Float
from regard.shapes.checks import check_floating, type_text
from regard.shapes.grid import Grid, is_open, upcast
from regard.shapes.layout import by_heads, disagreement, pairs_by_batch, rank_error, with_four_axes, without_added_axes
from regard.summaries import summarized
from regard.tracing.versions import Versions, tensors_of

Along = Literal["queries", "keys"] | None
"""The positions that an axis counts: queries, keys or none."""

Value = TypeVar("Value")


class once(Generic[Value]):  # noqa: N801 - a decorator
    """A property that is computed once; unlike `functools.cached_property` it has no lock, which no compiler traces."""

    def __init__(self, compute: Callable[[Any], Value]):
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> "once[Value]": ...
    @overload
    def __get__(self, owner: object, kind: type) -> Value: ...
    def __get__(self, owner: object | None, kind: type) -> "Value | once[Value]":
        if owner is None:
            return self
        value = self.compute(owner)
        setattr(owner, self.name, value)
        return value


class CachedMemory(ABC):
    """Keys and values of one head that a backend prepared for many calls."""

    backend: str

    @abstractmethod
    def declines(self, problem: "Problem") -> str | None:
        """Returns why the problem cannot be run over this memory; None if it can."""

    @abstractmethod
    def attend(self, problem: "Problem") -> Attended:
        """Returns output and weights of a problem that it accepts; the weights are None if they were never computed."""

    @abstractmethod
    def select(self, index: Tensor) -> "CachedMemory | None":
        """Returns the memory of these batch rows, in this order; None if it has to be prepared again.

        Args:
            index: int64 ``[rows]``.
        """


@dataclass(eq=False)
class Lowered:
    """One problem in primitives.

    It refers to the parts of a problem and not to the problem, which refers to it: a reference cycle would keep tensors
    in memory until Python's garbage collector runs.

    Attributes:
        score: ``modifiers(scale · primitive(query', key'))`` of prepared queries and keys.
        row: the normalizer as a row primitive; None if it has no such form.
        mask: which keys a query may see; None if it may see all.
        query, key: the user's queries and keys, ``[batch, heads, length, dim]``.
    """

    score: Prepared
    normalizer: Normalizer
    row: RowPrimitive | None
    mask: Mask | None
    bias: Bias | None
    query: Tensor
    key: Tensor

    @once
    def grid(self) -> Grid:
        """Returns the grid of all pairs."""
        return Grid.of(self.query, self.key)

    @once
    def spans(self) -> Spans | None:
        """Returns the visible keys of each row; None without a mask, and if they are not a few runs in every row."""
        return None if self.mask is None else self.mask.spans(self.grid)

    @property
    def dense_mask(self) -> Mask | None:
        """The mask, if it has to be made dense because the visible keys of a row are not a few runs; otherwise None."""
        return self.mask if self.spans is None else None

    @property
    def needs_no_mask(self) -> bool:
        """Whether there is no bias, and either no mask or one that is causal and aligned at the first key."""
        mask = self.mask
        if self.bias is not None or not (mask is None or isinstance(mask, Band)):
            return False
        if mask is None:
            return True
        offset = mask.offset_on(self.grid)
        return mask.is_causal and isinstance(offset, int) and offset == 0

    @once
    def diagonals(self) -> Tensor | None:
        """Returns the diagonals ``[heads or 1, queries + keys − 1]`` of a bias that is a function of distance; else
        None."""
        return None if self.bias is None else self.bias.diagonals(self.grid, upcast(self.score.query).dtype)

    def dense_bias(self) -> Tensor | None:
        """Returns the bias as a tensor of four axes that broadcasts to all pairs; None if there is no bias."""
        if self.bias is None:
            return None
        bias = self.bias(self.query, self.grid).to(upcast(self.score.query).dtype)
        return bias[(None,) * (4 - bias.dim())]


# Not frozen: freezing would take more time than the rest of the constructor, which every call runs.
@summarized
@dataclass(eq=False)
class Problem:
    """One call of attention, with validated arguments.

    Attributes:
        query: ``[batch, heads, queries, dim]``.
        key: ``[batch, kv_heads, keys, dim]``.
        value: ``[batch, kv_heads, keys, value_dim]``.
        score: how queries and keys are compared.
        normalizer: how scores become weights.
        mask: which keys a query may see; None if it may see all.
        bias: a bias that is added to the scores, or None.
        dropout: probability of dropping a weight, in [0, 1).
        rank: how many axes the user's tensors had (2 to 4); `regard.shapes.layout` says what they mean.
        memory: the keys and values as a backend prepared them for many calls, or None.
        kind: the kind of the call and the layout of its tensors (`regard.attention.kinds`), or None.
        route: how calls of this kind run (`regard.attention.routes`), if that is known; else None.
        changes: other scores and weights in place of some (`regard.watching.intervene`), or None.
        changed: returns the problem that `intervene` computed in this one's place; None: it ran as it is.
        placed: this process's parts, if the sequences are sharded; then query, key and value have the sizes of the
            whole and no elements.
        pairs: number of (batch, head, query, key) pairs.
        pairs_seen: which pairs are visible, where that is known already (`regard.attention.padding`); else None.

    Example:
        >>> import torch
        >>> import regard
        >>> query, memory = torch.zeros(3, 2, 5, 8), torch.ones(3, 2, 7, 8)
        >>> problem = regard.plan(query, memory, memory, mask="causal").candidates.problem
        >>> problem
        Problem(
          query: [3, 2, 5, 8] float32, 0
          key: [3, 2, 7, 8] float32, 1
          value: [3, 2, 7, 8] float32, 1
          score: ScaledDot()
          normalizer: Softmax()
          mask: causal()
          dropout: 0.0
          rank: 4
        )
        >>> problem.pairs, problem.wants_gradient
        (210, False)
        >>> problem.row.kind, problem.prepared.primitive
        ('softmax', InnerProduct())
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
    changes: PairChanges | None = field(default=None, repr=False)
    placed: Placed | None = field(default=None, repr=False)
    kind: tuple[tuple[Hashable, ...], Any] | None = field(default=None, init=False, repr=False)
    route: Any = field(default=None, init=False, repr=False)
    changed: "Callable[[], Problem] | None" = field(default=None, init=False, repr=False)
    pairs: int = field(init=False, repr=False)
    pairs_seen: Tensor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        batch, heads, queries, _ = self.query.shape
        self.pairs = batch * heads * queries * self.key.shape[2]

    def take(self, route: Any, hides: bool, grid: Grid | None) -> None:
        """Takes over what is known of all problems of this one's kind."""
        self.route = route
        vars(self)["hiding_mask"] = self.mask if hides else None
        if grid is not None:
            vars(self)["grid"] = grid

    @once
    def lowered(self) -> Lowered:
        """Returns the problem in primitives."""
        if self.placed is not None:
            raise BackendError(
                "only attend, attend_with_weights, observe, plan and layers that call them take sharded sequences: "
                "write regard.distributed.gather(tensor) for each tensor of this call"
            )
        if isinstance(self.score, DeltaRule):
            prepared = self.score.prepare(self.query, self.key, _documents_of(self.mask))
        else:
            prepared = self.score.prepare(self.query, self.key)
        return Lowered(prepared, self.normalizer, self.row, self.hiding_mask, self.bias, self.query, self.key)

    @once
    def row(self) -> RowPrimitive | None:
        """Returns the normalizer as a row primitive; None if it has no such form."""
        return self.normalizer.lower()

    @property
    def couples_queries(self) -> bool:
        """Whether a weight depends on the scores of other queries, so that all queries are computed at once."""
        return self.normalizer.couples == "queries" or (self.changes is not None and self.changes.needs_whole)

    @property
    def prepared(self) -> Prepared:
        """The score lowered for these inputs."""
        return self.lowered.score

    @once
    def hiding_mask(self) -> Mask | None:
        """Returns the mask; None if it is known to hide nothing, such as a causal mask for the last query alone."""
        mask = self.mask
        return mask if mask is not None and (is_open(self.pairs) or not mask.hides_nothing(self.grid)) else None

    @property
    def may_hide(self) -> bool:
        """Whether a key may be hidden from a query, by the mask or by a bias of −∞."""
        return self.bias is not None or self.hiding_mask is not None

    @property
    def may_hide_rows(self) -> bool:
        """Whether a query may see no key at all."""
        mask = self.hiding_mask
        return self._bias_may_hide or (mask is not None and not mask.shows_all_rows(self.grid))

    @property
    def may_hide_keys(self) -> bool:
        """Whether no query of a batch row may see some key."""
        mask = self.hiding_mask
        return self._bias_may_hide or (mask is not None and not mask.shows_all_keys(self.grid))

    @property
    def _bias_may_hide(self) -> bool:
        return self.bias is not None and self.bias.may_hide

    @once
    def grid(self) -> Grid:
        """Returns the grid of all pairs."""
        return Grid.of(self.query, self.key, self.rank)

    @property
    def wants_gradient(self) -> bool:
        """Whether any input or parameter may need a gradient."""
        if not torch.is_grad_enabled():
            return False
        if self.query.requires_grad or self.key.requires_grad or self.value.requires_grad:
            return True
        if self.bias is not None and self.bias.needs_gradient(self.query):
            return True
        return _has_leaf(self.score) or _has_leaf(self.normalizer) or _has_differentiable_function(self.score)

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
        """The problem without the memory of its inputs, for later questions about which pairs are visible.

        A problem with a bias keeps its inputs, because a bias may depend on the queries.
        """
        if self.bias is not None:
            return self
        query, key, value = (tensor.new_empty(()).expand(tensor.shape) for tensor in (self.query, self.key, self.value))
        return replace(self, query=query, key=key, value=value, memory=None)

    def restore(self, tensor: Tensor, along: Along = "queries", axis: int = 2) -> Tensor:
        """Returns a result ``[batch, heads, ...]`` with the leading axes of the user's tensors.

        Args:
            tensor: the result.
            along: what its axis of positions counts, of which a process has a part in a sharded call; None: it has
                none.
            axis: this axis.
        """
        result = without_added_axes(tensor, self.rank)
        if self.placed is None:
            return result
        shards = self.placed.keys if along == "keys" else self.placed.queries
        return self.placed.wrap(result, None if along is None else axis - (4 - self.rank), shards)


def _has_leaf(module: torch.nn.Module) -> bool:
    """Whether a parameter or buffer of a module needs a gradient; most modules have neither, which is checked first."""
    if not (module._parameters or module._buffers or module._modules):
        return False
    return any(tensor.requires_grad for tensor in (*module.parameters(), *module.buffers()))


def _has_differentiable_function(score: Score) -> bool:
    """Whether a function that modifies a score reads a tensor that needs a gradient."""
    functions = [module.fn for module in score.modules() if isinstance(module, Modified)] if score._modules else []
    return any(tensor.requires_grad for tensor in tensors_of(functions))


@dataclass(frozen=True)
class Capabilities:
    """The problems that a backend's kernels can run.

    Attributes:
        devices: types of devices; None if there are kernels for all.
        modifiers: classes of modifiers of scores; a problem may have one modifier.
        row_tensors: parameters of row primitives that may be tensors; the others must be numbers.
    """

    primitives: tuple[type[Primitive], ...]
    rows: frozenset[str]
    devices: frozenset[str] | None = None
    modifiers: tuple[type, ...] = ()
    row_tensors: frozenset[str] = frozenset()

    def obstacle(self, lowered: Lowered) -> str | None:
        """Returns why a problem cannot be run; None if it can."""
        device = lowered.query.device
        # Tensors on ``meta`` stand for tensors on any device.
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


def validate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Scoring = "scaled_dot",
    normalizer: object = "softmax",
    mask: object = None,
    bias: object = None,
    dropout: float = 0.0,
) -> Problem:
    """Checks the arguments of a verb, and returns them with four axes.

    Raises:
        KindError: types are wrong, or dtypes or devices differ.
        ShapeError: ranks are wrong, or axes do not agree.
        ArgumentError: a value is out of range.
        UnknownNameError: no score or normalizer has this name.
    """
    if is_placed(query, key, value):
        from regard.attention.sharding.checked import placed_problem  # imports torch.distributed

        return placed_problem(_validate_placed, query, key, value, score, normalizer, mask, bias, dropout)
    return _validate(query, key, value, score, normalizer, mask, bias, dropout)


def _validate_placed(placed: Placed, *parts: Any) -> Problem:
    """Checks the arguments of a sharded call, as those of the whole."""
    problem = _validate(*placed.whole(), *parts)
    parts = placed.query, placed.key, placed.value
    placed.query, placed.key, placed.value = (one.to(problem.query.dtype) for one in parts)  # autocast's
    problem.placed = placed
    return problem


def _validate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Scoring,
    normalizer: object,
    mask: object,
    bias: object,
    dropout: float,
) -> Problem:
    query, key, value = one_dtype(query, key, value)
    rank = query.dim()
    if not 2 <= rank <= 4:
        raise ShapeError(rank_error(query.shape))
    if not key.dim() == rank == value.dim():
        name, tensor = ("key", key) if key.dim() != rank else ("value", value)
        raise ShapeError(
            f"{name} must have as many axes as query, {rank}; it has shape {list(tensor.shape)} "
            f"and query has {list(query.shape)}"
        )
    shapes = query.shape, key.shape, value.shape
    if rank < 4:
        query, key, value = (with_four_axes(tensor, rank) for tensor in (query, key, value))
    B, H, _, _ = query.shape
    Bk, Hk, K, _ = key.shape
    Bv, Hv, Kv, _ = value.shape
    if Bv != Bk or Hv != Hk or Kv != K or Bk != B or (Hk != H and (Hk == 0 or H % Hk)):
        raise ShapeError(disagreement(*shapes))

    checked_score = as_score(score)
    checked_normalizer = as_normalizer(normalizer)
    checked_mask = mask if mask is None or isinstance(mask, Mask) else as_mask(mask)
    if checked_mask is None and checked_score.is_causal:
        checked_mask = causal()
    checked_bias = bias_for(bias, H)
    checked_bias = None if checked_bias is None else checked_bias.of_keys(key)
    parts = checked_mask, checked_bias, check_dropout(dropout)
    problem = Problem(query, key, value, checked_score, checked_normalizer, *parts, rank)
    if rank == 3:
        return _with_one_head(problem)
    _check_parts(problem)
    return problem


def _with_one_head(problem: Problem) -> Problem:
    """Checks the parts of a problem of tensors with 3 axes, and returns it with masks and biases of four axes."""
    by_batch = problem
    if problem.mask is not None or problem.bias is not None:
        mask = None if problem.mask is None else problem.mask.map_tensors(pairs_by_batch)
        bias = None if problem.bias is None else problem.bias.map_tensors(pairs_by_batch)
        by_batch = replace(problem, mask=mask, bias=bias)
    try:
        _check_parts(by_batch)
        _check_heads(by_batch)
    except ShapeError as error:
        query, key, value = (tensor.transpose(0, 1) for tensor in (problem.query, problem.key, problem.value))
        try:
            by_head = replace(problem, query=query, key=key, value=value, rank=4)
            _check_parts(by_head)
            _check_heads(by_head)
        except RegardError:
            raise error from None
        raise ShapeError(f"{error}; {by_heads(problem.query[:, 0].shape)}") from None
    return by_batch


def _check_heads(problem: Problem) -> None:
    """Raises ShapeError unless parameters of the normalizer that are one a head have as many heads as the queries."""
    row, heads = problem.row, problem.query.shape[1]
    for name in () if row is None else ("temperature", "sink", "alpha", "shift"):
        value = getattr(row, name)
        if isinstance(value, Tensor) and value.numel() not in (1, heads):
            raise ShapeError(f"the normalizer's {name} is for {value.numel()} heads; query has {heads}")


def _check_parts(problem: Problem) -> None:
    """Raises an error unless score, mask and bias fit the queries and keys."""
    problem.score.check(problem.query, problem.key)
    if problem.mask is not None:
        problem.mask.check(problem.grid)
        if problem.score.is_causal:
            _check_causal(problem.score, problem.mask, problem.grid)
    if problem.bias is not None:
        problem.bias.check(problem.query, problem.grid)


def _documents_of(mask: Mask | None) -> tuple[Tensor, Tensor] | None:
    """Returns the documents of queries and of keys that a mask separates; None if it separates none."""
    for part in joined_masks(mask):
        if isinstance(part, Documents):
            return part.query_ids, part.query_ids if part.key_ids is None else part.key_ids
    return None


def _check_causal(score: Score, mask: Mask, grid: Grid) -> None:
    """Raises ArgumentError unless a mask is causal and aligns the ends; for the delta rule also within documents."""
    band, *others = sorted(joined_masks(mask), key=lambda part: isinstance(part, Documents))
    offset = band.offset_on(grid) if isinstance(band, Band) and band.is_causal else None
    takes_others = len(others) <= isinstance(score, DeltaRule) and all(isinstance(part, Documents) for part in others)
    if offset is None or isinstance(offset, Tensor) or offset != grid.offset or not takes_others:
        raise ArgumentError(
            f"mask must be 'causal' or None with the score {type(score).__name__}, whose weights depend on all keys up "
            f"to the query; it is {mask!r}: for padding, set its beta to 0 there"
        )


def check_dropout(dropout: object) -> float:
    """Returns ``dropout`` as a float if it is a probability in [0, 1); raises KindError or ArgumentError otherwise."""
    if type(dropout) is float and 0.0 <= dropout < 1.0:
        return dropout
    if isinstance(dropout, bool) or not isinstance(dropout, Real):
        raise KindError(f"dropout must be a number; it is {type_text(dropout)}")
    rate = float(dropout)
    if not 0.0 <= rate < 1.0:  # NaN too
        raise ArgumentError(f"dropout must be in [0, 1); it is {rate}")
    return rate


def one_dtype(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the inputs if they have one dtype and one device; under autocast they are converted to its dtype."""
    check_floating("query", query)
    check_floating("key", key)
    check_floating("value", value)
    on_cpu = query.is_cpu and key.is_cpu and value.is_cpu
    if on_cpu and query.dtype is key.dtype is value.dtype:
        return query, key, value
    if not on_cpu and not key.device == query.device == value.device:
        name, tensor = ("key", key) if key.device != query.device else ("value", value)
        raise KindError(f"{name} must be on query's device, {query.device}; it is on {tensor.device}")
    if not query.dtype == key.dtype == value.dtype:
        device = query.device.type
        # PyTorch raises for devices that have no autocast, such as meta.
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            return query.to(dtype), key.to(dtype), value.to(dtype)
        raise KindError(
            f"query, key and value must have one dtype; they have {query.dtype}, {key.dtype} and {value.dtype}"
        )
    return query, key, value
