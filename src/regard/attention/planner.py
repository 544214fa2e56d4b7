"""Which backend runs a problem: a named one or none other; for ``"auto"`` the first of the rules below that fits."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.backends.backend import Backend
from regard.attention.backends.cpu.backend import Fused
from regard.attention.backends.reference.backend import Reference
from regard.attention.backends.sdpa.backend import ScaledDotProduct, takes_no_mask
from regard.attention.backends.tiled.backend import Tiled
from regard.attention.blocks import BLOCK_ELEMENTS
from regard.attention.problem import Problem
from regard.errors import BackendError, UnknownNameError
from regard.kernels.availability import microkernel_is_faster
from regard.normalizers import Entmax


@dataclass(frozen=True)
class Plan:
    """Which backend would run, and why each other one would not.

    Attributes:
        backend: the name of the one that would run.
        reasons: for every backend, in the planner's order, why it would or would not run.
    """

    backend: str
    reasons: dict[str, str]

    def __str__(self) -> str:
        width = max(len(name) for name in self.reasons)
        lines = (f"{'→' if name == self.backend else ' '} {name:<{width}}  {why}" for name, why in self.reasons.items())
        return "\n".join(lines)


@dataclass(frozen=True)
class Rule:
    """One line of the planner's table.

    Attributes:
        backend: what it is about.
        unsuitable: why ``"auto"`` passes it over although it could run; None if it should run.
        why: why it runs where nothing speaks against it.
        measured: tasks of ``regard bench`` that show it.
    """

    backend: Backend
    unsuitable: Callable[[Problem], str | None]
    why: str
    measured: tuple[str, ...]


def _never(problem: Problem) -> str | None:
    return None


FUSED_PAIRS = 1 << 19
"""Pairs from which on the fused kernels are faster than PyTorch's: under a mask or a bias, and everywhere if products
are made of wider vectors than BLAS's."""

WIDE_PAIRS = 1 << 18
"""The same for products of wide vectors, where nobody wants a gradient."""

FUSED_ELEMENTS = 1 << 17
"""Numbers that the specification holds at once, from which on the fused kernels are faster."""

FUSED_SPARSE_ELEMENTS = 1 << 12
"""The same for sparse normalizers whose gradient nobody wants: the specification sorts."""

SMALL_PAIRS = 1 << 17
"""Pairs below which the specification is faster than PyTorch's kernel with a mask or a bias made dense."""

_FUSED = Fused()


def _slower(problem: Problem) -> str | None:
    plain = problem.mask is None and problem.bias is None
    if problem.pairs < SMALL_PAIRS and not plain and not takes_no_mask(problem):
        return f"with a mask or a bias made dense 'reference' is faster below {SMALL_PAIRS:,} pairs"
    limit = WIDE_PAIRS if plain and not _wants_gradient(problem) else FUSED_PAIRS
    if problem.pairs < limit or (plain and not _wide(problem)) or _FUSED.declines(problem) is not None:
        return None
    where = "on this processor" if plain else "under a mask or a bias"
    return f"{where} 'cpu' is faster from {limit:,} pairs on"


def _wide(problem: Problem) -> bool:
    # With half-precision inputs PyTorch's kernel multiplies in half precision, which is faster still.
    return problem.query.dtype == torch.float32 and problem.query.device.type == "cpu" and microkernel_is_faster()


def _too_large(problem: Problem) -> str | None:
    if problem.is_empty:
        return None
    prepared = problem.prepared
    elements = problem.pairs * prepared.primitive.elements_per_pair(prepared.query, prepared.key)
    if elements < FUSED_SPARSE_ELEMENTS:
        return None
    limit = BLOCK_ELEMENTS
    if _FUSED.declines(problem) is None:
        sparse = isinstance(problem.normalizer, Entmax) and not _wants_gradient(problem)
        limit = FUSED_SPARSE_ELEMENTS if sparse else FUSED_ELEMENTS
    if elements >= limit:
        return f"it would hold {elements:,} numbers at once; below {limit:,} it is as fast as anything"
    return None


def _wants_gradient(problem: Problem) -> bool:
    if not torch.is_grad_enabled():
        return False
    return problem.query.requires_grad or problem.key.requires_grad or problem.value.requires_grad


RULES = (
    Rule(
        ScaledDotProduct(),
        _slower,
        "PyTorch's own kernel computes this exactly, and is the fastest that does",
        ("tiny", "dot-128"),
    ),
    Rule(
        Reference(),
        _too_large,
        "so few pairs that computing them all at once costs least",
        ("small-additive", "small-lengths"),
    ),
    Rule(
        _FUSED,
        _never,
        "fused kernels run this in linear memory, faster than anything else here",
        (
            "additive",
            "entmax15-attention",
            "small-sparsemax",
            "window",
            "ragged",
            "dot-causal",
            "dot-1024",
            "dot-batch",
        ),
    ),
    Rule(Tiled(), _never, "runs everything in linear memory", ("score-mlp",)),
)
"""In this order ``"auto"`` looks for a backend; `Reference` can run everything, if need be in quadratic memory."""

BACKENDS: dict[str, Backend] = {rule.backend.name: rule.backend for rule in RULES}


def choose(problem: Problem, name: str) -> Backend:
    """The backend that runs the problem.

    Raises:
        UnknownNameError: no backend has this name.
        BackendError: the named backend cannot run this; the message says why (contract 5).
    """
    if name == "auto":
        able = None
        for rule in RULES:
            if rule.backend.declines(problem) is None:
                if rule.unsuitable(problem) is None:
                    return rule.backend
                able = able or rule.backend
        assert able is not None
        return able
    backend = _named(name)
    reason = backend.declines(problem)
    if reason is not None:
        raise BackendError(f"backend {name!r} cannot run this: {reason}")
    return backend


def make_plan(problem: Problem, name: str) -> Plan:
    """What `choose` chooses, with the reasons for and against each backend; raises as it does."""
    chosen = choose(problem, name)
    reasons: dict[str, str] = {}
    for rule in RULES:
        declined = rule.backend.declines(problem)
        unsuitable = None if declined else rule.unsuitable(problem)
        if declined is not None:
            reasons[rule.backend.name] = f"cannot: {declined}"
        elif rule.backend is chosen:
            reasons[rule.backend.name] = rule.why if name == "auto" else "named"
        elif name != "auto":
            reasons[rule.backend.name] = f"could, but {name!r} was named"
        else:
            reasons[rule.backend.name] = f"could, but {unsuitable or f'{chosen.name!r} comes first'}"
    return Plan(chosen.name, reasons)


def weigh_fused(problem: Problem) -> tuple[Tensor, Tensor] | None:
    """Output and weights by the fused kernels, both differentiable; None where the specification does as well."""
    if _FUSED.declines(problem) is not None or _too_large(problem) is None:
        return None
    return _FUSED.weigh(problem)


def _named(name: str) -> Backend:
    if name not in BACKENDS:
        raise UnknownNameError("backend", name, [*BACKENDS, "auto"])
    return BACKENDS[name]
