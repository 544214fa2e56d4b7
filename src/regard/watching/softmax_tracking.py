"""Attention that a model writes itself: its weights are tracked from the softmax to the sum that they weigh.

`SOURCE_RULES` has the functions that produce weights, or the numbers from which a model computes weights. While a
tensor is tracked, every function of PyTorch passes through `track`, and `RULES` says what its result is. Where weights
meet values in a product over all keys (`_add_up`, `_multiply`), the sum is an attention call and is reported to the
observers (`_run`).
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import TensorWeakRef

from regard.watching.equations import EQUATIONS, Equation, added_axes, equation_of
from regard.watching.intercepted_call import InterceptedCall, detached
from regard.watching.owners import Owner
from regard.watching.thread_state import STATE, Function, ReturnedWeights, run_watched
from regard.watching.tracked_tensors import (
    Exponentials,
    Factor,
    LogSumExp,
    Move,
    TopScores,
    TrackedRecord,
    TrackedSoftmax,
    TrackedTotal,
    TrackedWeights,
    WeightedValues,
)  # fmt: skip
from regard.watching.weighted_sum import WeightedSum, sum_of_equation, sum_of_products


class _FunctionCall:
    """A call of a function of PyTorch, before it runs.

    Attributes:
        source: the first argument.
        others: the positional arguments after it.
        known: the record of the source; None: nothing is known.
    """

    def __init__(self, function: Function, name: str, args: Any, kwargs: dict[str, Any]):
        self.function, self.name, self.args, self.kwargs = function, name, args, kwargs
        is_named = "input" in kwargs
        self.source: Any = kwargs["input"] if is_named else args[0] if args else None
        self.others = args if is_named else args[1:]
        self.known = STATE.tracked.get(self.source)

    def run(self) -> Any:
        """Runs the function as the model called it."""
        return self.function(*self.args, **self.kwargs)

    def argument(self, name: str, position: int, default: Any) -> Any:
        """Returns an argument by its name, or by its position after the first one."""
        return self.kwargs.get(name, self.others[position] if len(self.others) > position else default)

    @property
    def is_in_place(self) -> bool:
        return _is_in_place(self.name)


class _Bookkeeping:
    """The context of all computations that the model does not ask for.

    No function mode sees them, and an error in them ends the bookkeeping alone. Autograd records them only where a
    context may change the weights.
    """

    def __enter__(self) -> None:
        wants_gradient = torch.is_grad_enabled() and any(observer.is_changing for observer in STATE.observers)
        self._contexts = torch.set_grad_enabled(wants_gradient), torch._C.DisableTorchFunction()
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> bool:
        for context in reversed(self._contexts):
            context.__exit__(None, None, None)
        return kind is not None and issubclass(kind, Exception)


def _result(rule: Callable[[_FunctionCall, Tensor], TrackedRecord | None]) -> Callable[[_FunctionCall], Any]:
    """Makes a rule that runs its function unchanged, and then stores a record of the result."""

    @wraps(rule)
    def run(call: _FunctionCall) -> Any:
        output = call.run()
        if _has_elements(output):
            with _Bookkeeping():
                tracked = rule(call, output)
                if tracked is not None:
                    STATE.tracked.put(output, tracked)
        return output

    return run


# Functions that produce weights, or numbers from which weights are computed.


@_result
def _softmax(call: _FunctionCall, output: Tensor) -> TrackedRecord | None:
    """Handles ``softmax``, ``softmin``, ``gumbel_softmax`` and ``log_softmax``."""
    if isinstance(call.known, TopScores):
        return None
    axis = _axis_of_softmax(call) % output.dim()
    is_gumbel = call.name == "gumbel_softmax"
    scores = None if call.source is output or is_gumbel else detached(call.source)
    if call.name == "softmin" and scores is not None:
        scores = -scores
    are_logarithms = call.name == "log_softmax"
    softmax = TrackedSoftmax(tuple(output.shape), (axis,), _attention_modules(), has_sum=are_logarithms)
    if not are_logarithms:  # mostly those of a loss
        _report_weights(softmax, 1)
    return TrackedWeights(softmax, scores, exact=not is_gumbel, logarithms=are_logarithms)


def _report_weights(softmax: TrackedSoftmax, count: int) -> None:
    """Reports that a module made weights (1), or that they weigh a sum (−1)."""
    for observer in STATE.observers:
        if (owner := softmax.makers.get(id(observer))) is not None:
            observer.made_weights(owner, count)


def _axis_of_softmax(call: _FunctionCall) -> int:
    if call.name == "gumbel_softmax":
        return call.argument("dim", 3, -1)
    axis = call.argument("dim", 0, call.kwargs.get("axis"))
    # Without an axis PyTorch chooses one.
    return int(call.source.dim() not in (0, 1, 3)) if axis is None else axis


def _attention_modules() -> dict[int, Owner]:
    """Returns the innermost module on the stack that is named as attention, for each observer that has one."""
    frame = sys._getframe()
    modules = ((id(observer), observer.names.attention(frame)) for observer in STATE.observers)
    return {number: owner for number, owner in modules if owner is not None}


@_result
def _exp(call: _FunctionCall, output: Tensor) -> TrackedRecord:
    """Handles ``exp``, of scores or of the logarithms of weights."""
    known = call.known
    if isinstance(known, TrackedWeights) and known.logarithms:
        undropped = None if known.undropped is None else known.undropped.exp()
        return replace(known, logarithms=False, undropped=undropped)
    return Exponentials(None if call.source is output else detached(call.source))


@_result
def _logsumexp(call: _FunctionCall, output: Tensor) -> TrackedRecord:
    """Handles ``logsumexp``, which a model may subtract from the scores."""
    return LogSumExp(TensorWeakRef(call.source), added_axes(call.source, call.others, call.kwargs))


def _topk(call: _FunctionCall) -> Any:
    """Handles ``topk`` and ``sort``; a softmax of their result has no particular keys."""
    output = call.run()
    STATE.tracked.put(output[0], TopScores())
    return output


# Functions that keep weights, move or change them.


def _move(call: _FunctionCall) -> Any:
    """Handles a function that moves elements."""
    output, known = call.run(), call.known
    if known is None:
        return output
    options = {key: value for key, value in call.kwargs.items() if key != "input"}
    function = call.function
    if call.name in _STRIDE_FREE_FUNCTIONS:
        function = _STRIDE_FREE_FUNCTIONS[call.name]
    elif call.is_in_place:
        function = getattr(Tensor, call.name[:-1])

    def move(tensor: Tensor) -> Any:
        return function(tensor, *call.others, **options)

    if isinstance(output, Tensor):
        _put_moved(output, known, move)
    else:
        for index, part in enumerate(output):
            _put_moved(part, known, lambda tensor, index=index: move(tensor)[index])
    return output


def _put_moved(output: Tensor, known: TrackedRecord, move: Move) -> None:
    STATE.tracked.forget(output)
    with _Bookkeeping():
        moved = known.moved(move)
        if not isinstance(moved, TrackedWeights) or (moved.key is not None and moved.key.shape == output.shape):
            STATE.tracked.put(output, moved)


def _pad(call: _FunctionCall) -> Any:
    """Handles ``_pad_packed_sequence``: packed exponentials become batch rows."""
    output = call.run()
    if isinstance(call.known, Exponentials):
        sizes, batch_first, _, total = call.others
        _put_moved(output[0], call.known, lambda x: call.function(x, sizes, batch_first, -torch.inf, total)[0])
    return output


@_result
def _keep(call: _FunctionCall, output: Tensor) -> TrackedRecord | None:
    """Handles a function that returns the same elements in the same axes."""
    return call.known


@_result
def _round(call: _FunctionCall, output: Tensor) -> TrackedRecord | None:
    """Handles a conversion to another dtype: the weights are those before they were rounded."""
    known = call.known
    if isinstance(known, TrackedWeights) and known.undropped is None and output is not call.source:
        return replace(known, undropped=detached(call.source))
    return known


def _drop(call: _FunctionCall) -> Any:
    """Handles dropout: the weights are those before it."""
    known = call.known
    with _Bookkeeping():
        rate = float(call.argument("p", 0, 0.5))
        is_active = bool(call.argument("training", 1, call.kwargs.get("train", True)))
        if isinstance(known, TrackedWeights) and is_active and rate > 0:
            undropped = known.undropped
            if undropped is None:
                in_place = call.is_in_place or call.argument("inplace", 2, False)
                undropped = detached(call.source).clone() if in_place else detached(call.source)
            known = replace(known, undropped=undropped, dropout=rate)
    output = call.run()
    if known is not None and isinstance(output, Tensor):
        STATE.tracked.put(output, known)
    return output


@_result
def _compute(call: _FunctionCall, output: Tensor) -> TrackedRecord | None:
    """Handles a function of each element."""
    operands = [*call.args, *(call.kwargs[key] for key in ("input", "other") if key in call.kwargs)]
    known = [(operand, tracked) for operand in operands if (tracked := STATE.tracked.get(operand)) is not None]
    if not known:
        return None
    STATE.tracked.forget(output)
    record = _result_of_computation(call.name.strip("_"), operands, known, output)
    if isinstance(record, TrackedWeights) and record.undropped is not None:
        # The same is done to the weights before dropout.
        function = getattr(Tensor, call.name[:-1]) if call.is_in_place else call.function
        inputs = [record.undropped if operand is known[0][0] else operand for operand in operands]
        options = {key: value for key, value in call.kwargs.items() if key not in ("input", "other", "out")}
        record.undropped = function(*inputs, **options)
    if isinstance(record, TrackedWeights):
        others = [each.softmax for _, each in known[1:] if isinstance(each, TrackedWeights)]
        record.softmax.origins += tuple(each for each in others if each is not record.softmax)
    return record


def _result_of_computation(
    name: str, operands: Sequence[Any], known: Sequence[tuple[Tensor, TrackedRecord]], output: Tensor
) -> TrackedRecord | None:
    """Returns the record of an elementwise function's ``output``, whose ``known`` operands are tracked."""
    (first, tracked), (_, last) = known[0], known[-1]
    if isinstance(last, TrackedTotal) and name in _DIVISIONS and _is_same(last.addends, tracked):
        return _normalized(tracked, last.axes, output)
    if isinstance(tracked, LogSumExp):
        scores = operands[0]
        is_difference = name in ("sub", "subtract") and tracked.scores() is scores
        softmax = TrackedSoftmax(tuple(output.shape), tracked.axes, {})
        return TrackedWeights(softmax, detached(scores), logarithms=True) if is_difference else None
    if isinstance(tracked, TrackedTotal):
        others = [operand for operand in operands if operand is not first]
        return None if any(isinstance(other, Tensor) and other.dim() for other in others) else tracked
    if isinstance(tracked, Exponentials):
        return tracked.changed(output.shape)
    if isinstance(tracked, WeightedValues):
        factors = tuple(replace(factor, value=None) for factor in tracked.factors)
        return WeightedValues(factors) if output.shape == first.shape else None
    if not isinstance(tracked, TrackedWeights):
        return tracked
    if name == "log":
        return replace(tracked, logarithms=True, exact=False)
    if name in _MULTIPLICATIONS and len(operands) == 2:
        factors = [factor for index in (0, 1) if (factor := _factor(operands[index], operands[1 - index], output))]
        if output is first or output is operands[0]:
            factors = [replace(factor, value=None) for factor in factors]  # it was overwritten by the product
        if factors:
            return WeightedValues(tuple(factors))
    return tracked.changed(output.shape, tracked.undropped)


