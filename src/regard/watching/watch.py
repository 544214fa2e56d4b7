"""``with regard.watch(model) as seen``: a record of every attention call of a model, whose output never changes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.readings import ReadingName, Readings, as_readings
from regard.errors import ArgumentError, KindError, RegardError
from regard.names.counted import counted
from regard.names.missing_names import hinted
from regard.names.model_name import model_name
from regard.records import AttentionRecord, Axis, Document, TokenAxis
from regard.records.attention_record import Kind
from regard.records.shaded_table import columns_html, shaded_table
from regard.shapes.checks import check_module, type_text
from regard.shapes.grid import spread_heads
from regard.tracing.transforms import active_transform
from regard.watching.ablation import How, ablate
from regard.watching.attention_call import AttentionCall
from regard.watching.cached_keys import CachedKeys, Reordering
from regard.watching.call_reader import CallHistory, CallReader, check_readings
from regard.watching.call_records import ProblemTiles, records_of
from regard.watching.change import chosen_numbers
from regard.watching.contributions import value_logits
from regard.watching.coverage import Coverage
from regard.watching.families import maps_of_heads
from regard.watching.generation import Generation, JoinedPart
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.interception import ObservingContext
from regard.watching.owners import Owner
from regard.watching.projections import Projections
from regard.watching.residual_stream import ResidualStream
from regard.watching.thread_state import is_apart, without_mode
from regard.watching.token_ids import TokenIds, is_tokenizer
from regard.watching.watched_texts import WatchedText, texts_of
from regard.watching.write_tracking import WriteTracking

CALLS_LIMIT = 12
"""The most calls that a notebook lists."""


@hinted
class Watch(ObservingContext):
    """The context of `watch`, and the attention calls in it.

    Attributes:
        calls: one record for each attention call, in the order of the calls.
        model: the watched model.

    Example:
        >>> import torch
        >>> import regard
        >>> model = torch.nn.TransformerDecoderLayer(16, nhead=2, batch_first=True).eval()
        >>> with regard.watch(model, read=regard.Readings(weights=True)) as seen:
        ...     output = model(torch.randn(1, 3, 16), torch.randn(1, 4, 16))
        >>> seen
        <2 attention calls of TransformerDecoderLayer>
        >>> [(call.name, call.kind, call.weights.shape) for call in seen.calls]
        [('self_attn', 'self', torch.Size([1, 2, 3, 3])), ('multihead_attn', 'cross', torch.Size([1, 2, 3, 4]))]
        >>> [record.keys.tokens for record in seen.records(["a", "b", "c"], ["w", "x", "y", "z"])]
        [('a', 'b', 'c'), ('w', 'x', 'y', 'z')]
    """

    function = "watch"

    def __init__(
        self,
        model: nn.Module,
        read: Readings,
        layers: frozenset[int] | None,
        heads: tuple[int, ...] | None,
        keep: bool,
        norms: bool,
        outputs: bool,
        inputs: bool,
    ):
        super().__init__(model)
        self.model = model
        self.calls: list[AttentionCall] = []
        self._read, self._layers, self._heads = read, layers, heads
        self._keep, self._norms, self._outputs = keep or inputs, norms, outputs or inputs
        self._cached = CachedKeys()
        self._token_ids = TokenIds(self.names.modules)
        self._coverage = Coverage(self.names)
        self._history = CallHistory()
        self._parts: dict[int, int] = {}  # by the identity of the module
        self._reader = CallReader(read, alone=self._keep or norms or self._outputs)
        self._writes = WriteTracking() if inputs else None
        self._projections = None
        if norms or self._outputs:
            stream = ResidualStream() if self._outputs else None
            self._projections = Projections(self.names.names, norms, stream, self._writes)

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        self._close()
        if kind is None:
            self._deliver()
            self._coverage.tell(self._layers, bool(self.calls))
            if self._projections is not None:
                self._projections.settle()
        else:
            with suppress(RuntimeError):  # a device that has failed does not hide the first error
                self._reader.deliver()

    # Called by the interception.

    @property
    def follower(self) -> Projections | None:
        return self._projections

    def ran(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        name = self.names.names.get(id(module))
        if name is None:
            return
        apart = is_apart()
        if not apart:
            self._coverage.runs(name)
        if self._parts:
            self._parts.pop(id(module), None)  # an interrupted call leaves its first part behind
        if name == "":
            self._history.begin_forward()
            if self._reader.waits:
                without_mode(self._deliver)
        if id(module) in self._token_ids.tables:
            self._token_ids.read(args, self._history.forward)
        if self._projections is not None and not apart:
            self._projections.begins(module, args)

    def made_weights(self, owner: Owner, count: int) -> None:
        self._coverage.made_weights(owner.name, count)

    def reordered(self, index: Tensor) -> None:
        number = len(self.calls)
        # Each layer's cache is reordered in turn, by the same index.
        reorderings = self._cached.reorderings
        if reorderings and reorderings[-1].number == number:
            return
        reorderings.append(Reordering(number, index.detach().cpu()))

    def cached(self, cache: object, frame: FrameType) -> None:
        forward = self._history.forward
        if self._cached.caches.get(cache) != forward and self.names.owner(frame) is not None:
            self._cached.caches[cache] = forward

    def cropped(self, cache: object, before: int, after: int) -> None:
        self._deliver()
        self._cached.crop(cache, before, after)

    def _deliver(self) -> None:
        """Copies the readings so far to the CPU, and links the calls to those that they continue."""
        with torch.no_grad():
            self._cached.settle(self._reader.deliver(self._cached.waiting))

    def take(self, owner: Owner, read: Callable[[Owner], InterceptedCall]) -> None:
        transform = active_transform()
        if transform is not None:
            return self._coverage.cannot_read(owner.name, transform)
        had_gradients = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # the context takes longer than the rest of a small call's record
        try:
            self._record(owner, read)
        finally:
            torch._C._set_grad_enabled(had_gradients)

    def _record(self, owner: Owner, read: Callable[[Owner], InterceptedCall]) -> None:
        try:
            intercepted = read(owner)
        except RegardError as error:
            return self._coverage.cannot_read(owner.name, str(error))
        except Exception as error:  # an unknown kind of call must not end the model's own run
            return self._coverage.cannot_read(owner.name, f"{type(error).__name__}: {error}")
        if owner.mechanism == "depth":
            intercepted = intercepted.of_tokens()
        grid = intercepted.grid
        if grid.device.type == "meta":
            return self._coverage.cannot_read(owner.name, "its tensors are on the meta device and have no elements")
        name = f"{owner.name}.{intercepted.child}".strip(".") if intercepted.child else owner.name
        part = self._part_of(owner)
        of_part = f"{name}/{part}" if part else name
        layer = self._history.layer(of_part, self.names.layer(name), grid.queries == grid.keys > 1)
        self._coverage.seen(name, layer)
        if intercepted.has_state:
            self._coverage.began_with_state(name)
        if self._layers is not None and layer not in self._layers:
            return None
        problem, mask = intercepted.problem, intercepted.mask
        placed = None if problem is None else problem.placed
        if placed is not None and self._keep:
            raise ArgumentError(
                "keep=True keeps whole queries and keys, of which this process has a part: leave it out"
            )
        chosen = _heads_of_call(None if owner.mechanism == "depth" else self._heads, grid.heads, name)
        kv_heads = intercepted.kv_heads
        repeated = kv_heads == grid.heads and owner.groups > 1
        call = AttentionCall(
            name=name,
            layer=layer,
            kind=self._history.kind(owner, intercepted, name),
            source=intercepted.source,
            forward=self._history.forward,
            number=len(self.calls),
            batch=grid.batch,
            heads=grid.heads,
            kv_heads=grid.heads // owner.groups if repeated else kv_heads,
            queries=grid.queries,
            keys=grid.keys,
            chosen_heads=chosen,
            mask=mask.kind,
            has_bias=mask.has_bias,
            scale=intercepted.scale,
            cap=intercepted.cap,
            has_sink=intercepted.has_sink,
            has_state=intercepted.has_state,
            signed=intercepted.signed,
            dropout=intercepted.dropout,
            mechanism=owner.mechanism,
            part=part,
            shards=None if placed is None else (placed.queries, placed.keys),
        )
        if call.mechanism == "differential":
            call.maps = maps_of_heads(owner.module, part, grid.heads)
        others = intercepted.recurrence()
        value = None
        if self._projections is not None and intercepted.value is not None:
            value = spread_heads(intercepted.value, grid.heads)
        if self._outputs:
            others["head_output"], others["value"] = intercepted.output(), value
        wants_pairs = self._read.weights or self._keep
        self._reader.take(call, intercepted, mask.visible if wants_pairs else None, others)
        if self._keep:
            call.tiles = ProblemTiles.of_batch(intercepted, chosen)
        if self._writes is not None:
            call.origin = self._writes.score_steps(intercepted)
        if self._projections is not None and call.mechanism != "depth":
            self._projections.expect(call, value)
        keys = intercepted.value if problem is None else problem.key
        self._cached.note(call, keys if placed is None else None)
        return self.calls.append(call)

    def _part_of(self, owner: Owner) -> int:
        """Returns the number of this call among a module's calls for the same tokens: 0, or 1 for differential ones."""
        if owner.mechanism != "differential":
            return 0
        part = self._parts.get(id(owner.module), 0)
        self._parts[id(owner.module)] = 1 - part
        return part

    # Called by users.

    def stitched(self, sequence: int = -1, beam_indices: Tensor | None = None) -> list[AttentionCall]:
        """Returns one record for each layer and kind, whose queries are all tokens so far.

        The calls of one module are joined as long as they continue one sequence: the prefill, then the decoded tokens.
        The keys that a call reads determine which tokens its queries are, and which row each batch row continues: so
        tokens that were removed from the cache are left out, and each row follows its own beam back. Readings of rows
        (``lse``, ``entropy``, ``peak``, ``top_weights``, ``top_indices``, ``distance``, ``weights``) are joined,
        ``received`` is summed; ``pooled``, ``rows`` and ``tile`` belong to one call and are None where several are
        joined. Where a call is joined in part, ``received`` follows from the weights, and is None without them. Keys of
        a source that a layer joins with those of its own tokens are the last ones.

        Args:
            sequence: the number of the sequence, if the context has several: each forward pass without a cache is one.
                -1: the last.
            beam_indices: ``[sequences, tokens]``, as `generate` of Hugging Face returns it
                (``return_dict_in_generate=True, output_scores=True``); then batch rows are the returned sequences.
                None: they are the beams of the last step.

        Raises:
            ArgumentError: there is no such sequence, ``beam_indices`` are those of another search, or a call reads keys
                of a cache that are not those of its earlier calls.
            ShapeError: the batch changes in an unknown way.
        """
        return self._generation().stitch(sequence, beam_indices)

    def parts(self, sequence: int = -1) -> list[list[JoinedPart]]:
        """Returns the parts of each module's calls that `stitched` joins, in the order of their queries."""
        return self._generation().parts(sequence)

    @property
    def sequences(self) -> int:
        """The number of sequences that `stitched` can return: that of the module with most of them."""
        return self._generation().count

    def _generation(self) -> Generation:
        self._deliver()
        with torch.no_grad():
            self._cached.link()
            return Generation(self.calls, self._cached)

    def texts(self, tokenizer: Any) -> list[WatchedText]:
        """Returns the texts that a Hugging Face model read: each row of each sequence, in their order.

        A sequence that the next one continues by one token, as in a generation without a cache, is no text of its own.

        Args:
            tokenizer: a tokenizer of transformers.

        Raises:
            ArgumentError: the ids of a sequence are not known.
        """
        return texts_of(self._generation(), self._token_ids, tokenizer, range(self.sequences))

    def token_axes(self, tokenizer: Any, batch_row: int = 0, sequence: int = -1) -> tuple[TokenAxis, TokenAxis | None]:
        """Returns the tokens that a Hugging Face model read in a sequence; of a beam search, the last beams'.

        Args:
            tokenizer: a tokenizer of transformers.
            batch_row, sequence: as for `records`.

        Returns:
            The tokens of the queries, and those of the source of an encoder-decoder.

        Raises:
            ArgumentError: the ids are not known, or there is no such row.
        """
        texts = texts_of(self._generation(), self._token_ids, tokenizer, (sequence,))
        if not 0 <= batch_row < len(texts):
            raise ArgumentError(f"batch_row must be from 0 to {len(texts) - 1}; it is {batch_row}")
        return texts[batch_row].queries, texts[batch_row].keys

    def records(
        self,
        query_tokens: Sequence[str] | Axis | Any,
        key_tokens: Sequence[str] | Axis | None = None,
        *,
        batch_row: int = 0,
        sequence: int = -1,
        logit: int | None = None,
    ) -> list[AttentionRecord]:
        """Returns plain records of one batch row, one for each call that has weights or a source of tiles.

        Args:
            query_tokens: the tokens of the queries, an axis of `regard.records`, or the tokenizer of a Hugging Face
                model (see `token_axes`). They may be longer than the calls' queries by one token: the last generated
                token was never fed.
            key_tokens: the tokens of the keys of cross-attention (the source of a translation), which are also those of
                the encoder; None: ``query_tokens``.
            batch_row: its number, from 0.
            sequence: as for `stitched`.
            logit: a token's id: the records also carry each pair's direct contribution to its logit
                (`regard.watching.value_logits`; watch with ``outputs=True``); None: they do not.

        The norms of weighted values are carried where they were read (``norms=True``).

        Raises:
            ArgumentError: no call has weights or tiles, or there is no such row.
            ShapeError: a call has another number of queries or keys than there are tokens.
        """
        if is_tokenizer(query_tokens):
            query_tokens, key_tokens = self.token_axes(query_tokens, batch_row, sequence)
        calls = self.stitched(sequence)
        factors = None if logit is None else (lambda call: value_logits(self.model, call, logit))
        return records_of(calls, query_tokens, key_tokens, batch_row, factors)

    def document(
        self,
        query_tokens: Sequence[str] | Axis | Any,
        key_tokens: Sequence[str] | Axis | None = None,
        *,
        title: str | None = None,
        texts: Sequence[tuple[str, str]] = (),
        batch_row: int = 0,
        sequence: int = -1,
        logit: int | None = None,
    ) -> Document:
        """Returns the records as a `regard.records.Document`. Arguments and errors as for `records`.

        Args:
            query_tokens, key_tokens, batch_row, sequence, logit: as for `records`.
            title: one line; the name of the model, or its class, if not given.
            texts: (name, text) to show with the attention.
        """
        records = self.records(query_tokens, key_tokens, batch_row=batch_row, sequence=sequence, logit=logit)
        return Document(title or model_name(self.model), tuple(records), texts=tuple(texts))

    def ablate(
        self, layer: int, head: int | Sequence[int], how: How = "zero", *, kind: Kind | None = None
    ) -> AbstractContextManager[None]:
        """Switches a head of the watched model off within a context: see `regard.watching.ablate`."""
        return ablate(self.model, layer, head, how, kind=kind)

    def _repr_html_(self) -> str:
        rows = [
            (call.name or "the model", call.layer, call.kind, call.batch, call.heads, call.queries, call.keys)
            for call in self.calls[:CALLS_LIMIT]
        ]
        others = len(self.calls) - len(rows)
        rest = f"… {counted(others, 'more call')}" if others else ""
        titles = ("module", "layer", "kind", "batch rows", "heads", "queries", "keys")
        table = columns_html(repr(self).strip("<>"), titles, rows, rest)
        first = next((call for call in self.calls if call.weights is not None and call.weights.numel()), None)
        if first is None:
            return table
        heads = f"{first.name}: layer {first.layer}, {first.kind}, batch row 0, head {first.chosen_heads[0]}"
        assert first.weights is not None
        hidden = None if first.visible_mask is None else first.visible(0)[0].logical_not().numpy()
        weights = first.weights[0, 0].float().numpy()
        return table + shaded_table(weights, caption=heads, hidden=hidden, more="regard.View(watched, tokens)")

    def __repr__(self) -> str:
        return f"<{counted(len(self.calls), 'attention call')} of {type(self.model).__name__}>"


