"""``cpu``: fused kernels, compiled at run time from Python; linear memory, forward and backward.

`regard.attention.backends.cpu.inputs` says why the kernels cannot run a problem and turns it into their inputs; `Fused`
runs them.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attention.backends.backend import Backend, Bound
from regard.attention.backends.cpu.cached_memory import FusedMemory
from regard.attention.backends.cpu.columns import attend_columns, column_call
from regard.attention.backends.cpu.dense_rows import DenseRows, row_slices
from regard.attention.backends.cpu.documents import attend_documents, packed_call
from regard.attention.backends.cpu.inputs import (
    is_paired,
    is_stored_in_half,
    kernel_inputs,
    obstacle,
    with_exponentials,
    with_heads_as_rows,
)
from regard.attention.backends.cpu.prepared_launches import PreparedCall
from regard.attention.backends.cpu.row_functions import row_functions
from regard.attention.backends.tiled import read_shares
from regard.attention.kinds import fixed_kind
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.kernels.availability import why_missing
from regard.kernels.cpu.kernel_arguments import READINGS, KernelInputs, ReadingOptions
from regard.masks import Mask
from regard.scores import Additive, Dot, InnerProduct, ReluSum, ScaledDot, Score
from regard.tracing.transforms import can_branch_on, has_plain_memory

if TYPE_CHECKING:
    from regard.kernels.cpu.kernel import Kernel


class Fused(Backend):
    """Runs inner products and additive scores × softmax (with a sink), entmax, sigmoid, hard, local windows × masks."""

    name = "cpu"
    why = "fused kernels run this in linear memory, faster than anything else here"
    measured = (
        "additive", "entmax15-attention", "small-sparsemax", "window", "ragged", "dot-causal", "dot-1024", "dot-batch",
    )  # fmt: skip
    reads = True

    def declines(self, problem: Problem) -> str | None:
        return why_missing() or obstacle(problem)

    def delay(self, problem: Problem, gatherer: Gatherer | None = None) -> str | None:
        from regard.kernels.cpu import kernel

        return kernel.delay(required_kernels(problem, gatherer))

    def prepare(self, problem: Problem, gatherer: Gatherer | None = None) -> None:
        from regard.kernels.cpu import kernel

        kernel.request(required_kernels(problem, gatherer))

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        from regard.kernels.cpu import operators

        if problem.memory is not None:
            return problem.memory.attend(problem).output
        output = None
        if (documents := packed_call(problem)) is not None:
            output = attend_documents(documents, problem)
        elif (columns := column_call(problem)) is not None:
            output = attend_columns(columns, problem)
        if output is not None:
            if gatherer is not None:
                self.read(problem, gatherer)
            return output
        inputs = _prepared(problem, gatherer)
        functions, mask = row_functions(problem), _dense_mask(problem)
        if mask is None and functions.score is None and not inputs.mask_function:
            tensors = (part for part in inputs if isinstance(part, Tensor))
            dispatched = problem.wants_gradient or not can_branch_on(*tensors)
            if problem.wants_gradient and inputs.saves_weights:
                inputs = inputs._replace(return_weights=True)
            attend = operators.attend if dispatched else operators.attend_now
            output = attend(*with_heads_as_rows(inputs))[0].view(*problem.query.shape[:3], -1)
            functions.check()
        else:
            tensors = () if functions.score is None else functions.score.differentiable
            output = DenseRows.apply(mask, problem.grid, functions, *inputs, *tensors)
        if gatherer is not None:
            read(inputs, mask, gatherer)
            read_shares(problem, gatherer)
        return output.to(problem.value.dtype)

    def bind(self, problem: Problem, any_keys: bool) -> Bound | None:
        score = problem.score
        is_plain = type(score) in (Dot, ScaledDot) or (type(score) is Additive and _has_plain_weight(score))
        if not is_plain or problem.bias is not None or problem.wants_gradient:
            return None
        if problem.query.dtype != torch.float32 and not is_stored_in_half(problem):
            return None
        if problem.lowered.dense_mask is not None or fixed_kind(problem.hiding_mask) is None:
            return None
        if not all(map(has_plain_memory, (problem.query, problem.key, problem.value))):
            return None
        prepared = PreparedCall.of(problem, any_keys)
        return None if prepared is None else prepared.run

    def read(self, problem: Problem, gatherer: Gatherer) -> None:
        read(with_exponentials(kernel_inputs(problem)), _dense_mask(problem), gatherer)
        read_shares(problem, gatherer)

    def run_with_weights(self, problem: Problem) -> Attended | None:
        from regard.kernels.cpu import operators

        if problem.memory is not None:
            attended = problem.memory.attend(problem)
            return None if attended.weights is None else attended
        is_sliced = _dense_mask(problem) is not None or row_functions(problem).score is not None
        if is_sliced or packed_call(problem) is not None or column_call(problem) is not None:
            return None
        inputs = with_heads_as_rows(_prepared(problem)._replace(return_weights=True))
        output, weights = (part.view(*problem.query.shape[:3], -1) for part in operators.attend(*inputs)[::2])
        row = problem.row
        assert row is not None
        if row.kind == "hard" and row.center is None:
            # These weights do not depend on the scores.
            weights = weights.detach()
        return Attended(output.to(problem.value.dtype), weights)

    def prepare_memory(self, key: Tensor, value: Tensor, score: Score, mask: Tensor | None) -> FusedMemory | None:
        return None if why_missing() else FusedMemory.prepare(key, value, score, mask)


def _dense_mask(problem: Problem) -> Mask | None:
    """Returns the mask if it has to be made dense."""
    return problem.lowered.dense_mask if row_functions(problem).mask is None else None


def _has_plain_weight(score: Additive) -> bool:
    """Whether an additive score has no projections, and a weight that kernels can read as it is."""
    if score.query_projection is not None or score.key_projection is not None:
        return False
    weight = score.weight
    return weight.dtype == torch.float32 and weight.is_cpu and weight.stride(-1) == 1 and has_plain_memory(weight)


def _prepared(problem: Problem, gatherer: Gatherer | None = None) -> KernelInputs:
    """Returns the kernels' inputs with the exponentials of an additive score's keys and a seed for dropout.

    Args:
        problem: the problem; its missing kernels are requested at once.
        gatherer: gets the readings; None if there are none.
    """
    from regard.kernels.cpu import kernel

    kernel.request(required_kernels(problem, gatherer), awaited=True)
    inputs = with_exponentials(kernel_inputs(problem))
    return inputs._replace(seed=int(torch.randint(2**62, ()).item())) if inputs.dropout else inputs


def required_kernels(problem: Problem, gatherer: Gatherer | None) -> "tuple[Kernel, ...]":
    """Returns the kernels that a problem and its readings may need."""
    from regard.kernels.cpu import kernels

    row = problem.row
    if row is None:
        return ()
    if gatherer is None and packed_call(problem) is not None:
        return kernels.for_documents(problem.wants_gradient)
    if gatherer is None and column_call(problem) is not None:
        return kernels.for_columns(problem.wants_gradient)
    primitive = problem.prepared.primitive
    units = "product" if isinstance(primitive, InnerProduct) else "relu" if isinstance(primitive, ReluSum) else "tanh"
    normalizer = kernels.row_normalizer(row.kind, row.temperature, row.alpha)["normalizer"]
    dtype = torch.float64 if problem.query.dtype == torch.float64 else torch.float32
    functions = row_functions(problem)
    gradient = problem.wants_gradient or functions.wants_gradient
    required = (*kernels.for_calls(dtype, units, normalizer, gradient), *functions.kernels(gradient))
    if is_stored_in_half(problem):
        required = (*required, kernels.multiply(problem.value.dtype))
    if is_paired(problem):
        required = (*required, kernels.multiply_pairs(), kernels.transposed(torch.float32))
    return required if gatherer is None else (*required, *kernels.for_readings(dtype, units, normalizer))


_OF_ROWS = ("lse", "entropy", "peak", "top_weights", "top_indices", "distance")
"""Readings with one element, or a few, for each row."""


@torch.no_grad()
def read(call: KernelInputs, mask: Mask | None, gatherer: Gatherer) -> None:
    """Fills a gatherer.

    Args:
        mask: a mask that has to be made dense, a slice of rows at a time, or None.
    """
    from regard.kernels.cpu import operators

    grid, readings = gatherer.grid, gatherer.read
    # All rows come at once, so the kernel's tensors replace these, whose memory is freed first.
    whole = mask is None and readings.top_k <= grid.keys
    if whole:
        vars(gatherer).update(dict.fromkeys(_OF_ROWS, gatherer.lse.new_empty(0)))
    for part, rows in row_slices(call, mask, grid):
        options = statistics_of(gatherer, rows.start)
        _store(operators.read(*part, *options), None if whole else rows, gatherer)
        for stored, chosen, keys in _stored(gatherer):
            slots = torch.full((grid.queries,), -1)
            slots[list(chosen)] = torch.arange(len(chosen))
            options = ReadingOptions(
                row_slots=slots[rows.start : rows.stop].contiguous(),
                stored_rows=len(chosen),
                first_stored_key=keys.start,
                stored_keys=len(keys),
                only_stored=True,
            )
            stored += operators.read(*part, *options)[-1]


def statistics_of(gatherer: Gatherer, first_row: int = 0) -> ReadingOptions:
    """Returns the options for a gatherer's statistics of rows and columns, for rows from ``first_row`` on."""
    grid, readings = gatherer.grid, gatherer.read
    return ReadingOptions(
        entropy=readings.entropy,
        peak=readings.peak,
        top_k=min(readings.top_k, grid.keys),
        received=readings.received,
        distance=readings.distance,
        pooled=list(gatherer.cells) if readings.pooled is not None else [],
        key_offset=grid.offset + first_row,
        first_row=first_row,
        all_rows=grid.queries,
    )


