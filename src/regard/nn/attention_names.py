"""The self-attention of a Transformer's layer by name; this file imports no PyTorch.

``multihead`` is `regard.nn.MultiheadAttention`. Every other name stands for a class of
`regard.nn.SequenceAttention`, and is one line in `CLASSES` and one in `AttentionName`.
"""

from typing import Literal

AttentionName = Literal["multihead", "differential", "latent", "gated", "qk_norm", "talking_heads"]
"""The names of self-attention."""

CLASSES: dict[str, str] = {
    "differential": "regard.nn.differential_attention:DifferentialAttention",
    "latent": "regard.nn.latent_attention:LatentAttention",
    "gated": "regard.nn.projected_attention:gated",
    "qk_norm": "regard.nn.projected_attention:qk_norm",
    "talking_heads": "regard.nn.projected_attention:talking",
}
"""Where the class of each name is, or a function that makes one; it is imported when it is first used."""
