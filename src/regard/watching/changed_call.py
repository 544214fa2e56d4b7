"""Computes the changed heads of one attention call: from its problem, or from the weights that the model made.

The call ran as the model wrote it. Of its result, the changed heads and rows alone are replaced by those that the
specification computes, in float32 for half precision. A head is computed alone where nothing in the problem depends
on the number of heads; otherwise all are computed, and the others discarded.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.utils import checkpoint

from regard.attention.backends.reference import dropout, weigh, whole
from regard.attention.changed_pairs import (
    ComputedElements,
    Elements,
    GivenElements,
    Indices,
    PairChanges,
    Substitution,
    indices_of,
)
from regard.attention.execution import full_precision
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.verbs import run_unwatched
from regard.biases import TensorBias
from regard.errors import ArgumentError, RegardError
from regard.fields import with_parts
from regard.masks import And, Band, Chunks, Dilated, Documents, Keep, Lengths, Mask, Not, Or, Prefix, Where
from regard.normalizers import softmax
from regard.scores import Modified, ScaledDot, Score, SoftCap
from regard.shapes.checks import check_broadcast
from regard.shapes.grid import spread_heads, upcast
from regard.watching.call_positions import CallPositions
from regard.watching.change import AXES, STAGES, Change, EarlierRun, What, axis_names
from regard.watching.families import RECURRENCES
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.owners import Owner

Read = Callable[[Owner], InterceptedCall]


_REGARD = 'load the model with attn_implementation="regard" after regard.watching.register_transformers()'
"""What to write where a model of transformers writes its softmax itself."""


class Target(NamedTuple):
    """A change in one call: its heads, its positions as indices, and its elements."""

    what: What
    heads: tuple[int, ...]
    queries: Indices
    keys: Indices
    elements: Elements

    def substitution(self, heads: Sequence[int], dim: int = 0) -> Substitution:
        """Returns it in a tensor that has these heads, and this number of features if it has any."""
        numbers = indices_of([heads.index(head) for head in self.heads])
        axes = {"queries": self.queries, "keys": self.keys, "dim": range(dim), "value_dim": range(dim)}
        rows, columns = axis_names(self.what)[2:]
        return Substitution(numbers, axes[rows], axes[columns], self.elements)


class CallOfChange(NamedTuple):
    """A change of a call, and what its context does for it.

    Attributes:
        positions: returns the positions of the call's queries and keys.
        earlier: returns the elements of the other run that the change names, for this batch, queries and keys.
        meets: reports that the change met elements of the call.
    """

    change: Change
    positions: Callable[[InterceptedCall], CallPositions]
    earlier: Callable[[Target, tuple[int, int, int]], Elements]
    meets: Callable[[], None]


class CallChange:
    """The changes of one call.

    Args:
        owner: the module that makes the call.
        read: reads the call.
        changes: the changes that concern it, in their order.
    """

    def __init__(self, owner: Owner, read: Read, changes: Sequence[CallOfChange]):
        self.owner, self._read = owner, read
        self._changes = sorted(changes, key=lambda each: STAGES.index(each.change.what))
        self._targets: list[Target] = []
        self._output: Tensor | None = None
        self._is_made = False

    def heads(self, heads: Tensor) -> Tensor:
        """Returns the output of heads ``[batch, heads, queries, value_dim]`` after all changes."""
        self._is_made, call = True, None
        is_computed = any(each.change.what != "output" for each in self._changes)
        if is_computed or any(each.change.has_positions for each in self._changes):
            call = self._readable(is_computed)
        self._targets = [self._target(each, heads, call) for each in self._changes]
        result = heads
        if call is not None and is_computed:
            result = self._computed(call, heads)
        for each in self._substitutions("output", range(heads.shape[1]), heads.shape[3]):
            result = each.put_whole(result)
        self._output = result.detach()
        return result

    def check_recorded(self, frame: FrameType | None) -> None:
        """Raises ArgumentError if the backward pass would compute the call of this frame again, without its changes."""
        # Of its two functions, `forward` is that of reentrant checkpoints, which turns gradients off.
        names = ("checkpoint", "forward") if torch.is_grad_enabled() else ("forward",)
        while frame is not None:
            if frame.f_code.co_filename == checkpoint.__file__ and frame.f_code.co_name in names:
                self._refuse(
                    "its activations are checkpointed, and the backward pass would compute them without the change; "
                    "write model.gradient_checkpointing_disable(), or call the model without gradients"
                )
            frame = frame.f_back

    def check_made(self) -> None:
        """Raises ArgumentError if the result of the call has no heads that could be changed."""
        if not self._is_made:
            self._refuse("its kernel computes nested tensors, a whole layer, or a sum over heads; pass padded tensors")

    def check_log_sums(self) -> None:
        """Raises ArgumentError if the log-sum-exp, which a call returned, would be another one after the changes."""
        if any(each.what in ("query", "key", "scores") for each in self._targets):
            self._refuse("it returns the log-sum-exp of its scores too, which would stay as it was; change the weights")

    def weights(self, weights: Tensor) -> Tensor:
        """Returns the weights that a call returns, ``[batch, heads, queries, keys]`` or without the batch, changed."""
        heads = sorted({head for each in self._targets if each.what not in ("values", "output") for head in each.heads})
        if not heads:
            return weights
        call = self.changed(self.owner)
        changed = call.weights
        if call.problem is not None:
            changed = weigh(call.problem, whole(call.problem)).weights
        assert changed is not None
        changed = changed[:, heads].to(weights.dtype).view_as(weights[..., heads, :, :])
        return weights.index_copy(-3, torch.tensor(heads, device=weights.device), changed)

    def gather(self, gatherer: Gatherer) -> None:
        """Shows the weights of the changed call to a gatherer."""
        with torch.no_grad():
            self.changed(self.owner).gather(gatherer)

    def problem(self) -> Problem:
        """Returns the call of a verb of regard after its changes, as a problem."""
        problem = self.changed(self.owner).problem
        assert problem is not None
        return problem

    def changed(self, owner: Owner) -> InterceptedCall:
        """Reads the call as it is after its changes."""
        call = self._read(owner)
        return replace(self._changed(call, range(call.grid.heads)), known_output=self._output)

    def _readable(self, is_computed: bool) -> InterceptedCall:
        """Returns the call, of which heads are computed, or positions alone are needed."""
        try:
            call = self._read(self.owner)
        except RegardError as error:
            raise ArgumentError(f"the attention of {self.owner.name!r} cannot be changed: {error}") from error
        if is_computed and call.source in RECURRENCES:
            self._refuse(f"a change of single tokens does not reach the state of {call.source}; change the output")
        if self.owner.mechanism == "depth":
            self._refuse("its heads are tokens")
        if call.problem is not None and call.problem.placed is not None:
            self._refuse("its sequences are sharded, of which this process has a part; change the whole output")
        return call

    def _refuse(self, reason: str) -> NoReturn:
        # No KindError: PyTorch's operators turn a TypeError of a function mode into one of their own.
        raise ArgumentError(f"the attention of {self.owner.name!r} cannot be changed: {reason}")

    def _target(self, each: CallOfChange, heads: Tensor, call: InterceptedCall | None) -> Target:
        """Returns where a change is in this call, and its elements."""
        (B, H, Q, dim), change = heads.shape, each.change
        what, chosen = change.what, change.heads(H)
        if max(chosen) >= H:
            raise ArgumentError(f"head must be below {H}, the heads of {self.owner.name!r}; it is {max(chosen)}")
        K = 0 if call is None else call.grid.keys
        queries, keys = indices_of(range(Q)), indices_of(range(K))
        if call is not None and (change.has_positions or "keys" in axis_names(what)):
            positions = each.positions(call)
            queries = indices_of(positions.queries_among(change.queries, Q))
            keys = indices_of(positions.keys_among(change.keys))
        if what in ("query", "key") and call is not None:
            if call.problem is None:
                self._refuse(
                    f"its softmax is written by hand, and the {what} unknown; change the weights, or {_REGARD}"
                )
            dim = (call.problem.query if what == "query" else call.problem.key).shape[3]
        sizes = {"batch": B, "heads": len(chosen), "queries": len(queries), "keys": len(keys)}
        shape = tuple(sizes.get(axis, dim) for axis in axis_names(what))
        if 0 not in shape:
            each.meets()
        target = Target(what, chosen, queries, keys, GivenElements(heads.new_zeros(())))
        if isinstance(change.to, EarlierRun):
            return target._replace(elements=each.earlier(target, (B, Q, K)))
        if isinstance(change.to, (float, Tensor)):
            elements = change.to
            if not isinstance(elements, Tensor):
                elements = upcast(heads).new_tensor(elements)
            check_broadcast("to", elements, shape, AXES[what])
            return target._replace(elements=GivenElements(elements))
        assert callable(change.to)
        return target._replace(elements=ComputedElements(change.to, AXES[what]))

    def _computed(self, call: InterceptedCall, heads: Tensor) -> Tensor:
        """Returns the output in which the heads and rows are computed that change before values are added up."""
        inner = [target for target in self._targets if target.what != "output"]
        chosen = sorted({head for target in inner for head in target.heads})
        if call.problem is not None and call.problem.normalizer.couples == "heads":
            chosen = list(range(heads.shape[1]))
        part = call_of_heads(call, chosen)
        numbers = range(heads.shape[1]) if part is None else chosen
        with full_precision(heads):
            changed = self._changed(call if part is None else part, numbers)
            if changed.problem is not None:
                new = run_unwatched(replace(changed.problem, dropout=call.dropout)).output
            else:
                new = self._weighed(changed)
        new = new if part is not None else new[:, chosen]
        of_queries = [target.queries for target in inner if "queries" in axis_names(target.what)]
        rows = range(heads.shape[2])
        if len(of_queries) == len(inner):
            rows = indices_of(sorted({row for each in of_queries for row in each}))
            new = new[:, :, list(rows)]
        return Substitution(indices_of(chosen), rows, range(heads.shape[3]), GivenElements(new)).put_whole(heads)

    def _weighed(self, call: InterceptedCall) -> Tensor:
        """Returns the output of a call that the model wrote by hand."""
        if call.value is None or call.weights is None:
            self._refuse("each query has values of its own; change the output")
        weights, value = upcast(call.weights), upcast(spread_heads(call.value, call.grid.heads))
        dropped = dropout(weights, call.dropout) if call.dropout else weights
        return dropped @ value.to(weights.dtype)

    def _changed(self, call: InterceptedCall, heads: Sequence[int]) -> InterceptedCall:
        """Returns the call, which has these heads, with all changes but those of its output."""
        problem = call.problem
        pairs = PairChanges(self._substitutions("scores", heads), self._substitutions("weights", heads))
        value = self._put("values", call.value if problem is None else problem.value, heads)
        if problem is None:
            scores, weights = self._changed_weights(call, pairs)
            changed = scores if pairs.scores else None
            return replace(call, scores=scores, changed_scores=changed, weights=weights, value=value)
        query, key = self._put("query", problem.query, heads), self._put("key", problem.key, heads)
        assert key is not None
        assert value is not None
        if key.shape[1] != value.shape[1]:
            key, value = (spread_heads(tensor, len(heads)) for tensor in (key, value))
        changes = pairs if pairs.scores or pairs.weights else None
        problem = replace(problem, query=query, key=key, value=value, changes=changes, memory=None)
        return replace(call, problem=problem, value=value)

    def _put(self, what: What, tensor: Tensor | None, heads: Sequence[int]) -> Tensor | None:
        """Returns queries, keys or values with their changes, each query head's own."""
        dim = 0 if tensor is None else tensor.shape[3]
        for each in self._substitutions(what, heads, dim):
            if tensor is None:
                self._refuse("each query has values of its own; change the output")
            tensor = each.put_whole(spread_heads(tensor, len(heads)))
        return tensor

    def _substitutions(self, what: What, heads: Sequence[int], dim: int = 0) -> tuple[Substitution, ...]:
        return tuple(target.substitution(heads, dim) for target in self._targets if target.what == what)

    def _changed_weights(self, call: InterceptedCall, pairs: PairChanges) -> tuple[Tensor | None, Tensor]:
        """Returns the scores and weights of a call that the model wrote by hand, with their changes."""
        scores, weights, visible = call.scores, call.weights, call.mask.visible
        assert weights is not None
        hidden = torch.zeros((), dtype=torch.bool, device=weights.device)
        if visible is not None:
            hidden = ~visible.with_four_axes(call.grid)
        if pairs.scores:
            if call.has_sink:
                self._refuse(f"its softmax has a sink, and its scores are shifted; change the weights, or {_REGARD}")
            if scores is None:
                self._refuse("its weights are not the softmax of known scores alone; change the weights")
            scores = pairs.of_scores(upcast(scores), call.grid)
            weights, hidden = softmax(scores), scores == -torch.inf
        return scores, pairs.of_weights(upcast(weights), hidden, call.grid)


