"""Sinusoidal positions: a fixed table of waves, which is added to the input."""

import torch
from torch import Tensor

from regard.names.answered import answered
from regard.positions.index import check_features, positions_of
from regard.shapes.checks import positive_number, whole_number
from regard.tracing.module_calls import Module
from regard.tracing.transforms import sent


@answered
class Sinusoidal(Module):
    """Adds sines and cosines of decreasing frequency, from which a model can learn positions and distances.

    .. math::

        PE(pos, 2i) = sin(pos / base^(2i / dim))
        PE(pos, 2i + 1) = cos(pos / base^(2i / dim))

    Vaswani et al. 2017, §3.5 (their ``d_model`` is ``dim``, their 10000 is ``base``). The length is unlimited, and
    there is nothing to learn or to save. An odd ``dim`` ends with a sine without a cosine.

    Args:
        dim: features of a vector, >= 1.
        base: approximate ratio of the longest to the shortest wavelength.

    Numerics: angles, sines and cosines are computed in float64 and rounded once to the requested dtype; in float32,
    the angles of far positions would lose their digits.

    Example:
        >>> import torch
        >>> from regard import positions
        >>> positions.Sinusoidal(4)(torch.zeros(1, 2, 4))
        tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
                 [0.8415, 0.5403, 0.0100, 0.9999]]])
    """

    def __init__(self, dim: int, base: float = 10000.0):
        super().__init__()
        self.dim = whole_number("dim", dim, low=1)
        self.base = positive_number("base", base)
        # The longest table so far, in the dtype and on the device of the last input. It is not a buffer, since
        # `.half()` would round a buffer and `state_dict` would save it.
        self._cached_table: Tensor | None = None

    def table(
        self, length: int, *, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the encodings of positions ``0 .. length − 1``.

        Args:
            length: number of positions, >= 0.
            dtype: the dtype of the result.
            device: the device of the result; None for the CPU.

        Returns:
            ``[length, dim]``, sines at even and cosines at odd features.
        """
        length = whole_number("length", length, low=0)
        return sent(self.at(torch.arange(length, device="cpu")).to(dtype), device or "cpu")

    def at(self, positions: Tensor) -> Tensor:
        """Returns the encodings of any positions, also negative ones.

        Args:
            positions: integers ``[...]``.

        Returns:
            ``float64 [..., dim]``, on the same device.
        """
        even = torch.arange(0, self.dim, 2, dtype=torch.float64, device=positions.device)
        angles = positions[..., None] * self.base ** (-even / self.dim)
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., : self.dim]

    def forward(self, input: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Adds the encodings of the input's positions.

        Args:
            input: ``[..., length, dim]``.
            offset: the position of the first vector; an integer, or integers ``[batch]`` with ``batch`` the input's
                first axis.

        Returns:
            A tensor of the shape and dtype of ``input``.
        """
        check_features(input, self.dim)
        return input + self.encodings(input, offset, input.dtype)

    def encodings(self, input: Tensor, offset: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the encodings that `forward` adds: ``[length, dim]``, or ``[batch, 1, ..., length, dim]`` if each
        batch row has its own offset."""
        positions = positions_of(input, offset)
        if isinstance(positions, Tensor):
            return self.at(positions).to(dtype)
        first, stop = positions
        if first < 0:
            return sent(self.at(torch.arange(first, stop, device="cpu")).to(dtype), input.device)
        return self._from_start(stop, dtype, input)[first:]

    def _from_start(self, length: int, dtype: torch.dtype, input: Tensor) -> Tensor:
        """Returns the encodings of positions ``0 .. length − 1`` on the input's device, if possible from the cache."""
        cached, device = self._cached_table, input.device
        # A fake tensor cannot be added to a real table, and an exported program must not contain one.
        may_read = type(input) is Tensor and not torch.compiler.is_exporting()
        same_kind = cached is not None and (cached.dtype, cached.device) == (dtype, device)
        if cached is not None and may_read and same_kind and len(cached) >= length:
            return cached[:length]
        if not may_read or torch.compiler.is_compiling():
            return self.at(torch.arange(length, device=device)).to(dtype)
        # The length is a power of two, so that step-by-step decoding computes few tables. The table outlives this call,
        # so it must not be an inference tensor.
        with torch.inference_mode(False):
            self._cached_table = self.table(1 << max(length - 1, 0).bit_length(), dtype=dtype, device=device)
        return self._cached_table[:length]

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base:g}"
