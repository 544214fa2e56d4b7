"""The kind of a call: everything that decides how it runs, as one value that can be compared.

Two calls of one kind pass the same checks and run on the same backend in the same way, so what is found out for one
call serves all others (`regard.attention.routes`). No element of a tensor is part of a kind, and no kind refers to a
tensor. Each call looks at the mask's elements again: they decide whether anything is hidden.
"""

from collections.abc import Callable, Hashable
from functools import cache
from operator import attrgetter
from sys import modules
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C import _dispatch_keys, _is_any_autocast_enabled
from torch._C._dynamo.guards import TensorGuards
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from regard.attention.steps import follows_last_key
from regard.distributed.sequence_parts import are_parts
from regard.fields import FIELDS
from regard.masks import And, Band, Documents, Mask, Or
from regard.masks.batch_integers import BatchInteger
from regard.masks.names import NAMES
from regard.shapes.grid import Grid
from regard.shapes.layout import with_four_axes
from regard.tracing.module_calls import OWN_HOOKS, has_hooks
from regard.tracing.transforms import is_capturing

SHORT_ROW = 16
"""Number of keys from which on PyTorch's kernel takes the maximum of a row by whole vectors, which have at most 16
elements. In a shorter row it ignores NaN, so that a query of NaN can give 0."""

FEW_QUERIES = 8
"""Number of queries up to which backends may have kernels for few rows, as in a decoder's step, and up to which calls
with other numbers of keys are of one kind."""

Kind = tuple[Hashable, ...]
"""The kind of a call."""

ANY_KEYS, BACKEND = 0, -1
"""Where a kind says whether calls with other numbers of keys are of the same kind, and how it names the backend."""

_SHARDING = "regard.distributed.sequences"
_TENSORS = (Tensor, nn.Parameter)
_VALUES = (str, int, float, bool, type(None))
_METHODS = ("prepare", "forward", "weigh", "lower", "allows")
"""Methods that decide what a part computes: an object may have one of its own, and one of its class be replaced."""


def kind_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: object,
    normalizer: object,
    mask: object,
    bias: object,
    dropout: object,
    backend: object,
) -> Kind | None:
    """Returns the kind of a call with these arguments, which need not be valid; None if it has none.

    `Layout` looks at everything but the sizes of query, key and value, in less time.

    Calls with functions, with objects of classes that declare no fields, or with subclasses of tensors have none; nor
    have calls without elements, under autocast, within `regard.distributed.sequence`, and while a compiler traces or a
    graph is captured.

    Args:
        query, key, value, score, normalizer, mask, bias, dropout, backend: as for `regard.attend`.
    """
    if is_compiling() or _is_any_autocast_enabled() or type(dropout) is not float or type(backend) is not str:
        return None
    if type(query) not in _TENSORS or type(key) not in _TENSORS or type(value) not in _TENSORS:
        return None
    if _SHARDING in modules and are_parts():
        return None
    if not (
        OWN_HOOKS.issuperset(_global_forward_hooks.values())
        and OWN_HOOKS.issuperset(_global_forward_pre_hooks.values())
    ):
        return None
    try:
        devices = None if query.is_cpu else _devices(query, key, value)
        parts: Hashable = None
        if type(mask) is str:
            mask = NAMES.get(mask, mask)
        is_step = query.dim() == 4 and query.shape[2] == 1
        if type(mask) is Band and not is_step:
            parts = mask.kind
        elif mask is not None and not (type(mask) is Band and mask.shows_all_to_the_last):
            parts = _kind_of_mask(mask, query, key)
        any_mask = parts is None or (is_step and devices is None and follows_last_key(mask))
        score_is_named = type(score) is str and type(normalizer) is str and bias is None
        if not score_is_named:
            parts = parts, _kind_of_part(score), _kind_of_part(normalizer), _kind_of_part(bias)
        any_keys = any_mask and score_is_named and normalizer == "softmax"
        any_keys = any_keys and query.dim() == key.dim() == value.dim() == 4 and query.shape[2] <= FEW_QUERIES
        sizes = _sizes_of_few_rows(query, key, value) if any_keys else (query.shape, key.shape)
    except (_NoKindError, RuntimeError):  # nested tensors have no shape
        return None
    return (
        any_keys,
        sizes,
        devices,
        torch.is_grad_enabled(),
        forward_ad._current_level,
        score if type(score) is str else None,
        normalizer if type(normalizer) is str else None,
        parts,
        dropout,
        backend,
    )


