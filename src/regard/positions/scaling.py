"""Scalings of rotary positions: frequencies by which a model reads longer sequences than those of its training."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.names.answered import answered
from regard.shapes.checks import flag, positive_number, whole_number
from regard.tracing.portable import vector
from regard.tracing.transforms import sent


@dataclass(frozen=True)
class RotaryScaling:
    r"""The frequencies of a `Rotary`, and the magnitude of what it rotates; here unscaled.

    .. math:: \theta_i = base^{-2i / dim}, \qquad m = 1

    Subclasses have other :math:`\theta'` and :math:`m`; a score gets the factor :math:`m^2`. In all of them
    :math:`s` is ``factor``, the length now by that of the training, and :math:`L` ``original_length``, the length of
    the training. Keys in a cache stay rotated for the length at which they came, as in transformers.
    """

    depends_on_length: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if isinstance(value, (list, tuple)):
                object.__setattr__(self, name, tuple(positive_number(f"a number of {name}", one) for one in value))
            elif name == "original_length":
                whole_number(name, value, low=2)
            elif name == "truncate":
                flag(name, value)
            elif value is not None:
                positive_number(name, value)

    @property
    def magnitude(self) -> float:
        """The factor of rotated features."""
        return 1.0

    def frequencies(
        self, dim: int, base: float, length: int | Tensor = 0, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns θ′ for sequences of this length, ``float64 [dim / 2]``, or ``[..., dim / 2]`` for ``[..., 1]``."""
        even = torch.arange(0, dim, 2, dtype=torch.float64, device=device)
        return self.scaled(base ** (-even / dim), base, length)

    def scaled(self, theta: Tensor, base: float, length: int | Tensor) -> Tensor:
        """Returns θ′ for the unscaled θ; arguments as for `frequencies`."""
        return theta


@answered
@dataclass(frozen=True)
class PositionInterpolation(RotaryScaling):
    r"""Divides positions by a factor, so that longer sequences have the angles of the training.

    .. math:: \theta'_i = \theta_i / s

    Chen et al. 2023, section 2.3; ``linear`` in transformers.

    Example:
        >>> from regard import positions
        >>> positions.PositionInterpolation(factor=4.0).frequencies(4, 10000.0)
        tensor([0.2500, 0.0025], dtype=torch.float64)
    """

    factor: float

    def scaled(self, theta: Tensor, base: float, length: int | Tensor) -> Tensor:
        return theta / self.factor


@answered
@dataclass(frozen=True)
class DynamicNTK(RotaryScaling):
    r"""Raises the base as a sequence grows beyond the length of the training.

    .. math:: \theta'_i = \theta_i \, t^{-2i / (dim - 2)}, \qquad t = 1 + s \, (\max(l, L) / L - 1)

    where :math:`l` is the length of the sequence: the fastest pair stays, the slowest is divided by :math:`t`. Peng et
    al. 2023 (YaRN), sections 3.1 and 3.3. Each batch row has its own length where it is known (``offset`` or ``length``
    of the call, packed rows); elsewhere padding counts, as in transformers, where :math:`L` is
    ``max_position_embeddings``.

    Example:
        >>> from regard import positions
        >>> scaling = positions.DynamicNTK(factor=2.0, original_length=8)
        >>> scaling.frequencies(4, 10000.0, length=8), scaling.frequencies(4, 10000.0, length=16)
        (tensor([1.0000, 0.0100], dtype=torch.float64), tensor([1.0000, 0.0033], dtype=torch.float64))
    """

    depends_on_length: ClassVar[bool] = True
    factor: float
    original_length: int

    def scaled(self, theta: Tensor, base: float, length: int | Tensor) -> Tensor:
        last = len(theta) - 1
        if not last:
            raise ArgumentError("dim must be at least 4 for DynamicNTK; it is 2")
        beyond = length - self.original_length
        beyond = beyond.clamp(min=0) if isinstance(beyond, Tensor) else max(beyond, 0)
        exponents = -torch.arange(last + 1, dtype=torch.float64, device=theta.device) / last
        return theta * (1 + self.factor * beyond / self.original_length) ** exponents


