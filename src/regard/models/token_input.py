"""Tokens as vectors with positions: the input of a Transformer."""

import math
from typing import Any, TypeVar

from torch import Tensor, nn

from regard.errors import UnknownNameError
from regard.nn import TransformerDecoder, TransformerEncoder
from regard.nn.layer_config import LayerConfig
from regard.nn.named_positions import RELATIVE_POSITIONS, RelativePositionName
from regard.positions import Learned, Sinusoidal
from regard.tracing.module_calls import Module

StackT = TypeVar("StackT", TransformerEncoder, TransformerDecoder)

POSITIONS = ("sinusoidal", "learned", *RELATIVE_POSITIONS)
"""Positions of a Transformer: added to the input (the first two), or part of self-attention."""


class TokenInput(Module):
    """Embeds tokens, times ``√dim``, adds positions, and drops out (Vaswani et al. 2017, sections 3.4, 3.5 and 5.4).

    Without ``scaled`` an embedded token is its row of weights (Radford et al. 2019); with ``norm`` the sum is
    normalized (Devlin et al. 2019). Positions that belong to self-attention add nothing here; ``learned`` ones need
    ``max_length``.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        position: str,
        max_length: int,
        dropout: float,
        *,
        scaled: bool = True,
        norm: bool = False,
    ):
        super().__init__()
        if position not in POSITIONS:
            raise UnknownNameError("position", position, POSITIONS)
        dim = embedding.embedding_dim
        self.embedding = embedding
        self.scale = math.sqrt(dim) if scaled else 1.0
        self.position: Sinusoidal | Learned | None = None
        if position == "sinusoidal":
            self.position = Sinusoidal(dim)
        elif position == "learned":
            self.position = Learned(max_length, dim)
        self.norm = nn.LayerNorm(dim) if norm else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """Embeds ``int64 [batch, length]`` as ``[batch, length, dim]``; ``offset``: position of the first token."""
        embedded = self.embedding(tokens) * self.scale
        embedded = embedded if self.position is None else self.position(embedded, offset)
        return self.dropout(embedded if self.norm is None else self.norm(embedded))


def relative_position(position: str) -> RelativePositionName:
    """Returns the part of a name of `POSITIONS` that belongs to self-attention, for a `regard.nn.LayerConfig`."""
    for name in RELATIVE_POSITIONS:
        if name == position:
            return name
    return "none"


def layer_config(config: Any, **options: Any) -> LayerConfig:
    """Returns the configuration of the layers of a model's Transformer, with other fields of a `LayerConfig` in
    ``options``."""
    return LayerConfig(
        dim=config.hidden,
        heads=config.heads,
        feedforward=config.feedforward or 4 * config.hidden,
        dropout=config.dropout,
        activation=config.activation,
        norm_first=config.norm == "pre",
        kv_heads=config.kv_heads,
        attention=config.self_attention,
        position=relative_position(config.position),
        feedforward_chunk=config.feedforward_chunk,
        activation_checkpointing=config.activation_checkpointing,
        **options,
    )


def ended(stack: StackT, config: Any) -> StackT:
    """Returns a new stack that ends as its model's configuration says, a `regard.models.configs.TransformerOptions`.

    Vaswani et al. 2017 normalize after each part and not once more at the end, as pre-norm layers need it.
    """
    if not config.ends_normalized:
        stack.norm = None
    return stack
