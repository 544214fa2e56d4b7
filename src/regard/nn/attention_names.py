"""The self-attention of a Transformer's layer by name; this file imports no PyTorch.

``multihead`` is `regard.nn.MultiheadAttention`. Every other name stands for a class of
`regard.nn.SequenceAttention`, and is one line in `CLASSES` and one in `AttentionName`.
"""

from typing import Literal

AttentionName = Literal["multihead", "differential"]
"""The names of self-attention."""

CLASSES: dict[str, str] = {
    "differential": "regard.nn.differential_attention:DifferentialAttention",
}
"""Where the class of each name is, which is imported when it is first used."""
