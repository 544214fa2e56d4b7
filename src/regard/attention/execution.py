"""The registry of backends, and running a problem on one of them.

A named backend runs or raises (contract 5); for ``"auto"`` `regard.attention.planner` says which one runs. Hidden
elements cannot reach the result (contract 10). `LISTENERS` and `recorded_calls` show the calls that run: to
`regard.watch`, and to worked steps and pictures.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.backends.backend import Backend
from regard.attention.backends.cpu.backend import Fused
from regard.attention.backends.flex.backend import Flex
from regard.attention.backends.linear import Linear
from regard.attention.backends.reference import Reference, guarded, weigh, whole
from regard.attention.backends.sdpa.backend import ScaledDotProduct
from regard.attention.backends.tiled import Tiled
from regard.attention.backends.triton.backend import Triton
from regard.attention.guarded import finite_saved_tensors, is_guarded
from regard.attention.isolation import attend_isolated, cleaned
from regard.attention.padding import attend_unpadded, seen_of
from regard.attention.planner import RULES, Candidates, Plan, Rule, describe, first_choice, obstacle, refusal
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer, Observed, Readings, checked_readings
from regard.attention.result import Attended
from regard.attention.routes import forget_routes, keep_route
from regard.attention.trials import is_pending, objection
from regard.errors import ArgumentError, BackendError, KindError, UnknownNameError
from regard.kernels.availability import must_wait
from regard.names.foreign_names import written_here
from regard.shapes.checks import known_name
from regard.tracing.transforms import active_transform, can_branch_on, is_finite
from regard.tracing.versions import Versions

BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (ScaledDotProduct(), Flex(), Triton(), Reference(), Linear(), Fused(), Tiled())
}
"""The registry, in the order in which ``"auto"`` considers backends. `Reference` runs everything, though in
quadratic memory."""


OWN_BACKENDS = tuple(BACKENDS)
"""The names in the registry before a backend is registered."""


def register_backend(backend: Backend, before: str | None = None, rule: Rule | None = None) -> None:
    """Adds a backend: from now on it can be named, ``"auto"`` considers it, and `plan` prints its reasons.

    Args:
        backend: an instance of a subclass of `Backend`, with a name that no other has.
        before: the backend that ``"auto"`` considers next; None: the new one is considered last.
        rule: ``(problem, candidates) ->`` the reason why ``"auto"`` passes it over although it could run; without a
            rule it is never passed over.

    Raises:
        KindError: the backend is no `Backend`.
        ArgumentError: its name is in use, or is not a name.
        UnknownNameError: no backend is called ``before``.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import attention
        >>> from regard.attention.backends.tiled import Tiled
        >>> class Mine(Tiled):
        ...     name, why = "mine", "it is measured today"
        >>> attention.register_backend(Mine(), before="sdpa")
        >>> query = torch.randn(2, 4, 5, 8)
        >>> plan = regard.plan(query, query, query)
        >>> plan.backend, plan.reasons["mine"]
        ('mine', 'it is measured today')
        >>> attention.unregister_backend("mine")
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
    forget_routes()
    if rule is not None:
        RULES[name] = rule


def unregister_backend(name: str) -> None:
    """Removes a backend that `register_backend` added.

    Args:
        name: its name.

    Raises:
        UnknownNameError: no backend has this name.
        ArgumentError: the backend is one of regard's own.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import attention
        >>> from regard.attention.backends.tiled import Tiled
        >>> class Mine(Tiled):
        ...     name = "mine"
        >>> attention.register_backend(Mine(), before="sdpa")
        >>> attention.unregister_backend("mine")
        >>> query = torch.randn(2, 4, 5, 8)
        >>> "mine" in regard.plan(query, query, query).reasons
        False
        >>> attention.unregister_backend("sdpa")
        Traceback (most recent call last):
            ...
        regard.errors.ArgumentError: name must be that of a registered backend; 'sdpa' is one of regard's own
    """
    if name not in BACKENDS:
        raise UnknownNameError("backend", name, BACKENDS)
    if name in OWN_BACKENDS:
        raise ArgumentError(f"name must be that of a registered backend; {name!r} is one of regard's own")
    del BACKENDS[name]
    forget_routes()
    RULES.pop(name, None)


