"""Plain data that viewers, pages and pictures show: numpy arrays and labels, no tensors of a model, no drawing."""

from regard.records.attention_record import AttentionRecord
from regard.records.axis import Axis, FrameAxis, GridAxis, TokenAxis
from regard.records.document import Document
from regard.records.steps_record import StepsRecord
from regard.records.tile_source import DenseTiles, TileSource, bin_edges
from regard.records.words import join_pieces, word_ranges

__all__ = [
    "TokenAxis",
    "GridAxis",
    "FrameAxis",
    "Axis",
    "AttentionRecord",
    "StepsRecord",
    "Document",
    "TileSource",
    "DenseTiles",
    "bin_edges",
    "word_ranges",
    "join_pieces",
]
