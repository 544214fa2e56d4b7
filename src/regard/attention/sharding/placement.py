"""What the tensors of a call stand for: this process's parts of sharded sequences, and the whole that is checked."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.errors import ArgumentError, KindError
from regard.layout import with_four_axes, without_added_axes
from regard.sequence_parts import are_parts

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
        batch: the batch rows that this process has.
        batch_size: the batch rows of all processes.
        rank: how many axes the user's tensors have.
        wrap: makes of a part with the user's axes what the call returns; its axis of positions, or None where every
            process has the whole.
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

    def whole(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns query, key and value of the whole call, without memory for their elements."""
        lengths = self.queries.length, self.keys.length, self.keys.length
        wholes = (
            part.new_empty(()).expand(self.batch_size, part.shape[1], length, part.shape[3])
            for part, length in zip((self.query, self.key, self.value), lengths, strict=True)
        )
        query, key, value = (without_added_axes(whole, self.rank) for whole in wholes)
        return query, key, value


def is_placed(query: object) -> bool:
    """Whether a call's tensors are parts: DTensors, or plain ones within `regard.distributed.sequence`."""
    return _is_dtensor(query) or are_parts()


def _is_dtensor(tensor: object) -> bool:
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def processes_of(query: Any) -> "Shards":
    """Returns shards of the processes that make a call, whatever its lengths are, for their agreement."""
    from regard.distributed.sequences import current
    from regard.distributed.shards import Shards

    if current():
        return current()[0]
    mesh = query.device_mesh
    if mesh.ndim > 1:
        from torch.distributed.tensor import Shard

        along = [axis for axis, one in enumerate(query.placements) if one == Shard(query.dim() + LENGTH)]
        axis = along[0] if along else mesh.ndim - 1
        mesh = mesh[(mesh.mesh_dim_names or ())[axis]]
    return Shards.contiguous(0, mesh)


def place_tensors(query: Any, key: Any, value: Any) -> Placed:
    """Returns the parts of a call for which `is_placed` is true.

    Raises:
        KindError, ShapeError, ArgumentError: the tensors are not sharded alike, or along other axes than the length.
    """
    tensors = {"query": query, "key": key, "value": value}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise KindError(f"{name} must be a floating-point tensor; it is a {type(tensor).__name__}")
        if not 2 <= tensor.dim() <= 4:
            raise ArgumentError(f"{name} must have 2 to 4 axes; it has shape {list(tensor.shape)}")
    if _is_dtensor(query) or _is_dtensor(key) or _is_dtensor(value):
        return _of_dtensors(tensors)
    from regard.distributed.sequences import shards_of

    queries, keys = shards_of(query=query.shape[LENGTH], key=key.shape[LENGTH])
    rank = query.dim()
    query, key, value = (with_four_axes(tensor, rank) for tensor in (query, key, value))
    batch = query.shape[0]
    return Placed(query, key, value, queries, keys, range(batch), batch, rank, lambda part, axis, shards: part)


def _of_dtensors(tensors: dict[str, Any]) -> Placed:
    from torch.distributed.tensor import DTensor, Replicate, Shard

    for name, tensor in tensors.items():
        if not isinstance(tensor, DTensor):
            raise KindError(
                f"{name} must be a DTensor, as the other inputs are; it is a {type(tensor).__name__}: write "
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
                return one
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
        # What every process has gets the sum of the gradients of all parts.
        gradients = [placement if one else Partial() for placement, one in zip(tensor.placements, split, strict=True)]
        local = tensor.to_local(grad_placements=gradients)
        if not split[axis]:
            local = shards.cut(local, LENGTH)
        if batch_axis is not None and not split[batch_axis]:
            local = local[batch.start : batch.stop]
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
    return Placed(*parts, queries, keys, batch, batch_size, rank, wrap)