def check_backend(name: str) -> str:
    """Returns a name that is ``auto`` or that of a backend; raises KindError or UnknownNameError for any other."""
    if name != "auto":
        _check_name(name)
    return name


def _check_name(name: str) -> str:
    is_known = isinstance(name, str) and name in BACKENDS  # where it is, a call does not look through other names
    return name if is_known else known_name("backend", name, [*BACKENDS, "auto"], written_here("backend", name))


def choose(problem: Problem, name: str) -> Backend:
    """Returns the backend that runs the problem now.

    ``"auto"`` waits for no backend that is not ready, unless nothing may depend on a race
    (`regard.kernels.availability.must_wait`): the next one runs, and the first one begins to prepare what it needs.

    Raises:
        UnknownNameError: no backend has this name.
        BackendError: the named backend cannot run this; the message says why (contract 5).
    """
    if problem.route is not None:
        return problem.route.backend
    if name != "auto":
        chosen, delayed, is_settled = _named(problem, name), [], True
    else:
        candidates = Candidates(problem, BACKENDS, waits=must_wait())
        chosen = first_choice(candidates)
        delayed = candidates.delayed()
        is_settled = all(candidates.declined(backend.name) is not None for backend in delayed)
    for backend in delayed:
        backend.prepare(problem)
    if is_settled and problem.kind is not None and not is_pending(chosen, problem):
        keep_route(problem, chosen)
    return chosen


def _named(problem: Problem, name: str) -> Backend:
    """Returns the backend of this name, if it can run the problem."""
    backend = BACKENDS[_check_name(name)]
    reason = obstacle(backend, problem)
    if reason is not None:
        raise BackendError(f"backend {name!r} cannot run this: {reason}")
    return backend


def choose_reader(problem: Problem, gatherer: Gatherer | None = None) -> Backend:
    """Returns a backend that reads the weights, for one that computes the output alone; it is never waited for."""
    waits = must_wait()
    for backend in BACKENDS.values():
        may_read = backend.reads and backend.linear
        if not may_read or refusal(backend, problem) is not None:
            continue
        if not waits and backend.delay(problem, gatherer) is not None:
            backend.prepare(problem, gatherer)
        elif obstacle(backend, problem, gatherer) is None:
            return backend
    return _specification(problem)


def _specification(problem: Problem) -> Backend:
    """Returns the backend that reads every problem; `tiled` declines some of them only because of a backward pass."""
    return BACKENDS["reference" if problem.couples_queries else "tiled"]


def make_plan(problem: Problem, name: str) -> Plan:
    """Returns the choice of `choose`, with the reasons for and against each backend; raises as it does."""
    candidates = Candidates(problem, BACKENDS, waits=name != "auto" or must_wait())
    chosen = first_choice(candidates) if name == "auto" else _named(problem, name)
    return describe(candidates, chosen, name)


class _Chosen(NamedTuple):
    """The backend that runs a problem, and whether the user named it, so that the call waits for it."""

    backend: Backend
    is_named: bool


def execute(problem: Problem, backend: str, gatherer: Gatherer | None = None, need_weights: bool = False) -> Attended:
    """Runs a problem on a backend.

    Where something may be hidden, the output is checked: a hidden NaN or infinity that reached it makes it NaN or
    infinite. If a gradient is needed, the inputs are checked first, since hidden elements may reach gradients alone.

    Args:
        need_weights: whether to return the weights, differentiable; quadratic memory. The output is the same, bit for
            bit.
    """
    # Choosing a backend lowers the score, which must be in float32 already.
    if autocasts(problem.query):
        with torch.autocast(problem.query.device.type, enabled=False):
            return _execute(problem, backend, gatherer, need_weights)
    return _execute(problem, backend, gatherer, need_weights)


