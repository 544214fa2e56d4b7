"""A normalizer's parameter: a number, or a tensor that may be learned, one for all heads or one for each."""

import math
from numbers import Real

from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.shapes import check_floating
from regard.transforms import can_branch_on


def set_parameter(module: nn.Module, name: str, value: float | Tensor, above: float = -math.inf) -> None:
    """Check a parameter that is one number, or one for each head, and `hold` it.

    Args:
        module: whose parameter it is.
        name: of the attribute; also names it in messages.
        value: a number, or a floating-point tensor ``[]`` or ``[heads]``.
        above: what every element must be greater than.

    Raises:
        KindError: neither a number nor a floating-point tensor.
        ShapeError: a tensor of more than one axis.
        ArgumentError: an element that is not finite, or not above the bound.
    """
    if isinstance(value, Tensor) and value.dim() > 1:
        raise ShapeError(f"{name} must have shape [] or [heads]; it has shape {list(value.shape)}")
    check_range(name, value, above)
    hold(module, name, value)


def hold(module: nn.Module, name: str, value: float | Tensor) -> None:
    """Make a parameter an attribute of ``module``.

    A number stays a number. An ``nn.Parameter`` is registered, and so learned. Any other tensor becomes a buffer that
    moves with the module and is not saved with it; gradients flow through it to wherever it came from.
    """
    if isinstance(value, nn.Parameter):
        module.register_parameter(name, value)
    elif isinstance(value, Tensor):
        module.register_buffer(name, value, persistent=False)
    else:
        setattr(module, name, float(value))


def check_range(name: str, value: float | Tensor, above: float = -math.inf) -> None:
    """Raise KindError or ArgumentError unless ``value`` is finite and greater than ``above``, in every element."""
    expected = "finite" if above == -math.inf else f"finite and greater than {above:g}"
    if isinstance(value, Tensor):
        check_floating(name, value)
        if can_branch_on(value) and not bool((value.isfinite() & (value > above)).all()):
            shown = value.item() if value.numel() == 1 else value.tolist()
            raise ArgumentError(f"{name} must be {expected} everywhere; it is {shown}")
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        raise KindError(f"{name} must be a number or a tensor; it is a {type(value).__name__}")
    number = float(value)
    if not (math.isfinite(number) and number > above):
        raise ArgumentError(f"{name} must be {expected}; it is {number}")


def along_heads(name: str, value: float | Tensor, scores: Tensor, dim: int) -> float | Tensor:
    """A parameter, shaped to broadcast against ``scores``.

    Args:
        name: of the parameter, for messages.
        value: a number, ``[]``, ``[1]`` or ``[heads]``.
        scores: ``[..., heads, queries, keys]`` if the parameter has one element for each head; else of any shape.
        dim: the axis of scores that is normalized; may not be the heads' axis, −3, then.

    Returns:
        The number itself, or a tensor ``[]`` or ``[heads, 1, 1]`` in the dtype of scores.
    """
    if not isinstance(value, Tensor):
        return value
    value = value.to(scores.dtype)
    if value.numel() == 1:
        return value.reshape(())
    if value.device != scores.device:
        raise KindError(f"{name} must be on the device of scores, {scores.device}; it is on {value.device}")
    heads = value.shape[0]
    if scores.dim() < 3 or scores.shape[-3] != heads:
        raise ShapeError(
            f"{name} has one element for each of {heads} heads, so scores must be [..., {heads}, queries, keys]; "
            f"they have shape {list(scores.shape)}"
        )
    if dim in (-3, scores.dim() - 3):
        raise ArgumentError(
            f"{name} has one element for each head, so the heads' axis cannot be normalized; dim is {dim}"
        )
    return value[:, None, None]
