"""Plain data that viewers, pages and pictures show: numpy arrays and labels, no tensors of a model, no drawing."""

from regard.names.lazy_names import public_names
from regard.records.attention_record import AttentionRecord, DenseTiles, TileSource
from regard.records.axis import Axis, FrameAxis, GridAxis, TokenAxis, bin_edges, join_pieces, word_ranges
from regard.records.document import Document, StepsRecord
from regard.records.head_grid import GridNumber, HeadGrid
from regard.records.score_parts import ScoreParts, WriteSource

__all__ = [
    "TokenAxis",
    "GridAxis",
    "FrameAxis",
    "Axis",
    "AttentionRecord",
    "StepsRecord",
    "HeadGrid",
    "GridNumber",
    "ScoreParts",
    "WriteSource",
    "Document",
    "TileSource",
    "DenseTiles",
    "bin_edges",
    "word_ranges",
    "join_pieces",
]

__dir__ = public_names(__name__)
