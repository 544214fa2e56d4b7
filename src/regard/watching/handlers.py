"""The functions that compute attention: each has a handler, which runs it as it is and tells those who watch."""

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.listeners import Execution
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.watching.flex import read_flex
from regard.watching.owners import Owner
from regard.watching.products import Softmax
from regard.watching.regard_calls import read_problem
from regard.watching.sdpa import read_sdpa, same_call
from regard.watching.thread_state import (
    SDPA,
    STATE,
    Function,
    Heads,
    Observer,
    change_first,
    change_product,
    change_tensor,
    is_idle,
    keep_output,
    run_watched,
    without_mode,
)  # fmt: skip
from regard.watching.torch_modules import read_encoder_layer, read_multi_head, read_native


@wraps(SDPA)
def watched_sdpa(*args: Any, **kwargs: Any) -> Any:
    """`scaled_dot_product_attention`, seen by those who watch."""
    return _handle_sdpa(SDPA, args, kwargs)


def _handle_sdpa(function: Function, args: Any, kwargs: Any) -> Any:
    if is_idle():
        return function(*args, **kwargs)
    STATE.softmax = None
    masks = STATE.masks
    return run_watched(
        function,
        args,
        kwargs,
        lambda owner: read_sdpa(masks, *args, packed=owner.packed, **kwargs),
        change_tensor,
        lambda owner: same_call(masks, owner, args, kwargs),
    )


def _handle_multi_head(function: Function, args: Any, kwargs: Any) -> Any:
    if is_idle():
        return function(*args, **kwargs)
    arguments = _bound(function, args, kwargs)
    if not arguments["need_weights"]:
        return function(*args, **kwargs)  # it calls scaled_dot_product_attention by its replaced name
    if any(observer.changes for observer in STATE.observers):
        return _multi_head_in_two_calls(function, arguments)
    masks = STATE.masks
    if not arguments["training"]:
        arguments["dropout_p"] = 0.0
    return run_watched(function, args, kwargs, lambda owner: read_multi_head(masks, arguments), keep_output)


def _multi_head_in_two_calls(function: Function, arguments: dict[str, Any]) -> Any:
    """The weights of one call, which nothing changes, and the output of another one, whose heads can be changed."""
    STATE.inside += 1
    try:
        with torch.random.fork_rng(devices=[]):
            _, weights = function(**arguments)
    finally:
        STATE.inside -= 1
    output, _ = function(**{**arguments, "need_weights": False})
    return output, weights


def _handle_native(function: Function, args: Any, kwargs: Any) -> Any:
    if is_idle():
        return function(*args, **kwargs)
    masks, arguments = STATE.masks, _bound_by_schema("_native_multi_head_attention", args, kwargs)
    return run_watched(function, args, kwargs, lambda owner: read_native(masks, arguments), keep_output)


def _handle_encoder_layer(function: Function, args: Any, kwargs: Any) -> Any:
    if is_idle():
        return function(*args, **kwargs)
    masks, arguments = STATE.masks, _bound_by_schema("_transformer_encoder_layer_fwd", args, kwargs)
    return run_watched(function, args, kwargs, lambda owner: read_encoder_layer(masks, arguments), keep_output)


@cache
def watched_flex(original: Function) -> Function:
    """FlexAttention under one of its names, seen by those who watch."""

    @wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if is_idle():
            return original(*args, **kwargs)
        arguments = _bound(flex_function(), args, {k: v for k, v in kwargs.items() if k != "training"})

        def run(*args: Any, **kwargs: Any) -> Any:
            return without_mode(lambda: original(*args, **kwargs))

        return run_watched(run, args, kwargs, lambda owner: read_flex(arguments), change_first)

    return watched


def _handle_softmax(function: Function, args: Any, kwargs: Any) -> Any:
    output = function(*args, **kwargs)
    if is_idle() or not args:
        return output
    scores, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(scores, Tensor) and scores.dim() >= 2 and dim in (-1, scores.dim() - 1):
        own = scores.shape[-1]
        rows = scores.numel() // own if own else 0
        if (rows, own) in STATE.products or (rows, own - 1) in STATE.products:
            STATE.softmax = Softmax(scores, output)
            STATE.dropout = 0.0
    return output


def _handle_dropout(function: Function, args: Any, kwargs: Any) -> Any:
    if STATE.softmax is not None and not is_idle():
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        STATE.dropout = float(p) if training else 0.0
    return function(*args, **kwargs)


