"""The encoding of arrays for the viewer: 8-bit square roots, exact floats, or bits, compressed and written in base64.

A weight w from 0 to a stated maximum m becomes one byte: 0 for exactly 0, 255 for NaN, else
``1 + round(253 · sqrt(w / m))``. The square root gives small weights finer steps. The error is at most
``m · (s / 253 + 1 / (4 · 253²))`` with ``s = sqrt(w / m)``, which is below 0.004 m. A weight with a sign has half of
the steps for its size: codes 1 to 127 if it is above 0, and 128 to 254 below; the error is below 0.008 m.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError

CODE_STEPS, SIGNED_STEPS = 253, 126
NAN_CODE = 255
COMPRESSION_LEVEL = 9
"""The compression level of zlib with the smallest result."""

BLOCK_ELEMENTS = 2**22
"""The number of elements that are encoded at once, so that temporary arrays stay small."""


def square_root_codes(weights: NDArray[Any], maximum: float) -> NDArray[np.uint8]:
    """Encodes weights, from 0 to ``maximum`` or NaN, as 8-bit square roots; raises ArgumentError for others."""
    if not maximum > 0 or not np.isfinite(maximum):
        raise ArgumentError(f"maximum must be above 0 and finite; it is {maximum}")
    flat = np.ascontiguousarray(weights).reshape(-1)
    codes = np.empty(flat.shape, np.uint8)
    for start in range(0, flat.size, BLOCK_ELEMENTS):
        part = flat[start : start + BLOCK_ELEMENTS].astype(np.float64)
        missing = np.isnan(part)
        if ((part < 0) | (part > maximum)).any():
            raise ArgumentError(f"weights must be from 0 to {maximum}, or NaN")
        roots = np.sqrt(np.where(missing, 0.0, part) / maximum)
        coded = np.where(part == 0, 0, 1 + np.rint(CODE_STEPS * roots))
        codes[start : start + BLOCK_ELEMENTS] = np.where(missing, NAN_CODE, coded)
    return codes.reshape(np.shape(weights))


def signed_codes(weights: NDArray[Any], maximum: float) -> NDArray[np.uint8]:
    """Encodes weights whose size is at most ``maximum``, or NaN, as 8-bit square roots with a sign."""
    roots = np.sqrt(np.abs(np.nan_to_num(weights)) / maximum)
    coded = np.rint(SIGNED_STEPS * roots) + np.where(weights < 0, SIGNED_STEPS + 2, 1)
    return np.where(np.isnan(weights), NAN_CODE, np.where(weights == 0, 0, coded)).astype(np.uint8)


def packed(data: bytes | NDArray[Any]) -> str:
    """Compresses bytes by deflate (with zlib's header) and writes them in base64."""
    raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
    return base64.b64encode(zlib.compress(raw, COMPRESSION_LEVEL)).decode("ascii")


def packed_numbers(values: NDArray[Any], dtype: str) -> dict[str, Any]:
    """Encodes exact elements of dtype ``"<f4"`` or ``"<f8"``: all first bytes, then all second bytes, and so on."""
    array = np.ascontiguousarray(values, dtype=dtype)
    planes = array.reshape(-1).view(np.uint8).reshape(array.size, array.itemsize).T
    return {"type": {"<f4": "float32", "<f8": "float64"}[dtype], "shape": list(array.shape), "data": packed(planes)}


def packed_codes(weights: NDArray[Any], signed: bool = False) -> dict[str, Any]:
    """Encodes weights as 8-bit square roots relative to the largest one, but at least to 1; signed ones to its size."""
    known = np.abs(weights[~np.isnan(weights)])
    largest = float(known.max()) if known.size else 0.0
    maximum = (largest or 1.0) if signed else max(largest, 1.0)
    encode = signed_codes if signed else square_root_codes
    return {"maximum": maximum, "shape": list(weights.shape), "data": packed(encode(weights, maximum))}


def packed_bits(flags: NDArray[np.bool_]) -> dict[str, Any]:
    """Encodes booleans, eight in a byte, the first in its highest bit."""
    return {"shape": list(flags.shape), "data": packed(np.packbits(flags))}
