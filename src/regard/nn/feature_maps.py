"""Feature maps ``[batch, channels, height, width]``: checks, sequences of positions, and attention inside of maps."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from regard.attention import Observed, Readings, observe
from regard.attention.readings import ReadingName
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.errors import ArgumentError, ShapeError
from regard.scores import Scoring
from regard.shapes.checks import check_floating, whole_number
from regard.tracing.module_calls import Module


def check_feature_map(name: str, features: Tensor, channels: int) -> None:
    """Raises an error unless the argument ``name`` is ``[batch, channels, height, width]`` with some position."""
    check_floating(name, features)
    if features.dim() != 4 or features.shape[1] != channels:
        raise ShapeError(
            f"{name} must be [batch, channels, height, width] with {channels} channels; it has shape "
            f"{list(features.shape)}"
        )
    if not features.shape[2] * features.shape[3]:
        raise ShapeError(f"{name} must have at least one position; its height × width is {list(features.shape[2:])}")


def reduced_channels(channels: int, reduction: int, hidden: int | None = None, least: int = 1) -> int:
    """Returns the channels inside a block: ``hidden``, or ``channels // reduction``, at least ``least``, if it is None.
    Raises ArgumentError if a number is below 1."""
    whole_number("channels", channels, 1)
    whole_number("reduction", reduction, 1)
    return max(least, channels // reduction) if hidden is None else whole_number("hidden", hidden, 1)


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


class MapAttention(Module, ABC):
    """The base of attention between the positions or the channels of a feature map, through `regard.attend`."""

    channels: int
    backend: BackendName
    score: Scoring

    @abstractmethod
    def projected(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values of four axes, for `regard.explain` and `regard.plan` with the layer's
        ``score``; arguments and errors as in `forward`."""

    def observe(self, features: Tensor, read: Readings | ReadingName) -> Observed:
        """Reads the weights. Positions are in row-major order.

        Args:
            features: as in `forward`.
            read: the readings; between positions ``Readings(rows=[y * width + x])`` reads the weights of one position
                in linear memory.

        Returns:
            `Observed`; its output is the weighted sum of the values ``[batch, heads, queries, features]``.

        Raises:
            ShapeError, KindError: the input has another shape or dtype.
            ArgumentError: this attention does not have a reading.
        """
        return observe(*self.projected(features), read=read, score=self.score, backend=self.backend)

    def _attended(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Returns the softmax-weighted sums of the values, ``[batch, heads, queries, features]``."""
        problem = planned(query, key, value, score=self.score, backend=self.backend)
        return run(problem, self.backend, layer=self).output

    def extra_repr(self) -> str:
        return f"channels={self.channels}"


class PositionMixer(MapAttention):
    """The base of modules in which each position of a feature map attends to all positions by inner products."""

    score = "dot"
    query: nn.Module
    key: nn.Module
    value: nn.Module

    def projected(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values ``[batch, 1, positions, features]``; arguments as in `forward`."""
        check_feature_map("features", features, self.channels)
        query, key, value = (as_sequence(part(features))[:, None] for part in (self.query, self.key, self.value))
        return query, key, value
