"""``flex``: PyTorch's FlexAttention, for inner product × softmax × masks, modifiers and biases with a rule of pairs.

The rules of masks, modifiers and biases become parts of one kernel (`regard.attention.pair_rules`), and blocks of pairs
that a mask hides are skipped (`blocks`). A kernel is compiled once for each kind of call (`kernels`). This takes
seconds, and PyTorch's compiler may fail where another backend serves, so only a call that names the backend compiles;
``"auto"`` takes it for kinds of calls that are compiled.

The kernel multiplies half-precision inputs in their dtype and accumulates in float32; scores are modified in float32,
and weights are rounded to the inputs' dtype before they are multiplied with values. The backward pass computes weights
as exp(score − lse), which loses digits if scores exceed 1e4.
"""

import weakref
from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.backend import Backend
from regard.attention.backends.flex import kernels
from regard.attention.backends.flex.blocks import blocks_of
from regard.attention.backends.flex.kernels import FlexCall
from regard.attention.pair_rules import LARGEST_INTEGER, NotPointwiseError, Rule, record
from regard.attention.problem import Capabilities, Problem
from regard.attention.readings import Gatherer
from regard.biases.bias import PairBias
from regard.errors import BackendError
from regard.scores import InnerProduct
from regard.shapes.grid import Grid, spread_heads, upcast
from regard.tracing.transforms import active_transform, in_memory, is_batched

DEVICES = ("cuda", "xpu")
"""Devices for which PyTorch has both passes of FlexAttention."""

SMALLEST_DIM, LARGEST_DIM = 16, 256
"""The widths of queries, keys and values that the kernels take; narrower ones are padded with zeros."""

CAPABILITIES = Capabilities(primitives=(InnerProduct,), rows=frozenset({"softmax"}), row_tensors=frozenset({"sink"}))


class Flex(Backend):
    """Calls `torch.nn.attention.flex_attention.flex_attention`, compiled for each kind of call."""

    name = "flex"
    why = "PyTorch's FlexAttention skips what the mask hides, and computes modifiers and biases within its kernel"
    is_awaited = False

    def declines(self, problem: Problem) -> str | None:
        if problem.query.device.type not in DEVICES:
            return f"the inputs are on {problem.query.device}; FlexAttention has both passes on {' and '.join(DEVICES)}"
        if problem.query.device.type == "cuda" and find_spec("triton") is None:
            return "Triton is not installed, which compiles FlexAttention"
        return _obstacle(problem)

    def delay(self, problem: Problem, gatherer: Gatherer | None = None) -> str | None:
        if kernels.COMPILED_KERNELS and self.declines(problem) is None and kernels.is_compiled(_call(problem)):
            return None
        return "this kind of call is compiled by one that names it, backend='flex', which takes seconds"

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        output, lse = kernels.run(_call(problem))
        row = problem.lowered.row
        assert row is not None
        if row.sink is not None:
            assert lse is not None
            sink = torch.as_tensor(row.sink, dtype=lse.dtype, device=lse.device).reshape(-1, 1)
            output = output * (lse - sink).sigmoid()[..., None]
        output = output[..., : problem.value.shape[3]].to(problem.value.dtype)
        if output.requires_grad:
            output.register_hook(_refuse_other_derivatives)
        return output


def _refuse_other_derivatives(gradient: Tensor | None) -> None:
    """Raises one clear error for second and for batched derivatives; a hook of the output."""
    if torch.is_grad_enabled():
        raise BackendError("FlexAttention (backend 'flex') has no second derivative; backend='reference' has")
    if gradient is not None and is_batched(gradient):
        raise BackendError("FlexAttention (backend 'flex') has no batched derivatives; backend='reference' has")


def _obstacle(problem: Problem) -> str | None:
    """Returns why FlexAttention cannot compute a problem on any device; None if it can."""
    if problem.pairs == 0:
        return "there are no pairs"
    lowered = problem.lowered
    row = lowered.row
    if row is None or row.kind != "softmax" or row.center is not None:
        return "the normalizer is not a softmax"
    prepared = lowered.score
    # A modifier is a rule of pairs, of which there may be any number.
    obstacle = CAPABILITIES.obstacle(replace(lowered, score=replace(prepared, modifiers=())))
    if obstacle is not None:
        return obstacle
    if problem.dropout:
        return "FlexAttention has no dropout"
    transform = active_transform()
    if transform is not None:
        return f"{transform}, and FlexAttention has a reverse mode only"
    device = problem.query.device.type
    if prepared.query.dtype == torch.float64 and device != "cpu":
        return "its kernels do not multiply float64"
    widest = max(prepared.query.shape[3], problem.value.shape[3])
    if widest > LARGEST_DIM or 0 in (prepared.query.shape[3], problem.value.shape[3]):
        return f"its kernels take widths of 1 to {LARGEST_DIM}; this one is {widest}"
    if max(problem.grid.shape) > LARGEST_INTEGER:
        return "it has more positions than its kernels can count"
    bias = problem.bias
    if bias is not None and bias.needs_gradient(problem.query) and torch.are_deterministic_algorithms_enabled():
        return "it adds the gradient of a bias in no fixed order, and deterministic algorithms are on"
    try:
        _rules(problem)
    except NotPointwiseError as error:
        return str(error)
    return kernels.failure(_call(problem)) if kernels.FAILED_KERNELS else None


