"""The verbs as operators of PyTorch, which compilers and exporters do not trace into.

``torch.ops.regard.attend``, ``attend_with_weights`` and ``observe`` take query, key and value, a list of all other
tensors, the numbers, and the rest as a text (`regard.attention.encoding`). They run the problem on the backend as a
call outside of a compiler does, and the shapes of their results do not depend on elements. The backward pass computes
the forward pass again.

Random numbers come from a seed that is drawn where the operator is called, so that both passes draw the same ones.

`torch.utils.flop_counter.FlopCounterMode` counts each call as one operator, whatever backend runs it:

::

    forward    2 · batch · heads · queries · keys · (dim + value_dim)
    backward   2 · batch · heads · queries · keys · (3 · dim + 2 · value_dim)

whatever the score, the mask and the backend are: 2.5 times as many in the backward pass, as PyTorch counts its own
fused attention, which computes the scores again. If the score or the normalizer is a function, there is no operator,
and PyTorch counts single products.
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

from regard.attention.backends.reference import specified
from regard.attention.composed import composed
from regard.attention.encoding import Parts, decode, encode
from regard.attention.execution import choose, execute
from regard.attention.problem import Problem, validate
from regard.attention.readings import Gatherer, Readings
from regard.attention.result import Attended
from regard.biases import TensorBias
from regard.errors import BackendError
from regard.kernels.availability import kernels_awaited
from regard.masks import keep
from regard.shapes.grid import upcast
from regard.tracing.portable import is_portable, register_operations
from regard.tracing.transforms import active_transform

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
    """Runs a problem by an operator, for calls that are traced and for tensors without data.

    A score or a normalizer that contains a function has no text. Then the specification runs, whose operations a
    compiler sees one by one, so that gradients reach the tensors that the function uses. Within
    `regard.tracing.portable.portable_operations` every problem is composed of PyTorch's own operations.

    The arguments are those of `regard.attention.execution.execute`.
    """
    parts = Parts()
    # A compiler handles the transforms inside the function that it compiles.
    transformed = not torch.compiler.is_compiling() and active_transform() is not None
    text = None if transformed or is_portable() else _encoded(problem, parts)
    if text is None:
        if backend not in ("auto", "reference", "tiled"):
            raise BackendError(
                f"backend {backend!r} cannot run this: a score or a normalizer that is a function, or a torch.func "
                "transform, is traced through 'reference'"
            )
        if is_portable():
            return composed(problem, gatherer, need_weights)
        attended = specified(problem, gatherer)
        return attended if need_weights else Attended(attended.output, None)
    seed = torch.randint(2**62, (), device="cpu") if problem.dropout or problem.normalizer.random else None
    inputs = problem.query, problem.key, problem.value
    arguments = *inputs, parts.tensors, parts.numbers, parts.integers, text, backend, seed
    if gatherer is not None and gatherer.read.by_masks:
        name = "shares" if gatherer.read.shares else "recall"
        raise BackendError(f"{name} cannot be read while a compiler traces; read {name} from a call outside of it")
    if gatherer is not None:
        output, *readings = torch.ops.regard.observe(*arguments, _encoded_readings(gatherer.read))
        gatherer.fill(readings)
        return Attended(output, None)
    if need_weights:
        return Attended(*torch.ops.regard.attend_with_weights(*arguments))
    return Attended(torch.ops.regard.attend(*arguments), None)


def execute_counted(
    problem: Problem, backend: str, gatherer: Gatherer | None = None, need_weights: bool = False
) -> Attended:
    """Runs `regard.attention.execution.execute` as one operator if possible, which PyTorch's counter counts."""
    reads_by_masks = gatherer is not None and gatherer.read.by_masks
    if active_transform() is not None or reads_by_masks or _encoded(problem, Parts()) is None:
        return execute(problem, backend, gatherer, need_weights)
    return attend_traced(problem, backend, gatherer, need_weights)


def _encoded(problem: Problem, parts: Parts) -> str | None:
    """Returns the text of all but the inputs; None if the score or the normalizer has none.

    Masks and biases that have no text are made dense.
    """
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


def _problem(inputs: Sequence[Any]) -> Problem:
    """Returns the problem of an operator's arguments; those after the text count for nothing."""
    query, key, value, tensors, numbers, integers, text, *_ = inputs
    score, normalizer, mask, bias, dropout = decode(text, Parts(tensors, numbers, integers))
    return validate(query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)


def _seeded(seed: Tensor | None, device: torch.device) -> AbstractContextManager[object]:
    """Returns a context in which PyTorch's generators have this seed; afterwards those of the CPU and of the device
    have the states that they had before."""
    stack = ExitStack()
    if seed is not None:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        if device.type != "cpu":
            stack.enter_context(torch.random.fork_rng(devices=[device], device_type=device.type))
        torch.manual_seed(int(seed))
    return stack


def _run(
    inputs: Sequence[Any], read: Readings | None = None, need_weights: bool = False
) -> tuple[Attended, Gatherer | None]:
    problem = _problem(inputs)
    gatherer = None if read is None else Gatherer(problem, read)
    with _seeded(inputs[-1], problem.query.device):
        return execute(problem, _backend_of(inputs), gatherer, need_weights), gatherer


