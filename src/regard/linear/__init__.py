"""Attention whose scores no normalizer couples, in linear time: in chunks or token by token, with a state between."""

from regard.linear.chunks import CHUNK
from regard.linear.fused import chunked, form_of
from regard.linear.log_decays import bounded
from regard.linear.recurrence import divided, recurrent, with_ones

__all__ = ["CHUNK", "bounded", "chunked", "divided", "form_of", "recurrent", "with_ones"]
