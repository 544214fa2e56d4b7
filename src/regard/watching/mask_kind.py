"""The kind of a mask that a model passes on, and the same mask in linear memory where that is possible.

A mask of a model is a tensor with an entry for each pair. Most are causal, a sliding window, padding, or two of these.
Such a mask is named, and passed to the kernels as a value of `regard.masks`, whose memory is linear in queries and
keys. Other masks remain tensors.
"""

import weakref
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.masks import And, Band, Dilated, Documents, GridMask, Lengths, Mask, Prefix, causal, keep, window
from regard.shapes import Grid

MASK_KINDS = (
    "none", "causal", "window", "documents", "padding",
    "causal+documents", "causal+padding", "window+documents", "window+padding", "documents+padding",
    "causal+documents+padding", "window+documents+padding",
    "dense",
)  # fmt: skip
"""The names of masks: how far a query sees, whether documents are apart, and padding; ``"dense"`` is any other mask."""

HIDING = -1e8
"""A pair counts as masked if at most this is added to its score: its weight is 0 if the query sees another key."""

CACHED = 4
"""How many analyses are cached: mostly, all layers of a model share one mask."""


@dataclass(frozen=True, eq=False)
class MaskReading:
    """The analysis of a model's mask.

    Attributes:
        kind: one of `MASK_KINDS`.
        mask: the visible pairs, for the calculation; None: all.
        bias: what is added to the scores; None: nothing.
        visible: the visible pairs, for pictures; None: all.
        has_bias: whether the mask adds other values than 0 and those that hide.
        causal: whether no query sees a key after its own.
    """

    kind: str
    mask: Mask | None = None
    bias: Tensor | None = None
    visible: Mask | None = None
    has_bias: bool = False
    causal: bool = False

    @property
    def content(self) -> object:
        """What the readings of equal masks agree in, where that is known at once; else the reading itself."""
        is_plain = self.bias is None and (self.mask is None or type(self.mask) is Band)
        return (self.kind, self.mask, self.causal) if is_plain else self


NO_MASK = MaskReading("none")


class MaskReader:
    """Analyses masks; a tensor is analysed again only if it changed."""

    def __init__(self) -> None:
        self._known: list[tuple[weakref.ref[Tensor], tuple[object, ...], MaskReading]] = []

    @torch.no_grad()
    def read(self, mask: Tensor) -> MaskReading:
        """The analysis of a mask.

        Args:
            mask: ``[batch or 1, heads or 1, queries or 1, keys]``: bool (True: visible), or added to the scores.
        """
        mask = mask.detach()
        base, identity = mask if mask._base is None else mask._base, _identity(mask)
        if identity is not None:
            for reference, known, reading in self._known:
                if known == identity and reference() is base:
                    return reading
        reading = _read(mask)
        if identity is not None:
            self._known = [*self._known[1 - CACHED :], (weakref.ref(base), identity, reading)]
        return reading

    def clear(self) -> None:
        """Forget all masks."""
        self._known = []


def _identity(tensor: Tensor) -> tuple[object, ...] | None:
    """Distinguishes contents of the same memory; None for inference tensors, which have no version."""
    if tensor.is_inference():
        return None
    return tensor._version, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _read(mask: Tensor) -> MaskReading:
    if mask.dtype == torch.bool:
        pairs = visible_pairs(mask)
        return MaskReading(pairs.kind, pairs.mask, None, pairs.mask, causal=pairs.causal)
    hidden = mask <= max(float(HIDING), torch.finfo(mask.dtype).min / 2)
    shown = ~hidden
    pairs = visible_pairs(shown)
    has_bias = bool((mask.masked_fill(hidden, 0) != 0).any())
    # A row that is hidden throughout by finite values is not a row that sees no key: PyTorch gives it weights.
    rows = hidden.all(-1, keepdim=True) & (mask.amax(-1, keepdim=True) > -torch.inf)
    if bool(rows.any()):
        return MaskReading(pairs.kind, None, mask, keep(shown | rows), has_bias, pairs.causal)
    return MaskReading(pairs.kind, pairs.mask, mask if has_bias else None, pairs.mask, has_bias, pairs.causal)