def _handle_product(function: Function, args: Any, kwargs: Any) -> Any:
    if is_idle():
        return function(*args, **kwargs)
    operands = args
    if function is torch.einsum and args and isinstance(args[0], str):
        operands = args[1:] if len(args) == 3 else tuple(args[1]) if len(args) == 2 else ()
    elif function in _ADDED_PRODUCTS:
        operands = args[1:]
    softmax = STATE.softmax
    if softmax is not None and len(operands) == 2:
        left, right = operands
        if function is torch.einsum:
            left, right = _einsum_operands(softmax, args[0], left, right)
        if softmax.is_used_by(left, right):
            STATE.softmax = None
            STATE.products.clear()
            dropout = STATE.dropout
            return run_watched(
                function,
                args,
                kwargs,
                lambda owner: softmax.read(left, right, owner.module, dropout),
                _einsum_change(args[0], softmax, operands[0]) if function is torch.einsum else change_product,
            )
    output = function(*args, **kwargs)
    if isinstance(output, Tensor) and output.dim() >= 2 and output.shape[-1]:
        STATE.products.append((output.numel() // output.shape[-1], output.shape[-1]))
    return output


def _einsum_operands(softmax: Softmax, equation: str, left: Any, right: Any) -> tuple[Any, Any]:
    """The operands with the axes of ``matmul``, if the equation mixes values with weights; else nothing."""
    equation = equation.replace(" ", "")
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or "." in equation or "->" not in equation:
        return None, None
    operands, output = equation.split("->")
    first, second = operands.split(",")
    if softmax.weights.shape != left.shape:
        left, right, first, second = right, left, second, first
    key = first[-1]
    rest = [axis for axis in second if axis != key and axis not in first]
    if softmax.weights.shape != left.shape or key not in second or key in output or len(rest) != 1:
        return None, None
    shared = [axis for axis in first[:-2] if axis in second]
    if len(shared) + 2 != len(second) or not shared:
        return None, None
    return left, right.permute([second.index(axis) for axis in (*shared, key, rest[0])])


def _einsum_change(equation: str, softmax: Softmax, first: Tensor) -> Heads:
    """Changes heads in the output of an equation that `_einsum_operands` understood."""
    operands, output = equation.replace(" ", "").split("->")
    weights, values = operands.split(",")
    if softmax.weights.shape != first.shape:
        weights, values = values, weights
    feature = next(axis for axis in values if axis not in weights)
    order = [output.index(axis) for axis in (*weights[:-1], feature)]
    back = [order.index(place) for place in range(len(order))]

    def change(result: Tensor, observer: Observer, owner: Owner) -> Tensor:
        return change_product(result.permute(order), observer, owner).permute(back)

    return change


def listen(
    execute: Execution, problem: Problem, backend: str, gatherer: Gatherer | None, need_weights: bool
) -> Attended:
    """A problem that a verb or a layer of regard runs."""
    if is_idle():
        return execute(problem, backend, gatherer, need_weights)
    STATE.softmax = None

    def change(output: Any, observer: Observer, owner: Owner) -> Any:
        return Attended(observer.change(owner, output.output), output.weights)

    weights: list[Tensor] = []

    def run() -> Attended:
        random = problem.normalizer.random and gatherer is None
        attended = execute(problem, backend, gatherer, need_weights or random)
        if attended.weights is not None:
            weights.append(attended.weights)
        return attended if need_weights else Attended(attended.output, None)

    return run_watched(run, (), {}, lambda owner: read_problem(problem, weights[0] if weights else None), change)


_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum)
_ADDED_PRODUCTS = (torch.baddbmm, Tensor.baddbmm)

HANDLERS: dict[Any, Callable[[Function, Any, Any], Any]] = {
    SDPA: _handle_sdpa,
    F.multi_head_attention_forward: _handle_multi_head,
    torch._native_multi_head_attention: _handle_native,
    torch._transformer_encoder_layer_fwd: _handle_encoder_layer,
    **dict.fromkeys((F.softmax, torch.softmax, Tensor.softmax), _handle_softmax),
    **dict.fromkeys((F.dropout, torch.dropout), _handle_dropout),
    **dict.fromkeys((*_PRODUCTS, *_ADDED_PRODUCTS), _handle_product),
}
"""The functions that the mode looks at. All others run at once."""


def flex_function() -> Function:
    from torch.nn.attention import flex_attention

    return inspect.unwrap(flex_attention.flex_attention)


def _bound(function: Function, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = _signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


@cache
def _signature(function: Function) -> inspect.Signature:
    return inspect.signature(function)


def _bound_by_schema(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of an operator by the names of its schema."""
    schema = getattr(torch.ops.aten, name).default._schema
    named = {argument.name: argument.default_value for argument in schema.arguments}
    named.update(zip(named, args, strict=False))
    named.update(kwargs)
    if "num_head" in named:
        named["num_heads"] = named["num_head"]
    return named
