"""The runs behind `regard.patch`: unpatched ones, those with one place patched, and the gradient of all places."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.readings import Readings
from regard.errors import ArgumentError, KindError, RegardError, ShapeError, UnseenError
from regard.shapes.checks import type_text
from regard.watching.attention_call import AttentionCall
from regard.watching.change import Change
from regard.watching.intervention import intervene
from regard.watching.patched import PatchingWarning
from regard.watching.watch import watch

if TYPE_CHECKING:
    from rich.progress import Progress

Inputs = Tensor | Mapping[str, Any] | tuple[Any, ...]
"""One call of the model: its ids, its keyword arguments, or its positional arguments."""

Metric = Callable[[Any], Tensor | float]
"""A function of the model's output: a scalar, or a number for each batch row."""

ReceiverPart = Literal["query", "key", "values"]

KEYED = ("values", "key")
"""What has an axis of keys; everything else has one of queries."""


class Receiver(NamedTuple):
    """The end of a path: one head's query, key or values."""

    layer: int
    head: int
    part: ReceiverPart
    kind: Literal["self", "cross"] = "self"


class PatchedCell(NamedTuple):
    """One cell of a table: its row, the index of its head among the chosen ones, and its position; None: all."""

    row: int
    head: int | None
    position: int | None

    @property
    def indices(self) -> tuple[int, ...]:
        """Its indices in the table."""
        return tuple(number for number in self if number is not None)

    def of(self, tensor: Tensor) -> Tensor:
        """Returns this cell of ``[batch, chosen heads, positions, ...]``."""
        tensor = tensor if self.head is None else tensor[:, self.head : self.head + 1]
        return tensor if self.position is None else tensor[:, :, self.position : self.position + 1]


class Site(NamedTuple):
    """An attention call of the model's forward pass.

    Attributes:
        call: its record.
        number: among the calls of its layer and kind, which a change cannot tell apart: those of encoder and decoder.
        alone: whether it is the only one of them.
    """

    call: AttentionCall
    number: int
    alone: bool

    @property
    def kind(self) -> Literal["self", "cross"]:
        return "cross" if self.call.kind == "cross" else "self"

    def change(
        self,
        what: Any,
        to: Tensor | Callable[[Tensor], Tensor],
        heads: int | Sequence[int] | None = None,
        position: int | None = None,
    ) -> Change:
        """Returns the change of this call in one run of the model."""
        numbers = count()

        def changed(current: Tensor) -> Tensor:
            if next(numbers) != self.number:
                return current
            return to if isinstance(to, Tensor) else to(current)

        side: Any = {"keys" if what in KEYED else "queries": position}
        return Change(what, to if self.alone else changed, layer=self.call.layer, head=heads, kind=self.kind, **side)


@dataclass(frozen=True)
class Patching:
    """A model with its metric, and what is patched: arguments of `regard.patch`."""

    model: nn.Module
    metric: Metric
    over: str
    what: Any
    layers: tuple[int, ...] | None
    heads: tuple[int, ...] | None
    kind: Any
    receivers: tuple[Receiver, ...] | Literal["output"]

    def run(self, inputs: Inputs, *changes: Change) -> Tensor:
        """Returns the metric of one run, a number for each example."""
        return _numbers(self.metric(self._output(inputs, changes)))

    def _output(self, inputs: Inputs, changes: Sequence[Change]) -> Any:
        with intervene(self.model, *changes) if changes else nullcontext():
            if isinstance(inputs, Mapping):
                return self.model(**inputs)
            return self.model(*(inputs if isinstance(inputs, tuple) else (inputs,)))

    def watched(self, inputs: Inputs, *changes: Change) -> tuple[Tensor, list[Site]]:
        """Returns the metric of one run, and its attention calls."""
        with watch(self.model, read=Readings()) as seen:
            output = self._output(inputs, changes)
        groups: dict[tuple[int, bool], list[AttentionCall]] = {}
        sites = []
        for call in seen.calls:
            group = groups.setdefault((call.layer, call.kind == "cross"), [])
            sites.append((call, len(group), group))
            group.append(call)
        return _numbers(self.metric(output)), [Site(call, number, len(group) == 1) for call, number, group in sites]

    def captured(self, inputs: Inputs, what: Any, **where: Any) -> tuple[Tensor, list[Site], list[Tensor]]:
        """Returns the metric of one run, its attention calls, and what the calls have that a `Change` names."""
        captured: list[Tensor] = []

        def capture(current: Tensor) -> Tensor:
            captured.append(current.detach().clone())  # a view would hold more, and may be changed in place
            return current

        return *self.watched(inputs, Change(what, capture, **where)), captured

    def chosen(self, sites: Sequence[Site]) -> list[Site]:
        """Returns the calls of the chosen layers and kind, in their order; raises ArgumentError for those not there."""
        of_kind = [site for site in sites if self.kind in (None, site.kind)]
        known = {site.call.layer for site in of_kind}
        if not of_kind:
            raise ArgumentError(f"kind must be one that the model has; it called no attention of kind {self.kind!r}")
        if not known.issuperset(self.layers or ()):
            raise ArgumentError(f"layers must be among {sorted(known)}; they are {list(self.layers or ())}")
        chosen = [site for site in of_kind if self.layers is None or site.call.layer in self.layers]
        for call in (site.call for site in chosen):
            if max(self.heads or (0,)) >= call.heads:
                raise ArgumentError(f"heads must be below {call.heads}, those of {call.name!r}; they are {self.heads}")
        return chosen

    def end(self, receiver: Receiver, sites: Sequence[Site]) -> Site:
        """Returns the call of a receiver: the last one of its layer and kind, which is that of the decoder."""
        named = [site for site in sites if (site.call.layer, site.kind) == (receiver.layer, receiver.kind)]
        if not named or receiver.head >= named[-1].call.heads:
            raise ArgumentError(
                f"receiver must be a head of the model; layer {receiver.layer} has no head {receiver.head} of "
                f"{receiver.kind}-attention"
            )
        return named[-1]


