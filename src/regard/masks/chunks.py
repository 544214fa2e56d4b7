"""Masks by chunks of a sequence: chunked and streaming attention, and the halves of block diffusion."""

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.masks.batch_integers import Integers
from regard.masks.content import lengths
from regard.masks.mask import Mask, Visibility
from regard.masks.positional import Align, AlignedMask, prefix
from regard.masks.spans import Spans
from regard.shapes.axes import Bool
from regard.shapes.checks import check_sizes, whole_number
from regard.shapes.grid import POSITION_LIMIT, Grid


class Chunks(AlignedMask, fields=("size", "before", "after", "align", "offset")):
    """Allows the chunks of keys around the query's own; see `chunks`.

    Example:
        >>> from regard import masks
        >>> masks.Chunks(16, 2, 0)
        chunks(16, before=2, after=0)
    """

    def __init__(
        self,
        size: int,
        before: int | None = 0,
        after: int | None = 0,
        align: Align = "end",
        offset: Integers | None = None,
    ):
        self.size = whole_number("size", size, low=1, high=POSITION_LIMIT)
        super().__init__(before, after, align, offset)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        own = (grid.shared_query_index + self.offset_on(grid)) // self.size  # Q 1, or B 1 Q 1
        chunk = grid.shared_key_index // self.size
        if self.before == self.after == 0:
            return chunk == own
        allowed = torch.ones(1, dtype=torch.bool, device=grid.device)
        if self.after is not None:
            allowed = chunk <= own + self.after
        return allowed if self.before is None else allowed & (chunk >= own - self.before)

    def __repr__(self) -> str:
        reach = [f"before={self.before}", f"after={self.after}"] if (self.before, self.after) != (0, 0) else []
        return f"chunks({', '.join([str(self.size), *reach, *self._position_text()])})"


def chunks(
    size: int, before: int | None = 0, after: int | None = 0, align: Align = "end", offset: Integers | None = None
) -> Chunks:
    r"""Divides the sequence into chunks; each query sees its own chunk, and whole chunks before and after it.

    .. math::

        query i sees key j  ⇔  c − before <= ⌊j / size⌋ <= c + after,  where  c = ⌊(i + offset) / size⌋

    Streaming encoders of speech read chunks with some chunks of context: Zhang et al. 2020, "Unified streaming and
    non-streaming two-pass end-to-end model for speech recognition" (U2), and Shi et al. 2021, "Emformer", whose left
    context and look-ahead are ``before`` and ``after``. ``chunks(size) & causal()`` is the chunked attention of Llama 4
    (Meta 2025); ``chunks(size, before=None)`` is causal from block to block.

    Args:
        size: keys of a chunk; chunks begin at key 0, and the last one may be shorter.
        before: number of visible chunks before the query's own; None for all.
        after: number of visible chunks after it; None for all.
        align, offset: decide which key is the query's own, as in `causal`; an offset's tensor is copied likewise.

    Raises:
        ArgumentError, KindError: a number is out of range, or none.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(5, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.chunks(2, before=1)).weights > 0).long()
        tensor([[1, 1, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [1, 1, 1, 1, 0],
                [1, 1, 1, 1, 0],
                [0, 0, 1, 1, 1]])
    """
    return Chunks(size, before, after, align, offset)


class BlockDiffusion(Mask, fields=("length", "block")):
    """Allows the pairs of a training of block diffusion; see `block_diffusion`.

    Example:
        >>> from regard import masks
        >>> masks.BlockDiffusion(12, 4)
        block_diffusion(12, 4)
    """

    def __init__(self, length: int, block: int):
        check_sizes(length=length, block=block)
        if length % block:
            raise ArgumentError(
                f"block must divide length, {length}, so that both halves have whole blocks; it is {block}"
            )
        self.length, self.block = length, block
        earlier = chunks(block, None, length // block - 1) & lengths(2 * length, queries=length)
        self._pairs = chunks(block) | ~prefix(length) & (chunks(block, None, 0) | earlier)

    def check(self, grid: Grid) -> None:
        if not grid.queries == grid.keys == 2 * self.length:
            raise ShapeError(
                f"{self!r} is the mask of {2 * self.length} tokens, {self.length} noised and {self.length} clean; "
                f"there are {grid.queries} queries and {grid.keys} keys"
            )

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        return self._pairs.allows(grid)

    def visibility(self, grid: Grid) -> Visibility:
        return self._pairs.visibility(grid)

    def spans(self, grid: Grid) -> Spans | None:
        return self._pairs.spans(grid)

    def __repr__(self) -> str:
        return f"block_diffusion({self.length}, {self.block})"


def block_diffusion(length: int, block: int) -> BlockDiffusion:
    r"""Returns the mask of a training of block diffusion, whose sequence is a noised text and the clean text behind it.

    .. math::

        noised query i sees noised key j  ⇔  b(i) = b(j)
        noised query i sees clean key j  ⇔  b(j) < b(i)
        clean query i sees clean key j  ⇔  b(j) <= b(i)

    where b is the number of a token's block in its half, and no clean query sees a noised key: Arriola et al. 2025,
    "Block diffusion: interpolating between autoregressive and diffusion language models" (the training by one pass
    over :math:`x_t \oplus x_0`). To generate, ``chunks(block, before=None)`` with a cache is enough.

    Args:
        length: tokens of one half; the sequence has twice as many.
        block: tokens of a block, which divide ``length``.

    Returns:
        The mask; a row has at most two runs of keys.

    Raises:
        ArgumentError: ``block`` does not divide ``length``.
        ShapeError: in a call, queries and keys are not the tokens of both halves.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(8, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.block_diffusion(4, 2)).weights > 0).long()
        tensor([[1, 1, 0, 0, 0, 0, 0, 0],
                [1, 1, 0, 0, 0, 0, 0, 0],
                [0, 0, 1, 1, 1, 1, 0, 0],
                [0, 0, 1, 1, 1, 1, 0, 0],
                [0, 0, 0, 0, 1, 1, 0, 0],
                [0, 0, 0, 0, 1, 1, 0, 0],
                [0, 0, 0, 0, 1, 1, 1, 1],
                [0, 0, 0, 0, 1, 1, 1, 1]])
    """
    return BlockDiffusion(length, block)
