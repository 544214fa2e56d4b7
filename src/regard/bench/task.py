"""A row of the benchmark: its inputs, who runs it and how, what it needs at least, and what it must reach."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.bench.bar import Bar

Sizes = Mapping[str, int]
Inputs = dict[str, Tensor]
Outputs = dict[str, Tensor]


@dataclass(frozen=True)
class Work:
    """What a task needs at least, whoever runs it.

    Attributes:
        multiply_adds: fused multiply-adds.
        reciprocals: reciprocals or divisions.
        exponentials: exponentials.
        bytes: read and written: inputs once and outputs once.
        said: how the numbers come about, in words.
    """

    multiply_adds: float = 0.0
    reciprocals: float = 0.0
    exponentials: float = 0.0
    bytes: float = 0.0
    said: str = ""

    def times(self, number: int) -> "Work":
        """This, done so many times."""
        amounts = (self.multiply_adds, self.reciprocals, self.exponentials, self.bytes)
        return Work(*(number * amount for amount in amounts), said=self.said)


@dataclass(frozen=True)
class Ready:
    """A contender that has its inputs.

    Attributes:
        call: runs the task once, to its end.
        read: what a call gave → outputs by name, in the layout of the oracle.
    """

    call: Callable[[], Any]
    read: Callable[[Any], Outputs]


@dataclass(frozen=True)
class Contender:
    """Who runs a task, and how.

    Attributes:
        column: a key of `regard.bench.columns.COLUMNS`; the peers' are names of `regard.bench.peers.PEERS` as well.
        build: gives it the inputs; whatever can be done once for many calls (layouts, compilation) is done there.
        backend: what regard chooses for these inputs, in a word.
        note: what it leaves out of the task, or how it was called, if that needs a word.
        bytes: what it is expected to hold at once beside its inputs; None: little.
        weighed: whether its memory is measured, in a process of its own. A task that is not timed weighs everyone.
    """

    column: str
    build: Callable[[Inputs], Ready]
    backend: Callable[[Inputs], str] | None = None
    note: str = ""
    bytes: Callable[[Sizes], float] | None = None
    weighed: bool = True


@dataclass(frozen=True)
class Task:
    """One row.

    Attributes:
        name: what ``--task`` says.
        title: for people, with its sizes in braces: ``additive, {batch}×{heads}×{queries}×{dim}``.
        group: the heading that it stands under.
        sizes: what its inputs are made from.
        quick: the same, small.
        inputs: sizes → seeded inputs.
        contenders: who runs it, regard first.
        oracle: inputs → outputs in float64; an input ``valid`` says which rows of the output count.
        work: sizes → what the task needs at least.
        bars: what regard must reach.
        backward: whether gradients are part of it.
        timed: whether it is timed side by side; otherwise it runs in processes of its own only.
        long: whether it only runs when long tasks are asked for.
        about: a sentence for the report.
        counted: what a call gets through and how many of them, for a rate; as ``("target words", count)``.
    """

    name: str
    title: str
    group: str
    sizes: Sizes
    quick: Sizes
    inputs: Callable[[Sizes], Inputs]
    contenders: tuple[Contender, ...]
    work: Callable[[Sizes], Work]
    oracle: Callable[[Inputs], Outputs] | None = None
    bars: tuple[Bar, ...] = ()
    backward: bool = False
    timed: bool = True
    long: bool = False
    about: str = ""
    counted: tuple[str, Callable[[Sizes], float]] | None = None

    def sized(self, quick: bool) -> Sizes:
        """The sizes that are meant."""
        return self.quick if quick else self.sizes

    def contender(self, column: str) -> Contender:
        """The contender of this column; raises KeyError if it has none."""
        return {contender.column: contender for contender in self.contenders}[column]
