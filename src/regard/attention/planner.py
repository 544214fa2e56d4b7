"""Which backend ``"auto"`` takes: the first of the registry that can run the problem now and that no rule passes over.

A rule says when a backend is passed over although it could run, by the name of the backend and measured sizes
(`regard.attention.thresholds`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape

import torch

from regard.attention import trials
from regard.attention.backends.backend import Backend
from regard.attention.backends.cpu.columns import column_call
from regard.attention.backends.cpu.documents import packed_call
from regard.attention.backends.cpu.inputs import is_stored_in_half
from regard.attention.device_runs import device_runs
from regard.attention.pitfalls import remarks_on
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.steps import follows_last_key
from regard.attention.thresholds import (
    COMPILED_PAIRS,
    DEVICE_ELEMENTS,
    FEW_ROWS_HALF_NUMBERS,
    FEW_ROWS_HIDDEN,
    FEW_ROWS_NUMBERS,
    FEW_ROWS_NUMBERS_WITHOUT_BLAS,
    FEW_ROWS_STEP,
    FUSED_ADDITIVE_ELEMENTS,
    FUSED_ELEMENTS,
    FUSED_PAIRS,
    FUSED_SPARSE_ELEMENTS,
    LINEAR_ELEMENTS,
    LISTED_PAIRS,
    SMALL_PAIRS,
    SPARSE_PAIRS,
    WHOLE_ELEMENTS,
    WIDE_PAIRS,
)
from regard.kernels.availability import (
    is_slow_for_mkl,
    microkernel_is_faster,
    multiplies_bfloat16,
    multiplies_half_in_tiles,
)
from regard.kernels.cpu.kernel_arguments import FEW_ROWS
from regard.records.shaded_table import shade
from regard.scores import InnerProduct, TanhSum
from regard.shapes.layout import sizes_of

HALF_DTYPES = (torch.bfloat16, torch.float16)
"""The dtypes of half precision."""


@dataclass(frozen=True)
class Plan:
    """Which backend would run, and why the others would not.

    Attributes:
        backend: the name of the backend that would run.
        reasons: for every backend, in the planner's order, why it would or would not run.
        candidates: the call, and the backends that may run it.

    Example:
        >>> import torch
        >>> import regard
        >>> query = torch.randn(2, 4, 5, 8)
        >>> plan = regard.plan(query, query, query, normalizer="sparsemax")
        >>> print(plan)
        batch 2 · heads 4 · queries 5 · keys 5 · dim 8
          sdpa       cannot: the normalizer is not a plain softmax
          flex       cannot: the inputs are on cpu; FlexAttention has both passes on cuda and xpu
          triton     cannot: the inputs are on cpu; its kernels are for GPUs of NVIDIA
        → reference  so few pairs that computing them all at once costs least
          linear     cannot: the normalizer is neither 'identity' nor 'ratio'
          cpu        could, but 'reference' comes first
          tiled      could, but 'reference' comes first
        >>> plan.backend
        'reference'
        >>> plan
        Plan('reference'; could: cpu, tiled; cannot: sdpa, flex, triton, linear)
    """

    backend: str
    reasons: dict[str, str]
    candidates: "Candidates" = field(compare=False)

    @property
    def sizes(self) -> str:
        """How the axes are read: ``batch 2 · heads 8 (kv 2) · queries 10 · keys 10 · dim 64``."""
        problem = self.candidates.problem
        return sizes_of(problem.query.shape, problem.key.shape, problem.value.shape)

    @property
    def remarks(self) -> list[str]:
        """Further remarks on this call, a sentence each; they are made when they are read."""
        later, problem = self.backend, self.candidates.problem
        if any(reason.startswith("not yet") for reason in self.reasons.values()):
            later = first_choice(Candidates(problem, self.candidates.backends, waits=True)).name
        return remarks_on(problem, self.backend, later, self._isolating)

    @property
    def _isolating(self) -> str | None:
        """The backend that keeps apart what a mask hides pair by pair, on a device where this one does not."""
        backends, device = self.candidates.backends, self.candidates.problem.query.device.type
        if device in trials.UNTRIED_DEVICES or backends[self.backend].isolates:
            return None
        names = [name for name, one in backends.items() if one.isolates and self.candidates.declined(name) is None]
        return next(name for name in ("triton", "tiled", "reference") if name in names)

    def __repr__(self) -> str:
        declined = [name for name, reason in self.reasons.items() if reason.startswith("cannot")]
        alternatives = [name for name in self.reasons if name != self.backend and name not in declined]
        others = {"could": ", ".join(alternatives), "cannot": ", ".join(declined)}
        return f"Plan({self.backend!r}{''.join(f'; {word}: {names}' for word, names in others.items() if names)})"

    def _repr_html_(self) -> str:
        def row(name: str, reason: str) -> str:
            style = f"text-align:left;{shade(1.0, 1.0)}" if name == self.backend else "text-align:left"
            return f"<tr><th style='{style}'>{escape(name)}</th><td style='{style}'>{escape(reason)}</td></tr>"

        remarks = "".join(f"<div>{escape(remark)}</div>" for remark in self.remarks)
        return (
            f"<table><caption style='text-align:left;caption-side:top'>{escape(self.sizes)}</caption>"
            f"<tbody>{''.join(row(*reason) for reason in self.reasons.items())}</tbody></table>{remarks}"
        )

    def __str__(self) -> str:
        width = max(len(name) for name in self.reasons)
        lines = (f"{'→' if name == self.backend else ' '} {name:<{width}}  {why}" for name, why in self.reasons.items())
        return "\n".join((self.sizes, *lines, *self.remarks))


def refusal(backend: Backend, problem: Problem) -> str | None:
    """Returns why a backend cannot run a problem on any device; None if it can."""
    if problem.changes is not None and backend.name not in ("reference", "tiled"):
        return "some of its scores or weights are changed, and only the specification changes them"
    if problem.couples_queries and not backend.whole_grids:
        return f"a weight of {type(problem.normalizer).__name__} depends on all queries, and it computes some at a time"
    return backend.declines(problem)


def obstacle(backend: Backend, problem: Problem, gatherer: Gatherer | None = None) -> str | None:
    """Returns why a backend cannot run a problem, or must not on its device; None if it may."""
    reason = refusal(backend, problem)
    if reason is None and problem.query.device.type not in trials.UNTRIED_DEVICES:
        return trials.objection(backend, problem, gatherer)
    return reason


class Candidates:
    """The backends that may run one call. Each is asked at most once, and only if the choice depends on its answer.

    Args:
        backends: the registry.
        waits: whether the call waits for a backend that is not ready.
    """

    def __init__(self, problem: Problem, backends: Mapping[str, Backend], waits: bool):
        self.problem, self.backends, self.waits = problem, backends, waits
        self._declined: dict[str, str | None] = {}
        self._delays: dict[str, str | None] = {}

    def declined(self, name: str) -> str | None:
        """Returns why a backend cannot run the problem; None if it can.

        On a device that includes its trial, which a backend that is not ready has later.
        """
        if name not in self._declined:
            backend = self.backends[name]
            is_tried = self.problem.query.device.type not in trials.UNTRIED_DEVICES
            reason = refusal(backend, self.problem)
            if reason is None and is_tried and self.delay(name) is None:
                reason = trials.objection(backend, self.problem)
            self._declined[name] = reason
        return self._declined[name]

    def delay(self, name: str) -> str | None:
        """Returns why a backend that can run the problem is not ready; None if it is, or if the call waits for it."""
        if self.waits and self.backends[name].is_awaited:
            return None
        if name not in self._delays:
            self._delays[name] = self.backends[name].delay(self.problem)
        return self._delays[name]

    def runs(self, name: str) -> bool:
        """Whether there is such a backend, and it can run the problem now."""
        if name not in self.backends:
            return False
        # A compiled kernel is known at once; the search for one that could be compiled may take longer than the call.
        if not self.backends[name].is_awaited and self.delay(name) is not None:
            return False
        return self.declined(name) is None and self.delay(name) is None

    def delayed(self) -> list[Backend]:
        """Returns the backends that were asked and are not ready."""
        return [self.backends[name] for name, reason in self._delays.items() if reason is not None]


Rule = Callable[[Problem, Candidates], str | None]
"""``(problem, candidates) ->`` the reason why this backend is passed over; None if it should run."""


def first_choice(candidates: Candidates) -> Backend:
    """Returns the first backend that can run the problem now and is not passed over, or else the first that can."""
    problem = candidates.problem
    if problem.memory is not None:
        return candidates.backends[problem.memory.backend]
    alternative = None
    for backend in candidates.backends.values():
        if candidates.runs(backend.name):
            if _passed_over(backend.name, candidates) is None:
                return backend
            alternative = alternative or backend
    assert alternative is not None
    return alternative


def describe(candidates: Candidates, chosen: Backend, name: str) -> Plan:
    """Returns the reasons for and against each backend, if ``name`` led to the choice of ``chosen``."""
    reasons: dict[str, str] = {}
    for backend in candidates.backends.values():
        if backend is chosen and name == "auto" and candidates.problem.memory is not None:
            reasons[backend.name] = "it prepared the memory that is attended to"
        elif backend is chosen and name != "auto":
            reasons[backend.name] = "named"
        elif backend is chosen:
            is_last_resort = _passed_over(backend.name, candidates) is not None
            reasons[backend.name] = "no other backend can run it" if is_last_resort else backend.why
        elif candidates.declined(backend.name) is not None:
            reasons[backend.name] = f"cannot: {candidates.declined(backend.name)}"
        elif name != "auto":
            reasons[backend.name] = f"could, but {name!r} was named"
        elif candidates.delay(backend.name) is not None:
            reasons[backend.name] = f"not yet: {candidates.delay(backend.name)}"
        else:
            passed_over = _passed_over(backend.name, candidates)
            reasons[backend.name] = f"could, but {passed_over or f'{chosen.name!r} comes first'}"
    form = chosen.form(candidates.problem)
    if form is not None:
        reasons[chosen.name] += f": {form}"
    if trials.is_pending(chosen, candidates.problem):
        reasons[chosen.name] += "; its first call on the device is compared with 'reference'"
    return Plan(chosen.name, reasons, candidates)


def _passed_over(name: str, candidates: Candidates) -> str | None:
    rule = RULES.get(name)
    return None if rule is None else rule(candidates.problem, candidates)


def pytorch_is_slower(problem: Problem, candidates: Candidates) -> str | None:
    """Returns why another backend is faster than `sdpa`; on a device it is so under a mask or a
    bias."""
    plain = not problem.may_hide
    if not problem.query.is_cpu:
        if plain or problem.lowered.needs_no_mask:
            return None
        many = problem.pairs >= SPARSE_PAIRS.get(problem.query.dtype, problem.pairs + 1)
        if many and problem.bias is None and device_runs(problem) is not None and candidates.runs("triton"):
            return "under a mask 'triton' is faster, which skips hidden blocks and makes no mask dense"
        if flex_is_no_faster(problem, candidates) is None and candidates.runs("flex"):
            return "under a mask or a bias 'flex' is faster, which skips hidden blocks and makes no mask dense"
        return None
    reason = _slower_for_lists(problem, candidates) or _slower_for_few_rows(problem, candidates)
    if reason is not None:
        return reason
    wants_gradient = _wants_gradient(problem)
    # PyTorch's backward pass in half precision takes several times as long as that in float32.
    slow_half = wants_gradient and problem.query.dtype in HALF_DTYPES and not multiplies_half_in_tiles()
    small = FUSED_PAIRS if wants_gradient else SMALL_PAIRS
    if slow_half and problem.pairs < small:
        return f"in half precision with a gradient 'reference' is faster below {small:,} pairs"
    if plain and problem.pairs < WIDE_PAIRS:
        return None
    if problem.pairs < small and not plain and not problem.lowered.needs_no_mask:
        return f"with a mask or a bias made dense 'reference' is faster below {small:,} pairs"
    wide = _multiplies_slowly(problem, wants_gradient)
    limit = WIDE_PAIRS if wide and not wants_gradient else FUSED_PAIRS
    if problem.pairs < limit or (plain and not wide) or not candidates.runs("cpu"):
        return None
    where = "on this processor" if plain else "under a mask or a bias"
    return f"{where} 'cpu' is faster from {limit:,} pairs on"


def _multiplies_slowly(problem: Problem, wants_gradient: bool) -> bool:
    """Whether the fused kernels multiply faster than PyTorch's kernel, so that they are faster without a mask, too.

    In half precision they multiply in float32, or in bfloat16 by instructions for it. On a processor with AVX2 alone,
    PyTorch's kernel took 1.9 times as long in float16, in both half dtypes eight times as long with a gradient, and as
    long in bfloat16 without one.
    """
    dtype = problem.query.dtype
    if dtype in HALF_DTYPES:
        if multiplies_half_in_tiles():
            return False
        return wants_gradient or dtype == torch.float16 or microkernel_is_faster() or multiplies_bfloat16()
    return dtype == torch.float32 and microkernel_is_faster()


def flex_is_no_faster(problem: Problem, candidates: Candidates) -> str | None:
    """Returns why a call of `flex` does not pay."""
    if problem.query.device.type == "cpu":
        return "on a CPU others are faster"
    if problem.pairs < COMPILED_PAIRS:
        return f"below {COMPILED_PAIRS:,} pairs preparing its call takes longer than the attention"
    if not (problem.may_hide or problem.prepared.modifiers):
        return "there is no mask, no bias and no modifier"
    return None


def fused_kernels_are_no_faster(problem: Problem, candidates: Candidates) -> str | None:
    """Returns why the kernels of `triton` do not pay."""
    if problem.query.is_cpu:
        return "on a CPU others are faster"
    elements = _elements(problem)
    if elements < DEVICE_ELEMENTS:
        return f"with {elements:,} elements at once 'reference' is as fast; it is slower from {DEVICE_ELEMENTS:,} on"
    return None


def specification_is_slower(problem: Problem, candidates: Candidates) -> str | None:
    """Returns why another backend is faster than `reference`, which needs so much memory."""
    if problem.pairs == 0:
        return None
    reason = _slower_for_lists(problem, candidates) or _slower_for_few_rows(problem, candidates)
    if reason is not None:
        return reason
    elements = _elements(problem)
    if not problem.query.is_cpu:
        return _too_many(elements, DEVICE_ELEMENTS)
    if elements < FUSED_SPARSE_ELEMENTS:
        return None
    if elements >= LINEAR_ELEMENTS and candidates.runs("linear"):
        return f"from {LINEAR_ELEMENTS:,} elements on 'linear' is faster, which makes no weights"
    limit = _fused_elements_with_gradient(problem) if _wants_gradient(problem) else _fused_elements(problem)
    # The question below begins a compilation, so it is asked only if the kernels would be used.
    if elements < limit:
        return None
    if not candidates.runs("cpu"):
        limit = WHOLE_ELEMENTS
    return _too_many(elements, limit)


def _elements(problem: Problem) -> int:
    """Returns the number of elements that the specification has in memory at once."""
    prepared = problem.prepared
    return problem.pairs * prepared.primitive.elements_per_pair(prepared.query, prepared.key)


def _too_many(elements: int, limit: int) -> str | None:
    if elements < limit:
        return None
    return f"it would hold {elements:,} elements at once; below {limit:,} it is as fast as anything"


def _fused_elements_with_gradient(problem: Problem) -> int:
    """Returns from how many elements on the fused kernels are faster, for a problem with a gradient."""
    row = problem.lowered.row
    plain = row is not None and row.kind == "softmax" and isinstance(problem.prepared.primitive, InnerProduct)
    return FUSED_PAIRS if plain else FUSED_ELEMENTS


def _fused_elements(problem: Problem) -> int:
    """Returns from how many elements on the fused kernels are faster, for a problem without a gradient."""
    row = problem.lowered.row
    if row is not None and row.kind == "entmax":
        return FUSED_SPARSE_ELEMENTS
    return FUSED_ADDITIVE_ELEMENTS if isinstance(problem.prepared.primitive, TanhSum) else FUSED_ELEMENTS


RULES: dict[str, Rule] = {
    "sdpa": pytorch_is_slower,
    "flex": flex_is_no_faster,
    "triton": fused_kernels_are_no_faster,
    "reference": specification_is_slower,
}
"""The rules, by the name of the backend; a backend without a rule is never passed over."""


def _slower_for_lists(problem: Problem, candidates: Candidates) -> str | None:
    """Returns why a kernel of short documents or of listed keys is faster; None if it is not, or none runs this."""
    if packed_call(problem) is not None:
        reason = "for short documents 'cpu' is faster, which attends within each"
    elif problem.pairs >= LISTED_PAIRS and column_call(problem) is not None:
        reason = "for listed keys 'cpu' is faster, which reads them alone"
    else:
        return None
    return reason if candidates.runs("cpu") else None


def _slower_for_few_rows(problem: Problem, candidates: Candidates) -> str | None:
    """Returns why the fused kernels are faster for few rows, or None if they are not."""
    query, key, value = problem.query, problem.key, problem.value
    if _wants_gradient(problem) or not (query.dtype == torch.float32 or is_stored_in_half(problem)):
        return None
    read = problem.pairs * (key.shape[3] + value.shape[3]) if problem.may_hide else key.numel() + value.numel()
    is_step = query.shape[2] == 1 and problem.bias is None and follows_last_key(problem.hiding_mask)
    if is_step and read >= FEW_ROWS_STEP and candidates.runs("cpu"):
        return "for one query under a mask by position 'cpu' is faster, which reads the visible keys alone"
    half = query.dtype == torch.float16 or (query.dtype == torch.bfloat16 and query.shape[1] == key.shape[1])
    if not are_few_rows(query.shape[2], read, problem.may_hide, half) or not candidates.runs("cpu"):
        return None
    return "for a few queries with so many keys 'cpu' is faster"


def are_few_rows(queries: int, read: int, may_hide: bool, half: bool = False) -> bool:
    """Whether there are so few queries and so many keys that the fused kernels' products of few rows are faster.

    Args:
        queries: number of queries of each head.
        read: number of elements of keys and values; with ``may_hide`` counted for each pair.
        may_hide: whether there is a mask or a bias.
        half: whether they are in half precision, and PyTorch does not join heads that share keys in bfloat16.
    """
    if queries > FEW_ROWS:
        return False
    if may_hide:
        return read >= FEW_ROWS_HIDDEN * queries
    if half:
        return read >= FEW_ROWS_HALF_NUMBERS
    return read >= FEW_ROWS_NUMBERS or (read >= FEW_ROWS_NUMBERS_WITHOUT_BLAS and is_slow_for_mkl())


def _wants_gradient(problem: Problem) -> bool:
    if not torch.is_grad_enabled():
        return False
    return problem.query.requires_grad or problem.key.requires_grad or problem.value.requires_grad
