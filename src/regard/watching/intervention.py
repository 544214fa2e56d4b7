"""``with regard.intervene(model, *changes)``: a context in which a model's attention is changed."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, Self

from torch import nn

from regard.attention.changed_pairs import Elements
from regard.errors import KindError, RegardError, UnseenError
from regard.names.answered import answered
from regard.names.counted import counted
from regard.names.missing_names import hinted
from regard.shapes.checks import check_module, type_text
from regard.watching.call_positions import CallPositions, SequencePositions
from regard.watching.call_reader import CallHistory
from regard.watching.change import Change, EarlierRun
from regard.watching.changed_call import CallOfChange, Target
from regard.watching.coverage import Coverage
from regard.watching.earlier_elements import EarlierElements, call_of_run
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.interception import ObservingContext
from regard.watching.owners import Owner
from regard.watching.thread_state import is_apart


@dataclass(frozen=True)
class ChangedCall:
    """One call that was changed.

    Attributes:
        name: the module's name in the model.
        layer: the number of its layer, from 0.
        forward: the number of the model's forward pass in the context, from 0.
        changes: the changes that were made.

    Example:
        >>> import torch
        >>> import regard
        >>> layer = torch.nn.MultiheadAttention(16, num_heads=2, batch_first=True).eval()
        >>> x = torch.randn(1, 5, 16)
        >>> with regard.intervene(layer, regard.Change("output", 0.0, head=1)) as changed:
        ...     _ = layer(x, x, x)
        >>> changed.calls[0].changes
        (Change('output', 0.0, head=1),)
    """

    name: str
    layer: int
    forward: int
    changes: tuple[Change, ...]


@hinted
class Intervention(ObservingContext):
    """The context of `intervene`.

    Attributes:
        model: the model whose attention is changed.
        changes: the changes.
        calls: the calls that were changed, in their order.

    Example:
        >>> import torch
        >>> import regard
        >>> layer = torch.nn.MultiheadAttention(16, num_heads=2, batch_first=True).eval()
        >>> x = torch.randn(1, 5, 16)
        >>> with regard.intervene(layer, regard.Change("output", 0.0, head=1)) as changed:
        ...     output, _ = layer(x, x, x)
        >>> changed
        <1 changed call of MultiheadAttention>
    """

    function = "intervene"
    is_changing = True

    def __init__(self, model: nn.Module, changes: Sequence[Change]):
        super().__init__(model)
        self.model, self.changes = model, tuple(changes)
        self._unfused = self._modules_without_fast_paths()
        self._begin()

    def __enter__(self) -> Self:
        super().__enter__()
        self._begin()
        return self

    def _begin(self) -> None:
        """Counts calls, forward passes and positions from 0, as each time that the context is opened."""
        self.calls: list[ChangedCall] = []
        self._forwards = 0
        self._counts: dict[str, int] = {}  # the calls of each module in this forward pass
        self._positions = SequencePositions()
        self._coverage = Coverage(self.names)
        self._layers_seen: set[int] = set()
        self._met: set[tuple[int, int]] = set()  # the identity of a change, and a layer
        self._kinds = CallHistory()
        self._lengths: dict[tuple[int, str], int] = {}  # by the identity of a change, and its axis

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        self._close()
        if kind is not None or not self.changes:
            return
        if not self._layers_seen or any(change.layer is None for change in self.changes):
            self._coverage.tell(None, bool(self._layers_seen))
        for change in self.changes:
            self._check_met(change)

    def _check_met(self, change: Change) -> None:
        """Raises UnseenError unless a change met elements, of each layer that it names."""
        seen, reached = sorted(self._layers_seen), {layer for number, layer in self._met if number == id(change)}
        missing = [layer for layer in change.layers or () if layer not in reached]
        if not missing and reached:
            return self._check_positions(change)
        unseen = [layer for layer in missing if layer not in seen]
        if unseen:
            raise UnseenError(f"no attention of layer {unseen[0]} was called; layers that were: {seen}")
        where = f" of layer {missing[0]}" if missing else ""
        raise UnseenError(f"no call of attention{where} had what {change!r} names; layers that were called: {seen}")

    def _check_positions(self, change: Change) -> None:
        """Raises UnseenError unless each position that a change lists was in a call."""
        for axis in ("queries", "keys"):
            chosen, length = getattr(change, axis), self._lengths.get((id(change), axis))
            if length is None or not isinstance(chosen, tuple):
                continue
            if absent := [each for each in chosen if not -length <= each < length]:
                raise UnseenError(f"no call of attention had {axis} {absent} of {change!r}; there were {length}")

    # Called by the interception.

    def ran(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        name = self.names.names.get(id(module))
        if name is not None and not is_apart():
            self._coverage.runs(name)
        if name == "":
            self._forwards += 1
            self._counts.clear()
            self._positions.begin_forward()

    def made_weights(self, owner: Owner, count: int) -> None:
        self._coverage.made_weights(owner.name, count)

    def cached(self, cache: object, frame: FrameType) -> None:
        length = getattr(cache, "get_seq_length", None)
        if self._forwards and length is not None and self.names.owner(frame) is not None:
            self._positions.cache(length)

    def leaves_fast_path(self, module: object) -> bool:
        return id(module) in self._unfused

    def concerns(self, owner: Owner) -> bool:
        is_shared = owner.name in self._counts
        return is_shared or any(change.is_of(self.names.layer(owner.name), owner.cross) for change in self.changes)

    def changes_of(self, owner: Owner, read: Callable[[Owner], InterceptedCall]) -> list[CallOfChange]:
        count = self._counts.get(owner.name, 0)
        self._counts[owner.name] = count + 1
        layer = self._layer(owner, count, read)
        self._layers_seen.add(layer)
        self._coverage.seen(owner.name, layer)
        changes = [change for change in self.changes if change.is_of(layer, owner.cross)]
        if any(change.kind == "causal" for change in changes):
            is_causal = self._kinds.kind(owner, read(owner), owner.name) == "causal"
            changes = [change for change in changes if is_causal or change.kind != "causal"]
        if not changes and any(change.has_positions for change in self.changes):
            with suppress(RegardError):  # later calls count from its positions
                self._positions.of_call(owner.name, read(owner), owner.cross)
        call, number = ChangedCall(owner.name, layer, max(self._forwards - 1, 0), ()), len(self.calls)
        return [
            CallOfChange(
                change,
                partial(self._positions_of, change, owner),
                partial(_earlier, call, count, change),
                partial(self._meets, number, call, change),
            )
            for change in changes
        ]

    def _positions_of(self, change: Change, owner: Owner, call: InterceptedCall) -> CallPositions:
        """Returns the positions of a call, and notes how many tokens there were for a change that names some."""
        positions = self._positions.of_call(owner.name, call, owner.cross)
        lengths = {"queries": (positions.query or 0) + call.grid.queries, "keys": positions.key + positions.keys}
        for axis, length in lengths.items():
            self._lengths[id(change), axis] = max(self._lengths.get((id(change), axis), 0), length)
        return positions

    def _layer(self, owner: Owner, count: int, read: Callable[[Owner], InterceptedCall]) -> int:
        """Returns the layer of a module's call; layers may share one module, whose calls are counted then."""
        before = count // 2 if owner.mechanism == "differential" else count
        if before and self._forwards:
            grid = read(owner).grid
            if grid.queries == grid.keys > 1:
                return before
        return self.names.layer(owner.name)

    def _modules_without_fast_paths(self) -> set[int]:
        """Returns the modules, by their identity, whose fused kernel would compute a head that a change names."""
        modules = self.names.modules
        changed = [
            name
            for name, module in modules.items()
            if isinstance(module, nn.MultiheadAttention)  # its kernel computes self-attention alone
            and any(change.is_of(self.names.layer(name), False) for change in self.changes)
        ]
        return {id(modules[name]) for name in modules if any(f"{each}.".startswith(f"{name}.") for each in changed)} | (
            {id(self.model)} if changed else set()
        )

    def _meets(self, number: int, call: ChangedCall, change: Change) -> None:
        """Records that the changed call of a number had elements that a change names."""
        self._met.add((id(change), call.layer))
        before = self.calls[number].changes if number < len(self.calls) else ()
        self.calls[number:] = [replace(call, changes=(*before, change))]

    def __repr__(self) -> str:
        return f"<{counted(len(self.calls), 'changed call')} of {type(self.model).__name__}>"


