"""Parameters of normalizers: a number or a tensor that may be learned, shared by all heads or one a head."""

import math
from numbers import Real

from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.fields import set_field
from regard.shapes.checks import check_floating, check_undivided, type_text
from regard.tracing.transforms import can_read


def set_parameter(module: nn.Module, name: str, value: float | Tensor, above: float = -math.inf) -> None:
    """Checks a parameter with one element, or one a head, and sets it with `set_field`.

    Args:
        name: the attribute's name, also for messages.
        value: a number, or a floating-point tensor ``[]`` or ``[heads]``.
        above: exclusive lower bound of every element.
    """
    if isinstance(value, Tensor) and value.dim() > 1:
        raise ShapeError(f"{name} must have shape [] or [heads]; it has shape {list(value.shape)}")
    check_range(name, value, above)
    set_field(module, name, value)


def check_range(name: str, value: float | Tensor, above: float = -math.inf) -> None:
    """Raises KindError or ArgumentError unless every element of ``value`` is finite and greater than ``above``.

    Elements on a device are not checked, since the host would wait for them.
    """
    expected = "finite" if above == -math.inf else f"finite and greater than {above:g}"
    if isinstance(value, Tensor):
        check_undivided(name, value)
        check_floating(name, value)
        if can_read(value) and not bool((value.isfinite() & (value > above)).all()):
            elements = value.item() if value.numel() == 1 else value.tolist()
            raise ArgumentError(f"{name} must be {expected} everywhere; it is {elements}")
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        raise KindError(f"{name} must be a number or a tensor; it is {type_text(value)}")
    number = float(value)
    if not (math.isfinite(number) and number > above):
        raise ArgumentError(f"{name} must be {expected}; it is {number}")


def along_heads(name: str, value: float | Tensor, scores: Tensor, dim: int) -> float | Tensor:
    """Shapes a parameter so that it broadcasts against ``scores``.

    Args:
        name: the parameter's name, for messages.
        value: a number, ``[]``, ``[1]`` or ``[heads]``.
        scores: ``[..., heads, queries, keys]`` if the parameter has one element a head; any shape otherwise.
        dim: the normalized axis of scores; with one element a head it must not be the heads' axis, −3.

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
