"""Sines and cosines of positions times frequencies: the table behind sinusoidal and rotary positions."""

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError
from regard.positions.axes import Axial, Sections
from regard.positions.index import explicit_positions, positions_of, whole_lengths
from regard.positions.scaling import RotaryScaling
from regard.shapes.checks import positive_number, type_text, whole_number
from regard.tracing.module_calls import Module
from regard.tracing.transforms import sent


class Waves(Module):
    """The sines and cosines of ``position · θ_i``, times the scaling's magnitude; arguments as for `Rotary`."""

    def __init__(
        self, dim: int, base: float, scaling: RotaryScaling | None = None, axes: Axial | Sections | None = None
    ):
        super().__init__()
        self.dim = whole_number("dim", dim, low=1)
        self.base = positive_number("base", base)
        for name, part, kind in (("scaling", scaling, RotaryScaling), ("axes", axes, (Axial, Sections))):
            if part is not None and not isinstance(part, kind):
                raise KindError(f"{name} must be one of regard.positions or None; it is {type_text(part)}")
        self.scaling, self.axes = scaling or RotaryScaling(), axes
        self.frequencies(0, "cpu")  # raises if the parts do not fit each other
        # The longest table so far, in the dtype and on the device of the last input. It is not a buffer, since
        # `.half()` would round a buffer and `state_dict` would save it.
        self._cached_table: Tensor | None = None

    def frequencies(self, length: int | Tensor, device: torch.device | str) -> Tensor:
        """Returns θ, ``float64 [pairs]``, or ``[..., pairs]`` for the lengths ``[..., 1]`` of sequences."""
        parts = (self.dim,) if self.axes is None else self.axes.parts(self.dim)
        return torch.cat([self.scaling.frequencies(part, self.base, length, device) for part in parts], dim=-1)

    def at(self, positions: Tensor, length: int | Tensor = 0) -> Tensor:
        """Returns the encodings of any positions, also negative ones.

        Args:
            positions: numbers ``[...]``, or ``[axes, ...]`` if there are several axes.
            length: as for `frequencies`.

        Returns:
            ``float64 [..., dim]``, on the same device.
        """
        if self.axes is None:
            by_pair = positions[..., None]
        else:
            by_pair = torch.stack([positions[axis] for axis in self.axes.axis_of_pairs()], dim=-1)
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
        batch row has its own positions or frequencies; arguments as for `Rotary.forward`."""
        depends = self.scaling.depends_on_length
        total = whole_lengths(input, offset, length) if depends else 0
        if positions is not None:
            if isinstance(offset, Tensor) or offset:
                raise ArgumentError("pass either offset or positions, not both")
            own = explicit_positions(input, positions, None if self.axes is None else len(self.axes.sizes))
            if depends and length is None and own.numel():
                total = own.amax(-1, keepdim=True) + 1
                total = total if self.axes is None else total.amax(0)
        else:
            index = positions_of(input, offset)
            if not isinstance(index, Tensor) and not depends:
                return self._of_span(*index, dtype, input)
            index = index if isinstance(index, Tensor) else torch.arange(*index, device=input.device)
            own = index if self.axes is None else self.axes.along(index)
        return self.at(own, total[..., None] if isinstance(total, Tensor) else total).to(dtype)

    def _of_span(self, first: int, stop: int, dtype: torch.dtype, input: Tensor) -> Tensor:
        """Returns the encodings of positions ``first .. stop − 1`` on the input's device, cached if possible."""
        cached, device = self._cached_table, input.device
        # A fake tensor cannot be added to a real table, and an exported program must not contain one.
        may_read = type(input) is Tensor and not torch.compiler.is_exporting()
        same_kind = cached is not None and (cached.dtype, cached.device) == (dtype, device)
        if first < 0:
            return sent(self._table(first, stop, "cpu").to(dtype), device)
        if cached is not None and may_read and same_kind and len(cached) >= stop:
            return cached[first:stop]
        if not may_read or torch.compiler.is_compiling():
            return self._table(0, stop, device).to(dtype)[first:]
        # The length is a power of two, so that step-by-step decoding computes few tables. The table outlives this call,
        # so it must not be an inference tensor.
        with torch.inference_mode(False):
            table = self._table(0, 1 << max(stop - 1, 0).bit_length(), "cpu")
            self._cached_table = sent(table.to(dtype), device)
        return self._cached_table[first:stop]

    def _table(self, first: int, stop: int, device: torch.device | str) -> Tensor:
        index = torch.arange(first, stop, device=device)
        return self.at(index if self.axes is None else self.axes.along(index))

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base:g}"
