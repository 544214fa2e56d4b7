"""The problems that a watched model computes: what worked steps are made from."""

from collections.abc import Callable

from torch import nn

from regard.attention import Problem, Readings
from regard.watching import Watch
from regard.watching.call_problems import SameCall
from regard.watching.intercepted import Intercepted
from regard.watching.owners import Owner
from regard.watching.thread_state import is_like_no_other


class KeptProblems(Watch):
    """A context as that of `regard.watch`, which keeps the queries, keys and values of each call, and no reading.

    Args:
        model: the model.

    Attributes:
        problems: for each of ``calls`` what it computed; None where only its weights are known.
    """

    def __init__(self, model: nn.Module):
        super().__init__(model, Readings(), None, None, keep=False, norms=False, outputs=False)
        self.problems: list[Problem | None] = []

    def take(
        self,
        owner: Owner,
        read: Callable[[Owner], Intercepted],
        same: Callable[[Owner], SameCall | None] = is_like_no_other,
    ) -> None:
        found: list[Intercepted] = []

        def kept(owner: Owner) -> Intercepted:
            found.append(read(owner))
            return found[-1]

        before = len(self.calls)
        # Each call's own numbers are kept, so that no call stands for others.
        super().take(owner, kept)
        if len(self.calls) > before:
            self.problems.append(found[-1].problem)
