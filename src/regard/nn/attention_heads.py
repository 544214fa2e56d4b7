"""The parts of multi-head attention: projections, heads, and the attention between them."""

from collections.abc import Sequence
from functools import reduce
from operator import add, and_

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.backends.cpu.documents import KnownOutput, attend_documents, packed_call
from regard.attention.execution import choose, full_precision, is_watched
from regard.attention.problem import validate
from regard.attention.result import Attended
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.biases import AppendedBias, Bias
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError
from regard.kernels.cpu.sizes import PACKED_LENGTH
from regard.masks import AppendedMask, Band, Mask
from regard.masks.mask import joined_masks
from regard.nn.key_values import EncoderOutput, KeyValueCache, KeyValues
from regard.nn.packing import Packing
from regard.nn.padding import check_coupled, present_queries
from regard.normalizers import Normalizer
from regard.positions import Rotary
from regard.scores import Score
from regard.shapes.grid import Grid, split_joined
from regard.tracing.module_calls import Module
from regard.tracing.transforms import is_finite


class AttentionHeads(nn.MultiheadAttention, Module):
    """The parts of a call of `MultiheadAttention`, which runs them one after the other.

    The layers of a Transformer run them on packed rows (`attend_to_rows`, `attend_to_memory`), also with cached keys
    and values: within each sequence as a document where the kernel of short documents is the fastest way, on padded
    heads elsewhere.

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
        """Attends with heads ``[batch, num_heads or kv_heads, length, head_dim]`` that are projected and rotated. A key
        is visible where all ``masks`` allow it; ``biases`` are added to the module's own. Returns the heads' outputs,
        for `join` and ``out_proj``, and the weights, with a gradient."""
        keys = key.shape[2]
        key, value = self._append_keys_and_values(key, value)
        own = self.position if isinstance(self.position, Bias) else None
        mask = _intersect(masks, key.shape[2] - keys)
        check_coupled(self.normalizer, mask)
        problem = planned(
            query, key, value, score=self.score, normalizer=self.normalizer, mask=mask,
            bias=_add([*biases, own], key.shape[2] - keys),
            dropout=self.dropout if self.training else 0.0, backend=self.backend,
        )  # fmt: skip
        return run(problem, self.backend, need_weights=need_weights, layer=self)

    def attend_to_rows(
        self, rows: Tensor, packing: Packing, mask: Mask | None, bias: Bias | None, cache: KeyValueCache | None
    ) -> tuple[Tensor, KeyValueCache | None]:
        """Computes self-attention of packed rows ``[tokens, embed_dim]``, and of the earlier tokens in ``cache``.

        ``mask`` applies besides padding. Returns the output and the cache with the new tokens.
        """
        products = self.products(rows, rows, rows)
        if cache is None and bias is None:
            attended = self._attend_documents(products, packing, packing, mask)
            if attended is not None:
                return self.out_proj(attended.output), None
        mask = packing.visible(mask)
        if self.normalizer.couples == "queries":
            if cache is not None:
                raise ArgumentError(
                    f"with the normalizer {type(self.normalizer).__name__} each weight of a token "
                    "depends on later tokens, so that it cannot be decoded step by step"
                )
            # Queries of padding must not take part in the weights of others.
            batch, length = packing.shape
            mask = present_queries(mask, Grid.whole(batch, self.num_heads, length, length, rows.device))
        query, key, value = self._padded_heads(products, self.widths, packing)
        first = 0 if cache is None else cache.length
        length = None if packing.lengths is None else packing.lengths + first
        query, key = self.rotate(query, first, length), self.rotate(key, first, length)
        if cache is not None:
            cache = cache.appended(key, value)
            key, value = cache.key, cache.value
        output = self.attend_heads(query, key, value, masks=[mask], biases=[bias]).output
        return self.out_proj(packing.pack(self.join(output))), cache

    def remember(self, memory: EncoderOutput) -> KeyValues:
        """Returns the keys and values of an encoder's output."""
        return self._key_values(self.memory_products(memory.rows, memory.rows), memory)

    def attend_to_memory(
        self,
        rows: Tensor,
        packing: Packing,
        memory: EncoderOutput | KeyValues,
        mask: Mask | None,
        bias: Bias | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes attention of packed rows to an encoder's output, projected or not; arguments as `attend_to_rows`.
        Returns the output, ``[tokens, embed_dim]``, and the weights ``[batch, heads, queries, keys]`` if they are
        needed."""
        query = self.project_query(rows)
        if isinstance(memory, EncoderOutput):
            products = self.memory_products(memory.rows, memory.rows)
            if mask is None and bias is None and memory.index is None:
                attended = self._attend_documents((query, *products), packing, memory.packing, None, need_weights)
                if attended is not None:
                    return self.out_proj(attended.output), attended.weights
            memory = self._key_values(products, memory)
        heads = self.rotate(self.split(packing.pad(query)))
        attended = self.attend_heads(
            heads, memory.key, memory.value, masks=[memory.mask, mask], biases=[bias], need_weights=need_weights
        )
        return self.out_proj(packing.pack(self.join(attended.output))), attended.weights

    def _attend_documents(
        self, products: Sequence[Tensor], queries: Packing, keys: Packing, mask: Mask | None, need_weights: bool = False
    ) -> Attended | None:
        """Attends to packed rows as documents of one sequence; returns None where padded heads are the way.

        The output is the same, bit for bit, whether the call is watched or recorded, and whether weights are needed:
        watchers and callers get the weights of padded heads. ``products`` are those of `products`.
        """
        bands = joined_masks(mask)
        if not (queries.is_joined and keys.is_joined) or max(queries.shape[1], keys.shape[1]) > PACKED_LENGTH:
            return None
        if self.backend not in ("auto", "cpu") or self.position is not None or self.bias_k is not None:
            return None
        if self.add_zero_attn or not all(type(band) is Band and band.offset is None for band in bands):
            return None
        query, key, value = split_joined(products, self.widths)
        documents, dropout = queries.documents(keys), self.dropout if self.training else 0.0
        problem = planned(
            *(self.split(rows[None]) for rows in (query, key, value)), score=self.score, normalizer=self.normalizer,
            mask=documents if mask is None else documents & mask, dropout=dropout, backend=self.backend,
        )  # fmt: skip
        with full_precision(query):
            call = packed_call(problem) if choose(problem, self.backend).name == "cpu" else None
            # What is hidden within a document may reach a gradient, though not the output.
            if call is None or (bands and problem.wants_gradient and not is_finite(query, key, value)):
                return None
            output = attend_documents(call, problem)
        if not is_finite(output):
            return None
        rows = self.join(output)[0]
        if not (need_weights or is_watched()):
            return Attended(rows, None)
        padded = (self.split(of.pad(part)) for part, of in ((query, queries), (key, keys), (value, keys)))
        problem = validate(
            *padded, score=self.score, normalizer=self.normalizer, mask=keys.visible(mask), dropout=dropout
        )
        problem.memory = KnownOutput(self.split(queries.pad(rows)))
        attended = run(problem, self.backend, need_weights=need_weights, layer=self)
        return Attended(queries.pack(self.join(attended.output)), attended.weights)

    def _key_values(self, products: Sequence[Tensor], memory: EncoderOutput) -> KeyValues:
        key, value = self._padded_heads(products, self.widths[1:], memory.packing)
        lengths = memory.packing.lengths if memory.packing.has_padding else None
        projected = KeyValues(self.rotate(key), value, lengths, EncoderOutput(memory.rows, memory.packing))
        return projected if memory.index is None else projected.select(memory.index)

    def _padded_heads(self, products: Sequence[Tensor], widths: Sequence[int], packing: Packing) -> list[Tensor]:
        """Pads projections of packed rows, and returns their parts, split into heads."""
        # Joined products are padded before they are split, since they are fewer than their parts.
        return [self.split(part) for part in split_joined([packing.pad(product) for product in products], widths)]

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the projections of three inputs ``[..., embed_dim]``, ``[..., kdim]``, ``[..., vdim]``, heads side by
        side."""
        q, k, v = split_joined(self.products(query, key, value), self.widths)
        return q, k, v

    def products(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Returns what `project` does in as many tensors as there are products: in one if the inputs are the same."""
        weights = self._input_weights()
        if len(weights) == 1 and query is key and key is value:
            return (F.linear(query, weights[0], self.in_proj_bias),)
        return self.project_query(query), *self.memory_products(key, value)

    def project_query(self, query: Tensor) -> Tensor:
        """Returns the projection of the query alone, as `project` does."""
        weights = self._input_weights()
        bias = None if self.in_proj_bias is None else self.in_proj_bias[: self.embed_dim]
        return F.linear(query, weights[0][: self.embed_dim], bias)

    def memory_products(self, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Returns the projections of key and value, as `products` does."""
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
        """Splits a projection ``[batch, length, heads * head_dim]``, or ``[length, batch, ...]`` if not
        ``batch_first``, into heads ``[batch, heads, length, head_dim]``."""
        heads = projected.unflatten(-1, (-1, self.head_dim))
        return heads.transpose(1, 2) if batch_first else heads.permute(1, 2, 0, 3)

    def join(self, heads: Tensor, batch_first: bool = True) -> Tensor:
        """Joins heads: the inverse of `split`."""
        return (heads.transpose(1, 2) if batch_first else heads.permute(2, 0, 1, 3)).flatten(-2)

    def rotate(self, heads: Tensor, offset: int = 0, length: Tensor | None = None) -> Tensor:
        """Rotates heads ``[batch, heads, length, head_dim]``, from position ``offset`` on, if the module has a
        `Rotary`; ``length`` has the tokens of each sequence without padding."""
        if not isinstance(self.position, Rotary):
            return heads
        if length is None or not self.position.waves.scaling.depends_on_length:
            return self.position(heads, offset=offset)
        return self.position(heads, offset=offset, length=length)

    @property
    def widths(self) -> list[int]:
        """Features of the projected query, key and value."""
        return [self.embed_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim]

    def _input_weights(self) -> tuple[Tensor, ...]:
        """Returns the packed weight of the input projections, or the three weights, as `_qkv_same_embed_dim` says."""
        names = ("in_proj_weight",) if self._qkv_same_embed_dim else ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        weights = tuple(getattr(self, name) for name in names)
        for name, weight in zip(names, weights, strict=True):
            if weight is None:
                raise ArgumentError(f"{name} is None although _qkv_same_embed_dim is {self._qkv_same_embed_dim}")
        return weights

    def _append_keys_and_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Appends ``bias_k`` and ``bias_v`` to keys and values of heads, and zeros with ``add_zero_attn``."""
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
    """Returns the pairs that every mask allows, and all pairs with appended keys; None if there is no mask."""
    present = [mask for mask in masks if mask is not None]
    if not present:
        return None
    combined = reduce(and_, present)
    return AppendedMask(combined, appended) if appended else combined


def _add(biases: Sequence[Bias | None], appended: int) -> Bias | None:
    """Returns the sum of the biases, 0 for appended keys; None if there is no bias."""
    present = [bias for bias in biases if bias is not None]
    if not present:
        return None
    total = reduce(add, present)
    return AppendedBias(total, appended) if appended else total