def _is_same(addends: TrackedRecord, divided: TrackedRecord) -> bool:
    """Whether a model divides the tensor that it added up; it may compute the exponentials of one tensor twice."""
    if addends is divided or not isinstance(addends, Exponentials) or not isinstance(divided, Exponentials):
        return addends is divided
    first, second = addends.scores, divided.scores
    if first is None or second is None or first.shape != second.shape:
        return False
    return (first.data_ptr(), first.stride(), first.dtype) == (second.data_ptr(), second.stride(), second.dtype)


def _normalized(tracked: TrackedRecord, axes: tuple[int, ...], output: Tensor) -> TrackedWeights | None:
    """Returns exponentials, or weights, divided by their sum over some axes."""
    if not axes or not isinstance(tracked, (Exponentials, TrackedWeights)):
        return None
    softmax = TrackedSoftmax(tuple(output.shape), axes, {}, has_sum=True)
    if isinstance(tracked, TrackedWeights):
        softmax.makers, softmax.origins = tracked.softmax.makers, (tracked.softmax,)
    return TrackedWeights(softmax, tracked.scores, exact=False)


def _factor(weights: Any, value: Any, product: Tensor) -> Factor | None:
    """Returns weights that are multiplied by more than one element each; None if they are not."""
    tracked = STATE.tracked.get(weights)
    if not isinstance(tracked, TrackedWeights) or tracked.logarithms or not isinstance(value, Tensor):
        return None
    undropped = detached(weights) if tracked.undropped is None else tracked.undropped
    expanded = replace(tracked, undropped=undropped).moved(lambda tensor: tensor.expand(product.shape))
    varying = {*expanded.axes_of_keys(), *expanded.axes_of_rows()}
    if all(size == 1 or axis in varying for axis, size in enumerate(product.shape)):
        return None
    return Factor(expanded, detached(value).expand(product.shape))


