"""The verbs as operators of PyTorch: one each, which compilers and exporters take as it is.

``torch.ops.regard.attend``, ``attend_with_weights`` and ``observe`` take query, key and value, a list of all other
tensors, the numbers, and the rest as a text (`regard.attention.encoding`). They run the problem on the backend as a
call outside of a compiler does, whatever Python that needs; their shapes are known without numbers. The backward pass
computes the forward pass again.

Random numbers come from a seed, which is drawn where the operator is called, so that both passes use the same.

`torch.utils.flop_counter.FlopCounterMode` counts each call as one operator, whatever backend runs it:

::

    forward    2 · batch · heads · queries · keys · (dim + value_dim)
    backward   2 · batch · heads · queries · keys · (3 · dim + 2 · value_dim)

whatever the score, the mask and the backend are: 2.5 times as many backward, as PyTorch counts its own fused attention,
where the scores are made again. Only a score or a normalizer that is a function runs as it is, and PyTorch counts its
products.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_autograd, register_fake
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from regard.attention.encoding import Parts, decode, encode
from regard.attention.execution import execute
from regard.attention.planner import choose
from regard.attention.problem import Problem, validate
from regard.attention.readings import Gatherer, Readings
from regard.attention.result import Attended
from regard.attention.steps import mix, weigh, whole
from regard.biases import TensorBias
from regard.errors import BackendError
from regard.kernels.availability import kernels_awaited
from regard.masks import keep
from regard.portable import is_portable
from regard.shapes import upcast
from regard.transforms import active_transform

_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, Tensor[] tensors, float[] numbers, SymInt[] integers, str text, "
    "str backend, Tensor? seed"
)
_LIBRARY = Library("regard", "DEF")
_LIBRARY.define(f"attend({_ARGUMENTS}) -> Tensor")
_LIBRARY.define(f"attend_with_weights({_ARGUMENTS}) -> (Tensor, Tensor)")
_LIBRARY.define(f"observe({_ARGUMENTS}, str read) -> Tensor[]")
_LIBRARY.define(f"attend_backward(Tensor? grad_output, Tensor? grad_weights, {_ARGUMENTS}) -> Tensor[]")


def attend_traced(
    problem: Problem, backend: str, gatherer: Gatherer | None = None, need_weights: bool = False
) -> Attended:
    """The result of a problem whose numbers are not known, by a verb's operator.

    A score or a normalizer that holds a function has no text. Such a problem runs by the specification, whose
    operations a compiler sees one by one, so that gradients reach what the function holds. So does every problem within
    `regard.portable.portable_operations`.

    Arguments as for `regard.attention.execution.execute`, but the backend by its name.

    Raises:
        BackendError: the named backend takes no functions.
    """
    parts = Parts()
    # A compiler takes care of the transforms inside of what it compiles.
    transformed = not torch.compiler.is_compiling() and active_transform() is not None
    text = None if transformed or is_portable() else _encoded(problem, parts)
    if text is None:
        if backend not in ("auto", "reference", "tiled"):
            raise BackendError(
                f"backend {backend!r} cannot run this: a score or a normalizer that is a function, or a torch.func "
                "transform, is traced through 'reference'"
            )
        return _by_specification(problem, gatherer, need_weights)
    seed = torch.randint(2**62, ()) if problem.dropout or problem.normalizer.random else None
    arguments = (
        problem.query,
        problem.key,
        problem.value,
        parts.tensors,
        parts.numbers,
        parts.integers,
        text,
        backend,
        seed,
    )
    if gatherer is not None and gatherer.read.shares:
        raise BackendError("shares cannot be read while a compiler traces; read them from a call outside of it")
    if gatherer is not None:
        output, *taken = torch.ops.regard.observe(*arguments, _encoded_readings(gatherer.read))
        gatherer.fill(taken)
        return Attended(output, None)
    if need_weights:
        return Attended(*torch.ops.regard.attend_with_weights(*arguments))
    return Attended(torch.ops.regard.attend(*arguments), None)


def execute_counted(
    problem: Problem, backend: str, gatherer: Gatherer | None = None, need_weights: bool = False
) -> Attended:
    """`regard.attention.execution.execute` as an operator, where it can be one: for a counter of operations."""
    reads_shares = gatherer is not None and bool(gatherer.read.shares)
    if active_transform() is not None or reads_shares or _encoded(problem, Parts()) is None:
        return execute(problem, backend, gatherer, need_weights)
    return attend_traced(problem, backend, gatherer, need_weights)


def _by_specification(problem: Problem, gatherer: Gatherer | None, need_weights: bool) -> Attended:
    inputs = whole(problem)
    steps = weigh(problem, inputs)
    if gatherer is not None:
        gatherer.add(steps.masked, steps.weights, problem.grid)
    return Attended(mix(problem, inputs, steps.weights), steps.weights if need_weights else None)


def _encoded(problem: Problem, parts: Parts) -> str | None:
    """The problem but for its inputs; None if its score or normalizer has no text. Masks and biases become dense."""
    score, normalizer = encode(problem.score, parts), encode(problem.normalizer, parts)
    if score is None or normalizer is None:
        return None
    mask = encode(problem.mask, parts)
    if mask is None and problem.mask is not None:
        mask = encode(keep(problem.mask.allows(problem.grid)), parts)
    bias = encode(problem.bias, parts)
    if bias is None and problem.bias is not None:
        bias = encode(TensorBias(problem.bias(problem.query, problem.grid)), parts)
    dropout = encode(problem.dropout, parts)
    return f"('sequence', {score}, {normalizer}, {mask}, {bias}, {dropout})"


def _encoded_readings(read: Readings) -> str:
    text = encode([getattr(read, field) for field in READINGS], None)
    assert text is not None
    return text


READINGS = tuple(field.name for field in fields(Readings))


def _problem(query: Tensor, key: Tensor, value: Tensor, parts: Parts, text: str) -> Problem:
    score, normalizer, mask, bias, dropout = decode(text, parts)
    return validate(query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)


def _seeded(seed: Tensor | None) -> AbstractContextManager[object]:
    """PyTorch's generator with this seed, and afterwards as it was."""
    stack = ExitStack()
    if seed is not None:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(int(seed))
    return stack


