"""Which backend runs a problem: a named one or none other; for ``"auto"`` the first of the registry that fits."""

from dataclasses import dataclass

from regard.attention.backends.backend import Backend
from regard.attention.backends.cpu.backend import Fused
from regard.attention.backends.reference.backend import Reference
from regard.attention.backends.sdpa.backend import ScaledDotProduct
from regard.attention.backends.tiled.backend import Tiled
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.rules import RULES, Candidates, Rule
from regard.errors import ArgumentError, BackendError, KindError, UnknownNameError
from regard.kernels.availability import must_wait
from regard.shapes import known_name


@dataclass(frozen=True)
class Plan:
    """Which backend would run, and why each other one would not.

    Attributes:
        backend: the name of the one that would run.
        reasons: for every backend, in the planner's order, why it would or would not run.
    """

    backend: str
    reasons: dict[str, str]

    def __repr__(self) -> str:
        declined = [name for name, reason in self.reasons.items() if reason.startswith("cannot")]
        able = [name for name in self.reasons if name != self.backend and name not in declined]
        others = {"could": ", ".join(able), "cannot": ", ".join(declined)}
        return f"Plan({self.backend!r}{''.join(f'; {word}: {names}' for word, names in others.items() if names)})"

    def __str__(self) -> str:
        width = max(len(name) for name in self.reasons)
        lines = (f"{'→' if name == self.backend else ' '} {name:<{width}}  {why}" for name, why in self.reasons.items())
        return "\n".join(lines)


BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (ScaledDotProduct(), Reference(), Fused(), Tiled())
}
"""The registry. In its order ``"auto"`` looks for a backend; `Reference` can run everything, if need be in quadratic
memory."""


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
    candidates = Candidates(problem, BACKENDS, waits=name != "auto" or must_wait())
    chosen = _choose(candidates, name)
    for backend in candidates.delayed():
        backend.prepare(problem)
    return chosen


def _choose(candidates: Candidates, name: str) -> Backend:
    problem, backends = candidates.problem, candidates.backends
    if name == "auto":
        if problem.memory is not None:
            return backends[problem.memory.backend]
        able = None
        for backend in backends.values():
            if candidates.runs(backend.name):
                if _passed_over(backend.name, candidates) is None:
                    return backend
                able = able or backend
        assert able is not None
        return able
    if name not in backends:
        raise UnknownNameError("backend", name, [*backends, "auto"])
    reason = candidates.declined(name)
    if reason is not None:
        raise BackendError(f"backend {name!r} cannot run this: {reason}")
    return backends[name]


def choose_reader(problem: Problem, backend: Backend, gatherer: Gatherer | None = None) -> Backend:
    """The backend that shows the weights, where ``backend`` gives the output alone; it is never waited for."""
    waits = must_wait()
    for other in BACKENDS.values():
        if other.reads and other.linear and other.declines(problem) is None:
            if waits or other.delay(problem, gatherer) is None:
                return other
            other.prepare(problem, gatherer)
    return backend


def make_plan(problem: Problem, name: str) -> Plan:
    """What `choose` chooses, with the reasons for and against each backend; raises as it does."""
    candidates = Candidates(problem, BACKENDS, waits=name != "auto" or must_wait())
    chosen = _choose(candidates, name)
    reasons: dict[str, str] = {}
    for backend in BACKENDS.values():
        if backend is chosen and name == "auto" and problem.memory is not None:
            reasons[backend.name] = "it prepared the memory that is attended to"
        elif backend is chosen:
            reasons[backend.name] = backend.why if name == "auto" else "named"
        elif candidates.declined(backend.name) is not None:
            reasons[backend.name] = f"cannot: {candidates.declined(backend.name)}"
        elif name != "auto":
            reasons[backend.name] = f"could, but {name!r} was named"
        elif candidates.delay(backend.name) is not None:
            reasons[backend.name] = f"not yet: {candidates.delay(backend.name)}"
        else:
            passed_over = _passed_over(backend.name, candidates)
            reasons[backend.name] = f"could, but {passed_over or f'{chosen.name!r} comes first'}"
    return Plan(chosen.name, reasons)


def _passed_over(name: str, candidates: Candidates) -> str | None:
    rule = RULES.get(name)
    return None if rule is None else rule(candidates.problem, candidates)
