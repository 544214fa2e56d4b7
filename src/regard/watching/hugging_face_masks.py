"""The masks of Hugging Face transformers: functions of indices become masks of regard, and these pass as tensors.

A model of transformers describes its mask as a function of four indices, made of a few known parts: causal, sliding
window, chunks, packed sequences, padding. `as_mask` recognizes the parts by their names and reads them from their
closures; any other function becomes `masks.where`, which is evaluated tile by tile. Models expect the mask to be a
tensor, and some cut it: `StructuredMask` is a tensor that knows its mask.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from regard import masks
from regard.masks import Mask
from regard.shapes.grid import Grid

MaskFunction = Callable[..., Tensor]
"""``(batch, head, query position, key position) -> bool``."""


@dataclass(frozen=True)
class Positions:
    """The positions of a mask's queries and keys.

    Attributes:
        queries, keys: their numbers.
        first_query, first_key: the positions of the first ones.
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
        """Returns the part of ``[batch, positions]`` that belongs to the queries."""
        return ids[:, self.first_query : self.first_query + self.queries]

    def of_keys(self, ids: Tensor) -> Tensor:
        return ids[:, self.first_key : self.first_key + self.keys]


MaskBuilder = Callable[[dict[str, Any], Positions], Mask | None]
"""Builds a mask from the variables that a function closes over, and the positions."""


def as_mask(function: MaskFunction, at: Positions) -> Mask | None:
    """Returns the mask that a function of transformers describes; None if every query sees every key."""
    recognize = _PART_BUILDERS.get(_name(function))
    return _where(function, at) if recognize is None else recognize(_closure(function), at)


def padding_mask(padding: Tensor, at: Positions) -> Mask | None:
    """Returns the mask that shows the keys that are not padding.

    In ``padding``, bool ``[batch, positions]``, True is a token; positions past its end are padding.
    """
    missing = at.first_key + at.keys - padding.shape[-1]
    if missing > 0:
        padding = torch.nn.functional.pad(padding, (0, missing))
    visible = at.of_keys(padding)
    return None if bool(visible.all()) else masks.keep(visible[:, None, None])


def intersect(first: Mask | None, second: Mask | None) -> Mask | None:
    """Returns the pairs that both masks allow; None allows all."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _name(function: MaskFunction) -> str:
    if getattr(function, "__module__", None) != "transformers.masking_utils":
        return ""
    return getattr(function, "__qualname__", "").removesuffix(".<locals>.inner_mask")


def _closure(function: Any) -> dict[str, Any]:
    """Returns the variables that a function closes over, by name."""
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
        function = torch.vmap(function, in_dims=tuple(0 if index == axis else None for index in range(4)))
    # Indexing a tensor by a mapped index would read the index's value, which vmap cannot.
    with TransformGetItemToIndex():
        return function(batch.flatten(), head.flatten(), query.flatten(), key.flatten())


def _chunks(parts: dict[str, Any], at: Positions) -> Mask | None:
    size, left_padding = parts["chunk_size"], parts["left_padding"]
    position = torch.arange(max(at.first_query + at.queries, at.first_key + at.keys), device=left_padding.device)
    chunk = (position - left_padding[:, None]).div(size, rounding_mode="floor")
    # Chunks of padding have negative ids, which `documents` hides from all queries.
    chunk = chunk - chunk.amin()
    return masks.documents(at.of_queries(chunk), at.of_keys(chunk))


def _documents(name: str) -> MaskBuilder:
    """Returns the builder of a mask of documents, whose ids a function closes over by this name."""
    return lambda parts, at: masks.documents(at.of_queries(parts[name]), at.of_keys(parts[name]))


def _moved(parts: dict[str, Any], at: Positions) -> Mask | None:
    first_query, first_key = at.first_query + int(parts["q_offset"]), at.first_key + int(parts["kv_offset"])
    return as_mask(parts["mask_function"], replace(at, first_query=first_query, first_key=first_key))


def _intersection(parts: dict[str, Any], at: Positions) -> Mask | None:
    functions = list(parts["mask_functions"])
    by_name = {_name(function): _closure(function) for function in functions}
    packed, remapped = (by_name.get(name) for name in ("packed_sequence_mask_function", _REMAPPED_PART))
    if packed is not None and remapped is not None and _counts_within(packed, remapped, at):
        # Within one sequence, positions ascend by one: functions of distances alone need no remapping.
        functions = [f for f in functions if _name(f) != _REMAPPED_PART] + [remapped["mask_function"]]
    return reduce(intersect, (as_mask(function, at) for function in functions))


def _union(parts: dict[str, Any], at: Positions) -> Mask | None:
    union = [as_mask(function, at) for function in parts["mask_functions"]]
    return None if None in union else reduce(or_, (mask for mask in union if mask is not None))


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
    return name in _DISTANCE_PARTS


_REMAPPED_PART = "remap_positions_for_packed_sequence"
_DISTANCE_PARTS = (
    "causal_mask_function", "bidirectional_mask_function", "sliding_window_overlay",
    "sliding_window_bidirectional_overlay",
)  # fmt: skip
_PART_BUILDERS: dict[str, MaskBuilder] = {
    "bidirectional_mask_function": lambda parts, at: None,
    "causal_mask_function": lambda parts, at: masks.causal(offset=at.offset),
    # The library's window counts the query's own key.
    "sliding_window_overlay": lambda parts, at: masks.window(parts["sliding_window"] - 1, None, offset=at.offset),
    "sliding_window_bidirectional_overlay": lambda parts, at: masks.window(
        parts["sliding_window"], parts["sliding_window"], offset=at.offset
    ),
    "chunked_overlay": _chunks,
    "blockwise_overlay": _documents("block_sequence_ids"),
    "padding_mask_function": lambda parts, at: padding_mask(parts["padding_mask"], at),
    "packed_sequence_mask_function": _documents("packed_sequence_mask"),
    "add_offsets_to_mask_function": _moved,
    "and_masks.<locals>.and_mask": _intersection,
    "or_masks.<locals>.or_mask": _union,
}
"""The builder of the mask that each function of ``transformers.masking_utils`` describes, by its name."""


def numbers_of(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the mask of ``eager``, which is added to the scores: 0 for an allowed pair, else the lowest number."""
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, torch.finfo(dtype).min)