def _run(
    inputs: Sequence[Any], gatherer: Gatherer | None = None, need_weights: bool = False
) -> tuple[Problem, Attended]:
    query, key, value, tensors, numbers, integers, text, _, seed = inputs
    problem = _problem(query, key, value, Parts(tensors, numbers, integers), text)
    with _seeded(seed):
        return problem, execute(problem, _backend_of(inputs), gatherer, need_weights)


def _backend_of(inputs: Sequence[Any]) -> str:
    """The backend of both passes.

    The backward pass computes a call again, and draws the same random numbers on the same backend alone. So ``auto``
    chooses for a random problem as if a gradient were wanted, and waits for its kernels.
    """
    query, key, value, tensors, numbers, integers, text, backend, seed = _detached(tuple(inputs))
    if seed is None or backend != "auto" or query.is_inference():
        return backend
    with torch.enable_grad(), torch.autocast(query.device.type, enabled=False), kernels_awaited():
        parts = Parts(tensors, numbers, integers)
        return choose(_problem(query.requires_grad_(), key, value, parts, text), backend).name


def _detached(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same without requires_grad: a hook of PyTorch's counter on a part's call would look for gradients."""
    query, key, value, tensors, *rest = inputs
    return query.detach(), key.detach(), value.detach(), [tensor.detach() for tensor in tensors], *rest


@torch.no_grad()
def _attend(*inputs: Any) -> Tensor:
    return _run(_detached(inputs))[1].output.contiguous()


@torch.no_grad()
def _attend_with_weights(*inputs: Any) -> tuple[Tensor, Tensor]:
    _, attended = _run(_detached(inputs), need_weights=True)
    assert attended.weights is not None
    return attended.output.contiguous(), attended.weights.contiguous()


@torch.no_grad()
def _observe(*inputs: Any) -> list[Tensor]:
    *arguments, read = _detached(inputs)
    query, key, value, tensors, numbers, integers, text, _, seed = arguments
    problem = _problem(query, key, value, Parts(tensors, numbers, integers), text)
    gatherer = Gatherer(problem, _readings(read))
    with _seeded(seed):
        output = execute(problem, _backend_of(arguments), gatherer).output
    return [output.contiguous(), *(tensor.clone() for tensor in gatherer.taken())]


def _readings(text: str) -> Readings:
    values = decode(text, Parts())
    named = dict(zip(READINGS, values, strict=True))
    if named["tile"] is not None:
        named["tile"] = tuple(tuple(ends) for ends in named["tile"])
    return Readings(**named)


@contextmanager
def _derivatives() -> Iterator[None]:
    """Lets PyTorch derive what runs inside of an operator, also where a dispatch mode called it below autograd."""
    guard, keys = torch._C._SetExcludeDispatchKeyGuard, torch._C.DispatchKey
    with guard(keys.AutogradFunctionality, False), guard(keys.ADInplaceOrView, False):
        yield


def _attend_backward(grad_output: Tensor | None, grad_weights: Tensor | None, *inputs: Any) -> list[Tensor]:
    """Gradients of query, key, value and all other tensors; empty for those that hold no floating-point numbers."""
    query, key, value, tensors, numbers, integers, text, backend, seed = inputs
    leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in (query, key, value, *tensors)]
    with torch.enable_grad(), _derivatives():
        # Not the leaves themselves, on which a hook of PyTorch's counter would wait for an accumulated gradient.
        views = [leaf.view_as(leaf) for leaf in leaves]
        arguments = (*views[:3], views[3:], numbers, integers, text, backend, seed)
        _, attended = _run(arguments, need_weights=grad_weights is not None)
        pairs = ((attended.output, grad_output), (attended.weights, grad_weights))
        given = [(result, grad) for result, grad in pairs if grad is not None and result is not None]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        gradients = torch.autograd.grad(
            [result for result, _ in given], wanted, [grad for _, grad in given], allow_unused=True
        )
    grads = iter(gradients)
    results = []
    for leaf in leaves:
        grad = next(grads) if leaf.requires_grad else leaf.new_empty(0)
        results.append(torch.zeros_like(leaf) if grad is None else grad.contiguous().clone())
    return results


def _output_shape(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
    return value.new_empty(*query.shape[:3], value.shape[3])


def _outputs_shapes(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    weights = upcast(query.new_empty(0)).new_empty(*query.shape[:3], key.shape[2])
    return _output_shape(query, key, value), weights


def _readings_shapes(*inputs: Any) -> list[Tensor]:
    query, key, value, tensors, numbers, integers, text, _, _, read = inputs
    problem = _problem(query, key, value, Parts(tensors, numbers, integers), text)
    return [_output_shape(query, key, value), *Gatherer(problem, _readings(read)).taken()]


def _gradients_shapes(grad_output: Tensor | None, grad_weights: Tensor | None, *inputs: Any) -> list[Tensor]:
    query, key, value, tensors, *_ = inputs
    return [
        tensor.new_empty(tensor.shape if tensor.is_floating_point() else 0) for tensor in (query, key, value, *tensors)
    ]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    query, key, value, tensors, ctx.numbers, ctx.integers, ctx.text, ctx.backend, seed, *_ = inputs
    ctx.seeded, ctx.readings = seed is not None, len(inputs) > 9
    ctx.save_for_backward(query, key, value, *tensors, *([seed] if seed is not None else []))
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    if torch.is_grad_enabled():
        raise BackendError("an operator of regard has no second derivative; call regard outside of what is compiled")
    saved = list(ctx.saved_tensors)
    seed = saved.pop() if ctx.seeded else None
    query, key, value, *tensors = saved
    grad_output = grads[0]
    grad_weights = grads[1] if len(grads) > 1 else None
    # PyTorch takes an empty list for one of tensors, for which it wants a list back.
    numbers = (None if ctx.numbers else [], None if ctx.integers else [])
    rest = (*numbers, *[None] * (4 if ctx.readings else 3))
    if grad_output is None and grad_weights is None:
        return (None, None, None, [None] * len(tensors), *rest)
    gradients = torch.ops.regard.attend_backward(
        grad_output, grad_weights, query, key, value, tensors, ctx.numbers, ctx.integers, ctx.text, ctx.backend, seed
    )
    pairs = zip(gradients[3:], tensors, strict=True)
    others = [grad if tensor.is_floating_point() else None for grad, tensor in pairs]
    return (*gradients[:3], others, *rest)


def _differentiate_output(ctx: Any, grad_output: Tensor | None) -> tuple[Any, ...]:
    return _differentiate(ctx, (grad_output,))


def _differentiate_both(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    return _differentiate(ctx, grads)


def _differentiate_observed(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    # Readings carry no gradient.
    return _differentiate(ctx, grads[:1])


for _name, _implementation, _shapes in (
    ("attend", _attend, _output_shape),
    ("attend_with_weights", _attend_with_weights, _outputs_shapes),
    ("observe", _observe, _readings_shapes),
    ("attend_backward", _attend_backward, _gradients_shapes),
):
    _LIBRARY.impl(_name, _implementation, "CompositeExplicitAutograd")
    register_fake(f"regard::{_name}", _shapes, lib=_LIBRARY)
register_autograd("regard::attend", _differentiate_output, setup_context=_save, lib=_LIBRARY)
register_autograd("regard::attend_with_weights", _differentiate_both, setup_context=_save, lib=_LIBRARY)
register_autograd("regard::observe", _differentiate_observed, setup_context=_save, lib=_LIBRARY)

COUNTER = "torch.utils.flop_counter"
"""PyTorch's module, which may import a compiler: it is only used where somebody imported it."""


def counts_operations() -> bool:
    """Whether a counter of operations is active."""
    if COUNTER not in sys.modules:
        return False
    kind = sys.modules[COUNTER]._FlopCounterMode
    modes: list[Any] = _get_current_dispatch_mode_stack()
    counters = [mode.counter for mode in modes if isinstance(mode, kind)]
    for counter in counters:
        _register(counter.flop_registry)
    return bool(counters)


def _forward_operations(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> int:
    return 2 * query.shape[:3].numel() * key.shape[2] * (key.shape[3] + value.shape[3])


def _backward_operations(
    grad_output: Any, grad_weights: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any
) -> int:
    return 2 * query.shape[:3].numel() * key.shape[2] * (3 * key.shape[3] + 2 * value.shape[3])


def _register(registry: dict[Any, Any]) -> None:
    operators = torch.ops.regard
    for operator in (operators.attend, operators.attend_with_weights, operators.observe):
        registry.setdefault(operator, _forward_operations)
    registry.setdefault(operators.attend_backward, _backward_operations)


if COUNTER in sys.modules:
    _register(sys.modules[COUNTER].flop_registry)
