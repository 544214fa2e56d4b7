"""The registry of backends, and running a problem on one of them.

A named backend runs or raises (contract 5); for ``"auto"`` `regard.attention.planner` says which one runs. What a mask
hides cannot reach the result (contract 10). `LISTENERS` and `recorded_calls` show what is run: to `regard.watch`, and
to worked steps and pictures.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.backend import Backend
from regard.attention.backends.cpu.backend import Fused
from regard.attention.backends.reference import Reference, weigh, whole
from regard.attention.backends.sdpa.backend import ScaledDotProduct
from regard.attention.backends.tiled import Tiled
from regard.attention.isolation import attend_isolated, cleaned, empty_rows
from regard.attention.planner import RULES, Candidates, Plan, Rule, describe, first_choice
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer, Readings
from regard.attention.result import Attended
from regard.errors import ArgumentError, BackendError, KindError, UnknownNameError
from regard.kernels.availability import must_wait
from regard.shapes import known_name
from regard.transforms import active_transform, can_branch_on, is_finite
from regard.versions import Versions

BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (ScaledDotProduct(), Reference(), Fused(), Tiled())
}
"""The registry. In its order ``"auto"`` looks for a backend; `Reference` can run everything, if need be in quadratic
memory."""


OWN_BACKENDS = tuple(BACKENDS)
"""The registry as it is before a backend is registered."""


def has_own_backends() -> bool:
    """Whether no backend was registered that is considered before ours."""
    return tuple(BACKENDS)[: len(OWN_BACKENDS)] == OWN_BACKENDS


def register_backend(backend: Backend, before: str | None = None, rule: Rule | None = None) -> None:
    """Add a backend: from now on it can be named, ``"auto"`` considers it, and `plan` prints its reasons.

    Args:
        backend: an instance of a subclass of `Backend`, with a name that no other has.
        before: the backend that ``"auto"`` considers next after it; None: it is considered last.
        rule: ``(problem, candidates) ->`` the reason why ``"auto"`` passes it over although it could run; None: never.

    Raises:
        KindError: not a backend.
        ArgumentError: a name that is taken, or is none.
        UnknownNameError: no backend is called ``before``.
    """
    if not isinstance(backend, Backend):
        raise KindError(f"backend must be an instance of a subclass of Backend; it is {backend!r}")
    name = getattr(backend, "name", None)
    if not isinstance(name, str) or not name or name == "auto":
        raise ArgumentError(f"backend must have a name, other than 'auto'; it is {name!r}")
    if name in BACKENDS:
        raise ArgumentError(f"there is a backend {name!r} already")
    if before is not None and before not in BACKENDS:
        raise UnknownNameError("backend", before, BACKENDS)
    others = dict(BACKENDS)
    BACKENDS.clear()
    for other, existing in others.items():
        if other == before:
            BACKENDS[name] = backend
        BACKENDS[other] = existing
    BACKENDS[name] = backend
    if rule is not None:
        RULES[name] = rule


def unregister_backend(name: str) -> None:
    """Remove a backend that `register_backend` added.

    Raises:
        UnknownNameError: there is none of this name.
    """
    if name not in BACKENDS:
        raise UnknownNameError("backend", name, BACKENDS)
    del BACKENDS[name]
    RULES.pop(name, None)


def check_backend(name: str) -> str:
    """The name, if it is ``auto`` or that of a backend; else KindError or UnknownNameError."""
    if name != "auto":
        known_name("backend", name, BACKENDS)
    return name


def choose(problem: Problem, name: str) -> Backend:
    """The backend that runs the problem now.

    ``"auto"`` waits for no backend that is not ready, unless nothing may depend on a race
    (`regard.kernels.availability.must_wait`): the next one runs, and what the first one needs is begun.

    Raises:
        UnknownNameError: no backend has this name.
        BackendError: the named backend cannot run this; the message says why (contract 5).
    """
    if name != "auto":
        return _named(problem, name)
    candidates = Candidates(problem, BACKENDS, waits=must_wait())
    chosen = first_choice(candidates)
    for backend in candidates.delayed():
        backend.prepare(problem)
    return chosen


def _named(problem: Problem, name: str) -> Backend:
    """The backend of this name, if it can run the problem."""
    if name not in BACKENDS:
        raise UnknownNameError("backend", name, [*BACKENDS, "auto"])
    backend = BACKENDS[name]
    reason = backend.declines(problem)
    if reason is not None:
        raise BackendError(f"backend {name!r} cannot run this: {reason}")
    return backend


def choose_reader(problem: Problem, gatherer: Gatherer | None = None) -> Backend:
    """A backend that shows the weights, for one that gives the output alone; it is never waited for."""
    waits = must_wait()
    for backend in BACKENDS.values():
        if backend.reads and backend.linear and backend.declines(problem) is None:
            if waits or backend.delay(problem, gatherer) is None:
                return backend
            backend.prepare(problem, gatherer)
    # What `tiled` declines it declines for its backward pass, and readings have none.
    return BACKENDS["tiled"]


def make_plan(problem: Problem, name: str) -> Plan:
    """What `choose` chooses, with the reasons for and against each backend; raises as it does."""
    candidates = Candidates(problem, BACKENDS, waits=name != "auto" or must_wait())
    chosen = first_choice(candidates) if name == "auto" else _named(problem, name)
    return describe(candidates, chosen, name)


class _Chosen(NamedTuple):
    """The backend that runs a problem, and whether it was named and is waited for."""

    backend: Backend
    is_named: bool


def execute(problem: Problem, backend: str, gatherer: Gatherer | None = None, need_weights: bool = False) -> Attended:
    """Output, and weights if they are needed, by a backend.

    Where something may be hidden, the output is checked: a hidden NaN or infinity that leaks does not leave it finite.
    If a gradient is wanted, the inputs are checked before, since a hidden number may leak in the backward pass alone.

    Args:
        problem: what to run.
        backend: ``auto``, or one by name.
        gatherer: gets the readings; None where no readings are wanted.
        need_weights: whether to give the weights, differentiable; quadratic memory. The output is the same, bit for
            bit.

    Raises:
        UnknownNameError, BackendError: as `choose`.
    """
    # A score is lowered when a backend is chosen, and must be in float32 already then.
    if autocasts(problem.query):
        with torch.autocast(problem.query.device.type, enabled=False):
            return _execute(problem, backend, gatherer, need_weights)
    return _execute(problem, backend, gatherer, need_weights)


def _execute(problem: Problem, name: str, gatherer: Gatherer | None, need_weights: bool) -> Attended:
    backend = _Chosen(choose(problem, name), name != "auto")
    if not problem.may_hide or problem.pairs == 0 or problem.memory is not None:
        return _run(problem, backend, gatherer, need_weights)
    if active_transform() is not None:
        # Nothing may depend on numbers here.
        return _run(cleaned(problem), backend, gatherer, need_weights)
    result = _run_until_finite(problem, backend, gatherer, need_weights)
    if problem.wants_gradient and result.output.requires_grad:
        visible = problem.without_numbers
        versions = Versions(mask=visible.mask, bias=visible.bias, query=visible.query)
        result.output.register_hook(lambda gradient: _without_empty_rows(visible, versions, gradient))
    return result


def _run_until_finite(problem: Problem, backend: _Chosen, gatherer: Gatherer | None, need_weights: bool) -> Attended:
    """The result of the first run whose output is finite, or of the last one: see `regard.attention.isolation`.

    The last one holds a matrix of weights for the backward pass. So does a training whose output is NaN everywhere.
    """
    again = _repeater(problem)
    if not problem.wants_gradient or is_finite(problem.query, problem.key, problem.value):
        result = _run(problem, backend, gatherer, need_weights)
        if is_finite(result.output):
            return result
        again(gatherer)
    problem = cleaned(problem)
    if is_finite(problem.query, problem.key, problem.value):
        result = _run(problem, backend, gatherer, need_weights)
        if is_finite(result.output):
            return result
        again(gatherer)
    return attend_isolated(problem, gatherer, need_weights)


def _repeater(problem: Problem) -> Callable[[Gatherer | None], None]:
    """What begins a run again, with the random numbers that the first run draws: both passes of a compiler or of
    activation checkpointing draw the same ones, however many runs each of them needs."""
    states: list[tuple[Callable[[Tensor], object], Tensor]] = []
    if problem.dropout or problem.normalizer.random:
        device, generator = problem.query.device, problem.normalizer.generator
        states.append((torch.set_rng_state, torch.get_rng_state()))
        if device.type != "cpu":
            module = torch.get_device_module(device)
            states.append((partial(module.set_rng_state, device=device), module.get_rng_state(device)))
        if generator is not None:
            states.append((generator.set_state, generator.get_state()))

    def again(gatherer: Gatherer | None) -> None:
        for restore, state in states:
            restore(state)
        if gatherer is not None:
            gatherer.clear()

    return again


def _run(problem: Problem, chosen: _Chosen, gatherer: Gatherer | None, need_weights: bool) -> Attended:
    backend, is_named = chosen
    if need_weights:
        return backend.run_with_weights(problem) or _with_weights_of_specification(problem, backend)
    if gatherer is None:
        return Attended(backend.run(problem), None)
    if backend.reads and (is_named or must_wait() or backend.delay(problem, gatherer) is None):
        return Attended(backend.run(problem, gatherer), None)
    output = backend.run(problem)
    choose_reader(problem, gatherer).read(problem, gatherer)
    return Attended(output, None)


def _with_weights_of_specification(problem: Problem, backend: Backend) -> Attended:
    """The output of a backend that gives no weights, and the weights.

    Weights that are drawn at random are those that were used, and carry no gradient here.
    """
    if problem.normalizer.random and backend.reads:
        gatherer = Gatherer(problem, Readings(weights=True))
        return Attended(backend.run(problem, gatherer), gatherer.weights)
    return Attended(backend.run(problem), weigh(problem, whole(problem)).weights)


def _without_empty_rows(problem: Problem, versions: Versions, gradient: Tensor | None) -> Tensor | None:
    """The output's gradient, with zeros for queries that see no key if some of it is NaN or infinite (contract 2)."""
    if gradient is None or not can_branch_on(gradient) or is_finite(gradient):
        return gradient
    versions.check()
    return gradient.masked_fill(empty_rows(problem)[..., None], 0.0)


