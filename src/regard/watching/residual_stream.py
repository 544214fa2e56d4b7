"""The path of an attention's output through the residual stream to the logits of a model.

While a model is watched with ``outputs=True``, each tensor on such a path is represented by a `StreamStep`: the output
of a projection of heads (`HeadsStep`); a sum with another tensor (`SumStep`); the same elements in other positions
or times a constant (`MovedStep`, `ScaledStep`); or a module's result (`ModuleStep`). A sum continues the terms that
passed the fewest modules, which is the residual connection: a later layer's output is not part of the path. Afterwards
`logit_path` calls the modules again to find out how the path transforms features.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from regard.watching.linear_maps import ModuleCall, Normalization
from regard.watching.softmax_tracking import CONVERSION_FUNCTIONS, IDENTITY_FUNCTIONS, MOVE_FUNCTIONS
from regard.watching.tracked_tensors import TrackedRecord, TrackedTensors

Move = Callable[[Tensor], Any]


class StreamStep(TrackedRecord):
    """One tensor on the path.

    Attributes:
        parents: the steps that it comes from.
        costs: the number of modules that were passed since each of its `HeadsStep`, by their numbers.
    """

    parents: "tuple[StreamStep, ...]"
    costs: dict[int, int]

    def __init__(self, *parents: "StreamStep", passed: int = 0):
        self.parents = parents
        self.costs = {}
        for parent in parents:
            for heads, cost in parent.costs.items():
                self.costs[heads] = min(cost + passed, self.costs.get(heads, cost + passed))

    def before(self, heads: int) -> "tuple[StreamStep, ...]":
        """Returns the parents through which the path from some heads leads."""
        least = min((parent.costs[heads] for parent in self.parents if heads in parent.costs), default=0)
        return tuple(parent for parent in self.parents if parent.costs.get(heads) == least)


class HeadsStep(StreamStep):
    """The output of a module that projects the heads of one attention call.

    Attributes:
        call: a few rows of the module's call.
        rows: the number of the batch row and query, ``batch_row * queries + query``, for each row of the output.
    """

    def __init__(self, call: ModuleCall, rows: Tensor):
        super().__init__()
        self.number = next(_numbers)
        self.costs = {self.number: 0}
        self.call, self.rows = call, rows


_numbers = count()


class SumStep(StreamStep):
    """A sum.

    Attributes:
        has_others: whether it has an input-dependent term that is not on the path, or left it for a later layer.
        is_forked: whether several terms are functions of one tensor, of which none is the tensor itself, as it is in a
            residual connection.
    """

    def __init__(self, *parents: StreamStep, has_others: bool):
        least: dict[int, int] = {}
        for parent in parents:
            for heads, cost in parent.costs.items():
                least[heads] = min(cost, least.get(heads, cost))
        # The contribution of a later layer is not stored, nor are its tensors.
        nearest = [parent for parent in parents if any(least[heads] == cost for heads, cost in parent.costs.items())]
        left = [parent for parent in parents if not any(parent is other for other in nearest)]
        super().__init__(*nearest)
        self.has_others = has_others or bool(left)
        self.is_forked = any(_is_fork(parent, other) for parent in nearest for other in left)

    def adds_to(self, heads: int) -> bool:
        """Whether anything else is added to the output of some heads."""
        return self.has_others or any(heads not in parent.costs for parent in self.parents)


def _is_fork(term: StreamStep, other: StreamStep) -> bool:
    """Whether a term that passed more modules than another one does not come from it."""
    common = term.costs.keys() & other.costs.keys()
    if not common:
        return False
    heads = min(common)
    cost, stream, step = term.costs[heads], set(), term
    while step.costs[heads] == cost:
        stream.add(id(step))
        before = step.before(heads)
        if not before:
            break
        step = before[0]
    while other.costs[heads] > cost:
        other = other.before(heads)[0]
    return id(other) not in stream


class MovedStep(StreamStep):
    """The same elements in other positions."""

    def __init__(self, parent: StreamStep, move: Move, shape: torch.Size):
        super().__init__(parent)
        self.move, self.shape = move, shape


class ScaledStep(StreamStep):
    """Each element times a number, or times a number for its feature."""

    def __init__(self, parent: StreamStep, factor: float | Tensor):
        super().__init__(parent)
        self.factor = factor


class ModuleStep(StreamStep):
    """The result of a module."""

    def __init__(self, parent: StreamStep, call: ModuleCall):
        super().__init__(parent, passed=1)
        # A normalization keeps the number of features, and depends on all rows.
        self.call = call if call.input.shape[-1] == call.output.shape[-1] else call.sampled()
        self._kind: ModuleCall | Normalization | None = None

    @property
    def kind(self) -> ModuleCall | Normalization:
        """The call as a normalization, if it is one; or a few rows of it, which may prove to be linear."""
        if self._kind is None:
            self._kind = (None if self.call.is_sample else self.call.normalization()) or self.call.sampled().settle()
            self.call = self.call.sampled()
        return self._kind


ADDITIONS = frozenset(("add", "radd", "iadd"))
SUBTRACTIONS = frozenset(("sub", "subtract", "isub"))
MULTIPLICATIONS = frozenset(("mul", "multiply", "rmul", "imul"))
DIVISIONS = frozenset(("div", "divide", "true_divide", "truediv", "itruediv"))
IDENTITIES = frozenset(name.strip("_") for name in (*IDENTITY_FUNCTIONS, *CONVERSION_FUNCTIONS))
MOVES = frozenset(name.strip("_") for name in MOVE_FUNCTIONS)
_MAPS = frozenset(("linear", "layer_norm", "rms_norm", "matmul", "mm"))


class ResidualStream:
    """The steps of all tensors of one thread's models.

    Attributes:
        lost: the unknown function or module after `last` at which a path ends; "": none.
        last: the last module on a path.
    """

    def __init__(self) -> None:
        self._steps = TrackedTensors()
        self.last: ModuleStep | None = None
        self.lost = ""

    def step(self, tensor: object) -> StreamStep | None:
        """Returns the step of a tensor; None if it is on no path."""
        known = self._steps.get(tensor)
        return known if isinstance(known, StreamStep) else None

    def begin(self, output: Tensor, heads: HeadsStep) -> None:
        """Begins a path."""
        self._steps.put(output, heads)

    def follow(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Records the result of a function of PyTorch for a tensor on a path."""
        if not self._steps.known or not isinstance(result, Tensor):
            return
        name = getattr(function, "__name__", "")
        if name.startswith("__get__") or not result.is_floating_point():
            return
        is_in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or "out" in kwargs
        known = [self.step(each) for each in args[:2]] + [None, None]
        if known[0] is None and known[1] is None:
            if is_in_place:
                self._steps.forget(result if name != "__setitem__" else args[0])
            return
        step = self._made(function, name.strip("_"), args, kwargs, known, result)
        if step is not None:
            self._steps.put(result, step)
            return
        if is_in_place:
            self._steps.forget(args[0])
        if result.shape[:-1] == args[0 if known[0] is not None else 1].shape[:-1]:
            self.lost = self.lost or name.strip("_")

    def _made(
        self, function: Any, name: str, args: Any, kwargs: Any, known: list[StreamStep | None], result: Tensor
    ) -> StreamStep | None:
        """Returns the step of a function's result."""
        first, second = known[:2]
        other: Any = kwargs.get("other", args[1] if len(args) > 1 else None)
        if name in ADDITIONS or name in SUBTRACTIONS:
            if kwargs.get("alpha", 1) != 1:
                return None
            if second is not None and name in SUBTRACTIONS:
                second = ScaledStep(second, -1.0)
            terms = [
                step
                for step, term in ((first, args[0]), (second, other))
                if step is not None and term.shape == result.shape
            ]
            others = (args[0] if first is None else None, other if second is None else None)
            has_others = any(isinstance(each, Tensor) and not isinstance(each, nn.Parameter) for each in others)
            return SumStep(*terms, has_others=has_others) if terms else None
        if name in MULTIPLICATIONS or (name in DIVISIONS and first is not None):
            if first is not None and second is not None:
                return None
            factor = other if first is not None else args[0]
            step = first if first is not None else second
            assert step is not None
            if not _is_constant(factor, result):
                return None
            if isinstance(factor, Tensor):
                factor = factor.detach().clone()
            return ScaledStep(step, 1 / factor if name in DIVISIONS else factor)
        if first is None:
            return None
        if name == "neg":
            return ScaledStep(first, -1.0)
        if name in IDENTITIES:
            return first if result.shape == args[0].shape else None
        if name.startswith("dropout"):
            return first  # readings are those before dropout
        if name in MOVES:
            rest, options = args[1:], dict(kwargs)
            return MovedStep(first, lambda tensor: function(tensor, *rest, **options), args[0].shape)
        if name in _MAPS and result.shape[:-1] == args[0].shape[:-1]:
            if name in ("matmul", "mm") and (second is not None or other.dim() != 2):
                return None
            rest, options = args[1:], dict(kwargs)
            title = f"the function {name!r} of the model's own code"
            return self._mapped(first, title, lambda x: function(x, *rest, **options), args[0], result)
        return None

    def passed(self, name: str, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        """Records the result of a module for a tensor on a path, unless its functions explain it."""
        input = args[0] if args else None
        step, result_step = self.step(input), self.step(output)
        if (
            step is None
            or not isinstance(input, Tensor)
            or (result_step is not None and not _is_broken(step, result_step))
        ):
            return
        if output.is_floating_point() and output.dim() == input.dim() and output.shape[:-1] == input.shape[:-1]:
            result_step = self._mapped(step, f"{name!r} ({type(module).__name__})", module, input, output, args[1:])
            self._steps.put(output, result_step)

    def _mapped(
        self, step: StreamStep, name: str, function: Any, input: Tensor, output: Tensor, others: tuple[Any, ...] = ()
    ) -> ModuleStep:
        self.last, self.lost = ModuleStep(step, ModuleCall(name, function, input, output, others)), ""
        return self.last


def _is_broken(step: StreamStep, result_step: StreamStep) -> bool:
    """Whether the functions of a module explain its result only in part, as those of an adapted layer.

    A module with a residual connection passes the tensor on, and its addend is a later layer.
    """
    if not step.costs.keys() >= result_step.costs.keys():
        return False  # there is attention in it
    heads = min(result_step.costs)
    if result_step.costs[heads] <= step.costs[heads]:
        return False
    while result_step is not step and result_step.parents:
        if isinstance(result_step, SumStep) and (
            result_step.is_forked or result_step.adds_to(heads) or len(result_step.before(heads)) > 1
        ):
            return True
        if (
            isinstance(result_step, ModuleStep)
            and not isinstance(result_step.call.function, nn.Module)
            and result_step.parents[0] is step
        ):
            return True  # the module has a name
        result_step = result_step.before(heads)[0]
    return False


def _is_constant(factor: object, result: Tensor) -> bool:
    """Whether a factor is a number, or a parameter with a number of each feature."""
    if isinstance(factor, Tensor):
        if factor.dim() == 0:
            return True
        return isinstance(factor, nn.Parameter) and tuple(factor.shape) in ((1,), (result.shape[-1],))
    return isinstance(factor, (int, float))
