"""The states of decoders as lists of tensors, which a step of a search takes and returns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.exports.formats import UnexportableError
from regard.exports.program import FIXED_SIZE, Axes, AxisSizes, ProgramInput, generator_of
from regard.models.luong_decoder import LuongDecoder
from regard.models.pointer_generator import PointerGenerator, PointerState
from regard.models.recurrent_decoder import DecoderState, RecurrentDecoder
from regard.models.transformer_decoding import TransformerPredictor, TransformerState
from regard.nn import (
    EarlierWeights,
    KeyValueCache,
    KeyValues,
    Memory,
    MonotonicAttention,
    MonotonicMemory,
    MultiheadAttention,
)

EARLIER = {
    "previous": ProgramInput("previous_weights", ("batch", "source"), "the weights of the step before"),
    "total": ProgramInput("coverage", ("batch", "source"), "the sum of the weights of all steps so far"),
    "transition": ProgramInput("transition", ("batch",), "the probability to move on by one annotation"),
}
"""The input for each field of `EarlierWeights`."""

STOPS = {"previous": ProgramInput("stops", ("batch", "source"), "where the step before stopped")}
"""That of a `MonotonicAttention`."""


class InputCache(KeyValueCache):
    """A cache of keys and values that are inputs of a program: `appended` concatenates."""

    def __init__(self, key: Tensor, value: Tensor):
        super().__init__()
        self._inputs = key, value
        self.length = key.shape[2]

    @property
    def key(self) -> Tensor:
        return self._inputs[0]

    @property
    def value(self) -> Tensor:
        return self._inputs[1]

    def appended(self, key: Tensor, value: Tensor) -> "InputCache":
        return InputCache(torch.cat((self.key, key), 2), torch.cat((self.value, value), 2))


def cache_inputs(layers: Iterable[Any], axis: str, prefix: str, meaning: str) -> list[ProgramInput]:
    """Returns the inputs for the keys and values of each layer."""
    layers = list(layers)
    if not all(isinstance(layer.self_attn, MultiheadAttention) for layer in layers):
        raise UnexportableError(
            "a program of steps keeps the keys and values of multi-head attention, and this model has another "
            "self-attention",
            {"self_attention": "multihead"},
        )
    return [
        ProgramInput(
            f"{prefix}_{name}_{number}", ("batch", layer.self_attn.kv_heads, axis, layer.self_attn.head_dim),
            f"{name} of {meaning} in layer {number}",
        )
        for number, layer in enumerate(layers)
        for name in ("keys", "values")
    ]  # fmt: skip


def caches_of(tensors: Sequence[Tensor]) -> list[KeyValueCache]:
    """Returns the caches of keys and values, which alternate."""
    return [InputCache(key, value) for key, value in zip(tensors[::2], tensors[1::2], strict=True)]


def cache_tensors(caches: Sequence[Any]) -> list[Tensor]:
    """Returns the keys and values of caches: the inverse of `caches_of`."""
    return [tensor for cache in caches for tensor in (cache.key, cache.value)]


def random_caches(inputs: Sequence[ProgramInput], sizes: AxisSizes) -> list[Tensor]:
    """Returns random keys and values of these sizes."""
    generator = generator_of(sizes)
    shapes = [[sizes[axis] if isinstance(axis, str) else axis for axis in one.axes] for one in inputs]
    return [torch.randn(shape, generator=generator) for shape in shapes]


@dataclass
class DecoderForm:
    """The conversion of a decoder's state, with the lengths of the sources, to ``tensors``, first those that each step
    changes, then those that stay as the encoder made them, and back to a ``state``."""

    changing: list[ProgramInput]
    constant: list[ProgramInput]
    tensors: Callable[[Any, Tensor], list[Tensor]]
    state: Callable[[Sequence[Tensor]], Any]

    @property
    def inputs(self) -> list[ProgramInput]:
        """All tensors of the state."""
        return [*self.changing, *self.constant]


def decoder_form(model: Any) -> DecoderForm:
    """Returns the conversion of the state of a model's decoder."""
    if isinstance(model, PointerGenerator):
        return _pointer_state(model, decoder_form(model.translator))
    if isinstance(model, TransformerPredictor):
        return _transformer_state(model)
    decoder = model.decoder
    if not isinstance(decoder, RecurrentDecoder):
        raise ArgumentError(f"a {type(decoder).__name__} cannot be exported: regard knows no program of this class")
    return _recurrent_state(decoder)


def _pointer_state(model: PointerGenerator, form: DecoderForm) -> DecoderForm:
    """Adds the annotations and the source, from which words are copied, to the form of the decoder."""
    names = {one.name for one in form.inputs}
    more = [
        ProgramInput("annotations", ("batch", "source", FIXED_SIZE), "what the encoder made of each token"),
        ProgramInput("source_tokens", ("batch", "source"), "the source, as the encoder read it"),
    ]
    assert not names & {one.name for one in more}
    copies = model.gate is not None
    size = model.config.target_vocabulary

    def tensors(state: PointerState, lengths: Tensor) -> list[Tensor]:
        return [*form.tensors(state.decoder, lengths), *((state.annotations, state.source) if copies else ())]

    def state(tensors: Sequence[Tensor]) -> PointerState:
        if not copies:
            empty = tensors[0].new_zeros(0)
            return PointerState(form.state(tensors), empty, empty, size)
        *decoder, annotations, source = tensors
        return PointerState(form.state(decoder), annotations, source, size + source.shape[1])

    return DecoderForm(form.changing, [*form.constant, *(more if copies else ())], tensors, state)


