"""What a backend is: a way to run a problem, which says beforehand when it cannot."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from regard.attention.problem import CachedMemory, Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.scores import Score


class Backend(ABC):
    """Runs attention problems. Stateless; one instance serves all calls.

    Attributes:
        name: what the user says, ``backend="..."``.
        why: why it is a good choice where nothing speaks against it; for `plan`.
        measured: tasks of ``regard bench`` that show it.
        reads: whether `run` shows its weights to a gatherer. Where it does not, readings come from a second pass of
            another backend, which computes the same weights.
        linear: whether memory grows with queries + keys, and not with their product.
    """

    name: str
    why: str = "it runs this"
    measured: tuple[str, ...] = ()
    reads: bool = False
    linear: bool = True

    def declines(self, problem: Problem) -> str | None:
        """Why this backend cannot run the problem; None if it can."""
        return None

    def delay(self, problem: Problem, gatherer: Gatherer | None = None) -> str | None:
        """Why a call would have to wait for something before this backend can run, as for a compiler; None if not.

        Only ``"auto"`` asks, which runs another backend meanwhile.

        Args:
            problem: one that the backend does not decline.
            gatherer: gets the readings; None where no readings are wanted.
        """
        return None

    def prepare(self, problem: Problem, gatherer: Gatherer | None = None) -> None:
        """Begin what `delay` tells of, without waiting for it."""
        return

    @abstractmethod
    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        """The output ``[batch, heads, queries, value_dim]``.

        Args:
            problem: one that the backend does not decline.
            gatherer: is shown the weights; always None if the backend does not `reads`. Whether there is one must not
                change a bit of the output.
        """

    @torch.no_grad()
    def read(self, problem: Problem, gatherer: Gatherer) -> None:
        """Show a gatherer the weights, for another backend that does not `reads`; only called if this one does."""
        self.run(problem, gatherer)

    def run_with_weights(self, problem: Problem) -> Attended | None:
        """The output that `run` gives, bit for bit, and the weights, both differentiable.

        None from a backend that gives no weights: then they are those of the specification.
        """
        return None

    def prepare_memory(self, key: Tensor, value: Tensor, score: Score, mask: Tensor | None) -> CachedMemory | None:
        """What belongs to keys and values alone, prepared for many calls with other queries; None if nothing is.

        Args:
            key: ``[batch, keys, dim]`` of one head, as the score's own weights see them; float32 or float64.
            value: ``[batch, keys, value_dim]`` of the same dtype.
            score: compares projected queries with these keys.
            mask: bool ``[batch, keys]``; True: may be attended. None: all may. What it hides is 0 in key and value.
        """
        return None
