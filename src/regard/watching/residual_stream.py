"""The path of an attention's output through the residual stream to the logits of a model.

While a model is watched with ``outputs=True``, each tensor on such a path is represented by a step of `write_steps`
(the output of a projection of heads, moved elements, a constant factor), or by a `SumStep` or a `ModuleStep`. A sum
continues the terms that passed the fewest modules, which is the residual connection: a later layer's output is not part
of the path. Afterwards `logit_path` calls the modules again to find out how the path transforms features.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.watching.linear_maps import ModuleCall, Normalization
from regard.watching.linear_tracking import LinearTracking, Terms
from regard.watching.write_steps import LinearStep, Scaled


class SumStep(LinearStep):
    """A sum.

    Attributes:
        has_others: whether it has an input-dependent term that is not on the path, or left it for a later layer.
        is_forked: whether several terms are functions of one tensor, of which none is the tensor itself, as it is in a
            residual connection.
    """

    def __init__(self, shape: torch.Size, parents: Sequence[LinearStep], has_others: bool):
        least: dict[int, int] = {}
        for parent in parents:
            for heads, cost in parent.costs.items():
                least[heads] = min(cost, least.get(heads, cost))
        # The contribution of a later layer is not stored, nor are its tensors.
        nearest = [parent for parent in parents if any(least[heads] == cost for heads, cost in parent.costs.items())]
        left = [parent for parent in parents if not any(parent is other for other in nearest)]
        super().__init__(shape, *nearest)
        self.has_others = has_others or bool(left)
        self.is_forked = any(_is_fork(parent, other) for parent in nearest for other in left)

    def adds_to(self, heads: int) -> bool:
        """Whether anything else is added to the output of some heads."""
        return self.has_others or any(heads not in parent.costs for parent in self.parents)


def _is_fork(term: LinearStep, other: LinearStep) -> bool:
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


class ModuleStep(LinearStep):
    """The result of a module."""

    def __init__(self, parent: LinearStep, call: ModuleCall):
        super().__init__(call.output.shape, parent, passed=1)
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


_MAPS = frozenset(("linear", "layer_norm", "rms_norm", "matmul", "mm"))


class ResidualStream(LinearTracking):
    """The steps of all tensors on a path.

    Attributes:
        lost: the unknown function or module after `last` at which a path ends; "": none.
        last: the last module on a path.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last: ModuleStep | None = None
        self.lost = ""

    def _sum(self, output: Tensor, terms: Terms) -> LinearStep | None:
        own, has_others = [], False
        for term, sign in terms:
            step = self.step(term)
            if step is None:
                has_others = has_others or (isinstance(term, Tensor) and not isinstance(term, nn.Parameter))
            elif term.shape == output.shape:
                own.append(step if sign == 1 else Scaled(output.shape, step, sign))
        return SumStep(output.shape, own, has_others) if own else None

    def _factor(self, factor: Any, tensor: Tensor, output: Tensor) -> float | Tensor | None:
        if not isinstance(factor, Tensor):
            return factor if isinstance(factor, (int, float)) else None
        is_of_features = isinstance(factor, nn.Parameter) and tuple(factor.shape) in ((1,), (output.shape[-1],))
        return factor.detach().clone() if is_of_features or (factor.dim() == 0 and self.step(factor) is None) else None

    def _mapped(self, name: str, function: Any, args: Any, kwargs: Any, output: Tensor) -> LinearStep | None:
        step = self.step(args[0]) if name in _MAPS else None
        if step is None or output.shape[:-1] != args[0].shape[:-1]:
            return None
        if name in ("matmul", "mm"):
            other = args[1] if len(args) > 1 else next(iter(kwargs.values()))
            if self.step(other) is not None or other.dim() != 2:
                return None
        return self._module(step, ModuleCall.of_function(function, args, kwargs, output))

    def _other(self, name: str, function: Any, args: Any, kwargs: Any, output: Tensor) -> LinearStep | None:
        return self.step(args[0]) if name.startswith("dropout") else None  # readings are those before dropout

    def _unknown(self, name: str, args: Any, output: Tensor, within: str) -> None:
        known = next((each for each in args if self.step(each) is not None), None)
        if name != "get" and known is not None and output.shape[:-1] == known.shape[:-1]:
            self.lost = self.lost or name

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
            call = ModuleCall(f"{name!r} ({type(module).__name__})", module, input, output, args[1:])
            self._steps.put(output, self._module(step, call))

    def _module(self, step: LinearStep, call: ModuleCall) -> ModuleStep:
        self.last, self.lost = ModuleStep(step, call), ""
        return self.last


def _is_broken(step: LinearStep, result_step: LinearStep) -> bool:
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
