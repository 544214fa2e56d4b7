"""Masks, which say which keys each query may attend to (``True``); they combine with ``&``, ``|`` and ``~``."""

from regard.masks.appended import AppendedMask
from regard.masks.blocks import Blocks, Compressed, blocks, top_blocks
from regard.masks.chunks import BlockDiffusion, Chunks, block_diffusion, chunks
from regard.masks.columns import Columns, columns
from regard.masks.content import Documents, Lengths, documents, lengths
from regard.masks.explicit import Keep, Where, ignore, keep, where
from regard.masks.grids import GridMask, Neighborhood, ShiftedWindows, neighborhood, shifted_windows
from regard.masks.mask import And, Mask, Not, Or, Visibility, visible_keys
from regard.masks.names import as_mask
from regard.masks.positional import Band, Dilated, Prefix, causal, dilated, prefix, window
from regard.masks.spans import Spans
from regard.masks.work import work_of_keys
from regard.names.lazy_names import public_names

__all__ = [
    "And",
    "AppendedMask",
    "Band",
    "BlockDiffusion",
    "Blocks",
    "Chunks",
    "Columns",
    "Compressed",
    "Dilated",
    "Documents",
    "GridMask",
    "Keep",
    "Lengths",
    "Mask",
    "Neighborhood",
    "Not",
    "Or",
    "Prefix",
    "ShiftedWindows",
    "Spans",
    "Visibility",
    "Where",
    "as_mask",
    "block_diffusion",
    "blocks",
    "causal",
    "chunks",
    "columns",
    "dilated",
    "documents",
    "ignore",
    "keep",
    "lengths",
    "neighborhood",
    "prefix",
    "shifted_windows",
    "top_blocks",
    "visible_keys",
    "where",
    "window",
    "work_of_keys",
]

__dir__ = public_names(__name__)
