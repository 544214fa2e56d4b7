"""Fused attention under masks that are not runs of keys, made dense for a slice of rows at a time, and with functions
of a row of scores."""

from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor

from regard.attention.backends.cpu.row_functions import RowFunctions
from regard.kernels.cpu.kernel_arguments import KernelInputs
from regard.kernels.cpu.second_derivative import refuse_batched_gradients, refuse_second_derivative
from regard.masks import Mask
from regard.shapes.grid import Grid
from regard.tracing.versions import Versions

SLICE_PAIRS = 1 << 24
"""Pairs for which a mask is made dense at once: 16 MiB of bools."""

FROM_ROWS = ("query", "center", "sigma")
"""Inputs with one element for each row, along axis 2."""


def row_slices(inputs: KernelInputs, mask: Mask | None, grid: Grid) -> Iterator[tuple[KernelInputs, range]]:
    """Yields the inputs in slices of rows, each with its part of the mask; whole if no mask has to be made dense."""
    if mask is None:
        yield inputs, range(grid.queries)
        return
    step = max(1, min(grid.queries, SLICE_PAIRS // max(grid.keys, 1)))
    for first in range(0, grid.queries, step):
        rows = range(first, min(first + step, grid.queries))
        yield slice_of(inputs, mask, grid, rows), rows


def slice_of(inputs: KernelInputs, mask: Mask, grid: Grid, rows: range) -> KernelInputs:
    """Returns the inputs of some rows, with their dense mask and the first and the last key that each row sees."""
    allowed = mask.with_four_axes(grid.tile(queries=rows))
    allowed = allowed.expand(allowed.shape[0], allowed.shape[1], len(rows), grid.keys).contiguous()
    start, stop = ends_of(allowed)
    parts: dict[str, Any] = {"mask": allowed, "start": start, "stop": stop, "seed": inputs.seed + rows.start}
    parts["function_row"] = rows.start
    for name in (*FROM_ROWS, "bias"):
        whole = getattr(inputs, name)
        parts[name] = None if whole is None else part_of(whole, name, inputs, rows)
    return inputs._replace(**parts)


def ends_of(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first key that each row of a dense mask sees, and the end of its keys: one run, 0 for no key."""
    seen, elements = allowed.any(-1, keepdim=True), allowed.view(torch.uint8)
    start = elements.argmax(-1, keepdim=True)
    stop = allowed.shape[-1] - elements.flip(-1).argmax(-1, keepdim=True)
    return torch.where(seen, start, 0).to(torch.int32), torch.where(seen, stop, 0).to(torch.int32)


class DenseRows(torch.autograd.Function):
    """Computes attention slice by slice. The backward pass makes each slice's mask again, so that none is stored.

    The tensors that a function of scores differentiates follow the fields of the inputs.
    """

    @staticmethod
    def forward(ctx: Any, mask: Mask | None, grid: Grid, functions: RowFunctions, *fields: Any) -> Tensor:
        from regard.kernels.cpu import operators

        inputs = KernelInputs(*fields[: len(KernelInputs._fields)])
        outputs, statistics = [], []
        for part, _ in row_slices(inputs, mask, grid):
            output, statistic, _ = operators.attend(*part)
            outputs.append(output)
            statistics.append(statistic)
        functions.check()
        ctx.mask, ctx.grid, ctx.functions = mask, grid, functions
        if any(ctx.needs_input_grad):
            read = [] if functions.score is None else functions.score.tensors
            hides = functions.mask.tensors if functions.mask is not None and inputs.mask_function else mask
            ctx.versions = Versions(mask=hides, score=read)
        ctx.indices = [index for index, value in enumerate(inputs) if isinstance(value, Tensor)]
        ctx.constants = [None if isinstance(value, Tensor) else value for value in inputs]
        ctx.save_for_backward(*statistics, *(inputs[index] for index in ctx.indices))
        return torch.cat(outputs, dim=2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        from regard.kernels.cpu.operators import GRADIENTS, attend_backward, chunks_of

        refuse_batched_gradients(*gradients)
        tensors = ctx.saved_tensors
        ctx.versions.check()
        statistics, saved = tensors[: -len(ctx.indices)], tensors[-len(ctx.indices) :]
        values = list(ctx.constants)
        for index, tensor in zip(ctx.indices, saved, strict=True):
            values[index] = tensor
        inputs = KernelInputs(*values)
        tensors_by_name = {name: getattr(inputs, name) for name in GRADIENTS}
        sums = {name: torch.zeros_like(tensor) for name, tensor in tensors_by_name.items() if tensor is not None}
        score = ctx.functions.score
        read = [] if score is None else [tensor for tensor in score.tensors if tensor.requires_grad]
        grads = [torch.zeros_like(tensor) for tensor in read]
        for (part, rows), statistic in zip(row_slices(inputs, ctx.mask, ctx.grid), statistics, strict=True):
            memory: list[Tensor] = []
            if score is not None:
                data, memory = score.with_sums(part.query.shape[0], part.key.shape[1], chunks_of(part))
                part = part._replace(score_data=data)
            passed = attend_backward(gradients[0][:, :, rows.start : rows.stop], None, statistic, None, *part)
            for gradient, own in zip(grads, memory, strict=True):
                gradient += own.sum((0, 1, 2)).view(gradient.shape)
            for name, gradient in zip(GRADIENTS, passed, strict=True):
                if name in sums:
                    part_of(sums[name], name, inputs, rows).add_(gradient)
        if grads:
            grads = Underivable.apply(len(grads), *grads, *tensors)
        return (None, None, None, *(sums.get(name) for name in KernelInputs._fields), *grads)


class Underivable(torch.autograd.Function):
    """Returns gradients that depend on tensors in a way that has no derivative."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> NoReturn:
        refuse_second_derivative()


def part_of(whole: Tensor, name: str, inputs: KernelInputs, rows: range) -> Tensor:
    """Returns the part of an input, or of its gradient, that belongs to a slice of rows."""
    if name == "bias" and inputs.diagonal:
        # The diagonals that cross these rows.
        first = inputs.query.shape[2] - rows.stop
        return whole[:, first : first + len(rows) + inputs.key.shape[2] - 1]
    if name in FROM_ROWS or (name == "bias" and whole.shape[2] != 1):
        return whole[:, :, rows.start : rows.stop]
    return whole
