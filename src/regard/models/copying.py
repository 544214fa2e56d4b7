"""Copying of source words, by a gate that mixes the vocabulary's distribution with the attention weights, and coverage.

A source word out of the vocabulary has an id beyond it, which is valid for its own source only: the first such word of
a source has the id ``vocabulary``, the next one ``vocabulary + 1``. With the vocabulary these are the source's extended
vocabulary (See et al. 2017, section 2.2).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ArgumentError
from regard.models.chunked_loss import CHUNK_ELEMENTS, CountedRows, VocabularyLoss
from regard.nn.recomputation import recomputed
from regard.tracing.module_calls import Module


class CopyGate(Module):
    """The probability of generating a word from the vocabulary instead of copying one, as a logit.

    .. math::

        p_gen = σ(w_h · h_t^* + w_s · s_t + w_x · x_t + b)

    See et al. 2017, eq. 8: ``h_t^*`` is our context, ``s_t`` our readout (the input of the output matrix), ``x_t`` our
    embedded token.

    Args:
        input_dims: features of each input.

    Example:
        >>> import torch
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> gate = models.CopyGate(6, 8, 4)
        >>> context, readout, token = torch.rand(2, 6), torch.rand(2, 8), torch.rand(2, 4)
        >>> gate(context, readout, token).sigmoid().detach()  # the probability that each row generates its next word
        tensor([0.3569, 0.4805])
    """

    def __init__(self, *input_dims: int):
        super().__init__()
        self.linear = nn.Linear(sum(input_dims), 1)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Computes logits ``[...]``, at least float32, from inputs ``[..., input_dim]`` with equal leading axes."""
        logit = self.linear(torch.cat(inputs, dim=-1)).squeeze(-1)
        return logit if logit.dtype == torch.float64 else logit.float()


def copy_log_probabilities(logits: Tensor, gate: Tensor, weights: Tensor, source: Tensor, size: int) -> Tensor:
    """Computes the logarithm of the distribution over the extended vocabulary.

    .. math::

        P(w) = p_gen · P_vocabulary(w) + (1 − p_gen) · Σ_{i: source_i = w} weights_i

    See et al. 2017, eq. 9. A row whose weights are all 0 (an empty source) can copy nothing: its p_gen is 1.

    Args:
        logits: ``[..., vocabulary]``.
        gate: logit of p_gen, ``[...]``.
        weights: ``[..., source]``, each row with the sum 1 or 0; 0 for padding.
        source: ``int64 [..., source]``, ids of the extended vocabulary.
        size: entries of the extended vocabulary; at least ``vocabulary``.

    Returns:
        ``[..., size]``, at least float32; −∞ for an id that can be neither generated nor copied.

    Example:
        >>> import torch
        >>> from regard import models
        >>> source = torch.tensor([3, 1])  # the vocabulary has the ids 0 to 2
        >>> weights = torch.tensor([0.8, 0.2])
        >>> models.copy_log_probabilities(torch.zeros(3), torch.tensor(0.0), weights, source, size=4).exp()
        tensor([0.1667, 0.2667, 0.1667, 0.4000])
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    generated, copied = _gate_log_probabilities(gate, weights)
    vocabulary = logits.shape[-1]
    from_vocabulary = logits.log_softmax(-1) + generated[..., None]
    from_vocabulary = F.pad(from_vocabulary, (0, size - vocabulary), value=-torch.inf)
    mass = weights.new_zeros(*weights.shape[:-1], size).scatter_add(-1, source, weights)
    from_source = _log(mass) + copied[..., None]
    impossible = (from_vocabulary == -torch.inf) & (from_source == -torch.inf)
    # The derivative of logaddexp is not defined where both are −∞.
    return torch.logaddexp(from_vocabulary.masked_fill(impossible, 0), from_source).masked_fill(impossible, -torch.inf)


def copy_loss(
    features: Tensor,
    output: nn.Linear,
    gate: Tensor,
    weights: Tensor,
    source: Tensor,
    target: Tensor,
    *,
    label_smoothing: float = 0.0,
    ignore: int = -1,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> VocabularyLoss:
    """Computes the summed −log P(target) of `copy_log_probabilities`, without its matrix over the extended vocabulary.

    .. math::

        loss = Σ (1 − ε) · (−log P(target)) + ε / V · Σ_v (−log P_vocabulary(v))

    Args:
        features: ``[batch, steps, dim]``, the input of the output matrix.
        output: the output matrix, ``dim`` → logits over the vocabulary.
        gate: logit of p_gen, ``[batch, steps]``.
        weights: ``[batch, steps, source]``.
        source: ``int64 [batch, source]``, ids of the extended vocabulary.
        target: ``int64 [batch, steps]``, likewise.
        label_smoothing: ε in [0, 1]; it smooths the vocabulary's distribution.
        ignore: target of the tokens that are ignored (padding).
        chunk_elements: logits that are in memory at once; those of a larger batch are computed again in the backward
            pass.

    Returns:
        ``total`` and ``nll``: the sum over all tokens that count, and ``[batch, steps]``.

    Raises:
        ArgumentError: ``label_smoothing`` is outside [0, 1].

    Numerics: logits, logarithms and sums in float32 (or float64). A word out of the vocabulary whose weight is below
    the smallest positive number counts with that number, so that the loss is finite.

    Example:
        >>> import torch
        >>> from regard import models
        >>> output = torch.nn.Linear(2, 3, bias=False)
        >>> gate, weights = torch.zeros(1, 1), torch.tensor([[[0.8, 0.2]]])
        >>> source, target = torch.tensor([[3, 1]]), torch.tensor([[3]])
        >>> loss = models.copy_loss(torch.zeros(1, 1, 2), output, gate, weights, source, target)
        >>> loss.nll, (-loss.nll).exp()  # the word 3 is copied: (1 − 0.5) · 0.8
        (tensor([[0.9163]]), tensor([[0.4000]]))
    """
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"label_smoothing must be in [0, 1]; it is {label_smoothing}")
    rows = CountedRows.of(features.flatten(0, 1), target.flatten(), ignore)

    def selected(tensor: Tensor) -> Tensor:
        each = tensor.flatten(0, 1)
        return each if rows.selected is None else each[rows.selected]

    known = rows.labels < output.out_features
    chosen, mean = _vocabulary(rows.features, output, rows.labels.where(known, 0), chunk_elements)
    generated, copied = _gate_log_probabilities(selected(gate), selected(weights))
    mass = selected(_copy_mass(weights, source, target))
    from_source = torch.where(known, _log(mass), mass.clamp(min=torch.finfo(mass.dtype).tiny).log()) + copied
    from_vocabulary = (chosen + generated).masked_fill(~known, -torch.inf)
    nll = -torch.logaddexp(from_vocabulary, from_source)
    if rows.counts is not None:
        nll, mean = (each.masked_fill(~rows.counts, 0.0) for each in (nll, mean))
    total = nll.sum()
    if label_smoothing:
        total = (1 - label_smoothing) * total - label_smoothing * mean.sum()
    return VocabularyLoss(total, rows.spread(nll.detach()).view(target.shape))


def copy_share(logits: Tensor, gate: Tensor, weights: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Computes the share of P(target) that is copied, ``(1 − p_gen) Σ weights / P(target)``, ``[batch, steps]``, from
    ``logits [batch, steps, vocabulary]`` and the arguments of `copy_loss`."""
    known = target < logits.shape[-1]
    generated, copied = _gate_log_probabilities(gate, weights)
    chosen = logits.to(generated.dtype).log_softmax(-1).gather(-1, target.where(known, 0)[..., None]).squeeze(-1)
    from_vocabulary = (chosen + generated).masked_fill(~known, -torch.inf)
    from_source = _log(_copy_mass(weights, source, target)) + copied
    return torch.where(from_source == -torch.inf, 0, torch.sigmoid(from_source - from_vocabulary))