def _execute(problem: Problem, name: str, gatherer: Gatherer | None, need_weights: bool) -> Attended:
    if problem.route is not None and gatherer is None and not need_weights:
        output = problem.route.run(problem)
        if output is not None:
            return Attended(output, None)
    if problem.may_hide and problem.pairs and problem.memory is None and is_guarded(problem.query):
        return _execute_on_device(problem, name, gatherer, need_weights)
    backend = _Chosen(choose(problem, name), name != "auto")
    if not problem.may_hide or problem.pairs == 0 or problem.memory is not None:
        return _run(problem, backend, gatherer, need_weights)
    if active_transform() is not None:
        # Control flow must not depend on elements here.
        return _run(cleaned(problem), backend, gatherer, need_weights)
    result = _run_until_finite(problem, backend, gatherer, need_weights)
    if result.output.requires_grad and problem.may_hide_rows:
        visible = problem.without_numbers
        versions = Versions(mask=visible.mask, bias=visible.bias, query=visible.query)
        result.output.register_hook(lambda gradient: _without_empty_rows(visible, versions, gradient))
    return result


def _execute_on_device(problem: Problem, name: str, gatherer: Gatherer | None, need_weights: bool) -> Attended:
    """Runs a problem that may hide something on a device, without a look at any element (contract 15)."""
    kind, route, problem = problem.kind, problem.route, replace(problem)
    problem.kind, problem.route = kind, route
    with finite_saved_tensors():
        # Autograd saves what the score prepares.
        _ = problem.lowered
    chosen = _Chosen(choose(problem, name), name != "auto")
    if chosen.backend.isolates:
        return _run(problem, chosen, gatherer, need_weights)
    output = attend_unpadded(problem, chosen.backend.run)
    if gatherer is not None:
        reader = choose_reader(problem, gatherer)
        (reader if reader.isolates else _specification(problem)).read(problem, gatherer)
    weights = weigh(problem, guarded(problem, whole(problem))).weights if need_weights else None
    return Attended(output, weights)


def _run_until_finite(problem: Problem, backend: _Chosen, gatherer: Gatherer | None, need_weights: bool) -> Attended:
    """Returns the result of the first run whose output is finite, or of the last run: see `regard.attention.isolation`.

    The last run stores a matrix of weights for the backward pass; so it does in a training whose output is always NaN.
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
    """Returns a function that resets random generators and readings for another run of the problem.

    Every run draws the random numbers of the first one, so that both passes of a compiler or of activation
    checkpointing draw the same ones, however many runs each of them needs.
    """
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
    may_read = backend.reads and (is_named or must_wait() or backend.delay(problem, gatherer) is None)
    if may_read and objection(backend, problem, gatherer) is None:
        return Attended(backend.run(problem, gatherer), None)
    output = backend.run(problem)
    choose_reader(problem, gatherer).read(problem, gatherer)
    return Attended(output, None)


def _with_weights_of_specification(problem: Problem, backend: Backend) -> Attended:
    """Returns the output of a backend that gives no weights, and the weights of the specification.

    Weights that a normalizer draws at random are those that were used, and carry no gradient.
    """
    if problem.normalizer.random and backend.reads:
        gatherer = Gatherer(problem, Readings(weights=True))
        return Attended(backend.run(problem, gatherer), gatherer.weights)
    return Attended(backend.run(problem), weigh(problem, guarded(problem, whole(problem))).weights)


def _without_empty_rows(problem: Problem, versions: Versions, gradient: Tensor | None) -> Tensor | None:
    """Replaces the output's gradient by zeros for queries that see no key, if it is not finite (contract 2)."""
    if gradient is None or not can_branch_on(gradient) or is_finite(gradient):
        return gradient
    versions.check()
    rows = seen_of(problem).rows
    return gradient if rows is None else gradient.masked_fill(~rows, 0.0)


def observe_again(problem: Problem, read: Readings) -> Observed | None:
    """Returns output and readings of a problem whose kind is known; None if only the longer way has them."""
    reading = problem.route.reading(problem, checked_readings(read, problem.grid))
    output = None if reading is None else problem.route.run(problem)
    if reading is None or output is None:
        return None
    readings = reading.named(*reading.take(problem.query, problem.key))
    return Observed(problem.restore(output), **{name: problem.restore(each) for name, each in readings.items()})


