"""Attention on packed rows of short sequences, and its gradients, each in one launch.

With PyTorch's operations, padding the rows, multiplying head by head and removing the padding take several times as
long as the arithmetic. Here a task reads a sequence's rows from where a projection wrote them.
"""

from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.kernel_arguments import PACKED_MATRICES, PACKED_RECORD, address_of
from regard.kernels.cpu.launch import KernelArguments, dropout_numbers
from regard.kernels.cpu.packed_call import PackedCall

_ARGUMENTS = KernelArguments(PACKED_RECORD)

WORK = 16.0
"""Approximate number of elementary operations per score, besides its products."""


def attend(call: PackedCall, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Returns the output ``[queries, heads · value_dim]``.

    Args:
        query: packed rows ``[queries, heads · dim]`` with contiguous features.
        key: ``[keys, kv_heads · dim]``, likewise.
        value: ``[keys, kv_heads · value_dim]``, likewise.
    """
    output = query.new_empty(len(query), call.heads * (value.shape[1] // call.kv_heads))
    kernel = kernels.packed_attention(query.dtype)
    _run(kernel, call, query=query, key=key, value=value, output=output)
    return output


def gradients(call: PackedCall, **matrices: Tensor) -> None:
    """Writes the gradients of queries, keys and values.

    Args:
        matrices: ``query``, ``key`` and ``value`` as for `attend`; ``grad_output``, shaped like the output; and
            ``grad_query``, ``grad_key`` and ``grad_value``, which are written. Features are contiguous.
    """
    _run(kernels.packed_attention_gradients(matrices["query"].dtype), call, **matrices)


def _run(kernel: Kernel, call: PackedCall, **matrices: Tensor) -> None:
    query, value = matrices["query"], matrices["value"]
    batch, dim, value_dim = len(call.queries.counts), query.shape[1] // call.heads, value.shape[1] // call.kv_heads
    dropout_scale, threshold = dropout_numbers(call.dropout)
    pointers = dict.fromkeys((name + part for name in PACKED_MATRICES for part in ("", "_row")), 0)
    for name, matrix in matrices.items():
        pointers[name], pointers[name + "_row"] = address_of(matrix), matrix.stride(0)
    _ARGUMENTS.launch(
        kernel,
        batch * call.kv_heads,
        (WORK + dim + value_dim) * len(query) * call.heads * call.keys.longest,
        batch=batch,
        heads=call.heads,
        kv_heads=call.kv_heads,
        dim=dim,
        value_dim=value_dim,
        query_starts=address_of(call.queries.starts),
        query_counts=address_of(call.queries.counts),
        key_starts=address_of(call.keys.starts),
        key_counts=address_of(call.keys.counts),
        before=call.before,
        after=call.after,
        threshold=threshold,
        seed=call.seed,
        multiply=kernels.multiply(query.dtype).address,
        scale=call.scale,
        dropout_scale=dropout_scale,
        **pointers,
    )
