"""A text classifier: an encoder makes annotations of the tokens, pooling makes one vector, a linear layer the label."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard import masks
from regard.distributed.sequence_parts import refuse_parts
from regard.masks import Mask
from regard.models.configs import TextClassifierConfig
from regard.models.encoders import RecurrentEncoder
from regard.models.hierarchical_encoder import HierarchicalEncoder
from regard.models.token_input import TokenInput, ended, layer_config
from regard.models.translator import token_embedding
from regard.nn import AttentionPooling, TransformerEncoder
from regard.shapes.checks import Requested
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
class Classified(NamedTuple):
    """The output of a `TextClassifier`.

    Attributes:
        logits: ``[batch, labels]``, float32 or float64.
        weights: weights of the attention pooling ``[batch, heads, length]``; None unless they were requested, and
            for other poolings.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.TextClassifier(models.TextClassifierConfig(100, labels=4, hidden=8, pooling_heads=2))
        >>> logits, weights = model(torch.randint(100, (3, 5)), torch.tensor([5, 2, 4]), need_weights=True)
        >>> logits.shape, weights.shape
        (torch.Size([3, 4]), torch.Size([3, 2, 5]))
    """

    logits: Tensor
    weights: Requested[Tensor]


class TextClassifier(Module):
    """Predicts the label of a text.

    .. math::

        annotations = encoder(tokens)
        logits = W pool(annotations) + b

    With a recurrent encoder and attention pooling it is the word level of Yang et al. 2016, section 2.2; with
    ``architecture="hierarchical"`` it has their sentence level as well, by a `HierarchicalEncoder`, and the weights are
    those of each token in the whole text. With a ``window`` each token of a Transformer sees the tokens around it and
    the first ones of the text (``masks.window(w, w) | masks.prefix(g)``; Beltagy et al. 2020, section 3.1), in memory
    linear in the length. Pooling ``cls`` is that of Devlin et al. 2019: the text begins with a class token, whose id is
    the size of the vocabulary, and ``pool`` is a linear layer with tanh of its annotation.

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the vocabulary or the number of labels is missing.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.TextClassifier(models.TextClassifierConfig(100, labels=2, embedding=8, hidden=8)).eval()
        >>> tokens, lengths = torch.randint(100, (3, 5)), torch.tensor([5, 2, 4])
        >>> result = model(tokens, lengths, need_weights=True)
        >>> result.logits.shape, result.weights.shape
        (torch.Size([3, 2]), torch.Size([3, 1, 5]))
        >>> result.weights[1, 0] > 0  # the second text has two tokens
        tensor([ True,  True, False, False, False])
    """

    def __init__(self, config: TextClassifierConfig):
        super().__init__()
        self.config = config = config.complete()
        transformer = config.architecture == "transformer"
        vocabulary, positions = config.vocabulary + config.leading, config.max_length + config.leading
        embedding = token_embedding(vocabulary, config.hidden if transformer else config.embedding)
        self.input: nn.Embedding | TokenInput | None = None
        self.encoder: RecurrentEncoder | TransformerEncoder | HierarchicalEncoder | None = None
        if config.architecture == "none":
            self.input = embedding
        elif config.architecture == "hierarchical":
            options = config.layers, config.score, config.normalizer, config.dropout, config.longest_sentence
            self.encoder = HierarchicalEncoder(embedding, config.hidden, config.ends, *options)
        elif transformer:
            self.input = TokenInput(embedding, config.position, positions, config.dropout, norm=config.embedding_norm)
            self.encoder = ended(TransformerEncoder.create(config.layers, layer_config(config)), config)
        else:
            sizes = config.hidden, config.layers, config.architecture, config.dropout
            self.encoder = RecurrentEncoder(embedding, *sizes)
        dim = config.annotation_dim
        self.pooling: AttentionPooling | None = None
        if config.pooling == "attention" and not isinstance(self.encoder, HierarchicalEncoder):
            self.pooling = AttentionPooling(dim, config.pooling_heads, score=config.score, normalizer=config.normalizer)
            dim *= config.pooling_heads
        self.pooler = nn.Linear(dim, dim) if config.pooling == "cls" else None
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(dim, config.labels)
        nn.init.normal_(self.output.weight, std=1 / math.sqrt(dim))
        nn.init.zeros_(self.output.bias)

    @property
    def attends(self) -> bool:
        """Whether there are attention weights to read."""
        return self.pooling is not None or isinstance(self.encoder, HierarchicalEncoder)

    def forward(self, tokens: Tensor, lengths: Tensor, *, need_weights: bool = False) -> Classified:
        """Classifies a batch of texts.

        Args:
            tokens: ``int64 [batch, length]``, the values of padding tokens do not matter.
            lengths: ``int64 [batch]``, tokens of each text; a text of none gives the same logits as any other such.
            need_weights: whether to give the weights; the logits are the same, bit for bit.
        """
        refuse_parts(type(self).__name__)
        if self.training and self.config.word_dropout:
            dropped = torch.rand(tokens.shape, device=tokens.device) < self.config.word_dropout
            tokens = tokens.masked_fill(dropped, self.config.unknown)
        if isinstance(self.encoder, HierarchicalEncoder):
            return self._classified(*self.encoder(tokens, lengths, need_weights=need_weights))
        annotations = self.annotations(tokens, lengths)
        weights = None
        if self.pooler is not None:
            pooled = torch.tanh(self.pooler(annotations[:, 0]))
        elif self.pooling is not None:
            pooled, weights = self.pooling(annotations, lengths, need_weights=need_weights)
        else:
            pooled = pool(annotations, lengths, self.config.pooling)
        return self._classified(pooled, weights)

    def _classified(self, pooled: Tensor, weights: Tensor | None) -> Classified:
        logits = self.output(self.dropout(pooled))
        return Classified(logits if logits.dtype == torch.float64 else logits.float(), weights)

    def annotations(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Returns the annotation of each token, ``[batch, leading + length, annotation_dim]``."""
        if self.config.leading:
            tokens = torch.cat((tokens.new_full((tokens.shape[0], 1), self.config.vocabulary), tokens), 1)
            lengths = lengths + 1
        if not tokens.shape[1]:  # a recurrent kernel needs a step
            return self.output.weight.new_zeros(*tokens.shape, self.config.annotation_dim)
        if isinstance(self.encoder, RecurrentEncoder):
            return self.encoder(tokens, lengths).annotations
        assert self.input is not None
        assert not isinstance(self.encoder, HierarchicalEncoder)
        embedded = self.input(tokens)
        if self.encoder is None:
            return self.dropout(embedded)
        return self.encoder(embedded, lengths=lengths, mask=self.mask)

    @property
    def mask(self) -> Mask | None:
        """Which tokens each token of a Transformer sees; None: all."""
        config = self.config
        if not config.window:
            return None
        around = masks.window(config.window, config.window)
        return around | masks.prefix(config.global_tokens) if config.global_tokens else around


def pool(annotations: Tensor, lengths: Tensor, kind: str) -> Tensor:
    """Computes the ``mean`` or ``max`` over the annotations ``[batch, length, dim]`` of each sequence; 0 for a sequence
    of none."""
    present = torch.arange(annotations.shape[1], device=lengths.device) < lengths[:, None]
    if kind == "mean":
        total = annotations.masked_fill(~present[..., None], 0).sum(1)
        return total / lengths.clamp(min=1)[:, None]
    if not annotations.shape[1]:
        return annotations.sum(1)
    highest = annotations.masked_fill(~present[..., None], -math.inf).amax(1)
    return highest.masked_fill((lengths == 0)[:, None], 0)