def call_of_heads(call: InterceptedCall, heads: Sequence[int]) -> InterceptedCall | None:
    """Returns the call of some query heads alone; None if a part of it depends on the number of heads."""

    def cut(tensor: Tensor | None) -> Tensor | None:
        if tensor is None:
            return None
        group = call.grid.heads // tensor.shape[1]
        return tensor[:, [head // group for head in heads]]

    problem = call.problem
    if problem is None:
        scores, weights, value = cut(call.scores), cut(call.weights), cut(call.value)
        visible = None if call.mask.visible is None else _mask_of_heads(call.mask.visible, heads)
        reading = replace(call.mask, visible=visible)
        return replace(call, mask=reading, scores=scores, weights=weights, value=value)
    score, mask, bias, row = _score_of_heads(problem.score, heads), problem.mask, problem.bias, problem.row
    if score is None or row is None or any(isinstance(each, Tensor) for each in row):
        return None
    if not isinstance(bias, TensorBias | None):
        return None
    if mask is not None and (mask := _mask_of_heads(mask, heads)) is None:
        return None
    bias = None if bias is None else bias.map_tensors(partial(_pairs_of_heads, heads=heads))
    query, key, value = (cut(tensor) for tensor in (problem.query, problem.key, problem.value))
    part = replace(problem, query=query, key=key, value=value, score=score, mask=mask, bias=bias, memory=None)
    return replace(call, problem=part, value=value)


def _pairs_of_heads(pairs: Tensor, heads: Sequence[int]) -> Tensor:
    return pairs[..., list(heads), :, :] if pairs.dim() > 2 and pairs.shape[-3] > 1 else pairs


def _mask_of_heads(mask: Mask, heads: Sequence[int]) -> Mask | None:
    """Returns the mask of some heads; None if it depends on the number of heads in a way that is unknown here."""
    if isinstance(mask, And | Or | Not):
        parts = (mask.mask,) if isinstance(mask, Not) else mask.parts
        if any(_mask_of_heads(part, heads) is None for part in parts):
            return None
        return with_parts(mask, lambda part: _mask_of_heads(part, heads))
    if type(mask) is Where:
        return Where(_function_of_heads(mask.function, heads, 1))
    if isinstance(mask, Keep):
        return mask.map_tensors(partial(_pairs_of_heads, heads=heads))
    return mask if isinstance(mask, Band | Chunks | Dilated | Documents | Lengths | Prefix) else None


def _function_of_heads(function: Callable[..., Tensor], heads: Sequence[int], position: int) -> Callable[..., Tensor]:
    """Returns a function of pairs for some heads, whose numbers are the argument at this position."""

    def of_heads(*arguments: Tensor) -> Tensor:
        numbers = torch.tensor(heads, device=arguments[position].device)[arguments[position]]
        return function(*arguments[:position], numbers, *arguments[position + 1 :])

    return of_heads


def _score_of_heads(score: Score, heads: Sequence[int]) -> Score | None:
    if type(score) is ScaledDot:
        return None if isinstance(score.scale, Tensor) else score
    if type(score) is SoftCap:
        inner = _score_of_heads(score.score, heads)
        return None if inner is None else SoftCap(inner, score.cap)
    if type(score) is Modified and (inner := _score_of_heads(score.score, heads)) is not None:
        return Modified(inner, _function_of_heads(score.fn, heads, 2))
    return None
