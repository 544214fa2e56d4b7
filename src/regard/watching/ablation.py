"""Ablation: a context in which heads of a model are switched off, to measure how the loss depends on them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, UnknownNameError, UnseenError
from regard.names.answered import answered
from regard.records.attention_record import Kind
from regard.shapes.checks import type_text, whole_number
from regard.watching.interception import observing, without_fast_paths
from regard.watching.owners import Owner
from regard.watching.thread_state import Observer

How = Literal["zero", "mean"]


@answered
@contextmanager
def ablate(
    model: nn.Module, layer: int, head: int | Sequence[int], how: How = "zero", *, kind: Kind | None = None
) -> Iterator[None]:
    """Switches heads off: their output, before the output projection, becomes 0 or its mean.

    Michel et al. 2019, "Are Sixteen Heads Really Better than One?" (zeros); the mean removes the differences between
    positions and batch rows, and keeps the scale that later layers expect. Gradients flow through the other heads.

    Args:
        model: any `torch.nn.Module`; not a compiled one.
        layer: the number of the layer, from 0, as `AttentionCall.layer` says.
        head: one head, or several.
        how: ``"zero"``, or ``"mean"``: the head's mean output over the batch and the queries of the call.
        kind: only attention of this kind, ``"self"`` (causal or not) or ``"cross"``; None: all of this layer.

    Returns:
        a context, in which the heads are off.

    Raises:
        KindError, ArgumentError, UnknownNameError: bad arguments; from within the model's call: no such head.
        UnseenError: at the end, if no attention of this layer was called.

    Example:
        >>> import torch
        >>> from regard import watching
        >>> _ = torch.manual_seed(0)
        >>> layer = torch.nn.TransformerEncoderLayer(16, nhead=2, batch_first=True).eval()
        >>> x = torch.randn(1, 5, 16)
        >>> with torch.no_grad():
        ...     with watching.ablate(layer, layer=0, head=1):
        ...         without = layer(x)
        ...     (layer(x) - without).norm() / layer(x).norm()  # how much of the output depends on the head
        tensor(0.1154)
    """
    if not isinstance(model, nn.Module):
        raise KindError(f"model must be a torch.nn.Module; it is {type_text(model)}")
    layer = whole_number("layer", layer, low=0)
    heads = [whole_number("head", each, low=0) for each in (head if isinstance(head, Sequence) else (head,))]
    if how not in get_args(How):
        raise UnknownNameError("how", how, get_args(How))
    if kind is not None and kind not in get_args(Kind):
        raise UnknownNameError("kind", kind, get_args(Kind))
    if not heads:
        raise ArgumentError("head must name at least one head")
    ablation = _Ablation(model, layer, heads, how, kind)
    with observing(ablation), without_fast_paths():
        yield
    if not ablation.changed:
        raise UnseenError(f"no attention of layer {layer} was called; layers that were: {sorted(ablation.seen)}")


class _Ablation(Observer):
    """Changes the output of some heads of one layer."""

    changes = True

    def __init__(self, model: nn.Module, layer: int, heads: list[int], how: How, kind: Kind | None):
        super().__init__(model)
        self._layer, self._heads, self._how, self._kind = layer, heads, how, kind
        self.changed = False
        self.seen: set[int] = set()

    def change(self, owner: Owner, output: Tensor) -> Tensor:
        layer = self.names.layer(owner.name)
        self.seen.add(layer)
        if layer != self._layer or (self._kind is not None and (self._kind == "cross") != owner.cross):
            return output
        if max(self._heads) >= output.shape[1]:
            raise ArgumentError(f"head must be below {output.shape[1]}, the heads of {owner.name!r}")
        self.changed = True
        chosen = torch.zeros(output.shape[1], dtype=torch.bool, device=output.device)
        chosen[self._heads] = True
        chosen = chosen[:, None, None]
        if self._how == "zero":
            return output.masked_fill(chosen, 0.0)
        return torch.where(chosen, output.mean((0, 2), keepdim=True), output)
