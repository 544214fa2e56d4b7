"""A language model: a decoder-only Transformer that predicts each token from those before it."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from regard import masks
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError
from regard.models.chunked_loss import output_loss
from regard.models.configs import LanguageModelConfig
from regard.models.token_input import TokenInput, ended, layer_config
from regard.nn import SequenceAttention, SequenceCache, TransformerEncoder, TransformerEncoderLayer
from regard.nn.transformer_stack import new_caches
from regard.positions import Learned
from regard.tracing.module_calls import Module

INITIAL_STD = 0.02
"""Standard deviation of the initial weights (Radford et al. 2018, section 4.1)."""


class LanguageLoss(NamedTuple):
    """The mean loss of the predicted tokens, with label smoothing, differentiable, and −log p of each,
    ``[batch, length]``, in nats, without smoothing or gradient."""

    total: Tensor
    nll: Tensor


class LanguageModel(Module):
    """A decoder-only Transformer (Radford et al. 2018, section 3.1).

    .. math::

        p(token_1, …, token_n) = Π_t p(token_t | token_1, …, token_{t−1})

    Weights begin as normal numbers with standard deviation 0.02, except those of a score, and biases as 0. Projections
    whose output is added to the residual stream have ``0.02 / √(2 · layers)`` (Radford et al. 2019, section 2.3).
    Sinusoidal positions are added to embeddings times ``√dim``, learned ones to the embeddings as they are; all others
    are part of self-attention.

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the vocabulary is missing.

    Example:
        >>> import torch
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=1))
        >>> tokens = torch.tensor([[3, 4, 5, 6]])
        >>> model(tokens).shape
        torch.Size([1, 4, 50])
        >>> model.loss(tokens).nll.mean().exp().round(decimals=-1)  # an untrained model guesses among 50 tokens
        tensor(50.)
        >>> model.attention_weights(tokens, layer=0)[0].tril().sum(-1)
        tensor([1.0000, 1.0000, 1.0000, 1.0000])
    """

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.config = config = config.complete()
        layer = layer_config(config, score=config.score, normalizer=config.normalizer)
        embedding = nn.Embedding(config.vocabulary, config.hidden)
        scaled = config.position == "sinusoidal"
        self.input = TokenInput(embedding, config.position, config.context, config.dropout, scaled=scaled)
        self.stack = ended(TransformerEncoder.create(config.layers, layer, bidirectional=False), config)
        self.output = nn.Linear(config.hidden, config.vocabulary, bias=False)
        self._initialize()
        if config.tied == "target":
            self.output.weight = embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Computes logits ``[batch, length, vocabulary]`` of the token after each of ``int64 [batch, length]``."""
        return self.output(self._features(tokens))

    def loss(self, tokens: Tensor, *, label_smoothing: float = 0.0) -> LanguageLoss:
        """Computes the loss of sequences of which every token but the first is predicted.

        Args:
            tokens: ``int64 [batch, length + 1]``.
            label_smoothing: ε in [0, 1].
        """
        refuse_parts("LanguageModel.loss")
        return self.loss_of(tokens[:, :-1], tokens[:, 1:], label_smoothing=label_smoothing)

    def loss_of(self, tokens: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> LanguageLoss:
        """Computes the loss of the tokens that follow others; of a process's part, if the sequences are sharded.

        It is a mean over the tokens of the part. Where parts are uneven, the loss of the whole is the mean of these
        means, each weighed by its tokens, as the training loop weighs them.

        Args:
            tokens: ``int64 [batch, length]``.
            labels: ``int64 [batch, length]``, the token after each of them.
            label_smoothing: ε in [0, 1].
        """
        loss = output_loss(self._features(tokens), self.output, labels, label_smoothing=label_smoothing)
        # A process may have no token.
        return LanguageLoss(loss.total / max(1, labels.numel()), loss.nll.view(labels.shape))

    def start(self) -> list[SequenceCache]:
        """Returns the caches before the first token."""
        return new_caches(self.stack)

    def step(self, tokens: Tensor, caches: Sequence[SequenceCache]) -> tuple[Tensor, list[SequenceCache]]:
        """Reads more tokens, and predicts the token after the last one.

        Args:
            tokens: ``int64 [batch, new]``, at least one; with the earlier ones at most ``context``.
            caches: the result of `start`, or that of `step` for the earlier tokens.

        Returns:
            Log-probabilities ``float32 [batch, vocabulary]``, and the caches with the new tokens.
        """
        rows, longer = self.stack.step(self.input(tokens, caches[0].length), caches)
        return torch.log_softmax(self.output(rows[:, -1]).float(), dim=-1), longer

    @torch.no_grad()
    def attention_weights(self, tokens: Tensor, layer: int) -> Tensor:
        """Computes the weights of self-attention in a layer, as the mean over its heads.

        Args:
            tokens: ``int64 [batch, length]``, at most ``context`` tokens.
            layer: number of the layer, from 0.

        Returns:
            ``[batch, length, length]``: row t has what token t attends to; later tokens have weight 0.
        """
        if not 0 <= layer < len(self._layers):
            raise ArgumentError(f"layer must be from 0 to {len(self._layers) - 1}; it is {layer}")
        rows = self.input(tokens)
        for below in self._layers[:layer]:
            rows = below(rows, mask=masks.causal())
        chosen = self._layers[layer]
        rows = chosen.norm1(rows) if chosen.norm_first else rows
        attention = chosen.self_attn
        if isinstance(attention, SequenceAttention):
            weights = attention(rows, mask=masks.causal(), need_weights=True).weights
            assert weights is not None
            return weights.mean(dim=1)
        weights = attention(rows, rows, rows, is_causal=True, need_weights=True)[1]
        assert weights is not None
        return weights

    @property
    def _layers(self) -> list[TransformerEncoderLayer]:
        return cast(list[TransformerEncoderLayer], list(self.stack.layers))

    def _features(self, tokens: Tensor) -> Tensor:
        return self.stack(self.input(tokens), mask=masks.causal())

    def _initialize(self) -> None:
        residual = INITIAL_STD / (2 * self.config.layers) ** 0.5
        nn.init.normal_(self.input.embedding.weight, std=INITIAL_STD)
        nn.init.normal_(self.output.weight, std=INITIAL_STD)
        if isinstance(self.input.position, Learned):
            nn.init.normal_(self.input.position.weight, std=INITIAL_STD)
        for layer in self._layers:
            attention = layer.self_attn
            if isinstance(attention, SequenceAttention):
                weights = attention.projection_weights()
            else:
                names = "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"
                weights = [weight for name in names if (weight := getattr(attention, name)) is not None]
            for weight in weights:
                nn.init.normal_(weight, std=INITIAL_STD)
            nn.init.normal_(layer.linear1.weight, std=INITIAL_STD)
            nn.init.normal_(attention.out_proj.weight, std=residual)
            nn.init.normal_(layer.linear2.weight, std=residual)
