"""A model that predicts a text, token by token, from annotations of any input: its loss and its search."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.models.chunked_loss import VocabularyLoss, output_loss
from regard.models.encoders import Encoded
from regard.models.hard_attention import Choices
from regard.models.recurrent_decoder import SearchStep
from regard.models.search import Hypothesis, MinimumRisk, SearchableDecoder, beam, greedy, minimum_risk
from regard.shapes.checks import Requested
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
class TranslatorOutput(NamedTuple):
    """The prediction of the tokens of known targets.

    Attributes:
        readout: ``[batch, target − 1, dim]``, the input of the output matrix.
        weights: ``[batch, target − 1, source]``; None without attention, or unless they were requested.
        choices: the choices of hard attention by REINFORCE in training, else None.
        output: the output matrix.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.RecurrentTranslator(models.TranslatorConfig(20, 30, hidden=8, embedding=8))
        >>> source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[1, 7, 8, 9, 2]])  # from bos to eos
        >>> output = model(source, torch.tensor([3]), target)
        >>> output.logits.shape, output.weights.shape  # four tokens are predicted
        (torch.Size([1, 4, 30]), torch.Size([1, 4, 3]))
    """

    readout: Tensor
    weights: Requested[Tensor]
    choices: Choices | None
    output: nn.Linear

    @property
    def logits(self) -> Tensor:
        """``[batch, target − 1, vocabulary]``, computed at each access: it is the largest tensor of the model."""
        return self.output(self.readout)


class DecodedRow(NamedTuple):
    """One step of a decoder: the input of the output matrix, ``[rows, dim]``, the state after the step, and the
    weights, ``[rows, source]``."""

    readout: Tensor
    state: Any
    weights: Tensor


@summarized
class Loss(NamedTuple):
    """The loss of a batch.

    Attributes:
        total: the training loss: mean over target tokens, with label smoothing, REINFORCE and other terms of a model;
            differentiable.
        nll: mean −log p(token) in nats, without smoothing or gradient; the perplexity is exp(nll).
        tokens: number of predicted tokens (int64 scalar, ``eos`` counted, ``bos`` and padding not).

    Example:
        >>> import torch
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> model = models.RecurrentTranslator(models.TranslatorConfig(20, 30, hidden=8, embedding=8))
        >>> source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[1, 7, 8, 9, 2]])  # from bos to eos
        >>> loss = model.loss(source, torch.tensor([3]), target, torch.tensor([5]))
        >>> loss.tokens, loss.nll.exp().round(decimals=-1)  # an untrained model guesses among 30 tokens
        (tensor(4), tensor(30.))
    """

    total: Tensor
    nll: Tensor
    tokens: Tensor


class TextPredictor(Module, ABC):
    """A decoder that predicts a target text from annotations.

    It has the methods ``start`` and ``step`` of a `regard.models.search.SearchableDecoder`.

    Attributes:
        config: the configuration; it has ``target_vocabulary``, ``pad``, ``bos`` and ``eos``.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.RecurrentTranslator(models.TranslatorConfig(20, 30, hidden=8, embedding=8)).eval()
        >>> isinstance(model, models.TextPredictor)
        True
        >>> encoded = model.encode(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2]))
        >>> found = model.search(encoded, width=2, max_length=[4, 3])
        >>> [len(best.tokens) <= longest for best, longest in zip(found, [4, 3])]
        [True, True]
    """

    config: Any

    @property
    @abstractmethod
    def attends(self) -> bool:
        """Whether the decoder has weights over the annotations."""

    @abstractmethod
    def start(self, encoded: Encoded) -> Any:
        """Returns the decoder's state before the first token: a `regard.models.search.SearchState`."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any) -> SearchStep:
        """Runs one search step: the last tokens ``[rows]`` → log-probabilities of the next token, state, weights."""

    def check_whole(self) -> None:
        """Raises ArgumentError before anything is encoded, if tensors are parts and the decoder needs whole targets."""

    def decode(
        self,
        encoded: Encoded,
        target: Tensor,
        target_lengths: Tensor | None = None,
        *,
        sampling_probability: float = 0.0,
        need_weights: bool = True,
    ) -> TranslatorOutput:
        """Predicts each token of known targets from the annotations and the tokens before it.

        Args:
            encoded: the annotations, one row for each target.
            target: ``int64 [batch, target]``, from ``bos`` to ``eos``; position t of the output predicts ``target[:, t
                + 1]``.
            target_lengths: ``int64 [batch]``, tokens of each target; None: all. No prediction depends on later tokens:
                with it padding may be left out.
            sampling_probability: probability that a step reads the predicted token, not the true one (Bengio et al.
                2015); in [0, 1]. A Transformer, which decodes all tokens at once, takes only 0.
            need_weights: whether the weights are requested; a decoder that computes them anyway always returns them.
        """
        # Not abstract: a subclass may define `forward` by itself, and `search` needs no `decode`.
        raise NotImplementedError(f"{type(self).__name__} defines no decode")

    def search(
        self,
        encoded: Encoded,
        *,
        width: int = 1,
        length_penalty: float = 1.0,
        risk: MinimumRisk | None = None,
        max_length: int | Sequence[int] = 100,
        forbidden: Sequence[int] = (),
        decoder: SearchableDecoder | None = None,
        n_best: int = 1,
        numbers: Sequence[int] | None = None,
    ) -> list[Hypothesis]:
        """Returns the best hypothesis of a search for each row of annotations; padding is never chosen.

        Args:
            encoded: the encoder's output for a batch.
            width: beam width; 1: greedy search.
            length_penalty: α of `regard.models.search.beam`; not used if ``width`` is 1.
            risk: chooses from samples instead of a beam: `regard.models.search.minimum_risk`.
            max_length: largest number of tokens, of all texts or of each.
            forbidden: other tokens that are never chosen.
            decoder: the decoder on which the search runs; None: the model itself.
            n_best: hypotheses of each row, at most as many as the search has; see `regard.models.search.beam`.
            numbers: of each row, which decides the draws of ``risk``.
        """
        decoder = self if decoder is None else decoder
        never = self.config.pad, *forbidden
        ids = {"bos": self.config.bos, "eos": self.config.eos, "forbidden": never, "max_length": max_length}
        if risk is not None:
            return minimum_risk(decoder, encoded, how=risk, n_best=n_best, numbers=numbers, **ids)
        if width == 1 and n_best == 1:
            return greedy(decoder, encoded, **ids)
        return beam(decoder, encoded, width=width, length_penalty=length_penalty, n_best=n_best, **ids)

    def loss_of(
        self, predicted: TranslatorOutput, target: Tensor, target_lengths: Tensor, label_smoothing: float = 0.0
    ) -> Loss:
        """Computes the loss of a prediction of known targets.

        Args:
            predicted: the prediction.
            target, target_lengths: as for `decode`; ``bos`` and ``eos`` count.
            label_smoothing: ε in [0, 1].
        """
        return self.loss_of_labels(predicted, *predicted_tokens(target, target_lengths), label_smoothing)

    def loss_of_labels(
        self, predicted: TranslatorOutput, labels: Tensor, is_token: Tensor, label_smoothing: float = 0.0
    ) -> Loss:
        """Computes the loss of predictions of known tokens; of a process's part, if the targets are sharded.

        It is a mean over the tokens of the part. Where parts are uneven, the loss of the whole is the mean of these
        means, each weighed by its tokens, as the training loop weighs them.

        Args:
            predicted: the prediction.
            labels: ``int64 [batch, length]``, the tokens that are predicted.
            is_token: bool ``[batch, length]``, False for padding.
            label_smoothing: ε in [0, 1].
        """
        tokens = is_token.sum()
        loss = self._cross_entropy(predicted, labels, is_token, label_smoothing)
        total = loss.total
        extra = self._extra_loss(predicted, loss.nll.view_as(labels), is_token)
        if extra is not None:
            total = total + extra
        count = tokens.clamp(min=1)
        return Loss(total / count, loss.nll.sum() / count, tokens)

    def _cross_entropy(
        self, predicted: TranslatorOutput, labels: Tensor, is_token: Tensor, label_smoothing: float
    ) -> VocabularyLoss:
        """Computes the summed cross-entropy of the labels ``[batch, target − 1]`` that are tokens."""
        labels = labels.masked_fill(~is_token, -1)
        return output_loss(predicted.readout, predicted.output, labels, label_smoothing=label_smoothing, ignore=-1)

    def _extra_loss(self, predicted: TranslatorOutput, nll: Tensor, is_token: Tensor) -> Tensor | None:
        """Computes a part of the loss besides the cross-entropy, summed over the target tokens, from −log p of each,
        ``[batch, target − 1]``; ``is_token`` is False for padding. None: there is none."""
        return None


def predicted_tokens(target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the tokens that are predicted, all but ``bos``, and bool ``[batch, target − 1]``, False for padding."""
    labels = target[:, 1:]
    return labels, torch.arange(labels.shape[1], device=labels.device) < (lengths - 1)[:, None]