def full_precision(query: Tensor) -> AbstractContextManager[object]:
    """Returns a context without autocast, which would score in half precision (contract 6)."""
    return torch.autocast(query.device.type, enabled=False) if autocasts(query) else nullcontext()


def autocasts(query: Tensor) -> bool:
    """Whether autocast is on for the query's device."""
    if query.is_cpu:
        return torch.is_autocast_enabled("cpu")
    device = query.device.type
    # PyTorch raises for devices that have no autocast, as meta.
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


Execution = Callable[[Problem, str, Gatherer | None, bool], Attended]
"""``(problem, backend, gatherer, need_weights) -> Attended``, as `execute`."""

Listener = Callable[[Execution, Problem, str, Gatherer | None, bool, nn.Module | None], Attended]
"""A listener gets the execution, its arguments and the layer that calls it, and returns the result of the execution."""

LISTENERS: list[Listener] = []
"""The listener of `regard.watch`; empty while nothing is watched."""


_unwatched: ContextVar[bool] = ContextVar("unwatched", default=False)


@contextmanager
def unwatched() -> Iterator[None]:
    """Hides weights that are computed within it from `regard.watch`, since they are not those of the model's run."""
    outer = _unwatched.set(True) if LISTENERS else None
    try:
        yield
    finally:
        if outer is not None:
            _unwatched.reset(outer)


def is_unwatched() -> bool:
    """Whether `unwatched` hides what is computed now."""
    return _unwatched.get()


class RecordedCall(NamedTuple):
    """One call of attention.

    Attributes:
        weights: ``[batch, heads, queries, keys]``, before dropout, as the backend that ran computed them.
        parts: where the calls of one layer were joined (`joined_calls`), these calls; ``weights`` has the heads of all,
            one call after the other, and ``problem`` is that of the first one.
    """

    problem: Problem
    weights: Tensor
    parts: "tuple[RecordedCall, ...]" = ()


_calls: ContextVar[list[RecordedCall] | None] = ContextVar("recorded calls", default=None)


@contextmanager
def recorded_calls() -> Iterator[list[RecordedCall]]:
    """Records each call of attention by `attend` and the modules of `regard.nn`, in their order.

    Recording never changes an output. Memory is quadratic, which suits texts of a length that a person reads. Calls of
    other threads, and calls that a compiler traces, are not recorded.
    """
    calls: list[RecordedCall] = []
    outer = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(outer)


@contextmanager
def joined_calls() -> Iterator[None]:
    """Records several calls of one layer as one, whose heads are those of all, if calls are recorded."""
    calls = recording()
    if calls is None:
        yield
        return
    with recorded_calls() as parts:
        yield
    if len(parts) < 2:
        calls += parts
    else:
        calls.append(RecordedCall(parts[0].problem, torch.cat([part.weights for part in parts], dim=1), tuple(parts)))


def recording() -> list[RecordedCall] | None:
    """Returns the list of calls to append to; None outside of `recorded_calls`."""
    return _calls.get()


def is_watched() -> bool:
    """Whether somebody looks at the calls that are made now: a listener, or `recorded_calls`."""
    return bool(LISTENERS) or _calls.get() is not None


def execute_recorded(
    calls: list[RecordedCall],
    problem: Problem,
    backend: str,
    gatherer: Gatherer | None = None,
    need_weights: bool = False,
) -> Attended:
    """Runs `execute`, and appends the call to ``calls``."""
    if gatherer is not None:  # a run with readings gives no weights
        weights = execute(replace(problem, dropout=0.0), backend, need_weights=True).weights
        attended = execute(problem, backend, gatherer)
    else:
        attended = execute(problem, backend, need_weights=True)
        weights = attended.weights
    assert weights is not None
    calls.append(RecordedCall(problem, weights.detach()))
    return attended if need_weights else Attended(attended.output, None)
