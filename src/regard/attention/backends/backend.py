"""What a backend is: a way to run a problem, that says beforehand when it can't."""

from abc import ABC, abstractmethod

from torch import Tensor

from regard.attention.problem import Problem
from regard.attention.readings import Gatherer


class Backend(ABC):
    """Runs attention problems. Stateless; one instance serves all calls.

    Attributes:
        name: what the user says, ``backend="..."``.
    """

    name: str

    def declines(self, problem: Problem) -> str | None:
        """Why this backend cannot run the problem; None if it can."""
        return None

    @abstractmethod
    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        """The output ``[batch, heads, queries, value_dim]``.

        Whether somebody reads must not change a bit of it: the gatherer is only shown what there is.
        """
