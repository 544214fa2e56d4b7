"""A program that is exported: a function of tensors, with the names and axes of its inputs, and examples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

AxisSizes = Mapping[str, int]
"""Name of an axis → its size. `PADDING` is no axis."""

PADDING = "padding"
"""Name of the size that counts the padding in the longest row of an example; 0 if it is missing."""

Axes = tuple[str | int, ...]
"""The axes of a tensor: a name for one of any size, or the only size that the program takes."""

FIXED_SIZE = -1
"""An axis whose only size is that of an example."""


class ProgramInput(NamedTuple):
    """An input of a program: its name, its axes, and its content, for people."""

    name: str
    axes: Axes
    meaning: str


@dataclass
class Program:
    """A function of tensors that is exported.

    Attributes:
        name: the name of its file, without the suffix.
        summary: its result, for people.
        module: its ``forward`` takes the inputs in their order, and gives a tuple of tensors.
        inputs: the inputs.
        outputs: the outputs: name → meaning.
        example: makes inputs with the named axes of these sizes.
        sizes: sizes for the example that is traced; all differ, and none is 0 or 1, which PyTorch would fix.
        limits: the largest sizes of the axes that have one.
        multiples: axis → the number of which its sizes are multiples.
        checked: more sizes that are compared with the model, besides those of `regard.exports.torch_programs.checks`.
        reference: computes the outputs of the model of regard, if the module computes them in another way.
    """

    name: str
    summary: str
    module: nn.Module
    inputs: tuple[ProgramInput, ...]
    outputs: dict[str, str]
    example: Callable[[AxisSizes], tuple[Tensor, ...]]
    sizes: dict[str, int]
    limits: dict[str, int] = field(default_factory=dict)
    multiples: dict[str, int] = field(default_factory=dict)
    checked: tuple[dict[str, int], ...] = ()
    reference: Callable[..., tuple[Tensor, ...]] | None = None

    def other_example(self, more: int, **changed: int) -> tuple[Tensor, ...]:
        """Returns an example whose axes are longer than those of ``sizes``, by ``more`` and as far as their limits
        permit, or exactly as ``changed`` says."""
        longer = {axis: min(size + more, self.limits.get(axis, size + more)) for axis, size in self.sizes.items()}
        return self.example({**longer, **changed})

    @torch.no_grad()
    def run(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Computes the outputs of the model of regard."""
        return self.module(*inputs) if self.reference is None else self.reference(*inputs)


def generator_of(sizes: AxisSizes) -> torch.Generator:
    """Creates the generator of the random numbers of an example."""
    return torch.Generator().manual_seed(sum(sizes.values()))


def random_tokens(vocabulary: int, *shape: int) -> Tensor:
    """Returns random ids of a vocabulary, none of them a special one."""
    return torch.randint(min(4, vocabulary - 1), vocabulary, shape, generator=torch.Generator().manual_seed(sum(shape)))


def row_lengths(sizes: AxisSizes, axis: str) -> Tensor:
    """Returns the lengths of the rows of a batch, of which the first is the longest."""
    return (sizes[axis] - sizes.get(PADDING, 0) - 2 * torch.arange(sizes["batch"])).clamp(min=1)
