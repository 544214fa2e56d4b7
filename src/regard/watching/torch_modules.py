"""What PyTorch's own multi-head attention computes where it does not call `scaled_dot_product_attention`.

Three functions: ``multi_head_attention_forward`` with ``need_weights=True``, and the two kernels of the fast paths in
evaluation, of `torch.nn.MultiheadAttention` and of `torch.nn.TransformerEncoderLayer`. Queries and keys are projected
beside the call, from its own arguments; the call itself runs as it is.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.problem import validate
from regard.masks import And, Mask, lengths
from regard.scores import ScaledDot
from regard.watching.intercepted import Intercepted
from regard.watching.mask_kind import NO_MASK, MaskReader, MaskReading

SOURCE = "multi_head_attention_forward"


@torch.no_grad()
def read_multi_head(masks: MaskReader, arguments: dict[str, Any]) -> Intercepted:
    """A call of ``multi_head_attention_forward``, of ``[length, batch, features]`` or ``[length, features]``."""
    query, key, value = (arguments[name].detach() for name in ("query", "key", "value"))
    batched = query.dim() == 3
    if not batched:
        query, key, value = (tensor[:, None] for tensor in (query, key, value))
    heads, bias = arguments["num_heads"], arguments["in_proj_bias"]
    if arguments["use_separate_proj_weight"]:
        weights = tuple(arguments[f"{letter}_proj_weight"] for letter in "qkv")
    else:
        weights = arguments["in_proj_weight"].chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    q, k, v = (
        F.linear(*inputs).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
        for inputs in zip((query, key, value), weights, biases, strict=True)
    )
    B = q.shape[0]
    if arguments["static_k"] is not None:
        k = arguments["static_k"].detach().unflatten(0, (B, heads))
    if arguments["static_v"] is not None:
        v = arguments["static_v"].detach().unflatten(0, (B, heads))
    given = k.shape[2]
    if arguments["bias_k"] is not None:
        k, v = (
            torch.cat((tensor, arguments[name].detach().view(1, heads, 1, -1).expand(B, -1, -1, -1)), 2)
            for tensor, name in ((k, "bias_k"), (v, "bias_v"))
        )
    if arguments["add_zero_attn"]:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    padding = arguments["key_padding_mask"]
    padding = None if padding is None else padding.view(B, 1, 1, given)
    mask = arguments["attn_mask"]
    if mask is not None:
        mask = mask.unflatten(0, (B, heads)) if mask.dim() == 3 else mask[None, None]
    reading = _merged(masks, [tensor for tensor in (mask, padding) if tensor is not None], k.shape[2] - given, q.dtype)
    same = arguments["query"] is arguments["key"]
    return _intercepted(q, k, v, reading, SOURCE, None if same else _differs(arguments), arguments["dropout_p"])


def _differs(arguments: dict[str, Any]) -> bool:
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    if query.data_ptr() == key.data_ptr() and query.shape == key.shape:
        # Transposed views of one tensor, as modules with ``batch_first`` pass them on.
        return False
    return query.shape != key.shape or key.data_ptr() == value.data_ptr()


def _merged(masks: MaskReader, ignored: list[Tensor], appended: int, dtype: torch.dtype) -> MaskReading:
    """Masks whose True means "ignore", or which are added, as one."""
    if not ignored:
        return NO_MASK
    if all(tensor.dtype == torch.bool for tensor in ignored):
        shown = ~ignored[0]
        for tensor in ignored[1:]:
            shown = shown & ~tensor
        return masks.read(F.pad(shown, (0, appended), value=True))
    total = None
    for tensor in ignored:
        added = tensor
        if tensor.dtype == torch.bool:
            added = torch.zeros_like(tensor, dtype=dtype).masked_fill_(tensor, -torch.inf)
        total = added if total is None else total + added
    assert total is not None
    return masks.read(F.pad(total, (0, appended)))


@torch.no_grad()
def read_native(masks: MaskReader, arguments: dict[str, Any]) -> Intercepted:
    """A call of ``torch._native_multi_head_attention``: self-attention with ``batch_first``, nested or not."""
    return _read_fast_path(masks, arguments["query"].detach(), arguments, "", "MultiheadAttention")


@torch.no_grad()
def read_encoder_layer(masks: MaskReader, arguments: dict[str, Any]) -> Intercepted:
    """A call of ``torch._transformer_encoder_layer_fwd``, a whole layer: its self-attention."""
    source = arguments["src"].detach()
    if arguments["norm_first"]:
        shape = (arguments["embed_dim"],)
        weight, bias = arguments["norm_weight_1"], arguments["norm_bias_1"]
        source = F.layer_norm(source, shape, weight, bias, arguments["eps"])
    return _read_fast_path(masks, source, arguments, "self_attn", "TransformerEncoderLayer")


def _read_fast_path(masks: MaskReader, source: Tensor, arguments: dict[str, Any], child: str, name: str) -> Intercepted:
    sizes = None
    if source.is_nested:
        sizes = [part.shape[0] for part in source.unbind()]
        source = torch.nested.to_padded_tensor(source, 0.0)
    projected = F.linear(source, arguments["qkv_weight"], arguments["qkv_bias"])
    q, k, v = (part.unflatten(-1, (arguments["num_heads"], -1)).transpose(1, 2) for part in projected.chunk(3, -1))
    reading = _fast_mask(masks, arguments["mask"], arguments["mask_type"], q)
    if sizes is not None:
        present: Mask = lengths(sizes, sizes)
        mask = present if reading.mask is None else And(reading.mask, present)
        kinds = {"none": "padding", "causal": "causal+padding", "window": "window+padding"}
        kind = kinds.get(reading.kind, "dense")
        reading = MaskReading(kind, mask, None, mask, causal=reading.causal)
    found = _intercepted(q, k, v, reading, name, False, 0.0)
    found.child = child
    return found


def _fast_mask(masks: MaskReader, mask: Tensor | None, kind: int | None, query: Tensor) -> MaskReading:
    """The mask of a fast path, whose type is 0: pairs, 1: padding, 2: of all four axes."""
    if mask is None:
        return NO_MASK
    # The kernels ignore a pair for any number but 0.
    mask = mask.bool()
    B, _, Q, _ = query.shape
    if kind == 1 or (kind is None and tuple(mask.shape) == (B, Q)):
        mask = mask.view(B, 1, 1, -1)
    elif mask.dim() == 2:
        mask = mask[None, None]
    elif mask.dim() == 3:
        mask = mask.unflatten(0, (B, -1))
    return _merged(masks, [mask], 0, query.dtype)


def _intercepted(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reading: MaskReading,
    source: str,
    cross: bool | None,
    dropout: float,
) -> Intercepted:
    problem = validate(query, key, value, score=ScaledDot(), mask=reading.mask, bias=reading.bias)
    return Intercepted(
        source=source,
        mask=reading.kind,
        visible=reading.visible,
        problem=problem,
        value=value,
        cross=cross,
        causal=reading.causal,
        has_bias=reading.has_bias,
        scale=query.shape[-1] ** -0.5,
        dropout=dropout,
    )
