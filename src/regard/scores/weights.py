"""Weights of scores: registration, checks, and use in the dtype of the calculation."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from regard.errors import KindError, ShapeError
from regard.fields import set_field
from regard.shapes.checks import check_floating
from regard.shapes.grid import upcast
from regard.tracing.module_calls import is_observed, runs

LINEAR = nn.Linear.forward


def register_weight(owner: nn.Module, name: str, weight: Tensor, *layouts: str) -> None:
    """Registers a weight in a module, so that it is moved, saved and trained with the module (`set_field`).

    Args:
        name: the name of the attribute, and of the argument in messages.
        layouts: the accepted layouts, e.g. ``"[dim]"``, ``"[heads, dim]"``; none accepts every rank.
    """
    check_floating(name, weight)
    if layouts and weight.dim() not in [layout.count(",") + 1 for layout in layouts]:
        raise ShapeError(f"{name} must be {' or '.join(layouts)}; it has shape {list(weight.shape)}")
    set_field(owner, name, weight, persistent=True)


def check_device(name: str, weight: Tensor, query: Tensor) -> None:
    """Raises KindError unless a weight is on the queries' device."""
    if weight.device != query.device:
        raise KindError(f"{name} must be on query's device, {query.device}; it is on {weight.device}")


def check_heads(name: str, heads: int, query: Tensor) -> None:
    """Raises ShapeError unless a weight has as many heads as the queries."""
    if heads != query.shape[1]:
        raise ShapeError(f"{name} must have query's heads, {query.shape[1]}; it has {heads}")


def check_dim(name: str, tensor: Tensor, expected: int, why: str) -> None:
    """Raises ShapeError unless the last axis of a tensor has the expected length.

    Args:
        expected: the number of features that it must have.
        why: the reason, e.g. ``"as weight [query_dim, key_dim] has it"``.
    """
    if tensor.shape[-1] != expected:
        raise ShapeError(f"{name} must have dim {expected}, {why}; it has dim {tensor.shape[-1]}")


def project(name: str, projection: nn.Linear | None, tensor: Tensor) -> Tensor:
    """Applies a linear map to the argument ``name``, in the dtype of its scores; None is the identity."""
    if projection is None:
        return tensor
    features = getattr(projection, "in_features", None)
    if features is not None:
        check_dim(name, tensor, features, f"as {name}_projection takes it")
    tensor = upcast(tensor)
    if runs(projection, LINEAR) and not is_observed(projection):
        bias = None if projection.bias is None else projection.bias.to(tensor.dtype)
        return F.linear(tensor, projection.weight.to(tensor.dtype), bias)
    return in_dtype_of(tensor, projection)(tensor)


def in_dtype_of(tensor: Tensor, module: nn.Module) -> Callable[..., Tensor]:
    """Returns a module as a function that computes in the dtype of ``tensor``, whatever the dtype of its weights."""
    weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    cast = {name: weight.to(tensor.dtype) for name, weight in weights.items() if weight.is_floating_point()}
    if all(cast[name] is weights[name] for name in cast):
        return module
    return lambda *inputs: functional_call(module, cast, inputs)