class Pairs(NamedTuple):
    """The visible pairs of a mask.

    Attributes:
        kind: as in `MaskReading`.
        mask: the pairs; None: all.
        causal: whether no query sees a key after its own, which is the last one that it could see in the widest row.
    """

    kind: str
    mask: Mask | None
    causal: bool = False


@torch.no_grad()
def visible_pairs(shown: Tensor) -> Pairs:
    """Recognizes the pattern of visible pairs, bool ``[batch or 1, heads or 1, queries or 1, keys]``."""
    shown = shown[:, :, :1] if shown.stride(2) == 0 else shown
    if bool(shown.all()):
        return Pairs("none", None)
    queries, keys = shown.shape[-2:]
    if queries == 1 or bool((shown == shown[:, :, :1]).all()):
        return Pairs("padding", keep(shown[:, :, :1].clone()))
    rows, columns = shown.any(-1, keepdim=True), shown.any(-2, keepdim=True)
    if bool(((rows & columns) == shown).all()):
        return Pairs("padding", keep(columns) & keep(rows))
    query, key = torch.arange(queries, device=shown.device)[:, None], torch.arange(keys, device=shown.device)
    # The band of a causal or sliding mask, from the rows that reach the farthest; padding only shortens a row.
    last = torch.where(shown, key, -keys - queries).amax(-1, keepdim=True)
    first = torch.where(shown, key, keys + queries).amin(-1, keepdim=True)
    offset = int((last - query)[rows].max())
    before = int((query + offset - first)[rows].max())
    band = (key <= query + offset) & (key >= query + offset - before)
    if not bool(((band & columns & rows) == shown).all()):
        return Pairs("dense", keep(shown))
    reach = band.any(-2)
    # Keys of the band that no query sees are padding, and so are queries that see no key although the band has keys.
    padded = bool((~columns & reach).any()) or bool((~rows & band.any(-1, keepdim=True)).any())
    cut = before < queries - 1 + offset
    after = offset - max(keys - queries, 0)
    name = "window" if cut or after > 0 else "causal"
    mask: Mask = window(before, 0, offset=offset) if cut else causal(offset=offset)
    if not padded:
        return Pairs(name, mask, after <= 0)
    if not bool(columns.all()):
        mask = mask & keep(columns)
    if not bool(rows.all()):
        mask = mask & keep(rows)
    return Pairs(f"{name}+padding", mask, after <= 0)


def kind_of_mask(mask: Mask | None, grid: Grid) -> str:
    """The kind of a mask of regard, by the parts that it is combined of."""
    if mask is None:
        return "none"
    names: set[str] = set()
    for part in mask.parts if isinstance(mask, And) else (mask,):
        if isinstance(part, Band):
            names.add("causal" if part.is_causal else "window")
        elif isinstance(part, Lengths):
            names.add("padding")
        elif isinstance(part, Documents):
            names.add("documents")
        elif isinstance(part, (Dilated, GridMask, Prefix)):
            names.add("dense")
        else:
            pairs = grid.batch * grid.queries * grid.keys
            name = visible_pairs(_four_axes(part.allows(grid), grid)).kind if pairs <= 1 << 24 else "dense"
            names.update(name.split("+"))
    if "dense" in names:
        return "dense"
    if "window" in names:
        names.discard("causal")  # a window that ends with the query's own key is one too
    return "+".join(name for name in ("causal", "window", "documents", "padding") if name in names) or "none"


def is_causal_mask(mask: Mask | None) -> bool:
    """Whether a mask of regard hides all later keys, as far as its parts show it."""
    parts = mask.parts if isinstance(mask, And) else (mask,)
    return any(isinstance(part, Band) and part.after == 0 for part in parts)


def _four_axes(allowed: Tensor, grid: Grid) -> Tensor:
    allowed = allowed[(None,) * (4 - allowed.dim())]
    return allowed.expand(*allowed.shape[:2], grid.queries, grid.keys)
