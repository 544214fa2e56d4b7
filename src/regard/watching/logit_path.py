"""The effect of a model's residual stream and output layer on the output of one projection of heads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.watching.linear_maps import ModuleCall, Normalization, first_tensor, wide_tensor
from regard.watching.residual_stream import ModuleStep, ResidualStream, SumStep
from regard.watching.write_steps import HeadsWrite, LinearStep, Moved, Scaled

PathPart = ModuleCall | Normalization | float | Tensor
"""A module that is linear; a normalization; a factor, of all features or of each."""


@dataclass(frozen=True, eq=False, repr=False)
class LogitPath:
    """The path from the output of a projection of heads to the output of the model.

    Attributes:
        projection: the projection's call.
        parts: the modules and factors on the path, in its order.
        scale: ``[batch, 1, queries]``: the product of the statistics of all normalizations, as they were in the run; 0
            for rows that the projection did not have, such as padding.
        reason: why the path is not known up to the model's output; "": it is.
    """

    projection: ModuleCall
    parts: tuple[PathPart, ...] = ()
    scale: Tensor | None = None
    reason: str = ""

    @classmethod
    def of(cls, heads: HeadsWrite, stream: ResidualStream, output: object, batch: int) -> "LogitPath":
        """Returns the path from some heads to the output of the model, as far as it is known."""
        end, reason = _last_step(heads, stream, output)
        path = cls(heads.projection, reason=reason)
        if end is None:
            return path
        try:
            parts, scale = _parts(_steps_after(heads, end), heads, batch * heads.queries)
        except ArgumentError as error:
            return replace(path, reason=str(error))
        return replace(path, parts=tuple(parts), scale=scale.view(batch, 1, heads.queries).cpu())

    def before(self, features: int) -> "LogitPath":
        """Returns the path up to the last position with so many features; raises an error if there is none."""
        for last in range(len(self.parts), -1, -1):
            path = replace(self, parts=self.parts[:last], reason="" if self._leaves_output(last) else self.reason)
            if path.features == features and not path.reason:
                return path
        if self.reason:
            raise ArgumentError(self.reason)
        last = max((number for number, part in enumerate(self.parts) if isinstance(part, ModuleCall)), default=None)
        own = replace(self, parts=self.parts[:last]).features
        raise ShapeError(f"unembedding must be [vocabulary, {own}]; it has {features} features")

    def directions(self, ids: Tensor, unembedding: Tensor | None) -> Tensor:
        """Returns the effect of each projected feature on logits before ``scale``, ``[tokens, features]``.

        The path ends in the ``unembedding``; None: in logits. ArgumentError is raised if something on the path is not
        linear.
        """
        directions = None if unembedding is None else wide_tensor(unembedding.detach().cpu()[ids])
        factor: float | Tensor = 1.0  # of the logits, before the output layer is reached
        for part in reversed(self.parts):
            if isinstance(part, ModuleCall):
                matrix = part.matrix(ids if directions is None else None).cpu()
                directions = matrix.t() * factor if directions is None else directions.to(matrix.dtype) @ matrix.t()
            elif directions is not None:
                directions = part.back(directions) if isinstance(part, Normalization) else directions * part
            elif isinstance(part, Normalization):
                raise ArgumentError("the logits themselves are normalized after the output layer")
            else:
                factor = factor * (part[ids, None] if isinstance(part, Tensor) and part.numel() > 1 else part)
        assert directions is not None
        return directions

    @property
    def has_output_layer(self) -> bool:
        """Whether a module made the model's output from features of the residual stream."""
        return not self.reason and any(isinstance(part, ModuleCall) for part in self.parts)

    @property
    def features(self) -> int:
        """How many features there are at the end of the path: logits, if it leads to the model's output."""
        for part in reversed(self.parts):
            if isinstance(part, ModuleCall):
                return part.output.shape[-1]
        return self.projection.output.shape[-1]

    def _leaves_output(self, last: int) -> bool:
        """Whether the parts before one of this number are followed by a module, whose result is not needed."""
        return self.scale is not None and any(isinstance(part, ModuleCall) for part in self.parts[last:])


