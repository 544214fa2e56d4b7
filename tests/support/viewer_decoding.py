"""Decoders of the arrays that `regard.viewer.encoding` writes, as the viewer's module decodes them."""

import base64
import zlib

import numpy as np

from regard.viewer.encoding import CODE_STEPS, NAN_CODE


def decoded(codes, maximum):
    """Returns the weights that the viewer reads from 8-bit square roots."""
    roots = np.maximum(codes.astype(np.float64) - 1, 0) / CODE_STEPS
    return np.where(codes == NAN_CODE, np.nan, roots**2 * maximum)


def unpacked(text):
    """Inverts `packed`."""
    return zlib.decompress(base64.b64decode(text))


def unpacked_numbers(record):
    """Inverts `packed_numbers`."""
    dtype = {"float32": "<f4", "float64": "<f8"}[record["type"]]
    size = np.dtype(dtype).itemsize
    planes = np.frombuffer(unpacked(record["data"]), np.uint8).reshape(size, -1)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(record["shape"])
