"""The self-attention of a Transformer's layer by name; this file imports no PyTorch.

``multihead`` is `regard.nn.MultiheadAttention`. Every other name stands for a class of
`regard.nn.SequenceAttention`, and is one line in `CLASSES` and one in `AttentionName`.
"""

from typing import Literal

AttentionName = Literal[
    "multihead",
    "differential",
    "latent",
    "gated",
    "qk_norm",
    "talking_heads",
    "linear",
    "retention",
    "gated_linear",
    "delta",
    "gated_delta",
    "native_sparse",
]
"""The names of self-attention."""

CLASSES: dict[str, str] = {
    "differential": "regard.nn.differential_attention:DifferentialAttention",
    "latent": "regard.nn.latent_attention:LatentAttention",
    "gated": "regard.nn.projected_attention:gated",
    "qk_norm": "regard.nn.projected_attention:qk_norm",
    "talking_heads": "regard.nn.projected_attention:talking",
    "linear": "regard.nn.linear_attention:LinearAttention",
    "retention": "regard.nn.linear_attention:Retention",
    "gated_linear": "regard.nn.linear_attention:GatedLinearAttention",
    "delta": "regard.nn.linear_attention:DeltaNet",
    "gated_delta": "regard.nn.linear_attention:GatedDeltaNet",
    "native_sparse": "regard.nn.native_sparse_attention:NativeSparseAttention",
}
"""Where the class of each name is, or a function that makes one; it is imported when it is first used."""
