"""A cached memory: keys and values that many calls with other queries attend to, prepared once.

A decoder attends once a step, with other queries, to keys and values that stay the same for the whole sentence.
Everything that depends on the keys alone (an additive score's exponentials, the visible runs of keys) is computed once.
The gradient of keys and values is a sum over steps: each step stores the factors of its term, and one product at the
end of the backward pass sums all terms. docs/en/understand/derivations/cached-memory.md has the equations.

The first step of a backward pass with an additive score computes its own term of the keys' gradient while it reads the
keys, so a single call needs no other pass over them.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.cpu.dense_rows import ends_of
from regard.attention.problem import CachedMemory, Problem
from regard.attention.result import Attended
from regard.kernels.cpu.kernel_arguments import KernelInputs
from regard.kernels.cpu.second_derivative import refuse_batched_gradients, refuse_second_derivative
from regard.masks import Keep
from regard.normalizers import RowPrimitive
from regard.scores import Additive, Dot, ScaledDot, Score, TanhSum
from regard.shapes.grid import Grid
from regard.tracing.transforms import active_transform, has_data, in_memory
from regard.tracing.versions import Versions

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
    """The terms that the steps of one backward pass store for the gradients of the memory.

    Attributes:
        terms: the terms of each step, in the order of the backward pass.
        sums: the sums of an additive score's memory, which the first step begins; None if there are none.
    """

    terms: list[StepTerms] = field(default_factory=list)
    sums: "MemorySums | None" = None

    def joined(self, name: str, first: int = 0) -> Tensor:
        """Returns a factor of all steps from ``first`` on, concatenated along the queries."""
        parts = [getattr(term, name) for term in self.terms[first:]]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


@dataclass
class BackwardPasses:
    """The backward passes through the steps over one memory.

    Attributes:
        with_sums: whether the first step begins sums: for an additive score whose keys or weight need a gradient.
        unfinished: the passes that have begun, by PyTorch's number of each.
    """

    with_sums: bool
    versions: Versions
    unfinished: dict[int, BackwardPass] = field(default_factory=dict)

    def current(self) -> BackwardPass:
        """Returns the pass that is running; terms of different passes must not be added."""
        return self.unfinished.setdefault(torch._C._current_graph_task_id(), BackwardPass())

    def finish(self) -> BackwardPass:
        """Returns the pass that is running, at its end, and forgets it and all passes that ended early."""
        finished = self.current()
        self.unfinished.clear()
        return finished


@dataclass(frozen=True)
class FusedMemory(CachedMemory):
    """Keys and values of one head on a CPU, prepared for the fused kernels.

    Attributes:
        token: a tensor that steps depend on, so that autograd computes the memory's gradients after theirs; None if no
            gradient is needed.
    """

    inputs: KernelInputs
    passes: BackwardPasses
    token: Tensor | None

    backend = "cpu"

    @classmethod
    def prepare(cls, key: Tensor, value: Tensor, score: Score, mask: Tensor | None) -> "FusedMemory | None":
        """Prepares keys and values as `Backend.prepare_memory` does; returns None if the kernels cannot use them."""
        kinds = (torch.float32, torch.float64)
        if key.device.type != "cpu" or key.dtype not in kinds or value.dtype != key.dtype:
            return None
        if not has_data(key) or active_transform() is not None or 0 in key.shape or 0 in value.shape:
            return None
        # These scores are their primitive, once queries and keys are projected; others change more.
        if type(score) not in (Additive, Dot, ScaledDot):
            return None
        prepared = score.prepare(key[:, None, :1], key[:, None])
        if isinstance(prepared.scale, Tensor):
            return None
        from regard.kernels.cpu import kernel, kernels, operators
        from regard.kernels.cpu.launch import as_matrix

        key, value, scale, weight = prepared.key, value[:, None], float(prepared.scale), None
        if isinstance(prepared.primitive, TanhSum):
            weight = prepared.primitive.weight.reshape(1, -1) * scale
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
        """Returns why the kernels of its steps cannot be used yet; None if they can, or if the call waits for them."""
        from regard.kernels.cpu import kernel, kernels

        inputs, gradient = self.inputs, self.token is not None or problem.wants_gradient
        normalizer = kernels.row_normalizer(row.kind, row.temperature, row.alpha)["normalizer"]
        required = kernels.for_steps(inputs.key.dtype, inputs.units, normalizer, gradient)
        return None if kernel.are_usable(required) else "its kernels are being compiled"

    def attend(self, problem: Problem) -> Attended:
        from regard.kernels.cpu import kernels

        row = problem.row
        assert row is not None
        seed = int(torch.randint(2**62, ()).item()) if problem.dropout else 0
        fields = kernels.row_normalizer(row.kind, row.temperature, row.alpha)
        inputs = self.inputs._replace(dropout=problem.dropout, seed=seed, **fields)
        return Attended(*_Step.apply(inputs, self.passes, problem.query, self.token))

    def select(self, index: Tensor) -> "FusedMemory | None":
        """Returns the memory of these batch rows; None if it needs a gradient."""
        if self.token is not None:
            return None
        rows = {
            name: tensor.index_select(0, index)
            for name, tensor in self.inputs._asdict().items()
            if isinstance(tensor, Tensor) and name != "weight" and tensor.shape[0] == self.inputs.key.shape[0]
        }
        return replace(self, inputs=self.inputs._replace(**rows))


def with_mask(inputs: KernelInputs, mask: Tensor | None) -> KernelInputs:
    """Returns the inputs with the keys that a mask ``[batch, keys]`` allows: a few runs, or one run and the mask."""
    if mask is None:
        return inputs
    mask = in_memory(mask)[:, None, None].contiguous()
    start, stop = ends_of(mask)
    if not bool((stop - start != mask.sum(-1, keepdim=True)).any()):
        return inputs._replace(start=start, stop=stop)
    runs = Keep(mask).spans(Grid.whole(len(mask), 1, 1, mask.shape[3]))
    if runs is not None:
        return inputs._replace(start=runs.start, stop=runs.stop)
    return inputs._replace(start=start, stop=stop, mask=mask)


class _SumTerms(torch.autograd.Function):
    """Creates a token that every step depends on; its backward pass, after those of all steps, sums their terms."""

    @staticmethod
    def forward(ctx: Any, inputs: KernelInputs, passes: BackwardPasses, *tensors: Tensor | None) -> Tensor:
        ctx.inputs, ctx.passes = inputs, passes
        return inputs.key.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative()
        finished: BackwardPass = ctx.passes.finish()
        if not finished.terms:
            return (None,) * 5
        ctx.passes.versions.check()
        inputs, need = ctx.inputs, ctx.needs_input_grad
        grad_value = None
        if need[3]:
            grad_value = _transposed_product(finished.joined("dropped_weights"), finished.joined("grad_output"))
        grad_key = grad_weight = None
        if inputs.weight is None and need[2]:
            grad_key = _transposed_product(finished.joined("grad_scores"), finished.joined("query")).mul_(inputs.scale)
        elif finished.sums is not None:
            from regard.kernels.cpu.step_operators import add_steps

            if len(finished.terms) > 1:
                add_steps(
                    inputs._replace(query=finished.joined("query", 1)), finished.joined("grad_scores", 1), finished.sums
                )
            grad_key, grad_weight = finished.sums.gradients()
        return None, None, grad_key, grad_value, grad_weight


class _Step(torch.autograd.Function):
    """Runs one step; its backward pass computes the gradient of the query, and stores the terms for `_SumTerms`."""

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
        current: BackwardPass | None = ctx.passes.current() if ctx.summed else None
        begins = current is not None and not current.terms and ctx.passes.with_sums
        sums = MemorySums.unfilled(inputs) if begins else None
        grad_query, grad_scores, dropped_weights = step_gradients(inputs, weights, grad_output, grad_weights, sums)
        if current is None:
            return None, None, grad_query, None
        current.sums = current.sums if sums is None else sums
        current.terms.append(StepTerms(query, grad_scores, dropped_weights, grad_output))
        return None, None, grad_query, query.new_zeros(())


def _transposed_product(left: Tensor, right: Tensor) -> Tensor:
    """Computes ``leftᵀ right`` of ``[batch, 1, queries, …]``; for one query, elementwise products are faster."""
    columns = left.transpose(-1, -2)
    return columns * right if left.shape[2] == 1 else columns @ right
