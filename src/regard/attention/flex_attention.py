"""FlexAttention's call as it is written there: `flex_attention` with its ``score_mod`` and its ``BlockMask``."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Never

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from regard.attention.backends.reference import TileInputs, guarded, masked_scores
from regard.attention.backends.tiled import block_shape, blocks
from regard.attention.execution import full_precision
from regard.attention.problem import Problem, validate
from regard.attention.readings import Readings
from regard.attention.verbs import attend, observe, run
from regard.errors import KindError, ShapeError
from regard.masks import Mask
from regard.masks import blocks as whole_blocks
from regard.names.foreign_arguments import unknown_keyword
from regard.scores import Modified, ScaledDot, Score
from regard.shapes.axes import Bool
from regard.shapes.checks import check_arguments, type_text
from regard.shapes.grid import Grid

_MODULE = "torch.nn.attention.flex_attention"


class _ByOperator(TorchFunctionMode):
    """Indexes tensors by an operator of PyTorch, since ``tensor[index]`` cannot read a batched index in Python."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func is Tensor.__getitem__:
            tensor, index = args
            items = index if isinstance(index, tuple) else (index,)
            if all(isinstance(item, (int, Tensor)) and not isinstance(item, bool) for item in items):
                items = [torch.as_tensor(item, device=tensor.device) for item in items]
                return torch.ops.aten.index(tensor, items)
        return func(*args, **(kwargs or {}))


class PairFunction:
    """A function of FlexAttention, which takes the numbers of one pair, as a function of tensors that broadcast.

    Args:
        name: ``score_mod`` or ``mask_mod``.
        arguments: how many arguments it takes.
    """

    def __init__(self, name: str, function: Callable[..., Tensor], arguments: int):
        if not callable(function):
            raise KindError(f"{name} must be a function; it is {type_text(function)}")
        check_arguments(name, function, arguments)
        self.name, self.function = name, function
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *arguments: Tensor) -> Tensor:
        if all(argument.dim() == 0 for argument in arguments):
            return self._of_pair(*arguments)
        mapped, scores = self._of_pair, len(arguments) - 4
        for axis in (3, 2, 1, 0):
            axes = tuple(0 if number == axis else None for number in range(4))
            mapped = torch.vmap(mapped, in_dims=(0,) * scores + axes)
        with _ByOperator():
            return mapped(*arguments[:scores], *(argument.flatten() for argument in arguments[scores:]))

    def _of_pair(self, *arguments: Tensor) -> Tensor:
        try:
            result = self.function(*arguments)
        except RuntimeError as error:
            if "data-dependent control flow" not in str(error):
                raise
            message = f"{self.name} reads numbers of a pair, as Python's 'if' does: write torch.where(condition, a, b)"
            raise KindError(message) from error
        if not isinstance(result, Tensor):
            raise KindError(f"{self.name} must return a tensor; it returned {type_text(result)}")
        return result


class ListedBlocks(Mask, fields=("listed", "full", "query_size", "function")):
    """Allows the pairs of listed blocks for which a function returns True, and all pairs of full blocks.

    Args:
        listed, full: bool ``[batch or 1, heads or 1, query blocks, keys]``: which keys are in blocks of each kind.
        query_size: queries of a block.
        function: ``(batch, head, query_index, key_index) -> bool``.
    """

    is_function = True

    def __init__(self, listed: Tensor, full: Tensor, query_size: int, function: Callable[..., Tensor]):
        self.listed, self.full, self.query_size, self.function = listed, full, query_size, function

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        indices = grid.batch_index, grid.head_index, grid.query_index // self.query_size, grid.key_index
        index = tuple(0 if length == 1 else one for length, one in zip(self.listed.shape, indices, strict=True))
        allowed = self.function(grid.batch_index, grid.head_index, grid.query_index, grid.key_index)
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            raise KindError(f"the mask_mod of block_mask must return a bool tensor; it returned {type_text(allowed)}")
        return self.full[index] | (self.listed[index] & allowed)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    **unknown: Never,
) -> Any:
    """Takes a call of PyTorch's FlexAttention as it is written there, and trains on a CPU as well.

    Two of its arguments are refused: ``kernel_options``, since these kernels have none, and ``return_aux``, for which
    ``return_lse`` stands.

    .. math:: output_i = \\sum_j softmax_j(score\\_mod(scale \\; q_i · k_j, b, h, i, j)) \\; value_j

    over the keys that the mask shows. Dong et al. 2024, "Flex Attention: A Programming Model for Generating Optimized
    Attention Kernels". On a CPU both functions are compiled in the background, in a second or two, into the kernels of
    regard (`regard.plan` says what keeps a function from that); until then, PyTorch's operations run.

    Args:
        query: ``[batch, heads, queries, dim]``.
        key: ``[batch or 1, kv_heads, keys, dim]``.
        value: ``[batch or 1, kv_heads, keys, value_dim]``.
        score_mod: ``(score, batch, head, query_index, key_index) -> score`` of one pair's numbers; the score is scaled.
            Gradients reach the tensors that it reads.
        block_mask: a `torch.nn.attention.flex_attention.BlockMask`. A block that it does not list is hidden, whatever
            its ``mask_mod`` says; a full block is visible. A ``mask_mod`` decides in the other listed blocks.
        scale: factor of the inner products; None: ``1 / sqrt(dim)``.
        enable_gqa: whether key and value may have fewer heads than query.
        return_lse: whether to return the log-sum-exp of the scores as well.

    Returns:
        ``[batch, heads, queries, value_dim]``. With ``return_lse`` a pair of it and the natural logarithm of the sum of
        the exponentials of each query's visible scores, ``[batch, heads, queries]`` in float32 or float64: −∞ for a
        query that sees no key, whose output is 0. A log-sum-exp with a gradient comes from a second pass by PyTorch's
        operations, a block of rows at a time.

    Raises:
        ShapeError: numbers of heads differ without ``enable_gqa``, or the mask is for other sizes.
        KindError: an argument is unknown, ``block_mask`` is no BlockMask, or a function takes other arguments, returns
            no tensor of the right type, or reads numbers of a pair, as Python's ``if`` does.
        ArgumentError: a function reads a tensor at an index that it does not have.

    Example:
        >>> import torch
        >>> import regard
        >>> x = torch.eye(2)[None, None]
        >>> def nearer(score, batch, head, query_index, key_index):
        ...     return score - (query_index - key_index).abs()
        ...
        >>> regard.flex_attention(x, x, x, nearer)
        tensor([[[[0.8465, 0.1535],
                  [0.1535, 0.8465]]]])
    """
    if unknown:
        raise KindError(unknown_keyword(flex_attention, unknown))
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or tensor.dim() != 4:
            shown = list(tensor.shape) if isinstance(tensor, Tensor) else type_text(tensor)
            raise ShapeError(f"{name} must be a tensor [batch, heads, length, dim]; it is {shown}")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ShapeError(
            f"query has {query.shape[1]} heads and key has {key.shape[1]}: write enable_gqa=True if each head of key "
            "serves a group of heads of query"
        )
    if key.shape[0] == value.shape[0] == 1 != query.shape[0]:
        key, value = (tensor.expand(query.shape[0], -1, -1, -1) for tensor in (key, value))
    score: Score = ScaledDot(scale)
    if score_mod is not None:
        score = Modified(score, PairFunction("score_mod", score_mod, 5))
    mask = None if block_mask is None else mask_of(block_mask, query, key)
    if not return_lse:
        return attend(query, key, value, score=score, mask=mask)
    problem = validate(query, key, value, score=score, mask=mask)
    if problem.wants_gradient:
        output = run(problem, "auto").output
        with full_precision(query):
            return output, _log_sum_exp(problem if problem.changed is None else problem.changed())
    seen = observe(query, key, value, score=score, mask=mask, read=Readings())
    assert seen.lse is not None
    return seen.output, seen.lse


