"""The inputs of ``torch.nn.MultiheadAttention``: its layouts, and its masks, in which True means "ignore"."""

from functools import reduce
from operator import add, and_
from typing import NamedTuple

import torch
from torch import Tensor

from regard.distributed.sequence_parts import joined, whole_length
from regard.errors import KindError, ShapeError
from regard.masks import Mask, ignore, keep
from regard.shapes.checks import check_elements, check_floating, check_undivided, type_text
from regard.tracing.transforms import has_host_data, is_finite


def check_torch_inputs(inputs: dict[str, tuple[Tensor, int]], batch_first: bool, weight: Tensor) -> None:
    """Raises an error unless query, key and value, with their required features, fit each other and ``weight``, one of
    the input projections, whose device and dtype they must have (but under autocast)."""
    layout = "[batch, length, features]" if batch_first else "[length, batch, features]"
    for name, (tensor, features) in inputs.items():
        check_floating(name, tensor)
        _check_layout(name, tensor)
        rank = inputs["query"][0].dim()
        if tensor.dim() not in (2, 3) or tensor.dim() != rank:
            raise ShapeError(
                f"{name} must be {layout}, or unbatched [length, features], with as many axes as query, {rank}; "
                f"it has shape {list(tensor.shape)}"
            )
        if tensor.shape[-1] != features:
            raise ShapeError(f"{name} must have {features} features; it has shape {list(tensor.shape)}")
        check_parameters(name, tensor, weight)
    query, key, value = (tensor for tensor, _ in inputs.values())
    if key.shape[:-1] != value.shape[:-1]:
        raise ShapeError(
            f"value must have key's batch and length, {list(key.shape[:-1])}; it has {list(value.shape[:-1])}"
        )
    axis = 0 if batch_first else 1
    if query.dim() == 3 and query.shape[axis] != key.shape[axis]:
        raise ShapeError(
            f"key must have query's batch, {query.shape[axis]}; it has {key.shape[axis]} (inputs are {layout})"
            + _other_layout(batch_first, query.shape[1 - axis] == key.shape[1 - axis])
        )


def check_parameters(name: str, tensor: Tensor, weight: Tensor) -> None:
    """Raises KindError unless an input has the device and the dtype of the parameters (but under autocast)."""
    if tensor.device != weight.device:
        raise KindError(f"{name} must be on the parameters' device, {weight.device}; it is on {tensor.device}")
    if tensor.dtype != weight.dtype and not _is_autocast_enabled(tensor.device.type):
        raise KindError(f"{name} must have the parameters' dtype, {weight.dtype}; it has {tensor.dtype}")


def _other_layout(batch_first: bool, is_likely: bool) -> str:
    """Returns how to get the other layout, as the end of a message; empty if it is not likely."""
    if not is_likely:
        return ""
    layout = "[length, batch, features]" if batch_first else "[batch, length, features]"
    return f"; for {layout} create the module with batch_first={not batch_first}"


def without_padded_keys(
    query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, batch_first: bool
) -> tuple[Tensor, Tensor]:
    """Replaces keys and values that ``key_padding_mask`` hides by zeros, unless all elements are finite.

    The backward pass of a projection multiplies a hidden key with a gradient of 0, and 0 · NaN is NaN, so hidden keys
    are replaced before the projection. In self-attention the padding is a query too, whose output is NaN in any case.
    """
    if key_padding_mask is None or key is query or not isinstance(key_padding_mask, Tensor):
        return key, value
    if has_host_data(key) and is_finite(key, value):
        return key, value
    hidden = key_padding_mask if key_padding_mask.dtype == torch.bool else key_padding_mask == -torch.inf
    hidden = (hidden if batch_first or hidden.dim() == 1 else hidden.t())[..., None]
    if tuple(hidden.shape[:-1]) != tuple(key.shape[:-1]):
        # The shape is wrong; `read_torch_masks` raises the error.
        return key, value
    filled = key.masked_fill(hidden, 0.0)
    return filled, filled if value is key else value.masked_fill(hidden, 0.0)


