"""How calls of one kind run: found out for one call, and used for all that are like it (`regard.attention.kinds`).

A call is validated, lowered and planned once. Its route is kept by its kind, and the next call of that kind takes it:
it is not checked again, no backend is asked again, and where the backend has a function of the tensors alone
(`Backend.bind`), that runs.
"""

from dataclasses import dataclass

from torch import Tensor

from regard.attention.backends.backend import Backend, Bound
from regard.attention.backends.cpu.prepared_launches import PreparedReading, reads_pairs, statistics
from regard.attention.kinds import ANY_KEYS, BACKEND, Kind, Layout, fixed_kind, kind_of
from regard.attention.problem import Problem, validate
from regard.attention.readings import Readings
from regard.biases import Bias, bias_for
from regard.masks import Band, Keep, Mask, as_mask, causal
from regard.normalizers import as_normalizer
from regard.scores import Scoring, as_score
from regard.shapes.grid import Grid
from regard.shapes.layout import pairs_by_batch, with_four_axes
from regard.tracing.transforms import reverse_mode_only

ROUTE_LIMIT = 1024
"""Number of kinds that are kept; then all are forgotten."""

MOST_LAYOUTS = 8
"""Number of layouts of one kind that are kept; then the oldest is forgotten."""


@dataclass(slots=True, eq=False)
class Route:
    """How the calls of one kind run.

    Attributes:
        backend: the backend that ``"auto"`` chose, or the named one.
        is_free: whether ``"auto"`` chose it; a named one runs its own steps (contract 12).
        grid: the grid of all pairs; None if the calls may have other numbers of keys.
        bound: computes the output from the tensors alone; None if the backend has no such function.
        is_bound: whether the backend was asked for it, which happens when a kind comes again.
        prepared: the latest readings and their launches; None if there are none.
    """

    layout: Layout
    backend: Backend
    is_free: bool
    hides: bool
    grid: Grid | None
    rank: int
    bound: Bound | None = None
    is_bound: bool = False
    prepared: tuple[Readings, PreparedReading] | None = None

    def problem(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score: object,
        normalizer: object,
        mask: object,
        bias: object,
        dropout: float,
    ) -> Problem:
        """Returns the problem of a call of this kind; of its checks, those of elements alone are made."""
        if mask is not None and not isinstance(mask, Mask):
            mask = as_mask(mask)
        rank = self.rank
        if rank < 4:
            query, key, value = (with_four_axes(tensor, rank) for tensor in (query, key, value))
        if bias is not None and not isinstance(bias, Bias):
            bias = bias_for(bias, query.shape[1])
        bias = None if bias is None else bias.of_keys(key)
        if rank == 3:
            mask = None if mask is None else mask.map_tensors(pairs_by_batch)
            bias = None if bias is None else bias.map_tensors(pairs_by_batch)
        checked_score = as_score(score)
        if mask is None and checked_score.is_causal:
            mask = causal()
        parts = checked_score, as_normalizer(normalizer), mask, bias
        problem = Problem(query, key, value, *parts, dropout, rank)
        problem.take(self, self.hides, self.grid)
        if type(score) is not str:
            problem.score.check(query, key)
        if mask is not None and type(mask) is not Keep and not (type(mask) is Band and mask.offset is None):
            mask.check(problem.grid)
        return problem

    def run(self, problem: Problem) -> Tensor | None:
        """Returns the output of a problem of this kind by the bound function; None if it has to be looked at."""
        if not self.is_bound:
            self.bound, self.is_bound = self.backend.bind(problem, self.grid is None) if self.is_free else None, True
        if self.bound is None:
            return None
        return self.bound(problem.query, problem.key, problem.value, problem.score, problem.mask)

    def reading(self, problem: Problem, read: Readings) -> PreparedReading | None:
        """Returns the launches that read a problem of this kind; None if there are none.

        A backend that reads by itself has none: `PreparedReading` is what the fused kernels read for others.
        """
        prepared = self.prepared
        if prepared is not None and prepared[0] is read:
            return prepared[1]
        if reads_pairs(read):
            return None
        if prepared is not None and prepared[1].statistics == statistics(read):
            self.prepared = read, prepared[1]
            return prepared[1]
        is_read = not self.backend.reads or self.backend.name == "cpu"
        if not is_read or self.grid is None or fixed_kind(problem.hiding_mask) is None:
            return None
        launches = PreparedReading.of(problem, read)
        self.prepared = None if launches is None else (read, launches)
        return launches


ROUTES: dict[Kind | None, tuple[Route, ...]] = {}
"""The routes of the kinds that have come, one for each layout of tensors; one table for all threads. Calls without a
kind have none."""


def route_of(kind: Kind | None, query: Tensor, key: Tensor, value: Tensor) -> Route | None:
    """Returns the route of a call of this kind; None if there is none yet."""
    for route in ROUTES.get(kind, ()):
        if route.layout.fits(query, key, value):
            return route
    return None


def planned(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Scoring = "scaled_dot",
    normalizer: object = "softmax",
    mask: object = None,
    bias: object = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Problem:
    """Returns the problem of a call, with its route if its kind is known; else it is checked.

    Args:
        query, key, value, score, normalizer, mask, bias, dropout, backend: as for `regard.attend`.

    Raises:
        As `regard.attention.problem.validate`.
    """
    kind = kind_of(query, key, value, score, normalizer, mask, bias, dropout, backend)
    return problem_of(
        kind, route_of(kind, query, key, value), query, key, value, score, normalizer, mask, bias, dropout
    )


def problem_of(
    kind: Kind | None,
    route: Route | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Scoring,
    normalizer: object,
    mask: object,
    bias: object,
    dropout: float,
) -> Problem:
    """Returns the problem of a call of this kind: with its route, or checked if there is none; else as `planned`."""
    if route is not None:
        return route.problem(query, key, value, score, normalizer, mask, bias, dropout)
    problem = validate(query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)
    if kind is not None:
        problem.kind = kind, Layout(query, key, value, any_keys=bool(kind[ANY_KEYS]))
    return problem


def keep_route(problem: Problem, backend: Backend) -> None:
    """Keeps the route of a call whose backend is settled, if it has a kind.

    Calls that are transformed or traced keep none.
    """
    if problem.kind is None or problem.placed is not None or problem.memory is not None:
        return
    if not reverse_mode_only(problem.query):
        return
    if len(ROUTES) >= ROUTE_LIMIT:
        ROUTES.clear()
    kind, layout = problem.kind
    hides, grid = problem.hiding_mask is not None, None if kind[ANY_KEYS] else problem.grid
    route = Route(layout, backend, kind[BACKEND] == "auto", hides, grid, problem.rank)
    ROUTES[kind] = route, *ROUTES.get(kind, ())[: MOST_LAYOUTS - 1]


def forget_routes() -> None:
    """Forgets all routes, since something that they depend on has changed."""
    ROUTES.clear()
