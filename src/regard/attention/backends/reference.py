"""``reference``: the specification of attention, step by step.

    scores  = primitive(query', key')                 compare
    scaled  = scale · scores
    capped  = modifiers(scaled)                       soft cap, score functions
    biased  = capped + bias
    masked  = biased where the mask allows, else −∞
    weights = normalizer(masked)                      row by row
    output  = dropout(weights) · value

`Reference` runs these lines on the whole grid at once; backends that have no kernel of their own run them on a tile of
it. They are plain PyTorch: no compiled loop runs in them, not in a normalizer either.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.backend import Backend, Bound
from regard.attention.backends.small_calls import bound_steps
from regard.attention.guarded import finite_saved_tensors, is_guarded, visible_product
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.normalizers.normalizer import plain_rows
from regard.scores import InnerProduct, Prepared
from regard.scores.additive_scores import UnitSum
from regard.shapes.axes import Float
from regard.shapes.grid import Grid, spread_heads, upcast
from regard.shapes.layout import Pairs
from regard.tracing.transforms import can_branch_on


class Reference(Backend):
    """Runs every problem on every device, as the equation says, in quadratic memory."""

    name = "reference"
    why = "so few pairs that computing them all at once costs least"
    reads = True
    isolates = True
    whole_grids = True
    linear = False
    measured = ("small-additive", "small-lengths")

    def declines(self, problem: Problem) -> None:
        """Returns None: the specification runs everything."""

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        return specified(problem, gatherer).output

    def run_with_weights(self, problem: Problem) -> Attended:
        return specified(problem)

    def bind(self, problem: Problem, any_keys: bool) -> Bound | None:
        return bound_steps(problem, any_keys)

    @torch.no_grad()
    def read(self, problem: Problem, gatherer: Gatherer) -> None:
        steps = weigh(problem, guarded(problem, whole(problem)))
        gatherer.add(steps.masked, steps.weights, problem.grid)


def specified(problem: Problem, gatherer: Gatherer | None = None) -> Attended:
    """Returns output and weights of the whole problem, both differentiable, and shows the weights to a gatherer."""
    inputs = guarded(problem, whole(problem))
    steps = weigh(problem, inputs)
    if gatherer is not None:
        gatherer.add(steps.masked, steps.weights, problem.grid)
    return Attended(mix(problem, inputs, steps.weights), steps.weights)


class TileInputs(NamedTuple):
    """The parts of a problem's tensors that belong to one tile.

    Attributes:
        prepared: the lowered score, with the queries and keys of the tile.
        query: the user's queries of the tile, which some biases read; ``[batch, heads, queries, dim]``.
        value: ``[batch, kv_heads, keys, value_dim]``.
        grid: the tile.
        bias: the bias of the tile, if `guarded` computed it.
        shown: which pairs neither mask nor bias hides, ``[batch or 1, heads or 1, queries or 1, keys or 1]``, where
            hidden elements are kept out by the calculation itself (`regard.attention.guarded`).
    """

    prepared: Prepared
    query: Tensor
    value: Tensor
    grid: Grid
    bias: Tensor | None = None
    shown: Tensor | None = None


class TileWeights(NamedTuple):
    """All steps up to the weights, each ``[batch, heads, queries, keys]``; float32 for half precision."""

    scores: Tensor
    scaled: Tensor
    capped: Tensor
    biased: Tensor
    masked: Tensor
    weights: Tensor


def whole(problem: Problem) -> TileInputs:
    """Returns the whole problem as one tile."""
    return TileInputs(problem.prepared, problem.query, problem.value, problem.grid)


def guarded(problem: Problem, inputs: TileInputs) -> TileInputs:
    """Returns the inputs with their visible pairs if they are on a device and some may be hidden."""
    return with_visible_pairs(problem, inputs) if problem.may_hide and is_guarded(inputs.value) else inputs


def with_visible_pairs(problem: Problem, inputs: TileInputs) -> TileInputs:
    """Returns the inputs with their visible pairs, so that no hidden element enters the calculation."""
    grid, mask = inputs.grid, problem.hiding_mask
    shown = torch.ones((), dtype=torch.bool, device=grid.device) if mask is None else mask.allows(grid)
    bias = None
    if problem.bias is not None:
        with finite_saved_tensors():
            bias = upcast(problem.bias(inputs.query, grid)).to(upcast(inputs.query).dtype)
        shown = shown & (bias.detach() != -torch.inf)
    return inputs._replace(bias=bias, shown=shown[(None,) * (4 - shown.dim())])


def weigh(problem: Problem, inputs: TileInputs) -> TileWeights:
    """Returns scores and weights of one tile."""
    return TileWeights(*_calculation(problem, inputs, keeps_steps=True))


def weights_alone(problem: Problem, inputs: TileInputs) -> Pairs:
    """Returns the weights of one tile as `weigh` does, but frees the memory of the steps before them."""
    return deque(_calculation(problem, inputs, keeps_steps=False), maxlen=1).pop()


def masked_scores(problem: Problem, inputs: TileInputs) -> Pairs:
    """Returns the scores of one tile, −inf where a pair is hidden, without the weights."""
    *_, masked = islice(_calculation(problem, inputs, keeps_steps=False), len(TileWeights._fields) - 1)
    return masked


def _calculation(problem: Problem, inputs: TileInputs, keeps_steps: bool) -> Iterator[Tensor]:
    """Yields the scores, the scaled, capped, biased and masked scores, and the weights.

    Args:
        keeps_steps: whether the caller keeps the steps before the weights. If not, scores are scaled in place.
    """
    prepared, grid = inputs.prepared, inputs.grid
    with nullcontext() if inputs.shown is None else finite_saved_tensors():
        scores = prepared.primitive(prepared.query, prepared.key)
        yield scores
        if isinstance(prepared.scale, Tensor):
            scores = scores * upcast(grid.cut(prepared.scale))
        elif prepared.scale != 1.0:
            # Another primitive may return memory of the user's.
            in_place = not keeps_steps and isinstance(prepared.primitive, InnerProduct | UnitSum)
            scores = scores.mul_(prepared.scale) if in_place else scores * prepared.scale
        yield scores
        for modifier in prepared.modifiers:
            scores = modifier(scores, grid)
        yield scores
    if problem.bias is not None:
        bias = upcast(problem.bias(inputs.query, grid)) if inputs.bias is None else inputs.bias
        scores = scores + bias.to(scores.dtype)
    yield scores
    mask = problem.hiding_mask
    if inputs.shown is not None:
        scores = torch.where(inputs.shown, scores, -torch.inf)
    elif mask is not None and (grid is problem.grid or not mask.hides_nothing(grid)):
        scores = torch.where(mask.allows(grid), scores, -torch.inf)
    if problem.changes is not None:
        scores = problem.changes.of_scores(scores, grid)
    yield scores
    if torch.compiler.is_compiling():
        yield problem.normalizer.weigh(scores, grid)
        return
    with plain_rows():
        weights = problem.normalizer.weigh(scores, grid)
    if problem.changes is not None:
        weights = problem.changes.of_weights(weights, scores == -torch.inf, grid)
    yield weights


def mix(problem: Problem, inputs: TileInputs, weights: Pairs) -> Float[Tensor, "batch heads queries value_dim"]:
    """Returns the output of one tile, ``[batch, heads, queries, value_dim]``, in the value's dtype."""
    dropped = dropout(weights, problem.dropout) if problem.dropout else weights
    value = spread_heads(inputs.value, inputs.grid.heads)
    if inputs.shown is not None:
        return visible_product(dropped, upcast(value), inputs.shown).to(value.dtype)
    return (dropped @ upcast(value)).to(value.dtype)