def _stored(gatherer: Gatherer) -> Iterator[tuple[Tensor, Sequence[int], range]]:
    """Yields the weights that are stored: the tensor for them, their rows, and their keys."""
    readings, grid = gatherer.read, gatherer.grid
    if readings.rows is not None:
        yield gatherer.rows, gatherer.chosen, range(grid.keys)
    if readings.tile is not None:
        queries, keys = gatherer.rectangle
        yield gatherer.tile, range(*queries), range(*keys)
    if readings.weights:
        yield gatherer.weights, range(grid.queries), range(grid.keys)


def _store(tensors: list[Tensor], rows: range | None, gatherer: Gatherer) -> None:
    """Stores the statistics of some rows in the gatherer; those of all rows (None) replace its tensors."""
    tensor_of = dict(zip((reading.name for reading in READINGS), tensors, strict=True))
    for name in _OF_ROWS:
        if rows is None:
            setattr(gatherer, name, tensor_of[name])
        elif tensor_of[name].numel() > 0:
            part = getattr(gatherer, name)[:, :, rows.start : rows.stop]
            (part[..., : tensor_of[name].shape[3]] if part.dim() == 4 else part).copy_(tensor_of[name])
    if gatherer.read.received:
        gatherer.received += tensor_of["received"]
    if gatherer.read.pooled is not None:
        gatherer.pooled_sum += tensor_of["pooled_sum"]
        torch.maximum(gatherer.pooled_max, tensor_of["pooled_max"], out=gatherer.pooled_max)
