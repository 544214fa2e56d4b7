"""A task of the benchmark: its inputs, its implementations, the operations it needs, and its requirements."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bench.requirement import Requirement

Sizes = Mapping[str, int]
Inputs = dict[str, Tensor]
Outputs = dict[str, Tensor]


@dataclass(frozen=True)
class Work:
    """The operations that a task needs in any implementation.

    Attributes:
        multiply_adds: number of fused multiply-adds.
        reciprocals: number of reciprocals or divisions.
        exponentials: number of exponentials.
        bytes: bytes that are read and written: each input once and each output once.
        said: how the operations are counted, in words.
    """

    multiply_adds: float = 0.0
    reciprocals: float = 0.0
    exponentials: float = 0.0
    bytes: float = 0.0
    said: str = ""

    def times(self, number: int) -> "Work":
        """The operations of ``number`` repetitions."""
        amounts = (self.multiply_adds, self.reciprocals, self.exponentials, self.bytes)
        return Work(*(number * amount for amount in amounts), said=self.said)


@dataclass(frozen=True)
class PreparedCall:
    """An implementation with its inputs.

    Attributes:
        call: runs the task once.
        read: result of a call → outputs by name, in the layout of the oracle.
        seconds: result of a call → the seconds that are measured, for what happens in another process; None: those from
            the call to its return.
    """

    call: Callable[[], Any]
    read: Callable[[Any], Outputs]
    seconds: Callable[[Any], float] | None = None


@dataclass(frozen=True)
class Implementation:
    """An implementation of a task.

    Attributes:
        column: a key of `bench.columns.COLUMNS`; for a peer also a key of `regard.cli.peers.PEER_PACKAGES`.
        build: prepares it for the inputs; layouts and compilation, which many calls share, are made there.
        backend: the backend that regard chooses for these inputs; None for other implementations.
        note: a note on what it computes or how it is called.
        bytes: sizes → expected memory beside the inputs; None: little.
        memory_measured: whether its memory is measured, in a separate process. If a task is not timed, the memory of
            all implementations is measured.
    """

    column: str
    build: Callable[[Inputs], PreparedCall]
    backend: Callable[[Inputs], str] | None = None
    note: str = ""
    bytes: Callable[[Sizes], float] | None = None
    memory_measured: bool = True


@dataclass(frozen=True)
class Task:
    """A task of the benchmark.

    Attributes:
        name: the name for ``--task``.
        title: title in the report, with sizes in braces: ``additive, {batch}×{heads}×{queries}×{dim}``.
        group: heading in the report.
        sizes: sizes of the inputs.
        quick: small sizes, for ``--quick``.
        inputs: sizes → seeded inputs.
        implementations: the implementations, regard first.
        work: sizes → the operations that the task needs.
        oracle: inputs → outputs in float64; an input ``valid`` selects the rows of the output that are compared.
        requirements: the requirements on regard.
        large: sizes for an accelerator; None: it is measured on the CPU alone.
        backward: whether gradients are computed.
        timed: whether it is timed; otherwise only its memory is measured, in separate processes.
        long: whether it takes minutes and runs only with ``--long``.
        about: a sentence for the report.
        limited_by: what limits the task and what was tried, for the page of a run that is short of a requirement.
        counted: name and number of the items of a call, for a rate, e.g. ``("target words", count)``.
        loaded: whether another process keeps one core busy while it is timed.
    """

    name: str
    title: str
    group: str
    sizes: Sizes
    quick: Sizes
    inputs: Callable[[Sizes], Inputs]
    implementations: tuple[Implementation, ...]
    work: Callable[[Sizes], Work]
    oracle: Callable[[Inputs], Outputs] | None = None
    requirements: tuple[Requirement, ...] = ()
    large: Sizes | None = None
    backward: bool = False
    timed: bool = True
    long: bool = False
    about: str = ""
    limited_by: str = ""
    counted: tuple[str, Callable[[Sizes], float]] | None = None
    loaded: bool = False

    def sized(self, quick: bool, on_cpu: bool = True) -> Sizes:
        """The small sizes if ``quick``, else the usual ones of the CPU or of an accelerator."""
        if quick:
            return self.quick
        return self.sizes if on_cpu or self.large is None else self.large

    def implementation(self, column: str) -> Implementation:
        """The implementation of this column; raises KeyError if there is none."""
        return {implementation.column: implementation for implementation in self.implementations}[column]
