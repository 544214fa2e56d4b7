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
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "regard.attention": ["Attended"],
            "regard.nn.attention": ["Attention"],
            "regard.nn.attention_pooling": ["AttentionPooling", "Pooled"],
            "regard.nn.axial_attention": ["AxialAttention"],
            "regard.nn.batch_norm": ["BatchNorm2d"],
            "regard.nn.branch_attention": ["SelectiveKernel", "SplitAttention"],
            "regard.nn.co_attention": ["CoAttended", "CoAttention"],
            "regard.nn.compressed_attention": ["CompressedAttention"],
            "regard.nn.cross_covariance": ["XCA"],
            "regard.nn.deformable_attention": ["DeformableAttention", "Deformed"],
            "regard.nn.delta_attention": ["DeltaNet", "GatedDeltaNet", "KimiDeltaAttention"],
            "regard.nn.depth_attention": ["DepthAttention"],
            "regard.nn.differential_attention": ["DifferentialAttention"],
            "regard.nn.dual_attention": ["ChannelAttention", "DualAttention", "PositionAttention"],
            "regard.nn.earlier_weights": ["EarlierWeights"],
            "regard.nn.feature_fusion": ["AFF", "IAFF", "MSCAM"],
            "regard.nn.feature_gates": [
                "CBAM",
                "ChannelGate",
                "CoordinateAttention",
                "ECA",
                "SpatialGate",
                "SqueezeExcitation",
            ],
            "regard.nn.forward_attention": ["ForwardAttention"],
            "regard.nn.gaussian_window": ["GaussianWindow", "Windowed"],
            "regard.nn.key_value_memory_network": ["Hopped", "KeyValueMemoryNetwork"],
            "regard.nn.key_values": ["KeyValueCache", "KeyValues", "SequenceCache"],
            "regard.nn.indexed_attention": ["IndexedAttention"],
            "regard.nn.indexer": ["Indexer"],
            "regard.nn.latent_attention": ["LatentAttention"],
            "regard.nn.layer_config": ["LayerConfig"],
            "regard.nn.linear_attention": ["GatedLinearAttention", "LinearAttention", "Retention"],
            "regard.nn.memory": ["Memory"],
            "regard.nn.monotonic_attention": ["MonotonicAttention", "MonotonicMemory", "Stopped"],
            "regard.nn.multihead": ["MultiHeadAttention", "MultiheadAttention"],
            "regard.nn.native_sparse_attention": ["NativeSparseAttention"],
            "regard.nn.non_local": ["GlobalContext", "NonLocal"],
            "regard.nn.packing": ["Packing"],
            "regard.nn.projected_attention": ["SelfAttention"],
            "regard.nn.recurrent_attention": ["LinearState"],
            "regard.nn.sequence_attention": ["SequenceAttention", "SequenceOutput"],
            "regard.nn.set_attention": ["ISAB", "MAB", "PMA"],
            "regard.nn.slot_attention": ["SlotAttention", "Slots"],
            "regard.nn.state_space": ["Mamba2"],
            "regard.nn.transformer": ["Transformer"],
            "regard.nn.transformer_decoder": ["TransformerDecoder"],
            "regard.nn.transformer_encoder": ["TransformerEncoder"],
            "regard.nn.transformer_layers": ["TransformerDecoderLayer", "TransformerEncoderLayer"],
        },
    )
