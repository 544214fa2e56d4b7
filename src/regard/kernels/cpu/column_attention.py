"""Attention to listed keys, and its gradients, each in one launch.

A dense mask costs time and memory for all pairs, and the rows of a list are seldom next to each other. Here keys and
values are read row by row where they are, for all queries that share a list, so the work is that of the listed pairs.
"""

import math

import torch
from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.column_arguments import COLUMN_MATRICES, COLUMN_RECORD
from regard.kernels.cpu.column_call import ColumnCall
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.kernel_arguments import MIN_TASKS, SUMS_LIMIT, address_of, sum_of_chunks
from regard.kernels.cpu.launch import NO_TENSOR, KernelArguments, as_matrix, tensor_record
from regard.kernels.cpu.sizes import CACHE_LINE, LANES, ceil_div, padded_length

_ARGUMENTS = KernelArguments(COLUMN_RECORD)

BLOCK_ROWS = 64
"""The most rows of a block, over all heads that share a list."""

BLOCK_WEIGHTS = 1 << 15
"""The most weights of a block of several queries: with their gradients, 256 KiB of float32."""


def attend(call: ColumnCall, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the output ``[batch, heads, queries, value_dim]`` and the log-sum-exp ``[batch, heads, queries]``.

    Args:
        query: ``[batch, heads, queries, dim]``, float32.
        key, value: ``[batch, kv_heads, keys, dim or value_dim]``.
    """
    query, key, value = as_matrix(query), as_matrix(key), as_matrix(value)
    output, lse = query.new_empty(*query.shape[:3], value.shape[3]), query.new_empty(query.shape[:3])
    tasks = query.shape[0] * key.shape[1]
    _run(
        kernels.column_attention(query.dtype), call, ceil_div(8 * MIN_TASKS, tasks), 1.0, lse,
        query=query, key=key, value=value, output=output,
    )  # fmt: skip
    return output, lse


def gradients(
    call: ColumnCall, query: Tensor, key: Tensor, value: Tensor, lse: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of queries, keys and values; arguments as for `attend`, and its log-sum-exp."""
    query, key, value, grad_output = as_matrix(query), as_matrix(key), as_matrix(value), as_matrix(grad_output)
    batch, kv_heads, keys, dim = key.shape
    sums = batch * kv_heads * keys * (dim + value.shape[3])
    chunks = min(max(1, SUMS_LIMIT // sums), ceil_div(MIN_TASKS, batch * kv_heads))
    grad_query = query.new_empty(query.shape)
    grad_key, grad_value = (query.new_zeros(batch, kv_heads, chunks, *each.shape[2:]) for each in (key, value))
    of_tasks = (each.flatten(0, 2).unsqueeze(1) for each in (grad_key, grad_value))
    names = "query", "key", "value", "grad_output", "grad_query", "grad_key", "grad_value"
    tensors = dict(zip(names, (query, key, value, grad_output, grad_query, *of_tasks), strict=True))
    _run(kernels.column_attention_gradients(query.dtype), call, chunks, 3.0, lse, **tensors)
    return grad_query, sum_of_chunks(grad_key), sum_of_chunks(grad_value)


def memory_size(keys: int, blocks: int, rows: int) -> int:
    """Returns the bytes of a thread's arrays.

    Args:
        keys: the most keys of a list.
        blocks: blocks of all keys.
        rows: rows of a block.
    """
    width = padded_length(keys)
    arrays = 4 * blocks, 8 * (width + 2 * LANES), 3 * 8 * rows, 2 * 4 * rows * width
    return sum(ceil_div(array, CACHE_LINE) * CACHE_LINE for array in arrays)


def _run(kernel: Kernel, call: ColumnCall, chunks: int, passes: float, lse: Tensor, **tensors: Tensor) -> None:
    query, value, index = tensors["query"], tensors["value"], call.listed
    (batch, heads, queries, dim), (_, kv_heads, keys, value_dim) = query.shape, value.shape
    _, index_heads, rows, listed = index.shape
    query_size, listed_keys = queries if rows == 1 else call.query_size, min(listed * call.size, keys)
    # Heads of a group share keys and lists.
    lists = math.lcm(kv_heads, index_heads)
    group = heads // lists
    block = max(1, min(query_size, queries, min(BLOCK_ROWS, BLOCK_WEIGHTS // listed_keys) // group))
    threads, size = torch.get_num_threads(), memory_size(listed_keys, ceil_div(keys, call.size), block * group)
    memory = query.new_empty((threads * size + CACHE_LINE) // query.element_size())
    records = dict.fromkeys(COLUMN_MATRICES, NO_TENSOR) | {name: tensor_record(each) for name, each in tensors.items()}
    _ARGUMENTS.launch(
        kernel,
        batch * kv_heads * chunks,
        passes * (dim + value_dim) * batch * heads * queries * listed_keys,
        started=0,
        threads=threads,
        chunks=chunks,
        memory=ceil_div(address_of(memory), CACHE_LINE) * CACHE_LINE,
        memory_size=size,
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        lists=lists,
        queries=queries,
        keys=keys,
        dim=dim,
        value_dim=value_dim,
        index=tensor_record(index),
        index_heads=index_heads,
        listed=listed,
        rows=rows,
        size=call.size,
        query_size=query_size,
        block=block,
        listed_keys=listed_keys,
        start=NO_TENSOR if call.start is None else tensor_record(call.start),
        stop=address_of(call.stop),
        lse=address_of(lse),
        scale=call.scale,
        **records,
    )