def _transformer_state(model: TransformerPredictor) -> DecoderForm:
    """Returns the form of the keys and values of a Transformer."""
    layers = list(model.decoder.layers)
    changing = cache_inputs(layers, "past", "past", "the target tokens so far, of length 0 at first,")
    constant = cache_inputs(layers, "source", "memory", "the source")
    constant.append(ProgramInput("source_lengths", ("batch",), "annotations of each source"))
    count = 2 * len(layers)

    def tensors(state: TransformerState, lengths: Tensor) -> list[Tensor]:
        memory: list[Any] = list(state.memory)
        assert all(isinstance(one, KeyValues) for one in memory)
        keys = [tensor for one in memory for tensor in (one.key, one.value)]
        past = []
        for cache, one in zip(state.caches, memory, strict=True):
            empty = one.key[:, :, :0], one.value[:, :, :0]
            past += cache_tensors([cache]) if cache.length else empty
        return [*past, *keys, lengths]

    def state(tensors: Sequence[Tensor]) -> TransformerState:
        *keys, lengths = tensors
        memory = [
            KeyValues(key, value, lengths) for key, value in zip(keys[count::2], keys[count + 1 :: 2], strict=True)
        ]
        return TransformerState(memory, caches_of(keys[:count]))

    return DecoderForm(changing, constant, tensors, state)


def _recurrent_state(decoder: RecurrentDecoder) -> DecoderForm:
    """Returns the form of the fields of a `DecoderState`."""
    recurrence = decoder.recurrence
    embedding_dim = decoder.embedding.embedding_dim
    attention: Any = getattr(decoder, "attention", None)
    feeds = isinstance(decoder, LuongDecoder) and decoder.input_feeding
    monotonic = attention if isinstance(attention, MonotonicAttention) else None
    seen = getattr(attention, "sees_earlier", ())
    earlier_inputs = EARLIER if monotonic is None else STOPS
    first_weights = getattr(attention, "first", None)
    attention = attention if monotonic is None else monotonic.attention
    scope = decoder.scope if isinstance(decoder, LuongDecoder) else "global"
    names = ("hidden", "cell")[: recurrence.states]
    axes: Axes = (recurrence.layers, "batch", recurrence.hidden_dim)
    changing = [ProgramInput(name, axes, f"the {name} states of the layers") for name in names]
    if feeds:
        changing.append(ProgramInput("fed", ("batch", embedding_dim), "the last attentional vector"))
    changing += [earlier_inputs[name] for name in seen]
    if scope == "local-m":
        changing.append(ProgramInput("position", (), "the number of tokens so far"))
    constant = []
    if attention is not None:
        constant = [
            ProgramInput("keys", ("batch", "source", FIXED_SIZE), "the annotations, projected by the score"),
            ProgramInput("values", ("batch", "source", FIXED_SIZE), "the annotations"),
            ProgramInput("visible", ("batch", "source"), "which of them are no padding"),
        ]
    if monotonic is not None and monotonic.chunk is not None:
        constant.append(
            ProgramInput("chunk_keys", ("batch", "source", FIXED_SIZE), "the same, projected by the score of chunks")
        )
    if scope != "global":
        constant.append(ProgramInput("source_lengths", ("batch",), "annotations of each source"))

    def tensors(state: DecoderState, lengths: Tensor) -> list[Tensor]:
        tensors_of_state = list(state.recurrent)
        first = state.recurrent[0]
        if feeds:
            tensors_of_state.append(first.new_zeros(first.shape[1], embedding_dim) if state.fed is None else state.fed)
        if first_weights is not None and seen:
            earlier = first_weights(state.memory) if state.earlier is None else state.earlier
            tensors_of_state += [getattr(earlier, name) for name in seen]
        if scope == "local-m":
            tensors_of_state.append(torch.as_tensor(state.position))
        if state.memory is not None:
            assert state.memory.mask is not None
            tensors_of_state += [state.memory.key, state.memory.value, state.memory.mask]
            if isinstance(state.memory, MonotonicMemory) and state.memory.chunk is not None:
                tensors_of_state.append(state.memory.chunk.key)
        return [*tensors_of_state, *([lengths] if scope != "global" else ())]

    def state(tensors: Sequence[Tensor]) -> DecoderState:
        by_name = dict(zip((one.name for one in (*changing, *constant)), tensors, strict=True))
        memory = None
        if attention is not None:
            memory = Memory(by_name["keys"], by_name["values"], attention.score.projected(), by_name["visible"])
        if monotonic is not None and memory is not None:
            fields = memory.key, memory.value, memory.score, memory.mask, None
            chunk = None
            if monotonic.chunk is not None:
                chunk = replace(memory, key=by_name["chunk_keys"], score=monotonic.chunk.score.projected())
            memory = MonotonicMemory(*fields, chunk)
        options = {
            "recurrent": tuple(by_name[name] for name in names),
            "memory": memory,
            "lengths": by_name.get("source_lengths", tensors[0].new_zeros(0)),
            "fed": by_name.get("fed"),
            "position": by_name.get("position", 0),
        }
        parts = {name: by_name[earlier_inputs[name].name] for name in seen}
        # A part that no weight depends on may be any tensor.
        earlier = EarlierWeights(**{"previous": parts.get("total"), **parts}) if parts else None
        return DecoderState(**options, earlier=earlier)

    return DecoderForm(changing, constant, tensors, state)
