"""Tensors of sharded sequences: cutting, joining, and what the plain tensors of a model's layers stand for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement
from torch.overrides import TorchFunctionMode

from regard.distributed.agreement import agree
from regard.distributed.shards import Shards, check_whole
from regard.errors import ArgumentError, KindError, ShapeError
from regard.shapes.checks import type_text

LENGTH = -2
"""The axis of positions in queries, keys and values."""

OTHER_ATTENTION = (
    "scaled_dot_product_attention", "multi_head_attention_forward", "flex_attention", "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd",
)  # fmt: skip
"""PyTorch's functions of attention."""

_current: tuple[Shards, ...] = ()  # of all threads: PyTorch's threads of a backward pass compute checkpoints again


def current() -> tuple[Shards, ...]:
    """Returns the shards of the innermost `sequence`; none outside of it."""
    return _current


@contextmanager
def sequence(*shards: Shards) -> Iterator[None]:
    """Returns a context in which plain tensors of queries, keys and values are this process's parts of sharded
    sequences.

    A model that is made of regard's layers runs unchanged on its part of the text: attention sees the whole sequence,
    positions count through it, and everything else must treat each token by itself. PyTorch's own attention would see
    the part alone, so it raises an error; what else mixes tokens, such as a convolution, is not noticed. Gradients of
    parameters are this process's part; sum them over the mesh, as DistributedDataParallel does (it divides by the
    processes, so a mean over own tokens has to be weighed by their number where parts are uneven). Call ``backward()``
    within it too where `torch.utils.checkpoint` computes a layer again; regard's own does not need it.

    Args:
        shards: the sequences that calls may have, such as a source and a target. A call's lengths say which one its
            queries and its keys belong to; they must not be ambiguous.

    Raises:
        KindError: an argument is no `Shards`.
        ArgumentError: PyTorch's own attention is called.
    """
    for one in shards:
        if not isinstance(one, Shards):
            raise KindError(
                f"sequence takes Shards; it got {type_text(one)}: write sequence(Shards.contiguous(length, mesh))"
            )
    global _current
    outer, _current = _current, shards
    try:
        with _OtherAttention() if shards else nullcontext():
            yield
    finally:
        _current = outer


class _OtherAttention(TorchFunctionMode):
    """Refuses attention of PyTorch, which knows nothing of other processes, while tensors are parts."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _current and getattr(func, "__name__", "") in OTHER_ATTENTION:
            raise ArgumentError(
                f"within regard.distributed.sequence PyTorch's {func.__name__} would see this process's part alone: "
                "use regard's layers or regard.attend"
            )
        return func(*args, **(kwargs or {}))


def shards_of(**lengths: int) -> list[Shards]:
    """Returns the shards of `current` of which the processes hold so many positions, one for each length.

    Every process calls it alike. Where `sequence` names several sequences, the lengths of all processes tell them
    apart: the shares of one process may be equal by chance.

    Args:
        lengths: name of an argument → the positions that this process has of it.
    """
    known = list({one.same_order: one for one in current()}.values())
    first, processes = known[0], range(known[0].processes)
    everywhere = {name: {first.rank: length} for name, length in lengths.items()}
    if len(known) > 1:
        table = agree(first, "the lengths of a call", numbers=list(lengths.values()))
        everywhere = {name: {p: table[p][column] for p in processes} for column, name in enumerate(lengths)}
    chosen = []
    for name, held in everywhere.items():
        fitting = [one for one in known if all(one.count(process) == length for process, length in held.items())]
        if len(fitting) != 1:
            shares = ", ".join(f"{one.count()} of {one.length}" for one in known)
            is_whole = any(one.length == lengths[name] for one in known)
            raise ShapeError(
                f"{name} has {lengths[name]} positions; of the sequences that sequence(...) names this process holds "
                f"{shares}, {'and several of them are of this length' if fitting else 'and none of this length'}"
                f"{f': pass its part, shards.cut({name}, dim)' if is_whole and not fitting else ''}"
            )
        chosen.append(fitting[0])
    return chosen


def shard(tensor: Tensor, shards: Shards | DeviceMesh, dim: int = LENGTH) -> DTensor:
    """Returns a whole tensor that every process has as one of which each holds a part.

    Args:
        tensor: the whole tensor, the same on every process.
        shards: which positions each process holds, one piece after the other, as PyTorch's ``Shard`` does; or a mesh
            with one axis.
        dim: the axis of positions; that of queries, keys and values by default.

    Raises:
        ShapeError: the axis is not as long as the shards.
        ArgumentError: the shards are in another order, which a DTensor cannot say.
    """
    if isinstance(shards, DeviceMesh):
        if not -tensor.dim() <= dim < tensor.dim():
            raise ShapeError(f"dim must be an axis of the tensor, which has shape {list(tensor.shape)}; it is {dim}")
        shards = Shards.contiguous(tensor.shape[dim], shards)
    if not isinstance(shards, Shards):
        raise KindError(f"shards must be Shards or a DeviceMesh; it is {type_text(shards)}")
    check_whole(tensor, dim, shards.length)
    if not shards.is_contiguous:
        raise ArgumentError(
            "a DTensor holds one piece after the other, and these shards are in another order: write "
            "`with sequence(shards):` around the calls, and shards.cut(tensor, dim) for each tensor"
        )
    return as_sharded(shards.cut(tensor, dim), shards, dim)


def as_sharded(part: Tensor, shards: Shards, dim: int) -> DTensor:
    """Returns this process's part as a DTensor of the whole."""
    shape = list(part.shape)
    shape[dim] = shards.length
    return of_local(part, shards.mesh, [Shard(dim % part.dim())], shape)


def of_local(part: Tensor, mesh: DeviceMesh, placements: Sequence[Placement], shape: Sequence[int]) -> DTensor:
    """Returns the DTensor of this shape of which a process has a part, which may be uneven."""
    return DTensor.from_local(
        part.contiguous(), mesh, placements, run_check=False, shape=torch.Size(shape), stride=_strides(shape)
    )


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides of a contiguous tensor."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis], step = step, step * max(shape[axis], 1)
    return tuple(strides)


def gather(tensor: Any, shards: Shards | None = None, dim: int | None = None) -> Tensor:
    """Returns the whole tensor, on every process, in the order of its positions; its gradient reaches every part.

    Args:
        tensor: a DTensor of one sharded axis; or, with ``shards``, this process's part, a plain tensor.
        shards: which positions each process holds; None: one piece after the other.
        dim: the axis of positions. None: the sharded one of a DTensor, −2 of a plain tensor.

    Raises:
        KindError: the tensor is neither a DTensor nor a part together with shards.
        ArgumentError: it is sharded along several axes.
    """
    if not isinstance(tensor, DTensor):
        if not isinstance(tensor, Tensor) or shards is None:
            raise KindError(f"tensor must be a DTensor, or a part together with shards; it is {type_text(tensor)}")
        return shards.join(tensor, LENGTH if dim is None else dim)
    axes = [(axis, placement) for axis, placement in enumerate(tensor.placements) if isinstance(placement, Shard)]
    if not axes:
        return tensor.redistribute(placements=[Replicate()] * len(tensor.placements)).to_local()
    if shards is None:
        return tensor.full_tensor()
    if len(axes) != 1:
        raise ArgumentError(f"tensor must be sharded along one axis; its placements are {tensor.placements}")
    return shards.join(tensor.to_local(), axes[0][1].dim)
