"""The inputs of ``torch.nn.MultiheadAttention``: its layouts, and its masks whose True means "ignore"."""

import torch
from torch import Tensor

from regard.errors import KindError, ShapeError
from regard.masks import Mask, ignore, keep
from regard.shapes import check_floating


def check_torch_inputs(inputs: dict[str, tuple[Tensor, int]], batch_first: bool, dtype: torch.dtype) -> None:
    """Raise unless query, key and value fit each other and a module's parameters.

    Args:
        inputs: for ``"query"``, ``"key"`` and ``"value"``, in this order: the tensor, and how many features it needs.
        batch_first: ``[batch, length, features]`` instead of ``[length, batch, features]``.
        dtype: of the parameters.

    Raises:
        KindError: not floating point, or of another dtype (but under autocast).
        ShapeError: other ranks, features, batches or lengths.
    """
    layout = "[batch, length, features]" if batch_first else "[length, batch, features]"
    for name, (tensor, features) in inputs.items():
        check_floating(name, tensor)
        rank = inputs["query"][0].dim()
        if tensor.dim() not in (2, 3) or tensor.dim() != rank:
            raise ShapeError(
                f"{name} must be {layout}, or unbatched [length, features], with as many axes as query, {rank}; "
                f"it has shape {list(tensor.shape)}"
            )
        if tensor.shape[-1] != features:
            raise ShapeError(f"{name} must have {features} features; it has shape {list(tensor.shape)}")
        if tensor.dtype != dtype and not torch.is_autocast_enabled(tensor.device.type):
            raise KindError(f"{name} must have the parameters' dtype, {dtype}; it has {tensor.dtype}")
    query, key, value = (tensor for tensor, _ in inputs.values())
    if key.shape[:-1] != value.shape[:-1]:
        raise ShapeError(
            f"value must have key's batch and length, {list(key.shape[:-1])}; it has {list(value.shape[:-1])}"
        )
    axis = 0 if batch_first else 1
    if query.dim() == 3 and query.shape[axis] != key.shape[axis]:
        raise ShapeError(
            f"key must have query's batch, {query.shape[axis]}; it has {key.shape[axis]} (inputs are {layout})"
        )


def read_torch_masks(
    key_padding_mask: Tensor | None, attn_mask: Tensor | None, batch: int | None, heads: int, queries: int, keys: int
) -> tuple[Mask | None, Tensor | None]:
    """What torch's two masks say, as a mask and a bias.

    A float mask is split: where it is −inf the pair is masked, so that a row of nothing but −inf is a row that sees
    nothing; elsewhere it is a bias, which may want a gradient.

    Args:
        key_padding_mask: bool or float, ``[batch, keys]``; ``[keys]`` for unbatched input.
        attn_mask: bool or float, ``[queries, keys]`` or ``[batch * heads, queries, keys]``.
        batch: None for unbatched input.
        heads, queries, keys: the lengths of these axes.

    Returns:
        The mask and the bias, each None where nothing was said; they broadcast to ``[batch, heads, queries, keys]``.

    Raises:
        KindError: a mask that is neither bool nor float.
        ShapeError: a mask of another shape.
    """
    rows = 1 if batch is None else batch
    mask: Mask | None = None
    bias: Tensor | None = None
    if key_padding_mask is not None:
        _check(
            "key_padding_mask",
            key_padding_mask,
            {"[keys]": (keys,)} if batch is None else {"[batch, keys]": (rows, keys)},
        )
        mask, bias = _read(key_padding_mask.reshape(rows, 1, 1, keys))
    if attn_mask is not None:
        shapes = {"[queries, keys]": (queries, keys), "[batch * heads, queries, keys]": (rows * heads, queries, keys)}
        _check("attn_mask", attn_mask, shapes)
        if attn_mask.dim() == 3:
            attn_mask = attn_mask.reshape(rows, heads, queries, keys)
        more, added = _read(attn_mask)
        mask = more if mask is None else mask & more
        if added is not None:
            bias = added if bias is None else bias + added
    return mask, bias


def _read(given: Tensor) -> tuple[Mask, Tensor | None]:
    if given.dtype == torch.bool:
        return ignore(given), None
    seen = given > -torch.inf
    return keep(seen), given.masked_fill(~seen, 0.0)


def _check(name: str, given: object, shapes: dict[str, tuple[int, ...]]) -> None:
    if not isinstance(given, Tensor):
        raise KindError(f"{name} must be a tensor; it is a {type(given).__name__}")
    if given.dtype != torch.bool and not given.is_floating_point():
        raise KindError(
            f"{name} must hold bools (True: ignore) or floats (added to the scores); it holds {given.dtype}"
        )
    if tuple(given.shape) not in shapes.values():
        expected = " or ".join(f"{axes} = {list(shape)}" for axes, shape in shapes.items())
        raise ShapeError(f"{name} must be {expected}; it has shape {list(given.shape)}")
