"""Layers that attend."""

from regard.attention import Attended
from regard.nn.attention import Attention
from regard.nn.attention_pooling import AttentionPooling, Pooled
from regard.nn.batch_norm import BatchNorm2d
from regard.nn.cbam import CBAM, ChannelGate, SpatialGate
from regard.nn.dual_attention import ChannelAttention, DualAttention, PositionAttention
from regard.nn.feature_fusion import AFF, IAFF, MSCAM
from regard.nn.key_values import KeyValueCache, KeyValues
from regard.nn.layer_config import LayerConfig
from regard.nn.memory import Memory
from regard.nn.multihead import MultiHeadAttention, MultiheadAttention
from regard.nn.non_local import NonLocal
from regard.nn.packing import Packing
from regard.nn.squeeze_excitation import SqueezeExcitation
from regard.nn.transformer import Transformer, TransformerDecoder, TransformerEncoder
from regard.nn.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer

__all__ = [
    "AFF",
    "Attended",
    "Attention",
    "AttentionPooling",
    "BatchNorm2d",
    "CBAM",
    "ChannelAttention",
    "ChannelGate",
    "DualAttention",
    "IAFF",
    "KeyValueCache",
    "KeyValues",
    "LayerConfig",
    "MSCAM",
    "Memory",
    "MultiHeadAttention",
    "MultiheadAttention",
    "NonLocal",
    "Packing",
    "Pooled",
    "PositionAttention",
    "SpatialGate",
    "SqueezeExcitation",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]
