"""The self-attention of a Transformer's layer by name; this file imports no PyTorch.

``multihead`` is `regard.nn.MultiheadAttention`. Every other name stands for a class of
`regard.nn.SequenceAttention`, and is one line in `CLASSES` and one in `AttentionName`.
"""

from typing import Literal

AttentionName = Literal["multihead", "differential", "linear", "retention", "gated_linear", "delta", "gated_delta"]
"""The names of self-attention."""

CLASSES: dict[str, str] = {
    "differential": "regard.nn.differential_attention:DifferentialAttention",
    "linear": "regard.nn.linear_attention:LinearAttention",
    "retention": "regard.nn.linear_attention:Retention",
    "gated_linear": "regard.nn.linear_attention:GatedLinearAttention",
    "delta": "regard.nn.linear_attention:DeltaNet",
    "gated_delta": "regard.nn.linear_attention:GatedDeltaNet",
}
"""Where the class of each name is, which is imported when it is first used."""
