"""Sequences that lie in pieces on the processes of a `torch.distributed` mesh.

`shard` cuts a tensor, and `regard.attend` and the other verbs take the pieces as what they are, a
`torch.distributed.tensor.DTensor`: each process gets its share of what one process would get::

    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("sequence",))
    query, key, value = (distributed.shard(tensor, mesh) for tensor in (query, key, value))
    output = regard.attend(query, key, value, mask="causal")     # a DTensor, sharded as query is
    whole = distributed.gather(output)

In a model whose layers see plain tensors, `sequence` says what the lengths of a process stand for. `Shards` says which
positions each process holds: one piece after the other, or in an order that gives every process as many pairs to
compute under a mask (`Shards.balanced`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.distributed.sequences import gather, sequence, shard
    from regard.distributed.shards import Shards

__all__ = ["Shards", "gather", "sequence", "shard"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
