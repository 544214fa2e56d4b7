"""Cross-entropy over a vocabulary, from the features before the output matrix, without storing all logits.

For 2,000 tokens and 8,000 words the logits take 64 MB. Autograd would store them, their log-softmax and its gradient;
moving these through memory takes longer than the matrix products. Here the rows are processed in chunks: the logits,
the loss and the gradients of a chunk are computed in the forward pass, while the logits are in the cache.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.errors import ArgumentError, ShapeError
from regard.tracing.module_calls import is_observed, runs
from regard.tracing.transforms import is_on_host

CHUNK_ELEMENTS = 1 << 22
"""Logits of a chunk: 16 MB in float32. Measured on a CPU with 8,000 words; with fewer rows the products are slower."""

LINEAR_FORWARD = nn.Linear.forward


class VocabularyLoss(NamedTuple):
    """The sum of the smoothed losses of tokens, in nats, differentiable, and −log p(target) of each, without smoothing
    or gradient, 0 for ignored ones."""

    total: Tensor
    nll: Tensor


def vocabulary_loss(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    label_smoothing: float = 0.0,
    ignore: int | None = None,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> VocabularyLoss:
    """Computes the summed cross-entropy of ``softmax(features · weightᵀ + bias)``, with memory linear in the rows.

    .. math::

        loss = Σ_rows (1 − ε) · (−log p[target]) + ε / V · Σ_v (−log p[v])

    Equal to ``torch.nn.functional.cross_entropy(..., reduction="sum")``; label smoothing as in Szegedy et al. 2016, §7.

    Args:
        features: ``[rows, dim]``.
        weight: ``[vocabulary, dim]``.
        bias: ``[vocabulary]`` or None.
        target: ``int64 [rows]``.
        label_smoothing: ε in [0, 1].
        ignore: target of the rows that are ignored (padding); None: no row is ignored.
        chunk_elements: logits of a chunk.

    Returns:
        ``total``, a scalar, and ``nll [rows]``.

    Raises:
        ArgumentError: ``label_smoothing`` is outside [0, 1].
        ShapeError: the shapes are others than these.

    Numerics: products in autocast's dtype if autocast is on; log-probabilities, losses and their sum in float32 (or
    float64). The gradient is computed in the forward pass, so there is no second derivative.

    Example:
        >>> import torch
        >>> from regard import models
        >>> features, target = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
        >>> loss = models.vocabulary_loss(features, torch.eye(2), None, target)
        >>> loss.total, loss.nll
        (tensor(0.4402), tensor([0.1269, 0.3133]))
        >>> torch.nn.functional.cross_entropy(features, target, reduction="sum")
        tensor(0.4402)
    """
    _check_smoothing(label_smoothing)
    expected = {"weight": (len(weight), features.shape[-1]), "target": (len(features),), "bias": (len(weight),)}
    for name, tensor in (("weight", weight), ("target", target), ("bias", bias)):
        if tensor is not None and tensor.shape != expected[name]:
            raise ShapeError(f"{name} must be {list(expected[name])}; it is {list(tensor.shape)}")
    rows = CountedRows.of(features, target, ignore)
    chunk = max(1, chunk_elements // len(weight))
    total, nll = _ChunkedLoss.apply(
        rows.features, weight, bias, rows.labels, rows.counts, label_smoothing, chunk, torch.is_grad_enabled()
    )
    return VocabularyLoss(total, rows.spread(nll))


def output_loss(
    features: Tensor, output: nn.Module, target: Tensor, *, label_smoothing: float = 0.0, ignore: int | None = None
) -> VocabularyLoss:
    """Computes `vocabulary_loss` for features ``[..., dim]`` and an output matrix that is a module.

    A module whose call can be seen or changed (by hooks, a wrapper, another class than `nn.Linear`) is called with the
    rows that count, and its logits stay in memory for the backward pass. A hook that changes nothing changes no bit of
    the loss: an `nn.Linear` is then called once for each chunk.
    """
    rows, labels = features.flatten(0, -2), target.flatten()
    if isinstance(output, nn.Linear) and runs(output, LINEAR_FORWARD):
        if not is_observed(output):
            options = {"label_smoothing": label_smoothing, "ignore": ignore}
            return vocabulary_loss(rows, output.weight, output.bias, labels, **options)
        chunk = max(1, CHUNK_ELEMENTS // output.out_features)
    else:
        chunk = max(1, len(rows))
    _check_smoothing(label_smoothing)
    counted = CountedRows.of(rows, labels, ignore)
    parts = [each.split(chunk) for each in (counted.features, counted.labels)]
    counts = [None] * len(parts[0]) if counted.counts is None else counted.counts.split(chunk)
    losses = [
        _loss_of_logits(output(part), target, label_smoothing, which)
        for part, target, which in zip(*parts, counts, strict=True)
    ]
    total = sum((loss.total for loss in losses[1:]), losses[0].total)
    return VocabularyLoss(total, counted.spread(torch.cat([loss.nll for loss in losses]).detach()))


class CountedRows(NamedTuple):
    """The ``features [rows, dim]`` and labels of a loss that count: selected where the host knows them (``selected``
    are their numbers among all rows), else all rows, with a mask ``counts``, and features of 0 in the others.

    A selection would make the host wait for an accelerator, which knows how many there are. ``number`` counts all rows.
    """

    features: Tensor
    labels: Tensor
    counts: Tensor | None
    selected: Tensor | None
    number: int

    @classmethod
    def of(cls, features: Tensor, target: Tensor, ignore: int | None) -> "CountedRows":
        """Returns the rows whose target is another than ``ignore``; None: all."""
        if ignore is None:
            return cls(features, target, None, None, len(target))
        counts = target != ignore
        if is_on_host(target):
            selected = counts.nonzero().squeeze(1)
            return cls(features[selected], target[selected], None, selected, len(target))
        return cls(
            features.masked_fill(~counts[:, None], 0.0), target.masked_fill(~counts, 0), counts, None, len(target)
        )

    def spread(self, nll: Tensor) -> Tensor:
        """Returns the losses of all rows from those of these rows; the others are 0."""
        return nll if self.selected is None else nll.new_zeros(self.number).index_copy(0, self.selected, nll)


def _check_smoothing(label_smoothing: float) -> None:
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"label_smoothing must be in [0, 1]; it is {label_smoothing}")


class _LogitsLoss(NamedTuple):
    """The loss of a chunk: the sum of the smoothed losses, −log p(target) ``[rows]``, and log p
    ``[rows, vocabulary]``."""

    total: Tensor
    nll: Tensor
    log_probabilities: Tensor


def _loss_of_logits(logits: Tensor, target: Tensor, smoothing: float, counts: Tensor | None) -> _LogitsLoss:
    """Computes the loss of a chunk; ``counts`` None: all rows count."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    log_probabilities = logits.log_softmax(1)
    nll = -log_probabilities.gather(1, target[:, None]).squeeze(1)
    if counts is not None:
        nll = nll.masked_fill(~counts, 0.0)
    total = (1 - smoothing) * nll.sum()
    if smoothing:
        rows = log_probabilities.sum() if counts is None else log_probabilities.sum(1).masked_fill(~counts, 0.0).sum()
        total = total - smoothing / logits.shape[1] * rows
    return _LogitsLoss(total, nll, log_probabilities)


