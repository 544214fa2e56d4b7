"""The base class of translators, with a loss and a search."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.encoders import Encoded
from regard.models.search import Hypothesis, MinimumRisk, SearchableDecoder
from regard.models.text_predictor import Loss, TextPredictor, TranslatorOutput


class Translator(TextPredictor):
    """A model that predicts a target text, token by token, from a source text.

    Attributes:
        config: the configuration; besides what a `TextPredictor` needs, it has ``source_vocabulary``.
        max_length: tokens of the longest source and target that the model can read; None: no limit.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.RecurrentTranslator(models.TranslatorConfig(20, 30, hidden=8, embedding=8))
        >>> isinstance(model, models.Translator)
        True
        >>> found = model.translate(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2]), width=4, max_length=5)
        >>> len(found), found[1].weights.shape[1]  # a hypothesis for each source; the second one has two tokens
        (2, 2)
    """

    config: Any
    max_length: int | None = None

    @abstractmethod
    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        """Returns the annotations of ``source [batch, source]`` with ``lengths [batch]``."""

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target: Tensor,
        target_lengths: Tensor | None = None,
        *,
        sampling_probability: float = 0.0,
        need_weights: bool = True,
    ) -> TranslatorOutput:
        """Predicts each target token from the source and the target tokens before it.

        Args:
            source: ``int64 [batch, source]``.
            source_lengths: ``int64 [batch]``, tokens of each source.
            target, target_lengths, sampling_probability, need_weights: as for `decode`.
        """
        self.check_whole()
        encoded = self.encode(source, source_lengths)
        return self.decode(
            encoded, target, target_lengths, sampling_probability=sampling_probability, need_weights=need_weights
        )

    @torch.no_grad()
    def translate(
        self,
        source: Tensor,
        lengths: Tensor,
        *,
        width: int = 1,
        length_penalty: float = 1.0,
        risk: MinimumRisk | None = None,
        max_length: int | Sequence[int] = 100,
        decoder: SearchableDecoder | None = None,
    ) -> list[Hypothesis]:
        """Returns the best hypothesis of a search for each row; the module is in evaluation mode during the search.

        Args:
            source: ``int64 [batch, source]``.
            lengths: ``int64 [batch]``, tokens of each source.
            width, length_penalty, risk, max_length, decoder: as for `search`.
        """
        training = self.training
        self.eval()
        try:
            return self.search(
                self.encode(source, lengths), width=width, length_penalty=length_penalty, risk=risk,
                max_length=max_length, decoder=decoder,
            )  # fmt: skip
        finally:
            self.train(training)

    def loss(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target: Tensor,
        target_lengths: Tensor,
        *,
        label_smoothing: float = 0.1,
        sampling_probability: float = 0.0,
    ) -> Loss:
        """Computes the loss of a batch.

        Args:
            source, source_lengths, target, target_lengths, sampling_probability: as in `forward`.
            label_smoothing: ε in [0, 1].
        """
        options = {"sampling_probability": sampling_probability, "need_weights": False}
        predicted = self(source, source_lengths, target, target_lengths, **options)
        return self.loss_of(predicted, target, target_lengths, label_smoothing)


def output_matrix(embedding: nn.Embedding, tied: bool) -> nn.Linear:
    """Creates an output matrix over the tokens of an embedding; ``tied``: with the weight of the embedding."""
    output = nn.Linear(embedding.embedding_dim, embedding.num_embeddings)
    nn.init.zeros_(output.bias)
    if tied:
        output.weight = embedding.weight
    else:
        nn.init.normal_(output.weight, std=embedding.embedding_dim**-0.5)
    return output


def token_embedding(vocabulary: int, dim: int) -> nn.Embedding:
    """Creates an embedding, normal with standard deviation ``1 / √dim``, so that it can be an output matrix as well."""
    embedding = nn.Embedding(vocabulary, dim)
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    return embedding
