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
from regard.kernels.availability import why_missing
from regard.models.step_products import compute_dtype
from regard.module_calls import call_with, is_observed, runs
from regard.nn.matrix_products import add_grad_weight, grad_input, grad_weight, product, product_dtype
from regard.transforms import can_branch_on, has_dense_cpu_storage, in_memory, is_alias

CHUNK_ELEMENTS = 1 << 22
"""Logits of a chunk: 16 MB in float32. Measured on a CPU with 8,000 words; with fewer rows the products are slower."""


LINEAR = nn.Linear.forward

COMPILED = 1 << 16
"""Logits from which on a compiled kernel looks at them; for less it need not be compiled."""


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
        ShapeError: the shapes are others than these.

    Numerics: products in autocast's dtype if autocast is on, or in float32 if that is bfloat16 and the processor has no
    instructions for it; log-sum-exp, losses and their sum in float32 (or float64).
    The gradient is computed in the forward pass, so there is no second derivative.
    """
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"label_smoothing must be in [0, 1]; it is {label_smoothing}")
    wanted = {"weight": (len(weight), features.shape[-1]), "target": (len(features),), "bias": (len(weight),)}
    for name, tensor in (("weight", weight), ("target", target), ("bias", bias)):
        if tensor is not None and tensor.shape != wanted[name]:
            raise ShapeError(f"{name} must be {list(wanted[name])}; it is {list(tensor.shape)}")
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


def output_loss(
    features: Tensor, output: nn.Module, target: Tensor, *, label_smoothing: float = 0.0, ignore: int | None = None
) -> VocabularyLoss:
    """`vocabulary_loss` of an output matrix that is a module, whose call may be seen or changed.

    A hook that returns nothing sees the logits of all rows, and changes no bit of the loss. Logits that are changed, or
    of another module than an `nn.Linear`, are the loss's; they are in memory at once.

    Args:
        features: ``[..., dim]``.
        output: ``dim`` → logits over the vocabulary.
        target: ``int64``, as many as there are features.
        label_smoothing, ignore: as for `vocabulary_loss`.
    """
    own, flat = runs(output, LINEAR), target.flatten()
    weight: Any = getattr(output, "weight", None)
    bias: Any = getattr(output, "bias", None)
    options = {"label_smoothing": label_smoothing, "ignore": ignore}
    if own and not is_observed(output):
        return vocabulary_loss(features.flatten(0, -2), weight, bias, flat, **options)
    made: list[tuple[Tensor, int]] = []

    def forward(given: Tensor) -> Tensor:
        found = F.linear(given, weight, bias)
        if is_alias(given, features) and not found.is_inference():
            made.append((found, found._version))
        return found

    reads = own and not torch.compiler.is_compiling() and output._compiled_call_impl is None
    logits = call_with(output, forward, features) if reads else output(features)
    rows = logits.flatten(0, -2)
    rows = rows if rows.dtype == torch.float64 else rows.float()
    kept = torch.ones_like(flat, dtype=torch.bool) if ignore is None else flat != ignore
    rows, labels = rows[kept], flat[kept]
    nll = F.cross_entropy(rows, labels, reduction="none").detach()
    total = F.cross_entropy(rows, labels, reduction="sum", label_smoothing=label_smoothing)
    nll = nll.new_zeros(len(flat)).masked_scatter(kept, nll)
    if made and is_alias(made[0][0], logits) and made[0][1] == logits._version:
        # The gradient passes the logits, which a hook may have kept; the numbers are those without a hook.
        with torch.no_grad():
            exact = vocabulary_loss(features.flatten(0, -2), weight, bias, flat, **options)
            total.copy_(exact.total)
            nll = exact.nll
    return VocabularyLoss(total, nll)


class _Gradients(NamedTuple):
    """The gradients of features, weight and bias; None where none is wanted."""

    features: Tensor | None
    weight: Tensor | None
    bias: Tensor | None

    @classmethod
    def zeros(cls, inputs: Tensor, matrix: Tensor, exact: torch.dtype, needs: list[bool]) -> "_Gradients":
        """The gradients before the first chunk; sums over chunks are of the dtype ``exact``."""
        return cls(
            torch.empty_like(inputs) if needs[0] else None,
            torch.zeros_like(matrix, dtype=exact) if needs[1] else None,
            matrix.new_zeros(len(matrix), dtype=exact) if needs[2] else None,
        )

    def add(self, part: slice, inputs: Tensor, matrix: Tensor, scaled: Tensor, mass: Tensor, own: Tensor) -> None:
        """Add a chunk's gradients, without what smoothing subtracts.

        Args:
            part: the rows of the chunk.
            inputs, matrix: all features and the weight, in the dtype of the products.
            scaled: the gradient of the chunk's logits times ``mass``.
            mass: ``[rows, 1]``, the sums of the exponentials.
            own: memory for logits in the dtype of the products.
        """
        share = 1 / mass
        if self.bias is not None:
            self.bias.addmv_(scaled.t(), share[:, 0])
        if own.dtype == scaled.dtype:
            # The other factor of each product is much smaller than the logits: that one is divided.
            if self.features is not None:
                self.features[part] = grad_input(scaled, matrix).mul_(share)
            if self.weight is not None:
                add_grad_weight(self.weight, scaled, inputs[part] * share)
            return
        grad_logits = torch.mul(scaled, share, out=own)
        if self.features is not None:
            self.features[part] = grad_input(grad_logits, matrix)
        if self.weight is not None:
            self.weight.add_(grad_weight(grad_logits, inputs[part]))

    def smooth(self, inputs: Tensor, mean_weight: Tensor, smoothing: float) -> None:
        """Subtract what smoothing takes from the gradient of every logit alike: ε / V."""
        if self.features is not None:
            self.features.sub_(smoothing * mean_weight)
        if self.weight is not None:
            self.weight.sub_(smoothing / len(self.weight) * inputs.sum(0, dtype=self.weight.dtype))
        if self.bias is not None:
            self.bias.sub_(smoothing / len(self.bias) * len(inputs))


def _logits(inputs: Tensor, matrix: Tensor, bias: Tensor | None, own: Tensor) -> Tensor:
    """``inputs · matrixᵀ + bias`` in float32 or float64; ``own`` is memory in the dtype of the products."""
    exact = torch.promote_types(own.dtype, torch.float32)
    if bias is None or bias.dtype == own.dtype:
        return product(inputs, matrix, bias, memory=own).to(exact)
    return product(inputs, matrix, memory=own).to(exact).add_(bias)


class _Rows(NamedTuple):
    """Some rows of logits, which have become the gradient of their losses, without smoothing, times ``mass``.

    Attributes:
        logits: ``[rows, vocabulary]``.
        mass: the sums of the exponentials, ``[rows, 1]``.
        log_sum: their logarithms with the largest logit, ``[rows]``.
        chosen: the target's logits, ``[rows]``.
    """

    logits: Tensor
    mass: Tensor
    log_sum: Tensor
    chosen: Tensor


def _rows(logits: Tensor, target: Tensor, slope: float) -> _Rows:
    column = target[:, None]
    chosen = logits.gather(1, column).squeeze(1)
    # In place: the logits become their exponentials.
    peak = logits.amax(1, keepdim=True)
    mass = logits.sub_(peak).exp_().sum(1, keepdim=True)
    log_sum = (mass.log() + peak).squeeze(1)
    return _Rows(logits.scatter_add_(1, column, slope * mass), mass, log_sum, chosen)


def _compiled_rows(logits: Tensor, bias: Tensor | None, target: Tensor, slope: float) -> _Rows:
    """`_rows` of logits that the bias is not added to yet."""
    from regard.kernels.cpu.cross_entropy import exponentials

    peak, mass, chosen = exponentials(logits, bias, target, slope)
    return _Rows(logits, mass[:, None], mass.log() + peak, chosen)


def _is_compiled(features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> bool:
    """Whether a kernel looks at the logits. For a target beyond the vocabulary, PyTorch's operations have an error."""
    return (
        len(features) * len(weight) >= max(COMPILED, 1)
        and why_missing() is None
        and has_dense_cpu_storage(*(tensor for tensor in (features, weight, target, bias) if tensor is not None))
        and target.dtype == torch.int64
        and int(target.min()) >= 0
        and int(target.max()) < len(weight)
    )


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
        if bias is not None and can_branch_on(bias):
            bias = in_memory(bias)  # PyTorch's products add what lies at address 0 for zeros without memory
        dtype = product_dtype(compute_dtype(features), features.device)
        exact = torch.promote_types(dtype, torch.float32)
        inputs, matrix = features.to(dtype), weight.to(dtype)
        offset = None if bias is None else bias.to(exact)
        needs = [differentiable and needed for needed in ctx.needs_input_grad[:3]]
        sums = _Gradients.zeros(inputs, matrix, exact, needs) if any(needs) else None
        total = torch.zeros((), dtype=exact, device=features.device)
        nll = torch.empty(len(features), dtype=exact, device=features.device)
        # What smoothing needs, the mean of a row's logits, comes from the mean of the weights.
        mean_weight = matrix.mean(0, dtype=exact)
        mean_bias = 0.0 if offset is None else offset.mean()
        rows = min(max(1, chunk_elements // len(weight)), max(1, len(features)))
        # One memory for the logits of all chunks: the system fills new memory with zeros first.
        products = torch.empty(rows, len(weight), dtype=dtype, device=features.device)
        compiled = _is_compiled(features, weight, bias, target)
        if compiled:
            target, offset = target.contiguous(), None if offset is None else offset.contiguous()
        for start in range(0, len(features), rows):
            part = slice(start, start + rows)
            own = products[: len(target[part])]
            if compiled:
                found = _compiled_rows(_logits(inputs[part], matrix, None, own), offset, target[part], smoothing - 1)
            else:
                found = _rows(_logits(inputs[part], matrix, offset, own), target[part], smoothing - 1)
            nll[part] = found.log_sum - found.chosen
            total += (1 - smoothing) * nll[part].sum()
            if smoothing:
                mean = (inputs[part] * mean_weight).sum(1) + mean_bias
                total += smoothing * (found.log_sum - mean).sum()
            if sums is not None:
                sums.add(part, inputs, matrix, found.logits, found.mass, own)
        if sums is not None and smoothing:
            sums.smooth(inputs, mean_weight, smoothing)
        ctx.mark_non_differentiable(nll)
        ctx.dtypes = features.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.save_for_backward(*(sums or (None, None, None)))
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, grad_nll: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradients = [
            None if gradient is None else (gradient * grad_total.to(gradient.dtype)).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *gradients, None, None, None, None
