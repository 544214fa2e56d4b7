"""Finds a module's effect on features by calling the module itself, not from its parameters.

Parameters say little about a module: it may be adapted, parametrized, quantized or hooked, and its weights may be
elsewhere until it runs. So it is called with inputs of its own shape: with the axes of the features and with zeros,
which yield the matrix and the constant of a linear module; and with one vector, which yields the gain of a
normalization. Both are compared with the module's output in the model's own run.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.tracing.module_calls import is_observed, runs
from regard.watching.thread_state import STATE, leave_mode, return_to_mode

Function = Callable[..., Any]

AXIS_LENGTH = 64.0
"""The length of probing axes: a power of two larger than usual constants, which would take their digits in half
precision."""

OUTPUTS_LIMIT = 1 << 24
"""The most outputs of probing inputs that are in memory at once."""

SAMPLE_ROWS = 8
"""The number of rows of the model's own run that are stored for comparison."""


def autocast_of(tensor: Tensor) -> Callable[[], AbstractContextManager[object]]:
    """Makes contexts with the autocast that is on now for the device of a tensor.

    A module is called again as it was called in the model's own run.
    """
    kind = tensor.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext
    # The model must not read a cached weight that was rounded without a gradient.
    return partial(torch.autocast, kind, torch.get_autocast_dtype(kind), cache_enabled=False)


