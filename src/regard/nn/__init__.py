"""Layers that attend."""

from regard.attention import Attended
from regard.nn.attention import Attention
from regard.nn.attention_pooling import AttentionPooling, Pooled
from regard.nn.dropout import Dropout
from regard.nn.key_values import KeyValueCache, KeyValues
from regard.nn.layer_config import LayerConfig
from regard.nn.memory import Memory
from regard.nn.multihead import MultiHeadAttention, MultiheadAttention
from regard.nn.packing import Packing
from regard.nn.transformer import Transformer, TransformerDecoder, TransformerEncoder
from regard.nn.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer

__all__ = [
    "Attended",
    "Attention",
    "Dropout",
    "AttentionPooling",
    "KeyValueCache",
    "KeyValues",
    "LayerConfig",
    "Memory",
    "MultiHeadAttention",
    "MultiheadAttention",
    "Packing",
    "Pooled",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]