class PatchedBatch:
    """The runs on one batch of inputs.

    Attributes:
        source: the metric of the run from which places are taken, a number for each example.
        base: that of the run that is patched, without a patch; known after `run` or `gradient`.
        rows: the calls that are patched: with receivers, those before the last one.
        cells: those of the whole table.
    """

    base: Tensor

    def __init__(self, patching: Patching, base: Inputs, source: Inputs):
        self._patching, self._inputs, self._source_inputs = patching, base, source
        self._frozen: list[Tensor] = []
        self._tensors: dict[int, Tensor] = {}
        if patching.what == "weights":
            self.source, self._sites = patching.watched(source)
        else:
            where = {"layer": patching.layers, "head": patching.heads, "kind": patching.kind}
            try:
                self.source, self._sites, tensors = patching.captured(source, patching.what, **where)
            except RegardError:
                patching.chosen(patching.watched(source)[1])  # names the argument, if it is one
                raise
            chosen = patching.chosen(self._sites)
            if len(tensors) != len(chosen):
                names = ", ".join(repr(site.call.name) for site in chosen)
                raise UnseenError(f"{len(tensors)} attention calls can be changed, in place of {len(chosen)}: {names}")
            self._tensors = dict(enumerate(tensors))
        receivers = () if patching.receivers == "output" else patching.receivers
        self._ends = {receiver: patching.end(receiver, self._sites) for receiver in receivers}
        before = max((self._sites.index(site) for site in self._ends.values()), default=len(self._sites))
        self.rows = [site for site in patching.chosen(self._sites) if self._sites.index(site) < before]
        if not self.rows:
            raise ArgumentError("layers, kind and receiver leave no attention call to patch")
        self.cells = self._all_cells()

    def _all_cells(self) -> list[PatchedCell]:
        patching, cells = self._patching, []
        by_position = patching.over == "positions"
        by_head = patching.over == "heads" or (by_position and patching.heads is not None)
        for row, site in enumerate(self.rows):
            heads = range(site.call.heads if patching.heads is None else len(patching.heads))
            positions = range(site.call.keys if patching.what in KEYED else site.call.queries)
            for head in heads if by_head else (None,):
                cells += [PatchedCell(row, head, position) for position in (positions if by_position else (None,))]
        return cells

    def table(self) -> Tensor:
        """Returns a table ``[examples, rows, ...]`` of NaN for all places."""
        sizes = (1 + max(numbers) for numbers in zip(*(cell.indices for cell in self.cells), strict=True))
        return torch.full((len(self.source), *sizes), torch.nan, dtype=torch.float64)

    def run(self) -> None:
        """Runs the model without a patch."""
        if self._patching.receivers:
            base, sites, self._frozen = self._patching.captured(self._inputs, "output")
        else:
            base, sites = self._patching.watched(self._inputs)
        self._compare(base, sites)

    def measure(self, cell: PatchedCell) -> Tensor:
        """Returns the metric of the run in which one place is patched."""
        patching, site, tensor = self._patching, self.rows[cell.row], cell.of(self._tensor(cell.row))
        if patching.receivers:
            return self._by_paths(cell, tensor)
        heads = patching.heads
        if cell.head is not None:
            heads = cell.head if heads is None else heads[cell.head]
        return patching.run(self._inputs, site.change(patching.what, tensor, heads, cell.position))

    def gradient(self) -> Callable[[PatchedCell], Tensor]:
        """Returns the metric of each place's run to first order: by its derivative by the share of the patch, at 0."""
        rows = list(enumerate(self.rows))
        # One layer's weights at a time: they are the largest tensors of a run.
        groups = [[each] for each in rows] if self._patching.what == "weights" else [rows]
        effects = [effect for group in groups for effect in self._first_order(group)]
        return lambda cell: self.base + effects[cell.row][:, cell.head or 0, cell.position or 0]

    def _first_order(self, rows: Sequence[tuple[int, Site]]) -> list[Tensor]:
        """Returns the derivatives by the shares of rows' patches, ``[examples, heads or 1, positions or 1]``."""
        first, changes, shares = self.cells[0], [], []
        for row, site in rows:
            source = self._tensor(row)
            heads = 1 if first.head is None else source.shape[1]
            positions = 1 if first.position is None else source.shape[2]
            share = torch.zeros(
                (len(source), heads, positions, 1),
                dtype=torch.promote_types(source.dtype, torch.float32),
                device=source.device,
                requires_grad=True,
            )
            shares.append(share)
            changes.append(site.change(self._patching.what, partial(_mixed, source, share), self._patching.heads))
        with torch.enable_grad():
            base, sites = self._patching.watched(self._inputs, *changes)
            self._compare(base, sites)
            some = torch.autograd.grad(base.sum(), shares, allow_unused=True) if base.requires_grad else ()
        if all(gradient is None for gradient in some):
            raise ArgumentError(
                'metric must have a gradient for method="gradient"; there is none from it to what is patched: argmax, '
                'item(), NumPy and detach() have none, nor has torch.inference_mode. Or write method="exact"'
            )
        gradients = [share.detach() if one is None else one for share, one in zip(shares, some, strict=True)]
        examples = len(self.base)
        batches = [len(gradient) for gradient in gradients if len(gradient) % examples]
        if batches:
            raise ArgumentError(
                f'metric must be a scalar for method="gradient", or have one number for each batch row: it has '
                f"{examples} numbers, and attention has {batches[0]} rows"
            )
        # The windows of an image are rows of its batch.
        return [gradient[..., 0].unflatten(0, (examples, -1)).sum(1) for gradient in gradients]

    def _tensor(self, row: int) -> Tensor:
        """Returns what the source run had, ``[batch, chosen heads, ...]``; of weights, those of one call are kept."""
        if row not in self._tensors:
            self._tensors.clear()
            take = partial(_stored, self._tensors, row)
            with torch.no_grad():
                self._patching.run(self._source_inputs, self.rows[row].change("weights", take, self._patching.heads))
        return self._tensors[row]

    def _compare(self, base: Tensor, sites: Sequence[Site]) -> None:
        """Checks that both unpatched runs are alike and have finite metrics."""
        for site, other in zip(sites, self._sites, strict=False):
            _check_alike(site.call.name, list(site.call.shape), list(other.call.shape))
        if len(sites) != len(self._sites) or base.shape != self.source.shape:
            raise ShapeError(
                f"clean and corrupted must have equally many examples; there are {len(self.source)} and {len(base)} "
                f"numbers of the metric, and {len(self._sites)} and {len(sites)} attention calls"
            )
        for numbers in (self.source, base):
            if not bool(numbers.isfinite().all()):
                raise ArgumentError(f"metric must be finite without a patch; it is {numbers.tolist()[:9]}")
        self.base = base.detach()

    def _by_paths(self, cell: PatchedCell, tensor: Tensor) -> Tensor:
        """Returns the metric where a sender's output acts through the receivers alone, and without other heads."""
        patching, changes = self._patching, []
        for site, frozen in zip(self._sites, self._frozen, strict=True):
            if site is self.rows[cell.row]:
                frozen, heads = frozen.clone(), list(patching.heads or range(site.call.heads))
                patched = frozen[:, heads]
                cell.of(patched).copy_(tensor)
                frozen[:, heads] = patched
            changes.append(site.change("output", frozen))
        if patching.receivers == "output":
            return patching.run(self._inputs, *changes)
        reached: dict[Receiver, Tensor] = {}
        ends = self._ends.items()
        takes = [site.change(end.part, partial(_stored, reached, end), end.head) for end, site in ends]
        patching.run(self._inputs, *changes, *takes)
        return patching.run(self._inputs, *(site.change(end.part, reached[end], end.head) for end, site in ends))


