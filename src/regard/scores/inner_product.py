"""The inner product, and the scores that lower to it: dot, scaled dot, cosine, and general (bilinear)."""

import math
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.scores.score import Prepared, Primitive, Score
from regard.scores.weights import check_device, check_dim, check_heads, register_weight
from regard.shapes.axes import Float
from regard.shapes.checks import check_broadcast, check_same_dim, check_sizes, positive_number, size, type_text
from regard.shapes.grid import spread_heads, upcast
from regard.shapes.layout import Keys, Pairs, Queries
from regard.tracing.transforms import has_host_data

MIN_TEMPERATURE = 0.01
"""A learned temperature is clamped to this value from below."""


@dataclass(eq=False)
class InnerProduct(Primitive):
    """Computes ``query · key``.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.InnerProduct()(query, key)
        tensor([[[[11.,  2.]]]])
    """

    def __call__(
        self, query: Float[Tensor, "batch heads queries dim"], key: Float[Tensor, "#batch kv_heads keys dim"]
    ) -> Pairs:
        key = spread_heads(key, query.shape[1])
        return upcast(query) @ upcast(key).transpose(-1, -2)

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return 1


_INNER_PRODUCT = InnerProduct()


class Dot(Score, fields=()):
    """Computes the inner product.

    .. math::

        score(q, k) = q · k

    Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1, *dot*.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.Dot()(query, key)
        tensor([[[[11.,  2.]]]])
    """

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        return Prepared(query, key, _INNER_PRODUCT)


class ScaledDot(Score, fields=("scale",)):
    """Computes the scaled inner product.

    .. math::

        score(q, k) = scale · (q · k)

    Vaswani et al. 2017, "Attention Is All You Need", equation 1, where scale = 1/√d_k.

    Args:
        scale: a finite number, or a tensor that broadcasts to ``[batch, heads, 1, 1]`` (``[heads, 1, 1]`` is one scale
            a head; an `nn.Parameter` is learned). Default: 1/√dim of the queries.

    Raises:
        ArgumentError: the scale is not finite.
        KindError: the scale is neither a number nor a floating-point tensor.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.ScaledDot(scale=0.5)(query, key)
        tensor([[[[5.5000, 1.0000]]]])
    """

    scale: float | Tensor | None

    def __init__(self, scale: float | Tensor | None = None):
        super().__init__()
        if scale is None:
            self.scale = None
        else:
            _set_factor(self, "scale", scale)

    def check(self, query: Tensor, key: Tensor) -> None:
        check_same_dim(query, key)
        if isinstance(self.scale, Tensor):
            _check_factor("scale", self.scale, query)

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        scale = self.scale
        if scale is None:
            scale = 1.0 / math.sqrt(max(query.shape[-1], 1))
        elif isinstance(scale, Tensor):
            scale = scale.to(upcast(query).dtype)
        return Prepared(query, key, _INNER_PRODUCT, scale)