def mask_of(block_mask: Any, query: Tensor, key: Tensor) -> Mask:
    """Returns the mask that a BlockMask describes, for queries and keys with four axes."""
    flex: Any = sys.modules.get(_MODULE)
    if flex is None or not isinstance(block_mask, flex.BlockMask):
        raise KindError(
            f"block_mask must be a {_MODULE}.BlockMask; it is {type_text(block_mask)}: a mask of regard goes to "
            "regard.attend(query, key, value, mask=mask)"
        )
    query_size, key_size = block_mask.BLOCK_SIZE
    batch, heads, queries, keys = *query.shape[:3], key.shape[2]
    rows, columns = -(-queries // query_size), -(-keys // key_size)
    listed = _listed(block_mask.kv_num_blocks, block_mask.kv_indices)
    lengths = tuple(block_mask.seq_lengths)
    if lengths != (queries, keys) or listed.shape[0] not in (1, batch) or listed.shape[1] not in (1, heads):
        raise ShapeError(
            f"block_mask is for [batch, heads, queries, keys] = {[*listed.shape[:2], *lengths]}; the call has "
            f"{[batch, heads, queries, keys]}: make it anew, for 1 or as many batch rows and heads"
        )
    full = torch.zeros_like(listed)
    if block_mask.full_kv_num_blocks is not None:
        full = _listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    listed, full = (blocks[:, :, :rows, :columns] for blocks in (listed, full))
    if block_mask.mask_mod is flex.noop_mask:
        return whole_blocks(listed | full, key_size, query_size)
    listed, full = (blocks.repeat_interleave(min(key_size, keys), -1)[..., :keys] for blocks in (listed, full))
    return ListedBlocks(listed, full, query_size, PairFunction("mask_mod", block_mask.mask_mod, 4))


def _listed(numbers: Tensor, indices: Tensor) -> Tensor:
    """Returns which blocks are among the first ones of each row's indices, ``[batch, heads, rows, columns]``."""
    columns = indices.shape[-1]
    is_listed = torch.arange(columns, device=indices.device) < numbers[..., None]
    index = torch.where(is_listed, indices, columns).long()
    visible = torch.zeros(*indices.shape[:-1], columns + 1, dtype=torch.bool, device=indices.device)
    return visible.scatter(-1, index, True)[..., :columns]


def _log_sum_exp(problem: Problem) -> Tensor:
    """Returns the differentiable log-sum-exp of each query's scores, a block of rows at a time."""

    def of_block(inputs: TileInputs) -> Tensor:
        scores = masked_scores(problem, guarded(problem, inputs))
        is_empty = (scores == -torch.inf).all(-1)
        return scores.masked_fill(is_empty[..., None], 0.0).logsumexp(-1).masked_fill(is_empty, -torch.inf)

    batch_rows, query_rows = block_shape(problem)
    parts: list[Tensor] = [
        checkpoint(of_block, inputs, use_reentrant=False) for inputs in blocks(problem, (batch_rows, query_rows))
    ]
    per_batch = -(-problem.grid.queries // query_rows)
    return torch.cat([torch.cat(parts[i : i + per_batch], dim=2) for i in range(0, len(parts), per_batch)])
