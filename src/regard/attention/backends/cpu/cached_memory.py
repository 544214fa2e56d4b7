"""A cached memory: keys and values that many calls with other queries attend to, prepared once.

A decoder attends once a step, with other queries, to keys and values that stay the same for the whole sentence. What
depends on the keys alone (an additive score's exponentials, the visible runs of keys) is computed once. The gradient of
keys and values is a sum over steps: each step stores the factors of its term, and one product at the end of the
backward pass sums all terms. docs/derivations/cached-memory.md has the equations.

The first step of a backward pass with an additive score computes its own term of the keys' gradient, as it passes over
the keys anyway: a call that is the only one needs no other pass.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.problem import CachedMemory, Problem
from regard.attention.result import Attended
from regard.kernels.cpu.kernel_arguments import KernelInputs
from regard.kernels.cpu.second_derivative import refuse_batched_gradients, refuse_second_derivative
from regard.masks import Keep
from regard.normalizers import RowPrimitive
from regard.scores import Additive, Dot, ScaledDot, Score, TanhSum
from regard.shapes import Grid
from regard.transforms import active_transform, has_data, in_memory
from regard.versions import Versions

if TYPE_CHECKING:
    from regard.kernels.cpu.step_operators import MemorySums


class StepTerms(NamedTuple):
    """The factors of one step's terms in the gradients of keys and values.

    Attributes:
        query: ``[batch, 1, queries, dim]``.
        grad_scores: ``[batch, 1, queries, keys]``.
        dropped_weights: weights after dropout, ``[batch, 1, queries, keys]``.
        grad_output: ``[batch, 1, queries, value_dim]``.
    """

    query: Tensor
    grad_scores: Tensor
    dropped_weights: Tensor
    grad_output: Tensor


@dataclass
class BackwardPass:
    """What the steps of one backward pass have left for the gradients of the memory.

    Attributes:
        terms: of each step, the first of them first.
        sums: those that the first step began, of an additive score's memory; None where there are none.
    """

    terms: list[StepTerms] = field(default_factory=list)
    sums: "MemorySums | None" = None

    def joined(self, name: str, first: int = 0) -> Tensor:
        """A factor of all steps from one on, one step behind the other."""
        parts = [getattr(term, name) for term in self.terms[first:]]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


@dataclass
class BackwardPasses:
    """The backward passes through the steps over one memory.

    Attributes:
        with_sums: whether the first step begins sums: those of an additive score whose keys or weight want a gradient.
        versions: of the memory's tensors, which all steps read again.
        under_way: by PyTorch's number of the pass.
    """

    with_sums: bool
    versions: Versions
    under_way: dict[int, BackwardPass] = field(default_factory=dict)

    def current(self) -> BackwardPass:
        """What there is of the pass that is running: terms of different passes must not be added."""
        return self.under_way.setdefault(torch._C._current_graph_task_id(), BackwardPass())

    def finish(self) -> BackwardPass:
        """The same, at its end. A backward pass that ended early left its terms here, which are forgotten."""
        finished = self.current()
        self.under_way.clear()
        return finished


@dataclass(frozen=True)
class FusedMemory(CachedMemory):
    """Keys and values of one head on a CPU, prepared for the fused kernels.

    Attributes:
        inputs: of the kernels; each step brings its own query.
        passes: the backward passes through its steps.
        token: what steps depend on, so that autograd computes the memory's gradients after theirs; None where no
            gradient is needed.
    """

    inputs: KernelInputs
    passes: BackwardPasses
    token: Tensor | None

    backend = "cpu"

    @classmethod
    def prepare(cls, key: Tensor, value: Tensor, score: Score, mask: Tensor | None) -> "FusedMemory | None":
        """The memory prepared; None if the kernels do not take it. Arguments as for `Backend.prepare_memory`."""
        kinds = (torch.float32, torch.float64)
        if key.device.type != "cpu" or key.dtype not in kinds or value.dtype != key.dtype:
            return None
        if not has_data(key) or active_transform() is not None or 0 in key.shape or 0 in value.shape:
            return None
        # Scores that are their primitive once queries and keys are projected; others change more than that.
        if type(score) not in (Additive, Dot, ScaledDot):
            return None
        prepared = score.prepare(key[:, None, :1], key[:, None])
        if isinstance(prepared.scale, Tensor):
            return None
        return cls._prepare(prepared.key, value[:, None], prepared.primitive, float(prepared.scale), mask)

    @classmethod
    def _prepare(
        cls, key: Tensor, value: Tensor, primitive: object, scale: float, mask: Tensor | None
    ) -> "FusedMemory | None":
        from regard.kernels.cpu import kernel, kernels, operators
        from regard.kernels.cpu.launch import as_matrix

        weight = None
        if isinstance(primitive, TanhSum):
            weight = primitive.weight.reshape(1, -1) * scale
        matrix = as_matrix(key.detach())
        inputs = KernelInputs(matrix[:, :, :1], matrix, as_matrix(value.detach()), scale=scale)
        if weight is not None:
            if not kernel.are_usable([kernels.exponentials(matrix.dtype)]):
                return None
            exponentials, extents = operators.exponentials(inputs.key)
            inputs = inputs._replace(weight=weight.detach(), exponentials=exponentials, extents=extents)
        masked, token = with_mask(inputs, mask), None
        trained = [tensor for tensor in (key, value, weight) if tensor is not None and tensor.requires_grad]
        passes = BackwardPasses(
            with_sums=weight is not None and (key.requires_grad or weight.requires_grad),
            versions=Versions(key=inputs.key, value=inputs.value, score=weight, mask=masked.mask),
        )
        if torch.is_grad_enabled() and trained:
            token = _SumTerms.apply(inputs, passes, key, value, weight)
        return cls(masked, passes, token)

    def declines(self, problem: Problem) -> str | None:
        row = problem.row
        if row is None or row.sink is not None or row.center is not None or isinstance(row.shift, Tensor):
            return f"there is no step over a cached memory for {type(problem.normalizer).__name__}"
        if isinstance(row.temperature, Tensor) or isinstance(row.alpha, Tensor) or row.shift != 0.0:
            return "the normalizer's parameters are not numbers that a step takes"
        if row.kind == "hard":
            return "hard attention has no gradient to the scores, and a step over a cached memory has one"
        if problem.bias is not None:
            return "steps over a cached memory take no bias"
        if problem.query.dtype != self.inputs.key.dtype:
            return f"the memory was cached in {self.inputs.key.dtype}; query is {problem.query.dtype}"
        return active_transform() or self._delay(problem, row)

    def _delay(self, problem: Problem, row: RowPrimitive) -> str | None:
        """Why the kernels of its steps cannot be used yet; None if they can, or are waited for."""
        from regard.kernels.cpu import kernel, kernels

        inputs, gradient = self.inputs, self.token is not None or problem.wants_gradient
        normalizer = kernels.row_normalizer(row.kind, row.temperature, row.alpha)["normalizer"]
        required = kernels.of_steps(inputs.key.dtype, inputs.units, normalizer, gradient)
        return None if kernel.are_usable(required) else "its kernels are being compiled"

    def attend(self, problem: Problem) -> Attended:
        """Output ``[batch, 1, queries, value_dim]`` and weights before dropout, of a problem that is not declined."""
        from regard.kernels.cpu import kernels

        row = problem.row
        assert row is not None
        seed = int(torch.randint(2**62, ()).item()) if problem.dropout else 0
        fields = kernels.row_normalizer(row.kind, row.temperature, row.alpha)
        inputs = self.inputs._replace(dropout=problem.dropout, seed=seed, **fields)  # type: ignore[arg-type]
        return Attended(*_Step.apply(inputs, self.passes, problem.query, self.token))

    def select(self, index: Tensor) -> "FusedMemory | None":
        """Only for memories that want no gradient."""
        if self.token is not None:
            return None
        rows = {
            name: tensor.index_select(0, index)
            for name, tensor in self.inputs._asdict().items()
            if isinstance(tensor, Tensor) and name != "weight" and tensor.shape[0] == self.inputs.key.shape[0]
        }
        return replace(self, inputs=self.inputs._replace(**rows))


def with_mask(inputs: KernelInputs, mask: Tensor | None) -> KernelInputs:
    """The inputs with what a mask ``[batch, keys]`` leaves visible: a few runs, or one and the mask with its holes."""
    if mask is None:
        return inputs
    mask = in_memory(mask)
    keys = mask.shape[1]
    count = mask.sum(dim=1)
    bits = mask.view(torch.uint8)
    start = torch.where(count > 0, bits.argmax(1), 0)
    stop = torch.where(count > 0, keys - bits.flip(1).argmax(1), 0)
    ends = tuple(end.to(torch.int32)[:, None, None, None] for end in (start, stop))
    if not bool((stop - start != count).any()):
        return inputs._replace(start=ends[0], stop=ends[1])
    runs = Keep(mask[:, None, None]).spans(Grid.whole(len(mask), 1, 1, keys))
    if runs is not None:
        return inputs._replace(start=runs.start, stop=runs.stop)
    return inputs._replace(start=ends[0], stop=ends[1], mask=mask[:, None, None].contiguous())


class _SumTerms(torch.autograd.Function):
    """A token that every step depends on; its backward pass, after those of all steps, sums the terms of the steps."""

    @staticmethod
    def forward(ctx: Any, inputs: KernelInputs, passes: BackwardPasses, *tensors: Tensor | None) -> Tensor:
        ctx.inputs, ctx.passes = inputs, passes
        return inputs.key.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative()
        passed: BackwardPass = ctx.passes.finish()
        if not passed.terms:
            return (None,) * 5
        ctx.passes.versions.check()
        inputs, need = ctx.inputs, ctx.needs_input_grad
        grad_value = None
        if need[3]:
            grad_value = _transposed_product(passed.joined("dropped_weights"), passed.joined("grad_output"))
        grad_key = grad_weight = None
        if inputs.weight is None and need[2]:
            grad_key = _transposed_product(passed.joined("grad_scores"), passed.joined("query")).mul_(inputs.scale)
        elif passed.sums is not None:
            from regard.kernels.cpu.step_operators import add_steps

            if len(passed.terms) > 1:
                add_steps(
                    inputs._replace(query=passed.joined("query", 1)), passed.joined("grad_scores", 1), passed.sums
                )
            grad_key, grad_weight = passed.sums.gradients()
        return None, None, grad_key, grad_value, grad_weight


class _Step(torch.autograd.Function):
    """One step: output and weights; backward, the gradient of the query alone, and the terms for `_SumTerms`."""

    @staticmethod
    def forward(
        ctx: Any, inputs: KernelInputs, passes: BackwardPasses, query: Tensor, token: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        from regard.kernels.cpu.step_operators import step

        inputs = inputs._replace(query=query)
        output, weights = step(inputs)
        ctx.inputs, ctx.passes, ctx.summed = inputs._replace(query=query[:0]), passes, token is not None
        ctx.save_for_backward(query, weights)
        ctx.set_materialize_grads(False)
        return output, weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        from regard.kernels.cpu.step_operators import MemorySums, step_gradients

        if torch.is_grad_enabled():
            refuse_second_derivative()
        grad_output, grad_weights = gradients
        refuse_batched_gradients(grad_output, grad_weights)
        if grad_output is None and grad_weights is None:
            return (None,) * 4
        query, weights = ctx.saved_tensors
        ctx.passes.versions.check()
        inputs = ctx.inputs._replace(query=query)
        if grad_output is None:
            grad_output = query.new_zeros(*query.shape[:3], inputs.value.shape[3])
        left: BackwardPass | None = ctx.passes.current() if ctx.summed else None
        begins = left is not None and not left.terms and ctx.passes.with_sums
        sums = MemorySums.unfilled(inputs) if begins else None
        grad_query, grad_scores, dropped_weights = step_gradients(inputs, weights, grad_output, grad_weights, sums)
        if left is None:
            return None, None, grad_query, None
        left.sums = left.sums if sums is None else sums
        left.terms.append(StepTerms(query, grad_scores, dropped_weights, grad_output))
        return None, None, grad_query, query.new_zeros(())


def _transposed_product(left: Tensor, right: Tensor) -> Tensor:
    """``leftᵀ right`` of ``[batch, 1, queries, …]``; of one query, products of numbers are faster than of matrices."""
    columns = left.transpose(-1, -2)
    return columns * right if left.shape[2] == 1 else columns @ right