class _Rules(NamedTuple):
    score: Rule | None
    mask: Rule | None


_RULES: "weakref.WeakKeyDictionary[Problem, _Rules]" = weakref.WeakKeyDictionary()
_CALLS: "weakref.WeakKeyDictionary[Problem, FlexCall]" = weakref.WeakKeyDictionary()


def _rules(problem: Problem) -> _Rules:
    """Returns the rules of a problem's scores and of its mask, recorded once."""
    rules = _RULES.get(problem)
    if rules is None:
        rules = _RULES[problem] = _Rules(_score_rule(problem), _mask_rule(problem))
    return rules


def _mask_rule(problem: Problem) -> Rule | None:
    mask = problem.hiding_mask
    if mask is None:
        return None
    try:
        return record(problem.grid, mask.allows)
    except NotPointwiseError as error:
        raise NotPointwiseError(f"the mask is no function of single pairs: {error}") from None


def _score_rule(problem: Problem) -> Rule | None:
    """Returns what changes an inner product that is scaled: modifiers, the bias, and the temperature."""
    lowered = problem.lowered
    modifiers, bias = lowered.score.modifiers, problem.bias
    if not modifiers and bias is None:
        return None
    assert lowered.row is not None
    temperature = lowered.row.temperature
    assert isinstance(temperature, float)
    of_pairs: PairBias | None = None
    if bias is not None:
        of_pairs = bias.of_pairs(problem.query, problem.grid)
        if of_pairs is None:
            raise NotPointwiseError(f"{bias.class_name} is no function of single pairs")

    def rule(score: Tensor, pair: Grid) -> Tensor:
        for modifier in modifiers:
            score = modifier(score, pair)
        if of_pairs is not None:
            score = score + of_pairs(pair)
        return score if temperature == 1.0 else score * (1.0 / temperature)

    try:
        return record(problem.grid, rule, upcast(problem.query).dtype)
    except NotPointwiseError as error:
        raise NotPointwiseError(f"the score is changed by no function of single pairs: {error}") from None


def _call(problem: Problem) -> FlexCall:
    """Returns the call of FlexAttention, prepared once."""
    call = _CALLS.get(problem)
    if call is not None:
        return call
    lowered, rules = problem.lowered, _rules(problem)
    prepared, row, mask = lowered.score, lowered.row, problem.hiding_mask
    assert row is not None
    assert isinstance(row.temperature, float)
    query, key, value, scale = prepared.query, prepared.key, problem.value, prepared.scale
    if isinstance(scale, Tensor):
        # Multiplied in float32: in half precision the product would lose digits.
        query, key, scale = upcast(query) * scale, upcast(key), 1.0
    if rules.score is None:
        scale /= row.temperature
    batch, heads = query.shape[:2]
    if key.shape[1] != value.shape[1]:
        key, value = spread_heads(key, heads), spread_heads(value, heads)
    query, key, value = (_laid_out(tensor, batch, query.dtype) for tensor in (query, key, value))
    blocks = None if mask is None or rules.mask is None else blocks_of(mask, rules.mask, problem.grid)
    call = FlexCall(query, key, value, float(scale), rules.score, rules.mask, blocks, row.sink is not None)
    _CALLS[problem] = call
    return call


def _laid_out(tensor: Tensor, batch: int, dtype: torch.dtype) -> Tensor:
    """Returns a tensor in the dtype and the layout that the kernels take: its features adjoin, and are enough."""
    tensor = in_memory(tensor.expand(batch, -1, -1, -1)).to(dtype)
    if tensor.shape[3] < SMALLEST_DIM:
        return F.pad(tensor, (0, SMALLEST_DIM - tensor.shape[3]))
    return tensor if tensor.stride(3) == 1 and 0 not in tensor.stride() else tensor.contiguous()