@_result
def _mix(call: _FunctionCall, output: Tensor) -> TrackedRecord | None:
    """Handles a convolution or a normalization of the weights of all heads."""
    return call.known.changed(output.shape) if isinstance(call.known, TrackedWeights) else None


def _write(call: _FunctionCall) -> Any:
    """Handles ``weights[index] = elements``."""
    output, known = call.run(), call.known
    if isinstance(known, TrackedWeights):
        with _Bookkeeping():
            undropped = known.undropped
            if undropped is not None:
                undropped = undropped.clone()
                call.function(undropped, *call.others)
            STATE.tracked.put(call.source, replace(known, undropped=undropped, exact=False))
    return output


@_result
def _normalize(call: _FunctionCall, output: Tensor) -> TrackedRecord | None:
    """Handles ``F.normalize`` with ``p=1``: weights divided by their sum."""
    if call.known is None or call.argument("p", 0, 2.0) != 1:
        return None
    return _normalized(call.known, (call.argument("dim", 1, 1) % output.dim(),), output)


# Functions that end in a sum over keys.


def _add_up(call: _FunctionCall) -> Any:
    """Handles a sum over axes: of values multiplied by weights, or of weights that will be divided by it."""
    source, known = call.source, call.known
    axes, weighted = (), None
    with _Bookkeeping():
        axes = () if known is None else added_axes(source, call.others, call.kwargs)
        if isinstance(known, WeightedValues) and axes:
            weighted = sum_of_products(source, known.factors, axes)
    if weighted is not None:
        return _run(call, weighted)
    output = call.run()
    if call.name == "sum" and isinstance(known, (Exponentials, TrackedWeights)) and axes and _has_elements(output):
        STATE.tracked.put(output, TrackedTotal(known, axes))
    return output


