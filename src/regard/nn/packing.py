"""The tokens of a batch of sequences of different lengths as the rows of one matrix, without padding."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard import masks
from regard.errors import ArgumentError, ShapeError
from regard.kernels.cpu.packed_call import Sequences
from regard.masks import And, Lengths, Mask
from regard.masks.batch_integers import Integers
from regard.sequence_parts import shards_of_part
from regard.shapes import check_integers, whole_number
from regard.transforms import active_transform, has_host_data, sent


class Packing:
    """The positions of the tokens of a padded batch.

    Operations on single tokens (a projection, a feedforward layer, a normalization, a loss) can run on the packed rows,
    which are fewer.

    .. math:: rows = [padded_{1, 1..lengths_1}; padded_{2, 1..lengths_2}; …]

    Attention needs the padded form::

        packing = Packing(lengths, length=17)
        rows = packing.pack(padded)      # [tokens, ...] of [batch, length, ...]
        packing.pad(rows)                # [batch, length, ...] again, with zeros for padding

    Args:
        lengths: integers ``[batch]``, tokens of each sequence, 0 to ``length``.
        length: length of the padded sequences.
        device: where the sequences are; None: where the lengths are.

    Where the lengths cannot be read (an exporter or a compiler records the call, a transform of ``torch.func`` is
    active, or they are on a device, for which the host would wait), every position is a packed row: those of padding
    are 0, and become 0 again. Lengths on the CPU pack tensors of any device. The same holds within
    `regard.distributed.sequence`, where lengths are those of whole sequences, and padded sequences are parts of them.

    Attributes:
        shape: ``(batch, length)``.
        index: ``int64 [tokens]``: position of each token in the flattened batch; None if every position is a row.
        present: bool ``[batch, length, 1]``: which rows are tokens, where padding has rows too; None: all are.

    Raises:
        KindError: ``lengths`` is not a tensor of integers, or ``length`` is no integer.
        ShapeError: ``lengths`` is not a vector.
        ArgumentError: a length is outside 0 to ``length``.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> packing = nn.Packing(torch.tensor([3, 1]), length=4)
        >>> padded = torch.tensor([[1.0, 2.0, 3.0, 9.0], [4.0, 9.0, 9.0, 9.0]])
        >>> rows = packing.pack(padded)
        >>> rows, packing.tokens, packing.index
        (tensor([1., 2., 3., 4.]), 4, tensor([0, 1, 2, 4]))
        >>> packing.pad(rows)
        tensor([[1., 2., 3., 0.],
                [4., 0., 0., 0.]])
    """

    def __init__(self, lengths: Tensor, length: int, device: torch.device | None = None):
        check_integers("lengths", lengths)
        if not torch.jit.is_tracing():  # a tracer's lengths are tensors
            length = whole_number("length", length, 0)
        if lengths.dim() != 1:
            raise ShapeError(f"lengths must be [batch]; it has shape {list(lengths.shape)}")
        shards = shards_of_part(length, "padded")
        if shards is not None or not _may_read(lengths):
            self.shape, self.index, self._lengths = (lengths.shape[0], length), None, None
            positions = torch.arange(length, device=lengths.device) if shards is None else shards.positions()
            self.present = (sent(positions, lengths.device) < lengths[:, None])[..., None]
            return
        if len(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= length:
            raise ArgumentError(f"lengths must be in 0..{length}; they reach from {lengths.min()} to {lengths.max()}")
        self.shape = len(lengths), length
        # A copy, because a kernel reads the lengths without checking them again.
        self._lengths: Tensor | None = lengths.to(torch.int64, copy=True)
        is_token = torch.arange(length, device=lengths.device) < lengths[:, None]
        index = is_token.flatten().nonzero().squeeze(1)
        self.index: Tensor | None = None
        if len(index) < is_token.numel():
            self.index = index if device is None else sent(index, device)
        self.present: Tensor | None = None

    @classmethod
    def full(cls, batch: int, length: int) -> "Packing":
        """The packing of a batch without padding."""
        packing = cls.__new__(cls)
        packing.shape, packing.index, packing._lengths, packing.present = (batch, length), None, None, None
        return packing

    @property
    def has_padding(self) -> bool:
        """Whether some positions are padding, or may be."""
        return self.index is not None or self.present is not None

    @property
    def tokens(self) -> int:
        """How many packed rows there are."""
        batch, length = self.shape
        return batch * length if self.index is None else len(self.index)

    @property
    def lengths(self) -> Tensor | None:
        """``int64 [batch]``, tokens of each sequence, on their device; None: all."""
        if self._lengths is None or self.index is None:
            return self._lengths
        return sent(self._lengths, self.index.device)

    @cached_property
    def sequences(self) -> Sequences:
        """The ranges of packed rows, one for each sequence."""
        batch, length = self.shape
        counts = torch.full((batch,), length, device="cpu") if self._lengths is None else self._lengths
        return Sequences(counts.cumsum(0) - counts, counts, length)

    def has_lengths(self, lengths: Integers) -> bool:
        """Whether these are the lengths of the sequences: one for all, or one for each."""
        if self.present is not None:
            return False  # their values cannot be read
        tensor, counts = torch.as_tensor(lengths), self.sequences.counts
        fits = tensor.dim() <= 1 and tensor.numel() in (1, len(counts)) and tensor.device == counts.device
        return fits and bool((tensor == counts).all())

    def pack(self, padded: Tensor) -> Tensor:
        """``[tokens, ...]`` of ``[batch, length, ...]``; an exporter's rows keep both axes."""
        if self.present is not None:
            padded = padded.masked_fill(~self.present, 0)
        if torch.compiler.is_exporting():  # the strides of two open axes in one would limit their sizes
            return padded
        flat = padded.flatten(0, 1)
        return flat if self.index is None else _Pack.apply(flat, self.index)

    def pad(self, rows: Tensor) -> Tensor:
        """``[batch, length, ...]`` of ``[tokens, ...]``; padding is 0."""
        batch, length = self.shape
        if torch.compiler.is_exporting():
            padded = rows
        else:
            flat = rows if self.index is None else _Pad.apply(rows, self.index, batch * length)
            padded = flat.unflatten(0, self.shape)
        return padded if self.present is None else padded.masked_fill(~self.present, 0)


