"""How a score holds its own weights: registered, checked, and used in the dtype of the calculation."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from regard.errors import KindError, ShapeError
from regard.shapes import accurate, check_floating


def hold(owner: nn.Module, name: str, weight: Tensor, *layouts: str) -> None:
    """Keep a weight in a module, so that it moves, is saved and gets its gradient with it.

    An `nn.Parameter` becomes a parameter; any other tensor becomes a buffer, the very same tensor, so that a gradient
    flows on to wherever it came from.

    Args:
        owner: the module.
        name: the attribute, and the argument's name for messages.
        weight: what was given.
        layouts: the layouts that are allowed, e.g. ``"[dim]"``, ``"[heads, dim]"``; none allows every rank.

    Raises:
        KindError: not a tensor of floating-point numbers.
        ShapeError: a rank that no layout has.
    """
    check_floating(name, weight)
    if layouts and weight.dim() not in [layout.count(",") + 1 for layout in layouts]:
        raise ShapeError(f"{name} must be {' or '.join(layouts)}; it has shape {list(weight.shape)}")
    if isinstance(weight, nn.Parameter):
        owner.register_parameter(name, weight)
    else:
        owner.register_buffer(name, weight)


def check_device(name: str, weight: Tensor, query: Tensor) -> None:
    """Raise KindError unless a weight is where the queries are."""
    if weight.device != query.device:
        raise KindError(f"{name} must be on query's device, {query.device}; it is on {weight.device}")


def check_heads(name: str, heads: int, query: Tensor) -> None:
    """Raise ShapeError unless a weight has as many heads as the queries."""
    if heads != query.shape[1]:
        raise ShapeError(f"{name} must have query's heads, {query.shape[1]}; it has {heads}")


def check_dim(name: str, tensor: Tensor, expected: int, why: str) -> None:
    """Raise ShapeError unless the last axis of a tensor, its features, has the expected length.

    Args:
        name: the argument's name.
        tensor: what was given.
        expected: how many features it must have.
        why: what asks for them, e.g. ``"the rows of weight"``.
    """
    if tensor.shape[-1] != expected:
        raise ShapeError(f"{name} must have dim {expected}, {why}; it has dim {tensor.shape[-1]}")


def project(name: str, projection: nn.Linear | None, tensor: Tensor) -> Tensor:
    """A linear map of what is called ``name``, in the dtype that scores are computed in; None is the identity."""
    if projection is None:
        return tensor
    check_dim(name, tensor, projection.in_features, f"as {name}_projection takes it")
    tensor = accurate(tensor)
    weight: object = projection.weight
    if not isinstance(weight, Tensor) or weight.dtype == tensor.dtype:  # quantized weights are a method
        return projection(tensor)
    bias = None if projection.bias is None else projection.bias.to(tensor.dtype)
    return F.linear(tensor, projection.weight.to(tensor.dtype), bias)


def in_dtype_of(tensor: Tensor, module: nn.Module) -> Callable[..., Tensor]:
    """The module as a function that calculates in the dtype of ``tensor``, whatever dtype its weights are kept in."""
    weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    cast = {name: weight.to(tensor.dtype) for name, weight in weights.items() if weight.is_floating_point()}
    if all(cast[name] is weights[name] for name in cast):
        return module
    return lambda *inputs: functional_call(module, cast, inputs)
