"""The self-attention of a Transformer's layer by name, and the options that each lacks; this file imports no PyTorch.

``multihead`` is `regard.nn.MultiheadAttention`. Every other name stands for a class of
`regard.nn.SequenceAttention`, and is one line in `CLASSES` and one in `AttentionName`.
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

from regard.errors import ArgumentError

AttentionName = Literal[
    "multihead",
    "differential",
    "latent",
    "indexed",
    "compressed",
    "gated",
    "qk_norm",
    "talking_heads",
    "forgetting",
    "linear",
    "retention",
    "gated_linear",
    "delta",
    "gated_delta",
    "kimi_delta",
    "mamba2",
    "native_sparse",
]
"""The names of self-attention."""


class AttentionClass(NamedTuple):
    """A class of self-attention: its path, or a function that makes one (imported at the first use); which options of
    `USUAL_VALUES` it lacks; and whether a token never sees later ones, whatever the mask."""

    path: str
    lacks: tuple[str, ...] = ("score",)
    is_causal: bool = False


RECURRENT_LACKS = ("score", "normalizer", "kv_heads", "position")
CLASSES: dict[str, AttentionClass] = {
    "differential": AttentionClass("regard.nn.differential_attention:DifferentialAttention"),
    "latent": AttentionClass("regard.nn.latent_attention:LatentAttention", ("score", "kv_heads")),
    "indexed": AttentionClass("regard.nn.indexed_attention:IndexedAttention", ("score", "kv_heads")),
    "compressed": AttentionClass(
        "regard.nn.compressed_attention:CompressedAttention", ("score", "normalizer", "kv_heads", "position"), True
    ),
    "gated": AttentionClass("regard.nn.projected_attention:gated", ()),
    "qk_norm": AttentionClass("regard.nn.projected_attention:qk_norm", ()),
    "talking_heads": AttentionClass("regard.nn.projected_attention:talking_heads", ()),
    "forgetting": AttentionClass("regard.nn.projected_attention:forgetting", (), is_causal=True),
    "linear": AttentionClass("regard.nn.linear_attention:LinearAttention", RECURRENT_LACKS),
    "retention": AttentionClass("regard.nn.linear_attention:Retention", RECURRENT_LACKS),
    "gated_linear": AttentionClass("regard.nn.linear_attention:GatedLinearAttention", RECURRENT_LACKS),
    "delta": AttentionClass("regard.nn.delta_attention:DeltaNet", RECURRENT_LACKS, is_causal=True),
    "gated_delta": AttentionClass("regard.nn.delta_attention:GatedDeltaNet", RECURRENT_LACKS, is_causal=True),
    "kimi_delta": AttentionClass("regard.nn.delta_attention:KimiDeltaAttention", RECURRENT_LACKS, is_causal=True),
    "mamba2": AttentionClass("regard.nn.state_space:Mamba2", RECURRENT_LACKS, is_causal=True),
    "native_sparse": AttentionClass("regard.nn.native_sparse_attention:NativeSparseAttention"),
}
"""Every name but ``multihead``."""

USUAL_VALUES: dict[str, tuple[object, ...]] = {
    "score": ("scaled_dot",),
    "normalizer": ("softmax",),
    "kv_heads": (None,),
    "position": (None, "none"),
    "backend": ("auto",),
}
"""The values of a layer's options that every self-attention accepts, even one without these options."""


def check_options(owner: str, lacks: Collection[str], options: Mapping[str, Any]) -> None:
    """Raises ArgumentError if an option that an attention lacks has another value than the usual one."""
    for name, usual in USUAL_VALUES.items():
        if name in lacks and options.get(name, usual[0]) not in usual:
            raise ArgumentError(f"{name} is not an option of {owner}; leave it out: {name}={usual[-1]!r}")


def check_direction(owner: str, is_causal: bool, bidirectional: bool) -> None:
    """Raises ArgumentError if tokens must see later ones, which this attention never does."""
    if is_causal and bidirectional:
        raise ArgumentError(
            f"in {owner} no token sees a later one, so that it cannot read in both directions: it "
            "is for decoders, and for layers with bidirectional=False"
        )