def _backend_of(inputs: Sequence[Any]) -> str:
    """Returns the backend of both passes.

    The backward pass computes the call again, and draws the same random numbers only on the same backend. Therefore
    ``auto`` chooses for a random problem as if a gradient were needed, and waits for its kernels.
    """
    query, *others, backend, seed = _detached(tuple(inputs))
    if seed is None or backend != "auto" or query.is_inference():
        return backend
    with torch.enable_grad(), torch.autocast(query.device.type, enabled=False), kernels_awaited():
        return choose(_problem((query.requires_grad_(), *others)), backend).name


def _detached(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Detaches all tensors, because hooks of PyTorch's counter on modules look for tensors that require a gradient."""
    query, key, value, tensors, *rest = inputs
    return query.detach(), key.detach(), value.detach(), [tensor.detach() for tensor in tensors], *rest


@torch.no_grad()
def _attend(*inputs: Any) -> Tensor:
    return _run(_detached(inputs))[0].output.contiguous()


@torch.no_grad()
def _attend_with_weights(*inputs: Any) -> tuple[Tensor, Tensor]:
    attended, _ = _run(_detached(inputs), need_weights=True)
    assert attended.weights is not None
    return attended.output.contiguous(), attended.weights.contiguous()


@torch.no_grad()
def _observe(*inputs: Any) -> list[Tensor]:
    *arguments, read = _detached(inputs)
    attended, gatherer = _run(arguments, _readings(read))
    assert gatherer is not None
    return [attended.output.contiguous(), *(tensor.clone() for tensor in gatherer.tensors())]


def _readings(text: str) -> Readings:
    values = decode(text, Parts())
    named = dict(zip(READINGS, values, strict=True))
    if named["tile"] is not None:
        named["tile"] = tuple(tuple(ends) for ends in named["tile"])
    return Readings(**named)


@contextmanager
def _derivatives() -> Iterator[None]:
    """Enables autograd inside an operator, even if a dispatch mode called it below autograd."""
    guard, keys = torch._C._SetExcludeDispatchKeyGuard, torch._C.DispatchKey
    with guard(keys.AutogradFunctionality, False), guard(keys.ADInplaceOrView, False):
        yield


def _attend_backward(grad_output: Tensor | None, grad_weights: Tensor | None, *inputs: Any) -> list[Tensor]:
    """Returns the gradients of query, key, value and all other tensors; they are empty for integers and bools."""
    query, key, value, tensors, numbers, integers, text, backend, seed = inputs
    leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in (query, key, value, *tensors)]
    with torch.enable_grad(), _derivatives():
        # With the leaves themselves, a hook of PyTorch's counter would wait for an accumulated gradient.
        views = [leaf.view_as(leaf) for leaf in leaves]
        arguments = (*views[:3], views[3:], numbers, integers, text, backend, seed)
        attended, _ = _run(arguments, need_weights=grad_weights is not None)
        pairs = ((attended.output, grad_output), (attended.weights, grad_weights))
        pairs = [(result, grad) for result, grad in pairs if grad is not None and result is not None]
        gradients = torch.autograd.grad(
            [result for result, _ in pairs],
            [leaf for leaf in leaves if leaf.requires_grad],
            [grad for _, grad in pairs],
            allow_unused=True,
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
    return [_output_shape(*inputs), *Gatherer(_problem(inputs), _readings(inputs[-1])).tensors()]


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


def _differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    if torch.is_grad_enabled():
        raise BackendError("an operator of regard has no second derivative; call regard outside of what is compiled")
    saved = list(ctx.saved_tensors)
    seed = saved.pop() if ctx.seeded else None
    query, key, value, *tensors = saved
    grad_output = grads[0]
    grad_weights = grads[1] if len(grads) > 1 else None
    # PyTorch takes an empty list for a list of tensors, and expects a list of gradients.
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


def _differentiate_observed(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    # Readings carry no gradient.
    return _differentiate(ctx, grads[0])


for _name, _implementation, _shapes in (
    ("attend", _attend, _output_shape),
    ("attend_with_weights", _attend_with_weights, _outputs_shapes),
    ("observe", _observe, _readings_shapes),
    ("attend_backward", _attend_backward, _gradients_shapes),
):
    _LIBRARY.impl(_name, _implementation, "CompositeExplicitAutograd")
    register_fake(f"regard::{_name}", _shapes, lib=_LIBRARY)
register_autograd("regard::attend", _differentiate, setup_context=_save, lib=_LIBRARY)
register_autograd("regard::attend_with_weights", _differentiate, setup_context=_save, lib=_LIBRARY)
register_autograd("regard::observe", _differentiate_observed, setup_context=_save, lib=_LIBRARY)


def _composed(inputs: Sequence[Any], read: str | None = None, need_weights: bool = False) -> tuple[Tensor, ...]:
    """Returns the results of an operator, composed of PyTorch's own operations."""
    problem = _problem(inputs)
    gatherer = None if read is None else Gatherer(problem, _readings(read))
    attended = composed(problem, gatherer, need_weights)
    if gatherer is not None:
        return attended.output, *gatherer.tensors()
    return (attended.output,) if attended.weights is None else (attended.output, attended.weights)


for _operator, _operations, _shapes in (
    (torch.ops.regard.attend.default, lambda *inputs: _composed(inputs)[0], _output_shape),
    (torch.ops.regard.attend_with_weights.default, lambda *inputs: _composed(inputs, None, True), _outputs_shapes),
    (torch.ops.regard.observe.default, lambda *inputs: list(_composed(inputs, inputs[-1])), _readings_shapes),
):
    register_operations(_operator, _operations, _shapes)

COUNTER = "torch.utils.flop_counter"
"""PyTorch's module of the counter. It may import a compiler, so it is used only if it is imported already."""


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
