"""The tensors of a sharded call: this process's parts of the sequences, and the whole that is checked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.distributed.sequence_parts import are_parts
from regard.errors import ArgumentError, KindError, ShapeError
from regard.shapes.checks import type_text
from regard.shapes.layout import with_four_axes, without_added_axes
from regard.tracing.transforms import is_dtensor

if TYPE_CHECKING:
    from regard.distributed.shards import Shards

LENGTH = -2
"""The axis of positions."""


@dataclass(eq=False)
class Placed:
    """This process's parts of one call.

    Attributes:
        query: ``[batch, heads, own queries, dim]``.
        key: ``[batch, kv_heads, own keys, dim]``.
        value: ``[batch, kv_heads, own keys, value_dim]``.
        queries, keys: the positions that each process holds.
        batch_size: the batch rows of all processes.
        wrap: makes of a part with the user's axes what the call returns; its axis of positions, or None where every
            process has the whole.
        number: which call it is of those that the processes have made.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    queries: "Shards"
    keys: "Shards"
    batch: range
    batch_size: int
    rank: int
    wrap: Callable[[Tensor, int | None, "Shards"], Any]
    number: int

    def whole(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns query, key and value of the whole call, without memory for their elements, which are NaN."""
        lengths = self.queries.length, self.keys.length, self.keys.length
        wholes = (
            part.new_full((), torch.nan).expand(self.batch_size, part.shape[1], length, part.shape[3])
            for part, length in zip((self.query, self.key, self.value), lengths, strict=True)
        )
        query, key, value = (without_added_axes(whole, self.rank) for whole in wholes)
        return query, key, value

    def refuse(self, error: Exception) -> None:
        """Tells the other processes that this one cannot make the call."""
        from regard.distributed.agreement import refuse

        refuse(self.queries, self.number, error)


def is_placed(*tensors: object) -> bool:
    """Whether a call's tensors are parts: DTensors, or plain ones within `regard.distributed.sequence`."""
    return any(map(is_dtensor, tensors)) or are_parts()


def processes_of(*tensors: Any) -> "Shards | None":
    """Returns shards of the processes that make a call, whatever its lengths are; None if it does not say them."""
    from regard.distributed.sequences import current
    from regard.distributed.shards import Shards

    if current():
        return current()[0]
    from torch.distributed.tensor import Shard

    for tensor in filter(is_dtensor, tensors):
        mesh, along = tensor.device_mesh, Shard(tensor.dim() + LENGTH)
        if mesh.ndim == 1:
            return Shards.contiguous(0, mesh)
        if along in tensor.placements and mesh.mesh_dim_names:
            return Shards.contiguous(0, mesh[mesh.mesh_dim_names[tensor.placements.index(along)]])
    return None


def place_tensors(query: Any, key: Any, value: Any, number: int) -> Placed:
    """Returns the parts of a call for which `is_placed` is true.

    Raises:
        KindError, ShapeError, ArgumentError: the tensors are not sharded alike, or along other axes than the length.
    """
    tensors = {"query": query, "key": key, "value": value}
    has_dtensors = any(map(is_dtensor, tensors.values()))
    sides = [] if has_dtensors else _sides(query, key)
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise KindError(f"{name} must be a floating-point tensor; it is {type_text(tensor)}")
        if not 2 <= tensor.dim() <= 4:
            raise ArgumentError(f"{name} must have 2 to 4 axes; it has shape {list(tensor.shape)}")
    if has_dtensors:
        return _of_dtensors(tensors, number)
    queries, keys = sides
    if value.shape[LENGTH] != keys.count():
        raise ShapeError(f"value must have key's keys, {keys.count()} on this process; it has {value.shape[LENGTH]}")
    for name, tensor in tensors.items():
        _check_device(name, tensor, queries)
    rank = query.dim()
    query, key, value = (with_four_axes(tensor, rank) for tensor in (query, key, value))
    batch = query.shape[0]
    return Placed(query, key, value, queries, keys, range(batch), batch, rank, lambda part, axis, shards: part, number)


def _sides(query: Any, key: Any) -> list["Shards"]:
    """Returns the shards of plain queries and keys; other processes learn their lengths whatever they are."""
    from regard.distributed.sequences import shards_of

    def length(tensor: Any) -> int:
        return tensor.shape[LENGTH] if isinstance(tensor, Tensor) and tensor.dim() >= 2 else -1

    return shards_of(query=length(query), key=length(key))


def _check_device(name: str, tensor: Tensor, shards: "Shards") -> None:
    if tensor.device.type != shards.mesh.device_type:
        raise KindError(
            f"{name} must be on the mesh's device, {shards.mesh.device_type}; it is on {tensor.device.type}"
        )


def _of_dtensors(tensors: dict[str, Any], number: int) -> Placed:
    from torch.distributed.tensor import DTensor, Replicate, Shard

    for name, tensor in tensors.items():
        if not isinstance(tensor, DTensor):
            raise KindError(
                f"{name} must be a DTensor, as the other inputs are; it is {type_text(tensor)}: write "
                f"regard.distributed.shard({name}, mesh)"
            )
    query = tensors["query"]
    mesh, rank = query.device_mesh, query.dim()
    sequence_axis, batch_axis = None, None
    for name, tensor in tensors.items():
        if tensor.device_mesh != mesh:
            raise ArgumentError(f"{name} must be on query's mesh, {mesh}; it is on {tensor.device_mesh}")
        for axis, placement in enumerate(tensor.placements):
            if isinstance(placement, Replicate):
                continue
            dim = placement.dim if isinstance(placement, Shard) else None
            if dim == rank + LENGTH and sequence_axis in (None, axis):
                sequence_axis = axis
            elif dim == 0 and rank > 2 and batch_axis in (None, axis):
                batch_axis = axis
            else:
                raise ArgumentError(
                    f"{name} can be sharded along its length, axis {rank + LENGTH}, by one axis of the mesh, and along "
                    f"its batch by another; its placements are {tensor.placements}"
                )
    if sequence_axis is None or sequence_axis == batch_axis:
        raise ArgumentError("query, key and value are DTensors, but none is sharded along its length: shard one")
    from regard.distributed.sequences import current, of_local
    from regard.distributed.shards import Shards

    axis: int = sequence_axis
    if mesh.ndim > 1 and not mesh.mesh_dim_names:
        raise ArgumentError("mesh must name its axes if it has several: init_device_mesh(..., mesh_dim_names=...)")
    line = mesh if mesh.ndim == 1 else mesh[mesh.mesh_dim_names[axis]]

    def shards_of(length: int) -> Shards:
        for one in current():
            if one.length == length and one.mesh == line:
                if one.is_contiguous:
                    return one
                raise ArgumentError(
                    "a DTensor holds one piece after the other, and sequence(...) says another order: pass plain parts "
                    "within it, shards.cut(tensor, dim)"
                )
        return Shards.contiguous(length, line)

    batch_size = query.shape[0] if rank > 2 else 1
    batch = range(batch_size)
    if batch_axis is not None:
        processes, own = mesh.size(batch_axis), mesh.get_coordinate()[batch_axis]
        size = -(-batch_size // processes)
        batch = range(min(own * size, batch_size), min((own + 1) * size, batch_size))

    def part(tensor: Any, shards: Shards) -> Tensor:
        from torch.distributed.tensor import Partial

        split = [isinstance(placement, Shard) for placement in tensor.placements]
        # A tensor that every process has gets the sum of the gradients of all parts.
        gradients = [
            Partial() if index in (axis, batch_axis) and not split[index] else placement
            for index, placement in enumerate(tensor.placements)
        ]
        local = tensor.to_local(grad_placements=gradients)
        if split[axis] and local.shape[LENGTH] != shards.count():
            raise ShapeError(
                f"a process must have {shards.count()} of {shards.length} positions, as PyTorch's Shard cuts them; a "
                f"DTensor has {local.shape[LENGTH]}: write regard.distributed.shard(tensor, mesh)"
            )
        if not split[axis]:
            local = shards.cut(local, LENGTH)
        if batch_axis is not None and not split[batch_axis]:
            local = local[batch.start : batch.stop]
        _check_device("a DTensor", local, shards)
        return with_four_axes(local, rank)

    queries, keys = shards_of(query.shape[LENGTH]), shards_of(tensors["key"].shape[LENGTH])
    has_whole = not isinstance(query.placements[axis], Shard)

    def wrap(local: Tensor, dim: int | None, shards: Shards) -> Any:
        placements: list[Any] = [Replicate()] * mesh.ndim
        shape = list(local.shape)
        if batch_axis is not None:
            placements[batch_axis], shape[0] = Shard(0), batch_size
        if dim is not None:
            placements[axis], shape[dim] = Shard(dim % local.dim()), shards.length
        result = of_local(local, mesh, placements, shape)
        if has_whole and dim is not None and shards is queries:
            placements[axis] = Replicate()
            return result.redistribute(mesh, placements)
        return result

    parts = part(query, queries), part(tensors["key"], keys), part(tensors["value"], keys)
    return Placed(*parts, queries, keys, batch, batch_size, rank, wrap, number)
