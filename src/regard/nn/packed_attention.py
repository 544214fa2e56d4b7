"""Attention of a layer whose rows are packed, without padding them: where the fused kernels take it."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.cpu.packed_rows import PackedRows, attend_rows
from regard.attention.execution import has_own_backends, is_watched
from regard.attention.problem import validate
from regard.attention.verbs import run
from regard.kernels.cpu.packed_call import PackedCall, runs
from regard.masks import And, Band, Lengths, Mask
from regard.nn.multihead import MultiheadAttention
from regard.nn.packing import Packing
from regard.normalizers import Softmax
from regard.scores import ScaledDot
from regard.sequence_parts import are_parts
from regard.shapes import split_joined, upcast
from regard.transforms import has_dense_cpu_storage, is_finite, reverse_mode_only

ALL = 1 << 40
"""A number of keys that exceeds every sequence: no limit before or after a query's own key."""


class AttendedRows(NamedTuple):
    """The output of attention of packed rows.

    Attributes:
        rows: the heads' outputs side by side, ``[tokens, embed_dim]``, for ``out_proj``.
        weights: ``[batch, heads, queries, keys]``; None unless they were requested.
    """

    rows: Tensor
    weights: Tensor | None


class _Band(NamedTuple):
    """How many keys a query sees before its own, and after it."""

    before: int = ALL
    after: int = ALL


def attend_packed(
    module: MultiheadAttention,
    products: Sequence[Tensor],
    queries: Packing,
    keys: Packing,
    mask: Mask | None,
    need_weights: bool = False,
) -> AttendedRows | None:
    """Attend within each sequence, or return None where `MultiheadAttention.attend_heads` must run on padded heads.

    The kernel takes short sequences of float32 or half precision on a CPU, the softmax of scaled dot products, and as
    masks lengths and, in self-attention, a fixed band (`regard.masks.causal`, `regard.masks.window`).

    The rows are the same, bit for bit, whether the call is watched or recorded, and whether weights are requested.

    Args:
        module: the attention module.
        products: packed rows of the module's projections, from `products` or `memory_products`.
        queries: positions of the queries' tokens.
        keys: positions of the keys' tokens.
        mask: which keys each query may see, padding included.
        need_weights: whether to give the weights, which carry a gradient.
    """
    if not _is_plain(module) or not _are_read(products) or are_parts():
        return None
    band = _band_of(mask, queries, keys)
    if band is None:
        return None
    if len(products[0]) != queries.tokens or len(products[-1]) != keys.tokens:
        return None
    dtype, widths = products[0].dtype, module.widths
    dropout = module.dropout if module.training else 0.0
    call = PackedCall(
        queries.sequences, keys.sequences, module.num_heads, module.kv_heads, _scale_of(module), *band, dropout
    )
    if not runs(call, module.head_dim):
        return None
    from regard.kernels.cpu import packed_attention

    rows = [upcast(product).contiguous() for product in products]
    # What is hidden from a query may reach a gradient, though not the output.
    wants_gradient = torch.is_grad_enabled() and any(product.requires_grad for product in products)
    if module.backend == "auto" and not packed_attention.is_usable(wants_gradient):
        return None
    if wants_gradient and band != _Band() and not is_finite(*rows):
        return None
    if dropout:
        call = call._replace(seed=int(torch.randint(2**62, ()).item()))
    output = attend_rows(call, rows, widths)
    if not is_finite(output):
        return None
    if not (need_weights or is_watched()):
        return AttendedRows(output.to(dtype), None)

    def heads(rows: Tensor, packing: Packing) -> Tensor:
        return module.split(packing.pad(rows))

    query, key, value = split_joined(products, widths)
    problem = validate(
        heads(query, queries), heads(key, keys), heads(value, keys), score=module.score,
        normalizer=module.normalizer, mask=mask, dropout=dropout,
    )  # fmt: skip
    problem.memory = PackedRows(heads(output, queries))
    attended = run(problem, module.backend, need_weights=need_weights, layer=module)
    return AttendedRows(queries.pack(module.join(attended.output)), attended.weights)


def _is_plain(attention: MultiheadAttention) -> bool:
    """Whether the kernel can compute the heads of this module."""
    return (
        type(attention) is MultiheadAttention
        and attention.backend in ("auto", "cpu")
        and has_own_backends()
        and type(attention.score) is ScaledDot
        and not isinstance(attention.score.scale, Tensor)
        and type(attention.normalizer) is Softmax
        and not isinstance(attention.normalizer.temperature, Tensor)
        and attention.normalizer.temperature == 1.0
        and attention.position is None
        and attention.bias_k is None
        and attention.bias_v is None
        and not attention.add_zero_attn
    )


def _are_read(products: Sequence[Tensor]) -> bool:
    """Whether a kernel can read these rows: they are not empty, and of float32 or half precision."""
    kinds = (torch.float32, torch.bfloat16, torch.float16)
    dtype = products[0].dtype
    return (
        dtype in kinds
        and all(product.dtype == dtype and product.numel() for product in products)
        and has_dense_cpu_storage(*products)
        and reverse_mode_only(products[0])
    )


def _scale_of(attention: MultiheadAttention) -> float:
    """The scale of a score without a learned one."""
    scale = attention.score.scale
    return scale if isinstance(scale, float) else 1.0 / sqrt(attention.head_dim)


def _band_of(mask: Mask | None, queries: Packing, keys: Packing) -> _Band | None:
    """The keys around its own that a query sees under a mask; None if the kernel does not know the mask."""
    parts = mask.parts if type(mask) is And else (mask,) if mask is not None else ()
    band, is_padded = _Band(), keys.index is not None
    for part in parts:
        if type(part) is Lengths and part.queries is None and keys.has_lengths(part.keys.value):
            is_padded = False
        elif type(part) is Band and queries is keys and part.offset is None:
            before, after = (ALL if reach is None else reach for reach in (part.before, part.after))
            band = _Band(min(band.before, before), min(band.after, after))
        else:
            return None
    # A mask without lengths shows the padding and the kernel hides it; without later keys no query sees any padding.
    return None if is_padded and band.after > 0 else band
