"""The record of one attention call of a watched model: its module, its sizes, its mask, and its readings."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.masks import Mask
from regard.names.missing_names import hinted
from regard.records import TileSource
from regard.records.attention_record import Kind
from regard.records.shaded_table import readings_html
from regard.shapes.checks import Requested
from regard.shapes.grid import Grid
from regard.summaries import record_summary
from regard.watching.families import Mechanism
from regard.watching.intercepted_call import READING_NAMES

if TYPE_CHECKING:
    from regard.distributed.shards import Shards
    from regard.watching.logit_path import LogitPath
    from regard.watching.write_steps import ScoreSteps


class PostponedReadings(Protocol):
    """Stores the readings of calls, or takes them later."""

    def settle(self, call: "AttentionCall") -> None:
        """Delivers the readings of a call, and those of other calls that are read together with it."""


class _Reading:
    """A reading that is taken on first access: see `regard.watching.call_reader`.

    A value in the call itself takes precedence.
    """

    def __init__(self, name: str):
        self.name = name

    def __get__(self, call: "AttentionCall | None", owner: type) -> Any:
        if call is None:
            return None
        call.settle()
        return vars(call).get(self.name)


@hinted
@dataclass(eq=False)
class AttentionCall:
    """One attention call. Tensors are on the CPU and carry no gradient; weights are those before dropout.

    Attributes:
        name: the module's name in the model, as in ``named_modules``.
        layer: the number of the layer, from 0.
        kind: ``"self"``, ``"causal"`` (self-attention that sees no later token) or ``"cross"``.
        source: the function that computed it, such as ``"scaled_dot_product_attention"``.
        forward: the number of the model's forward pass, from 0.
        number: the number of the call among all calls of the context, from 0.
        batch, queries, keys: sizes. Windows are rows of the batch: all axes before the length but the heads, in order.
        heads: the number of query heads; readings have the chosen ones. Those of a linear recurrence are
            the heads of its values, each of which has a state.
        kv_heads: the number of heads of keys and values; their least common multiple, where the two differ.
        chosen_heads: the heads that the readings have.
        mask: ``"none"``; ``"causal"`` or ``"window"``, ``"documents"`` and ``"padding"``, joined by ``+`` in this order
            (``"window+padding"``); or ``"dense"``, which is any other mask.
        has_bias: whether more than a mask was added to the scores.
        scale: the factor of the inner product; None if unknown.
        cap: the bound of the scores (soft-capping); None: none.
        has_sink: whether the softmax has a term without a key, so that rows sum to less than 1.
        has_state: whether the call began with a recurrent state that no earlier call of the context made: the weights
            of tokens inside of it are unknown, and the keys are the call's own tokens.
        signed: whether scores are weights or give them their signs: a weight may be negative, and a row has any sum.
        dropout: the rate with which the call dropped weights.
        mechanism: ``"differential"``, ``"latent"``, ``"gated"`` or ``"depth"``, whose keys are the outputs of earlier
            layers, as `regard.watching.families` recognizes it; None: none of them.
        part: the number of the call among those of its module for the same tokens, from 0; differential attention has
            two calls.
        maps: for each head of a differential attention the map that it belongs to, 1 or 2; empty for others.
        reach: the number of keys up to the last one that the last query sees: less than ``keys`` in a cache of fixed
            size that is not full.
        lse: ``[batch, heads, queries]``; None where the scores are unknown.
        entropy, peak, top_weights, top_indices, received, distance, pooled_mean, pooled_max, rows, tile, weights,
            shares, recall: as in `regard.Observed`; None unless requested; ``recall`` also where the selection is the
            call's own and the mask has no lists of keys.
        value_norms: ``[batch, heads, keys]``: the norm of each value after the head's part of the output projection;
            None unless requested.
        head_output: ``[batch, heads, queries, value_dim]``: the weighted sum of values; None unless requested.
        value: ``[batch, heads, keys, value_dim]``: the values; None unless outputs are requested.
        log_decay: ``[batch, heads, keys]``, or with features: the logarithm of what each token of a linear recurrence
            leaves of the state before it; one for all keys, if they are equal. None: nothing decays.
        beta: ``[batch, heads, keys]``: the strength of the delta rule at each token; None: there is no such rule.
        tiles: for each batch row, a source of exact tiles of the weights; None unless requested by ``keep``.
        visible_mask: the pairs that the call could see, if weights or tiles were requested; None: all.
        path: the path from the heads to the logits, for `regard.watching.logit_contributions`; None unless outputs are
            requested.
        origin: where queries, keys and scores come from, for `regard.watching.explain_weight`; None unless ``inputs``
            are requested.
        unprojected: why the projection of the heads is not known, if it was searched; "": it is.
        shards: which queries and which keys each process holds, if the sequences are sharded
            (`regard.distributed`); then ``queries`` and ``keys`` count whole sequences, and readings of queries and of
            keys are this process's part of them. None: they are not sharded.

    Example:
        >>> import torch
        >>> import regard
        >>> layer = torch.nn.MultiheadAttention(16, num_heads=2, batch_first=True)
        >>> x = torch.randn(1, 5, 16)
        >>> mask = torch.nn.Transformer.generate_square_subsequent_mask(5)
        >>> with regard.watch(layer, read=regard.Readings(entropy=True, weights=True), norms=True) as seen:
        ...     _ = layer(x, x, x, attn_mask=mask)
        >>> call = seen.calls[0]
        >>> call.kind, call.mask, call.shape
        ('causal', 'causal', (1, 2, 5, 5))
        >>> call.entropy.shape, call.entropy[0, :, 0]  # the first query sees one key
        (torch.Size([1, 2, 5]), tensor([0., 0.]))
        >>> call.weighted_norms().shape
        torch.Size([1, 2, 5, 5])
    """

    name: str
    layer: int
    kind: Kind
    source: str
    forward: int
    number: int
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    chosen_heads: tuple[int, ...]
    mask: str = "none"
    has_bias: bool = False
    scale: float | None = None
    cap: float | None = None
    has_sink: bool = False
    has_state: bool = False
    signed: bool = False
    dropout: float = 0.0
    mechanism: Mechanism | None = None
    part: int = 0
    maps: tuple[int, ...] = ()
    reach: int | None = None
    lse: Requested[Tensor] = None
    entropy: Requested[Tensor] = None
    peak: Requested[Tensor] = None
    top_weights: Requested[Tensor] = None
    top_indices: Requested[Tensor] = None
    received: Requested[Tensor] = None
    distance: Requested[Tensor] = None
    pooled_mean: Requested[Tensor] = None
    pooled_max: Requested[Tensor] = None
    rows: Requested[Tensor] = None
    tile: Requested[Tensor] = None
    weights: Requested[Tensor] = None
    shares: Requested[Tensor] = None
    recall: Requested[Tensor] = None
    value_norms: Requested[Tensor] = None
    head_output: Requested[Tensor] = None
    value: Requested[Tensor] = None
    log_decay: Requested[Tensor] = None
    beta: Requested[Tensor] = None
    tiles: Requested[tuple[TileSource, ...]] = None
    visible_mask: Mask | None = None
    shards: "tuple[Shards, Shards] | None" = None
    path: Requested["LogitPath"] = None
    origin: Requested["ScoreSteps"] = None
    unprojected: str = ""

    def gathered(self) -> "AttentionCall":
        """Returns the same call with the readings of the whole sequences, on every process that holds a part of them.

        Every process must call this. A call whose sequences are not sharded is returned as it is.
        """
        if self.shards is None:
            return self
        self.settle()
        queries, keys = self.shards
        readings = {
            **{name: _joined(getattr(self, name), queries, 2) for name in QUERY_ATTRIBUTES},
            **{name: _joined(getattr(self, name), keys, axis) for name, axis in KEY_ATTRIBUTES.items()},
        }
        path = self.path
        if path is not None and path.scale is not None:
            path = replace(path, scale=_joined(path.scale, queries, 2))
        return replace(self, shards=None, path=path, **readings)

    def postpone(self, postponed: PostponedReadings, names: Sequence[str] = READING_NAMES) -> None:
        """Lets another object deliver some of `POSTPONED_ATTRIBUTES` later, by `receive`."""
        own = vars(self)
        for name in names:
            del own[name]
        own["_postponed"] = postponed

    def receive(self, readings: dict[str, Any]) -> None:
        """Stores postponed attributes."""
        own = vars(self)
        own.pop("_postponed", None)
        own.update(readings)

    def settle(self) -> None:
        """Takes the readings now if they were postponed. Accessing one of them does the same."""
        postponed = vars(self).get("_postponed")
        if postponed is not None:
            postponed.settle(self)

    @property
    def is_postponed(self) -> bool:
        """Whether readings have not been delivered yet."""
        return "_postponed" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        return {**vars(self), "path": None, "origin": None}  # they hold modules of the model

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(batch, heads, queries, keys)``."""
        return self.batch, self.heads, self.queries, self.keys

    def visible(self, batch_row: int = 0) -> Tensor:
        """Returns the visible pairs of one batch row, bool ``[1 or heads, queries, keys]``; True: not masked."""
        if self.visible_mask is None:
            return torch.ones(1, self.queries, self.keys, dtype=torch.bool)
        grid = Grid.whole(self.batch, self.heads, self.queries, self.keys)
        allowed = self.visible_mask.with_four_axes(grid.tile(batch=range(batch_row, batch_row + 1)))[0]
        if allowed.shape[0] > 1:
            allowed = allowed[list(self.chosen_heads)]
        return allowed.expand(-1, self.queries, self.keys)

    def weighted_norms(self) -> Tensor:
        """Returns ‖weight · value · W_O‖ of each pair, ``[batch, heads, queries, keys]``.

        Kobayashi et al. 2020, "Attention is Not Only a Weight", section 3: their ‖α f(x)‖, where f(x) is the value
        after the head's part W_O of the output projection. A large weight on a short value has little effect. W_O is
        the whole effect of the module that projects the heads, without its dropout: with adapters, parametrizations,
        quantized weights and hooks.

        Raises:
            ArgumentError: weights or norms were not read, or the module is not linear.
        """
        if self.weights is None or self.value_norms is None:
            reason = f"; norms=True is not possible here: {self.unprojected}" if self.unprojected else ""
            raise ArgumentError(f'weighted_norms needs regard.watch(model, read="view", norms=True){reason}')
        return self.weights * self.value_norms[:, :, None]

    def __repr__(self) -> str:
        return record_summary("AttentionCall", self._shown())

    def _repr_html_(self) -> str:
        return readings_html("AttentionCall", self._shown(), "regard.View(call, tokens)")

    def _shown(self) -> list[tuple[str, object]]:
        attributes = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return [
            (name, value)
            for name, value, default in attributes
            if value is not default and name not in _HIDDEN_ATTRIBUTES
        ]


_HIDDEN_ATTRIBUTES = ("visible_mask", "path", "origin", "unprojected")

QUERY_ATTRIBUTES = (
    "lse", "entropy", "peak", "top_weights", "top_indices", "distance", "weights", "shares", "recall",
    "head_output",
)  # fmt: skip
"""The attributes that have an axis of queries, the third."""

KEY_ATTRIBUTES = {"received": 2, "rows": 3, "value_norms": 2, "value": 2}
"""The attributes that each process has for its own keys, and the axis of the keys."""


def _joined(tensor: Tensor | None, shards: "Shards", axis: int) -> Tensor | None:
    return None if tensor is None else shards.join(tensor.to(shards.mesh.device_type), axis).cpu()


POSTPONED_ATTRIBUTES = (
    *READING_NAMES,
    "value_norms",
    "head_output",
    "value",
    "log_decay",
    "beta",
    "reach",
    "visible_mask",
)
"""The attributes that may be delivered later, because they are on an accelerator."""

for _name in POSTPONED_ATTRIBUTES:
    setattr(AttentionCall, _name, _Reading(_name))
