"""The parts of multi-head attention: projections, heads, and the attention between them."""

from collections.abc import Sequence
from functools import reduce
from operator import add, and_

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.result import Attended
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.biases import AppendedBias, Bias
from regard.errors import ArgumentError
from regard.masks import AppendedMask, Mask
from regard.module_calls import Module
from regard.nn.padding import check_coupled
from regard.normalizers import Normalizer
from regard.positions import Rotary
from regard.scores import Score
from regard.sequence_parts import refuse_parts
from regard.shapes import split_joined


class AttentionHeads(nn.MultiheadAttention, Module):
    """The parts of a call of `MultiheadAttention`, which runs them one after the other.

    The layers of a Transformer run them on packed rows and with cached keys and values.

    Attributes:
        kv_heads: key and value heads.
        score: how queries and keys of a head are compared.
        normalizer: how scores become weights.
        position: a `Rotary`, which rotates queries and keys, a `Bias`, which is added to the scores, or None.
        backend: ``auto``, or one by name.
    """

    kv_heads: int
    score: Score
    normalizer: Normalizer
    position: Rotary | Bias | None
    backend: BackendName

    def attend_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        masks: Sequence[Mask | None] = (),
        biases: Sequence[Bias | None] = (),
        need_weights: bool = False,
    ) -> Attended:
        """Attend with heads that are projected and rotated: the part between the projections.

        Args:
            query: ``[batch, num_heads, queries, head_dim]``.
            key: ``[batch, kv_heads, keys, head_dim]``.
            value: ``[batch, kv_heads, keys, head_dim]``.
            masks: a key is visible where all of them allow it.
            biases: added to the scores, besides the module's own.
            need_weights: whether to give the weights, which carry a gradient; the output is the same, bit for bit.

        Returns:
            the heads' outputs ``[batch, num_heads, queries, head_dim]``, for `join` and ``out_proj``, and the weights.
        """
        keys = key.shape[2]
        key, value = self._append_keys_and_values(key, value)
        own = self.position if isinstance(self.position, Bias) else None
        mask = _intersect(masks, key.shape[2] - keys)
        check_coupled(self.normalizer, mask)
        problem = planned(
            query,
            key,
            value,
            score=self.score,
            normalizer=self.normalizer,
            mask=mask,
            bias=_add([*biases, own], key.shape[2] - keys),
            dropout=self.dropout if self.training else 0.0,
            backend=self.backend,
        )
        return run(problem, self.backend, need_weights=need_weights, layer=self)

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projections of the three inputs, all heads side by side.

        Args:
            query: ``[..., embed_dim]``.
            key: ``[..., kdim]``.
            value: ``[..., vdim]``.
        """
        q, k, v = split_joined(self.products(query, key, value), self.widths)
        return q, k, v

    def products(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """The projections side by side, in as many tensors as there are products: in one if the inputs are the same.

        Args: as for `project`.
        """
        weights = self._input_weights()
        if len(weights) == 1 and query is key and key is value:
            return (F.linear(query, weights[0], self.in_proj_bias),)
        return self.project_query(query), *self.memory_products(key, value)

    def project_query(self, query: Tensor) -> Tensor:
        """The projection of the query alone, as `project` gives it."""
        weights = self._input_weights()
        bias = None if self.in_proj_bias is None else self.in_proj_bias[: self.embed_dim]
        return F.linear(query, weights[0][: self.embed_dim], bias)

    def memory_products(self, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """The projections of key and value, as `products` gives them."""
        weights = self._input_weights()
        bias = None if self.in_proj_bias is None else self.in_proj_bias[self.embed_dim :]
        if len(weights) == 1:
            weight = weights[0][self.embed_dim :]
            if key is value:
                return (F.linear(key, weight, bias),)
            key_weight, value_weight = weight.chunk(2)
        else:
            _, key_weight, value_weight = weights
        key_bias, value_bias = (None, None) if bias is None else bias.chunk(2)
        return F.linear(key, key_weight, key_bias), F.linear(value, value_weight, value_bias)

    def split(self, projected: Tensor, batch_first: bool = True) -> Tensor:
        """Heads ``[batch, heads, length, head_dim]`` of what `project` gives for a batch.

        Args:
            projected: ``[batch, length, heads * head_dim]``, or ``[length, batch, ...]`` if not ``batch_first``.
            batch_first: which of the two.
        """
        heads = projected.unflatten(-1, (-1, self.head_dim))
        return heads.transpose(1, 2) if batch_first else heads.permute(1, 2, 0, 3)

    def join(self, heads: Tensor, batch_first: bool = True) -> Tensor:
        """The inverse of `split`."""
        return (heads.transpose(1, 2) if batch_first else heads.permute(2, 0, 1, 3)).flatten(-2)

    def rotate(self, heads: Tensor, offset: int = 0) -> Tensor:
        """Heads of queries or keys, rotated if the module has a `Rotary` position.

        Args:
            heads: ``[batch, heads, length, head_dim]``.
            offset: position of the first token.
        """
        return self.position(heads, offset=offset) if isinstance(self.position, Rotary) else heads

    @property
    def widths(self) -> list[int]:
        """Features of the projected query, key and value."""
        return [self.embed_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim]

    def _input_weights(self) -> tuple[Tensor, ...]:
        """The packed weight of the three input projections, or the three of them, as `_qkv_same_embed_dim` says."""
        names = ("in_proj_weight",) if self._qkv_same_embed_dim else ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        weights = tuple(getattr(self, name) for name in names)
        for name, weight in zip(names, weights, strict=True):
            if weight is None:
                raise ArgumentError(f"{name} is None although _qkv_same_embed_dim is {self._qkv_same_embed_dim}")
        return weights

    def _append_keys_and_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """``[batch, kv_heads, keys, head_dim]`` with ``bias_k`` and ``bias_v``, then with ``add_zero_attn``'s zeros."""
        B, H, _, D = key.shape
        if self.bias_k is not None or self.add_zero_attn:
            refuse_parts("an attention that appends keys (add_bias_kv, add_zero_attn)")
        if (self.bias_k is None) != (self.bias_v is None):
            raise ArgumentError("bias_k and bias_v must come together; one of them is None")
        if self.bias_k is not None and self.bias_v is not None:
            learned_key, learned_value = (
                learned.to(key.dtype).view(1, H, 1, D).expand(B, -1, -1, -1) for learned in (self.bias_k, self.bias_v)
            )
            key, value = torch.cat((key, learned_key), dim=2), torch.cat((value, learned_value), dim=2)
        if self.add_zero_attn:
            key, value = F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1))
        return key, value


def _intersect(masks: Sequence[Mask | None], appended: int) -> Mask | None:
    """Pairs that every mask allows, and all pairs with appended keys; None if there is no mask."""
    present = [mask for mask in masks if mask is not None]
    if not present:
        return None
    combined = reduce(and_, present)
    return AppendedMask(combined, appended) if appended else combined


def _add(biases: Sequence[Bias | None], appended: int) -> Bias | None:
    """The sum of the biases, 0 for appended keys; None if there is no bias."""
    present = [bias for bias in biases if bias is not None]
    if not present:
        return None
    total = reduce(add, present)
    return AppendedBias(total, appended) if appended else total
