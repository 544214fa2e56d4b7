"""The tokens of a batch of sequences of different lengths as the rows of one matrix, without padding."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard import masks
from regard.distributed.sequence_parts import are_parts, shards_of_part
from regard.errors import ArgumentError, ShapeError
from regard.masks import Documents, Lengths, Mask
from regard.shapes.checks import check_integers, whole_number
from regard.tracing.transforms import active_transform, has_host_data, sent


class Packing:
    """The positions of the tokens of a padded batch.

    Operations on single tokens (a projection, a feedforward layer, a normalization, a loss) can run on the packed rows,
    which are fewer.

    .. math:: rows = [padded_{1, 1..lengths_1}; padded_{2, 1..lengths_2}; …]

    Attention of packed rows is that of documents in one sequence (`regard.masks.documents`), or has the padded form::

        packing = Packing(lengths, length=17)
        rows = packing.pack(padded)      # [tokens, ...] of [batch, length, ...]
        packing.pad(rows)                # [batch, length, ...] again, with zeros for padding

    Args:
        lengths: integers ``[batch]``, tokens of each sequence, 0 to ``length``.
        length: length of the padded sequences.
        device: where the sequences are; None: where the lengths are.

    Where the lengths cannot be read (an exporter or a compiler records the call, a transform of ``torch.func`` is
    active, or they are on a device, for which the host would wait), rows keep the axes of batch and length: those of
    padding are 0, and become 0 again. Lengths on the CPU pack tensors of any device. The same holds within
    `regard.distributed.sequence`, where lengths are those of whole sequences, and padded sequences are parts of them.

    Attributes:
        shape: ``(batch, length)``.
        index: ``int64 [tokens]``: position of each token in the flattened batch; None if every position is a row.
        present: bool ``[batch, length, 1]``: which rows are tokens, where padding has rows too; None: all are.
        is_joined: whether rows have one axis for batch and length.
        lengths: ``int64 [batch]``, tokens of each sequence, on their device; None: all.

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
        device = lengths.device if device is None else device
        if shards_of_part(length, "padded") is not None or not may_read(lengths):
            self._keep_axes(lengths.shape[0], length, sent(lengths, device))
            return
        _check_range(lengths, length)
        # A copy, so that later changes of the lengths change no packing.
        counts = lengths.to(torch.int64, copy=True)
        is_token = torch.arange(length, device=lengths.device) < counts[:, None]
        index = is_token.flatten().nonzero().squeeze(1)
        self._set(len(lengths), length, True, sent(counts, device))
        if len(index) < is_token.numel():
            self.index = sent(index, device)

    def _set(self, batch: int, length: int, is_joined: bool, lengths: Tensor | None) -> None:
        self.shape, self.is_joined, self.lengths = (batch, length), is_joined, lengths
        self.index: Tensor | None = None
        self.present: Tensor | None = None
        self._padding: Lengths | None = None
        self._own_documents: Documents | None = None
        self._documents: tuple[Packing, Documents] | None = None

    def _keep_axes(self, batch: int, length: int, lengths: Tensor | None) -> None:
        self._set(batch, length, False, lengths)
        if lengths is not None:
            shards = shards_of_part(length, "padded")
            positions = torch.arange(length, device=lengths.device) if shards is None else shards.positions()
            self.present = (sent(positions, lengths.device) < lengths[:, None])[..., None]

    @classmethod
    def full(cls, batch: int, length: int) -> "Packing":
        """Returns the packing of a batch without padding."""
        packing = cls.__new__(cls)
        packing._set(batch, length, True, None)
        return packing

    @classmethod
    def padded(cls, padded: Tensor, lengths: Tensor | None) -> "Packing":
        """Returns the packing of ``[batch, length, ...]`` whose rows keep both axes; lengths None: without padding."""
        batch, length = padded.shape[:2]
        if lengths is not None and may_read(lengths) and not are_parts():
            _check_range(lengths, length)
        packing = cls.__new__(cls)
        packing._keep_axes(batch, length, None if lengths is None else sent(lengths, padded.device))
        return packing

    @property
    def has_padding(self) -> bool:
        """Whether some positions are padding, or may be."""
        return self.index is not None or self.present is not None

    @property
    def tokens(self) -> int:
        """The number of packed rows."""
        batch, length = self.shape
        return batch * length if self.index is None else len(self.index)

    def visible(self, mask: Mask | None) -> Mask | None:
        """Returns a mask of attention to these sequences that hides the padding as well."""
        if not self.has_padding or self.lengths is None:
            return mask
        if self._padding is None:  # one mask for all layers, which reads the lengths once
            self._padding = masks.lengths(self.lengths)
        return self._padding if mask is None else mask & self._padding

    def documents(self, keys: "Packing") -> Documents:
        """Returns the mask of attention of these packed rows to those of ``keys``, in which a sequence is a document.

        All layers of a stack get the same mask, which finds its rows once.
        """
        if keys is self:
            if self._own_documents is None:
                self._own_documents = masks.documents(self._ids())
            return self._own_documents
        if self._documents is None or self._documents[0] is not keys:
            self._documents = keys, masks.documents(self._ids(), keys._ids())
        return self._documents[1]

    def _ids(self) -> Tensor:
        """Returns the number of the sequence of each packed row."""
        batch, length = self.shape
        sequences = torch.arange(batch)
        return sequences.repeat_interleave(length if self.lengths is None else self.lengths)

    def pack(self, padded: Tensor) -> Tensor:
        """Packs ``[batch, length, ...]`` to ``[tokens, ...]``, or keeps both axes with zeros for padding."""
        if not self.is_joined:
            return padded if self.present is None else padded.masked_fill(~self.present, 0)
        flat = padded.flatten(0, 1)
        return flat if self.index is None else _Pack.apply(flat, self.index)

    def pad(self, rows: Tensor) -> Tensor:
        """Pads ``[tokens, ...]`` to ``[batch, length, ...]`` with zeros."""
        if not self.is_joined:
            return self.pack(rows)
        batch, length = self.shape
        flat = rows if self.index is None else _Pad.apply(rows, self.index, batch * length)
        return flat.unflatten(0, self.shape)


def check_lengths(padded: Tensor, lengths: Tensor | None) -> None:
    """Raises an error unless these may be the lengths of a batch ``[batch, length, dim]``."""
    if lengths is None:
        return
    batch, length = padded.shape[:2]
    check_integers("lengths", lengths)
    if tuple(lengths.shape) != (batch,):
        hint = ""
        if tuple(lengths.shape) == (length,):
            hint = f"; the input is read as {batch} sequences of length {length}: batch_first says which axis is which"
        raise ShapeError(f"lengths must be [batch] = [{batch}]; it has shape {list(lengths.shape)}{hint}")


def may_read(lengths: Tensor) -> bool:
    """Whether rows may be chosen by these numbers: they can be read, and no derivative needs other operations."""
    return has_host_data(lengths) and active_transform() is None


def _check_range(lengths: Tensor, length: int) -> None:
    if len(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= length:
        raise ArgumentError(f"lengths must be in 0..{length}; they reach from {lengths.min()} to {lengths.max()}")


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