@answered
@dataclass(frozen=True)
class YaRN(RotaryScaling):
    r"""Interpolates slow pairs, keeps fast ones, and raises scores (yet another RoPE extension).

    .. math::

        \theta'_i &= \theta_i \, (1 - r_i + r_i / s), \qquad r_i = \mathrm{clamp}((i - a) / (b - a), 0, 1) \\
        a &= \lfloor i(\beta_{fast}) \rfloor, \quad b = \lceil i(\beta_{slow}) \rceil, \quad
        i(\beta) = \frac{dim \ln (L / 2 \pi \beta)}{2 \ln base}, \qquad m = 0.1 \ln s + 1

    Peng et al. 2023, sections 3.2 and 3.4. A pair has :math:`\beta` turns over the length of the training at the index
    :math:`i(\beta)`; the paper's ramp is linear in turns, that of its code and of all checkpoints in the index.
    :math:`a` is at least 0, :math:`b` at most dim − 1, and :math:`m` is 1 for :math:`s < 1`.

    Args:
        beta_fast, beta_slow: faster pairs are kept, slower ones interpolated.
        attention_factor: :math:`m`; None: as above.
        mscale, mscale_all_dim: with both, :math:`m` is ``(0.1 mscale ln s + 1) / (0.1 mscale_all_dim ln s + 1)``
            (DeepSeek-V2); DeepSeek's layers multiply scores by the square of that denominator.
        truncate: whether :math:`a` and :math:`b` are rounded.

    Example:
        >>> from regard import positions
        >>> positions.YaRN(factor=4.0, original_length=256).frequencies(8, 10000.0)
        tensor([1.0000e+00, 6.2500e-02, 2.5000e-03, 2.5000e-04], dtype=torch.float64)
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    @property
    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        growth = 0.1 * math.log(max(self.factor, 1.0))
        if self.mscale is None or self.mscale_all_dim is None:
            return growth + 1
        return (self.mscale * growth + 1) / (self.mscale_all_dim * growth + 1)

    def scaled(self, theta: Tensor, base: float, length: int | Tensor) -> Tensor:
        pairs = len(theta)
        if base <= 1:
            raise ArgumentError(f"base must be greater than 1 for YaRN; it is {base}")
        first, last = (
            pairs * math.log(self.original_length / (2 * math.pi * turns)) / math.log(base)
            for turns in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * pairs - 1)
        width = last - first or 0.001  # as in the authors' code
        ramp = ((torch.arange(pairs, dtype=torch.float64, device=theta.device) - first) / width).clamp(0, 1)
        return theta * (1 - ramp + ramp / self.factor)


@answered
@dataclass(frozen=True)
class LongRoPE(RotaryScaling):
    r"""Divides each frequency by a factor of its own; long sequences have other factors than short ones.

    .. math:: \theta'_i = \theta_i / \lambda_i, \qquad m = \sqrt{1 + \ln s / \ln L}

    Ding et al. 2024, section 3.1, who search for :math:`\lambda`, as Phi-3 has it: ``long_factor`` serves sequences
    longer than :math:`L`, ``short_factor`` others, and :math:`m` is 1 for :math:`s < 1`, or ``attention_factor``.

    Example:
        >>> from regard import positions
        >>> scaling = positions.LongRoPE((1.0, 1.0), (2.0, 4.0), original_length=8, factor=4.0)
        >>> scaling.frequencies(4, 10000.0, length=8), scaling.frequencies(4, 10000.0, length=9)
        (tensor([1.0000, 0.0100], dtype=torch.float64), tensor([0.5000, 0.0025], dtype=torch.float64))
    """

    depends_on_length: ClassVar[bool] = True
    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_length: int
    factor: float
    attention_factor: float | None = None

    @property
    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(max(self.factor, 1.0)) / math.log(self.original_length))

    def scaled(self, theta: Tensor, base: float, length: int | Tensor) -> Tensor:
        if not len(self.short_factor) == len(self.long_factor) == len(theta):
            raise ShapeError(f"short_factor and long_factor must hold dim / 2 = {len(theta)} numbers; they are {self}")
        short, long = (sent(vector(one, theta.dtype), theta.device) for one in (self.short_factor, self.long_factor))
        if isinstance(length, Tensor):
            return theta / torch.where(length > self.original_length, long, short)
        return theta / (long if length > self.original_length else short)


@answered
@dataclass(frozen=True)
class Llama3(RotaryScaling):
    r"""Interpolates pairs with few turns over the length of the training, keeps those with many, and mixes between.

    .. math::

        \theta'_i = \theta_i \, (g_i + (1 - g_i) / s), \qquad
        g_i = \mathrm{clamp}\Big(\frac{L \, \theta_i / 2 \pi - low}{high - low}, 0, 1\Big)

    Grattafiori et al. 2024 (Llama 3.1), whose code has the equation; :math:`low` and :math:`high` are
    ``low_freq_factor`` and ``high_freq_factor``, :math:`L` is ``original_length``.

    Example:
        >>> from regard import positions
        >>> positions.Llama3(factor=8.0, original_length=64).frequencies(4, 10000.0)
        tensor([1.0000, 0.0013], dtype=torch.float64)
    """

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_length: int = 8192

    def scaled(self, theta: Tensor, base: float, length: int | Tensor) -> Tensor:
        low, high = self.low_freq_factor, self.high_freq_factor
        if high <= low:
            raise ArgumentError(f"high_freq_factor must be greater than low_freq_factor, {low}; it is {high}")
        share = ((self.original_length * theta / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        return theta * (share + (1 - share) / self.factor)


@answered
@dataclass(frozen=True)
class Proportional(RotaryScaling):
    r"""Rotates the fastest share of the pairs; the slow ones have no positions (p-RoPE).

    .. math:: \theta'_i = \theta_i / s \;\text{ if }\; i < \lfloor p \cdot dim / 2 \rfloor, \;\text{ else }\; 0

    Barbero et al. 2025, "Round and round we go!", and Gemma 4; :math:`p` is ``partial_rotary_factor``, :math:`s`
    is ``factor``. A partial ``Rotary(p · dim)`` rotates as many pairs, of all frequencies.

    Example:
        >>> from regard import positions
        >>> positions.Proportional(partial_rotary_factor=0.5).frequencies(8, 10000.0)
        tensor([1.0000, 0.1000, 0.0000, 0.0000], dtype=torch.float64)
    """

    partial_rotary_factor: float = 1.0
    factor: float = 1.0

    def scaled(self, theta: Tensor, base: float, length: int | Tensor) -> Tensor:
        rotated = torch.arange(len(theta), device=theta.device) < int(self.partial_rotary_factor * len(theta))
        return theta / self.factor * rotated
