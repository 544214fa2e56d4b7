"""Attention without a normalizer that couples keys, in linear time: chunks, single steps, and the state between them."""

from regard.linear.chunks import CHUNK, chunked
from regard.linear.recurrence import recurrent

__all__ = ["CHUNK", "chunked", "recurrent"]