def _multiply(call: _FunctionCall) -> Any:
    """Handles a product that is added up over an axis: ``matmul``, ``einsum`` and their like."""
    equation = weighted = None
    with _Bookkeeping():
        equation = equation_of(call.name, call.args, call.kwargs)
        if equation is not None and any(STATE.tracked.get(operand) is not None for operand in equation.operands):
            # A layer's own parameters are no values: they are the same for every input.
            if call.name != "linear" or not isinstance(equation.operands[1], nn.Parameter):
                weighted = sum_of_equation(equation, STATE.tracked)
        else:
            equation = None
    if weighted is not None:
        return _run(call, weighted)
    output = call.run()
    if equation is not None and _has_elements(output):
        with _Bookkeeping():
            mixed = _mixed(equation, output)
            if mixed is not None:
                STATE.tracked.put(output, mixed)
    return output


def _mixed(equation: Equation, output: Tensor) -> TrackedWeights | None:
    """Returns weights whose heads a product mixes, as talking heads do; None if it has no axis of their keys."""
    for operand, labels in zip(equation.operands, equation.labels, strict=True):
        tracked = STATE.tracked.get(operand)
        if not isinstance(tracked, TrackedWeights) or tracked.logarithms:
            continue
        keys = [labels[axis] for axis in tracked.axes_of_keys()]
        others = {label for each in equation.labels if each is not labels for label in each}
        if keys and all(label in equation.output and label not in others for label in keys):
            axes = tuple(equation.output.index(label) for label in keys)
            softmax = TrackedSoftmax(
                tuple(output.shape), axes, tracked.softmax.makers, (tracked.softmax,), has_sum=True
            )
            return TrackedWeights(softmax, None, exact=False)
    return None


def _run(call: _FunctionCall, weighted: WeightedSum) -> Any:
    """Runs a sum that is an attention call, and reports it."""
    softmax = weighted.tracked.softmax
    tensors = [each for each in call.args if isinstance(STATE.tracked.get(each), TrackedWeights)]
    weights = [each for each in tensors if each.shape == weighted.weights.shape]
    STATE.tracked.forget_softmax(softmax)
    for each in softmax.weighs():
        _report_weights(each, -1)

    def change_output(output: Any, change: Callable[[Tensor], Tensor], owner: Owner) -> Any:
        return weighted.change_heads(output, change, owner.heads)

    def read(owner: Owner) -> InterceptedCall:
        return weighted.read(owner.heads)

    opened = STATE.opened_read or read
    output = run_watched(call.function, call.args, call.kwargs, opened, change_output, makers=softmax.makers)
    change = STATE.last_change
    if change is not None and weights and STATE.opened_read is None:
        owner = change.owner

        def changed(returned: Tensor) -> Tensor:
            return weighted.change_weights(returned, change.weights, owner.heads)

        STATE.returned.append(ReturnedWeights(owner.module, TensorWeakRef(weights[0]), changed))
    return output


