"""A user's functions in the fused kernels: what changes scores, and what hides keys, as functions of a row of scores.

The modifiers of a score, and a mask that contains a function, are recorded as rules of single pairs
(`regard.attention.pair_rules`) at each call, so that a function whose variables have changed is never taken for an
older one. A rule becomes a program, and a program a small kernel, which the attention kernels call for each row; those
are not compiled again. What cannot be recorded runs elsewhere, and the plan says which operation is in the way.
"""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from dis import get_instructions
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attention.backends.cpu.row_programs import PairProgram, program_of
from regard.attention.pair_rules import NotPointwiseError, record
from regard.attention.problem import Problem
from regard.kernels.cpu.kernel_arguments import FUNCTION_RECORD, LISTED_RUNS, address_of
from regard.masks import Mask, Spans
from regard.masks.mask import Combination, Not
from regard.scores.modifiers import Cap
from regard.shapes.grid import Grid, upcast
from regard.tracing.transforms import active_transform
from regard.tracing.versions import leaves_of

if TYPE_CHECKING:
    from regard.kernels.cpu.kernel import Kernel

_DRAWS = frozenset({
    "bernoulli", "multinomial", "normal", "print", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "random", "randperm", "write",
})  # fmt: skip
"""Names that a function uses which draws random numbers or prints."""

_STORES = frozenset({"DELETE_ATTR", "DELETE_GLOBAL", "DELETE_SUBSCR", "STORE_ATTR", "STORE_GLOBAL", "STORE_SUBSCR"})
"""Instructions of a function that changes something."""


@dataclass(eq=False)
class RowFunctions:
    """The functions of a problem.

    Attributes:
        score: what changes scores; None for nothing.
        mask: what hides keys, for a mask that contains a function; None: the mask has runs, or is made dense.
        score_obstacle, mask_obstacle: why a modifier, or the mask, is no function of a row; None if there is none.
    """

    score: PairProgram | None = None
    mask: PairProgram | None = None
    score_obstacle: str | None = None
    mask_obstacle: str | None = None
    _spans: tuple[Spans, bool] | None = None

    @property
    def wants_gradient(self) -> bool:
        """Whether a tensor of the function of scores needs a gradient."""
        return self.score is not None and bool(self.score.differentiable)

    def kernels(self, gradient: bool) -> Iterator["Kernel"]:
        """Yields the kernels that a call needs besides those of attention."""
        if self.score is not None:
            yield self.score.kernel("score_function")
            if gradient:
                yield self.score.kernel("gradient_function")
        if self.mask is not None:
            yield self.mask.kernel("visible_runs")
            yield self.mask.kernel("mask_function")

    def fields(self, grid: Grid, gradient: bool) -> dict[str, Any]:
        """Returns the fields of `KernelInputs` that the functions decide."""
        fields: dict[str, Any] = {}
        if self.score is not None:
            function, data = self.score.kernel("score_function").address, self.score.data
            fields |= {"score_function": function, "score_data": data}
            if gradient:
                fields["gradient_function"] = self.score.kernel("gradient_function").address
        if self.mask is not None:
            if self._spans is None:
                self._spans = visible_spans(self.mask, grid)
            spans, is_exact = self._spans
            fields |= {"start": spans.start, "stop": spans.stop}
            if not is_exact:
                function, data = self.mask.kernel("mask_function").address, self.mask.data
                fields |= {"mask_function": function, "mask_data": data}
        return fields

    def check(self) -> None:
        """Raises ArgumentError if a function read an element that a tensor does not have."""
        for one in (self.score, self.mask):
            if one is not None:
                one.check()


_FUNCTIONS: "weakref.WeakKeyDictionary[Problem, RowFunctions]" = weakref.WeakKeyDictionary()


def row_functions(problem: Problem) -> RowFunctions:
    """Returns the functions of a problem on a CPU, recorded once; none under a transform, which has no kernels."""
    functions = _FUNCTIONS.get(problem)
    if functions is None:
        is_here = problem.query.is_cpu and active_transform() is None
        functions = _FUNCTIONS[problem] = _recorded(problem) if is_here else RowFunctions()
    return functions


