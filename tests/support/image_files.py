"""Images of known pixels, encoded in memory."""

import io

import numpy as np
from PIL import Image


def encoded(pixels, format="PNG", **options):
    """The bytes of a file with these pixels."""
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels)).save(file, format, **options)
    return file.getvalue()


def colours(height=5, width=7, seed=0):
    """Random uint8 pixels ``[height, width, 3]``."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
