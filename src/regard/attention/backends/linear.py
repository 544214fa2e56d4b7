"""``linear``: attention whose weights are scores or their shares of a row's sum, in time linear in the length.

A product of queries and keys can be taken in another order where no normalizer stands between the scores and the
values: keys with values first, into a state that all queries read. Under a causal mask the state grows token by token;
`regard.linear` computes that a chunk at a time, in fused kernels on a CPU. A document begins with an empty state. The
sum of a row, which `Ratio` divides by, is the output for a value of 1, so it is one more column of the values.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.backend import Backend
from regard.attention.guarded import finite_saved_tensors, is_guarded
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.linear import bounded, chunked, divided, form_of, with_ones
from regard.masks import Band, Documents
from regard.masks.content import Lengths
from regard.masks.mask import joined_masks
from regard.scores import Decayed, DeltaRule, InnerProduct, Prepared
from regard.shapes.grid import Grid, spread_heads, upcast

ROWS = ("identity", "ratio")
"""The row primitives that couple no scores before the values are summed."""


@dataclass(frozen=True)
class RecurrenceOrder:
    """The mask of a problem in terms of a recurrence.

    Attributes:
        offset: the position among the keys of query 0, which sees the keys up to it; None: every query sees all keys.
        documents: the documents of the tokens, each of which has a state of its own; None: there is one.
    """

    offset: int | None
    lengths: tuple[Lengths, ...] = ()
    documents: Documents | None = None


class Linear(Backend):
    """Runs products of features under causal masks, lengths and documents, in linear time and memory."""

    name = "linear"
    isolates = True
    why = "keys and values are summed once, a chunk at a time"

    def declines(self, problem: Problem) -> str | None:
        row = problem.row
        if row is None or row.kind not in ROWS or row.center is not None:
            return "the normalizer is neither 'identity' nor 'ratio'"
        recurrence = RecurrentForm.of(problem)
        if not isinstance(recurrence.product.primitive, InnerProduct):
            return f"the score lowers to {type(recurrence.product.primitive).__name__}, which is no product of features"
        if recurrence.product.modifiers:
            return "the score is modified after its product"
        if problem.bias is not None:
            return "a bias is added to the scores, which are never made"
        if problem.dropout:
            return "weights are dropped, which are never made"
        order = order_of(problem)
        if order is None:
            return "the mask is neither causal, with one offset, nor one of lengths, nor of documents in runs of tokens"
        if recurrence.log_decay is not None and order.offset != problem.grid.offset:
            return "the score decays, and the mask is not causal with equal ends"
        return None

    def form(self, problem: Problem) -> str | None:
        recurrence, order = RecurrentForm.of(problem), order_of(problem)
        if order is None or order.offset is None:
            return None
        gates = (gate if gate is None else upcast(gate) for gate in (recurrence.log_decay, recurrence.beta))
        return form_of(upcast(problem.query), upcast(problem.key), upcast(problem.value), *gates)

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        order = order_of(problem)
        assert order is not None
        recurrence, grid = RecurrentForm.of(problem), problem.grid
        query, key, value, *gates = recurrence.tokens(problem)
        for mask in order.lengths:
            key = torch.where(mask.of_keys.with_four_axes(grid).mT, key, 0.0)
        if order.documents is not None:
            key = torch.where(grid.of_keys(order.documents.query_ids).mT >= 0, key, 0.0)
        is_ratio = problem.row is not None and problem.row.kind == "ratio"
        inputs = query, key, value, *gates
        # On a CPU a look at the output tells whether elements have to be kept apart.
        poisoned = None
        if problem.may_hide and is_guarded(value):
            inputs, poisoned = _with_finite_keys(problem, order, *inputs)
        with nullcontext() if poisoned is None else finite_saved_tensors():
            output = _output(inputs, order, is_ratio)
        if poisoned is not None:
            output = output * torch.where(poisoned, torch.nan, 1.0)
            rows = _rows_that_see(order, grid)
            output = output if rows is None else torch.where(rows, output, 0.0)
        for mask in order.lengths:
            if mask.queries is not None:
                output = torch.where(grid.query_index < mask.queries.on(grid), output, 0.0)
        if order.documents is not None:
            output = torch.where(grid.of_queries(order.documents.query_ids) >= 0, output, 0.0)
        return output.to(problem.value.dtype)


class RecurrentForm(NamedTuple):
    """A score in terms of a recurrence.

    Attributes:
        product: the innermost score, lowered.
        log_decay: logarithms of decays, as `Decayed` has them; None: nothing decays.
        beta: strengths of the delta rule, ``[batch or 1, heads or 1, keys or 1]``; None: values are added.
    """

    product: Prepared
    log_decay: Tensor | None
    beta: Tensor | None

    @classmethod
    def of(cls, problem: Problem) -> "RecurrentForm":
        """Returns the recurrence of a problem, without the columns that a score's own form adds to queries and keys."""
        known = vars(problem).get("recurrence")
        if known is not None:
            return known
        score, log_decay, beta = problem.score, None, None
        if type(score) is DeltaRule:
            score, beta = score.score, score.beta
        if type(score) is Decayed:
            score, log_decay = score.score, score.log_decay
        product = problem.prepared if score is problem.score else score.prepare(problem.query, problem.key)
        vars(problem)["recurrence"] = cls(product, log_decay, beta)
        return vars(problem)["recurrence"]

    def tokens(self, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Returns queries, keys, values, log-decays and strengths for `regard.linear.chunked`, of every batch row and
        head."""
        grid, product = problem.grid, self.product
        rows = grid.batch, grid.heads
        key, value = (
            spread_heads(upcast(tensor).expand(grid.batch, -1, -1, -1), grid.heads)
            for tensor in (product.key, problem.value)
        )
        query, dtype = upcast(product.query), upcast(product.query).dtype
        scale = upcast(product.scale) if isinstance(product.scale, Tensor) else product.scale
        query = query if isinstance(scale, float) and scale == 1.0 else query * scale
        log_decay, beta = self.log_decay, self.beta
        if log_decay is not None:
            if log_decay.dim() < 4:
                log_decay = log_decay[None, :, None, None] if log_decay.dim() == 1 else log_decay[..., None]
            log_decay = log_decay.to(dtype).expand(*rows, grid.keys, -1)
        beta = None if beta is None else beta.to(dtype).expand(*rows, grid.keys)
        return query, key, value, log_decay, beta


def _with_finite_keys(
    problem: Problem,
    order: RecurrenceOrder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor | None,
    beta: Tensor | None,
) -> tuple[Any, Tensor]:
    """Returns the inputs with 0 for keys and values that are not finite, and which outputs depend on such elements.

    Products within a chunk multiply later keys by 0, and 0 · NaN is NaN. Each row sees the first keys up to its own, so
    it depends on such an element if the first one is among these.

    Args:
        problem: a problem on a device, whose host cannot look at elements.
        order: what its mask says.
        query, key, value, log_decay, beta: as `regard.linear.chunked` takes them.

    Returns:
        The inputs, and bool ``[batch, heads, queries or 1, value_dim]``.
    """
    grid, gates = problem.grid, (None if log_decay is None else bounded(log_decay), beta)
    for mask in order.lengths:
        value = torch.where(mask.of_keys.with_four_axes(grid).mT, value, 0.0)
    rows = _rows_that_see(order, grid)
    query = query if rows is None else torch.where(rows, query, 0.0)
    of_keys = (key, *(gate.reshape(*key.shape[:3], -1) for gate in gates if gate is not None))
    bad_key = torch.stack([~part.isfinite().all(-1) for part in of_keys]).any(0)[..., None]
    bad = bad_key | ~value.isfinite()
    key, value = torch.where(bad_key, 0.0, key), torch.where(bad, 0.0, value)
    finite_gates = (None if gate is None else gate.nan_to_num(0.0, 0.0, 0.0) for gate in gates)
    if order.offset is None:
        poisoned = bad.any(2, keepdim=True)
    else:
        last = torch.arange(order.offset, order.offset + grid.queries, device=grid.device)
        bad_counts = bad.cumsum(2, dtype=torch.int32).index_select(2, last.clamp(0, grid.keys - 1))
        poisoned = (bad_counts > 0) & (last >= 0)[:, None]
    return (query, key, value, *finite_gates), poisoned


def _rows_that_see(order: RecurrenceOrder, grid: Grid) -> Tensor | None:
    """Returns which queries see a key, ``[batch or 1, 1, queries or 1, 1]``, as far as lengths tell."""
    rows = None
    for mask in order.lengths:
        part = mask.with_four_axes(grid)[..., :1]
        rows = part if rows is None else rows & part
    return rows


def _output(inputs: tuple[Any, ...], order: RecurrenceOrder, is_ratio: bool) -> Tensor:
    query, key, value, log_decay, beta = inputs
    output = _attend(query, key, with_ones(value) if is_ratio else value, log_decay, beta, order)
    return divided(output) if is_ratio else output


def order_of(problem: Problem) -> RecurrenceOrder | None:
    """Returns what the mask of a problem says; None if a recurrence cannot follow it."""
    grid, offset, lengths, documents = problem.grid, None, [], None
    for part in joined_masks(problem.hiding_mask):
        if isinstance(part, Lengths):
            lengths.append(part)
        elif isinstance(part, Documents) and documents is None and part.begins is not None:
            documents = part
        elif isinstance(part, Band) and part.is_causal and offset is None:
            offset = part.offset_on(grid)
            if not isinstance(offset, int):
                return None
        else:
            return None
    if offset is None and (grid.queries == 1 or problem.score.is_causal):
        # The only query sees what the last one sees.
        offset = grid.offset
    return None if documents is not None and offset != 0 else RecurrenceOrder(offset, tuple(lengths), documents)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor | None, beta: Tensor | None, order: RecurrenceOrder
) -> Tensor:
    """Returns ``[batch, heads, queries, value_dim]``: query i reads the keys up to ``i + offset``, or all of them."""
    offset = order.offset
    if offset is None:
        return query @ (key.mT @ value)
    begins = None if order.documents is None else order.documents.begins
    if begins is not None:
        begins = begins.expand(len(query), -1)
    unseeing, skipped = min(max(-offset, 0), query.shape[2]), max(offset, 0)
    read_rows, shortfall = query[:, :, unseeing:], query.shape[2] - unseeing + skipped - key.shape[2]
    if skipped:
        read_rows = F.pad(read_rows, (0, 0, skipped, 0))
    if shortfall:
        # A negative padding cuts off the keys behind the last query.
        key, value = (F.pad(tensor, (0, 0, 0, shortfall)) for tensor in (key, value))
    output, _ = chunked(read_rows, key, value, log_decay, beta, begins=begins)
    return F.pad(output[:, :, skipped:], (0, 0, unseeing, 0)) if unseeing else output[:, :, skipped:]
