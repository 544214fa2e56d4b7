"""The reading ``recall``: the share of dense attention's weight on the keys that a selection keeps."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import and_

import torch
from torch import Tensor

from regard.attention.problem import Problem
from regard.attention.readings import Gatherer, Readings
from regard.errors import ArgumentError
from regard.masks import Mask, window
from regard.masks.columns import without_columns


@torch.no_grad()
def recall_of(
    problem: Problem, selection: Mask | bool, read_shares: Callable[[Problem, Gatherer], object]
) -> Tensor | None:
    r"""Returns the recall of each row, ``[batch, heads, queries]``; None if it was not asked for.

    .. math:: recall_i = \sum_{j \in S_i} p_{ij} \; / \; \sum_j p_{ij}

    where :math:`p` are the weights of dense attention and :math:`S_i` the selected keys. A row without weight gets 0.

    Args:
        problem: the call.
        selection: the mask of the selected keys, and the call is dense attention; or True: the lists of keys in the
            call's mask (`regard.masks.columns`) are the selection, and dense attention is the call without them. None
            is returned if there are none; False: no recall is asked for.
        read_shares: runs a problem, and lets a gatherer read its weights tile by tile.

    Raises:
        ArgumentError: weights are drawn at random, and another draw would change the numbers of later calls.
    """
    if selection is False:
        return None
    dense, chosen = (problem.mask, [selection]) if isinstance(selection, Mask) else without_columns(problem.mask)
    if not chosen:
        return None
    if problem.normalizer.random:
        name = type(problem.normalizer).__name__
        raise ArgumentError(f"recall cannot be read of weights that {name} draws at random; leave recall out")
    dense_problem = replace(problem, mask=dense, dropout=0.0, memory=None)
    shares = Gatherer(dense_problem, Readings(shares=(reduce(and_, chosen), window())))
    read_shares(dense_problem, shares)
    selected, total = shares.shares.unbind(-1)
    return torch.where(total == 0, 0.0, selected / total)
