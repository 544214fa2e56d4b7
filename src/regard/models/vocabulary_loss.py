"""Cross-entropy over a vocabulary, from the features before the output matrix, without storing all logits.

For 2,000 tokens and 8,000 words the logits take 64 MB. Autograd would store them, their log-softmax and its gradient;
moving these through memory takes longer than the matrix products. Here the rows are processed in chunks: the logits,
the loss and the gradients of a chunk are computed in the forward pass, while the logits are in the cache.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.errors import ArgumentError
from regard.models.step_products import compute_dtype

CHUNK_ELEMENTS = 1 << 22
"""Logits of a chunk: 16 MB in float32. Measured on a CPU with 8,000 words; with fewer rows the products are slower."""


class VocabularyLoss(NamedTuple):
    """The loss of a batch of tokens.

    Attributes:
        total: sum of the smoothed losses, nats; differentiable.
        nll: ``[rows]``, −log p(target) of each token, nats, without smoothing or gradient; 0 for ignored rows.
    """

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
    """Summed cross-entropy of ``softmax(features · weightᵀ + bias)``, with memory linear in the rows.

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

    Raises:
        ArgumentError: ``label_smoothing`` is outside [0, 1].

    Numerics: products in autocast's dtype if autocast is on; log-sum-exp, losses and their sum in float32 (or float64).
    The gradient is computed in the forward pass, so there is no second derivative.
    """
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"label_smoothing must be in [0, 1]; it is {label_smoothing}")
    if ignore is None:
        total, nll = _Loss.apply(
            features, weight, bias, target, label_smoothing, chunk_elements, torch.is_grad_enabled()
        )
        return VocabularyLoss(total, nll)
    kept = (target != ignore).nonzero().squeeze(-1)
    counted = vocabulary_loss(
        features[kept], weight, bias, target[kept], label_smoothing=label_smoothing, chunk_elements=chunk_elements
    )
    return VocabularyLoss(counted.total, counted.nll.new_zeros(len(target)).index_copy(0, kept, counted.nll))


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        chunk_elements: int,
        differentiable: bool,
    ) -> tuple[Tensor, Tensor]:
        V = weight.shape[0]
        dtype = compute_dtype(features)
        exact = torch.promote_types(dtype, torch.float32)
        inputs, matrix = features.to(dtype), weight.to(dtype)
        needs = [differentiable and needed for needed in ctx.needs_input_grad[:3]]
        grad_features = torch.empty_like(inputs) if needs[0] else None
        grad_weight = torch.zeros(weight.shape, dtype=exact, device=weight.device) if needs[1] else None
        grad_bias = torch.zeros(V, dtype=exact, device=weight.device) if needs[2] else None
        total = torch.zeros((), dtype=exact, device=features.device)
        nll = torch.empty(len(features), dtype=exact, device=features.device)

        if smoothing:
            mean_weight = matrix.mean(0, dtype=exact)
            mean_bias = 0.0 if bias is None else bias.mean(dtype=exact)
        rows = min(max(1, chunk_elements // V), max(1, len(features)))
        # One memory for the logits of all chunks: the system fills new memory with zeros first.
        products = torch.empty(rows, V, dtype=dtype, device=features.device)
        for start in range(0, len(features), rows):
            part = slice(start, start + rows)
            column = target[part, None]
            own = products[: len(column)]
            if bias is None or dtype != exact:
                logits = torch.mm(inputs[part], matrix.t(), out=own).to(exact)
                if bias is not None:
                    logits += bias
            else:
                logits = torch.addmm(bias.to(exact), inputs[part], matrix.t(), out=own)
            chosen = logits.gather(1, column).squeeze(1)
            # In place: the logits become their exponentials, and these the gradient of the logits times their sum.
            peak = logits.amax(1, keepdim=True)
            mass = logits.sub_(peak).exp_().sum(1, keepdim=True)
            log_sum = (mass.log() + peak).squeeze(1)
            nll[part] = log_sum - chosen
            total += (1 - smoothing) * nll[part].sum()
            if smoothing:
                mean = inputs[part].to(exact) @ mean_weight + mean_bias
                total += smoothing * (log_sum - mean).sum()
            if not any(needs):
                continue
            grad_logits = logits.scatter_add_(1, column, (smoothing - 1) * mass)
            share = 1 / mass
            if grad_bias is not None:
                grad_bias.addmv_(grad_logits.t(), share[:, 0])
            if dtype == exact:
                # The other factor of each product is much smaller than the logits: it is divided by their sum.
                if grad_features is not None:
                    torch.mm(grad_logits, matrix, out=grad_features[part]).mul_(share)
                if grad_weight is not None:
                    grad_weight.addmm_(grad_logits.t(), inputs[part] * share)
                continue
            grad_logits = torch.mul(grad_logits, share, out=own)
            if grad_features is not None:
                torch.mm(grad_logits, matrix, out=grad_features[part])
            if grad_weight is not None:
                grad_weight += torch.mm(grad_logits.t(), inputs[part])
        if smoothing:
            # What smoothing subtracts from the gradient of each logit, ε / V, is the same for all.
            if grad_features is not None:
                grad_features -= (smoothing * mean_weight).to(dtype)
            if grad_weight is not None:
                grad_weight -= smoothing / V * inputs.sum(0, dtype=exact)
            if grad_bias is not None:
                grad_bias -= smoothing / V * len(features)

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
        return *gradients, None, None, None, None
