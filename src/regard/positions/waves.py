"""Sines and cosines of positions times frequencies: the table behind sinusoidal and rotary positions."""

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError
from regard.positions.axes import Axes
from regard.positions.index import explicit_positions, positions_of, whole_lengths
from regard.positions.scaling import RotaryScaling
from regard.shapes.checks import positive_number, type_text, whole_number
from regard.tracing.module_calls import Module
from regard.tracing.transforms import sent


class Waves(Module):
    """The sines and cosines of ``position · θ_i``, times the scaling's magnitude.

    Args:
        dim: features, two for each frequency; an odd one ends with a sine without a cosine.
        base: 1 / θ of the slowest pair, approximately.
        scaling: the frequencies; None: ``base^(−2i / dim)``.
        axes: the axis of positions that belongs to each frequency; None: there is one axis.
    """

    def __init__(self, dim: int, base: float = 10000.0, scaling: RotaryScaling | None = None, axes: Axes | None = None):
        super().__init__()
        self.dim = whole_number("dim", dim, low=1)
        self.base = positive_number("base", base)
        for name, part, kind in (("scaling", scaling, RotaryScaling), ("axes", axes, Axes)):
            if part is not None and not isinstance(part, kind):
                raise KindError(f"{name} must be one of regard.positions or None; it is {type_text(part)}")
        self.scaling, self.axes = scaling or RotaryScaling(), axes
        self.frequencies()  # raises if the parts do not fit each other
        # The longest table so far and the length that its frequencies are for, in the dtype and on the device of the
        # last input. It is not a buffer, since `.half()` would round a buffer and `state_dict` would save it.
        self._cached_table: Tensor | None = None
        self._cached_length = 0

    def frequencies(self, length: int | Tensor = 0, device: torch.device | str | None = "cpu") -> Tensor:
        """Returns θ, ``float64 [pairs]``, or ``[..., pairs]`` for the lengths ``[..., 1]`` of sequences."""
        parts = (self.dim,) if self.axes is None else self.axes.parts(self.dim)
        thetas = [self.scaling.frequencies(part, self.base, length, device) for part in parts]
        return thetas[0] if len(thetas) == 1 else torch.cat(thetas, dim=-1)

    def at(self, positions: Tensor, length: int | Tensor = 0) -> Tensor:
        """Returns the encodings of any positions, also negative ones.

        Args:
            positions: numbers ``[...]``, or ``[axes, ...]`` if there are several axes.
            length: as for `frequencies`.

        Returns:
            ``float64 [..., dim]``, on the same device.
        """
        by_pair = positions[..., None] if self.axes is None else self.axes.by_pair(positions)
        angles = by_pair * self.frequencies(length, positions.device)
        waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., : self.dim]
        return waves if self.scaling.magnitude == 1 else waves * self.scaling.magnitude

    def encodings(
        self,
        input: Tensor,
        offset: int | Tensor,
        dtype: torch.dtype,
        positions: Tensor | None = None,
        length: int | Tensor | None = None,
    ) -> Tensor:
        """Returns the encodings of an input's positions: ``[length, dim]``, or ``[batch, 1, ..., length, dim]`` if each
        batch row has its own positions or frequencies.

        Args:
            input: ``[..., length, features]``.
            offset: the position of the first vector, an integer or integers ``[batch]``.
            dtype: dtype of the result.
            positions: the positions themselves, as for `Rotary`.
            length: number of positions of the whole sequence, which the frequencies may depend on, an integer or
                integers ``[batch]``; None: up to the last position.
        """
        depends = self.scaling.depends_on_length
        if positions is not None:
            if isinstance(offset, Tensor) or offset:
                raise ArgumentError("pass either offset or positions, not both")
            own = explicit_positions(input, positions, None if self.axes is None else len(self.axes.sizes))
            if length is None and depends and own.numel():
                last = own.amax(-1, keepdim=True)
                total: int | Tensor = (last if self.axes is None else last.amax(0)) + 1
            else:
                total = whole_lengths(input, 0, length) if depends else 0
        else:
            own, total = positions_of(input, offset), whole_lengths(input, offset, length) if depends else 0
            if not isinstance(own, Tensor) and not isinstance(total, Tensor):
                return self._of_span(*own, total, dtype, input)
            own = own if isinstance(own, Tensor) else torch.arange(*own, device=input.device)
            own = own if self.axes is None else self.axes.along(own)
        return self.at(own, total[..., None] if isinstance(total, Tensor) else total).to(dtype)

    def _of_span(self, first: int, stop: int, length: int, dtype: torch.dtype, input: Tensor) -> Tensor:
        """Returns the encodings of positions ``first .. stop − 1`` on the input's device, if possible from the cache,
        for a sequence of this length."""
        cached, device = self._cached_table, input.device
        # A fake tensor cannot be added to a real table, and an exported program must not contain one.
        may_read = type(input) is Tensor and not torch.compiler.is_exporting()
        is_same = cached is not None and (cached.dtype, cached.device) == (dtype, device)
        is_same = is_same and self._cached_length == length
        if cached is not None and first >= 0 and may_read and is_same and len(cached) >= stop:
            return cached[first:stop]
        # Frequencies that each step changes need no table of all positions.
        if first < 0 or (first and length and not is_same):
            return sent(self._table(first, stop, length, "cpu").to(dtype), device)
        if not may_read or torch.compiler.is_compiling():
            return self._table(0, stop, length, device).to(dtype)[first:]
        # The length is a power of two, so that step-by-step decoding computes few tables. The table outlives this call,
        # so it must not be an inference tensor.
        with torch.inference_mode(False):
            table = self._table(0, 1 << max(stop - 1, 0).bit_length(), length, "cpu").to(dtype)
            self._cached_table, self._cached_length = sent(table, device), length
        return self._cached_table[first:stop]

    def _table(self, first: int, stop: int, length: int, device: torch.device | str) -> Tensor:
        index = torch.arange(first, stop, device=device)
        return self.at(index if self.axes is None else self.axes.along(index), length)

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base:g}"
