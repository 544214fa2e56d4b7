"""Outputs in float64, and the largest differences from them."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bench.prepared_call import as_outputs
from bench.task import Inputs, Outputs

BLOCK_NUMBERS = 1 << 24
"""Largest number of float64 numbers for the pairs of a block of query rows: 128 MiB."""


def by_rows(
    function: Callable[..., Tensor | Outputs], names: Sequence[str], gradients: Sequence[str] = (), per_pair: int = 1,
    keep: Callable[[Inputs], Tensor] | None = None,
) -> Callable[[Inputs], Outputs]:  # fmt: skip
    """An oracle that computes blocks of query rows one after the other, so that large tasks fit into memory.

    Args:
        function: takes the named inputs; axis 2 of its outputs are the queries, but ``received`` is summed over them.
        names: names of its arguments, ``query`` first.
        gradients: names of the inputs whose gradients are computed.
        per_pair: numbers that it stores for each pair of query and key.
        keep: makes a dense mask, the last argument of the function; its axis 2 is split like the queries.
    """

    def oracle(inputs: Inputs) -> Outputs:
        given = {name: inputs[name].double() for name in names}
        if gradients:
            given = {name: tensor.requires_grad_(name in gradients) for name, tensor in given.items()}
        query = given["query"]
        mask = None if keep is None else keep(inputs)
        B, H, Q, _ = query.shape
        K = given["key"].shape[2]
        step = max(1, BLOCK_NUMBERS // max(1, B * H * K * per_pair))
        parts: list[Outputs] = []
        for first in range(0, Q, step):
            rows = slice(first, first + step)
            arguments = [query[:, :, rows], *(given[name] for name in names[1:])]
            if mask is not None:
                arguments.append(mask[:, :, rows] if mask.shape[2] == Q else mask)
            with torch.set_grad_enabled(bool(gradients)):
                found = function(*arguments)
            if gradients:
                assert isinstance(found, Tensor)
                found.backward(inputs["grad_output"].double()[:, :, rows])
            parts.append(as_outputs(found))
        joined = {
            name: sum((part[name] for part in parts[1:]), parts[0][name])
            if name == "received"
            else torch.cat([part[name] for part in parts], dim=2)
            for name in parts[0]
        }
        return {**joined, **_gradients(given, gradients)}

    return oracle


def whole(
    function: Callable[..., Tensor], names: Sequence[str], gradients: Sequence[str] = ()
) -> Callable[[Inputs], Outputs]:
    """An oracle that computes all rows at once."""

    def oracle(inputs: Inputs) -> Outputs:
        # Masks and lengths keep their dtypes.
        given = {name: inputs[name].double() if inputs[name].is_floating_point() else inputs[name] for name in names}
        if gradients:
            given = {name: tensor.requires_grad_() if name in gradients else tensor for name, tensor in given.items()}
        with torch.set_grad_enabled(bool(gradients)):
            output = function(*given.values())
        if gradients:
            output.backward(inputs["grad_output"].double())
        return {"output": output.detach(), **_gradients(given, gradients)}

    return oracle


def errors(outputs: Outputs, truth: Outputs, valid: Tensor | None = None) -> dict[str, float | None]:
    """The largest absolute difference of each common output; None if it is not a finite number.

    Args:
        outputs: outputs of an implementation.
        truth: outputs of the oracle.
        valid: bool, broadcastable to ``output``: True for the elements that are compared; None: all.
    """
    found: dict[str, float | None] = {}
    for name, tensor in outputs.items():
        if name not in truth:
            continue
        # Equal infinities have the difference 0.
        gap = torch.where(tensor == truth[name], 0.0, tensor.double() - truth[name]).abs()
        if name == "output" and valid is not None:
            gap = torch.where(valid, gap, 0.0)
        largest = float(gap.max()) if gap.numel() else 0.0
        found[name] = largest if math.isfinite(largest) else None
    return found


def _gradients(given: dict[str, Tensor], names: Sequence[str]) -> Outputs:
    found: Outputs = {}
    for name in names:
        gradient = given[name].grad
        found[f"gradient of {name}"] = torch.zeros_like(given[name]) if gradient is None else gradient
    return found