_IDENTITY_OPERATIONS = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})


_DISPATCH_KEYS = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
"""The dispatch keys that are on, and off, outside of any operation."""


class StructuredMask(Tensor):
    """A tensor ``[batch, 1, queries, keys]`` without storage that represents a `Mask`, with the numbers of ``eager``.

    A slice is again a structured mask; any other operation is computed on the dense tensor (`dense`), so a model that
    calculates with its mask gets the results of ``eager``: it may add to it, join it with other numbers, compare it
    with 0 or convert it. A mask stores its numbers as soon as a model takes a view of it or writes into it.

    Args:
        mask: the mask; None: every query sees every key.
        grid: the tile of the problem that the tensor covers, with one head.
        dtype: the dtype of the numbers.
        whole: the mask of which this one is a slice; None: it is no slice.
    """

    mask: Mask | None
    grid: Grid
    _whole: "StructuredMask | None"
    _numbers: Tensor | None

    @staticmethod
    def __new__(
        cls, mask: Mask | None, grid: Grid, dtype: torch.dtype = torch.float32, whole: "StructuredMask | None" = None
    ) -> "StructuredMask":
        tensor = torch.Tensor._make_wrapper_subclass(cls, grid.shape, dtype=dtype, device=grid.device)
        tensor.mask, tensor.grid, tensor._whole, tensor._numbers = mask, grid, whole, None
        return tensor

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__()

    @property
    def is_whole(self) -> bool:
        """Whether this is the mask of the whole problem, and not a slice of it."""
        grid = self.grid
        return grid.shape == (grid.batch, grid.heads, grid.queries, grid.keys)

    @property
    def was_written(self) -> bool:
        """Whether a model may have written other numbers into it than those of its `Mask`."""
        whole = self._of_whole
        return whole._numbers is not None and (whole.is_inference() or whole._version > 0)

    def allowed(self) -> Tensor:
        """Returns which pairs the mask allows, ``bool [batch, 1, queries, keys]``; quadratic memory."""
        if self.mask is None:
            return torch.ones(self.grid.shape, dtype=torch.bool, device=self.grid.device)
        return self.mask.dense(self.grid).contiguous()

    def dense(self) -> Tensor:
        """Returns the plain tensor of the numbers; quadratic memory."""
        numbers = self._of_whole._numbers
        return numbers_of(self.allowed(), self.dtype) if numbers is None else self.grid.cut(numbers)

    def stored(self) -> Tensor:
        """Returns the plain tensor of the numbers, as a view of those that the whole mask stores."""
        whole = self._of_whole
        if whole._numbers is None:
            whole._numbers = whole.dense()
        return self.grid.cut(whole._numbers)

    @property
    def _of_whole(self) -> "StructuredMask":
        return self if self._whole is None else self._whole

    def of_tile(self, grid: Grid) -> "StructuredMask":
        """Returns the slice of the mask for another tile of the problem."""
        return StructuredMask(self.mask, grid, self.dtype, self._of_whole)

    def numpy(self, *, force: bool = False) -> Any:
        """Returns the numbers as an array of NumPy."""
        return self.dense().numpy(force=force)

    def tolist(self) -> Any:
        """Returns the numbers as nested lists."""
        return self.dense().tolist()

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.dense().clone() if self.was_written else StructuredMask(self.mask, self.grid, self.dtype)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"StructuredMask({self.mask!r}, {list(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _IDENTITY_OPERATIONS:
            return args[0].of_tile(args[0].grid)
        if func is torch.ops.aten.slice.Tensor and (grid := _tile(*args)) is not None:
            return args[0].of_tile(grid)
        schema, kwargs = func._schema, kwargs or {}
        # The results of views share memory with an argument.
        is_view = any(result.alias_info is not None for result in schema.returns)
        # Functions of a user are mapped by `torch.vmap`, which needs the dispatch keys that are off here.
        with torch._C._ForceDispatchKeyGuard(*_DISPATCH_KEYS):
            plain = tree_map_only(StructuredMask, cls.stored if is_view else cls.dense, (args, kwargs))
        result = func(*plain[0], **plain[1])
        for index, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                # The result of an operation in place is the argument that it wrote into.
                written = args[index] if index < len(args) else kwargs.get(argument.name)
                return written if isinstance(written, StructuredMask) else result
        return result


def _tile(
    whole: StructuredMask, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Grid | None:
    """Returns the tile of a slice; None for slices that are no tile."""
    grid, axis = whole.grid, axis % 4
    spans = {0: grid.batch_span, 2: grid.query_span, 3: grid.key_span}
    if step != 1:
        return None
    if axis == 1:
        return grid if range(1)[start:end] == range(1) else None
    name = {0: "batch", 2: "queries", 3: "keys"}[axis]
    return grid.tile(**{name: spans[axis][start:end]})
