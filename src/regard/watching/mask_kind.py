"""What a mask that a model passes on is: its kind by name, and the same mask as runs of visible keys where it is one.

A mask of a model is a tensor with an entry for each pair. Most are causal, a sliding window, padding, or two of these.
Such a mask is named, and given to the kernels as a value of `regard.masks`, which costs memory linear in queries and
keys. Other masks stay the tensors that they are.
"""

import weakref
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.masks import And, Band, Dilated, Documents, Lengths, Mask, Prefix, causal, keep, window
from regard.shapes import Grid

MASK_KINDS = (
    "none", "causal", "window", "documents", "padding",
    "causal+documents", "causal+padding", "window+documents", "window+padding", "documents+padding",
    "causal+documents+padding", "window+documents+padding",
    "dense",
)  # fmt: skip
"""The names of masks: how far a query sees, whether documents are apart, and padding; ``"dense"`` is any other."""

HIDING = -1e8
"""Additive numbers from which on a pair counts as masked: its weight is 0 wherever the query sees another key."""

CACHED = 4
"""Analyses that are kept: all layers of a model mostly get one mask."""


@dataclass(frozen=True, eq=False)
class MaskReading:
    """What a model's mask says.

    Attributes:
        kind: one of `MASK_KINDS`.
        mask: the pairs that may be seen, for the calculation; None: all.
        bias: numbers that are added to the scores; None: none.
        visible: the pairs that may be seen, for pictures; None: all.
        has_bias: whether numbers other than 0 and those that hide are added.
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
        """What readings of equal masks agree in, where that is told at once; else the reading itself."""
        is_plain = self.bias is None and (self.mask is None or type(self.mask) is Band)
        return (self.kind, self.mask, self.causal) if is_plain else self


NO_MASK = MaskReading("none")


class MaskReader:
    """Analyses masks, each tensor once as long as it lives and does not change."""

    def __init__(self) -> None:
        self._known: list[tuple[weakref.ref[Tensor], tuple[object, ...], MaskReading]] = []

    @torch.no_grad()
    def read(self, given: Tensor) -> MaskReading:
        """What a mask says.

        Args:
            given: ``[batch or 1, heads or 1, queries or 1, keys]``: bool (True: may be seen), or numbers that are added
                to the scores.
        """
        given = given.detach()
        base, identity = given if given._base is None else given._base, _identity(given)
        if identity is not None:
            for reference, known, reading in self._known:
                if known == identity and reference() is base:
                    return reading
        reading = _read(given)
        if identity is not None:
            self._known = [*self._known[1 - CACHED :], (weakref.ref(base), identity, reading)]
        return reading

    def clear(self) -> None:
        """Forget all masks."""
        self._known = []


def _identity(tensor: Tensor) -> tuple[object, ...] | None:
    """What tells this content from another of the same memory; None for inference tensors, which have no version."""
    if tensor.is_inference():
        return None
    return tensor._version, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _read(given: Tensor) -> MaskReading:
    if given.dtype == torch.bool:
        pairs = visible_pairs(given)
        return MaskReading(pairs.kind, pairs.mask, None, pairs.mask, causal=pairs.causal)
    hidden = given <= max(float(HIDING), torch.finfo(given.dtype).min / 2)
    shown = ~hidden
    pairs = visible_pairs(shown)
    has_bias = bool((given.masked_fill(hidden, 0) != 0).any())
    # A row that is hidden throughout by finite numbers is no row that sees nothing: PyTorch gives it weights.
    rows = hidden.all(-1, keepdim=True) & (given.amax(-1, keepdim=True) > -torch.inf)
    if bool(rows.any()):
        return MaskReading(pairs.kind, None, given, keep(shown | rows), has_bias, pairs.causal)
    return MaskReading(pairs.kind, pairs.mask, given if has_bias else None, pairs.mask, has_bias, pairs.causal)


class Pairs(NamedTuple):
    """The pairs of a mask.

    Attributes:
        kind: as in `MaskReading`.
        mask: the pairs; None: all.
        causal: whether no query sees a key after its own. A query's own key is the last one that it could see in the
            widest row.
    """

    kind: str
    mask: Mask | None
    causal: bool = False


@torch.no_grad()
def visible_pairs(shown: Tensor) -> Pairs:
    """What the pairs that may be seen are.

    Args:
        shown: bool ``[batch or 1, heads or 1, queries or 1, keys]``; True: may be seen.
    """
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
    # Keys of the band that no query sees are padding, and so are queries that see nothing although the band has keys.
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
            names.add("causal" if part.before is None and part.after == 0 else "window")
        elif isinstance(part, Lengths):
            names.add("padding")
        elif isinstance(part, Documents):
            names.add("documents")
        elif isinstance(part, (Dilated, Prefix)):
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


def is_causal(mask: Mask | None) -> bool:
    """Whether a mask of regard hides all later keys, as far as its parts say so."""
    parts = mask.parts if isinstance(mask, And) else (mask,)
    return any(isinstance(part, Band) and part.after == 0 for part in parts)


def _four_axes(allowed: Tensor, grid: Grid) -> Tensor:
    allowed = allowed[(None,) * (4 - allowed.dim())]
    return allowed.expand(*allowed.shape[:2], grid.queries, grid.keys)
