"""Attention whose scores no normalizer couples, in linear time: in chunks or token by token, with a state between."""

from regard.linear.chunks import CHUNK, chunked
from regard.linear.recurrence import divided, recurrent, with_ones

__all__ = ["CHUNK", "chunked", "divided", "recurrent", "with_ones"]
