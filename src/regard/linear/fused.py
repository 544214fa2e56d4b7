"""The chunked form of linear attention by compiled kernels, where a CPU has them, else by PyTorch's operations."""

from typing import Any

import torch
from torch import Tensor

from regard.kernels.availability import must_wait, why_missing
from regard.linear.chunks import CHUNK, by_operations
from regard.linear.log_decays import check_log_decay
from regard.shapes.axes import Bool, Float
from regard.tracing.transforms import has_dense_cpu_storage, in_memory, reverse_mode_only


def chunked(
    query: Float[Tensor, "batch heads length dim"],
    key: Float[Tensor, "batch heads length dim"],
    value: Float[Tensor, "batch heads length value_dim"],
    log_decay: Float[Tensor, "batch heads length gates"] | None = None,
    beta: Float[Tensor, "batch heads length"] | None = None,
    state: Float[Tensor, "batch heads dim value_dim"] | None = None,
    begins: Bool[Tensor, "batch length"] | None = None,
    chunk: int = CHUNK,
) -> tuple[Float[Tensor, "batch heads length value_dim"], Float[Tensor, "batch heads dim value_dim"]]:
    """Returns what `regard.linear.recurrent` returns, a chunk of tokens at a time.

    A chunk as long as the sequence is the parallel form: one product of all pairs.

    Args:
        query, key, value, log_decay, beta, state: as `regard.linear.recurrent` takes them; a log-decay of −∞ clears the
            state, and one above 0 is checked on a CPU and has no meaning elsewhere.
        begins: whether a document begins with a token, so that the state before it is cleared; None: nowhere.
        chunk: tokens of a chunk; the last one may be shorter.

    Raises:
        ArgumentError: a log-decay is above 0, on a CPU.
    """
    if log_decay is not None:
        check_log_decay(log_decay)
    inputs = query, key, value, log_decay, beta, state
    if chunk == CHUNK and why_not_fused(*inputs) is None:
        from regard.kernels.cpu.kernel import are_usable
        from regard.kernels.cpu.kernels import for_linear

        gradient = _wants_gradient(inputs)
        if are_usable(for_linear(gradient)):
            tensors: list[Any] = [part if part is None else in_memory(part) for part in inputs]
            if gradient:
                return _Chunked.apply(begins, *tensors)
            from regard.kernels.cpu.linear_attention import LinearInputs, attend

            return attend(LinearInputs(begins, *tensors), False)[:2]
    return by_operations(*inputs, begins=begins, chunk=chunk)


def form_of(*inputs: Tensor | None) -> str:
    """Returns in words which form `chunked` would take now.

    Args:
        inputs: queries, and then the others.
    """
    reason = why_not_fused(*inputs)
    if reason is None:
        from regard.kernels.cpu.kernels import for_linear

        gradient = _wants_gradient(inputs)
        if must_wait() or all(kernel.is_compiled for kernel in for_linear(gradient)):
            return "fused kernels run it"
        reason = "the kernels are not compiled yet"
    return f"PyTorch's operations run it ({reason})"


def _wants_gradient(inputs: tuple[Tensor | None, ...]) -> bool:
    return torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in inputs)


def why_not_fused(*inputs: Tensor | None) -> str | None:
    """Returns why the kernels cannot compute linear attention of these inputs, of which the first one is the queries;
    None if they can."""
    present = [part for part in inputs if part is not None]
    if why_missing() is not None:
        return why_missing()
    if any(part.dtype != torch.float32 or not part.is_cpu for part in present):
        return "kernels take float32 on a CPU"
    if not reverse_mode_only(present[0]) or not has_dense_cpu_storage(*map(in_memory, present)):
        return "this is traced, or a transform or forward mode is active"
    return "there are no tokens" if 0 in present[0].shape else None


class _Chunked(torch.autograd.Function):
    """The kernels and their gradients. Second derivatives and batches of gradients are those of the operations."""

    @staticmethod
    def forward(ctx: Any, begins: Tensor | None, *tensors: Any) -> tuple[Tensor, Tensor]:
        from regard.kernels.cpu.linear_attention import LinearInputs, attend

        output, final, saved = attend(LinearInputs(begins, *tensors), True)
        assert saved is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved, begins, *tensors)
        return output, final

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        states, residuals, begins, *tensors = ctx.saved_tensors
        present = [gradient for gradient in grads if gradient is not None]
        if torch.is_grad_enabled() or not has_dense_cpu_storage(*map(in_memory, present)):
            return None, *_gradients_by_operations(tensors, begins, grads, ctx.needs_input_grad[1:])
        from regard.kernels.cpu.linear_attention import LinearInputs, SavedStates, gradients

        grad_output, grad_final = (gradient if gradient is None else in_memory(gradient) for gradient in grads)
        inputs = LinearInputs(begins, *tensors)
        if grad_output is None:
            grad_output = torch.zeros_like(inputs.value)
        return None, *gradients(
            inputs, SavedStates(states, residuals), grad_output, grad_final, ctx.needs_input_grad[4]
        )


def _gradients_by_operations(
    tensors: list[Tensor | None], begins: Tensor | None, grads: tuple[Tensor | None, ...], needed: tuple[bool, ...]
) -> list[Tensor | None]:
    """Returns the gradients of the inputs by PyTorch's operations, differentiable where a gradient is recorded."""
    is_recorded = torch.is_grad_enabled()
    with torch.enable_grad():
        # Each input is a variable of its own, even if two of them are one tensor.
        inputs: list[Any] = [
            tensor if tensor is None else tensor.view_as(tensor) if is_recorded else tensor.detach().requires_grad_()
            for tensor in tensors
        ]
        results = by_operations(*inputs, begins=begins)
    pairs = [(result, grad) for result, grad in zip(results, grads, strict=True) if grad is not None]
    wanted = [tensor for tensor, is_needed in zip(inputs, needed, strict=True) if is_needed]
    computed = iter(
        torch.autograd.grad(
            [result for result, _ in pairs], wanted, [grad for _, grad in pairs], create_graph=is_recorded,
            allow_unused=True,
        )
    )  # fmt: skip
    return [next(computed) if is_needed else None for is_needed in needed]