class Measured(NamedTuple):
    """The metrics of all batches: of unpatched runs ``[examples]``, and of patched ones ``[examples, rows, ...]``."""

    calls: tuple[AttentionCall, ...]
    base: Tensor
    source: Tensor
    metrics: Tensor


def measure(
    patching: Patching,
    pairs: Sequence[tuple[Inputs, Inputs]],
    bar: "Progress",
    by_gradient: bool,
    selected: Tensor | None = None,
) -> Measured:
    """Measures the places of all batches, each a pair of inputs: those that are patched, and those that are the source.

    Args:
        bar: shows the progress.
        by_gradient: whether to measure by the gradient.
        selected: bool ``[rows, ...]``, the places that are measured; None: all.
    """
    batches: list[Measured] = []
    task = bar.add_task("patching", total=None)
    try:
        for base, source in pairs:
            batch = PatchedBatch(patching, base, source)
            if not by_gradient:
                batch.run()
            metric_of = batch.gradient() if by_gradient else batch.measure
            calls, table = tuple(site.call for site in batch.rows), batch.table()
            batches.append(Measured(calls, _as_stored(batch.base), _as_stored(batch.source), table))
            _check_batches(batches[0], batches[-1])
            cells = [cell for cell in batch.cells if selected is None or selected[cell.indices]]
            bar.update(task, total=len(pairs) * len(cells))
            for cell in cells:
                table[:, *cell.indices] = _as_stored(metric_of(cell))
                bar.advance(task)
    except KeyboardInterrupt:
        if not any(bool(batch.metrics.isfinite().any()) for batch in batches):
            raise
        warnings.warn("interrupted: effects that were not measured are NaN", PatchingWarning, stacklevel=4)
    base, source = torch.cat([batch.base for batch in batches]), torch.cat([batch.source for batch in batches])
    return Measured(batches[0].calls, base, source, torch.cat([batch.metrics for batch in batches]))


