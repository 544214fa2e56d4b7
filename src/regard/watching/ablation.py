"""Ablation: a context in which heads of a model are switched off, to measure how the loss depends on them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, get_args

from torch import Tensor, nn

from regard.names.answered import answered
from regard.records.attention_record import Kind
from regard.shapes.checks import known_name
from regard.watching.change import Change
from regard.watching.intervention import intervene

How = Literal["zero", "mean"]


@answered
@contextmanager
def ablate(
    model: nn.Module, layer: int, head: int | Sequence[int], how: How = "zero", *, kind: Kind | None = None
) -> Iterator[None]:
    """Switches heads off: their output, before the output projection, becomes 0 or its mean.

    Michel et al. 2019, "Are Sixteen Heads Really Better than One?" (zeros); the mean removes the differences between
    positions and batch rows, and keeps the scale that later layers expect. Gradients flow through the other heads.
    It is ``regard.intervene(model, regard.Change("output", 0.0, layer=layer, head=head))``.

    Args:
        model: any `torch.nn.Module`; not a compiled one.
        layer: the number of the layer, from 0, as `AttentionCall.layer` says.
        head: one head, or several.
        how: ``"zero"``, or ``"mean"``: the head's mean output over the batch and the queries of the call.
        kind: only attention of this kind, as for `regard.Change`; None: all of this layer.

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
    known_name("how", how, get_args(How))
    to = 0.0 if how == "zero" else _mean
    with intervene(model, Change("output", to, layer=layer, head=head, kind=kind)):
        yield


def _mean(heads: Tensor) -> Tensor:
    return heads.mean((0, 2), keepdim=True)