def _recorded(problem: Problem) -> RowFunctions:
    functions, lowered = RowFunctions(), problem.lowered
    modifiers, mask = lowered.score.modifiers, lowered.mask
    dtype = upcast(lowered.score.query).dtype
    if modifiers and not (len(modifiers) == 1 and isinstance(modifiers[0], Cap)):

        def changed(score: Tensor, pair: Grid) -> Tensor:
            for modifier in modifiers:
                score = modifier(score, pair)
            return score

        try:
            check_effects(problem.score)
            functions.score = program_of(record(problem.grid, changed, dtype), problem.grid, "real", dtype)
            functions.score_obstacle = functions.score.obstacle(problem.grid.batch, problem.key.shape[1])
        except NotPointwiseError as error:
            functions.score_obstacle = f"the score is modified by a function that is not compiled: {error}"
    if mask is not None and contains_function(mask) and lowered.spans is None:
        try:
            check_effects(mask)
            functions.mask = program_of(record(problem.grid, mask.allows), problem.grid, "boolean", dtype)
        except NotPointwiseError as error:
            functions.mask_obstacle = f"the function of the mask is not compiled: {error}"
    return functions


def contains_function(mask: Mask) -> bool:
    """Whether a part of a mask is a function of pairs (`Mask.is_function`)."""
    if isinstance(mask, Combination):
        return any(map(contains_function, mask.parts))
    return contains_function(mask.mask) if isinstance(mask, Not) else mask.is_function


def check_effects(owner: object) -> None:
    """Raises NotPointwiseError if a function of the user's that an object holds prints, draws, or changes something."""
    for leaf in leaves_of(owner):
        if isinstance(leaf, FunctionType) and str(leaf.__module__).partition(".")[0] not in ("torch", "regard"):
            effect = _effect_of(leaf.__code__)
            if effect is not None:
                raise NotPointwiseError(effect)


@lru_cache(maxsize=1024)
def _effect_of(code: CodeType) -> str | None:
    """Returns what a function does besides calculating, as far as its instructions show it."""
    drawn = _DRAWS.intersection(code.co_names)
    if drawn:
        return f"it uses {min(drawn)!r}"
    changed = [name for name in code.co_names if name.endswith("_") and not name.endswith("__")]
    if changed:
        return f"it uses {changed[0]!r}, which changes a tensor in place"
    for instruction in get_instructions(code):
        is_outer = instruction.opname in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in code.co_freevars
        if is_outer or instruction.opname in _STORES:
            return f"it changes {instruction.argval or 'an element'!r}"
    parts = (_effect_of(part) for part in code.co_consts if isinstance(part, CodeType))
    return next((effect for effect in parts if effect is not None), None)


def visible_spans(mask: PairProgram, grid: Grid) -> tuple[Spans, bool]:
    """Returns the runs of keys that a mask shows, and whether they are exact: the last one may hold hidden keys."""
    from regard.kernels.cpu.launch import function_at

    batch, heads = (
        length if mask.uses(position) else 1 for position, length in (("batch", grid.batch), ("head", grid.heads))
    )
    ends = torch.empty(batch, heads, grid.queries, LISTED_RUNS, 2, dtype=torch.int32)
    scratch, names = torch.empty(grid.keys, dtype=torch.int8), FUNCTION_RECORD.names or ()
    run, most = function_at(mask.kernel("visible_runs").address), 0
    for b in range(batch):
        for h in range(heads):
            fields = {
                "data": address_of(mask.data),
                "batch": b,
                "head": h,
                "group": grid.queries,
                "keys": grid.keys,
                "scores": address_of(scratch),
                "gradient": address_of(ends[b, h]),
            }
            record = torch.tensor([fields.get(name, 0) for name in names])
            run(address_of(record))
            most = max(most, int(record[names.index("chunk")]))
    start, stop = (ends[..., : max(1, min(most, LISTED_RUNS)), end].contiguous() for end in range(2))
    return Spans(start, stop), most <= LISTED_RUNS
