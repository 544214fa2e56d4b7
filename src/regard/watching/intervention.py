"""``with regard.intervene(model, *changes)``: a context in which a model's attention is changed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from torch import nn

from regard.attention.changed_pairs import Elements
from regard.errors import ArgumentError, KindError, UnseenError
from regard.names.answered import answered
from regard.names.counted import counted
from regard.names.missing_names import hinted
from regard.shapes.checks import type_text
from regard.watching.change import Change, EarlierRun
from regard.watching.changed_call import Target
from regard.watching.earlier_elements import EarlierElements, call_of_run
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.interception import begin, end
from regard.watching.owners import Owner, refuse_compiled
from regard.watching.thread_state import Observer


@dataclass(frozen=True)
class ChangedCall:
    """One call that was changed.

    Attributes:
        name: the module's name in the model.
        layer: the number of its layer, from 0.
        forward: the number of the model's forward pass in the context, from 0.
        changes: the changes that were made.
    """

    name: str
    layer: int
    forward: int
    changes: tuple[Change, ...]


@hinted
class Intervention(Observer):
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

    is_changing = True

    def __init__(self, model: nn.Module, changes: Sequence[Change]):
        super().__init__(model)
        self.model, self.changes = model, tuple(changes)
        self.calls: list[ChangedCall] = []
        self._is_open = False
        self._forwards = 0
        self._counts: dict[str, int] = {}
        self._unmet: dict[tuple[int, int | None], None] = {}
        self._layers_seen: set[int] = set()
        self._first_query: int | None = None
        self._cached_tokens: int | None = None
        self._fused = self._modules_of_fast_paths()

    def __enter__(self) -> Self:
        if self._is_open:
            raise ArgumentError("this context is open already; call regard.intervene again for another one")
        refuse_compiled(self.names.modules)
        layers = {number: change.layer for number, change in enumerate(self.changes)}
        self._unmet = dict.fromkeys(
            (number, layer)
            for number, chosen in layers.items()
            for layer in (chosen or (None,))  # type: ignore[union-attr]
        )
        begin(self)
        self._is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if self._is_open:
            self._is_open = False
            end(self)
        if kind is None:
            for number, layer in self._unmet:
                self._refuse_unmet(self.changes[number], layer)

    def _refuse_unmet(self, change: Change, layer: int | None) -> None:
        seen = sorted(self._layers_seen)
        if layer is not None and layer not in seen:
            raise UnseenError(f"no attention of layer {layer} was called; layers that were: {seen}")
        of_layer = "" if layer is None else f" of layer {layer}"
        raise UnseenError(
            f"no attention{of_layer} was called that {change.summary()} names; layers that were called: {seen}"
        )

    # Called by the interception.

    def ran(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self.names.names.get(id(module)) == "":
            self._forwards += 1
            self._counts.clear()
            self._first_query = self._cached_tokens = None

    def cached(self, cache: object, frame: FrameType) -> None:
        length = getattr(cache, "get_seq_length", None)
        if self._cached_tokens is None and length is not None and self.names.owner(frame) is not None:
            self._cached_tokens = int(length())

    def leaves_fast_path(self, module: object) -> bool:
        return id(module) in self._fused

    def concerns(self, owner: Owner) -> bool:
        layer, is_shared = self.names.layer(owner.name), owner.name in self._counts
        return is_shared or any(change.layer is None or layer in change.layer for change in self.changes)  # type: ignore[operator]

    def changes_of(self, owner: Owner, read: Callable[[Owner], InterceptedCall]) -> list["_Call"]:
        count = self._counts.get(owner.name, 0)
        self._counts[owner.name] = count + 1
        layer = self._layer(owner, count, read)
        self._layers_seen.add(layer)
        is_cross = owner.cross
        named = [
            change
            for change in self.changes
            if (change.layer is None or layer in change.layer)  # type: ignore[operator]
            and (change.kind is None or (change.kind == "cross") == is_cross)
        ]
        if not is_cross and any(change.queries is not None for change in self.changes):
            self._first_query, _ = self._first(read(owner), is_cross)
        if not named:
            return []
        self.calls.append(ChangedCall(owner.name, layer, max(self._forwards - 1, 0), tuple(named)))
        return [_Call(self, change, owner, layer, count) for change in named]

    def _layer(self, owner: Owner, count: int, read: Callable[[Owner], InterceptedCall]) -> int:
        """Returns the layer of a module's call; layers may share one module, whose calls are counted then."""
        layer = self.names.layer(owner.name)
        before = count // 2 if owner.mechanism == "differential" else count
        if before and self._forwards:
            grid = read(owner).grid
            layer = before if grid.queries == grid.keys > 1 else layer
        return layer

    def _first(self, call: InterceptedCall, is_cross: bool) -> tuple[int, int]:
        """Returns the positions of a call's first query and of its first key."""
        queries, keys = call.grid.queries, call.grid.keys
        if is_cross:
            return self._first_query or 0, 0
        if self._cached_tokens is None and queries == keys:
            return 0, 0
        end_of_keys = int(call.reach()) if queries < keys else keys
        first = max(end_of_keys - queries, 0) if self._cached_tokens is None else self._cached_tokens
        return first, max(first + queries - end_of_keys, 0)

    def _modules_of_fast_paths(self) -> set[int]:
        """Returns the modules, by their identity, whose fused kernel would compute a head that a change names."""
        numbers = [None if change.layer is None else set(change.layer) for change in self.changes]  # type: ignore[arg-type]
        changed = [
            name
            for name, module in self.names.modules.items()
            if isinstance(module, nn.MultiheadAttention)
            and any(layers is None or self.names.layer(name) in layers for layers in numbers)
        ]
        return {
            id(module)
            for name, module in self.names.modules.items()
            if any(not name or f"{each}.".startswith(f"{name}.") for each in changed)
        }

    def met(self, change: Change, layer: int) -> None:
        """Reports that a change met elements of a layer."""
        for number, each in enumerate(self.changes):
            if each is change:
                self._unmet.pop((number, None if change.layer is None else layer), None)

    def __repr__(self) -> str:
        return f"<{counted(len(self.calls), 'changed call')} of {type(self.model).__name__}>"


