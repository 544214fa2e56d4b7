"""The formulas in plain PyTorch: the eager implementation, and the oracle in float64."""

import torch
from torch import Tensor

Normalize = str
"""``softmax``, ``sparsemax``, ``entmax15``, ``sigmoid``, ``hard`` or ``sink``."""


def attention(
    query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None = None, scale: float | None = None,
    normalize: Normalize = "softmax",
) -> Tensor:  # fmt: skip
    """Scaled dot-product attention with any normalizer."""
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return mix(scores, value, keep, normalize)


def additive(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """Attention with the additive score ``w · tanh(q + k)`` and softmax."""
    scores = torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ weight
    return torch.softmax(scores, dim=-1) @ value


def mix(scores: Tensor, value: Tensor, keep: Tensor | None = None, normalize: Normalize = "softmax") -> Tensor:
    """Mask and normalize scores, and compute the weighted sum of the values."""
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    return normalize_scores(scores, normalize) @ value


def normalize_scores(scores: Tensor, normalize: Normalize) -> Tensor:
    """The weights of a normalizer."""
    match normalize:
        case "softmax":
            return torch.softmax(scores, dim=-1)
        case "sparsemax":
            return sparsemax(scores)
        case "entmax15":
            return entmax15(scores)
        case "sigmoid":
            return torch.sigmoid(scores)
        case "hard":
            return torch.zeros_like(scores).scatter(-1, scores.argmax(-1, keepdim=True), 1.0)
        case "sink":
            return torch.softmax(torch.nn.functional.pad(scores, (1, 0)), dim=-1)[..., 1:]
    raise AssertionError(normalize)


def sparsemax(scores: Tensor) -> Tensor:
    """The projection onto the simplex, by sorting (Martins and Astudillo 2016, algorithm 1)."""
    ordered = scores.sort(dim=-1, descending=True).values
    rank = _ranks(scores)
    total = ordered.cumsum(-1)
    support = (1 + rank * ordered > total).sum(-1, keepdim=True)
    threshold = (total.gather(-1, support - 1) - 1) / support
    return (scores - threshold).clamp_min(0)


def entmax15(scores: Tensor) -> Tensor:
    """Entmax with alpha 1.5, by sorting (Peters et al. 2019, algorithm 2)."""
    halved = (scores - scores.amax(-1, keepdim=True)) / 2
    ordered = halved.sort(dim=-1, descending=True).values
    rank = _ranks(scores)
    mean = ordered.cumsum(-1) / rank
    spread = (ordered**2).cumsum(-1) - rank * mean**2
    thresholds = mean - ((1 - spread) / rank).clamp_min(0).sqrt()
    support = (thresholds <= ordered).sum(-1, keepdim=True)
    return (halved - thresholds.gather(-1, support - 1)).clamp_min(0) ** 2


def _ranks(scores: Tensor) -> Tensor:
    """1, 2, … for the elements of a row."""
    return torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)


def readings(query: Tensor, key: Tensor, value: Tensor, top_k: int = 8) -> dict[str, Tensor]:
    """Attention with its matrix of weights, and the readings of this matrix."""
    weights = torch.softmax(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5, dim=-1)
    return {
        "output": weights @ value,
        "entropy": -(weights * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum(-1),
        "top weights": weights.topk(top_k, dim=-1).values,
        "received": weights.sum(-2),
    }
