"""The kind of a mask that a model passes on, and the same mask in linear memory where that is possible.

A mask of a model is a tensor with an element for each pair. Most are causal, a sliding window, separate documents (a
block-diagonal matrix), padding, or several of these. Such a mask is named, and passed to the kernels as a value of
`regard.masks`, whose memory is linear in queries and keys. Other masks remain tensors.
"""

import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.masks import (
    Band,
    Chunks,
    Dilated,
    Documents,
    GridMask,
    Lengths,
    Mask,
    Prefix,
    causal,
    documents,
    keep,
    window,
)
from regard.masks.mask import joined_masks
from regard.shapes.grid import Grid

MASK_KINDS = (
    "none", "causal", "window", "documents", "padding",
    "causal+documents", "causal+padding", "window+documents", "window+padding", "documents+padding",
    "causal+documents+padding", "window+documents+padding",
    "dense",
)  # fmt: skip
"""The names of masks: the reach of a query, separate documents, and padding; ``"dense"`` is any other mask."""

HIDING_SCORE = -1e8
"""The largest addend that masks a pair: its weight is 0 if the query sees another key."""

PAIRS_LIMIT = 1 << 24
"""The most pairs for which a function's or a score's mask is made dense, to name it."""

READINGS_LIMIT = 4
"""The most analyses that are cached: usually all layers of a model share one mask."""


@dataclass(frozen=True, eq=False)
class MaskReading:
    """The analysis of a model's mask.

    Attributes:
        kind: one of `MASK_KINDS`.
        mask: the visible pairs, for the calculation; None: all.
        bias: the addend of the scores; None: there is none.
        visible: the visible pairs, for pictures; None: all.
        has_bias: whether the mask adds other values than 0 and those that hide.
        causal: whether no query sees a key after its own, which is the last one that it could see in the widest row.
        launches: prepared launches that read calls under this mask, by the calls' kinds and readings
            (`regard.watching.call_reader`); None: none are stored.
    """

    kind: str
    mask: Mask | None = None
    bias: Tensor | None = None
    visible: Mask | None = None
    has_bias: bool = False
    causal: bool = False
    launches: dict[object, Any] | None = None

    @classmethod
    def of(cls, kind: str, mask: Mask | None, causal: bool = False) -> "MaskReading":
        """Returns the analysis of a mask that only says of each pair whether it is visible."""
        return cls(kind, mask, visible=mask, causal=causal)


NO_MASK = MaskReading("none")


class MaskReader:
    """Analyses masks; a tensor is analysed again only after a change."""

    def __init__(self) -> None:
        self._known: list[tuple[weakref.ref[Tensor], tuple[object, ...], MaskReading]] = []

    @torch.no_grad()
    def read(self, mask: Tensor, causal_rows: int | None = None) -> MaskReading:
        """Returns the analysis of a mask ``[batch or 1, heads or 1, queries or 1, keys]``, bool or added to scores.

        Under ``is_causal=True``, which also hides all keys after a query's own, counted from the first ones,
        ``causal_rows`` is the number of queries.
        """
        base, mask = mask if mask._base is None else mask._base, mask.detach()
        identity = _identity(mask, causal_rows)
        if identity is not None:
            for reference, known, reading in self._known:
                if known == identity and reference() is base:
                    return reading
        reading = read_tensor(mask if causal_rows is None else _causal_part(mask, causal_rows))
        if identity is not None:
            reading = replace(reading, launches={})
            self._known = [*self._known[1 - READINGS_LIMIT :], (weakref.ref(base), identity, reading)]
        return reading

    def clear(self) -> None:
        """Forgets all masks."""
        self._known = []


def _identity(tensor: Tensor, causal_rows: int | None) -> tuple[object, ...] | None:
    """Distinguishes contents of the same memory; None for inference tensors, which have no version."""
    if tensor.is_inference():
        return None
    return tensor._version, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, causal_rows


