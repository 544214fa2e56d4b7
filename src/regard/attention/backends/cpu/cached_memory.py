"""A memory that is looked at again and again: made ready once, its gradients summed once.

A decoder's step asks one query of keys and values that stay the same for the whole sentence. What belongs to the keys
alone (an additive score's exponentials, the visible runs) is made once; and since the gradient of keys and values is a
sum over steps, each step only notes its share, and the sum is taken at the end, for all steps at once.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.cpu.lowering import Weighing, weighing
from regard.kernels.availability import why_missing
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.cpu.second_derivative import refuse_second_derivative
from regard.normalizers import Normalizer
from regard.scores import Additive, Dot, ScaledDot, Score
from regard.scores.score import TanhSum


class Share(NamedTuple):
    """What one step leaves behind for the gradients of the memory.

    Attributes:
        query: ``[batch, 1, queries, dim]``.
        by_scores: gradient of the scores, ``[batch, 1, queries, keys]``.
        mixed: weights after dropout, ``[batch, 1, queries, keys]``.
        by_output: gradient of the output, ``[batch, 1, queries, value_dim]``.
    """

    query: Tensor
    by_scores: Tensor
    mixed: Tensor
    by_output: Tensor


@dataclass(frozen=True)
class CachedMemory:
    """Keys and values of one head on a CPU, made ready for the fused kernels.

    Attributes:
        call: what a step calls a kernel with; its query is a stand-in.
        shares: of the steps of each backward pass that is under way.
        token: what steps depend on, so that autograd asks for the memory's gradients after theirs; None where no
            gradient is wanted.
    """

    call: KernelInputs
    shares: dict[int, list[Share]]
    token: Tensor | None

    @classmethod
    def of(cls, key: Tensor, value: Tensor, score: Score, mask: Tensor | None) -> "CachedMemory | None":
        """The memory made ready; None if the kernels don't know it.

        Args:
            key: ``[batch, keys, dim]``, as the score's own weights see them; float32 or float64.
            value: ``[batch, keys, value_dim]`` of the same dtype.
            score: of projected queries and these keys.
            mask: bool ``[batch, keys]``; True: may be attended. None: all may.
        """
        kinds = (torch.float32, torch.float64)
        if key.device.type != "cpu" or key.dtype not in kinds or value.dtype != key.dtype or why_missing():
            return None
        if torch.compiler.is_compiling() or 0 in key.shape or 0 in value.shape:
            return None
        # Scores that are their primitive, once queries and keys are projected; others change more than that.
        if type(score) not in (Additive, Dot, ScaledDot):
            return None
        prepared = score.prepare(key[:, None, :1], key[:, None])
        if isinstance(prepared.scale, Tensor):
            return None
        return cls._open(prepared.key, value[:, None], prepared.primitive, float(prepared.scale), mask)

    @classmethod
    def _open(cls, key: Tensor, value: Tensor, primitive: object, scale: float, mask: Tensor | None) -> "CachedMemory":
        from regard.kernels.cpu import operators
        from regard.kernels.cpu.launch import as_matrix

        weight = None
        if isinstance(primitive, TanhSum):
            weight = primitive.weight.reshape(1, -1) * scale
        held = as_matrix(key.detach())
        call = KernelInputs(held[:, :, :1], held, as_matrix(value.detach()), scale=scale)
        if weight is not None:
            exponentials, extents, _ = operators.exponentials(call.key)
            call = call._replace(weight=weight.detach(), exponentials=exponentials, extents=extents)
        shares: dict[int, list[Share]] = {}
        token = None
        wanted = [tensor for tensor in (key, value, weight) if tensor is not None and tensor.requires_grad]
        if torch.is_grad_enabled() and wanted:
            token = _Gather.apply(call, shares, key, value, weight)
        return cls(with_mask(call, mask), shares, token)

    def look(self, query: Tensor, normalizer: Normalizer, dropout: float) -> tuple[Tensor, Tensor] | None:
        """Output ``[batch, 1, queries, value_dim]`` and weights before dropout; None if there is no kernel for this.

        Args:
            query: ``[batch, 1, queries, dim]``, projected, in the keys' dtype.
            normalizer: of scores.
            dropout: probability of dropping a weight.
        """
        known = weighing(normalizer)
        if (
            isinstance(known, str)
            or known.sink is not None
            or known.shift not in (None, 0.0)
            or known.center is not None
        ):
            return None
        if query.dtype != self.call.key.dtype or torch.compiler.is_compiling():
            return None
        call = self._asked(known, dropout)
        return _Step.apply(call, self.shares, query, self.token)

    def _asked(self, known: Weighing, dropout: float) -> KernelInputs:
        seed = int(torch.randint(2**62, ()).item()) if dropout else 0
        return self.call._replace(
            normalizer=known.kind, alpha=known.alpha, temperature=known.temperature, dropout=dropout, seed=seed
        )

    def select(self, index: Tensor) -> "CachedMemory | None":
        """Of these batch rows, in this order; only for memories that want no gradient."""
        if self.token is not None:
            return None
        rows = {
            name: tensor.index_select(0, index)
            for name, tensor in self.call._asdict().items()
            if isinstance(tensor, Tensor) and name != "weight" and tensor.shape[0] == self.call.key.shape[0]
        }
        return replace(self, call=self.call._replace(**rows))


def with_mask(call: KernelInputs, mask: Tensor | None) -> KernelInputs:
    """The call with what a mask ``[batch, keys]`` leaves visible: a run of each row, and the mask if it has holes."""
    if mask is None:
        return call
    keys = mask.shape[1]
    count = mask.sum(dim=1)
    bits = mask.view(torch.uint8)
    start = torch.where(count > 0, bits.argmax(1), 0)
    stop = torch.where(count > 0, keys - bits.flip(1).argmax(1), 0)
    holes = bool((stop - start != count).any())
    ends = (start.to(torch.int32)[:, None, None], stop.to(torch.int32)[:, None, None])
    return call._replace(start=ends[0], stop=ends[1], mask=mask[:, None, None].contiguous() if holes else None)


class _Gather(torch.autograd.Function):
    """Stands between a memory and its steps: gives a token, and gets the gradients when all steps have had theirs."""

    @staticmethod
    def forward(ctx: Any, call: KernelInputs, shares: dict[int, list[Share]], *given: Tensor | None) -> Tensor:
        ctx.call, ctx.shares = call, shares
        return call.key.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative()
        shares: list[Share] = ctx.shares.pop(_pass(), [])
        # What a pass left behind that ended before it came here.
        ctx.shares.clear()
        if not shares:
            return (None,) * 5
        call, need = ctx.call, ctx.needs_input_grad
        query, by_scores, mixed, by_output = (torch.cat(parts, dim=2) for parts in zip(*shares, strict=True))
        by_value = mixed.transpose(-1, -2) @ by_output if need[3] else None
        by_key = by_weight = None
        if call.weight is None:
            by_key = (by_scores.transpose(-1, -2) @ query).mul_(call.scale) if need[2] else None
        elif need[2] or need[4]:
            from regard.kernels.cpu.step_operators import key_gradients

            by_key, by_weight, _ = key_gradients(call._replace(query=query), by_scores)
        return None, None, by_key, by_value, by_weight


class _Step(torch.autograd.Function):
    """One look: output and weights; backward, the gradient of the query alone, and a share for `_Gather`."""

    @staticmethod
    def forward(
        ctx: Any, call: KernelInputs, shares: dict[int, list[Share]], query: Tensor, token: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        from regard.kernels.cpu.step_operators import step

        call = call._replace(query=query)
        output, weights, _ = step(call)
        ctx.call, ctx.shares, ctx.gathered = call._replace(query=query[:0]), shares, token is not None
        ctx.save_for_backward(query, weights)
        ctx.set_materialize_grads(False)
        return output, weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        from regard.kernels.cpu.step_operators import query_gradient

        if torch.is_grad_enabled():
            refuse_second_derivative()
        by_output, by_weights = gradients
        if by_output is None and by_weights is None:
            return (None,) * 4
        query, weights = ctx.saved_tensors
        call = ctx.call._replace(query=query)
        if by_output is None:
            by_output = query.new_zeros(*query.shape[:3], call.value.shape[3])
        by_query, by_scores, mixed, _ = query_gradient(call, weights, by_output, by_weights)
        token = None
        if ctx.gathered:
            ctx.shares.setdefault(_pass(), []).append(Share(query, by_scores, mixed, by_output))
            token = query.new_zeros(())
        return None, None, by_query, token


def _pass() -> int:
    """Which backward pass is running: shares of different ones must not be added up."""
    return torch._C._current_graph_task_id()
