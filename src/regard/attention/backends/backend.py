"""The base class of backends. A backend runs problems, and says beforehand which ones it cannot run."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from regard.attention.call_kinds import CallKind
from regard.attention.problem import CachedMemory, Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.scores import Score

Bound = Callable[[Tensor, Tensor, Tensor, object, object], Tensor | None]
"""``(query, key, value, score, mask) ->`` the output; None for tensors that a backend has to look at."""


class Backend(ABC):
    """Runs attention problems; it has no state, and one instance serves all calls.

    Attributes:
        name: its name in ``backend="..."``.
        why: the reason that `plan` gives for its choice.
        measured: tasks of ``regard bench`` that justify this reason.
        reads: whether `run` shows its weights to a gatherer. If it does not, readings come from a second pass of
            another backend, which computes the same weights.
        isolates: whether hidden elements that are NaN or infinite cannot reach its results on a device, where the
            host does not look at them (`regard.attention.guarded`). For any other backend zeros replace padding there,
            and what some query sees must be finite (`regard.attention.padding`).
        whole_grids: whether the weights of all queries are computed at once, so that a normalizer may couple queries
            (`regard.normalizers.Normalizer.couples`).
        linear: whether memory grows with queries + keys, and not with their product.
        is_awaited: whether ``"auto"`` waits for its preparation where nothing may depend on a race
            (`regard.kernels.availability.must_wait`). A backend of which only named calls prepare it has no race.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import attention
        >>> class Dense(attention.Backend):
        ...     name, linear = "dense", False
        ...     def declines(self, problem):
        ...         is_plain = problem.mask is None and problem.bias is None and not problem.dropout
        ...         has_equal_heads = problem.query.shape[1] == problem.key.shape[1]
        ...         return None if is_plain and has_equal_heads else "it has no masks, biases, dropout, grouped heads"
        ...     def run(self, problem, gatherer=None):
        ...         weights = problem.normalizer(problem.score(problem.query, problem.key))
        ...         return (weights @ problem.value.to(weights.dtype)).to(problem.value.dtype)
        >>> attention.register_backend(Dense())
        >>> query = torch.eye(2)
        >>> regard.attend(query, query, query, backend="dense")
        tensor([[0.6698, 0.3302],
                [0.3302, 0.6698]])
        >>> regard.plan(query, query, query, mask="causal").reasons["dense"]
        'cannot: it has no masks, biases, dropout, grouped heads'
        >>> attention.unregister_backend("dense")
    """

    name: str
    why: str = "it runs this"
    measured: tuple[str, ...] = ()
    reads: bool = False
    isolates: bool = False
    whole_grids: bool = False
    linear: bool = True
    is_awaited: bool = True

    def declines(self, problem: Problem) -> str | None:
        """Returns why this backend cannot run the problem; None if it can."""
        return None

    def kind_of_call(self, problem: Problem, gatherer: Gatherer | None = None) -> tuple[object, ...]:
        """Names what decides which of the backend's kernels run the problem.

        On a device the first call of each kind is compared with the specification (`regard.attention.trials`). A
        backend whose choice depends on more appends it: ``(*super().kind_of_call(problem), more)``. If it returns
        another `CallKind`, the comparison is made on a small problem of that kind.

        Args:
            problem: a problem that the backend does not decline.
            gatherer: gets the readings; None if there are none.
        """
        return CallKind.of(problem)

    def form(self, problem: Problem) -> str | None:
        """Returns which of its forms runs the problem now, for `plan`, if the backend has several; else None.

        Args:
            problem: a problem that the backend does not decline.
        """
        return None

    def delay(self, problem: Problem, gatherer: Gatherer | None = None) -> str | None:
        """Returns what a call would have to wait for before this backend runs, such as a compiler; None if nothing.

        Only ``"auto"`` asks, and runs another backend in the meantime.

        Args:
            problem: a problem that the backend does not decline.
            gatherer: gets the readings; None if there are none.
        """
        return None

    def prepare(self, problem: Problem, gatherer: Gatherer | None = None) -> None:
        """Starts the preparation that `delay` names, without waiting for it."""
        return

    @abstractmethod
    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        """Returns the output ``[batch, heads, queries, value_dim]``.

        Args:
            problem: a problem that the backend does not decline.
            gatherer: is shown the weights, which must not change a bit of the output; None if the backend does not
                read (`reads`).
        """

    def bind(self, problem: Problem, any_keys: bool) -> Bound | None:
        """Returns what runs later calls of the problem's kind (`regard.attention.kinds`), as `run` does, bit for bit.

        Args:
            problem: a problem that the backend can run; its tensors must not be kept.
            any_keys: whether later calls may have other numbers of keys, and other strides of keys and values.

        Returns:
            A function of the tensors, and of a score and a mask that hold some, as the user gave them. It gives None
            for tensors that `run` has to look at. None if there is no such function: `run` runs later calls as well,
            which are not checked and planned again.
        """
        return None

    @torch.no_grad()
    def read(self, problem: Problem, gatherer: Gatherer) -> None:
        """Shows the weights to a gatherer, on behalf of a backend that does not read; this one does (`reads`)."""
        self.run(problem, gatherer)

    def run_with_weights(self, problem: Problem) -> Attended | None:
        """Returns the output of `run`, bit for bit, and the weights, both differentiable.

        A backend that has no weights returns None; then the specification computes them.
        """
        return None

    def prepare_memory(self, key: Tensor, value: Tensor, score: Score, mask: Tensor | None) -> CachedMemory | None:
        """Prepares what depends on keys and values alone, for many calls with other queries; None if there is nothing.

        Args:
            key: ``[batch, keys, dim]`` of one head, as the score's own weights see them; float32 or float64.
            value: ``[batch, keys, value_dim]`` of the same dtype.
            score: compares projected queries with these keys.
            mask: bool ``[batch, keys]``, True for keys that may be attended to; None if all may. Hidden keys and values
                are 0.
        """
        return None
