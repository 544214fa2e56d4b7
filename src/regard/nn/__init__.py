"""Layers with attention.

Each name is imported when it is first used (`regard.names.lazy_names`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.attention import Attended
    from regard.nn.attention import Attention
    from regard.nn.attention_pooling import AttentionPooling, Pooled
    from regard.nn.axial_attention import AxialAttention
    from regard.nn.batch_norm import BatchNorm2d
    from regard.nn.branch_attention import SelectiveKernel, SplitAttention
    from regard.nn.co_attention import CoAttended, CoAttention
    from regard.nn.compressed_attention import CompressedAttention
    from regard.nn.cross_covariance import XCA
    from regard.nn.deformable_attention import DeformableAttention, Deformed
    from regard.nn.delta_attention import DeltaNet, GatedDeltaNet, KimiDeltaAttention
    from regard.nn.depth_attention import DepthAttention
    from regard.nn.differential_attention import DifferentialAttention
    from regard.nn.dual_attention import ChannelAttention, DualAttention, PositionAttention
    from regard.nn.earlier_weights import EarlierWeights
    from regard.nn.feature_fusion import AFF, IAFF, MSCAM
    from regard.nn.feature_gates import CBAM, ECA, ChannelGate, CoordinateAttention, SpatialGate, SqueezeExcitation
    from regard.nn.forward_attention import ForwardAttention
    from regard.nn.gaussian_window import GaussianWindow, Windowed
    from regard.nn.indexed_attention import IndexedAttention
    from regard.nn.indexer import Indexer
    from regard.nn.key_value_memory_network import Hopped, KeyValueMemoryNetwork
    from regard.nn.key_values import KeyValueCache, KeyValues, SequenceCache
    from regard.nn.latent_attention import LatentAttention
    from regard.nn.layer_config import LayerConfig
    from regard.nn.linear_attention import GatedLinearAttention, LinearAttention, Retention
    from regard.nn.memory import Memory
    from regard.nn.monotonic_attention import MonotonicAttention, MonotonicMemory, Stopped
    from regard.nn.multihead import MultiHeadAttention, MultiheadAttention
    from regard.nn.native_sparse_attention import NativeSparseAttention
    from regard.nn.non_local import GlobalContext, NonLocal
    from regard.nn.packing import Packing
    from regard.nn.projected_attention import SelfAttention
    from regard.nn.recurrent_attention import LinearState
    from regard.nn.sequence_attention import SequenceAttention, SequenceOutput
    from regard.nn.set_attention import ISAB, MAB, PMA
    from regard.nn.slot_attention import SlotAttention, Slots
    from regard.nn.state_space import Mamba2
    from regard.nn.transformer import Transformer
    from regard.nn.transformer_decoder import TransformerDecoder
    from regard.nn.transformer_encoder import TransformerEncoder
    from regard.nn.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer

__all__ = [
    "AFF",
    "Attended",
    "Attention",
    "AttentionPooling",
    "AxialAttention",
    "BatchNorm2d",
    "CBAM",
    "ChannelAttention",
    "ChannelGate",
    "CoAttended",
    "CoAttention",
    "CompressedAttention",
    "CoordinateAttention",
    "DeformableAttention",
    "Deformed",
    "DepthAttention",
    "DifferentialAttention",
    "LinearAttention",
    "Retention",
    "GatedLinearAttention",
    "DeltaNet",
    "GatedDeltaNet",
    "KimiDeltaAttention",
    "Mamba2",
    "LinearState",
    "DualAttention",
    "ECA",
    "EarlierWeights",
    "ForwardAttention",
    "GaussianWindow",
    "GlobalContext",
    "Hopped",
    "IAFF",
    "ISAB",
    "IndexedAttention",
    "Indexer",
    "KeyValueCache",
    "KeyValueMemoryNetwork",
    "KeyValues",
    "LatentAttention",
    "LayerConfig",
    "MAB",
    "MSCAM",
    "Memory",
    "MonotonicAttention",
    "MonotonicMemory",
    "MultiHeadAttention",
    "MultiheadAttention",
    "NativeSparseAttention",
    "NonLocal",
    "PMA",
    "Packing",
    "Pooled",
    "PositionAttention",
    "SelectiveKernel",
    "SelfAttention",
    "SequenceAttention",
    "SequenceCache",
    "SequenceOutput",
    "SlotAttention",
    "Slots",
    "SpatialGate",
    "SplitAttention",
    "Stopped",
    "SqueezeExcitation",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "Windowed",
    "XCA",
]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
