"""Layers that attend."""

from regard.attention import Attended
from regard.nn.attention import Attention
from regard.nn.memory import Memory
from regard.nn.multihead import MultiHeadAttention, MultiheadAttention

__all__ = ["Attended", "Attention", "Memory", "MultiHeadAttention", "MultiheadAttention"]
