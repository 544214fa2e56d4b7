"""What `regard.plan` says of a sharded call, and which calls need the whole sequence on every process."""

from dataclasses import dataclass

from regard.attention.planner import Candidates, Plan
from regard.attention.problem import Problem
from regard.attention.sharding.agreement import SHARDED_BACKEND, begin_call
from regard.attention.sharding.calculation import ShardedCall, prepared_call
from regard.attention.sharding.placement import Placed
from regard.attention.sharding.rows import KINDS, STEPS_TO_AGREE
from regard.biases import BoundBias
from regard.distributed.exchange import RowRoute
from regard.names.counted import counted
from regard.scores.score import Score
from regard.shapes.grid import upcast

SUMS = {"softmax": (2, 1), "ratio": (1, 1), "entmax": (2, 1)}
"""Numbers of each row that the processes join in a forward pass, and the further ones of a backward pass."""


@dataclass(frozen=True, repr=False)
class ShardedPlan(Plan):
    """How a call whose sequences lie on several processes would run; ``backend`` is ``"sharded"``.

    Attributes:
        way: ``"rows"``: queries travel and keys stay; ``"whole"``: every process gets the whole sequences.
        processes: how many hold the sequence.
        steps: how often rows travel; 0 for ``"whole"``.
        sent: bytes that this process sends to others in the forward pass, without readings
            (docs/en/understand/derivations/sharding.md). Thresholds of sparse normalizers count as if they were found
            in the fewest steps.
        sent_backward: the same of the backward pass.
        held: bytes of queries, keys and values that this process holds or gets at once.
        work: pairs that each process computes for each head; the mask's empty blocks are not among them.
    """

    way: str
    processes: int
    steps: int
    sent: int
    sent_backward: int
    held: int
    work: tuple[int, ...]

    @property
    def imbalance(self) -> float:
        """How much more than the mean the busiest process computes: 0.1 for a tenth."""
        mean = sum(self.work) / len(self.work)
        return max(self.work) / mean - 1.0 if mean else 0.0

    @property
    def remarks(self) -> list[str]:
        """None."""
        return []

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.sizes} · {counted(self.processes, 'process')}",
                f"→ {self.backend}  {self.reasons[self.backend]}",
                f"  this process sends {self.sent:,} bytes in {counted(self.steps, 'step')}, in a backward pass "
                f"{self.sent_backward:,} bytes, and holds {self.held:,} bytes",
                f"  pairs of each process: {', '.join(f'{each:,}' for each in self.work)} "
                f"(the busiest has {self.imbalance:.1%} more than the mean)",
            )
        )


def plan_sharded(problem: Problem, name: str) -> ShardedPlan:
    """Returns the plan of a placed problem; raises BackendError for a backend that cannot run it."""
    begin_call(problem, name, "plan")
    placed = problem.placed
    assert placed is not None
    why = needs_whole(problem)
    if why is not None:
        return _plan_of_whole(problem, placed, why)
    call = prepared_call(problem)
    routes = [call.route(step) for step in call.steps]
    sent, sent_backward = map(sum, zip((0, 0), *(_sent(call, route) for route in routes), strict=True))
    kind = "its sums" if problem.row is not None and problem.row.kind in KINDS else "whole rows of scores"
    processes = placed.queries.processes
    arrived = max((_bytes_a_row(call) * route.arrived for route in routes), default=0)
    return ShardedPlan(
        backend=SHARDED_BACKEND,
        way="rows",
        reasons={SHARDED_BACKEND: f"queries travel to the keys that they see, and back with {kind}; keys stay"},
        candidates=Candidates(problem, {}, waits=False),
        processes=processes,
        steps=len(routes),
        sent=sent,
        sent_backward=sent_backward,
        held=sum(part.numel() * part.element_size() for part in (placed.query, placed.key, placed.value)) + arrived,
        work=tuple(call.plan.work(process) for process in range(processes)),
    )


