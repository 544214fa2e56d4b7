"""Checks of feature maps ``[batch, channels, height, width]``, and their conversion to sequences of positions."""

from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.shapes.checks import check_floating, whole_number


def check_feature_map(name: str, features: Tensor, channels: int) -> None:
    """Raises an error unless ``features`` is ``[batch, channels, height, width]`` with at least one position.

    Args:
        name: the argument's name, for the message.
        features: the argument.
        channels: the channels that the block needs.

    Raises:
        KindError: the argument is not a dense floating-point tensor.
        ShapeError: it has another rank or number of channels, or no position.
    """
    check_floating(name, features)
    if features.dim() != 4 or features.shape[1] != channels:
        raise ShapeError(
            f"{name} must be [batch, channels, height, width] with {channels} channels; it has shape "
            f"{list(features.shape)}"
        )
    if not features.shape[2] * features.shape[3]:
        raise ShapeError(f"{name} must have at least one position; its height × width is {list(features.shape[2:])}")


def reduced_channels(channels: int, reduction: int, hidden: int | None = None) -> int:
    """Returns the channels inside a block: ``hidden``, or ``channels // reduction`` if it is None, at least 1.

    Raises:
        ArgumentError: a number is below 1.
    """
    whole_number("channels", channels, 1)
    whole_number("reduction", reduction, 1)
    return max(1, channels // reduction) if hidden is None else whole_number("hidden", hidden, 1)


def check_odd(name: str, kernel_size: int) -> int:
    """Returns an odd kernel size; raises ArgumentError if it is even or below 1."""
    whole_number(name, kernel_size, 1)
    if kernel_size % 2 == 0:
        raise ArgumentError(f"{name} must be odd, so that the map keeps its size; it is {kernel_size}")
    return kernel_size


def as_sequence(features: Tensor) -> Tensor:
    """Converts ``[batch, channels, height, width]`` to ``[batch, positions, channels]``, in row-major order."""
    return features.flatten(2).transpose(1, 2)


def as_feature_map(sequence: Tensor, height: int, width: int) -> Tensor:
    """Converts a sequence of all positions to a feature map: the inverse of `as_sequence`."""
    return sequence.transpose(1, 2).unflatten(2, (height, width))
