"""Layers that attend."""

from regard.nn.attention import Attended, Attention
from regard.nn.memory import Memory
from regard.nn.multihead import MultiHeadAttention, MultiheadAttention

__all__ = ["Attended", "Attention", "Memory", "MultiHeadAttention", "MultiheadAttention"]