def watch(
    model: nn.Module,
    *,
    read: Readings | ReadingName | None = None,
    layers: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    keep: bool = False,
    norms: bool = False,
    outputs: bool = False,
    inputs: bool = False,
) -> Watch:
    """Watches the attention of a model: a context that records every attention call and never changes the output.

    Output, loss, gradients and random numbers are the same as without the context, bit for bit. Readings are those of
    `observe`: of weights before dropout, tile by tile, without the matrix of weights unless requested. A recomputation
    in the backward pass (activation checkpointing) is no second call. Only the thread that opened the context counts.

    Weights alone mislead: attention weights may correlate poorly with a model's other measures of importance, and
    different weights may give the same prediction (Jain & Wallace 2019, "Attention is not Explanation"); whether that
    disqualifies them depends on the question (Wiegreffe & Pinter 2019, "Attention is not not Explanation"); and a large
    weight on a short value has little effect (Kobayashi et al. 2020, "Attention is Not Only a Weight"). So use
    ``norms=True`` and `regard.watching.logit_contributions` too, and measure with `Watch.ablate`.

    Args:
        model: any `torch.nn.Module`; not a compiled one.
        read: the readings of each call; entropy, peak and received if not given. ``"view"``: these and the weights,
            which `regard.View` shows, in quadratic memory.
        layers: the numbers of the layers, from 0; None: all.
        heads: the numbers of the query heads, from 0; None: all.
        keep: whether to keep queries, keys and values (on the CPU), so that `AttentionCall.tiles` can compute exact
            tiles of the weights and maps of any size later, and `regard.View` can show a head's calculation.
        norms: whether to read the norms of values after the output projection, for `AttentionCall.weighted_norms`.
        outputs: whether to keep each head's output and values, for `regard.watching.logit_contributions` and
            `regard.watching.value_logits`. For norms and outputs, the modules after the heads are called again with
            probing inputs, with their hooks, unless they are plain linear layers.
        inputs: whether to keep where queries and keys come from, for `regard.watching.explain_weight`: the embeddings
            and what each module adds to the residual stream, in linear memory. It implies ``keep`` and ``outputs``.

    Returns:
        A context; `Watch.calls` has the records.

    Raises:
        KindError, ArgumentError: bad arguments; a model that `torch.compile` or TorchScript compiled, by the name of
            the module. From within the model's call: readings or heads that a call does not have. At the end:
            ``norms=True`` where no linear module projects the heads; the message names both modules.
        UnseenError: at the end, if no attention call was seen.

    Warns:
        UnseenAttentionWarning: at the end, naming modules that look like attention, or mix tokens in a stack of layers
            with attention, and ran without a record.

    Example:
        >>> import torch
        >>> import regard
        >>> layer = torch.nn.TransformerEncoderLayer(16, nhead=2, batch_first=True).eval()
        >>> tokens = torch.randn(1, 5, 16)
        >>> with regard.watch(layer, read=regard.Readings(entropy=True, top_k=1)) as seen:
        ...     output = layer(tokens)
        >>> torch.equal(output, layer(tokens))
        True
        >>> [(call.name, call.layer, call.kind, call.entropy.shape) for call in seen.calls]
        [('self_attn', 0, 'self', torch.Size([1, 2, 5]))]
    """
    check_module("model", model)
    readings = as_readings(read, Readings(entropy=True, peak=True, received=True))
    check_readings(readings)
    for name, flag in (("keep", keep), ("norms", norms), ("outputs", outputs), ("inputs", inputs)):
        if not isinstance(flag, bool):
            raise KindError(f"{name} must be True or False; it is {type_text(flag)}")
    chosen_layers = chosen_numbers("layers", layers)
    chosen_heads = chosen_numbers("heads", heads)
    of_layers = None if chosen_layers is None else frozenset(chosen_layers)
    return Watch(model, readings, of_layers, chosen_heads, keep, norms, outputs, inputs)


def _heads_of_call(heads: tuple[int, ...] | None, count: int, name: str) -> tuple[int, ...]:
    if heads is None:
        return tuple(range(count))
    if max(heads) >= count:
        raise ArgumentError(f"heads must be below {count}, the heads of {name!r}; got {max(heads)}")
    return heads