def _check_batches(first: Measured, other: Measured) -> None:
    named = [[call.name for call in each.calls] for each in (first, other)]
    if named[0] != named[1] or first.metrics.shape[1:] != other.metrics.shape[1:]:
        raise ArgumentError(
            "batches must have the same attention calls, and over positions the same number of tokens; their tables "
            f"are {list(first.metrics.shape[1:])} and {list(other.metrics.shape[1:])}"
        )


def _as_stored(numbers: Tensor) -> Tensor:
    return numbers.detach().cpu().double()


def _stored(store: dict[Any, Tensor], name: Any, current: Tensor) -> Tensor:
    """Returns a tensor unchanged, and stores a copy."""
    store[name] = current.detach().clone()
    return current


def _mixed(source: Tensor, share: Tensor, current: Tensor) -> Tensor:
    """Returns the current tensor with a gradient by the share of the source in it, which is 0."""
    _check_alike("the same layer", list(current.shape), list(source.shape))
    return current + (share * (source - current.detach())).to(current.dtype)


def _check_alike(name: str, base: list[int], source: list[int]) -> None:
    if base != source:
        raise ShapeError(
            f"clean and corrupted must have equally many tokens and examples: {name!r} has {source} in one run and "
            f"{base} in the other"
        )


def _numbers(value: object) -> Tensor:
    """Returns what a metric returned as a vector."""
    must = "metric must return a scalar, or a tensor with a number for each batch row"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = torch.tensor(value, dtype=torch.float64)
    if not isinstance(value, Tensor):
        raise KindError(f"{must}; it returned {type_text(value)}")
    if value.is_complex() or value.dtype == torch.bool:
        raise KindError(f"{must}; it returned {value.dtype}")
    if value.dim() > 1 or not value.numel():
        raise ShapeError(f"{must}; it returned the shape {list(value.shape)}")
    return value.reshape(-1)
