"""An intercepted attention call and its readings: the same for every way in which a model computes attention."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.backends.reference import weigh, whole
from regard.attention.execution import BACKENDS, choose_reader, full_precision
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer, Readings
from regard.attention.recall import recall_of
from regard.attention.verbs import run_unwatched
from regard.masks import Band
from regard.masks.columns import without_columns
from regard.normalizers import SignedSoftmax, softmax
from regard.scores import Decayed, DeltaRule, ScaledDot
from regard.shapes.grid import Grid, spread_heads
from regard.watching.mask_kind import NO_MASK, MaskReading

SMALL_PAIRS = 1 << 16
"""The number of pairs of all heads below which PyTorch's operations read weights faster than a kernel starts."""

READING_NAMES = (
    "lse", "entropy", "peak", "top_weights", "top_indices", "received", "distance", "pooled_mean", "pooled_max", "rows",
    "tile", "weights", "shares", "recall",
)  # fmt: skip
"""The readings, by their names in `regard.Observed`."""


@dataclass(eq=False)
class InterceptedCall:
    """The computation of a call, either as a problem or by the scores and weights that the model computed.

    Attributes:
        problem: the call as a problem of regard, with detached tensors; None if scores and weights are known instead.
        scores: ``[batch, heads, queries, keys]``, −inf or a huge negative value where masked; None if unknown.
        own_sides: queries and keys in the memory of the model; None: those of the problem.
        own_scores: those of the model before the mask was read, in the memory of the model; None if unknown.
        changed_scores: those in their place after a change; None: there was none.
        weights: ``[batch, heads, queries, keys]`` before dropout.
        value: ``[batch, kv_heads, keys, value_dim]``; None if unknown.
        cross: whether queries and keys were computed from different tensors; None if unknown.
        child: the submodule of the owner that made the call, where a kernel computes a whole layer.
        known_output: the output of each head, where the problem is only a part of the call; None: the problem gives it.
        source, scale, cap, has_sink, has_state, dropout: as in `AttentionCall`.
    """

    source: str
    mask: MaskReading = NO_MASK
    problem: Problem | None = None
    scores: Tensor | None = None
    own_sides: tuple[Tensor, Tensor] | None = None
    own_scores: Tensor | None = None
    changed_scores: Tensor | None = None
    weights: Tensor | None = None
    value: Tensor | None = None
    cross: bool | None = None
    child: str = ""
    scale: float | None = None
    cap: float | None = None
    has_sink: bool = False
    has_state: bool = False
    known_output: Tensor | None = None
    dropout: float = 0.0

    @property
    def tensor(self) -> Tensor:
        """One of its tensors, which shows their device."""
        tensor = self.weights if self.problem is None else self.problem.query
        assert tensor is not None
        return tensor

    @property
    def grid(self) -> Grid:
        """The index space of its pairs."""
        if self.problem is not None:
            return self.problem.grid
        assert self.weights is not None
        B, H, Q, K = self.weights.shape
        return Grid.whole(B, H, Q, K, self.weights.device)

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.grid.heads if self.problem is None else self.problem.key.shape[1]

    @property
    def signed(self) -> bool:
        """Whether scores are taken as weights, or give them their signs."""
        if self.problem is None:
            return False
        row = self.problem.row
        return isinstance(self.problem.normalizer, SignedSoftmax) or (row is not None and row.kind == "identity")

    def recurrence(self) -> dict[str, Tensor | None]:
        """Returns decays and strengths of the tokens by their names in `AttentionCall`; empty for other attention."""
        score, shape, parts = None if self.problem is None else self.problem.score, self.grid.shape, {}
        while isinstance(score, Decayed | DeltaRule):
            name = "log_decay" if isinstance(score, Decayed) else "beta"
            gate = getattr(score, name).detach()
            gate = gate[None, :, None] if gate.dim() == 1 else gate
            parts[name] = gate.expand(shape[0], shape[1], *gate.shape[2:])
            score = score.score
        return parts

    def reach(self) -> Tensor | int:
        """Returns the number of keys up to the last one that the last query of any batch row sees; all if it sees none.

        Where elements of a mask decide, it is a scalar on the device of the call, so that nothing waits for it. Lists
        of selected keys do not count: they leave out any key.
        """
        grid, (visible, _) = self.grid, without_columns(self.mask.visible)
        if visible is None or not grid.queries or not grid.keys or not grid.batch:
            return grid.keys
        if isinstance(visible, Band) and isinstance(offset := visible.offset_on(grid), int):
            own = grid.queries - 1 + offset
            end = grid.keys if visible.after is None else min(own + visible.after + 1, grid.keys)
            start = 0 if visible.before is None else max(own - visible.before, 0)
            return end if start < end else grid.keys
        last = visible.allows(grid.tile(queries=range(grid.queries - 1, grid.queries)))
        seen = last.reshape(-1, last.shape[-1]).any(0).expand(grid.keys)
        number = torch.arange(1, grid.keys + 1, device=seen.device).masked_fill(~seen, 0).amax()
        return number.masked_fill(number == 0, grid.keys)

    @torch.no_grad()
    def of_tokens(self) -> "InterceptedCall":
        """Returns a call whose heads are tokens, of one query each or of a few, with the tokens as queries."""
        scores, weights = self.scores, self.weights
        if self.problem is not None:
            with full_precision(self.problem.query):
                steps = weigh(self.problem, whole(self.problem))
            scores, weights = steps.masked, steps.weights
        assert weights is not None
        scores = None if scores is None else scores.transpose(1, 2)
        weights = weights.transpose(1, 2)
        return replace(self, problem=None, value=None, scores=scores, weights=weights, known_output=None)

    @torch.no_grad()
    def output(self) -> Tensor | None:
        """Returns each head's output before dropout, ``[batch, heads, queries, value_dim]``; None if unknown."""
        if self.known_output is not None:
            return self.known_output
        if self.problem is not None:
            return run_unwatched(self.problem).output
        if self.value is None or self.weights is None:
            return None
        return self.weights.to(self.value.dtype) @ spread_heads(self.value, self.grid.heads)

    @torch.no_grad()
    def read(self, read: Readings) -> dict[str, Tensor | None]:
        """Returns the readings by their names, on the device of the call; raises an error for impossible readings."""
        problem = self.problem
        if problem is None:
            assert self.weights is not None
            problem = _empty_problem(self.weights)
        gatherer = Gatherer(problem, read)
        self.gather(gatherer)
        observed = gatherer.observed(problem.query.new_empty(0), problem)
        readings = {name: getattr(observed, name) for name in READING_NAMES}
        recall = recall_of(problem, gatherer.read.recall, self._gather)
        readings["recall"] = None if recall is None else problem.restore(recall)
        if self.weights is not None and self.scores is None:
            readings["lse"] = None
        return readings

    def gather(self, gatherer: Gatherer) -> None:
        """Lets a gatherer read this call's weights."""
        problem = self.problem
        if problem is None:
            assert self.weights is not None
            problem = _empty_problem(self.weights)
        self._gather(problem, gatherer)

    def _gather(self, problem: Problem, gatherer: Gatherer) -> None:
        """Lets a gatherer read this call's weights, or those of the call with another mask."""
        if self.weights is not None:
            masked = self.scores if self.scores is not None else self.weights.log()
            gatherer.add(masked.to(gatherer.dtype), self.weights.to(gatherer.dtype), problem.grid)
        elif problem.placed is not None:
            run_unwatched(problem, gatherer=gatherer)
        elif problem.pairs:
            with full_precision(problem.query):
                small = problem.pairs < SMALL_PAIRS
                reader = BACKENDS["reference"] if small else choose_reader(problem)
                reader.read(problem, gatherer)


def detached(tensor: Tensor) -> Tensor:
    """Returns a tensor without its graph, unless gradients are on: then the call is read to be changed."""
    return tensor if torch.is_grad_enabled() else tensor.detach()


def _empty_problem(weights: Tensor) -> Problem:
    """Returns a problem of the sizes and the dtype of these weights, for a gatherer."""
    B, H, Q, K = weights.shape
    zero = weights.new_zeros(())
    query, key = zero.expand(B, H, Q, 1), zero.expand(B, H, K, 1)
    return Problem(query, key, key, ScaledDot(), softmax)
