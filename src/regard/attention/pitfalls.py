"""The remarks of a plan besides the choice of a backend: other meanings of its axes and masks, and costs of time.

It is found out when it is read, so that a plan that is not printed costs nothing more.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from regard.attention.backends.cpu.row_functions import row_functions
from regard.attention.problem import Problem
from regard.masks import Keep, Mask, Not, causal, lengths, window
from regard.masks.later_keys import later_keys
from regard.normalizers import Custom as CustomNormalizer
from regard.scores import Custom as CustomScore
from regard.shapes.grid import Grid
from regard.shapes.layout import other_readings
from regard.tracing.transforms import has_data

SEARCHED_ELEMENTS = 1 << 24
"""Most elements of a mask whose structure is looked for."""


def remarks_on(problem: Problem, backend: str, later: str, isolating: str | None = None) -> list[str]:
    """Returns what is worth knowing of a call that runs, a sentence each.

    Args:
        backend: the one that runs it now.
        later: the one that runs it once all kernels are compiled.
        isolating: the one to name for keeping apart what a mask hides, if the call runs where that is not so.
    """
    return [
        *other_readings(problem.query.shape, problem.key.shape, problem.rank, _tensors_of_pairs(problem)),
        *_hidden_structure(problem),
        *_visible_future(problem),
        *_functions(problem),
        *_way(problem, backend, later),
        *_spreading(problem, isolating),
    ]


def _way(problem: Problem, backend: str, later: str) -> Iterator[str]:
    if later != backend:
        yield f"{later!r} is compiled at the first call, and runs those that come after it is ready"
    if backend == "tiled" and problem.query.is_cuda:
        yield "on a GPU this runs in blocks of PyTorch operations"


def _spreading(problem: Problem, isolating: str | None) -> Iterator[str]:
    if isolating is not None and problem.may_hide:
        yield (
            "a masked key that some query sees must be finite here, since its NaN or infinity may reach queries that "
            f'do not see it, while padding may hold anything: with backend="{isolating}" it reaches none of them'
        )


def _tensors_of_pairs(problem: Problem) -> list[tuple[str, tuple[int, ...]]]:
    """Returns ``("mask" or "bias", shape)`` of each tensor of the pairs."""
    shapes: list[tuple[str, tuple[int, ...]]] = []

    def visitor(name: str) -> Callable[[Tensor], Tensor]:
        def visit(tensor: Tensor) -> Tensor:
            shapes.append((name, tuple(tensor.shape)))
            return tensor

        return visit

    if problem.mask is not None:
        problem.mask.map_tensors(visitor("mask"))
    if problem.bias is not None:
        problem.bias.map_tensors(visitor("bias"))
    return shapes


def _functions(problem: Problem) -> Iterator[str]:
    if any(isinstance(part, CustomScore) for part in problem.score.modules()):
        yield "this score is your function: no fused kernel computes it"
    if isinstance(problem.normalizer, CustomNormalizer):
        yield "this normalizer is your function: no fused kernel computes it"
    obstacle = row_functions(problem).mask_obstacle if problem.query.is_cpu else None
    if obstacle is not None:
        yield f"{obstacle}; it is made dense, a slice of rows at a time"


def _hidden_structure(problem: Problem) -> Iterator[str]:
    """Yields which mask of regard the tensor of a mask equals, whose structure kernels use."""
    mask = problem.mask
    inner = mask.mask if isinstance(mask, Not) else mask
    if mask is None or not isinstance(inner, Keep) or not has_data(inner.tensor):
        return
    tensor, grid = inner.tensor, problem.grid
    if tensor.numel() > SEARCHED_ELEMENTS or tensor.dim() < 2 or 0 in grid.shape or grid.queries == 1 or grid.keys == 1:
        return
    allowed = tensor if mask is inner else ~tensor
    allowed = allowed[(None,) * (4 - allowed.dim())]
    if bool(allowed.all()):
        yield "this mask hides nothing: leave it out"
        return
    if not bool(allowed.any()) or problem.lowered.dense_mask is None:
        return
    for line, candidate in _candidates(allowed, grid):
        if _equals(allowed, candidate, grid):
            yield f"a mask tensor hides its structure: mask={line} is the same, and kernels skip what it hides"
            return
    if _equals(~allowed, causal(), grid):
        yield (
            "this mask shows the future alone, as if its True meant 'ignore': True means 'may attend' here; "
            'write mask=masks.ignore(mask), or mask="causal"'
        )


def _visible_future(problem: Problem) -> Iterator[str]:
    """Yields how many queries see later keys, though a part of the mask is causal."""
    seen = None if problem.mask is None else later_keys(problem.mask, problem.grid)
    if seen is None:
        return
    first = "" if seen.examined == problem.grid.queries else "the first "
    axes = {"batch row": seen.batch_row, "head": seen.head}
    row = "".join(f" of {name} {number}" for name, number in axes.items() if number is not None)
    causal_mask = f"masks.{seen.causal!r}"
    line = f"in a decoder write mask & {causal_mask}"
    if seen.contains:
        joined = f"join by & in place of |, or write {causal_mask} alone"
        line = f"unless this is meant, as in a prefix language model, {joined}"
    count = f"{seen.leaking} of {first}{seen.examined} queries see keys after their own"
    pair = f"query {seen.query}{row} sees key {seen.key}"
    yield f"this mask is not causal, though a part of it is: {count}, as {pair}; {line}"


def _candidates(allowed: Tensor, grid: Grid) -> Iterator[tuple[str, Mask]]:
    """Yields masks that the tensor may equal, each with the line that makes it."""
    yield "masks.causal()", causal()
    yield 'masks.causal(align="start")', causal(align="start")
    if allowed.shape[1] == 1 and bool((allowed == allowed[:, :, :1]).all()):
        counts = allowed[:, 0, 0].sum(-1).expand(grid.batch)
        yield "masks.lengths(lengths)", lengths(counts)
    row = grid.queries // 2
    seen = allowed[0, 0, min(row, allowed.shape[2] - 1)].nonzero()[:, 0].tolist()
    position = row + grid.offset
    if seen and seen[0] <= position <= seen[-1]:
        before, after = position - seen[0], seen[-1] - position
        yield f"masks.window({before}, {after})", window(before, after)


def _equals(allowed: Tensor, mask: Mask, grid: Grid) -> bool:
    return bool((torch.broadcast_to(allowed, grid.shape) == mask.allows(grid)).all())