def _causal_part(mask: Tensor, queries: int) -> Tensor:
    """Returns the mask without the pairs whose key comes after the query, counted from the first ones."""
    shown = torch.ones(queries, mask.shape[-1], dtype=torch.bool, device=mask.device).tril()
    return mask & shown if mask.dtype == torch.bool else mask.masked_fill(~shown, -torch.inf)


def hides(scores: Tensor) -> Tensor:
    """Returns which scores, or addends of scores, hide their pairs: −∞ and those below `HIDING_SCORE`."""
    return scores <= max(float(HIDING_SCORE), torch.finfo(scores.dtype).min / 2)


@torch.no_grad()
def read_tensor(mask: Tensor) -> MaskReading:
    """Returns the analysis of a mask, as `MaskReader.read` does, or of scores of which some hide their pairs."""
    if mask.dtype == torch.bool:
        return visible_pairs(mask)
    hidden = hides(mask)
    shown = ~hidden
    reading = visible_pairs(shown)
    has_bias = bool((mask.masked_fill(hidden, 0) != 0).any())
    # PyTorch gives weights to a row that is hidden throughout, at its finite values.
    rows = hidden.all(-1, keepdim=True) & (mask > -torch.inf)
    if bool(rows.any()):
        return replace(reading, mask=None, bias=mask, visible=keep(shown | rows), has_bias=has_bias)
    return replace(reading, bias=mask if has_bias else None, has_bias=has_bias)


@torch.no_grad()
def visible_pairs(shown: Tensor) -> MaskReading:
    """Recognizes the pattern of visible pairs, bool ``[batch or 1, heads or 1, queries or 1, keys]``."""
    shown = shown[:, :, :1] if shown.stride(2) == 0 else shown
    if bool(shown.all()):
        return NO_MASK
    queries, keys = shown.shape[-2:]
    if queries == 1 or bool((shown == shown[:, :, :1]).all()):
        return MaskReading.of("padding", keep(shown[:, :, :1].clone()))
    rows, columns = shown.any(-1, keepdim=True), shown.any(-2, keepdim=True)
    if bool(((rows & columns) == shown).all()):
        return MaskReading.of("padding", keep(columns) & keep(rows))
    query, key = torch.arange(queries, device=shown.device)[:, None], torch.arange(keys, device=shown.device)
    # The band of a causal or sliding mask, from the rows that reach the farthest; padding only shortens a row.
    last = torch.where(shown, key, -keys - queries).amax(-1, keepdim=True)
    first = torch.where(shown, key, keys + queries).amin(-1, keepdim=True)
    offset = int((last - query)[rows].max())
    before = int((query + offset - first)[rows].max())
    band = (key <= query + offset) & (key >= query + offset - before)
    cut = before < queries - 1 + offset
    after = offset - max(keys - queries, 0)
    name = "window" if cut or after > 0 else "causal"
    mask: Mask = window(before, 0, offset=offset) if cut else causal(offset=offset)
    if bool(((band & columns & rows) == shown).all()):
        # Keys of the band that no query sees are padding, and so are queries that see none of the band's keys.
        padded = bool((~columns & band.any(-2)).any()) or bool((~rows & band.any(-1, keepdim=True)).any())
        if not padded:
            return MaskReading.of(name, mask, after <= 0)
        if not bool(columns.all()):
            mask = mask & keep(columns)
        if not bool(rows.all()):
            mask = mask & keep(rows)
        return MaskReading.of(f"{name}+padding", mask, after <= 0)
    ids = _documents(shown, rows[..., 0], columns[..., 0, :])
    if ids is None:
        return MaskReading.of("dense", keep(shown), after <= 0)
    query_ids, key_ids = ids
    within = (query_ids[..., None] == key_ids[..., None, :]) & rows
    apart = "documents" if bool(rows.all()) and bool(columns.all()) else "documents+padding"
    if bool((within == shown).all()):
        return MaskReading.of(apart, _apart(shown, query_ids, key_ids))
    earlier = key <= query + offset
    if bool(((within & earlier) == shown).all()):
        name, mask = ("causal" if after <= 0 else "window"), causal(offset=offset)
    elif bool(((within & band) == shown).all()):
        name, mask = "window", window(before, 0, offset=offset)
    else:
        return MaskReading.of("dense", keep(shown), after <= 0)
    whole = keep(shown) if shown.shape[1] > 1 else mask & _apart(shown, query_ids, key_ids)
    return MaskReading.of(f"{name}+{apart}", whole, after <= 0)


