"""The meaning of the axes of a call's tensors: how many a call may have, and what each of them counts.

====  =========================================  =========================================
axes  query                                      masks, biases and readings of its pairs
====  =========================================  =========================================
2     ``[queries, dim]``                         ``[queries, keys]``
3     ``[batch, queries, dim]``, with one head   ``[batch, queries, keys]``
4     ``[batch, heads, queries, dim]``           ``[batch, heads, queries, keys]``
====  =========================================  =========================================

Key and value have as many axes as query. Inside, every tensor has four. All texts that name axes are written here.
"""

from collections.abc import Sequence

from torch import Tensor

from regard.shapes.axes import Float

Queries = Float[Tensor, "batch heads queries query_dim"]
"""The queries of a call."""

Keys = Float[Tensor, "batch kv_heads keys key_dim"]
"""The keys of a call, each head of which serves a group of query heads."""

Pairs = Float[Tensor, "batch heads queries keys"]
"""A number for each pair, such as a score or a weight."""

LEADING = {2: (), 3: ("batch",), 4: ("batch", "heads")}
"""Number of axes of a call's tensors → the axes that come first."""

BY_LENGTH = "query.transpose(1, 2), key.transpose(1, 2) and value.transpose(1, 2), and transpose the output back"
BY_HEADS = "query[None], key[None] and value[None]"
BY_TIME = "query.transpose(0, 1), key.transpose(0, 1) and value.transpose(0, 1), and transpose the output back"


def with_four_axes(tensor: Tensor, rank: int) -> Tensor:
    """Returns a tensor of a call with ``rank`` axes as ``[batch, heads, ...]``."""
    if rank == 4:
        return tensor
    return tensor[:, None] if rank == 3 else tensor[None, None]


def without_added_axes(tensor: Tensor, rank: int) -> Tensor:
    """Returns a result ``[batch, heads, ...]`` with the leading axes of a call with ``rank`` axes."""
    if rank == 4:
        return tensor
    return tensor[:, 0] if rank == 3 else tensor[0, 0]


def pairs_by_batch(tensor: Tensor) -> Tensor:
    """Returns the mask or bias ``[batch, queries, keys]`` of a call with 3 axes with an axis of heads.

    Fewer axes broadcast as they are, and four have their heads already.
    """
    return tensor[:, None] if tensor.dim() == 3 else tensor


def axes(rank: int, *last: str) -> str:
    """Returns the axes of a tensor for a message, such as ``[batch, queries, keys]``."""
    return f"[{', '.join((*LEADING[rank], *last))}]"


def named(shape: Sequence[int], rank: int, *last: str) -> str:
    """Returns a shape with the names of its axes, such as ``[batch 2, queries 10, dim 64]``."""
    return f"[{', '.join(f'{name} {length}' for name, length in zip((*LEADING[rank], *last), shape, strict=True))}]"


