"""One handler for each function that computes attention: it runs the call unchanged and reports it to the observers."""

import inspect
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.execution import Execution
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.watching.call_problems import (
    is_causal_bias,
    read_encoder_layer,
    read_flex,
    read_multi_head,
    read_native,
    read_problem,
    read_sdpa,
)
from regard.watching.head_axis import HeadAxes
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.owners import Owner
from regard.watching.softmax_tracking import SOURCE_RULES, track
from regard.watching.thread_state import (
    SDPA,
    STATE,
    Function,
    change_first,
    is_idle,
    keep_output,
    overriding_arguments,
    run_opened,
    run_overrides,
    run_watched,
    without_mode,
)  # fmt: skip

COMPILED_FLEX_NAME = "compile_friendly_flex_attention"
"""The function of transformers that compiles FlexAttention."""


@wraps(SDPA)
def watched_sdpa(*args: Any, **kwargs: Any) -> Any:
    """Runs `scaled_dot_product_attention` and reports it."""
    return SDPA(*args, **kwargs) if is_idle() else _handle_sdpa(SDPA, args, kwargs)


def _handle_sdpa(function: Function, args: Any, kwargs: Any) -> Any:
    overriding = overriding_arguments((*args, *kwargs.values()))
    if overriding and not all(tensor.is_nested or is_causal_bias(tensor) for tensor in overriding):
        return run_overrides(function, args, kwargs)
    masks = STATE.masks
    return run_watched(
        function,
        args,
        kwargs,
        lambda owner: read_sdpa(masks, owner, *args, **kwargs),
        lambda output, change, owner: _change_heads(output, change, owner, args, kwargs),
    )


def _change_heads(output: Any, change: Callable[[Tensor], Tensor], owner: Owner, args: Any, kwargs: Any) -> Any:
    """Returns the output of `scaled_dot_product_attention` with changed heads; a nested output unchanged."""
    if not isinstance(output, Tensor) or output.is_nested:
        return output
    tensors = [*args[:3], *(kwargs[name] for name in ("query", "key", "value")[len(args) :])]
    axes, shape = HeadAxes.of_call(tensors, bool(kwargs.get("enable_gqa")), owner.heads), output.shape
    if owner.packed and output.dim() == 4:
        heads = output.reshape(shape[0], shape[1] * shape[2], 1, shape[3])
        return change(heads).reshape(shape)
    return axes.unfold(change(axes.fold(output, axes.leading([output]))), shape)


def _handle_multi_head(function: Function, args: Any, kwargs: Any) -> Any:
    arguments = bound_arguments(function, args, kwargs)
    if not arguments["need_weights"]:
        result = run_opened(function, args, kwargs)  # it calls scaled_dot_product_attention
        return _projected(arguments["out_proj_weight"], arguments["out_proj_bias"], result, False)
    masks = STATE.masks
    if not arguments["training"]:
        arguments["dropout_p"] = 0.0
    if _is_changed():
        return _multi_head_opened(function, arguments)
    result = run_watched(function, args, kwargs, lambda owner: read_multi_head(masks, arguments), keep_output)
    return _projected(arguments["out_proj_weight"], arguments["out_proj_bias"], result, False)


def _projected(weight: Tensor, bias: Tensor | None, output: Any, batch_first: bool) -> Any:
    """Reports that a function projected the heads of its attention itself; returns its output."""
    for follower in STATE.followers:
        follower.projected(weight, bias, output, batch_first)
    return output


def _is_changed() -> bool:
    """Whether a context may change the call that a module makes now."""
    frame = sys._getframe(2)
    changing = (observer for observer in STATE.observers if observer.is_changing)
    return any((owner := each.names.owner(frame)) is not None and each.concerns(owner) for each in changing)


def _multi_head_opened(function: Function, arguments: dict[str, Any]) -> Any:
    """Runs ``multi_head_attention_forward`` so that the product of its weights and values is the call.

    The weights that it returns are those after the changes.
    """
    state, masks = STATE, STATE.masks
    state.opened_read, state.last_change = lambda owner: read_multi_head(masks, arguments), None
    try:
        output, weights = run_opened(function, (), {**arguments, "average_attn_weights": False})
    finally:
        state.opened_read = None
    if state.last_change is not None:
        weights = state.last_change.weights(weights)
    is_averaged = arguments["average_attn_weights"]
    output = output, weights.mean(-3) if is_averaged else weights
    return _projected(arguments["out_proj_weight"], arguments["out_proj_bias"], output, False)


