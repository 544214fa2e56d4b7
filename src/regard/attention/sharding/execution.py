"""All steps of a sharded call, forward and backward.

The backward pass is written out, and not left to autograd: so all processes exchange the same things in the same order,
whatever each of them has to compute. Only the inputs are stored; a step is computed again.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.attention.sharding.agreement import begin_call
from regard.attention.sharding.calculation import Calculated, Received, ShardedCall, calculate, prepared_call
from regard.attention.sharding.plan import needs_whole
from regard.attention.sharding.readings import StepReadings
from regard.attention.sharding.steps import ExchangeStep
from regard.attention.sharding.whole import attend_whole
from regard.distributed.exchange import RowRoute, Travelling
from regard.distributed.shards import Shards, agree_backward
from regard.errors import BackendError
from regard.shapes.grid import upcast
from regard.tracing.transforms import uncompiled
from regard.tracing.versions import Versions, tensors_of


@uncompiled
def execute_sharded(
    problem: Problem, backend: str, gatherer: Gatherer | None = None, need_weights: bool = False
) -> Attended:
    """Runs a problem whose sequences lie in pieces on the processes of a mesh.

    Args:
        backend: ``auto`` or ``sharded``.
        need_weights: whether to return the weights of own queries, differentiable.

    Returns:
        output and weights of this process's queries.
    """
    placed = problem.placed
    assert placed is not None
    verb = "attend" if gatherer is None else "observe"
    read = None if gatherer is None else gatherer.read
    begin_call(problem, backend, verb, read, need_weights)
    if needs_whole(problem) is not None:
        return attend_whole(problem, gatherer, need_weights)
    with torch.autocast(placed.query.device.type, enabled=False):
        call = prepared_call(problem, _common_seed(placed.queries) if problem.dropout else 0)
        prepared, query, value = call.prepared, call.placed.query, call.placed.value
        own_query = query if problem.bias is not None and problem.bias.reads_query else None
        parts = [prepared.primitive, prepared.scale, prepared.modifiers, *_parts(problem)]
        others = [tensor for tensor in tensors_of(parts) if tensor.requires_grad]
        if torch.is_grad_enabled():
            _check_independence(others)
        inputs = prepared.query.expand(query.shape[0], query.shape[1], -1, -1), prepared.key, value, own_query
        output, weights = _ShardedAttend.apply(call, gatherer, need_weights, *inputs, *others)
    return Attended(output, weights if need_weights else None)


def _parts(problem: Problem) -> tuple[object, ...]:
    return problem.normalizer, problem.mask, problem.bias


def _check_independence(tensors: Sequence[Tensor]) -> None:
    """Raises BackendError if one of these tensors is calculated from another, whose gradient would count twice."""
    known = {id(_node_of(tensor)): tensor for tensor in tensors}
    for tensor in tensors:
        pending = [] if tensor.grad_fn is None else [node for node, _ in tensor.grad_fn.next_functions]
        seen = set[int]()
        while pending:
            node = pending.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            if id(node) in known:
                raise BackendError(
                    f"a tensor of shape {list(tensor.shape)} of the score, normalizer, mask or bias is calculated from "
                    f"another one there, of shape {list(known[id(node)].shape)}: keep only one of them there, or "
                    "calculate it in forward"
                )
            pending.extend(following for following, _ in node.next_functions)


def _node_of(tensor: Tensor) -> Any:
    """Returns the node of the graph through which a gradient reaches a tensor."""
    return tensor.view_as(tensor).grad_fn.next_functions[0][0] if tensor.grad_fn is None else tensor.grad_fn  # pyright: ignore[reportOptionalMemberAccess]


def _common_seed(shards: Shards) -> int:
    """Returns the seed of the first process; every process draws one, so that their generators stay alike."""
    return int(shards.of_first(torch.randint(2**62, ()).to(shards.mesh.device_type)))


class _ShardedAttend(torch.autograd.Function):
    """Implements `execute_sharded`."""

    @staticmethod
    def forward(
        ctx: Any, call: ShardedCall, gatherer: Gatherer | None, need_weights: bool, *tensors: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        query, key, value, own_query = tensors[:4]
        assert query is not None
        assert key is not None
        assert value is not None
        ctx.call, ctx.need_weights = call, need_weights
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.versions = Versions(others=_parts(call.problem))
        dtype = upcast(value).dtype
        output = torch.zeros(*query.shape[:3], value.shape[3], dtype=dtype, device=value.device)
        weights = output.new_zeros(*query.shape[:3], call.placed.keys.length if need_weights else 0)
        ctx.seeing = torch.zeros(query.shape[:3], dtype=torch.bool, device=value.device)
        readings = None if gatherer is None else StepReadings(call, gatherer)
        for step, route, received in _journeys(call, query, own_query, key, value):
            calculated = calculate(call, step, route, received)
            call.put_rows(output, step, route.collect(calculated.partial))
            if call.problem.may_hide:
                call.put_rows(ctx.seeing, step, route.collect(_visible(calculated), "max")[..., 0] > 0)
            if need_weights:
                call.put_rows(weights, step, calculated.rows.collected(calculated.weights, 0.0))
            if readings is not None:
                readings.add(step, route, calculated)
        ctx.versions.forget_changed()
        if readings is not None:
            readings.finish()
        return output.to(value.dtype), weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        call: ShardedCall = ctx.call
        agree_backward(call.placed.queries, call.placed.number, gradients, ctx.versions)
        query, key, value, own_query, *others = ctx.saved_tensors
        grad_output, grad_weights = gradients
        dtype = upcast(value).dtype
        if grad_output is None:
            grad_output = torch.zeros(*query.shape[:3], value.shape[3], dtype=dtype, device=value.device)
        grad_output = grad_output.to(dtype)
        if call.problem.may_hide:
            grad_output = grad_output.masked_fill(~ctx.seeing[..., None], 0.0)
        has_weights = ctx.need_weights
        if has_weights and grad_weights is None:
            grad_weights = torch.zeros(*query.shape[:3], call.placed.keys.length, dtype=dtype, device=value.device)
        totals = [torch.zeros_like(one, dtype=upcast(one).dtype) for one in (query, key, value, *others)]
        of_query, of_key, of_value, *of_others = totals
        of_own_query = None if own_query is None else torch.zeros_like(own_query, dtype=dtype)
        with torch.autocast(query.device.type, enabled=False):
            for step, route, received in _journeys(call, query, own_query, key, value):
                received.parts = []
                rows = [received.query.requires_grad_()]
                if received.own_query is not None:
                    rows.append(received.own_query.requires_grad_())
                with torch.enable_grad():
                    calculated = calculate(call, step, route, received)
                results, grads = [calculated.partial], [route.send(call.own_rows(grad_output, step))]
                if has_weights:
                    assert grad_weights is not None
                    columns = route.send_columns(call.own_rows(grad_weights, step))
                    pieces = columns.split([len(block.rows) for block in step.blocks], dim=2) if step.blocks else ()
                    for weight, piece, part in zip(calculated.weights, calculated.rows.pieces, pieces, strict=True):
                        if weight.requires_grad:
                            results.append(weight)
                            grads.append(part.index_select(3, piece.columns))
                leaves = [*rows, *others, *(leaf for _, *pair in received.parts for leaf in pair)]
                derivatives = iter(torch.autograd.grad(results, leaves, grads, allow_unused=True))
                for row, total in zip(rows, (of_query, of_own_query), strict=False):
                    assert total is not None
                    call.put_rows(total, step, route.collect(upcast(_or_zeros(next(derivatives), row))))
                for total in of_others:
                    total += _or_zeros(next(derivatives), total)
                for first, part, _ in received.parts:
                    for total in (of_key, of_value):
                        slot = total.narrow(2, first, part.shape[2])
                        slot += _or_zeros(next(derivatives), slot)
        return None, None, None, of_query, of_key, of_value, of_own_query, *of_others


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def _journeys(
    call: ShardedCall, query: Tensor, own_query: Tensor | None, key: Tensor, value: Tensor
) -> Iterator[tuple[ExchangeStep, RowRoute, Received]]:
    """Yields the steps with what has arrived; the rows of the next step travel while one is calculated."""

    def depart(step: ExchangeStep) -> tuple[RowRoute, list[Travelling]]:
        route = call.route(step)
        rows = (query,) if own_query is None else (query, own_query)
        return route, [route.depart(call.own_rows(each.detach(), step)) for each in rows]

    ahead = depart(call.steps[0]) if call.steps else None
    for index, step in enumerate(call.steps):
        assert ahead is not None
        route, travelling = ahead
        ahead = depart(call.steps[index + 1]) if index + 1 < len(call.steps) else None
        arrived = [each.arrive() for each in travelling]
        yield step, route, Received(arrived[0], arrived[1] if own_query is not None else None, key, value)


def _visible(calculated: Calculated) -> Tensor:
    """Returns 1 for each row of which this process has a visible key, else 0, ``[batch, heads, rows, 1]``."""
    anchor = calculated.rows.anchor
    parts: Sequence[Tensor] = [
        (piece.scores != -torch.inf).any(-1, keepdim=True).to(anchor.dtype) for piece in calculated.rows.pieces
    ]
    return torch.cat([anchor, *parts], dim=2)
