"""The base class of normalizers, which turn scores into weights, and the usual one, softmax.

`RowPrimitive` is what a normalizer lowers to. `check_rows`, `hidden_pairs`, `row_maximum` and `log_sum_exp` are the
operations on rows of scores that all normalizers share. `safe_softmax` defines contract 2: a row without visible keys
gets weights 0.
"""

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.errors import KindError, ShapeError
from regard.fields import DeclaredModule
from regard.names.answered import answered
from regard.normalizers.parameter import along_heads, set_parameter
from regard.shapes.arrays import as_tensor
from regard.shapes.axes import Float
from regard.shapes.checks import check_floating, type_text
from regard.shapes.grid import Grid, upcast
from regard.shapes.layout import Pairs
from regard.tracing.ownership import own_copy
from regard.tracing.transforms import can_read, reverse_mode_only


class RowPrimitive(NamedTuple):
    """The operation of a normalizer on a row of scores, in primitives that a backend can implement.

    With :math:`s` a row of scores and :math:`j` the position of a key,

    .. math:: w_j = primitive(s)_j \\; \\exp\\!\\big(-(j - center)^2 / (2 \\, sigma^2)\\big)

    ============  ==================================================================================================
    kind          primitive(s)
    ============  ==================================================================================================
    ``softmax``   exp(s_j / temperature) / (exp(sink) + Σ exp(s_k / temperature)); without a sink its term is 0
    ``entmax``    the weights of `Entmax` with this alpha
    ``sigmoid``   1 / (1 + exp(−(s_j + shift)))
    ``hard``      1 at the first maximum of the row, 0 elsewhere; no gradient to the scores
    ``identity``  s_j
    ``ratio``     s_j / Σ s_k; 0 if the sum is 0
    ============  ==================================================================================================

    Attributes:
        kind: one of these.
        temperature: the temperature of softmax; a number, ``[]`` or ``[heads]``.
        sink: the score of the softmax's sink, not divided by the temperature; a number, ``[]`` or ``[heads]``; None
            for no sink.
        alpha: the alpha of entmax; a number, ``[]`` or ``[heads]``.
        shift: the number that sigmoid adds to each score; a number, ``[]`` or ``[heads]``.
        center: the center of the Gaussian window over the weights, in key positions, broadcastable to
            ``[batch, heads, queries]``; None for no window.
        sigma: the window's standard deviation in key positions, a number or broadcastable like ``center``.

    Example:
        >>> from regard import normalizers
        >>> normalizers.sigmoid.lower().kind
        'sigmoid'
    """

    kind: Literal["softmax", "entmax", "sigmoid", "hard", "identity", "ratio"]
    temperature: float | Tensor = 1.0
    sink: float | Tensor | None = None
    alpha: float | Tensor = 1.5
    shift: float | Tensor = 0.0
    center: Tensor | None = None
    sigma: float | Tensor | None = None


