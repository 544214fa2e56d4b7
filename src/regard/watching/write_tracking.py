"""Follows a watched run from what is written to the residual stream to the queries and keys: see `write_steps`."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.watching.equations import Equation, equation_of
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.linear_maps import ModuleCall, Normalization, rounding, wide_tensor
from regard.watching.linear_tracking import LinearTracking, Terms
from regard.watching.tracked_tensors import TrackedRecord
from regard.watching.write_steps import (
    LinearMap,
    LinearStep,
    MemoryLayout,
    Moved,
    Normed,
    Product,
    Scaled,
    ScoreSteps,
    Sum,
    Viewed,
    Write,
)  # fmt: skip

_JOINS = frozenset(("cat", "concat", "concatenate", "stack", "hstack", "vstack"))
_LINEAR_MAPS = frozenset(("linear", "matmul", "mm", "addmm"))
_CONTRACTIONS = frozenset(("matmul", "bmm", "baddbmm", "inner", "einsum"))
_NORMALIZATIONS = {"layer_norm": ("weight", "bias", "eps"), "rms_norm": ("weight", "eps")}
_SOFTMAXES = frozenset(("softmax", "log_softmax", "softmin"))
_LEARNED_INPUTS = ("embedding", "conv1d", "conv2d", "conv3d")


class WriteTracking(LinearTracking):
    """The steps of all tensors that are linear in what is written."""

    follows_paths = False

    def __init__(self) -> None:
        super().__init__()
        self._last_scores: tuple[int, LinearStep, MemoryLayout] | None = None  # a model's own, with the memory

    def begin_forward(self, args: tuple[Any, ...]) -> None:
        """Records the arguments of the model."""
        for each in _tensors(args):
            if each.is_floating_point() and not each.is_nested and self.step(each) is None:
                self._put(each, Write(each, "input"))

    def score_steps(self, intercepted: InterceptedCall) -> ScoreSteps:
        """Returns where the scores of a call come from."""
        if intercepted.problem is not None:
            query, key = intercepted.own_sides or (intercepted.problem.query, intercepted.problem.key)
            return ScoreSteps(self._located(query), self._located(key))
        scores = intercepted.own_scores
        if scores is None:
            return ScoreSteps()
        changed = intercepted.changed_scores
        return ScoreSteps(scores=self._located(scores), values=scores if changed is None else changed)

    def _located(self, tensor: Tensor) -> LinearStep | None:
        """Returns the step of a tensor that may be another view of one that is known."""
        memory, layout = tensor.untyped_storage().data_ptr(), MemoryLayout.of(tensor)
        known = [
            (step, MemoryLayout.of(other))
            for reference, step in list(self._steps.known.values())
            if isinstance(step, LinearStep)
            and (other := reference()) is not None
            and other.dtype == tensor.dtype
            and other.layout is torch.strided
            and other.untyped_storage().data_ptr() == memory
        ]
        if self._last_scores is not None and self._last_scores[0] == memory:
            known.append(self._last_scores[1:])
        ends = torch.tensor([0, tensor.numel() // 2, tensor.numel() - 1], device="cpu")
        for step, other in sorted(known, key=lambda each: -each[0].number) if tensor.numel() else ():
            if other == layout:
                return step
            if other.elements_at(layout.addresses(ends)) is not None:
                return Viewed(layout, step, other)
        return None

    def _put(self, tensor: Tensor, step: LinearStep | None) -> None:
        self._steps.put(tensor, step or TrackedRecord())

    def _unknown(self, name: str, args: Any, output: Tensor, within: str) -> LinearStep:
        # A static cache writes its keys into memory of its own.
        return Write(output, "cache" if name.startswith("index_copy") else "module", within, is_computed=True)

    def _mapped(self, name: str, function: Any, args: Any, kwargs: Any, output: Tensor) -> LinearStep | None:
        if name in _LEARNED_INPUTS and not self._has_step(args):
            return Write(output, "embedding" if name == "embedding" else "module")
        if name in _NORMALIZATIONS:
            return self._normed(name, args, kwargs, output)
        return self._linear_map(name, args, kwargs, output) if name in _LINEAR_MAPS else None

    def _factor(self, factor: Any, tensor: Tensor, output: Tensor) -> float | Tensor | None:
        step = self.step(factor)
        if step is not None and not _is_statistic(factor, step, tensor):
            return None
        return factor.detach() if isinstance(factor, Tensor) else factor

    def _other(self, name: str, function: Any, args: Any, kwargs: Any, output: Tensor) -> LinearStep | None:
        if name in _JOINS:
            return self._joined(function, args, kwargs, output)
        first: Any = args[0] if args else None
        step, mask = self.step(first), kwargs.get("mask", args[1] if len(args) > 1 else None)
        if name in _CONTRACTIONS:
            product = self._product(equation_of(name, args, kwargs), output)
            if product is None or name != "baddbmm":
                return product
            added = step or Write(first, "constant")
            return Sum(output.shape, [(added, kwargs.get("beta", 1)), (product, kwargs.get("alpha", 1))])
        if step is None:
            return None
        if name.startswith("dropout"):
            if output is first or torch.equal(output, first):
                return step
            return Scaled(output.shape, step, torch.where(first == 0, 0.0, output.detach() / first.detach()))
        if name == "masked_fill" and self.step(mask) is None:
            filled = torch.where(mask, kwargs.get("value", args[2] if len(args) > 2 else 0.0), 0.0)
            return Sum(output.shape, [(Scaled(output.shape, step, ~mask), 1.0), (Write(filled, "constant"), 1.0)])
        if name == "tanh" and step.has_product:
            return Scaled(output.shape, step, 1.0, is_capped=True)
        if name in _SOFTMAXES:
            self._last_scores = first.untyped_storage().data_ptr(), step, MemoryLayout.of(first)
        return None

    def _sum(self, output: Tensor, terms: Terms) -> LinearStep | None:
        """Returns a sum, in which the results of functions that are not linear are writes."""
        (first, one), (other, sign) = terms
        if output is first and other is not first:  # the sum has overwritten its first term
            step = self.step(first)
            first = output.detach() - sign * (other.detach() if isinstance(other, Tensor) else other)
            if isinstance(step, Write):
                step.tensor = first
            self._put(first, step)
        steps = [(self.step(term), term, sign) for term, sign in ((first, one), (other, sign))]
        if all(step is None or (step.is_computed and not step.has_product) for step, _, _ in steps):
            return None
        parts: list[tuple[LinearStep, float]] = []
        for step, term, sign in steps:
            if step is None:
                step = Write(term if isinstance(term, Tensor) else torch.tensor(term, device="cpu"), "constant")
            elif step.is_computed and not step.has_product:
                step = Write(term, "module", step.name)
            parts.append((step, sign))
        return Sum(output.shape, parts)

    def _product(self, equation: Equation | None, output: Tensor) -> LinearStep | None:
        """Returns a product of queries and keys; None if a factor is no projection, as weights are none."""
        sides = [] if equation is None else [self.step(operand) for operand in equation.operands]
        if equation is None or len(sides) != 2:
            return None
        steps = [side for side in sides if side is not None and not (isinstance(side, Write) and side.is_computed)]
        return Product(output.shape, steps, equation) if len(steps) == 2 else None

    def _joined(self, function: Any, args: Any, kwargs: Any, output: Tensor) -> LinearStep | None:
        tensors = args[0] if args else kwargs["tensors"]
        options = {key: each for key, each in kwargs.items() if key != "tensors"}
        steps = [self.step(each) or Write(each, "constant") for each in tensors]
        return Moved(output.shape, steps, lambda *tensors: function(tensors, *args[1:], **options))

    def _linear_map(self, name: str, args: Any, kwargs: Any, output: Tensor) -> LinearStep | None:
        bias, first, weight = (None, *args[:2]) if name != "addmm" else args[:3]
        if name == "linear":
            weight = kwargs.get("weight", weight)
            bias = kwargs.get("bias", args[2] if len(args) > 2 else None)
        step = self.step(first)
        if not isinstance(weight, Tensor) or weight.dim() != 2 or self.step(weight) is not None:
            return None
        if step is None:
            if not isinstance(weight, nn.Parameter) or not isinstance(first, Tensor) or kwargs.get("alpha", 1) != 1:
                return None
            step = self._input(first)
        weight = weight.detach() if name == "linear" else weight.detach().t()
        return LinearMap(output.shape, step, lambda columns: weight[columns.to(weight.device)], bias)

    def _input(self, tensor: Tensor) -> Write:
        """Records a tensor whose origin is unknown, and which the model maps."""
        write = Write(tensor, "input")
        self._put(tensor, write)
        return write

    def _normed(self, name: str, args: Any, kwargs: Any, output: Tensor) -> LinearStep | None:
        input, shape = args[0], kwargs.get("normalized_shape", args[1] if len(args) > 1 else ())
        options = dict(zip(_NORMALIZATIONS[name], args[2:], strict=False)) | kwargs
        if len(shape) != 1:
            return None
        step = self.step(input) or self._input(input)
        rows, is_centered = input.detach().double(), name == "layer_norm"
        variance = rows.var(-1, correction=0) if is_centered else rows.square().mean(-1)
        eps = options.get("eps", 1e-5 if is_centered else None)
        factor = (variance + (torch.finfo(input.dtype).eps if eps is None else eps)).rsqrt()
        gain = options.get("weight")
        gain = torch.ones(shape[0], device="cpu") if gain is None else gain.detach().cpu()
        return Normed(output.shape, step, Normalization(gain, is_centered, factor), options.get("bias"))

    def passed(self, name: str, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        """Names the result of a module, or records it if its functions are not known."""
        input = args[0] if args else None
        known, step = self.step(input), self.step(output)
        is_unseen = self._steps.get(output) is None and output.is_floating_point()
        if is_unseen and known is not None and isinstance(input, Tensor):
            step = _asked(name, module, input, known, output, args[1:])
            self._put(output, step)
        if step is not None and output is not input:
            step.name = name
        if isinstance(known, Write) and known.kind == "input":
            known.name = name


def _asked(
    name: str, module: nn.Module, input: Tensor, known: LinearStep, output: Tensor, others: tuple[Any, ...]
) -> LinearStep:
    """Returns the step of a module that computes in an unknown way, by its outputs for other inputs."""
    call = ModuleCall(f"{name!r} ({type(module).__name__})", module, input, output, others)
    try:
        normalization = call.normalization() if output.shape == input.shape else None
        sample = call.sampled().settle()
        constant = wide_tensor(sample.ask(torch.zeros_like(sample.input)))[..., 0, :].flatten()
        if normalization is not None:
            return Normed(output.shape, known, normalization, constant)
        half = 2 * wide_tensor(sample.ask(sample.input / 2)) - constant
        limit = 64 * rounding(input, output) * wide_tensor(sample.output).abs().amax()
        if output.shape[:-1] == input.shape[:-1] and bool(((half - wide_tensor(sample.output)).abs() <= limit).all()):
            return LinearMap(output.shape, known, lambda columns: sample.matrix(columns).t(), constant)
    except (ArgumentError, RuntimeError, IndexError):
        pass
    return Write(output, "module", name, is_computed=True)


def _is_statistic(factor: object, step: LinearStep, tensor: object) -> bool:
    """Whether a factor is one number for each row of a tensor, which was computed from it."""
    return (
        isinstance(factor, Tensor)
        and isinstance(tensor, Tensor)
        and step.is_computed
        and factor.dim() > 0
        and factor.shape[-1] == 1 < tensor.shape[-1]
    )


def _tensors(arguments: Sequence[Any]) -> Iterator[Tensor]:
    for each in arguments:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, (tuple, list)):
            yield from _tensors(each)
