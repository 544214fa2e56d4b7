"""The layers around an attention: projections of its inputs, heads, and a model's computations from its output."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.errors import KindError, ShapeError
from regard.shapes.checks import whole_number


class Layer(NamedTuple):
    """One step before or after an attention, for all batch rows.

    Attributes:
        name: such as ``"W_query"``.
        note: its computation in a few words.
        values: ``[rows, features]`` or ``[batch, rows, features]``.
        rows: the meaning of the rows.
    """

    name: str
    note: str
    values: Tensor
    rows: Literal["queries", "keys", "inputs", "numbers"] = "numbers"


def projections(
    inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor], heads: int, *, one_input: bool
) -> tuple[list[Layer], dict[str, Tensor]]:
    """Projects the inputs of an attention and splits them among heads (Vaswani et al. 2017, §3.2.2).

    Inputs are ``[length, dim]`` or ``[batch, length, dim]``; without weights and with one head also ``[batch, heads,
    length, dim]``. Of the weights ``w_query``, ``w_key`` and ``w_value``, ``[dim, heads · head_dim]``, some may be
    missing. The result is the steps, and the queries, keys and values.
    """
    whole_number("heads", heads, low=1)
    steps: list[Layer] = []
    names = {name: f"w_{name}" for name in inputs}
    if one_input and set(weights) & set(names.values()):
        steps.append(Layer("input", "what goes in, a row each", inputs["query"], "inputs"))
    projected = {}
    for name, argument in names.items():
        tensor = inputs[name]
        if argument in weights:
            if not one_input:
                rows = "queries" if name == "query" else "keys"
                steps.append(Layer(f"{name}_input", "what goes in", tensor, rows))
            steps.append(Layer(f"W_{name}", f"{name} = input W_{name}", weights[argument]))
            tensor = project(argument, name, tensor, weights[argument])
        projected[name] = _split(argument, name, tensor, heads)
    return steps, projected


def results(query: Tensor, output: Tensor, weights: Mapping[str, Tensor], heads: int) -> list[Layer]:
    """Returns the steps that follow from the output of an attention.

    Each query of ``query``, the input of the queries, is the state of a decoder. The weights are ``w_output [heads ·
    value_dim, dim]`` and ``w_decoder [units, state_dim + context_dim]``, those that there are.
    """
    steps: list[Layer] = []
    w_output, w_decoder = weights.get("w_output"), weights.get("w_decoder")
    if w_output is None and w_decoder is None and heads == 1:
        return steps
    if output.dim() == 4:
        output = _side_by_side(output, query.dim())
        steps.append(Layer("concatenated", "the heads' outputs side by side", output, "queries"))
    if w_output is not None:
        output = project("w_output", "output", output, w_output)
        steps.append(Layer("W_output", "projected = output W_output", w_output))
        steps.append(Layer("projected", "the output, projected", output, "queries"))
    if w_decoder is not None:
        state = _side_by_side(query, 4) if query.dim() == 4 else query
        steps.append(Layer("state_and_context", "[state; context]", torch.cat((state, output), dim=-1), "queries"))
        steps.append(Layer("W_decoder", "a row for each unit of the tanh layer", w_decoder))
        final = decoder_output(state, output, w_decoder)
        steps.append(Layer("decoder_output", "tanh(W_decoder [state; context])", final, "queries"))
    return steps


def project(argument: str, name: str, tensor: Tensor, weight: Tensor) -> Tensor:
    """Multiplies an input ``[length, dim]`` or ``[batch, length, dim]`` by its weights ``[dim, features]``."""
    if tensor.dim() not in (2, 3):
        raise ShapeError(
            f"{name} must be [length, dim] or [batch, length, dim], since {argument} projects it before it is split "
            f"among heads; it has shape {list(tensor.shape)}"
        )
    if weight.dim() != 2 or weight.shape[0] != tensor.shape[-1]:
        raise ShapeError(
            f"{argument} must have a row for each of the {tensor.shape[-1]} features of {name}, which has shape "
            f"{list(tensor.shape)}; it has shape {list(weight.shape)}"
        )
    _check_kind(argument, name, weight, tensor)
    return tensor @ weight


def decoder_output(state: Tensor, context: Tensor, weight: Tensor) -> Tensor:
    """Computes the output of a decoder, ``[..., units]``, from its state and its context.

    .. math:: \\tanh(W [state; context])

    Luong et al. 2015, eq. 5; they put the context first. The weight is ``[units, state_dim + context_dim]``, the
    state's columns first.
    """
    features = state.shape[-1] + context.shape[-1]
    if weight.dim() != 2 or weight.shape[1] != features:
        raise ShapeError(
            f"w_decoder must be [units, {features}]: {state.shape[-1]} features of the state and "
            f"{context.shape[-1]} of the context; it has shape {list(weight.shape)}"
        )
    _check_kind("w_decoder", "the state", weight, state)
    return (torch.cat((state, context), dim=-1) @ weight.T).tanh()


def _check_kind(argument: str, name: str, weight: Tensor, tensor: Tensor) -> None:
    for kind in ("dtype", "device"):
        expected, came = getattr(tensor, kind), getattr(weight, kind)
        if came != expected:
            raise KindError(f"{argument} must have the {kind} of {name}, {expected}; it has {came}")


def _split(argument: str, name: str, tensor: Tensor, heads: int) -> Tensor:
    if heads == 1:
        return tensor
    if tensor.dim() not in (2, 3):
        raise ShapeError(
            f"{name} must be [length, dim] or [batch, length, dim] to be split among heads; it has shape "
            f"{list(tensor.shape)}; leave heads out if it has heads already"
        )
    if tensor.shape[-1] % heads:
        raise ShapeError(
            f"heads must divide the features of {name}, the columns of {argument} if there is one; "
            f"heads is {heads} and the features are {tensor.shape[-1]}"
        )
    split = tensor.unflatten(-1, (heads, -1)).transpose(-2, -3)
    return split if tensor.dim() == 3 else split[None]


def _side_by_side(tensor: Tensor, rank: int) -> Tensor:
    """Returns the features of all heads in one row, ``[batch, length, features]``; no batch if ``rank`` is 2."""
    joined = tensor.transpose(1, 2).flatten(2)
    return joined[0] if rank == 2 else joined
