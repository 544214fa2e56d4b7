"""The mask functions of Hugging Face transformers as masks of regard, which know their structure.

A model of transformers describes its mask as a function of four indices, made of a few known parts: causal, sliding
window, chunks, packed sequences, padding. The parts are recognized by their names and read from their closures; any
other function becomes `masks.where`, which is asked tile by tile.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor

from regard import masks
from regard.masks import Mask

MaskFunction = Callable[..., Tensor]
"""``(batch, head, query position, key position) -> bool``."""


@dataclass(frozen=True)
class Positions:
    """Where the queries and keys of a mask stand.

    Attributes:
        queries, keys: how many there are.
        first_query, first_key: the position of the first one.
        per_pair: whether functions must be called for one pair at a time (by ``torch.vmap``).
    """

    queries: int
    keys: int
    first_query: int
    first_key: int
    per_pair: bool = False

    @property
    def offset(self) -> int:
        """The key index of query 0."""
        return self.first_query - self.first_key

    def of_queries(self, ids: Tensor) -> Tensor:
        """The part of ``[batch, positions]`` that belongs to the queries."""
        return ids[:, self.first_query : self.first_query + self.queries]

    def of_keys(self, ids: Tensor) -> Tensor:
        return ids[:, self.first_key : self.first_key + self.keys]


def as_mask(function: MaskFunction, at: Positions) -> Mask | None:
    """The mask that a function of transformers describes; None if every query sees every key."""
    recognize = _PARTS.get(_name(function))
    return _where(function, at) if recognize is None else recognize(_closure(function), at)


def padding_mask(padding: Tensor, at: Positions) -> Mask | None:
    """Keys that are no padding.

    Args:
        padding: ``bool [batch, positions]``, True where a token is; positions past its end are padding.
        at: where queries and keys stand.
    """
    missing = at.first_key + at.keys - padding.shape[-1]
    if missing > 0:
        padding = torch.nn.functional.pad(padding, (0, missing))
    visible = at.of_keys(padding)
    return None if bool(visible.all()) else masks.keep(visible[:, None, None])


def both(first: Mask | None, second: Mask | None) -> Mask | None:
    """Pairs that both masks allow; None allows all."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _name(function: MaskFunction) -> str:
    if getattr(function, "__module__", None) != "transformers.masking_utils":
        return ""
    return getattr(function, "__qualname__", "").removesuffix(".<locals>.inner_mask")


def _closure(function: Any) -> dict[str, Any]:
    """What the function refers to, by name."""
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


def _where(function: MaskFunction, at: Positions) -> Mask:
    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        indices = (batch, head, query + at.first_query, key + at.first_key)
        return (_pair_by_pair(function, *indices) if at.per_pair else function(*indices)).to(torch.bool)

    return masks.where(visible)


def _pair_by_pair(function: MaskFunction, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    for axis in (3, 2, 1, 0):
        function = torch.vmap(function, in_dims=tuple(0 if place == axis else None for place in range(4)))
    # Indexing a tensor by a mapped number would read the number, which vmap cannot.
    with TransformGetItemToIndex():
        return function(batch.flatten(), head.flatten(), query.flatten(), key.flatten())


def _all(parts: dict[str, Any], at: Positions) -> Mask | None:
    return None


def _causal(parts: dict[str, Any], at: Positions) -> Mask | None:
    return masks.causal(offset=at.offset)


def _window(parts: dict[str, Any], at: Positions) -> Mask | None:
    # The library's window counts the query's own key.
    return masks.window(parts["sliding_window"] - 1, None, offset=at.offset)


def _window_both_sides(parts: dict[str, Any], at: Positions) -> Mask | None:
    return masks.window(parts["sliding_window"], parts["sliding_window"], offset=at.offset)


def _chunks(parts: dict[str, Any], at: Positions) -> Mask | None:
    size, left_padding = parts["chunk_size"], parts["left_padding"]
    position = torch.arange(max(at.first_query + at.queries, at.first_key + at.keys), device=left_padding.device)
    chunk = (position - left_padding[:, None]).div(size, rounding_mode="floor")
    # Chunks of padding have negative numbers, which mean "seen by none" to `documents`.
    chunk = chunk - chunk.amin()
    return masks.documents(at.of_queries(chunk), at.of_keys(chunk))


def _blocks(parts: dict[str, Any], at: Positions) -> Mask | None:
    ids = parts["block_sequence_ids"]
    return masks.documents(at.of_queries(ids), at.of_keys(ids))


def _padding(parts: dict[str, Any], at: Positions) -> Mask | None:
    return padding_mask(parts["padding_mask"], at)


def _packed(parts: dict[str, Any], at: Positions) -> Mask | None:
    ids = parts["packed_sequence_mask"]
    return masks.documents(at.of_queries(ids), at.of_keys(ids))


def _moved(parts: dict[str, Any], at: Positions) -> Mask | None:
    first_query, first_key = at.first_query + int(parts["q_offset"]), at.first_key + int(parts["kv_offset"])
    return as_mask(parts["mask_function"], replace(at, first_query=first_query, first_key=first_key))


def _intersection(parts: dict[str, Any], at: Positions) -> Mask | None:
    functions = list(parts["mask_functions"])
    by_name = {_name(function): _closure(function) for function in functions}
    packed, remapped = (by_name.get(name) for name in ("packed_sequence_mask_function", _REMAPPED))
    if packed is not None and remapped is not None and _counts_within(packed, remapped, at):
        # Within one sequence, positions ascend by one: what depends on distances alone needs no remapping.
        functions = [f for f in functions if _name(f) != _REMAPPED] + [remapped["mask_function"]]
    return reduce(both, (as_mask(function, at) for function in functions))


def _union(parts: dict[str, Any], at: Positions) -> Mask | None:
    found = [as_mask(function, at) for function in parts["mask_functions"]]
    return None if any(mask is None for mask in found) else reduce(or_, (mask for mask in found if mask is not None))


def _counts_within(packed: dict[str, Any], remapped: dict[str, Any], at: Positions) -> bool:
    """Whether the positions of packed sequences ascend by one in each, and the function depends on distances alone."""
    position, ids = remapped["position_ids"], packed["packed_sequence_mask"]
    if at.offset or position.shape != ids.shape or not _depends_on_distance(remapped["mask_function"]):
        return False
    same = ids.diff(dim=-1) == 0
    return bool((position.diff(dim=-1)[same] == 1).all()) and bool((ids.diff(dim=-1) >= 0).all())


def _depends_on_distance(function: MaskFunction) -> bool:
    name = _name(function)
    if name == "and_masks.<locals>.and_mask":
        return all(_depends_on_distance(part) for part in _closure(function)["mask_functions"])
    return name in _OF_DISTANCE


_REMAPPED = "remap_positions_for_packed_sequence"
_OF_DISTANCE = (
    "causal_mask_function", "bidirectional_mask_function", "sliding_window_overlay",
    "sliding_window_bidirectional_overlay",
)  # fmt: skip
_PARTS: dict[str, Callable[[dict[str, Any], Positions], Any]] = {
    "bidirectional_mask_function": _all,
    "causal_mask_function": _causal,
    "sliding_window_overlay": _window,
    "sliding_window_bidirectional_overlay": _window_both_sides,
    "chunked_overlay": _chunks,
    "blockwise_overlay": _blocks,
    "padding_mask_function": _padding,
    "packed_sequence_mask_function": _packed,
    "add_offsets_to_mask_function": _moved,
    "and_masks.<locals>.and_mask": _intersection,
    "or_masks.<locals>.or_mask": _union,
}
"""Name of a function in ``transformers.masking_utils``: the mask that it describes."""
