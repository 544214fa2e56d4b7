"""ONNX models of the programs of a trained model, checked with onnxruntime, and their quantization to int8."""

import contextlib
import io
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import ArgumentError, MissingPartError
from regard.exports.program import Program
from regard.exports.torch_programs import checks, difference, first_line, quiet, traced
from regard.files.atomic import AtomicFile

OPSET = 20

FLOAT32_TYPE = 1
"""ONNX's number of float32: the type of tensors without a declared one."""


def require_packages() -> None:
    """Raises MissingPartError unless the packages of this export are installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        with MissingPartError.instead(name, "export"):
            __import__(name)


def save(program: Program, path: Path) -> None:
    """Writes a program as an ONNX model whose inputs and outputs have the names of the program's; raises ArgumentError
    if PyTorch cannot export it, and WriteError if the file cannot be written."""
    recorded = traced(program)
    try:
        with quiet(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            exported = torch.onnx.export(
                recorded,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=[one.name for one in program.inputs],
                output_names=list(program.outputs),
                custom_translation_table=_recurrent_operators(),
                external_data=False,
            )
    except Exception as error:  # the exporter raises errors of many kinds
        raise ArgumentError(
            f"PyTorch cannot export the program {program.name!r} to ONNX: {first_line(error)}"
        ) from error
    assert exported is not None
    _name_axes(exported.model, program)
    with AtomicFile(path) as temporary, quiet():
        exported.save(str(temporary), external_data=False)
        _remove_notes(temporary)


def _remove_notes(path: Path) -> None:
    """Removes the exporter's notes, such as files of this machine, and the sizes of inner tensors, which a quantization
    changes."""
    import onnx

    model = onnx.load(path)
    del model.graph.value_info[:], model.metadata_props[:]
    for part in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.initializer, model.graph):
        del part.metadata_props[:]
    for function in model.functions:
        for node in (function, *function.node):
            del node.metadata_props[:]
    onnx.save(model, path)


def largest_difference(program: Program, path: Path) -> float:
    """Returns the largest difference between the outputs of an ONNX model and of ours, for inputs of other sizes."""
    session = _session(path)
    return max(
        difference(_run(session, program, inputs), program.run(inputs), program.name) for inputs in checks(program)
    )


class Quantized(NamedTuple):
    """The savings and losses of a quantization.

    The numbers of bytes are those of the file before and after, of its weights in float32, and of those that became
    int8; the others stay float32, such as those of recurrent layers. ``agreement`` is the share of rows (or pixels) of
    the first output with the same largest entry; None for an encoder.
    """

    before: int
    after: int
    weights: int
    quantized: int
    difference: float
    agreement: float | None


def quantize(program: Program, path: Path) -> Quantized:
    """Replaces an ONNX model by one with weights of int8, whose activations are quantized when it runs. Differences are
    measured on 32 random inputs."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Eight batches of four, each of another length where the program has no largest one.
    before, inputs = path.stat().st_size, [program.other_example(more, batch=4) for more in range(8)]
    session = _session(path)
    exact = [_run(session, program, one) for one in inputs]
    weights, separate = _weights(onnx.load(path)), _with_separate_weights(path)
    names = _weights(separate)
    with AtomicFile(path) as temporary, quiet():
        quantize_dynamic(
            separate, temporary, weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": FLOAT32_TYPE},
        )  # fmt: skip
    session = _session(path)
    inexact = [_run(session, program, one) for one in inputs]
    gap = max(
        _finite(output.double() - right.double()).abs().max().item()
        for outputs, rights in zip(inexact, exact, strict=True)
        for output, right in zip(outputs, rights, strict=True)
        if right.numel()
    )
    agreement = None
    if next(iter(program.outputs)) in ("logits", "log_probabilities"):
        pairs = [(outputs[0], rights[0]) for outputs, rights in zip(inexact, exact, strict=True)]
        same = torch.cat([(_choice(output) == _choice(right)).flatten() for output, right in pairs])
        agreement = same.double().mean().item()
    remaining = sum(size for name, size in _weights(onnx.load(path)).items() if name in names)
    quantized = max(0, sum(names.values()) - remaining)
    total = sum(weights.values())
    return Quantized(before, path.stat().st_size, total, min(quantized, total), gap, agreement)


def _weights(model: Any) -> dict[str, int]:
    """Returns the bytes of each float32 weight of an ONNX model, by name."""
    return {one.name: 4 * math.prod(one.dims) for one in model.graph.initializer if one.data_type == FLOAT32_TYPE}