@dataclass
class _Call:
    """A call that a change of a context concerns: `regard.watching.changed_call.CallOfChange`."""

    context: Intervention
    change: Change
    owner: Owner
    layer: int
    count: int

    def first(self, call: InterceptedCall) -> tuple[int, int]:
        return self.context._first(call, self.owner.cross)

    def earlier(self, target: Target, shape: tuple[int, int, int]) -> Elements:
        assert isinstance(self.change.to, EarlierRun)
        forward = max(self.context._forwards - 1, 0)
        call = call_of_run(self.change.to, self.owner.name, forward, self.count)
        return EarlierElements.of_call(call, self.change, target, shape)

    def meets(self) -> None:
        self.context.met(self.change, self.layer)


@answered
def intervene(model: nn.Module, *changes: Change) -> Intervention:
    """Changes the attention of a model within a context: scores, weights, values or outputs of chosen heads.

    Only the heads and queries that a change names leave the model's own kernel: they are computed again, from the
    model's own queries, keys, values and mask, in differentiable PyTorch. All others keep their bits. Changes of one
    call are applied in the order query, key, scores, weights, values, output, and in their own order within each.
    Gradients flow through changed heads into the model, into tensors and into what functions return. Memory is linear
    in the length of the sequence, except that a function of scores or weights gets the whole matrix of its heads.

    Half precision is computed in float32 and rounded. In training, dropout applies to changed weights, with other
    random numbers than without the change. `regard.watch` within or around the context records the changed calls.

    Args:
        model: any `torch.nn.Module` that `regard.watch` sees; not a compiled one.
        changes: where, and what stands there instead.

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
    if not isinstance(model, nn.Module):
        raise KindError(f"model must be a torch.nn.Module; it is {type_text(model)}")
    if not changes:
        raise ArgumentError("intervene needs at least one change; write regard.Change(what, to, layer=, head=)")
    for number, change in enumerate(changes):
        if not isinstance(change, Change):
            raise KindError(f"changes[{number}] must be a regard.Change; it is {type_text(change)}")
    return Intervention(model, changes)
