"""Linear attention in chunks and its gradients, each in one launch: a task is a batch row and a head."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.kernel_arguments import address_of
from regard.kernels.cpu.launch import NO_TENSOR, KernelArguments, as_matrix, tensor_record
from regard.kernels.cpu.linear_arguments import LINEAR_RECORD, LINEAR_TENSORS
from regard.kernels.cpu.linear_layout import CHUNK, scratch_elements
from regard.kernels.cpu.sizes import CACHE_LINE, ceil_div, padded_length

_ARGUMENTS = KernelArguments(LINEAR_RECORD)
_NO_ARGUMENTS: dict[str, int | tuple[int, ...]] = {
    name: NO_TENSOR if name in LINEAR_TENSORS else 0 for name in LINEAR_RECORD.names or ()
}


class LinearInputs(NamedTuple):
    """The inputs of linear attention in float32, as `regard.linear.chunked` takes them.

    Attributes:
        begins: whether the state is cleared before a token, bool ``[batch, length]``; None: never.
    """

    begins: Tensor | None
    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor | None
    beta: Tensor | None
    state: Tensor | None


class SavedStates(NamedTuple):
    """What the backward pass reads of a forward pass.

    Attributes:
        states: the states before chunks, ``[batch, heads, chunks, padded dim, padded value_dim]``.
        residuals: what is left of the values, ``[batch, heads, length, padded value_dim]``; empty without a delta rule.
    """

    states: Tensor
    residuals: Tensor


def attend(inputs: LinearInputs, saves: bool) -> tuple[Tensor, Tensor, SavedStates | None]:
    """Returns the outputs ``[batch, heads, length, value_dim]``, the last state, and what the backward pass reads.

    Args:
        saves: whether there is a backward pass.
    """
    query, value = inputs.query, inputs.value
    batch, heads, length, dim = query.shape
    value_dim = value.shape[3]
    # Features of all heads of a token are next to each other. A view could not be changed in place by the caller.
    strides = length * heads * value_dim, value_dim, heads * value_dim, 1
    output = query.new_empty_strided((batch, heads, length, value_dim), strides)
    final = query.new_empty(batch, heads, dim, value_dim)
    saved = None
    if saves:
        features, columns = padded_length(dim), padded_length(value_dim)
        rows = 0 if inputs.beta is None else length
        saved = SavedStates(
            query.new_empty(batch, heads, ceil_div(length, CHUNK), features, columns),
            query.new_empty(batch, heads, rows, columns),
        )
    more = {} if saved is None else {"states": saved.states, "residuals": saved.residuals}
    _launch(kernels.linear_chunks(query.dtype), inputs, {"output": output}, final=final, **more)
    return output, final, saved


def gradients(
    inputs: LinearInputs, saved: SavedStates, grad_output: Tensor, grad_final: Tensor | None, decays: bool
) -> tuple[Tensor | None, ...]:
    """Returns the gradients of query, key, value, log-decay, beta and state; None for an input that is None.

    Args:
        decays: whether the gradient of log-decays is needed.
    """
    new = {
        f"grad_{name}": None if tensor is None else torch.empty_like(tensor, memory_format=torch.contiguous_format)
        for name, tensor in zip(inputs._fields[1:], inputs[1:], strict=True)
    }
    if not decays:
        new["grad_log_decay"] = None
    grad_initial = new.pop("grad_state")
    tensors = {name: tensor for name, tensor in new.items() if tensor is not None}
    tensors["grad_output"] = as_matrix(grad_output)
    _launch(
        kernels.linear_gradients(inputs.query.dtype), inputs, tensors, states=saved.states, residuals=saved.residuals,
        grad_final=None if grad_final is None else grad_final.contiguous(), grad_initial=grad_initial,
    )  # fmt: skip
    return *new.values(), grad_initial


def _launch(kernel: Kernel, inputs: LinearInputs, tensors: dict[str, Tensor], **more: Tensor | None) -> None:
    """Runs a kernel on all heads.

    Args:
        tensors: further tensors of `LINEAR_TENSORS`.
        more: other tensors of the record, contiguous.
    """
    batch, heads, length, dim = inputs.query.shape
    value_dim = inputs.value.shape[3]
    arguments, read_tensors = dict(_NO_ARGUMENTS), []
    for name in LINEAR_TENSORS:
        tensor = getattr(inputs, name) if name in inputs._fields else tensors.get(name)
        if tensor is None:
            continue
        if tensor.dim() == 4:
            tensor = as_matrix(tensor) if tensor.shape[3] > 1 else tensor
        read_tensors.append(tensor)
        arguments[name] = tensor_record(tensor)
    begins, initial = inputs.begins, None if inputs.state is None else inputs.state.contiguous()
    if begins is not None:
        begins = begins.contiguous()
        arguments["begins"], arguments["begins_batch"] = address_of(begins), begins.stride(0)
    more["initial"] = initial
    for name, tensor in more.items():
        arguments[name] = address_of(tensor) if tensor is None or tensor.numel() else 0
    elements = scratch_elements(dim, value_dim)
    threads = max(1, min(torch.get_num_threads(), batch * heads))
    scratch = inputs.query.new_empty(threads * elements + CACHE_LINE // 4)
    arguments |= {
        "batch": batch, "heads": heads, "length": length, "dim": dim, "value_dim": value_dim,
        "gates": 0 if inputs.log_decay is None else inputs.log_decay.shape[3],
        "multiply": kernels.multiply(inputs.query.dtype).address,
        "scratch": ceil_div(address_of(scratch), CACHE_LINE) * CACHE_LINE,
        "scratch_bytes": elements * 4, "slots": ceil_div(length, CHUNK),
    }  # fmt: skip
    work = float(batch * heads * length * (dim + CHUNK) * value_dim)
    _ARGUMENTS.launch(kernel, batch * heads, work, **arguments)
