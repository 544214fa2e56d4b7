"""``torch.export`` programs: they load without regard, and take batches and lengths of any size."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram, export
from torch.export.graph_signature import InputKind

from regard.errors import ArgumentError, RunError
from regard.exports.program import PADDING, Program
from regard.files.atomic import AtomicFile
from regard.models.padded_recurrence import PORTABLE_OPERATORS
from regard.tracing.portable import portable_operations

LARGEST_DIFFERENCE = 1e-3
"""Largest accepted difference between outputs, relative to the largest output where that exceeds 1."""


def check_limits(program: Program) -> None:
    """Raises ArgumentError if an axis has too few entries to be open."""
    for axis, limit in program.limits.items():
        if limit < 3:
            raise ArgumentError(
                f"the program {program.name!r} cannot be exported: its axis {axis!r} has at most {max(0, limit)} "
                "entries, and PyTorch exports an open axis only if it may have 3; train with a larger context or "
                "without learned positions"
            )


def traced(program: Program) -> ExportedProgram:
    """Records a program with PyTorch's exporter; the operators `PORTABLE_OPERATORS` still stand for PyTorch's own.
    Raises ArgumentError if PyTorch cannot export it, or not for every size."""
    check_limits(program)
    # A view would be recorded as one, with its base.
    example = tuple(
        tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in program.example(program.sizes)
    )
    dims = {axis: multiple * Dim(f"blocks_of_{axis}") for axis, multiple in program.multiples.items()}
    axes = tuple(
        {number: dims.get(axis, Dim.DYNAMIC) for number, axis in enumerate(one.axes) if isinstance(axis, str)}
        for one in program.inputs
    )
    try:
        with quiet(), portable_operations(), torch.no_grad():
            recorded = export(program.module, example, dynamic_shapes=(axes,), strict=False)
    except Exception as error:  # the exporter raises errors of many kinds
        raise ArgumentError(f"PyTorch cannot export the program {program.name!r}: {first_line(error)}") from error
    _remove_unused_weights(recorded)
    for node in recorded.graph.nodes:
        for name in ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node"):  # files of this machine
            node.meta.pop(name, None)
    return recorded


def _remove_unused_weights(recorded: ExportedProgram) -> None:
    """Removes the parameters and buffers that the program does not read: a step needs no encoder."""
    signature, graph = recorded.graph_signature, recorded.graph
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    weights = (InputKind.PARAMETER, InputKind.BUFFER)
    for spec in list(signature.input_specs):
        node = nodes[spec.arg.name]
        if spec.kind in weights and spec.target is not None and not node.users:
            graph.erase_node(node)
            signature.input_specs.remove(spec)
            recorded.state_dict.pop(spec.target, None)
            recorded.constants.pop(spec.target, None)
    recorded.graph_module.recompile()


def with_operators_of_pytorch(recorded: ExportedProgram) -> ExportedProgram:
    """Replaces the operators `PORTABLE_OPERATORS` by PyTorch's own, in place."""
    for node in recorded.graph.nodes:
        node.target = PORTABLE_OPERATORS.get(node.target, node.target)
    return recorded


def save(recorded: ExportedProgram, path: Path) -> None:
    """Writes a program that needs PyTorch alone: ``torch.export.load(path).module()`` is a function of its inputs.
    Raises WriteError if the file cannot be written."""
    # The name of the file decides names inside of it.
    portable = with_operators_of_pytorch(recorded)
    with AtomicFile(path) as temporary, quiet():
        try:
            with temporary.open("wb") as file:
                torch.export.save(portable, file)
        except RuntimeError as error:  # PyTorch's writer raises this when the disk is full
            raise OSError(f"{str(error).splitlines()[0]} (is the disk full?)") from error


@torch.no_grad()
def largest_difference(program: Program, path: Path) -> float:
    """Returns the largest difference between the outputs of a saved program and of the model, for other sizes."""
    with quiet():
        call = torch.export.load(path).module()
        return max(difference(call(*inputs), program.run(inputs), program.name) for inputs in checks(program))


def checks(program: Program) -> Iterator[tuple[Tensor, ...]]:
    """Yields inputs of other sizes than the example: larger ones, a batch of one, and rows that are all padded."""
    yield program.other_example(2, batch=5)
    yield program.other_example(1, batch=1)
    longest = max((size for axis, size in program.sizes.items() if axis != "batch"), default=0)
    if longest:
        yield program.other_example(0, batch=2, **{PADDING: longest // 3})
    for sizes in program.checked:
        yield program.example(sizes)


def difference(outputs: Sequence[Tensor], expected: Sequence[Tensor], name: str) -> float:
    """Returns the largest difference between outputs; raises RunError if the exported program is another function."""
    largest = 0.0
    for output, right in zip(outputs, expected, strict=True):
        if output.shape != right.shape:
            raise RunError(
                f"the program {name!r} gives a tensor of shape {list(output.shape)}, and the model one of "
                f"{list(right.shape)}; nothing was written"
            )
        if not right.numel():
            continue
        output, right = output.double(), right.double()
        gap = torch.where(output == right, 0.0, (output - right).abs()).nan_to_num(torch.inf)  # equal infinities too
        scale = right[right.isfinite()].abs().max().item() if right.isfinite().any() else 1.0
        worst = gap.max().item()
        if worst > LARGEST_DIFFERENCE * max(1.0, scale):
            raise RunError(f"the program {name!r} differs from the model by {worst:.2g}; nothing was written")
        largest = max(largest, worst)
    return largest


@contextmanager
def quiet() -> Iterator[None]:
    """Silences the messages of exporters on their own parts: people see the result of the comparison."""
    disabled = logging.root.manager.disable
    try:
        logging.disable(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