class Normalizer(DeclaredModule, ABC):
    """Turns scores into weights, row by row, or with other rows of the grid as `couples` says.

    Infinite and NaN scores have the same effect, however the weights are computed (contracts 2 and 10):

    =======  ========================================================================================================
    score    weight
    =======  ========================================================================================================
    −inf     exactly 0: the pair is hidden. It passes no gradient to its score or to a parameter, even if the incoming
             gradient is NaN. A row of only −inf has weights 0 and gradient 0.
    NaN      NaN for every visible key of the row if keys compete (variants of softmax, entmax, ratio); for the key
             itself in sigmoid, squared ReLU and identity; for it and the keys before it in stick-breaking; for one key
             of the row in hard. Other rows are unaffected.
    +inf     NaN for every visible key of the row if keys compete, since ∞ − ∞ is undefined; the limit in the others: 1
             in sigmoid and hard, +inf in squared ReLU and identity, all that is left in stick-breaking.
    =======  ========================================================================================================

    For every normalizer, the log-sum-exp of a row is NaN if a visible score is NaN, and otherwise +inf if one is +inf.

    Every derivative in PyTorch (reverse and forward mode, ``torch.func``, batched and higher derivatives) is exact. For
    the entmax family under ``torch.func`` and in forward mode, that holds up to the seventh derivative.

    Attributes:
        couples: what one weight depends on. ``"keys"``: the scores of its row. ``"heads"``: its row in all heads, of
            which a tile has every one; such a normalizer lowers to no row primitive. ``"queries"``: the scores of all
            queries too, so that only a backend that computes whole grids (`regard.attention.Backend.whole_grids`) runs
            it.
        random: whether weights are drawn at random, so that the same scores give different weights each time.
        generator: the generator of the draws; None is PyTorch's global one. A backend that computes the weights again
            in its backward pass must restore the generator's state, or decline.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import normalizers
        >>> class Uniform(normalizers.Normalizer):
        ...     def forward(self, scores, dim=-1):
        ...         visible = (scores > -torch.inf).to(scores.dtype)
        ...         return visible / visible.sum(dim, keepdim=True).clamp(min=1)
        ...
        >>> x = torch.ones(2, 1)
        >>> regard.attend_with_weights(x, x, x, normalizer=Uniform(), mask=regard.masks.causal()).weights
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000]])
    """

    _WEIGHING_METHODS = frozenset({"__call__", "forward", "weigh", "log_sum_exp"})
    """The methods whose result `lower` describes."""

    couples: Literal["keys", "heads", "queries"] = "keys"
    random: bool = False
    generator: torch.Generator | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__mro__:
            if "lower" in vars(base):
                return
            if not Normalizer._WEIGHING_METHODS.isdisjoint(vars(base)):
                cls.lower = Normalizer.lower
                return

    @abstractmethod
    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        """Returns weights of the shape and dtype of ``scores``, normalized along ``dim``.

        The normalizers of regard take lists, NumPy arrays and integers as well, and return a tensor.
        """

    def weigh(self, scores: Pairs, grid: Grid) -> Pairs:
        """Returns the weights of one tile of attention scores.

        Args:
            scores: ``[batch, heads, queries, keys]`` of the tile, −inf where the mask hides the pair. The tile has
                every key that its queries may see.
            grid: the tile, for normalizers that depend on positions or heads.
        """
        return self(scores, dim=-1)

    def log_sum_exp(self, scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
        """Returns ``log Σ exp`` of each row, after the normalizer's temperature, ``[batch, heads, queries]``.

        It is −inf for an empty row, NaN for a row with NaN, and otherwise +inf for a row with +inf.
        """
        return log_sum_exp(upcast(scores)).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        """Returns the operation on a row, in primitives that backends implement, or None if they cannot express it.

        A subclass that overrides how weights are computed, but not `lower`, lowers to None: it does not inherit a
        lowering that describes other weights.
        """
        return None


class WrappingNormalizer(Normalizer):
    """Contains another normalizer, whose randomness, coupling and `log_sum_exp` are its own."""

    def __init__(self, normalizer: Normalizer):
        super().__init__()
        if not isinstance(normalizer, Normalizer):
            raise KindError(f"normalizer must be a Normalizer; it is {type_text(normalizer)}")
        self.normalizer = own_copy(normalizer)
        self.random, self.generator, self.couples = normalizer.random, normalizer.generator, normalizer.couples

    def log_sum_exp(self, scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
        return self.normalizer.log_sum_exp(scores)


def check_rows(scores: Tensor | ArrayLike, dim: int) -> Tensor:
    """Returns the scores as a floating-point tensor; they may be lists, a NumPy array or integers (`as_tensor`).

    Raises:
        KindError, ShapeError, ArgumentError: they hold no real numbers, or have no axis ``dim``.
    """
    rows: Tensor = as_tensor(scores, "scores")
    check_floating("scores", rows)
    if not -rows.dim() <= dim < rows.dim():
        raise ShapeError(f"dim must be an axis of scores, which have shape {list(rows.shape)}; it is {dim}")
    return rows


def hidden_pairs(scores: Tensor) -> Tensor | None:
    """Returns a bool tensor, True where a score is −inf, or None if all scores are known to be finite.

    On a CPU one sum tells whether they are; on other devices reading it would cost more than it saves.
    """
    if can_read(scores) and math.isfinite(scores.detach().sum().item()):
        return None
    return scores == -torch.inf


def first_is_finite(rows: Tensor, dim: int) -> bool:
    """Whether the first elements of all rows have a finite sum: a cheap test for rows that are entirely NaN.

    On a device it returns False, since the answer would have to be waited for.
    """
    return rows.is_cpu and math.isfinite(rows.detach().narrow(dim, 0, min(1, rows.shape[dim])).sum().item())


def row_maximum(scores: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Returns the maximum of each row, and which rows are empty: they have no visible key.

    Returns:
        The maximum, but 0 for an empty row, so that subtracting it gives no NaN; and a bool tensor, True for empty
        rows. Both keep ``dim`` with length 1.
    """
    if scores.shape[dim] == 0:
        shape = list(scores.shape)
        shape[dim] = 1
        return scores.new_zeros(shape), torch.ones(shape, dtype=torch.bool, device=scores.device)
    maximum = scores.amax(dim, keepdim=True)
    empty = maximum == -torch.inf
    return maximum.masked_fill(empty, 0.0), empty


def log_sum_exp(scores: Tensor) -> Tensor:
    """Returns ``log Σ exp`` over the last axis.

    It is −inf, with gradient 0, for an empty row; NaN for a row with NaN; otherwise +inf for a row with +inf.
    """
    hidden = hidden_pairs(scores)
    if hidden is None and scores.shape[-1]:
        return torch.logsumexp(scores, dim=-1)
    hidden = scores == -torch.inf if hidden is None else hidden
    empty = hidden.all(-1, keepdim=True)
    # The first fill changes no value: it only stops gradients at hidden pairs.
    visible = scores.masked_fill(hidden, -torch.inf).masked_fill(empty, 0.0)
    return torch.logsumexp(visible, dim=-1).masked_fill(empty.squeeze(-1), -torch.inf)


class _PlainState(threading.local):
    plain = False


_STATE = _PlainState()


@contextmanager
def plain_rows() -> Iterator[None]:
    """Makes this thread's normalizers use PyTorch operations only."""
    previous, _STATE.plain = _STATE.plain, True
    try:
        yield
    finally:
        _STATE.plain = previous


def are_rows_plain() -> bool:
    """Whether this thread is within `plain_rows`."""
    return _STATE.plain


_PLAIN_SOFTMAX = RowPrimitive("softmax")


@answered
class Softmax(Normalizer, fields=("temperature",)):
    """Computes weights proportional to the exponentials of the scores.

    .. math:: w_j = \\exp(s_j / T) \\,/\\, \\sum_k \\exp(s_k / T)

    Bahdanau et al. 2015 (eq. 6), Vaswani et al. 2017 (eq. 1) with :math:`T = 1`; a small temperature sharpens the
    weights, a large one flattens them.

    Args:
        temperature: :math:`T > 0`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned; default 1.

    Raises:
        ArgumentError: the temperature is not finite or not above 0.

    Numerics: the row's maximum is subtracted first; half precision is computed in float32 and returned in its own
    dtype.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.Softmax(temperature=0.5)(scores)
        tensor([0.8668, 0.1173, 0.0159])
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | Tensor = 1.0):
        super().__init__()
        set_parameter(self, "temperature", temperature, above=0.0)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        return safe_softmax(tempered(upcast(scores), self.temperature, dim), dim).to(scores.dtype)

    def log_sum_exp(self, scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
        return log_sum_exp(tempered(upcast(scores), self.temperature, -1)).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        temperature = self.temperature
        if type(temperature) is float and temperature == 1.0:
            return _PLAIN_SOFTMAX
        return RowPrimitive("softmax", temperature=temperature)


softmax = Softmax()


class SoftmaxWithSink(Normalizer, fields=("sink",)):
    """Computes softmax with one more term in the denominator, so that a query may attend to nothing.

    .. math:: w_j = \\exp(s_j) \\,/\\, \\big(\\exp(b) + \\sum_k \\exp(s_k)\\big)

    The sink :math:`b = 0` is Miller's "softmax off by one" (2023). With one learned sink a head, it is the sink of
    gpt-oss (2025); it acts as a key without a value (Xiao et al. 2024, "Efficient streaming language models with
    attention sinks"). Weights sum to less than 1.

    Args:
        sink: the sink's score :math:`b`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned.

    Raises:
        ArgumentError: the sink is not finite.

    Numerics: the maximum of the scores and the sink is subtracted first; half precision is computed in float32.
    `log_sum_exp` is over the keys alone.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.SoftmaxWithSink(0.0)(scores)
        tensor([0.5344, 0.1966, 0.0723])
    """

    sink: float | Tensor

    def __init__(self, sink: float | Tensor):
        super().__init__()
        set_parameter(self, "sink", sink)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        sink = along_heads("sink", self.sink, row, dim)
        shape = list(row.shape)
        shape[dim] = 1
        sinks = sink.expand(shape) if isinstance(sink, Tensor) else row.new_full(shape, sink)
        return sink_softmax(row, sinks, dim).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("softmax", sink=self.sink)


def softmax_with_sink(sink: float | Tensor) -> SoftmaxWithSink:
    """Returns a softmax with a sink, which is a number or a learned tensor: see `SoftmaxWithSink`.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.softmax_with_sink(0.0)(scores)
        tensor([0.5344, 0.1966, 0.0723])
    """
    return SoftmaxWithSink(sink)


def tempered(scores: Tensor, temperature: float | Tensor, dim: int) -> Tensor:
    """Returns ``scores / temperature``; −inf stays −inf and contributes no gradient to the temperature."""
    if not isinstance(temperature, Tensor):
        return scores if temperature == 1.0 else scores * (1.0 / temperature)
    divisor = along_heads("temperature", temperature, scores, dim)
    # The derivative of −inf / T by T is infinite, and 0 · inf is NaN, so −inf stays out of the quotient.
    hidden = scores == -torch.inf
    return (scores.masked_fill(hidden, 0.0) / divisor).masked_fill(hidden, -torch.inf)


def safe_softmax(scores: Tensor, dim: int) -> Tensor:
    """Computes ``torch.softmax``, but with weight 0 and gradient 0 at −inf, even if a row has nothing else."""
    if scores.is_cpu and reverse_mode_only(scores):
        wants_gradient = scores.requires_grad and torch.is_grad_enabled()
        return _Softmax.apply(scores, dim) if wants_gradient else plain_softmax(scores, dim)
    hidden = scores == -torch.inf
    # The first fill changes no value: it only stops gradients at hidden pairs.
    visible = scores.masked_fill(hidden, -torch.inf).masked_fill(hidden.all(dim, keepdim=True), 0.0)
    return torch.softmax(visible, dim).masked_fill(hidden, 0.0)


def sink_softmax(scores: Tensor, sinks: Tensor, dim: int) -> Tensor:
    """Computes softmax over each row and its sink, without concatenating them.

    Args:
        sinks: the sinks, in the shape of scores with length 1 along ``dim``.
    """
    if reverse_mode_only(scores):
        return _SinkSoftmax.apply(scores, sinks, dim)[0]
    hidden = scores == -torch.inf
    # The first fill changes no value: it only stops gradients at hidden pairs.
    visible = scores.masked_fill(hidden, -torch.inf)
    maximum = _maximum_with_sink(visible.detach(), sinks.detach(), dim)
    powers, sink_powers = (visible - maximum).exp(), (sinks - maximum).exp()
    return (powers / (powers.sum(dim, keepdim=True) + sink_powers)).masked_fill(hidden, 0.0)


def _maximum_with_sink(scores: Tensor, sinks: Tensor, dim: int) -> Tensor:
    maximum, empty = row_maximum(scores, dim)
    return torch.where(empty, sinks, torch.maximum(maximum, sinks))


def plain_softmax(scores: Tensor, dim: int) -> Tensor:
    """Computes `safe_softmax` without a gradient."""
    weights = torch.softmax(scores, dim)
    # PyTorch returns NaN in rows of only −inf, and at hidden pairs of rows with NaN or +inf.
    return weights if first_is_finite(weights, dim) else weights.masked_fill(scores == -torch.inf, 0.0)


class _Softmax(torch.autograd.Function):
    """Implements `safe_softmax` at nearly the cost of ``torch.softmax``; reverse mode only."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, dim: int) -> Tensor:
        weights = plain_softmax(scores, dim)
        ctx.dim = dim
        ctx.save_for_backward(weights, scores)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (weights, scores), (grad_weights,) = ctx.saved_tensors, gradients
        if not torch.is_grad_enabled() and reverse_mode_only(grad_weights):
            # PyTorch's kernel for the backward pass of softmax takes half the time of public operations.
            grad_scores = torch.ops.aten._softmax_backward_data(grad_weights, weights, ctx.dim, weights.dtype)
            # One infinite or NaN gradient, even at a hidden pair, makes the whole row infinite or NaN.
            if first_is_finite(grad_scores, ctx.dim):
                return grad_scores, None
        hidden = scores == -torch.inf
        product = grad_weights.masked_fill(hidden, 0.0) * weights
        grad_scores = product - weights * product.sum(ctx.dim, keepdim=True)
        return grad_scores.masked_fill(hidden, 0.0), None


class _SinkSoftmax(torch.autograd.Function):
    """Implements `sink_softmax`, returning the weights and the sink's own weight; reverse mode only."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, sinks: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        maximum = _maximum_with_sink(scores, sinks, dim)
        weights = (scores - maximum).exp_()
        sink_weights = (sinks - maximum).exp_()
        total = weights.sum(dim, keepdim=True).add_(sink_weights)
        weights.div_(total)
        sink_weights.div_(total)
        if not first_is_finite(weights, dim):
            weights.masked_fill_(scores == -torch.inf, 0.0)
        ctx.dim = dim
        ctx.save_for_backward(weights, sink_weights, scores)
        return weights, sink_weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, sink_weights, scores = ctx.saved_tensors
        grad_weights, grad_sink_weights = gradients
        product, grad_sinks = grad_weights * weights, grad_sink_weights * sink_weights
        mean = product.sum(ctx.dim, keepdim=True) + grad_sinks
        if grad_weights.is_cpu and not torch.is_grad_enabled() and reverse_mode_only(grad_weights):
            grad_scores = product.addcmul_(weights, mean, value=-1)
            # One infinite or NaN gradient, even at a hidden pair, makes the whole row infinite or NaN.
            if first_is_finite(grad_scores, ctx.dim):
                return grad_scores, grad_sinks - sink_weights * mean, None
        hidden = scores == -torch.inf
        product = grad_weights.masked_fill(hidden, 0.0) * weights
        mean = product.sum(ctx.dim, keepdim=True) + grad_sinks
        grad_scores = (product - weights * mean).masked_fill(hidden, 0.0)
        return grad_scores, grad_sinks - sink_weights * mean, None