class Cosine(Score, fields=("temperature",)):
    """Computes the cosine of the angle between query and key.

    .. math::

        score(q, k) = q · k / (|q| |k| · temperature)

    Graves et al. 2014, "Neural Turing Machines", equations 5 and 6, where β is our 1/temperature; with a learned
    temperature for each head: Liu et al. 2022, "Swin Transformer V2", section 3.2.

    Args:
        temperature: a number above 0, or a tensor that broadcasts to ``[batch, heads, 1, 1]`` (an `nn.Parameter` is
            learned). A tensor must start at 0.01 or more and is used as max(temperature, 0.01), as in Swin V2, so that
            learning cannot turn the sign of the scores.

    Raises:
        ArgumentError: the temperature is not finite or out of range.
        KindError: the temperature is neither a number nor a floating-point tensor.

    Numerics: vectors are divided by their largest magnitude before their norm is computed, so squares neither overflow
    nor underflow. A zero vector has no direction: its scores and its gradient are 0.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.Cosine(temperature=0.1)(query, key)
        tensor([[[[9.8387, 8.9443]]]])
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | Tensor = 1.0):
        super().__init__()
        _set_factor(self, "temperature", temperature)
        if isinstance(self.temperature, Tensor):
            if has_host_data(self.temperature) and bool((self.temperature < MIN_TEMPERATURE).any()):
                raise ArgumentError(
                    f"a temperature given as a tensor must be at least {MIN_TEMPERATURE}; it is {temperature}"
                )
        elif self.temperature <= 0:
            raise ArgumentError(f"temperature must be above 0; it is {temperature}")

    @classmethod
    def create(cls, heads: int | None = None, temperature: float = 0.1) -> "Cosine":
        """Creates a cosine with a learned temperature.

        Args:
            heads: the number of heads with separate temperatures; None is one temperature for all.
            temperature: its initial value.
        """
        if heads is not None:
            size("heads", heads)
        temperature = positive_number("temperature", temperature)
        return cls(nn.Parameter(torch.full(() if heads is None else (heads, 1, 1), temperature)))

    def check(self, query: Tensor, key: Tensor) -> None:
        check_same_dim(query, key)
        if isinstance(self.temperature, Tensor):
            _check_factor("temperature", self.temperature, query)

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        query, key = upcast(query), upcast(key)
        temperature = self.temperature
        if isinstance(temperature, Tensor):
            temperature = temperature.clamp(min=MIN_TEMPERATURE).to(query.dtype)
        return Prepared(_direction(query), _direction(key), _INNER_PRODUCT, 1.0 / temperature)


class General(Score, fields=("weight",)):
    """Computes the bilinear score.

    .. math::

        score(q, k) = qᵀ W k

    Luong et al. 2015, section 3.1, *general*: q is the decoder's state h_t and k the annotation h̄_s. It lowers to the
    inner product of k and q W, which is computed once for each query.

    Args:
        weight: W, ``[query_dim, key_dim]``, or ``[heads, query_dim, key_dim]`` with one matrix a head.

    Raises:
        KindError: the weight is not a floating-point tensor.
        ShapeError: the weight has another rank.

    Numerics: half-precision queries are projected in float32.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.General(torch.eye(2))(query, key).detach()
        tensor([[[[11.,  2.]]]])
    """

    weight: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        register_weight(self, "weight", weight, "[query_dim, key_dim]", "[heads, query_dim, key_dim]")

    @classmethod
    def create(cls, query_dim: int, key_dim: int, heads: int | None = None) -> "General":
        """Creates a trainable score; each head's matrix is initialized after Glorot & Bengio 2010, equation 16."""
        check_sizes(query_dim=query_dim, key_dim=key_dim, heads=1 if heads is None else heads)
        weight = torch.empty(1 if heads is None else heads, query_dim, key_dim)
        for matrix in weight:
            nn.init.xavier_uniform_(matrix)
        return cls(nn.Parameter(weight[0] if heads is None else weight))

    def check(self, query: Tensor, key: Tensor) -> None:
        check_device("weight", self.weight, query)
        if self.weight.dim() == 3:
            check_heads("weight", self.weight.shape[0], query)
        query_dim, key_dim = self.weight.shape[-2:]
        check_dim("query", query, query_dim, "as weight [query_dim, key_dim] has it")
        check_dim("key", key, key_dim, "as weight [query_dim, key_dim] has it")

    def project_query(self, query: Tensor) -> Tensor:
        check_dim("query", query, self.weight.shape[-2], "as weight [query_dim, key_dim] has it")
        query = upcast(query)
        return query @ self.weight.to(query.dtype)

    def projected(self) -> Score:
        return Dot()

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        return Prepared(self.project_query(query), upcast(key), _INNER_PRODUCT)


def _direction(vectors: Tensor) -> Tensor:
    """Divides each vector by its length; zero vectors stay zero and pass no gradient."""
    if vectors.shape[-1] == 0:
        return vectors
    # The direction does not depend on the magnitude that is divided out, so treating it as a constant is exact.
    magnitude = vectors.detach().abs().amax(dim=-1, keepdim=True)
    zero = magnitude == 0
    vectors = vectors / magnitude.masked_fill(zero, 1.0)
    square = vectors.square().sum(dim=-1, keepdim=True).masked_fill(zero, 1.0)
    return (vectors / square.sqrt()).masked_fill(zero, 0.0)


def _set_factor(owner: nn.Module, name: str, value: float | Tensor) -> None:
    """Sets a number as an attribute, or a tensor as a weight, and checks that it is finite."""
    if isinstance(value, Tensor):
        register_weight(owner, name, value)
        finite = not has_host_data(value) or bool(value.isfinite().all())
    elif isinstance(value, Real) and not isinstance(value, bool):
        setattr(owner, name, float(value))
        finite = math.isfinite(value)
    else:
        raise KindError(f"{name} must be a number or a tensor; it is {type_text(value)}")
    if not finite:
        raise ArgumentError(f"{name} must be finite; it is {value}")


def _check_factor(name: str, value: Tensor, query: Tensor) -> None:
    check_device(name, value, query)
    if value.dim() > 4:
        raise ShapeError(f"{name} must broadcast to [batch, heads, 1, 1]; it has shape {list(value.shape)}")
    check_broadcast(name, value, (*query.shape[:2], 1, 1), "[batch, heads, 1, 1]")