def _documents(shown: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor] | None:
    """Returns the documents to which visible pairs connect queries and keys, if there are several; else None.

    The number of a document is its first key, for queries ``[batch or 1, heads or 1, queries]`` and for keys; −1 for
    those without a visible pair, as the bools ``rows`` and ``columns`` say.
    """
    keys = shown.shape[-1]
    of_keys = torch.arange(keys, dtype=torch.int32, device=shown.device).expand(columns.shape)
    while True:
        of_rows = torch.where(shown, of_keys[..., None, :], keys).amin(-1)
        linked = torch.where(shown, of_rows[..., None], keys).amin(-2).minimum(of_keys)
        linked = linked.gather(-1, linked.long())  # each takes the current number of the key with its number
        if torch.equal(linked, of_keys):
            break
        of_keys = linked
    query_ids, key_ids = of_rows.masked_fill(~rows, -1), of_keys.masked_fill(~columns, -1)
    several = key_ids.amax(-1) > key_ids.masked_fill(~columns, keys).amin(-1)
    are_documents = bool(several.any()) and (_has_neighbours(query_ids) or _has_neighbours(key_ids))
    return (query_ids, key_ids) if are_documents else None


def _has_neighbours(ids: Tensor) -> bool:
    """Whether some document has two neighbours; in a dilated mask, or one of single pairs, none has."""
    return bool(((ids[..., 1:] == ids[..., :-1]) & (ids[..., 1:] >= 0)).any())


def _apart(shown: Tensor, query_ids: Tensor, key_ids: Tensor) -> Mask:
    """Returns the mask of documents, or the tensor of the pairs where heads have different ones."""
    if shown.shape[1] > 1:
        return keep(shown)
    query_ids, key_ids = query_ids[:, 0], key_ids[:, 0]
    return documents(query_ids, key_ids) if len(query_ids) > 1 else documents(query_ids[0], key_ids[0])


@torch.no_grad()
def read_mask(mask: Mask | None, grid: Grid) -> MaskReading:
    """Reads a mask of regard, by the parts that it is combined of; tensors and functions by their pairs, if few."""
    if mask is None:
        return NO_MASK
    names: set[str] = set()
    is_causal = False
    for part in joined_masks(mask):
        if isinstance(part, Band):
            names.add("causal" if part.is_causal else "window")
            is_causal |= part.after == 0
        elif isinstance(part, Lengths):
            names.add("padding")
        elif isinstance(part, Documents) or (isinstance(part, Chunks) and part.before == part.after == 0):
            names.add("documents")
        elif (
            isinstance(part, (Chunks, Dilated, GridMask, Prefix)) or grid.batch * grid.queries * grid.keys > PAIRS_LIMIT
        ):
            names.add("dense")
        else:
            allowed = part.allows(grid)
            allowed = allowed[(None,) * (4 - allowed.dim())]
            reading = visible_pairs(allowed.expand(*allowed.shape[:2], grid.queries, grid.keys))
            names.update(reading.kind.split("+"))
            is_causal |= reading.causal
    if "window" in names:
        names.discard("causal")  # a window that ends with the query's own key is one too
    kind = "+".join(name for name in ("causal", "window", "documents", "padding") if name in names) or "none"
    return MaskReading.of("dense" if "dense" in names else kind, mask, is_causal)
