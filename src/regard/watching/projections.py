"""Finds the projection of the heads of each attention call: the module that takes them side by side.

It is recognized by its input after the attention call: rows that are the outputs of all heads. PyTorch's own attention
functions project themselves, with weights among their arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ArgumentError
from regard.watching.attention_call import AttentionCall
from regard.watching.linear_maps import ModuleCall, first_tensor, wide_tensor
from regard.watching.logit_path import LogitPath
from regard.watching.residual_stream import ResidualStream
from regard.watching.thread_state import STATE, without_mode
from regard.watching.write_steps import HeadsWrite
from regard.watching.write_tracking import WriteTracking

Arguments = ParamSpec("Arguments")

NO_PROJECTION = "no output projection was found: no module is called with the outputs of its heads side by side"


@dataclass(eq=False)
class ExpectedProjection:
    """An attention call whose projection was not called yet.

    Attributes:
        value: ``[batch, heads, keys, value_dim]``; None: unknown.
        rows: the outputs of its heads, ``[batch * queries, heads * value_dim]``; None: not known yet.
    """

    call: AttentionCall
    value: Tensor | None
    rows: Tensor | None = None


@dataclass(eq=False)
class _RunningModule:
    """A running module, its arguments before any hook, and the call whose heads it projects."""

    module: nn.Module
    args: tuple[Any, ...]
    expected: ExpectedProjection | None
    rows: Tensor | None
    remove: Callable[[], None] | None = None
    output: Any = None


def _noted(method: Callable[Concatenate[Any, Arguments], None]) -> Callable[Concatenate[Any, Arguments], None]:
    """Wraps a method that follows the model's run, so that no error in it ends the run."""

    @wraps(method)
    def noted(self: Any, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            without_mode(lambda: method(self, *args, **kwargs))
        except Exception as error:
            self.give_up(f"{type(error).__name__}: {error}")

    return noted


class Projections:
    """Finds the projections of one context's calls.

    Args:
        names: the names of the model's modules, by their ``id``.
        norms: whether the norms of projected values are wanted.
        stream: follows the outputs of projected heads; None: they are not wanted.
        writes: follows what is written to the residual stream to queries and keys; None: this is not wanted.
    """

    def __init__(
        self, names: dict[int, str], norms: bool, stream: ResidualStream | None, writes: WriteTracking | None = None
    ):
        self._names, self._norms, self._stream, self._writes = names, norms, stream, writes
        self._tracking = [each for each in (stream, writes) if each is not None]
        self._expected: ExpectedProjection | None = None
        self._running: list[_RunningModule] = []
        self._in_forward: list[tuple[AttentionCall, HeadsWrite]] = []
        self._norms_of: list[tuple[AttentionCall, Tensor]] = []
        self._refused: dict[int, AttentionCall] = {}

    def expect(self, call: AttentionCall, value: Tensor | None) -> None:
        """Waits for the projection of a call, with the values ``[batch, heads, keys, value_dim]``; None: unknown."""
        self._expected = None
        self._refuse(call, NO_PROJECTION)
        if self._norms and value is None:
            self._refuse(call, "its values are unknown")
        else:
            self._expected = ExpectedProjection(call, None if value is None else value.detach())

    def heads(self, output: Tensor) -> Tensor:
        """Stores and returns the output of the last call's heads, ``[batch, heads, queries, value_dim]``."""
        self._note_rows(output.detach())
        return output

    @_noted
    def _note_rows(self, output: Tensor) -> None:
        if self._expected is not None and output.numel():
            self._expected.rows = output.transpose(1, 2).flatten(2).flatten(0, 1)

    @_noted
    def begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Handles the call of a module."""
        if self._writes is not None and self._names.get(id(module)) == "":
            self._writes.begin_forward(args)
        expected, rows = self._expected, None
        tensors = [each for each in args if isinstance(each, Tensor)]
        is_inside = any(running.expected for running in self._running)
        if expected is not None and expected.rows is not None and len(tensors) == 1 and args[0] is tensors[0]:
            rows = None if is_inside else matched_rows(tensors[0], expected.rows)
        running = _RunningModule(module, args, None if rows is None else expected, rows)
        if module._forward_hooks:
            # The result of the last hook is the module's result.
            def last(module: nn.Module, args: Any, output: Any) -> None:
                running.output = output
                self._ended(running)

            running.remove = module.register_forward_hook(last).remove
        self._running.append(running)

    @_noted
    def ends(self, module: nn.Module, output: Any) -> None:
        """Handles the return of a module, before its own hooks."""
        if not any(running.module is module for running in self._running):
            return
        while self._running[-1].module is not module:
            self._drop()  # an error ended it
        if self._running[-1].remove is None:
            self._running[-1].output = output
            self._ended(self._running[-1])

    def _drop(self) -> None:
        running = self._running.pop()
        if running.remove is not None:
            running.remove()

    def _ended(self, running: _RunningModule) -> None:
        while self._running and self._running[-1] is not running:
            self._drop()
        self._drop()
        module, name = running.module, self._names.get(id(running.module), "")
        output = first_tensor(running.output)
        if output is None or type(output) not in (Tensor, nn.Parameter):
            output = None
        input = running.args[0] if running.args else None
        if running.expected is not None and running.rows is not None and isinstance(input, Tensor):
            if output is None:
                self._refuse(running.expected.call, f"{name!r} ({type(module).__name__}) returns no plain tensor")
                self._expected = None
            elif not _is_same(input, output):
                call = ModuleCall(f"{name!r} ({type(module).__name__})", module, input, output, running.args[1:])
                self._found(running.expected, call, output, running.rows)
        if output is not None:
            for tracking in self._tracking:
                tracking.passed(name, module, running.args, output)
        if name == "" and id(module) in self._names:
            self.end_forward(running.output)

    @_noted
    def follow(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Handles a function of PyTorch: a linear one may project the heads without a module of its own."""
        if not STATE.is_opened:
            self._project(function, args, kwargs, result)
        within = self._names.get(id(self._running[-1].module), "") if self._running else ""
        for tracking in self._tracking:
            if tracking is self._writes or not STATE.is_opened:
                tracking.follow(function, args, kwargs, result, within)

    def _project(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        expected = self._expected
        name = getattr(function, "__name__", "")
        if (
            expected is None
            or expected.rows is None
            or name not in ("linear", "matmul", "mm", "addmm")
            or len(args) < 2
        ):
            return
        if any(running.expected for running in self._running) or not isinstance(result, Tensor):
            return
        at = 1 if name == "addmm" else 0
        weight = args[at + 1]
        if not isinstance(args[at], Tensor) or not isinstance(weight, Tensor) or weight.dim() != 2:
            return
        rows = matched_rows(args[at], expected.rows)
        if rows is not None:
            self._found(expected, ModuleCall.of_function(function, args, kwargs, result, at), result, rows)

    @_noted
    def projected(self, weight: Tensor, bias: Tensor | None, output: Any, batch_first: bool) -> None:
        """Handles a function of PyTorch that projected the heads of the last call with these weights.

        Its output, with the batch or the queries first, is None if it computed more than the projection.
        """
        expected, self._expected = self._expected, None
        if expected is None or expected.value is None or not expected.value.numel():
            return
        record, rows = expected.call, expected.value.transpose(1, 2).flatten(2)
        if weight.shape[-1] != rows.shape[-1]:
            return
        function = partial(F.linear, weight=weight.detach(), bias=None if bias is None else bias.detach())
        call = ModuleCall(f"the output projection of {record.name!r}", function, rows, rows)
        try:
            call.output = call.ask(rows)
        except ArgumentError as error:
            self._refuse(record, str(error))
            return
        whole, batch = first_tensor(output), record.batch
        order = None
        if whole is not None and not whole.is_nested and whole[..., 0].numel() == batch * record.queries:
            order = torch.arange(batch * record.queries, device="cpu").view(batch, -1)
            order = (order if batch_first else order.t()).reshape(whole.shape[:-1])
        self._found(expected, call, whole if order is not None else None, order)

    def _found(
        self, expected: ExpectedProjection, call: ModuleCall, output: Tensor | None, rows: Tensor | None
    ) -> None:
        """Handles a call of the projection, and its result, of which the rows are known."""
        self._expected = None
        record = expected.call
        self._refused.pop(id(record), None)
        record.unprojected = ""
        if self._norms:
            assert expected.value is not None
            try:
                matrix = call.settle().matrix().unflatten(0, (record.heads, -1))[list(record.chosen_heads)]
            except ArgumentError as error:
                self._refuse(record, str(error))
            else:
                value = expected.value[:, list(record.chosen_heads)].to(matrix.dtype)
                self._deliver(record, torch.einsum("bhkd,hdo->bhko", value, matrix).norm(dim=-1))
        if self._stream is None:
            return
        sample = call.with_constants().sampled().settle()
        if output is None or rows is None:
            reason = (
                "a kernel of PyTorch computed more than the attention at once: call the model after "
                "torch.backends.mha.set_fastpath_enabled(False)"
            )
            record.path = LogitPath(sample, reason=reason)
            return
        record.path = LogitPath(sample, reason="the model itself was not called, or did not return")
        queries = record.queries if expected.rows is None else len(expected.rows) // max(record.batch, 1)
        own = torch.empty(output.shape, device="meta") if self._writes is None else output
        heads = HeadsWrite(own, record, sample, rows, queries)
        self._in_forward.append((record, heads))
        for tracking in self._tracking:
            tracking.begin(output, heads)

    def _deliver(self, record: AttentionCall, norms: Tensor) -> None:
        if norms.device.type == "cpu":
            record.value_norms = norms
        else:
            self._norms_of.append((record, norms))

    def end_forward(self, output: Any) -> None:
        """Handles the output of the model."""
        if self._stream is not None:
            for record, heads in self._in_forward:
                record.path = LogitPath.of(heads, self._stream, output, record.batch)
        self._in_forward = []

    def settle(self) -> None:
        """Stores the norms, and forgets the model's run; raises ArgumentError if wanted norms are unknown."""
        while self._running:
            self._drop()
        self._expected, self._in_forward = None, []
        for record, norms in self._norms_of:
            record.value_norms = norms.cpu()
        self._norms_of = []
        if self._norms and self._refused:
            first = next(iter(self._refused.values()))
            others = {call.name for call in self._refused.values()} - {first.name}
            more = f" (nor for {len(others)} others)" if others else ""
            raise ArgumentError(
                f"norms=True is not possible for the attention of {first.name!r}{more}: {first.unprojected}; watch "
                "without it, or other layers"
            )

    def _refuse(self, call: AttentionCall, reason: str) -> None:
        call.unprojected = reason
        self._refused[id(call)] = call

    def give_up(self, reason: str) -> None:
        """Records why the path after the last call cannot be known."""
        expected, self._expected = self._expected, None
        if expected is not None:
            self._refuse(expected.call, reason)
        for record, heads in self._in_forward:
            record.path = LogitPath(heads.projection, reason=reason)
        self._in_forward = []


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether a module returned its input, as dropout does in evaluation."""
    if one is other:
        return True
    return one.shape == other.shape and one.device == other.device and torch.equal(one, other)


@torch.no_grad()
def matched_rows(tensor: Tensor, rows: Tensor) -> Tensor | None:
    """Returns the number of each row of a tensor among the rows ``[n, features]``; None: it has others.

    Rows may stand in another order: sequences first, or tokens without their padding.
    """
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.dim() < 1 or tensor.shape[-1] != rows.shape[-1]:
        return None
    if tensor.device != rows.device or not tensor.is_floating_point():
        return None
    flat, lead = wide_tensor(tensor.detach().reshape(-1, tensor.shape[-1])), tensor.shape[:-1]
    others = wide_tensor(rows).to(flat.dtype)
    unit = 256 * max(torch.finfo(tensor.dtype).eps, torch.finfo(rows.dtype).eps)
    count = len(others)
    if 0 < len(flat) <= count:
        orders = []
        if len(flat) == count:
            whole = torch.arange(count, device="cpu")
            orders = [whole]
            if len(lead) > 1 and count % lead[0] == 0:
                orders.append(whole.view(-1, lead[0]).t().flatten())
        for order in orders:
            if _agree(flat, others[order.to(others.device)], unit):
                return order.view(lead)
        if _agree(flat[:1], others[torch.cdist(flat[:1], others).argmin(1)], unit):
            order = torch.cat([torch.cdist(part, others).argmin(1) for part in flat.split(256)])
            if _agree(flat, others[order], unit):
                return order.cpu().view(lead)
    return None


def _agree(one: Tensor, other: Tensor, unit: float) -> bool:
    """Whether most rows are equal up to rounding; those of a query that sees no key need not be."""
    largest = other.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(other.dtype).tiny)
    return float(((one - other).abs() <= unit * largest).all(-1).double().mean()) > 0.5