class Layout:
    """The layout of query, key and value of a call, with which later ones can be compared; it keeps no tensor.

    It is their class, sizes, strides, dtype and device, whether a gradient is wanted, and their keys of PyTorch's
    dispatcher in the state that this thread is in: inference, transforms, modes that intercept operations, a lazy
    negation. PyTorch's compiler compares the inputs of what it compiled in this way, by `torch._C`.

    Args:
        query, key, value: the tensors.
        any_keys: whether the number of keys, and the strides of keys and values, do not count; see `kind_of`.
    """

    __slots__ = ("_checks",)

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, any_keys: bool):
        self._checks = _check_of(query, False), _check_of(key, any_keys), _check_of(value, any_keys)

    def fits(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether these tensors are like those."""
        first, second, third = self._checks
        return first(query) and second(key) and third(value)


def _check_of(tensor: Tensor, any_length: bool) -> Callable[[Tensor], bool]:
    sizes: list[int | None] = list(tensor.shape)
    strides: list[int | None] = list(tensor.stride())
    if any_length:
        sizes[2], strides = None, [None] * 4
    # Its stub lacks the tensors.
    guards = TensorGuards(tensor, dynamic_dims_sizes=[sizes], dynamic_dims_strides=[strides])  # type: ignore[call-arg]
    return guards.check


def _sizes_of_few_rows(query: Tensor, key: Tensor, value: Tensor) -> Hashable:
    """Returns the sizes of a call of a few queries, whose keys may be more in the next call: by powers of two.

    All measured limits of the planner are powers of two.
    """
    keys = key.shape[2]
    return (
        query.shape,
        keys == value.shape[2],
        (query.shape[0] * query.shape[1] * query.shape[2] * keys).bit_length(),
        (key.numel() + value.numel()).bit_length(),
        (query.shape[1] * key.shape[0] * keys * (key.shape[3] + value.shape[3])).bit_length(),
        keys < SHORT_ROW,
        key.stride(3) == 1,
        value.stride(3) == 1,
        key.stride(2) >= key.shape[3],
        value.stride(2) >= value.shape[3],
    )


def _devices(query: Tensor, key: Tensor, value: Tensor) -> Hashable:
    """Returns the devices of a call, with what decides there: settings of PyTorch's kernels and of their precision."""
    device = query.device
    if device.type == "meta" or is_capturing(device):
        raise _NoKindError
    return (
        device,
        key.device,
        value.device,
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cuda.matmul.fp32_precision,
        *enabled_kernels(),
    )


def enabled_kernels() -> tuple[bool, ...]:
    """Returns which of PyTorch's kernels the user allows: flash, efficient, cuDNN."""
    kernels = torch.backends.cuda
    return kernels.flash_sdp_enabled(), kernels.mem_efficient_sdp_enabled(), kernels.cudnn_sdp_enabled()


_COMBINED_KINDS: WeakKeyDictionary[Mask, Hashable] = WeakKeyDictionary()
"""The kinds of combined masks whose fields are numbers: those of all parts take half as long as a small call."""


class _NoKindError(Exception):
    """A part of a call has no kind."""


def _kind_of_mask(mask: object, query: Tensor, key: Tensor) -> Hashable:
    if type(mask) is Tensor:
        return _kind_of_part(mask)
    if not isinstance(mask, Mask):
        raise _NoKindError
    is_combined = type(mask) is Or or type(mask) is And
    kind = _COMBINED_KINDS.get(mask) if is_combined else None
    if kind is None:
        kind = _kind_of_part(mask)
        if is_combined and _holds_no_tensor(mask):
            _COMBINED_KINDS[mask] = kind
    if type(mask).hides_nothing is Mask.hides_nothing:
        return kind
    rank = query.dim()
    if not 2 <= rank == key.dim() <= 4:
        raise _NoKindError
    return kind, mask.hides_nothing(Grid.of(with_four_axes(query, rank), with_four_axes(key, rank), rank))


def _kind_of_part(part: object) -> Hashable:
    """Returns the kind of a score, a normalizer, a mask, a bias, or one of their fields."""
    kind = type(part)
    if kind in _VALUES:
        return kind, part or repr(part)  # 0.0 is equal to -0.0
    if isinstance(part, Tensor):
        return _layout(part)
    if kind is tuple or kind is list or kind is nn.ModuleList:
        return kind, *map(_kind_of_part, part)  # type: ignore[arg-type]
    if type(part) is Band or type(part) is BatchInteger:
        return kind, part.kind
    fields, own = FIELDS.get(kind), vars(part) if hasattr(part, "__dict__") else {}
    if fields is None or not own.keys().isdisjoint(_METHODS) or (isinstance(part, nn.Module) and has_hooks(part)):
        raise _NoKindError
    parts = [kind, *_methods_of(kind)(kind)]
    if type(part) is Documents:
        # Short documents have a kernel of their own, and recurrences need tokens that follow one another.
        parts.append((part.longest, part.begins is None))
    for field in fields:
        value = getattr(part, field)
        parts.append((type(value), value or repr(value)) if type(value) in _VALUES else _kind_of_part(value))
    return tuple(parts)


@cache
def _methods_of(kind: type) -> Callable[[type], tuple[object, ...]]:
    """Returns a function that returns those methods of a class, as they are now."""
    # With the constructor there are two at least, which come as a tuple.
    return attrgetter("__init__", *(method for method in _METHODS if hasattr(kind, method)))


def _layout(tensor: Tensor) -> Hashable:
    return (
        type(tensor),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.get_device(),
        _dispatch_keys(tensor).raw_repr(),
        tensor.requires_grad,
    )


def fixed_kind(mask: object) -> Hashable | None:
    """Returns the kind of a mask, or of none, that is the same in all calls of its kind; None of any other.

    Its fields are numbers, and one for all batch rows.
    """
    try:
        return _kind_of_part(mask) if _holds_no_tensor(mask) else None
    except _NoKindError:
        return None


def _holds_no_tensor(part: object) -> bool:
    kind = type(part)
    if kind in _VALUES:
        return True
    if kind is tuple or kind is list:
        return all(map(_holds_no_tensor, part))  # type: ignore[arg-type]
    if isinstance(part, BatchInteger):
        return isinstance(part.value, int)
    fields = FIELDS.get(kind)
    return fields is not None and all(_holds_no_tensor(getattr(part, field)) for field in fields)