def _last_step(heads: HeadsWrite, stream: ResidualStream, output: object) -> tuple[LinearStep | None, str]:
    """Returns the last step of a path, and why it is not that of the model's output."""
    logits = _logits(output)
    step = stream.step(logits)
    if step is not None and heads.number in step.costs:
        return step, ""
    last = stream.last if stream.last is not None and heads.number in stream.last.costs else None
    if last is None:
        lost = f"; the model applies the function {stream.lost!r}, which is not followed" if stream.lost else ""
        return None, (
            f"nothing that follows the projection of the heads adds its output to what the model returns{lost}"
        )
    after = f"the function {stream.lost!r}" if stream.lost else "something"
    return last, (
        f"the model's output is not linear in the residual stream: after {last.call.name}, the model applies {after}, "
        "which is not followed"
    )


def _logits(output: Any) -> Tensor | None:
    """Returns the logits in a model's output: a tensor, ``output.logits``, or the first tensor of a tuple with axes."""
    if isinstance(output, dict):
        output = output.get("logits", next(iter(output.values()), None))
    elif not isinstance(output, (Tensor, tuple, list)):
        output = getattr(output, "logits", None)
    if isinstance(output, (tuple, list)):
        output = next((each for each in output if isinstance(each, Tensor) and each.dim() > 1), None)
    return first_tensor(output)


def _steps_after(heads: HeadsWrite, end: LinearStep) -> list[LinearStep]:
    """Returns the steps from some heads to the last one, in order; raises ArgumentError if there are several paths."""
    steps, step = [], end
    while step is not heads:
        steps.append(step)
        before = step.before(heads.number)
        if len(before) != 1 or (isinstance(step, SumStep) and step.is_forked):
            raise ArgumentError(f"the output of {heads.projection.name} reaches the model's output by several ways")
        step = before[0]
    return steps[::-1]


def _parts(steps: Sequence[LinearStep], heads: HeadsWrite, count: int) -> tuple[list[PathPart], Tensor]:
    """Returns the parts of a path, and the product of the statistics of its normalizations for each row."""
    rows, parts = heads.rows, []
    scale = torch.zeros(count, dtype=torch.float64, device="cpu")
    scale[rows.flatten()] = 1
    is_summed, normalized = False, ""
    for step in steps:
        if isinstance(step, SumStep) and step.adds_to(heads.number):
            if normalized:
                raise ArgumentError(
                    f"{normalized} normalizes the residual stream itself, and more is added to it afterwards "
                    "(post-norm): no head adds anything directly to the logits there; measure its effect with ablate"
                )
            is_summed = True
        elif isinstance(step, Moved):
            rows = _moved(step, rows, heads)
        elif isinstance(step, Scaled):
            parts.append(step.factor.cpu() if isinstance(step.factor, Tensor) else step.factor)
        elif isinstance(step, ModuleStep):
            kind = step.kind
            parts.append(kind)
            if isinstance(kind, Normalization):
                if is_summed and not kind.is_linear:
                    normalized = step.call.name
                factor = torch.zeros(count, dtype=torch.float64, device="cpu")
                factor[rows.flatten()] = kind.factor.flatten().double().cpu()
                present = torch.zeros(count, dtype=torch.bool, device="cpu")
                present[rows.flatten()] = True
                if bool((~present & (scale != 0)).any()):
                    raise ArgumentError(
                        f"{step.call.name} normalizes some positions only: call the model so that it computes the "
                        "logits of all"
                    )
                scale = scale * factor
    return parts, scale


def _moved(step: Moved, rows: Tensor, heads: HeadsWrite) -> Tensor:
    """Returns the positions of the rows after their elements were moved."""
    features = step.parents[0].shape[-1]
    moved = step.move(rows[..., None].expand(*rows.shape, features))
    if moved.shape[-1] != features or bool((moved != moved[..., :1]).any()):
        raise ArgumentError(f"after {heads.projection.name}, features of several positions are joined or split")
    return moved[..., 0]
