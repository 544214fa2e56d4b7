"""What a plan says besides the choice of a backend: meanings of axes that are likely too, and what costs time."""

from collections.abc import Callable

from torch import Tensor

from regard.attention.problem import Problem
from regard.layout import other_readings


def remarks_on(problem: Problem) -> list[str]:
    """Returns what is worth knowing of a call that runs, a sentence each."""
    return other_readings(problem.query.shape, problem.key.shape, problem.rank, _tensors_of_pairs(problem))


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
