"""The Transformer that translates in plain PyTorch: `torch.nn.Transformer`, embeddings, positions, cross-entropy.

It is what a user writes without regard: the same layers, parameters and losses, from modules and functions of PyTorch
alone. `PlainTransformer.like` copies the parameters of our model, so that the losses of both can be compared.
"""

import math
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.plain.parameters import with_parameters_of
from bench.plain.translator import SMOOTHING
from regard.data.text.batches import PairBatch
from regard.models import TransformerTranslator, TranslatorConfig


class PlainTransformer(nn.Module):
    """`torch.nn.Transformer` between embeddings with sinusoidal positions and an output matrix.

    Args:
        config: sizes and dropout of the model; tied target embedding.
    """

    positions: Tensor

    def __init__(self, config: TranslatorConfig):
        super().__init__()
        self.config = config
        D = config.hidden
        self.source_embedding = nn.Embedding(config.source_vocabulary, D)
        self.embedding = nn.Embedding(config.target_vocabulary, D)
        with warnings.catch_warnings():
            # Layers that normalize first have no path for nested tensors: PyTorch says so, and nothing else follows.
            warnings.filterwarnings("ignore", "enable_nested_tensor is True", UserWarning)
            self.transformer = nn.Transformer(
                D, config.heads, config.encoder_layers, config.decoder_layers, config.feedforward or 4 * D,
                config.dropout, config.activation, batch_first=True, norm_first=config.norm == "pre",
            )  # fmt: skip
        self.output = nn.Linear(D, config.target_vocabulary)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(config.dropout)
        angles = torch.arange(512)[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))

    @classmethod
    def like(cls, model: TransformerTranslator) -> "PlainTransformer":
        """A plain Transformer with the configuration and a copy of the parameters of ours."""
        names = {
            "source_embedding.weight": "source_input.embedding.weight",
            "embedding.weight": "target_input.embedding.weight",
        }
        return with_parameters_of(
            model, cls(model.config), lambda name: names.get(name, name.removeprefix("transformer."))
        )

    def loss(self, batch: PairBatch) -> Tensor:
        """The training loss of a batch: mean over target tokens, with label smoothing."""
        inputs, labels = batch.target[:, :-1], batch.target[:, 1:]
        source_padding = torch.arange(batch.source.shape[1]) >= batch.source_lengths[:, None]
        padding = torch.arange(labels.shape[1]) >= (batch.target_lengths - 1)[:, None]
        hidden = self.transformer(
            self.embedded(self.source_embedding, batch.source),
            self.embedded(self.embedding, inputs),
            tgt_mask=torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool).triu(1),
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=padding,
            memory_key_padding_mask=source_padding,
        )
        logits = self.output(hidden).flatten(0, 1)
        return F.cross_entropy(logits, labels.masked_fill(padding, -100).flatten(), label_smoothing=SMOOTHING)

    def embedded(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """Embedded tokens with positions."""
        return self.dropout(embedding(tokens) * math.sqrt(self.config.hidden) + self.positions[: tokens.shape[1]])