def _earlier(call: ChangedCall, count: int, change: Change, target: Target, shape: tuple[int, int, int]) -> Elements:
    """Returns what another run had in the call with this number among its module's."""
    assert isinstance(change.to, EarlierRun)
    return EarlierElements.of_call(call_of_run(change.to, call.name, call.forward, count), change, target, shape)


@answered
def intervene(model: nn.Module, *changes: Change) -> Intervention:
    """Changes the attention of a model within a context: scores, weights, values or outputs of chosen heads.

    Only the heads and queries that a change names leave the model's own kernel: they are computed again, from the
    model's own queries, keys, values and mask, in differentiable PyTorch. All others keep their bits. Changes of one
    call are applied in the order query, key, scores, weights, values, output, and in their own order within each.
    Gradients flow through changed heads into the model, into tensors and into what functions return. Memory is linear
    in the length of the sequence, except that a function of scores or weights gets the whole matrix of its heads.

    Half precision is computed in float32 and rounded. In training, dropout applies to changed weights, with other
    random numbers than without the change; activation checkpointing is refused, since its backward pass would not know
    of the change. `regard.watch` within or around the context records the changed calls. Weights that a model returns
    are the changed ones, if the module of the call returns the tensor that weighs its values. Only the thread that
    opened the context counts, and leaves it. Meanwhile functions of ``torch.compile`` run uncompiled, in all threads,
    and ``torch.export`` raises.

    Args:
        model: any `torch.nn.Module` that `regard.watch` sees; not a compiled one.
        changes: where, and what stands there instead. Without any the context changes nothing.

    Returns:
        A context; `Intervention.calls` has the calls that were changed.

    Raises:
        KindError, ArgumentError: bad arguments; a compiled model. From within the model's call: heads that a call does
            not have, elements that do not fit or are not known, and calls that cannot be changed.
        UnseenError: at the end, if a change met no attention.

    Example:
        >>> import torch
        >>> import regard
        >>> layer = torch.nn.MultiheadAttention(16, num_heads=2, batch_first=True).eval()
        >>> x = torch.randn(1, 5, 16)
        >>> with regard.intervene(layer, regard.Change("scores", float("-inf"), head=1, keys=0)):
        ...     _, weights = layer(x, x, x, average_attn_weights=False)  # no query of head 1 sees the first key
        >>> weights[0, 1, :, 0].detach()
        tensor([0., 0., 0., 0., 0.])
    """
    check_module("model", model)
    for number, change in enumerate(changes):
        if not isinstance(change, Change):
            raise KindError(f"changes[{number}] must be a regard.Change; it is {type_text(change)}")
    return Intervention(model, changes)
