"""What becomes of a softmax: functions that make it, that change or move its weights, and that weigh sums by them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import TensorWeakRef

from regard.watching.equations import EQUATIONS, Equation, added_axes, equation_of
from regard.watching.owners import Owner
from regard.watching.softmax_results import (
    Chosen,
    Exponentials,
    Factor,
    LogSumExp,
    Move,
    Result,
    Softmax,
    Total,
    WeightedValues,
    Weights,
)  # fmt: skip
from regard.watching.thread_state import STATE, Function, Observer, is_idle, run_watched
from regard.watching.weighted_sum import WeightedSum, sum_of_equation, sum_of_products


def named_functions(names: Sequence[str]) -> dict[Any, str]:
    """The functions and methods of PyTorch that have these names, each with its name."""
    holders = (torch, Tensor, F, torch.special, torch.linalg, torch._VF)
    return {
        function: name for name in names for holder in holders if (function := getattr(holder, name, None)) is not None
    }


# The functions that make weights, or what weights are made of.


def handle_softmax(function: Function, args: Any, kwargs: Any) -> Any:
    """``softmax``, ``softmin``, ``gumbel_softmax`` and ``log_softmax``."""
    output = function(*args, **kwargs)
    if is_idle() or not _has_numbers(output) or isinstance(STATE.results.get(_first(args, kwargs)), Chosen):
        return output
    owners = _attention_modules()
    with _Beside():
        name, source = SOFTMAXES[function], _first(args, kwargs)
        axis = _axis_of_softmax(name, source, args, kwargs) % output.dim()
        scores = None if source is output or name == "gumbel_softmax" else source.detach()
        if name == "softmin" and scores is not None:
            scores = -scores
        softmax = Softmax(tuple(output.shape), (axis,), owners)
        exact, logarithms = name != "gumbel_softmax", name == "log_softmax"
        STATE.results.put(output, Weights(softmax, scores, exact=exact, logarithms=logarithms))
    return output


def _axis_of_softmax(name: str, scores: Tensor, args: Any, kwargs: Any) -> int:
    if name == "gumbel_softmax":
        return kwargs.get("dim", args[4] if len(args) > 4 else -1)
    others = _others(args, kwargs)
    axis = kwargs.get("dim", kwargs.get("axis", others[0] if others else None))
    # Without an axis PyTorch chooses one.
    return int(scores.dim() not in (0, 1, 3)) if axis is None else axis


def _attention_modules() -> dict[int, Owner]:
    """The innermost module on the stack that is named as attention, for each observer that has one."""
    frame = sys._getframe(2)
    found = ((id(observer), observer.names.attention(frame)) for observer in STATE.observers)
    return {number: owner for number, owner in found if owner is not None}


def handle_exp(function: Function, args: Any, kwargs: Any) -> Any:
    """``exp``, of scores or of the logarithms of weights."""
    source = _first(args, kwargs)
    known = STATE.results.get(source)
    output = function(*args, **kwargs)
    if is_idle() or not _has_numbers(output):
        return output
    with _Beside():
        if isinstance(known, Weights) and known.logarithms:
            numbers = None if known.numbers is None else known.numbers.exp()
            STATE.results.put(output, replace(known, logarithms=False, numbers=numbers))
        else:
            STATE.results.put(output, Exponentials(None if source is output else source.detach()))
    return output


def handle_logsumexp(function: Function, args: Any, kwargs: Any) -> Any:
    """``logsumexp``, which a model may subtract from the scores."""
    output = function(*args, **kwargs)
    if not is_idle() and _has_numbers(output):
        with _Beside():
            source = _first(args, kwargs)
            axes = added_axes(source, _others(args, kwargs), kwargs)
            STATE.results.put(output, LogSumExp(TensorWeakRef(source), axes))
    return output


def handle_topk(function: Function, args: Any, kwargs: Any) -> Any:
    """``topk`` and ``sort``, whose softmax is that of no keys in particular."""
    output = function(*args, **kwargs)
    if not is_idle():
        STATE.results.put(output[0], Chosen())
    return output


# The functions that follow.


def _move(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """A function that puts numbers elsewhere."""
    result = STATE.results.get(_first(args, kwargs))
    output = function(*args, **kwargs)
    if result is None:
        return output
    others, options = _others(args, kwargs), {key: value for key, value in kwargs.items() if key != "input"}
    instead = _ON_ANY_STRIDES.get(name) or (getattr(Tensor, name[:-1]) if _is_in_place(name) else function)

    def move(tensor: Tensor) -> Any:
        return instead(tensor, *others, **options)

    if isinstance(output, Tensor):
        _put_moved(output, result, move)
    else:
        for place, part in enumerate(output):
            _put_moved(part, result, lambda tensor, place=place: move(tensor)[place])
    return output


def _put_moved(output: Tensor, result: Result, move: Move) -> None:
    STATE.results.forget(output)
    with _Beside():
        moved = result.moved(move)
        if not isinstance(moved, Weights) or (moved.key is not None and moved.key.shape == output.shape):
            STATE.results.put(output, moved)


def _pad(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """``_pad_packed_sequence``: packed exponentials as batch rows."""
    result = STATE.results.get(args[0])
    output = function(*args, **kwargs)
    if isinstance(result, Exponentials):
        batch_sizes, batch_first, _, total = args[1:]
        _put_moved(output[0], result, lambda tensor: function(tensor, batch_sizes, batch_first, -torch.inf, total)[0])
    return output


def _keep(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """A function that gives the same numbers in the same axes."""
    result = STATE.results.get(_first(args, kwargs))
    output = function(*args, **kwargs)
    if result is not None and isinstance(output, Tensor):
        STATE.results.put(output, result)
    return output


def _round(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """Another dtype: the weights are those before they were rounded."""
    source = _first(args, kwargs)
    result = STATE.results.get(source)
    output = function(*args, **kwargs)
    if result is not None and output is not source and _has_numbers(output):
        with _Beside():
            if isinstance(result, Weights) and result.numbers is None:
                result = replace(result, numbers=source.detach())
            STATE.results.put(output, result)
    return output


def _drop(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """Dropout: the weights are those before it."""
    source = _first(args, kwargs)
    result = STATE.results.get(source)
    with _Beside():
        others = _others(args, kwargs)
        rate = float(kwargs.get("p", others[0] if others else 0.5))
        is_active = bool(kwargs.get("training", kwargs.get("train", others[1] if len(others) > 1 else True)))
        if isinstance(result, Weights) and is_active and rate > 0:
            in_place = _is_in_place(name) or kwargs.get("inplace", len(others) > 2 and others[2])
            numbers = result.numbers
            if numbers is None:
                numbers = source.detach().clone() if in_place else source.detach()
            result = replace(result, numbers=numbers, dropout=rate)
    output = function(*args, **kwargs)
    if result is not None and isinstance(output, Tensor):
        STATE.results.put(output, result)
    return output


def _compute(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """A function of each number."""
    operands = [*args, *(kwargs[key] for key in ("input", "other") if key in kwargs)]
    known = [(operand, result) for operand in operands if (result := STATE.results.get(operand)) is not None]
    output = function(*args, **kwargs)
    if not known or not _has_numbers(output):
        return output
    STATE.results.forget(output)
    with _Beside():
        made = _result_of_computation(name.strip("_"), operands, known, output)
        if isinstance(made, Weights) and made.numbers is not None:
            # The same is done to the weights before dropout.
            plain = getattr(Tensor, name[:-1]) if _is_in_place(name) else function
            numbers = [made.numbers if operand is known[0][0] else operand for operand in operands]
            options = {key: value for key, value in kwargs.items() if key not in ("input", "other", "out")}
            made.numbers = plain(*numbers, **options)
        if made is not None:
            STATE.results.put(output, made)
    return output


def _result_of_computation(
    name: str, operands: Sequence[Any], known: Sequence[tuple[Tensor, Result]], output: Tensor
) -> Result | None:
    """What the result of a function of each number is.

    Args:
        name: of the function.
        operands: its arguments.
        known: those of which something is known.
        output: its result.
    """
    (first, result), (_, second) = known[0], known[-1]
    if isinstance(second, Total) and name in _DIVISIONS and _is_same(second.added, result):
        return _normalized(result, second.axes, output)
    if isinstance(result, LogSumExp):
        scores = operands[0]
        is_difference = name in ("sub", "subtract") and result.scores() is scores
        softmax = Softmax(tuple(output.shape), result.axes, {})
        return Weights(softmax, scores.detach(), logarithms=True) if is_difference else None
    if isinstance(result, Total):
        others = [operand for operand in operands if operand is not first]
        return None if any(isinstance(other, Tensor) and other.dim() for other in others) else result
    if isinstance(result, Chosen):
        return result
    if isinstance(result, Exponentials):
        return result.changed(output.shape)
    if isinstance(result, WeightedValues):
        factors = tuple(replace(factor, value=None) for factor in result.factors)
        return WeightedValues(factors) if output.shape == first.shape else None
    if name == "log":
        return replace(result, logarithms=True, exact=False)
    if name in _MULTIPLICATIONS and len(operands) == 2:
        factors = [factor for place in (0, 1) if (factor := _factor(operands[place], operands[1 - place], output))]
        if output is first or output is operands[0]:
            factors = [replace(factor, value=None) for factor in factors]  # it was overwritten by the product
        if factors:
            return WeightedValues(tuple(factors))
    return result.changed(output.shape, result.numbers)


def _is_same(added: Result, divided: Result) -> bool:
    """Whether numbers that were added up are those that are divided; the exponentials of a tensor may be made twice."""
    if added is divided or not isinstance(added, Exponentials) or not isinstance(divided, Exponentials):
        return added is divided
    first, second = added.scores, divided.scores
    if first is None or second is None or first.shape != second.shape:
        return False
    return (first.data_ptr(), first.stride(), first.dtype) == (second.data_ptr(), second.stride(), second.dtype)


def _normalized(result: Result, axes: tuple[int, ...], output: Tensor) -> Weights | None:
    """Exponentials, or weights, divided by their sum over some axes."""
    if not axes or not isinstance(result, (Exponentials, Weights)):
        return None
    owners = result.softmax.owners if isinstance(result, Weights) else {}
    return Weights(Softmax(tuple(output.shape), axes, owners), result.scores, exact=False)


def _factor(weights: Any, value: Any, product: Tensor) -> Factor | None:
    """Weights that are multiplied by more than one number each; None if they are not."""
    result = STATE.results.get(weights)
    if not isinstance(result, Weights) or result.logarithms or not isinstance(value, Tensor):
        return None
    numbers = weights.detach() if result.numbers is None else result.numbers
    expanded = replace(result, numbers=numbers).moved(lambda tensor: tensor.expand(product.shape))
    varying = {*expanded.axes_of_keys(), *expanded.axes_of_rows()}
    if all(size == 1 or axis in varying for axis, size in enumerate(product.shape)):
        return None
    return Factor(expanded, value.detach().expand(product.shape))


def _mix(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """A convolution or a normalization of the weights of all heads."""
    result = STATE.results.get(_first(args, kwargs))
    output = function(*args, **kwargs)
    if isinstance(result, Weights):
        with _Beside():
            STATE.results.put(output, result.changed(output.shape))
    return output


def _write(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """``weights[index] = numbers``."""
    output, result = function(*args, **kwargs), STATE.results.get(args[0])
    if isinstance(result, Weights):
        with _Beside():
            numbers = result.numbers
            if numbers is not None:
                numbers = numbers.clone()
                function(numbers, *args[1:])
            STATE.results.put(args[0], replace(result, numbers=numbers, exact=False))
    return output


def _normalize(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """``F.normalize`` with ``p=1``: weights divided by their sum."""
    result = STATE.results.get(_first(args, kwargs))
    output = function(*args, **kwargs)
    if result is not None and _has_numbers(output):
        with _Beside():
            others = _others(args, kwargs)
            p = kwargs.get("p", others[0] if others else 2.0)
            axis = kwargs.get("dim", others[1] if len(others) > 1 else 1)
            made = _normalized(result, (axis % output.dim(),), output) if p == 1 else None
            if made is not None:
                STATE.results.put(output, made)
    return output


def _add_up(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """A sum over axes: of values that were multiplied by weights, or of weights, by which they will be divided."""
    source = _first(args, kwargs)
    result = STATE.results.get(source)
    axes, found = (), None
    with _Beside():
        axes = () if result is None else added_axes(source, _others(args, kwargs), kwargs)
        if isinstance(result, WeightedValues) and axes:
            found = sum_of_products(source, result.factors, axes)
    if found is not None:
        return _run(function, args, kwargs, found)
    output = function(*args, **kwargs)
    if name == "sum" and isinstance(result, (Exponentials, Weights)) and axes and _has_numbers(output):
        STATE.results.put(output, Total(result, axes))
    return output


def _multiply(function: Function, name: str, args: Any, kwargs: Any) -> Any:
    """A product that is added up over an axis: ``matmul``, ``einsum`` and their like."""
    equation = found = None
    with _Beside():
        equation = equation_of(name, args, kwargs)
        if equation is not None and any(STATE.results.get(operand) is not None for operand in equation.operands):
            # A layer's own parameters are no values: they would be those of any input.
            if name != "linear" or not isinstance(equation.operands[1], nn.Parameter):
                found = sum_of_equation(equation, STATE.results)
        else:
            equation = None
    if found is not None:
        return _run(function, args, kwargs, found)
    output = function(*args, **kwargs)
    if equation is not None and _has_numbers(output):
        with _Beside():
            mixed = _mixed(equation, output)
            if mixed is not None:
                STATE.results.put(output, mixed)
    return output


def _mixed(equation: Equation, output: Tensor) -> Weights | None:
    """Weights whose heads a product mixes, as talking heads do; None if the product has no axis of their keys."""
    for operand, labels in zip(equation.operands, equation.labels, strict=True):
        result = STATE.results.get(operand)
        if not isinstance(result, Weights) or result.logarithms:
            continue
        keys = [labels[axis] for axis in result.axes_of_keys()]
        others = {label for each in equation.labels if each is not labels for label in each}
        if keys and all(label in equation.output and label not in others for label in keys):
            axes = tuple(equation.output.index(label) for label in keys)
            return Weights(Softmax(tuple(output.shape), axes, result.softmax.owners), None, exact=False)
    return None


def _run(function: Function, args: Any, kwargs: Any, found: WeightedSum) -> Any:
    owners = found.weights.softmax.owners
    STATE.results.forget_softmax(found.weights.softmax)

    def change(output: Any, observer: Observer, owner: Owner) -> Any:
        return found.change_heads(output, lambda heads: observer.change(owner, heads), owner.module)

    return run_watched(function, args, kwargs, lambda owner: found.read(owner.module), change, owners=owners)


_MOVES = (
    "view", "view_as", "reshape", "reshape_as", "transpose", "transpose_", "swapaxes", "swapdims", "t", "t_", "permute",
    "movedim", "moveaxis", "unsqueeze", "unsqueeze_", "squeeze", "squeeze_", "flatten", "unflatten", "ravel", "expand",
    "expand_as", "broadcast_to", "repeat", "repeat_interleave", "tile", "__getitem__", "select", "narrow", "chunk",
    "split", "tensor_split", "split_with_sizes", "unbind", "index_select", "flip", "roll", "adjoint",
)  # fmt: skip

_ON_ANY_STRIDES = {"view": Tensor.reshape, "view_as": Tensor.reshape_as}
"""What takes the place of functions that need the strides of the weights."""

_SAME = ("contiguous", "clone", "detach", "requires_grad_", "alias")
_DTYPES = ("to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda")
_DROPOUTS = ("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout")
_DIVISIONS = ("div", "divide", "true_divide")
_MULTIPLICATIONS = ("mul", "multiply")
_IN_PLACE = ("add", "sub", "pow", "clamp", "clamp_min", "masked_fill", "nan_to_num", *_DIVISIONS, *_MULTIPLICATIONS)
_COMPUTATIONS = (
    *_IN_PLACE, *(f"{name}_" for name in _IN_PLACE), "subtract", "__pow__", "clip", "clamp_max", "maximum", "where",
    "square", "sqrt", "log",
)  # fmt: skip


def _rules() -> dict[Any, tuple[Callable[..., Any], str]]:
    kinds: tuple[tuple[Callable[..., Any], Sequence[str]], ...] = (
        (_move, _MOVES),
        (_keep, _SAME),
        (_round, _DTYPES),
        (_drop, _DROPOUTS),
        (_compute, _COMPUTATIONS),
        (_mix, ("conv1d", "conv2d", "batch_norm")),
        (_add_up, ("sum", "mean", "nansum")),
        (_multiply, tuple(EQUATIONS)),
        (_normalize, ("normalize",)),
        (_write, ("__setitem__",)),
        (_pad, ("_pad_packed_sequence",)),
    )
    rules = {function: (rule, name) for rule, names in kinds for function, name in named_functions(names).items()}
    # The getters of properties. Their descriptors have no type that is told.
    of_tensor: Any = Tensor
    rules.update({getattr(of_tensor, name).__get__: (_move, name) for name in ("T", "mT", "H", "mH")})
    rules[of_tensor.data.__get__] = _keep, "data"
    return rules


RULES = _rules()
"""By the functions of PyTorch: what follows the weights through them, and their names."""

SOFTMAXES = named_functions(("softmax", "log_softmax", "softmin", "gumbel_softmax"))
EXPONENTIALS = named_functions(("exp", "exp_"))
LOG_SUM_EXPS = named_functions(("logsumexp",))
CHOICES = named_functions(("topk", "sort"))


def follow(function: Function, args: Any, kwargs: Any) -> Any:
    """Run a function of PyTorch as it is, and note what becomes of weights in it."""
    if is_idle():
        return function(*args, **kwargs)
    STATE.results.forget(kwargs.get("out"))
    rule = RULES.get(function)
    if rule is None:
        name = getattr(function, "__name__", "")
        if args and _is_in_place(name):
            STATE.results.forget(args[0])
        return function(*args, **kwargs)
    handler, name = rule
    return handler(function, name, args, kwargs)


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _has_numbers(output: object) -> bool:
    return isinstance(output, Tensor) and not output.is_nested and output.dim() > 0 and output.numel() > 0


def _first(args: Any, kwargs: Any) -> Any:
    return args[0] if args and "input" not in kwargs else kwargs.get("input")


def _others(args: Any, kwargs: Any) -> Any:
    return args if "input" in kwargs else args[1:]


class _Beside:
    """What is computed beside the model: no function mode sees it, autograd does not record it, and an error in it ends
    nothing but itself."""

    def __enter__(self) -> None:
        self._contexts = torch.no_grad(), torch._C.DisableTorchFunction()
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> bool:
        for context in reversed(self._contexts):
            context.__exit__(None, None, None)
        return kind is not None and issubclass(kind, Exception)