@contextmanager
def _apart(
    function: Function, tensor: Tensor, autocast: Callable[[], AbstractContextManager[object]]
) -> Iterator[None]:
    """Runs a call apart from the model's run: unwatched, without dropout and gradient; random numbers are restored."""
    training = [each for each in function.modules() if each.training] if isinstance(function, nn.Module) else []
    device = tensor.device
    observers, above = STATE.observers, leave_mode()
    STATE.observers = []
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(autocast())
            devices = [] if device.type == "cpu" else [device]
            stack.enter_context(torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"))
            # Modules may do more in `train` than set the mode: some merge their adapters.
            for each in training:
                each.training = False
            yield
    finally:
        for each in training:
            each.training = True
        STATE.observers = observers
        return_to_mode(above)


@dataclass(eq=False)
class ModuleCall:
    """One call of a module, or of a function with its parameters, in the model's own run.

    Attributes:
        name: the name for messages.
        input, output: the first argument, and the (first) result, ``[..., features]``.
        others: further arguments.
        is_sample: whether these are a few of the rows.
        refusal: why the module cannot be called again; "": it can.
        constants: the output for zeros, if it was computed in the run.
    """

    name: str
    function: Function
    input: Tensor
    output: Tensor
    others: tuple[Any, ...] = ()
    is_sample: bool = False
    refusal: str = ""
    constants: Tensor | None = None

    def __post_init__(self) -> None:
        self.input, self.output = self.input.detach(), self.output.detach()
        self.autocast = autocast_of(self.input)

    @classmethod
    def of_function(cls, function: Function, args: Any, kwargs: Any, output: Tensor, at: int = 0) -> "ModuleCall":
        """Returns the call of a function of PyTorch; ``at`` is the number of the argument that is its input."""
        before, after, options = args[:at], args[at + 1 :], dict(kwargs)
        name = f"the function {getattr(function, '__name__', '')!r} in the model's own code"
        return cls(name, lambda input: function(*before, input, *after, **options), args[at], output)

    def ask(self, input: Tensor) -> Tensor:
        """Returns the function's result for another input; raises ArgumentError if it cannot be called."""
        try:
            with _apart(self.function, input, self.autocast):
                output = first_tensor(self.function(input, *self.others))
        except Exception as error:  # a module of another library may raise anything
            raise ArgumentError(
                f"{self.name} cannot be called on its own: {type(error).__name__}: {error}{_where(self.function)}"
            ) from error
        if output is None or type(output) not in (Tensor, nn.Parameter):
            raise ArgumentError(
                f"{self.name} returns no plain tensor when it is called on its own"
                f"{'' if output is None else f', but a {type(output).__name__}'}"
            )
        return output.detach()

    def sampled(self) -> "ModuleCall":
        """Returns the same call with a few of its rows, copied."""
        rows = self.input.reshape(-1, self.input.shape[-1])
        chosen = (
            torch.linspace(0, max(len(rows) - 1, 0), min(SAMPLE_ROWS, len(rows)), device="cpu").round().long().unique()
        )
        chosen = chosen.to(rows.device)
        lead = (1,) * (self.input.dim() - 2) + (len(chosen),) if self.input.dim() > 1 else ()
        input = rows[chosen].reshape(*lead, -1)
        output = self.output.reshape(-1, self.output.shape[-1])[chosen].reshape(*lead, -1)
        sample = ModuleCall(self.name, self.function, input, output, self.others)
        sample.autocast = self.autocast
        if self.constants is not None:
            sample.constants = self.constants.reshape(-1, self.output.shape[-1])[chosen].reshape(*lead, -1)
        sample.is_sample = True
        return sample

    def with_constants(self) -> "ModuleCall":
        """Adds the constants if there are hooks, which may add others at other positions; errors are raised later."""
        function = self.function
        if isinstance(function, nn.Module) and any(each._forward_hooks for each in function.modules()):
            try:
                self.constants = self.ask(torch.zeros_like(self.input))
            except ArgumentError as error:
                self.refusal = str(error)
        return self

    def settle(self) -> "ModuleCall":
        """Replaces the output of a run with dropout by the module's output without it; errors are raised later."""
        if self._is_random and not self.refusal:
            try:
                self.output = self.ask(self.input)
            except ArgumentError as error:
                self.refusal = str(error)
        return self

    def matrix(self, columns: Sequence[int] | Tensor | None = None) -> Tensor:
        """Returns the matrix of a linear module, ``[features, outputs]``, in float32 or wider; some columns, or all.

        It raises ArgumentError if the module cannot be called, or if the matrix does not yield the module's output in
        the model's own run.
        """
        if self.refusal:
            raise ArgumentError(self.refusal)
        chosen = slice(None) if columns is None else torch.as_tensor(columns, device=self.output.device)
        if is_plain_linear(self.function):
            own: Any = self.function
            weight, constant = own.weight.detach()[chosen].t(), own.bias
            matrix = wide_tensor(weight)
            constant = matrix.new_zeros(matrix.shape[1]) if constant is None else wide_tensor(constant.detach())[chosen]
            constants = constant.expand(*self.output.shape[:-1], -1)
        else:
            matrix = self._asked_matrix(chosen)
            constants = self.ask(torch.zeros_like(self.input)) if self.constants is None else self.constants
            constants = wide_tensor(constants)[..., chosen]
        self._compare(matrix, constants, wide_tensor(self.output)[..., chosen])
        return matrix

    def constant(self) -> Tensor:
        """Returns the output of a linear module for zeros, ``[outputs]``, in float32 or wider."""
        constants = self.ask(torch.zeros_like(self.input)) if self.constants is None else self.constants
        return wide_tensor(constants).reshape(-1, constants.shape[-1])[0]

    @property
    def _is_random(self) -> bool:
        """Whether the run may have dropped features."""
        function = self.function
        if not isinstance(function, nn.Module) or is_plain_linear(function):
            return False
        return any(each.training for each in function.modules())

    def _asked_matrix(self, chosen: Any) -> Tensor:
        features, outputs = self.input.shape[-1], self.output.shape[-1]
        lead, parts = (1,) * (self.input.dim() - 2), []
        for first in range(0, features, max(1, OUTPUTS_LIMIT // max(outputs, features))):
            count = min(features - first, max(1, OUTPUTS_LIMIT // max(outputs, features)))
            axes = self.input.new_zeros(count, features)
            axes[torch.arange(count), torch.arange(first, first + count)] = AXIS_LENGTH
            axes = axes.reshape(*lead, count, features) if self.input.dim() > 1 else axes
            moved = wide_tensor(self.ask(axes)[..., chosen]) - wide_tensor(
                self.ask(torch.zeros_like(axes))[..., chosen]
            )
            parts.append(moved.reshape(count, -1) / AXIS_LENGTH)
        return torch.cat(parts)

    def _compare(self, matrix: Tensor, constants: Tensor, output: Tensor) -> None:
        input = wide_tensor(self.input).to(matrix.dtype)
        expected = input @ matrix + constants
        unit = rounding(self.input, self.output)
        allowed = 8 * matrix.shape[0] ** 0.5 * (input.abs() @ matrix.abs()) + 4 * (constants.abs() + output.abs())
        wrong = (expected - output).abs() > unit * allowed + torch.finfo(matrix.dtype).tiny
        if bool(wrong.any()):
            worst = (expected - output).abs().amax() / output.abs().amax().clamp(min=torch.finfo(matrix.dtype).tiny)
            raise ArgumentError(
                f"{self.name} is not linear: its output in the model's run differs by {worst:.1g} of the largest "
                "element from the sum of its outputs for the parts of the input, or its weights have changed since"
            )

    def normalization(self) -> "Normalization | None":
        """Returns the call as a normalization of each row; None if it is none."""
        features = self.input.shape[-1]
        if self.output.shape != self.input.shape or not self.input.numel():
            return None
        probe = self.input.new_ones(features)
        probe[1::2] = -1
        if features % 2 and features > 1:
            probe[:3] = probe.new_tensor([1, 1, -2])
            probe[3:] = probe.new_ones(features - 3)
            probe[4::2] = -1
        probe = probe.reshape(*(1,) * (self.input.dim() - 1), features)
        constant = wide_tensor(self.ask(torch.zeros_like(probe)))
        of_probe = wide_tensor(self.ask(probe)) - constant
        of_shifted = wide_tensor(self.ask(probe + 1)) - constant
        unit = rounding(self.input, self.output)
        gain = (of_probe / wide_tensor(probe)).flatten()
        # Subtracting the mean first removes a common addend.
        centered = bool(((of_shifted - of_probe).abs() <= 64 * unit * (of_probe.abs() + constant.abs())).all())
        rows, output = wide_tensor(self.input), wide_tensor(self.output)
        if centered and features > 1:
            rows = rows - rows.mean(-1, keepdim=True)
        scaled, moved = rows * gain, output - constant
        factor = (moved * scaled).sum(-1) / scaled.square().sum(-1).clamp(min=torch.finfo(scaled.dtype).tiny)
        largest = output.abs().amax(-1, keepdim=True) + constant.abs()
        wrong = (moved - factor[..., None] * scaled).abs() > 64 * unit * largest
        if bool(wrong.any()) or not bool(factor.isfinite().all()):
            return None
        return Normalization(gain.cpu(), centered and features > 1, factor)


@dataclass(eq=False)
class Normalization:
    """A normalization of rows whose statistics are those of one run.

    .. math:: y_i = s_i \\, g \\odot (x_i - \\bar x_i) + c

    Attributes:
        gain: :math:`g`, ``[features]``.
        centered: whether the mean is subtracted.
        factor: :math:`s`, for each row.
    """

    gain: Tensor
    centered: bool
    factor: Tensor

    @property
    def is_linear(self) -> bool:
        """Whether all rows had the same factor, so that the module has no statistics of a row."""
        low, high = self.factor.amin(), self.factor.amax()
        return bool((high - low).abs() <= 1e-3 * high.abs()) and self.factor.numel() > 1

    def back(self, directions: Tensor) -> Tensor:
        """Returns the directions before the normalization of those after it, without the factors of rows."""
        directions = directions * self.gain.to(directions.dtype)
        return directions - directions.mean(-1, keepdim=True) if self.centered else directions


def is_plain_linear(function: object) -> bool:
    """Whether a function is `torch.nn.Linear` and nothing else, with parameters that can be read."""
    return (
        type(function) is nn.Linear
        and runs(function, nn.Linear.forward)
        and not is_observed(function)
        and all(
            each is None or (type(each) in (Tensor, nn.Parameter) and each.device.type != "meta")
            for each in (function.weight, function.bias)
        )
    )


def _where(function: object) -> str:
    """Returns why a module may not run on its own: where its parameters are."""
    parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
    if any(hasattr(each, "full_tensor") for each in parameters):
        return "; its parameters are sharded: call unshard() of the modules that fully_shard was applied to, first"
    if any(each.device.type == "meta" for each in parameters):
        return "; its parameters are on the meta device, and have no elements"
    return ""


def first_tensor(output: object) -> Tensor | None:
    """Returns the result of a module: the tensor itself, or the first one of a tuple."""
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


def wide_tensor(tensor: Tensor) -> Tensor:
    """Returns the tensor in float32, or in the wider type that it has."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def rounding(*tensors: Tensor) -> float:
    """Returns the rounding unit of the least precise of some tensors, as products on their device have it.

    It is at least that of float32, in which many normalizations compute whatever the dtype of their input.
    """
    unit = max(torch.finfo(dtype).eps for dtype in (torch.float32, *(tensor.dtype for tensor in tensors)))
    reduced = tensors[0].device.type != "cpu" and torch.get_float32_matmul_precision() != "highest"
    return max(unit, 2.0**-10) if reduced else unit
