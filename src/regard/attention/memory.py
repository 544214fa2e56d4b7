"""What a memory is that a backend prepared for many calls: part of the problem, so that `plan` describes it."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from regard.attention.problem import Problem


class CachedMemory(ABC):
    """Keys and values of one head, prepared by a backend.

    Attributes:
        backend: the name of the backend that prepared it.
    """

    backend: str

    @abstractmethod
    def declines(self, problem: "Problem") -> str | None:
        """Why the problem cannot be run over this memory; None if it can."""

    @abstractmethod
    def select(self, index: Tensor) -> "CachedMemory | None":
        """The memory of these batch rows, in this order; None if it has to be prepared anew.

        Args:
            index: int64 ``[rows]``.
        """