MOVE_FUNCTIONS = (
    "view", "view_as", "reshape", "reshape_as", "transpose", "transpose_", "swapaxes", "swapdims", "t", "t_", "permute",
    "movedim", "moveaxis", "unsqueeze", "unsqueeze_", "squeeze", "squeeze_", "flatten", "unflatten", "ravel", "expand",
    "expand_as", "broadcast_to", "repeat", "repeat_interleave", "tile", "__getitem__", "select", "narrow", "chunk",
    "split", "tensor_split", "split_with_sizes", "unbind", "index_select", "flip", "roll", "adjoint",
)  # fmt: skip
"""Functions that move elements."""

IDENTITY_FUNCTIONS = ("contiguous", "clone", "detach", "requires_grad_", "alias")
"""Functions that return the same elements in the same places."""

CONVERSION_FUNCTIONS = ("to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda")
"""Functions that return the same elements in another dtype or on another device."""

_STRIDE_FREE_FUNCTIONS = {"view": Tensor.reshape, "view_as": Tensor.reshape_as}
"""The substitutes for functions that depend on the strides of the weights."""

_DIVISIONS = ("div", "divide", "true_divide")
_MULTIPLICATIONS = ("mul", "multiply")
_IN_PLACE_NAMES = (
    "add",
    "sub",
    "pow",
    "clamp",
    "clamp_min",
    "masked_fill",
    "nan_to_num",
    *_DIVISIONS,
    *_MULTIPLICATIONS,
)
_COMPUTATIONS = (
    *_IN_PLACE_NAMES, *(f"{name}_" for name in _IN_PLACE_NAMES), "subtract", "__pow__", "clip", "clamp_max", "maximum",
    "where", "square", "sqrt", "log",
)  # fmt: skip

Rule = Callable[[_FunctionCall], Any]


def _by_function(*rules: tuple[Rule, Sequence[str]]) -> dict[Any, tuple[Rule, str]]:
    """Returns the rule and the name of each function and method of PyTorch that has one of the names."""
    holders = (torch, Tensor, F, torch.special, torch.linalg, torch._VF)
    return {
        function: (rule, name)
        for rule, names in rules
        for name in names
        for holder in holders
        if (function := getattr(holder, name, None)) is not None
    }


_TENSOR_CLASS: Any = Tensor  # type checkers do not know the getters of properties

SOURCE_RULES = _by_function(
    (_softmax, ("softmax", "log_softmax", "softmin", "gumbel_softmax")),
    (_exp, ("exp", "exp_")),
    (_logsumexp, ("logsumexp",)),
    (_topk, ("topk", "sort")),
)
"""The rules and names of the functions of PyTorch that begin weights."""

RULES = {
    **SOURCE_RULES,
    **_by_function(
        (_move, MOVE_FUNCTIONS),
        (_keep, IDENTITY_FUNCTIONS),
        (_round, CONVERSION_FUNCTIONS),
        (_drop, ("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout")),
        (_compute, _COMPUTATIONS),
        (_mix, ("conv1d", "conv2d", "batch_norm")),
        (_add_up, ("sum", "mean", "nansum")),
        (_multiply, tuple(EQUATIONS)),
        (_normalize, ("normalize",)),
        (_write, ("__setitem__",)),
        (_pad, ("_pad_packed_sequence",)),
    ),
    **{getattr(_TENSOR_CLASS, name).__get__: (_move, name) for name in ("T", "mT", "H", "mH")},
    _TENSOR_CLASS.data.__get__: (_keep, "data"),
}
"""The rules for tracked tensors in functions of PyTorch, and the names of the functions."""


def track(function: Function, args: Any, kwargs: Any) -> Any:
    """Runs a function of PyTorch unchanged, and follows tracked tensors through it."""
    STATE.tracked.forget(kwargs.get("out"))
    rule = RULES.get(function)
    if rule is None:
        if args and _is_in_place(getattr(function, "__name__", "")):
            STATE.tracked.forget(args[0])
        return function(*args, **kwargs)
    handler, name = rule
    return handler(_FunctionCall(function, name, args, kwargs))


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _has_elements(output: object) -> bool:
    return isinstance(output, Tensor) and not output.is_nested and output.dim() > 0 and output.numel() > 0