def sizes_of(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> str:
    """Returns the sizes of a call in one line: ``batch 2 · heads 8 (kv 2) · queries 10 · keys 10 · dim 64``."""
    batch, heads, queries, dim = query
    _, kv_heads, keys, key_dim = key
    groups = "" if kv_heads == heads else f" (kv {kv_heads})"
    widths = f"dim {dim}" if key_dim == dim else f"dim {dim} (key {key_dim})"
    value_dim = "" if value[3] == key_dim else f" · value dim {value[3]}"
    return f"batch {batch} · heads {heads}{groups} · queries {queries} · keys {keys} · {widths}{value_dim}"


def rank_error(shape: Sequence[int]) -> str:
    """Returns what to say of a query that has fewer than 2 or more than 4 axes."""
    return (
        "query must have 2 to 4 axes, [queries, dim], [batch, queries, dim] or [batch, heads, queries, dim]; "
        f"it has shape {list(shape)}"
    )


def disagreement(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> str:
    """Returns what to say of tensors whose batches, heads or keys do not agree."""
    rank = len(query)
    if list(key[:-1]) != list(value[:-1]):
        leading = f"{', '.join(LEADING[rank])} and " if rank > 2 else ""
        message = f"value must have key's {leading}keys, {list(key[:-1])}; it has {list(value[:-1])}"
        if list(value[:-1]) == list(query[:-1]):
            message += "; query has them: are query and key swapped? The order is (query, key, value)"
        return message
    if rank > 2 and key[0] != query[0]:
        message = f"key must have query's batch, {query[0]}; it has {key[0]}"
    else:
        message = f"key's heads must divide query's heads, {query[1]}; key has {key[1]}"
    message += f"; query is read as {named(query, rank, 'queries', 'dim')}"
    if rank == 4 and query[0] == key[0] and query[2] == key[2]:
        message += f": if its axes are [batch, length, heads, dim], write {BY_LENGTH}"
    elif rank == 3:
        lines = []
        if query[1] == key[1]:
            lines.append(f"if its axes are [length, batch, dim], write {BY_TIME}")
        if key[0] and query[0] % key[0] == 0:
            lines.append(f"if its axes are [heads, length, dim], write {BY_HEADS}")
        message += f": {'; '.join(lines)}" if lines else ""
    return message


def by_heads(query: Sequence[int]) -> str:
    """Returns what to add to an error of a call with 3 axes that is right if the first of them counts heads."""
    return (
        f"query is read as {named(query, 3, 'queries', 'dim')} with one head: if its first axis counts heads, write "
        f"{BY_HEADS}"
    )


def mask_or_bias_error(name: str, tensor: Sequence[int], pairs: Sequence[int], rank: int) -> str:
    """Returns what to say of a mask or a bias that does not broadcast to the pairs of a call.

    Args:
        tensor: its shape, with four axes where it had three in a call with 3 axes.
    """
    batch, heads, queries, keys = pairs
    own = list(tensor)
    if rank == 3 and len(own) == 4 and own[1] == 1:
        del own[1]
    expected = [*(batch, heads)[: rank - 2], queries, keys]
    message = f"{name} must broadcast to {axes(rank, 'queries', 'keys')} = {expected}; it has shape {own}"
    variable = "bias" if name == "bias" else "mask" if name.endswith("mask=") else "tensor"
    if rank > 2 and own == [batch, keys]:
        missing = "None, None" if rank == 4 else "None"
        message += f", of which axis 0 is read as queries: if it is [batch, keys], write {variable}[:, {missing}, :]"
        if name != "bias":
            message += ", or masks.lengths(lengths) for padding at the end"
    elif rank == 4 and own in ([batch, queries, keys], [batch, 1, keys]):
        message += f", of which axis 0 is read as heads: if it is [batch, queries, keys], write {variable}[:, None]"
    elif rank == 3 and len(own) == 3 and own[0] != batch and own[1] in (1, queries) and own[2] in (1, keys):
        message += f", of which axis 0 is read as batch: query has one head; for several, write {BY_HEADS}"
    return message


def other_readings(
    query: Sequence[int], key: Sequence[int], rank: int, tensors: Sequence[tuple[str, Sequence[int]]]
) -> list[str]:
    """Returns where sizes of a valid call make another meaning of its axes likely, and what to write for that.

    Args:
        query, key: shapes with four axes.
        tensors: name and shape of each tensor of a mask or of a bias, as `mask_or_bias_error` takes them.
    """
    batch, heads, queries, _ = query
    keys = key[2]
    lines = []
    if rank == 4 and heads > queries > 1 and key[1] == heads and keys == queries:
        lines.append(
            f"axis 1 of query, {heads}, is read as heads and axis 2, {queries}, as positions; "
            f"for [batch, length, heads, dim] write {BY_LENGTH}"
        )
    for name, shape in tensors:
        if rank > 2 and batch > 1 and list(shape) == [batch, keys] and batch == queries:
            missing = "None, None" if rank == 4 else "None"
            lines.append(f"the {name} is read as [queries, keys]; for [batch, keys] write {name}[:, {missing}, :]")
        if rank == 4 and batch > 1 and batch == heads and list(shape) == [batch, queries, keys]:
            lines.append(f"the {name} is read as [heads, queries, keys]; for [batch, queries, keys] write "
                         f"{name}[:, None]")  # fmt: skip
    return lines
