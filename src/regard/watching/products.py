"""Attention that a model computes by itself: a product, a softmax of it, and the product of that with values.

This is how Hugging Face's ``eager`` attention is written in every model, with whatever scale, soft cap, sink, bias and
mask stands between the first product and the softmax. The weights are those that the model made, so nothing of it has
to be known; they exist in full anyway.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.masks import keep
from regard.watching.intercepted import Intercepted
from regard.watching.mask_kind import HIDING, visible_pairs

SOURCE = "softmax"

HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")
"""Attributes of modules that hold the number of heads."""


@dataclass(eq=False)
class Softmax:
    """A softmax over the last axis of a product's result.

    Attributes:
        scores: its input.
        weights: its output.
    """

    scores: Tensor
    weights: Tensor

    def is_used_by(self, left: object, right: object) -> bool:
        """Whether the product ``left @ right`` mixes values with these weights, or with all of them but a sink."""
        if not isinstance(left, Tensor) or not isinstance(right, Tensor) or left.dim() < 2 or right.dim() < 3:
            return False
        keys, own = left.shape[-1], self.weights.shape[-1]
        if keys == 0 or keys not in (own, own - 1) or right.shape[-2] != keys:
            return False
        return left.numel() // keys == self.weights.numel() // own

    @torch.no_grad()
    def read(self, left: Tensor, right: Tensor, module: nn.Module, dropout: float = 0.0) -> Intercepted:
        """The call of which the product ``left @ right`` is the end.

        Args:
            left: the weights, after dropout perhaps: ``[batch, heads, queries, keys]``, ``[batch, queries, keys]`` or
                ``[batch * heads, queries, keys]``.
            right: the values, with the same first axes.
            module: the owner of the call, which may know how many heads there are.
            dropout: the probability with which weights were dropped, if it is known.
        """
        keys = left.shape[-1]
        has_sink = keys < self.weights.shape[-1]
        weights, scores = (tensor.detach()[..., :keys].reshape(left.shape) for tensor in (self.weights, self.scores))
        weights, scores, value = (four_axes(tensor, module) for tensor in (weights, scores, right.detach()))
        floor = max(HIDING, torch.finfo(scores.dtype).min / 2)
        hidden = scores <= floor
        pairs = visible_pairs(_one_head(~hidden))
        visible = pairs.mask
        # A row that is hidden throughout by finite numbers has weights: that is what the model computed.
        uniform = hidden & (weights != 0)
        if bool(uniform.any()):
            hidden = hidden & ~uniform
            visible = keep(_one_head(~hidden))
        scores = scores.masked_fill(hidden, -torch.inf)
        # Where a sink is among the scores, models shift them first, so that their log-sum-exp is lost.
        return Intercepted(
            source=SOURCE,
            mask=pairs.kind,
            causal=pairs.causal,
            visible=visible,
            scores=None if has_sink else scores,
            weights=weights,
            value=value,
            has_sink=has_sink,
            dropout=dropout,
        )


def _one_head(shown: Tensor) -> Tensor:
    """The pairs of one head, if all heads and batch rows have the same."""
    if bool((shown == shown[:, :1]).all()):
        shown = shown[:, :1]
    return shown[:1] if shown.shape[0] > 1 and bool((shown == shown[:1]).all()) else shown


def four_axes(tensor: Tensor, module: nn.Module | None = None) -> Tensor:
    """``[batch, heads, ...]``: three axes are the batch, or batch times heads if the module says so."""
    if tensor.dim() == 4:
        return tensor
    if tensor.dim() > 4:
        return tensor.flatten(0, -4)
    if tensor.dim() == 2:
        return tensor[None, None]
    heads = next((count for name in HEAD_COUNTS if isinstance(count := getattr(module, name, None), int)), 1)
    if heads > 1 and tensor.shape[0] % heads == 0:
        return tensor.unflatten(0, (-1, heads))
    return tensor[:, None]