class TorchSizes(NamedTuple):
    """The sizes of an attention of ``torch.nn``: sequences (None if unbatched), query heads, queries, and keys without
    appended ones; and the dtype and the device of the queries."""

    batch: int | None
    heads: int
    queries: int
    keys: int
    dtype: torch.dtype
    device: torch.device


def read_torch_masks(
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    sizes: TorchSizes,
    names: tuple[str, str] = ("key_padding_mask", "attn_mask"),
) -> tuple[Mask | None, Tensor | None]:
    """Converts torch's two masks to a mask and a bias, each None or broadcastable to ``[batch, heads, queries, keys]``.

    Float masks are added in the dtype of the scores, and the sum is split: pairs with −inf are masked, so that a row of
    only −inf sees no key; elsewhere the sum is a bias, which may require a gradient. A NaN stays in the bias. If
    sequences are sharded, ``key_padding_mask`` has this process's keys, and every process must give one; ``attn_mask``
    has the whole sequences, and ``sizes`` are those on this process.
    """
    batch, heads, queries, keys, dtype, device = sizes
    rows = 1 if batch is None else batch
    tensors: list[Tensor] = []
    if key_padding_mask is not None:
        shape = {"[keys]": (keys,)} if batch is None else {"[batch, keys]": (rows, keys)}
        _check_mask(names[0], key_padding_mask, shape, device)
        whole = joined(key_padding_mask, -1, "key")
        tensors.append(whole.reshape(rows, 1, 1, whole.shape[-1]))
    if attn_mask is not None:
        queries, keys = whole_length(queries, "query"), whole_length(keys, "key")
        shapes = {"[queries, keys]": (queries, keys), "[batch * heads, queries, keys]": (rows * heads, queries, keys)}
        _check_mask(names[1], attn_mask, shapes, device)
        tensors.append(attn_mask.reshape(rows, heads, queries, keys) if attn_mask.dim() == 3 else attn_mask)

    masks: list[Mask] = [ignore(tensor) for tensor in tensors if tensor.dtype == torch.bool]
    floats = [tensor.to(torch.promote_types(dtype, torch.float32)) for tensor in tensors if tensor.dtype != torch.bool]
    bias = reduce(add, floats) if floats else None
    if bias is not None:
        hidden = bias == -torch.inf
        masks.append(keep(~hidden))
        bias = bias.masked_fill(hidden, 0.0)
    return reduce(and_, masks) if masks else None, bias


def _check_mask(name: str, mask: object, shapes: dict[str, tuple[int, ...]], device: torch.device) -> None:
    if not isinstance(mask, Tensor):
        hint = " (write mask=masks.where(block_mask.mask_mod))" if type(mask).__name__ == "BlockMask" else ""
        raise KindError(f"{name} must be a tensor; it is {type_text(mask)}{hint}")
    check_undivided(name, mask)
    check_elements(name, mask)
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise KindError(
            f"{name} must hold bools (True: ignore) or floats (added to the scores); it holds {mask.dtype}; "
            f"write {name} == 0 if 1 means 'may attend', {name}.bool() if 1 means 'ignore'"
        )
    _check_layout(name, mask)
    if mask.device != device:
        raise KindError(f"{name} must be on query's device, {device}; it is on {mask.device}")
    if tuple(mask.shape) not in shapes.values():
        expected = " or ".join(f"{axes} = {list(shape)}" for axes, shape in shapes.items())
        hint = ""
        if mask.dim() == 2 and tuple(mask.shape[::-1]) == shapes.get("[batch, keys]"):
            hint = ": is the batch the first axis of the inputs? Then create the module with batch_first=True"
        raise ShapeError(f"{name} must be {expected}; it has shape {list(mask.shape)}{hint}")


def _check_layout(name: str, tensor: Tensor) -> None:
    if tensor.is_nested:
        raise KindError(f"{name} must not be a nested tensor")
    if tensor.layout != torch.strided:
        raise KindError(f"{name} must be a strided tensor; its layout is {tensor.layout}")


def _is_autocast_enabled(device: str) -> bool:
    # Torch raises an error for devices without autocast, such as meta.
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
