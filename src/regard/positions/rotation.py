"""Rotary positions, which rotate queries and keys by angles proportional to their position."""

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.names.answered import answered
from regard.positions.index import check_features
from regard.positions.sinusoids import Sinusoidal
from regard.shapes.checks import flag, whole_number
from regard.shapes.grid import upcast
from regard.tracing.module_calls import Module


@answered
class Rotary(Module):
    """Rotates pairs of features by ``position · θ_i``, so that an inner product depends on relative position only.

    .. math::

        (a, b) at position m  →  (a cos mθ_i − b sin mθ_i,  a sin mθ_i + b cos mθ_i),    θ_i = base^(−2i / dim)

    Su et al. 2021 (RoFormer), §3.2.2, eq. 15 and 34; their index i counts from 1, here it counts from 0. Apply it to
    queries and keys, not to values. If their lengths differ, pass the position of the first query: with a cache,
    queries get ``offset = keys − queries``.

    Args:
        dim: number of rotated features, even. In wider inputs the first ``dim`` are rotated, and the rest is unchanged
            (partial rotary, GPT-NeoX).
        base: approximately 1 / θ of the slowest pair.
        interleaved: which features form pairs: ``(2i, 2i + 1)`` as in the paper if True, ``(i, i + dim / 2)`` as in
            GPT-NeoX and Llama checkpoints if False. They differ by a fixed permutation of features.

    Numerics: angles are computed in float64, the rotation in float32 for half-precision inputs.

    Example:
        >>> import torch
        >>> from regard import positions
        >>> positions.Rotary(2)(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]))
        tensor([[[1.0000, 0.0000],
                 [0.5403, 0.8415]]])
    """

    def __init__(self, dim: int, base: float = 10000.0, interleaved: bool = False):
        super().__init__()
        self.dim = whole_number("dim", dim, low=2)
        if self.dim % 2:
            raise ArgumentError(f"dim must be even (features are rotated in pairs); it is {dim}")
        self.interleaved = flag("interleaved", interleaved)
        self.waves = Sinusoidal(self.dim, base)

    def forward(self, input: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Rotates the input.

        Args:
            input: queries or keys ``[..., length, features]``, ``features >= dim``.
            offset: the position of the first vector; an integer (it may be negative), or integers ``[batch]`` with
                ``batch`` the input's first axis.

        Returns:
            A tensor of the shape and dtype of ``input``.
        """
        check_features(input, self.dim, at_least=True)
        features = upcast(input[..., : self.dim])
        waves = self.waves.encodings(input, offset, features.dtype)
        sin, cos = waves[..., 0::2], waves[..., 1::2]
        if self.interleaved:
            a, b = features[..., 0::2], features[..., 1::2]
            rotated = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
        else:
            a, b = features.chunk(2, dim=-1)
            rotated = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
        rotated = rotated.to(input.dtype)
        if input.shape[-1] == self.dim:
            return rotated
        return torch.cat((rotated, input[..., self.dim :]), dim=-1)

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.waves.base:g}, interleaved={self.interleaved}"
