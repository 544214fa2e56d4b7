"""Arrays and labels → matplotlib figures, without pyplot, windows or global settings.

The functions import matplotlib when they are called.
"""

from regard.names.lazy_names import public_names
from regard.pictures.alignment import alignment, merge
from regard.pictures.calculation import Panel, calculation
from regard.pictures.caption import Caption
from regard.pictures.confusion import confusion_matrix
from regard.pictures.curves import Quality, bleu_by_length, learning_rate_curve, training_curves
from regard.pictures.fonts import MissingGlyphWarning
from regard.pictures.head_grid import head_grid
from regard.pictures.heatmap import heatmap
from regard.pictures.image_overlay import image_overlays, overlay
from regard.pictures.positions import position_table
from regard.pictures.saving import save
from regard.pictures.segments import PixelAttention, segments
from regard.pictures.signed_bars import signed_bars
from regard.pictures.sound_alignment import sound_alignment
from regard.pictures.word_weights import word_weights

__all__ = [
    "alignment",
    "merge",
    "Caption",
    "Panel",
    "calculation",
    "Quality",
    "training_curves",
    "learning_rate_curve",
    "bleu_by_length",
    "position_table",
    "confusion_matrix",
    "word_weights",
    "segments",
    "PixelAttention",
    "heatmap",
    "head_grid",
    "signed_bars",
    "sound_alignment",
    "image_overlays",
    "overlay",
    "save",
    "MissingGlyphWarning",
]

__dir__ = public_names(__name__)