def _with_separate_weights(path: Path) -> Any:
    """Returns the model of a file; no other node reads the matrix of a Gemm, which onnxruntime transposes in place."""
    import onnx

    model = onnx.load(path)
    weights = {one.name: one for one in model.graph.initializer}
    readers = Counter(name for node in model.graph.node for name in node.input)
    for number, node in enumerate(model.graph.node):
        if node.op_type == "Gemm" and node.input[1] in weights and readers[node.input[1]] > 1:
            copy = model.graph.initializer.add()
            copy.CopyFrom(weights[node.input[1]])
            copy.name = node.input[1] = f"{copy.name}_of_{number}"
    return model


def _choice(output: Tensor) -> Tensor:
    """Returns the index of the largest entry of each row; in ``[batch, classes, height, width]``, of each pixel."""
    return output.argmax(1 if output.dim() == 4 else -1)


def _finite(tensor: Tensor) -> Tensor:
    return tensor.nan_to_num(0.0, 0.0, 0.0)


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _run(session: Any, program: Program, inputs: Sequence[Tensor]) -> list[Tensor]:
    feeds = {one.name: tensor.numpy() for one, tensor in zip(program.inputs, inputs, strict=True)}
    known = {one.name for one in session.get_inputs()}  # an input that nothing reads is left out
    return [torch.from_numpy(output) for output in session.run(None, {name: feeds[name] for name in known})]


def _name_axes(model: Any, program: Program) -> None:
    """Gives the open axes the names of the program's, where the exporter has numbered them."""
    import onnx_ir

    names: dict[str, str] = {}
    inputs = {one.name: one for one in program.inputs}
    for value in model.graph.inputs:
        for dim, axis in zip(value.shape, inputs[value.name].axes, strict=True):
            if isinstance(dim, onnx_ir.SymbolicDim) and isinstance(axis, str):
                names.setdefault(str(dim.value), axis)
    values = [*model.graph.inputs, *(output for node in model.graph for output in node.outputs)]
    for value in values:
        if value.shape is None or value.shape.frozen:
            continue
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, onnx_ir.SymbolicDim) and str(dim.value) in names:
                value.shape[axis] = onnx_ir.SymbolicDim(names[str(dim.value)])


def _recurrent_operators() -> dict[Any, Any]:
    """Returns ONNX's operators for `regard.models.padded_recurrence.PORTABLE_OPERATORS`.

    The gates of an LSTM are input, forget, cell, output for PyTorch, and input, output, forget, cell for ONNX; those of
    a GRU are reset, update, candidate and update, reset, candidate.
    """
    from onnxscript import opset20

    op: Any = opset20

    def reordered(tensor: Any, size: int, order: Sequence[int]) -> Any:
        gates = [op.Slice(tensor, [gate * size], [(gate + 1) * size], [0]) for gate in order]
        return op.Concat(*gates, axis=0)

    def parameters(params: Sequence[Any], order: Sequence[int]) -> tuple[int, Any, Any, Any]:
        size = int(params[1].shape[1])
        input_weight, hidden_weight, input_bias, hidden_bias = (reordered(one, size, order) for one in params)
        biases = op.Concat(input_bias, hidden_bias, axis=0)
        return size, *(op.Unsqueeze(one, [0]) for one in (input_weight, hidden_weight, biases))

    def batch_first(outputs: Any) -> Any:  # steps, 1, batch, features
        return op.Transpose(op.Squeeze(outputs, [1]), perm=[1, 0, 2])

    def lstm(input: Any, hx: Any, params: Sequence[Any], *options: Any) -> Any:
        size, *weights = parameters(params, (0, 3, 1, 2))
        steps = op.Transpose(input, perm=[1, 0, 2])
        outputs, hidden, cell = op.LSTM(steps, *weights, None, hx[0], hx[1], hidden_size=size)
        return batch_first(outputs), hidden, cell

    def gru(input: Any, hx: Any, params: Sequence[Any], *options: Any) -> Any:
        size, *weights = parameters(params, (1, 0, 2))
        steps = op.Transpose(input, perm=[1, 0, 2])
        outputs, hidden = op.GRU(steps, *weights, None, hx, hidden_size=size, linear_before_reset=1)
        return batch_first(outputs), hidden

    return {torch.ops.regard.lstm.default: lstm, torch.ops.regard.gru.default: gru}