_LEVELS = 1 << 16
"""Sixteen random bits decide whether a weight is dropped."""


def dropout(weights: Tensor, p: float) -> Tensor:
    """Sets weights to 0 with probability ``p``, and multiplies the others by ``1 / (1 − p)``.

    Srivastava et al. 2014, section 4 (inverted). On a CPU four weights share the 64 bits of one random number, which
    costs a fifth of PyTorch's dropout, so that ``p`` is rounded to a multiple of 1 / 65,536. Where PyTorch traces or a
    `torch.func` transform is active, and on other devices, it is `torch.nn.functional.dropout`.
    """
    dropped = round(p * _LEVELS)
    if dropped == _LEVELS or not (weights.is_cpu and can_branch_on(weights)):
        return F.dropout(weights, p)
    numbers = torch.empty((weights.numel() + 3) // 4, dtype=torch.int64, device="cpu").random_(-(1 << 63), None)
    bits = numbers.view(torch.int16)[: weights.numel()].view(weights.shape)
    factor = (bits >= dropped - _LEVELS // 2).to(weights.dtype)
    return weights * factor.mul_(_LEVELS / (_LEVELS - dropped))


def empty_output(inputs: TileInputs) -> Float[Tensor, "batch heads queries value_dim"]:
    """Returns the output of a tile without pairs: zeros, whose gradients to query, key and value are zeros as well."""
    prepared, value, grid = inputs.prepared, inputs.value, inputs.grid
    zeros = value.new_zeros(*grid.shape[:3], value.shape[-1])
    for tensor in (prepared.query, prepared.key, value):
        zeros = zeros + tensor.narrow(2, 0, 0).sum().to(value.dtype)
    return zeros
