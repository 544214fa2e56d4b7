"""The base class of translators: a loss, a search, and the parts of both that each translator fills in."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.models.encoders import Encoded
from regard.models.search import Hypothesis, MinimumRisk, SearchableDecoder
from regard.models.text_predictor import Loss, TextPredictor, TranslatorOutput


class DecodedRow(NamedTuple):
    """One step of a decoder, before the output matrix.

    Attributes:
        readout: ``[rows, dim]``, the input of the output matrix.
        state: the state after the step.
        weights: ``[rows, source]``.
    """

    readout: Tensor
    state: Any
    weights: Tensor


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
        """Annotations of ``source [batch, source]`` with ``lengths [batch]``."""

    @abstractmethod
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
        """Predict each target token from the source and the target tokens before it.

        Args:
            source: ``int64 [batch, source]``.
            source_lengths: ``int64 [batch]``, tokens of each source.
            target: ``int64 [batch, target]``, from ``bos`` to ``eos``; position t of the output predicts ``target[:, t
                + 1]``.
            target_lengths: ``int64 [batch]``, tokens of each target; None: all. No prediction depends on later tokens:
                with it padding may be left out.
            sampling_probability: probability that a step reads the predicted token, not the true one (Bengio et al.
                2015); in [0, 1].
            need_weights: whether the weights are requested; a decoder that computes them anyway always returns them.
        """

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
        """The best hypothesis of a search for each row; the module is in evaluation mode during the search.

        Args:
            source: ``int64 [batch, source]``.
            lengths: ``int64 [batch]``, tokens of each source.
            width: beam width; 1: greedy search.
            length_penalty: α of `regard.models.search.beam`; not used if ``width`` is 1.
            risk: choose from samples, instead of a beam: `regard.models.search.minimum_risk`.
            max_length: largest number of tokens of a translation, of all or of each.
            decoder: what the search asks for the next token; None: the model itself.
        """
        training = self.training
        self.eval()
        try:
            return self.search(
                self.encode(source, lengths),
                width=width,
                length_penalty=length_penalty,
                risk=risk,
                max_length=max_length,
                decoder=decoder,
            )
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
        """The loss of a batch; arguments as in `forward`.

        Args:
            source: ``int64 [batch, source]``.
            source_lengths: ``int64 [batch]``.
            target: ``int64 [batch, target]``.
            target_lengths: ``int64 [batch]``, tokens of each target, ``bos`` and ``eos`` included.
            label_smoothing: ε in [0, 1].
            sampling_probability: in [0, 1].
        """
        predicted = self(
            source,
            source_lengths,
            target,
            target_lengths,
            sampling_probability=sampling_probability,
            need_weights=False,
        )
        return self.loss_of(predicted, target, target_lengths, label_smoothing)


def output_matrix(embedding: nn.Embedding, tied: bool) -> nn.Linear:
    """A new output matrix over the tokens of an embedding.

    Args:
        embedding: target tokens → ``[..., dim]``.
        tied: whether its weight is that of the embedding.
    """
    output = nn.Linear(embedding.embedding_dim, embedding.num_embeddings)
    nn.init.zeros_(output.bias)
    if tied:
        output.weight = embedding.weight
    else:
        nn.init.normal_(output.weight, std=embedding.embedding_dim**-0.5)
    return output


def token_embedding(vocabulary: int, dim: int) -> nn.Embedding:
    """A new embedding, normal with standard deviation ``1 / √dim``, so that it can be an output matrix as well."""
    embedding = nn.Embedding(vocabulary, dim)
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    return embedding