def _copy_mass(weights: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Returns the sum of the weights of the source positions that hold each target, ``[batch, steps]``."""
    return (weights * (target[:, :, None] == source[:, None, :])).sum(-1)


def _gate_log_probabilities(gate: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Computes ``log p_gen`` and ``log (1 − p_gen)``."""
    empty = weights.detach().sum(-1) == 0
    return F.logsigmoid(gate).masked_fill(empty, 0), F.logsigmoid(-gate).masked_fill(empty, -torch.inf)


def _log(mass: Tensor) -> Tensor:
    """Computes the logarithm; −∞ with gradient 0 for 0."""
    positive = mass > 0
    return mass.where(positive, 1).log().masked_fill(~positive, -torch.inf)


def _vocabulary(features: Tensor, output: nn.Linear, labels: Tensor, chunk_elements: int) -> tuple[Tensor, Tensor]:
    """Computes ``log P_vocabulary(label)`` of each row, and the mean of ``log P_vocabulary`` over the vocabulary."""
    rows = max(1, chunk_elements // output.out_features)
    if len(features) <= rows:
        return _chunk(features, output, labels)
    parts = [
        recomputed(_chunk)(part, output, chosen)
        for part, chosen in zip(features.split(rows), labels.split(rows), strict=True)
    ]
    chosen, mean = (torch.cat(column) for column in zip(*parts, strict=True))
    return chosen, mean


def _chunk(features: Tensor, output: nn.Linear, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Computes `_vocabulary` of rows whose logits fit into memory."""
    logits = output(features)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    log_sum = logits.logsumexp(-1)
    return logits.gather(-1, labels[:, None]).squeeze(-1) - log_sum, logits.mean(-1) - log_sum


def coverage_of(weights: Tensor) -> Tensor:
    """Computes the coverage before each step, ``c^t = Σ_{t' < t} a^{t'}`` (See et al. 2017, eq. 10), from
    ``weights [batch, steps, source]``; never negative."""
    return torch.cat([torch.zeros_like(weights[:, :1]), weights[:, :-1].cumsum(1)], dim=1)


def coverage_loss(weights: Tensor, is_token: Tensor) -> Tensor:
    """Computes the coverage loss ``Σ_t Σ_i min(a_i^t, c_i^t)`` of all target tokens (See et al. 2017, eq. 12).

    Args:
        weights: ``[batch, steps, source]``, not negative.
        is_token: bool ``[batch, steps]``: True for a target token.

    Returns:
        A scalar, summed over the tokens of the batch.

    Example:
        >>> import torch
        >>> from regard import models
        >>> weights = torch.tensor([[[0.8, 0.2], [0.5, 0.5]]])  # the second step sees the coverage [0.8, 0.2]
        >>> models.coverage_loss(weights, torch.tensor([[True, True]]))
        tensor(0.7000)
    """
    return (torch.minimum(weights, coverage_of(weights)).sum(-1) * is_token).sum()