def _plan_of_whole(problem: Problem, placed: Placed, why: str) -> ShardedPlan:
    processes = placed.queries.processes
    wholes = [part.numel() * part.element_size() for part in (problem.query, problem.key, problem.value)]
    gathered = 0
    for part, shards in ((placed.query, placed.queries), (placed.key, placed.keys), (placed.value, placed.keys)):
        batch, heads, _, features = part.shape
        widest = max(map(shards.count, range(processes)))
        gathered += widest * batch * heads * features * part.element_size() * (processes - 1)
    return ShardedPlan(
        backend=SHARDED_BACKEND,
        way="whole",
        reasons={SHARDED_BACKEND: f"every process gets the whole sequences and keeps its own rows: {why}"},
        candidates=Candidates(problem, {}, waits=False),
        processes=processes,
        steps=0,
        sent=gathered,
        sent_backward=sum(2 * whole * (processes - 1) // processes for whole in wholes),
        held=sum(wholes),
        work=(problem.grid.queries * problem.grid.keys,) * processes,
    )


def _bytes_a_row(call: ShardedCall) -> int:
    """Returns the bytes of the queries that travel, over the batch rows and heads of one position."""
    query, prepared = call.placed.query, call.prepared.query
    bias = call.problem.bias
    own = query.shape[3] * query.element_size() if bias is not None and bias.reads_query else 0
    return len(call.placed.batch) * query.shape[1] * (prepared.shape[3] * prepared.element_size() + own)


def _sent(call: ShardedCall, route: RowRoute) -> tuple[int, int]:
    """Returns the bytes that this process sends in one step: in the forward pass, and in the backward pass."""
    placed, row, me = call.placed, call.problem.row, call.placed.keys.rank
    size = upcast(placed.value).element_size()
    each = len(placed.batch) * placed.query.shape[1] * size
    leaving, arriving = route.travelling(me), route.arrived - route.receives[me]
    queries, values = _bytes_a_row(call), placed.value.shape[3] * each
    if row is not None and row.kind in KINDS:
        joined, further = (count * each * (leaving + arriving) for count in _joined_numbers(row.kind, size))
    else:
        columns = sum(count * placed.keys.count(process) for process, count in enumerate(route.sends) if process != me)
        joined = (columns + arriving * placed.keys.count()) * each
        further = joined
    hidden = each if call.problem.may_hide else 0
    forward = leaving * queries + joined + arriving * (values + hidden)
    return forward, leaving * (queries + values) + joined + further + arriving * queries


def _joined_numbers(kind: str, size: int) -> tuple[int, int]:
    """Returns how many numbers of a row are joined in a forward pass, and how many more in a backward pass.

    Args:
        kind: of the row primitive.
        size: bytes of a number.
    """
    if kind == "hard":
        return 1 + 8 // size, 0  # the position of the chosen key is a float64
    numbers, further = SUMS.get(kind, (0, 0))
    if kind == "entmax":
        numbers += 2 * STEPS_TO_AGREE + 2
    return numbers, further


def needs_whole(problem: Problem) -> str | None:
    """Returns why every process must have the whole sequence; None if its own part is enough."""
    if problem.couples_queries:
        return f"a weight of {type(problem.normalizer).__name__} depends on all queries"
    if problem.normalizer.random:
        return f"{type(problem.normalizer).__name__} draws random numbers for whole rows in their order"
    if not knows_places(problem.score):
        return f"{type(problem.score).__name__} is prepared from whole sequences"
    for part in () if problem.bias is None else problem.bias.modules():
        if isinstance(part, BoundBias):
            return f"{part.class_name} depends on the keys"
    return None


def knows_places(score: Score) -> bool:
    """Whether a score can be prepared for a part of a sequence: a `prepare` of a subclass says nothing of parts."""
    inner = getattr(score, "score", None)
    if score.is_causal or (isinstance(inner, Score) and not knows_places(inner)):
        return False
    for kind in type(score).__mro__:
        if "prepare_at" in vars(kind):
            return True
        if "prepare" in vars(kind):
            # Those of regard without `prepare_at` prepare each query and each key by itself.
            return kind.__module__.startswith("regard.")
    return False
