"""What `regard.plan` says of a sharded call, and which calls need the whole sequence on every process."""

from dataclasses import dataclass

from regard.attention.planner import Candidates, Plan
from regard.attention.problem import Problem
from regard.attention.sharding.calculation import prepared_call
from regard.errors import BackendError
from regard.scores.score import Score
from regard.shapes import upcast

NAME = "sharded"
"""What the backend of sharded calls is called."""


ROW_NUMBERS = {"softmax": 2, "ratio": 1, "hard": 2}
"""Numbers a row, besides its query and its output, that the processes exchange in the forward pass."""


@dataclass(frozen=True, repr=False)
class ShardedPlan(Plan):
    """How a call whose sequences lie on several processes would run; ``backend`` is ``"sharded"``.

    Attributes:
        way: ``"rows"``: queries travel and keys stay; ``"whole"``: every process gets the whole sequences.
        processes: how many hold the sequence.
        steps: how often rows travel; 0 for ``"whole"``.
        sent: bytes that this process sends to others in the forward pass.
        held: bytes of queries, keys and values that this process holds or gets at once.
        work: pairs that each process computes for each head; the mask's empty blocks are not among them.
    """

    way: str
    processes: int
    steps: int
    sent: int
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
                f"{self.sizes} · {self.processes} processes",
                f"→ {self.backend}  {self.reasons[self.backend]}",
                f"  this process sends {self.sent:,} bytes in {self.steps} steps and holds {self.held:,} bytes",
                f"  pairs of each process: {', '.join(f'{each:,}' for each in self.work)} "
                f"(the busiest has {self.imbalance:.1%} more than the mean)",
            )
        )


def plan_sharded(problem: Problem, name: str) -> ShardedPlan:
    """Returns the plan of a placed problem; raises BackendError for a backend that cannot run it."""
    check_sharded_backend(name)
    placed = problem.placed
    assert placed is not None
    candidates = Candidates(problem, {}, waits=False)
    processes, me = placed.queries.processes, placed.queries.rank
    own = sum(part.numel() * part.element_size() for part in (placed.query, placed.key, placed.value))
    why = needs_whole(problem)
    if why is not None:
        held = sum(part.numel() * part.element_size() for part in (problem.query, problem.key, problem.value))
        pairs = problem.grid.queries * problem.grid.keys
        reasons = {NAME: f"every process gets the whole sequences and keeps its own rows: {why}"}
        return ShardedPlan(
            NAME, reasons, candidates, "whole", processes, 0, own * (processes - 1), held, (pairs,) * processes
        )
    call = prepared_call(problem)
    each = call.prepared.query.shape[3] + placed.value.shape[3] + ROW_NUMBERS.get(getattr(problem.row, "kind", ""), 0)
    bytes_a_row = each * len(placed.batch) * problem.grid.heads * upcast(placed.value).element_size()
    rows = sum(call.route(step).travelling(me) for step in call.steps)
    widest = max((sum(step.counts) for step in call.steps), default=0)
    kind = "its sums" if problem.row is not None else "whole rows of scores"
    reasons = {NAME: f"queries travel to the keys that they see, and back with {kind}; keys stay"}
    return ShardedPlan(
        NAME, reasons, candidates, "rows", processes, len(call.steps), rows * bytes_a_row, own + widest * bytes_a_row,
        tuple(call.plan.work(process) for process in range(processes)),
    )  # fmt: skip


def check_sharded_backend(name: str) -> None:
    """Raises BackendError for a backend that runs no sharded call."""
    if name not in ("auto", NAME):
        raise BackendError(f"backend {name!r} cannot run this: the sequence is sharded; only {NAME!r} runs it")


def needs_whole(problem: Problem) -> str | None:
    """Returns why every process must have the whole sequence; None if its own part is enough."""
    if problem.couples_queries:
        return f"a weight of {type(problem.normalizer).__name__} depends on all queries"
    if problem.normalizer.random:
        return f"{type(problem.normalizer).__name__} draws random numbers for whole rows in their order"
    if not knows_places(problem.score):
        return f"{type(problem.score).__name__} is prepared from whole sequences"
    return None


def knows_places(score: Score) -> bool:
    """Whether a score can be prepared for a part of a sequence."""
    inner = getattr(score, "score", None)
    if isinstance(inner, Score) and not knows_places(inner):
        return False
    kind = type(score)
    is_ours = kind.__module__.startswith("regard.")
    return not score.is_causal if is_ours else kind.prepare_at is not Score.prepare_at
