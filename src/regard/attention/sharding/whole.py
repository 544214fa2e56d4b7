"""Calls whose weights depend on all queries, or whose numbers are random: every process gets the whole sequence.

Each process runs the whole problem as one process does, and keeps its own rows. Memory is that of one process.
"""

from dataclasses import replace

import torch
from torch import Tensor

from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.attention.sharding.placement import LENGTH
from regard.distributed.sequence_parts import within
from regard.distributed.shards import Shards
from regard.errors import ArgumentError


def attend_whole(problem: Problem, gatherer: Gatherer | None, need_weights: bool) -> Attended:
    """Returns output and weights of this process's queries; the arguments are those of `execute_sharded`."""
    from regard.attention.execution import execute

    placed = problem.placed
    assert placed is not None
    if len(placed.batch) != placed.batch_size:
        raise ArgumentError(
            f"the batch cannot be sharded with {type(problem.normalizer).__name__}, which sees a whole call at once"
        )
    query = placed.queries.join(placed.query, LENGTH)
    key, value = placed.keys.join(placed.key, LENGTH), placed.keys.join(placed.value, LENGTH)
    bias = None if problem.bias is None else problem.bias.of_keys(key)
    one = replace(problem, query=query, key=key, value=value, bias=bias, placed=None)
    own = None if gatherer is None else Gatherer(one, gatherer.read)
    if problem.dropout or problem.normalizer.random:
        # All processes draw the same numbers.
        state = torch.get_rng_state().to(placed.queries.mesh.device_type)
        torch.set_rng_state(placed.queries.of_first(state).cpu())
        generator = problem.normalizer.generator
        if generator is not None:
            state = generator.get_state().to(placed.queries.mesh.device_type)
            generator.set_state(placed.queries.of_first(state).cpu())
    with within(()):
        attended = execute(one, "auto", own, need_weights)
    if gatherer is not None and own is not None:
        for name in ("lse", "entropy", "peak", "top_weights", "top_indices", "distance", "weights", "shares"):
            setattr(own, name, _cut(getattr(own, name), placed.queries))
        for name, axis in (("received", 2), ("rows", 3)):
            setattr(own, name, _cut(getattr(own, name), placed.keys, axis))
        gatherer.fill(own.tensors())
    weights = None if attended.weights is None else placed.queries.cut(attended.weights, 2)
    return Attended(placed.queries.cut(attended.output, 2), weights)


def _cut(tensor: Tensor, shards: Shards, axis: int = 2) -> Tensor:
    """Returns this process's part of a reading; one that was not taken is empty, and stays so."""
    return shards.cut(tensor, axis) if tensor.dim() > axis else tensor