def packing_of(padded: Tensor, lengths: Tensor | None) -> Packing:
    """The packing of a batch ``[batch, length, dim]`` with these lengths; None: without padding."""
    batch, length = padded.shape[:2]
    if lengths is None:
        return Packing.full(batch, length)
    check_integers("lengths", lengths)
    if tuple(lengths.shape) != (batch,):
        hint = ""
        if tuple(lengths.shape) == (length,):
            hint = f"; the input is read as {batch} sequences of length {length}: batch_first says which axis is which"
        raise ShapeError(f"lengths must be [batch] = [{batch}]; it has shape {list(lengths.shape)}{hint}")
    return Packing(lengths, length, padded.device)


def lengths_beside(padded: Tensor, lengths: Tensor | None) -> Tensor | None:
    """The lengths on the device of the sequences, for masks; the host does not wait for the copy."""
    return None if lengths is None else sent(lengths, padded.device)


def without_padding(mask: Mask | None, packing: Packing, lengths: Tensor | None) -> Mask | None:
    """The mask of self-attention that hides the padding as well."""
    if lengths is None or not packing.has_padding or _hides_padding(mask, packing):
        return mask
    present = masks.lengths(lengths)
    return present if mask is None else mask & present


def _may_read(lengths: Tensor) -> bool:
    """Whether rows may be chosen by these numbers: they can be read, and no derivative needs other operations."""
    return has_host_data(lengths) and active_transform() is None


def _hides_padding(mask: Mask | None, packing: Packing) -> bool:
    """Whether a mask is known to hide the padding from every token."""
    parts = mask.parts if type(mask) is And else (mask,)
    return any(is_padding(part, packing) for part in parts)


def is_padding(mask: Mask | None, packing: Packing) -> bool:
    """Whether a mask is that of the lengths of a packing: it hides the padding of the keys, and nothing else."""
    return type(mask) is Lengths and mask.queries is None and packing.has_lengths(mask.keys.value)


class _Pack(torch.autograd.Function):
    """Rows of a matrix at different positions. The gradient of `index_select` adds; here no row is taken twice."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = flat.shape[0]
        return flat.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_rows: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (index,) = ctx.saved_tensors
        return _spread(grad_rows, index, ctx.rows), None


class _Pad(torch.autograd.Function):
    """The inverse of `_Pack`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        return _spread(rows, index, size)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_flat: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (index,) = ctx.saved_tensors
        return grad_flat.index_select(0, index), None, None


def _spread(rows: Tensor, index: Tensor, size: int) -> Tensor:
    return rows.new_zeros(size, *rows.shape[1:]).index_copy_(0, index, rows)
