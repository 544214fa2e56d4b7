"""The masks of ``torch.nn.MultiheadAttention``: True means "ignore", and numbers are added to the scores."""

import torch
from torch import Tensor

from regard.errors import KindError, ShapeError
from regard.masks import Mask, ignore, keep


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
        _check("key_padding_mask", key_padding_mask, {"[keys]": (keys,)} if batch is None else {"[batch, keys]": (rows, keys)})
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
        raise KindError(f"{name} must hold bools (True: ignore) or floats (added to the scores); it holds {given.dtype}")
    if tuple(given.shape) not in shapes.values():
        expected = " or ".join(f"{axes} = {list(shape)}" for axes, shape in shapes.items())
        raise ShapeError(f"{name} must be {expected}; it has shape {list(given.shape)}")