def full_precision(query: Tensor) -> AbstractContextManager[object]:
    """Autocast switched off: it would score in half precision (contract 6)."""
    return torch.autocast(query.device.type, enabled=False) if autocasts(query) else nullcontext()


def autocasts(query: Tensor) -> bool:
    """Whether autocast is on where the query lies."""
    if query.is_cpu:
        return torch.is_autocast_enabled("cpu")
    device = query.device.type
    # PyTorch raises for devices that have no autocast, as meta.
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


Execution = Callable[[Problem, str, Gatherer | None, bool], Attended]
"""``(problem, backend, gatherer, need_weights) -> Attended``, as `execute`."""

Listener = Callable[[Execution, Problem, str, Gatherer | None, bool], Attended]
"""Gets the execution and its arguments, and gives what the execution gives."""

LISTENERS: list[Listener] = []
"""Empty, or one listener."""


class RecordedCall(NamedTuple):
    """One attention that was run.

    Attributes:
        problem: what was computed.
        weights: ``[batch, heads, queries, keys]``, before dropout, as the backend that ran computed them.
    """

    problem: Problem
    weights: Tensor


_calls: ContextVar[list[RecordedCall] | None] = ContextVar("recorded calls", default=None)


@contextmanager
def recorded_calls() -> Iterator[list[RecordedCall]]:
    """In this context, each attention of `attend` and of the modules of `regard.nn` is recorded, in their order.

    No output changes by a bit. Memory is quadratic: for texts of a length that a person reads. Calls of other threads,
    and calls that a compiler traces, are not recorded.
    """
    calls: list[RecordedCall] = []
    outer = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(outer)


def recording() -> list[RecordedCall] | None:
    """The calls recorded so far, to append to; None outside of `recorded_calls`."""
    return _calls.get()


def execute_recorded(
    calls: list[RecordedCall],
    problem: Problem,
    backend: str,
    gatherer: Gatherer | None = None,
    need_weights: bool = False,
) -> Attended:
    """`execute`, and the call is appended to ``calls``."""
    if gatherer is not None:  # a run with readings gives no weights
        weights = execute(replace(problem, dropout=0.0), backend, need_weights=True).weights
        attended = execute(problem, backend, gatherer)
    else:
        attended = execute(problem, backend, need_weights=True)
        weights = attended.weights
    assert weights is not None
    calls.append(RecordedCall(problem, weights.detach()))
    return attended if need_weights else Attended(attended.output, None)
