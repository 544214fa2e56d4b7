"""Follows the functions of PyTorch in a model's run, to know how each tensor is linear in others: see `write_steps`.

There are two users: `regard.watching.residual_stream` follows the outputs of heads to the logits, and
`regard.watching.write_tracking` all that is written to the residual stream to queries and keys.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from regard.watching.softmax_tracking import CONVERSION_FUNCTIONS, IDENTITY_FUNCTIONS, MOVE_FUNCTIONS, RULES
from regard.watching.tracked_tensors import TrackedTensors
from regard.watching.write_steps import HeadsWrite, LinearStep, Moved, Scaled

Terms = Sequence[tuple[Any, float]]
"""The terms of a sum, each with its sign."""

_SAME = frozenset(name.strip("_") for name in (*IDENTITY_FUNCTIONS, *CONVERSION_FUNCTIONS))
_MOVES = frozenset(name.strip("_") for name in (*MOVE_FUNCTIONS, "T", "mT", "H", "mH"))
_SUMS = frozenset(("add", "radd", "iadd"))
_DIFFERENCES = frozenset(("sub", "subtract", "isub", "rsub"))
_PRODUCTS = frozenset(("mul", "multiply", "rmul", "imul"))
_QUOTIENTS = frozenset(("div", "divide", "true_divide", "truediv", "itruediv"))


class LinearTracking(ABC):
    """The steps of all tensors of one thread's models; this base class follows functions that are linear everywhere.

    Attributes:
        follows_paths: whether only tensors that come from others with a step have one, and no parts of them.
    """

    follows_paths = True

    def __init__(self) -> None:
        self._steps = TrackedTensors()

    def step(self, tensor: object) -> LinearStep | None:
        """Returns the step of a tensor; None if it has none."""
        step = self._steps.get(tensor)
        return step if isinstance(step, LinearStep) else None

    def begin(self, output: Tensor, heads: HeadsWrite) -> None:
        """Records the output of a projection of heads."""
        self._steps.put(output, heads)

    def follow(self, function: Any, args: Any, kwargs: Any, result: Any, within: str) -> None:
        """Records the result of a function of PyTorch; ``within`` is the name of the module that calls it."""
        if self.follows_paths and not (self._steps.known and isinstance(result, Tensor)):
            return
        is_known = self._has_step(args) or bool(kwargs and self._has_step(kwargs.values()))
        if self.follows_paths and not is_known:
            return
        name = RULES[function][1] if function in RULES else getattr(function, "__name__", "")
        name = name.strip("_")
        if "input" in kwargs:
            args, kwargs = (kwargs["input"], *args), {key: each for key, each in kwargs.items() if key != "input"}
        if name == "setitem":
            if is_known:
                self._put(args[0], self._unknown(name, args, args[0], within))
            return
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        for number, output in enumerate(outputs):
            if not isinstance(output, Tensor) or not output.is_floating_point() or output.is_nested:
                continue
            if isinstance(self.step(output), HeadsWrite) and (not args or output is not args[0]):
                continue  # a function that projects the heads itself
            if name in _MOVES:
                step = self._moved(function, args, kwargs, output, number if outputs is result else None)
            else:
                step = self._made(name, function, args, kwargs, output, is_known)
            if step is None and is_known:
                step = self._unknown(name, args, output, "")
            if step is not None:
                step.name = step.name or within
            self._put(output, step)

    def _has_step(self, arguments: Any) -> bool:
        known = self._steps.known
        for each in arguments:
            if id(each) in known:
                if self.step(each) is not None:
                    return True
            elif isinstance(each, (tuple, list)) and self._has_step(each):
                return True
        return False

    def _moved(self, function: Any, args: Any, kwargs: Any, output: Tensor, part: int | None) -> LinearStep | None:
        step = self.step(args[0])
        if step is None or output.dtype != args[0].dtype:
            return None
        others = args[1:]

        def move(tensor: Tensor) -> Tensor:
            moved = function(tensor, *others, **kwargs)
            return moved if part is None else moved[part]

        return Moved(output.shape, [step], move)

    def _made(
        self, name: str, function: Any, args: Any, kwargs: Any, output: Tensor, is_known: bool
    ) -> LinearStep | None:
        """Returns the step of a function's result; None if it is not linear, or in nothing that is known."""
        if (step := self._mapped(name, function, args, kwargs, output)) is not None or not is_known:
            return step
        first: Any = args[0] if args else None
        other: Any = kwargs.get("other", args[1] if len(args) > 1 else None)
        if name in _SUMS or name in _DIFFERENCES:
            sign = kwargs.get("alpha", 1) * (-1.0 if name in _DIFFERENCES else 1.0)
            return self._sum(output, [(other, 1.0), (first, sign)] if name == "rsub" else [(first, 1.0), (other, sign)])
        if name in _PRODUCTS or name in _QUOTIENTS:
            for tensor, by in ((first, other), (other, first))[: 2 if name in _PRODUCTS else 1]:
                step = self.step(tensor)
                if step is not None and (factor := self._factor(by, tensor, output)) is not None:
                    return Scaled(output.shape, step, 1 / factor if name in _QUOTIENTS else factor)
            return None
        step = self.step(first)
        if step is not None and name == "neg":
            return Scaled(output.shape, step, -1.0)
        if step is not None and name in _SAME:
            return step if output.shape == step.shape else None
        return self._other(name, function, args, kwargs, output)

    def _put(self, tensor: Tensor, step: LinearStep | None) -> None:
        if step is None:
            self._steps.forget(tensor)
        else:
            self._steps.put(tensor, step)

    @abstractmethod
    def _mapped(self, name: str, function: Any, args: Any, kwargs: Any, output: Tensor) -> LinearStep | None:
        """Returns the step of a linear map or of a normalization; None: the function is neither."""

    @abstractmethod
    def _sum(self, output: Tensor, terms: Terms) -> LinearStep | None:
        """Returns the step of a sum; None if no term has one."""

    @abstractmethod
    def _factor(self, factor: Any, tensor: Tensor, output: Tensor) -> "float | Tensor | None":
        """Returns the factor of a tensor; None if it is not constant."""

    def _other(self, name: str, function: Any, args: Any, kwargs: Any, output: Tensor) -> LinearStep | None:
        """Returns the step of another function's result."""
        return None

    @abstractmethod
    def _unknown(self, name: str, args: Any, output: Tensor, within: str) -> LinearStep | None:
        """Handles the result of a function that is not linear."""
