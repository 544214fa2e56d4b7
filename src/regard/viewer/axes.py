"""The axes of records as parts of a payload."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.records import Axis, FrameAxis, GridAxis, TokenAxis
from regard.viewer.encoding import packed

LONGEST_IMAGE_SIDE = 1024
MOST_FRAMES = 4096
MOST_BINS = 256


def axis_payload(axis: Axis) -> dict[str, Any]:
    """One axis: its labels, and the picture that belongs to it."""
    if isinstance(axis, TokenAxis):
        return {
            "kind": "tokens",
            "length": len(axis),
            "tokens": list(axis.tokens),
            "special": [position for position, flag in enumerate(axis.special) if flag],
            "words": [word.start for word in axis.words],
        }
    return _grid(axis) if isinstance(axis, GridAxis) else _frames(axis)


def _grid(axis: GridAxis) -> dict[str, Any]:
    height, width = axis.image.shape[:2]
    step = -(-max(height, width) // LONGEST_IMAGE_SIDE)
    image = (
        axis.image if step == 1 else np.rint(block_means(block_means(axis.image, step, 0), step, 1)).astype(np.uint8)
    )
    return {
        "kind": "grid",
        "length": len(axis),
        "rows": int(axis.rows),
        "columns": int(axis.columns),
        "leading": int(axis.leading),
        "box": list(axis.box or (0.0, 0.0, float(width), float(height))),
        "size": [width, height],
        "image": {"width": image.shape[1], "height": image.shape[0], "data": packed(image)},
    }


def _frames(axis: FrameAxis) -> dict[str, Any]:
    spectrogram: NDArray[Any] = axis.spectrogram
    for place, most in ((0, MOST_BINS), (1, MOST_FRAMES)):
        spectrogram = block_means(spectrogram, -(-spectrogram.shape[place] // most), place)
    low, high = float(spectrogram.min()), float(spectrogram.max())
    shades = np.rint(255 * (spectrogram - low) / ((high - low) or 1.0)).astype(np.uint8)
    return {
        "kind": "frames",
        "length": len(axis),
        "seconds": axis.seconds,
        "spectrogram": {"bins": shades.shape[0], "frames": shades.shape[1], "data": packed(shades)},
    }


def block_means(values: NDArray[Any], size: int, axis: int) -> NDArray[Any]:
    """Means of ``size`` neighbours along an axis; the last block may have fewer."""
    if size <= 1:
        return values
    starts = np.arange(0, values.shape[axis], size)
    sums = np.add.reduceat(values, starts, axis=axis, dtype=np.float64)
    counts = np.diff([*starts, values.shape[axis]])
    return sums / counts.reshape([-1 if place == axis else 1 for place in range(values.ndim)])