class _ChunkedLoss(torch.autograd.Function):
    """The total and the losses of all rows; the gradients of features, weight and bias are saved."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        counts: Tensor | None,
        smoothing: float,
        chunk: int,
        differentiable: bool,
    ) -> tuple[Tensor, Tensor]:
        device = features.device.type
        dtype = features.dtype
        if torch.is_autocast_enabled(device) and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(device)
        exact = torch.promote_types(dtype, torch.float32)
        matrix, offset = weight.to(dtype), None if bias is None else bias.to(dtype)
        needs = [differentiable and needed for needed in ctx.needs_input_grad[:3]]
        grad_features = torch.empty_like(features, dtype=dtype) if needs[0] else None
        grad_weight = torch.zeros_like(weight, dtype=exact) if needs[1] else None
        grad_bias = weight.new_zeros(len(weight), dtype=exact) if needs[2] else None
        total, losses = features.new_zeros((), dtype=exact), []
        with torch.autocast(device, enabled=False):
            for start in range(0, max(1, len(features)), chunk):
                part = slice(start, start + chunk)
                inputs, labels = features[part].to(dtype), target[part]
                which = None if counts is None else counts[part]
                loss = _loss_of_logits(F.linear(inputs, matrix, offset), labels, smoothing, which)
                total += loss.total
                losses.append(loss.nll)
                if not any(needs):
                    continue
                # The gradient of the logits: p − (1 − ε) [target] − ε / V.
                grad = loss.log_probabilities.exp_().scatter_add_(
                    1, labels[:, None], torch.full_like(loss.nll, smoothing - 1)[:, None]
                )
                if smoothing:
                    grad -= smoothing / len(weight)
                if which is not None:
                    grad.masked_fill_(~which[:, None], 0.0)
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
                grad = grad.to(dtype)
                if grad_features is not None:
                    grad_features[part] = grad @ matrix
                if grad_weight is not None:
                    grad_weight += grad.t() @ inputs
        nll = torch.cat(losses)
        ctx.mark_non_differentiable(nll)
        ctx.dtypes = features.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.save_for_backward(grad_features, grad_weight, grad_bias)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, grad_nll: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradients = [
            None if gradient is None else (gradient * grad_total.to(gradient.dtype)).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *gradients, None, None, None, None, None