def _handle_native(function: Function, args: Any, kwargs: Any) -> Any:
    masks, arguments = STATE.masks, _bound_by_schema("_native_multi_head_attention", args, kwargs)
    result = run_watched(function, args, kwargs, lambda owner: read_native(masks, arguments), keep_output)
    return _projected(arguments["proj_weight"], arguments["proj_bias"], result, True)


def _handle_encoder_layer(function: Function, args: Any, kwargs: Any) -> Any:
    masks, arguments = STATE.masks, _bound_by_schema("_transformer_encoder_layer_fwd", args, kwargs)
    result = run_watched(function, args, kwargs, lambda owner: read_encoder_layer(masks, arguments), keep_output)
    _projected(arguments["proj_weight"], arguments["proj_bias"], None, True)
    return result


@cache
def watched_flex(original: Function) -> Function:
    """Wraps FlexAttention under one of its names, to report its calls."""
    is_compiled = hasattr(original, "_torchdynamo_orig_callable") or original.__name__ == COMPILED_FLEX_NAME

    @wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if is_idle():
            return original(*args, **kwargs)
        arguments = bound_arguments(_flex_function(), args, {k: v for k, v in kwargs.items() if k != "training"})

        def run(*args: Any, **kwargs: Any) -> Any:
            return without_mode(lambda: original(*args, **kwargs))

        output = run_watched(run, args, kwargs, lambda owner: read_flex(arguments, is_compiled), change_first)
        if isinstance(output, tuple) and STATE.last_change is not None:
            STATE.last_change.check_log_sums()
        return output

    return watched


def listen(
    execute: Execution,
    problem: Problem,
    backend: str,
    gatherer: Gatherer | None,
    need_weights: bool,
    layer: nn.Module | None,
) -> Attended:
    """Runs a problem of a verb or a layer of regard, and reports it."""
    if is_idle():
        return execute(problem, backend, gatherer, need_weights)

    def change_output(output: Any, change: Callable[[Tensor], Tensor], owner: Owner) -> Any:
        return Attended(change(output.output), output.weights)

    weights: list[Tensor] = []

    def run() -> Attended:
        random = problem.normalizer.random and gatherer is None
        attended = execute(problem, backend, gatherer, need_weights or random)
        if attended.weights is not None:
            weights.append(attended.weights)
        return attended if need_weights else Attended(attended.output, None)

    def read(owner: Owner) -> InterceptedCall:
        return read_problem(problem, weights[0] if weights else None)

    attended = run_watched(run, (), {}, read, change_output, layer=layer)
    changed = STATE.last_change
    if changed is None:
        return attended
    problem.changed = changed.problem
    if gatherer is not None:
        gatherer.clear()
        changed.gather(gatherer)
    return attended if attended.weights is None else Attended(attended.output, changed.weights(attended.weights))


HANDLERS: dict[Any, Callable[[Function, Any, Any], Any]] = {
    SDPA: _handle_sdpa,
    F.multi_head_attention_forward: _handle_multi_head,
    torch._native_multi_head_attention: _handle_native,
    torch._transformer_encoder_layer_fwd: _handle_encoder_layer,
    **dict.fromkeys(SOURCE_RULES, track),
}
"""The functions that the mode handles at any time; others run at once, or are tracked while there are weights."""


def _flex_function() -> Function:
    from torch.nn.attention import flex_attention

    return inspect.unwrap(flex_attention.flex_attention)


def bound_arguments(function: Function, args: Any, kwargs: Any) -> dict[str, Any]:
    """Returns the arguments of a call by the names of the function's parameters, with the defaults of others."""
    bound = _signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


_signature = cache(inspect.signature)


def _bound_by_schema(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """Returns the arguments of an operator by the names of its schema."""
    schema = getattr(torch.ops.aten, name).default._schema
    named = {argument.name: argument.default_value for argument in schema.arguments}
    named.update(zip(named, args, strict=False))
    named.update(kwargs)
    if "num_head" in named:
        named["num_heads"] = named["num_head"]
    return named
