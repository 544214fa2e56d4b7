"""Sinusoidal positions: a fixed table of waves, which is added to the input."""

import torch
from torch import Tensor

from regard.names.answered import answered
from regard.positions.index import check_features
from regard.positions.waves import Waves
from regard.shapes.checks import whole_number
from regard.tracing.transforms import sent


@answered
class Sinusoidal(Waves):
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
        super().__init__(dim, base)

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
