"""The programs that a trained model is exported as: functions of tensors, with the names and axes of what they take.

A classifier, a segmenter and a language model are one program, ``model``. A model that writes a text is two:
``encoder`` gives the state of the decoder before the first token, and ``step`` predicts the next token from the last
one and the state. A language model has a ``step`` too. A search calls ``step`` in a loop: its output ``next_NAME`` is
the input ``NAME`` of the next call; inputs without such an output stay as they are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.models.language_model import LanguageModel
from regard.models.luong_decoder import LuongDecoder
from regard.models.pointer_generator import EncodedSource, PointerGenerator, PointerState
from regard.models.recurrent_decoder import DecoderState, RecurrentDecoder
from regard.models.speech.location_decoder import ListeningState, LocationDecoder
from regard.models.speech.sound_classifier import SoundClassifier
from regard.models.speech.transcriber import Transcriber
from regard.models.text_classifier import TextClassifier
from regard.models.text_predictor import TextPredictor
from regard.models.transformer_decoding import TransformerPredictor, TransformerState
from regard.models.translator import Translator
from regard.models.vision.captioner import Captioner
from regard.models.vision.image_classifier import ImageClassifier
from regard.models.vision.segmenter import Segmenter
from regard.nn import KeyValueCache, KeyValues, Memory
from regard.positions import Learned

Sizes = Mapping[str, int]
"""Name of an axis → its size. `PADDING` is no axis."""

PADDING = "padding"
"""How many entries of the longest row of a padded example are padding; 0 if it is not given."""

Axes = tuple[str | int, ...]
"""The axes of a tensor: a name for one of any size, or the only size that the program takes."""

FIXED = -1
"""An axis whose only size is that of an example."""


class Input(NamedTuple):
    """An input of a program.

    Attributes:
        name: its name.
        axes: its axes.
        meaning: what it holds.
    """

    name: str
    axes: Axes
    meaning: str


@dataclass
class Program:
    """A function of tensors that is exported.

    Attributes:
        name: the name of its file, without the suffix.
        summary: what it computes.
        module: its ``forward`` takes the inputs in their order, and gives a tuple of tensors.
        inputs: the inputs.
        outputs: the outputs: name → meaning.
        example: makes inputs with the named axes of these sizes.
        sizes: sizes for the example that is traced; all differ, and none is 0 or 1, which PyTorch would fix.
        limits: the largest sizes of the axes that have one.
        checked: more sizes that are compared with the model, besides those of `regard.exports.torch_programs.checks`.
    """

    name: str
    summary: str
    module: nn.Module
    inputs: tuple[Input, ...]
    outputs: dict[str, str]
    example: Callable[[Sizes], tuple[Tensor, ...]]
    sizes: dict[str, int]
    limits: dict[str, int] = field(default_factory=dict)
    checked: tuple[dict[str, int], ...] = ()

    def other_example(self, more: int, **changed: int) -> tuple[Tensor, ...]:
        """An example whose axes are this much longer than those of ``sizes``, as far as their limits permit.

        Args:
            more: how much longer.
            changed: sizes that are exactly these.
        """
        longer = {axis: min(size + more, self.limits.get(axis, size + more)) for axis, size in self.sizes.items()}
        return self.example({**longer, **changed})

    @torch.no_grad()
    def run(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What the model of regard gives for these inputs."""
        return self.module(*inputs)


def programs_of(model: nn.Module) -> list[Program]:
    """The programs of a model of regard, which must be in evaluation mode on the CPU.

    Raises:
        ArgumentError: the model is of a class that has none.
    """
    makers: Any = (
        (TextClassifier, _text_classifier),
        (ImageClassifier, _image_classifier),
        (SoundClassifier, _sound_classifier),
        (Segmenter, _segmenter),
        (LanguageModel, _language_model),
        (TextPredictor, _text_predictor),
    )
    for kind, make in makers:
        if isinstance(model, kind):
            return make(model)
    raise ArgumentError(f"a {type(model).__name__} cannot be exported: regard knows no program of this class")


class _Forward(nn.Module):
    """A function of tensors that calls a model, as a module.

    Args:
        model: the model, whose parameters the program has.
        function: what ``forward`` computes.
    """

    def __init__(self, model: nn.Module, function: Callable[..., tuple[Tensor, ...]]):
        super().__init__()
        self.model = model
        self._function = function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._function(*inputs)


# Classifiers and the segmenter


def _text_classifier(model: TextClassifier) -> list[Program]:
    vocabulary = model.config.vocabulary
    inputs = _sequence("tokens", ("batch", "length"), "ids of the tokenizer; padding may hold any id")

    def example(sizes: Sizes) -> tuple[Tensor, ...]:
        return _random_tokens(vocabulary, sizes["batch"], sizes["length"]), _lengths(sizes, "length")

    return [_classifier(model, "the label of a text", inputs, example, {"batch": 3, "length": 7})]


def _sound_classifier(model: SoundClassifier) -> list[Program]:
    inputs, example, sizes = _sound(model)
    return [_classifier(model, "the label of a sound", inputs, example, sizes)]


def _image_classifier(model: ImageClassifier) -> list[Program]:
    inputs, example, sizes = _images(*model.encoder.size)
    return [_classifier(model, "the label of an image", inputs, example, sizes)]


def _classifier(
    model: Any, summary: str, inputs: tuple[Input, ...], example: Callable[[Sizes], tuple[Tensor, ...]], sizes: Any
) -> Program:
    attends = model.pooling is not None
    outputs = {"logits": "[batch, labels], of each label"}
    if attends:
        outputs["weights"] = "[batch, heads, annotations], the weights of the attention pooling"

    def forward(*tensors: Tensor) -> tuple[Tensor, ...]:
        classified = model(*tensors, need_weights=attends)
        return (classified.logits, classified.weights) if attends else (classified.logits,)

    return Program("model", summary, _Forward(model, forward), inputs, outputs, example, sizes)


def _segmenter(model: Segmenter) -> list[Program]:
    axes: Axes = ("batch", 3, "height", "width")
    stride = 2 ** len(model.stages)
    inputs = (Input("images", axes, f"red, green and blue from 0 to 1, with sides of more than {stride} pixels"),)

    def example(sizes: Sizes) -> tuple[Tensor, ...]:
        return (torch.rand(sizes["batch"], 3, sizes["height"], sizes["width"], generator=_generator(sizes)),)

    outputs = {"logits": "[batch, classes, height, width], of each class of each pixel"}
    sizes = {"batch": 3, "height": 2 * stride + 3, "width": 3 * stride + 5}
    module = _Forward(model, lambda images: (model(images),))
    # Sides that are multiples of the stride need no padding.
    sides = ((2 * stride, 3 * stride), (3 * stride, 2 * stride + 1), (2 * stride + 1, 2 * stride))
    checked = tuple({"batch": 2, "height": height, "width": width} for height, width in sides)
    return [Program("model", "the class of each pixel", module, inputs, outputs, example, sizes, checked=checked)]


# Inputs


def _sequence(name: str, axes: Axes, meaning: str) -> tuple[Input, ...]:
    """A padded sequence, and the lengths of its rows."""
    lengths = f"entries of each row of {name} that are no padding, from 1"
    return Input(name, axes, meaning), Input("lengths", ("batch",), lengths)


def _images(height: int, width: int) -> tuple[tuple[Input, ...], Callable[[Sizes], tuple[Tensor, ...]], dict[str, int]]:
    def example(sizes: Sizes) -> tuple[Tensor, ...]:
        shape = sizes["batch"], height, width, 3
        return (torch.randint(256, shape, generator=_generator(sizes), dtype=torch.uint8),)

    return (Input("images", ("batch", height, width, 3), "red, green and blue from 0 to 255"),), example, {"batch": 3}


def _sound(model: Any) -> tuple[tuple[Input, ...], Callable[[Sizes], tuple[Tensor, ...]], dict[str, int]]:
    width, reduction = model.encoder.input.width, model.encoder.config.reduction

    def example(sizes: Sizes) -> tuple[Tensor, ...]:
        shape = sizes["batch"], sizes["frames"], width
        return torch.randn(shape, generator=_generator(sizes)), _lengths(sizes, "frames")

    meaning = f"features of each frame, of more than {reduction} frames"
    inputs = _sequence("features", ("batch", "frames", width), meaning)
    return inputs, example, {"batch": 3, "frames": 5 * reduction + 1}


def _generator(sizes: Sizes) -> torch.Generator:
    return torch.Generator().manual_seed(sum(sizes.values()))


def _random_tokens(vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(min(4, vocabulary - 1), vocabulary, shape, generator=torch.Generator().manual_seed(sum(shape)))


def _lengths(sizes: Sizes, axis: str) -> Tensor:
    """Lengths of the rows of a batch, of which the first is the longest."""
    return (sizes[axis] - sizes.get(PADDING, 0) - 2 * torch.arange(sizes["batch"])).clamp(min=1)


# The language model, and what Transformers remember


class _GivenCache(KeyValueCache):
    """A cache of given keys and values, which a program gets as inputs: to append concatenates."""

    def __init__(self, key: Tensor, value: Tensor):
        super().__init__()
        self._given = key, value
        self.length = key.shape[2]

    @property
    def key(self) -> Tensor:
        return self._given[0]

    @property
    def value(self) -> Tensor:
        return self._given[1]

    def append(self, key: Tensor, value: Tensor) -> "_GivenCache":
        return _GivenCache(torch.cat((self.key, key), 2), torch.cat((self.value, value), 2))


def _cache_inputs(layers: Iterable[Any], axis: str, prefix: str, meaning: str) -> list[Input]:
    """Keys and values of each layer."""
    return [
        Input(
            f"{prefix}_{name}_{number}", ("batch", layer.self_attn.kv_heads, axis, layer.self_attn.head_dim),
            f"{name} of {meaning} in layer {number}",
        )
        for number, layer in enumerate(layers)
        for name in ("keys", "values")
    ]  # fmt: skip


def _caches(tensors: Sequence[Tensor]) -> list[KeyValueCache]:
    return [_GivenCache(key, value) for key, value in zip(tensors[::2], tensors[1::2], strict=True)]


def _cache_tensors(caches: Sequence[KeyValueCache]) -> list[Tensor]:
    return [tensor for cache in caches for tensor in (cache.key, cache.value)]


def _random_caches(inputs: Sequence[Input], sizes: Sizes) -> list[Tensor]:
    generator = _generator(sizes)
    shapes = [[sizes[axis] if isinstance(axis, str) else axis for axis in one.axes] for one in inputs]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def _language_model(model: LanguageModel) -> list[Program]:
    context, vocabulary = model.config.context, model.input.embedding.num_embeddings
    past = _cache_inputs(model.stack.layers, "past", "past", "the earlier tokens")
    tokens = Input("tokens", ("batch", "length"), f"ids of the tokenizer, at most {context}")

    def step(tokens: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        log_probabilities, caches = model.step(tokens, _caches(past))
        return log_probabilities, *_cache_tensors(caches)

    def first_tokens(sizes: Sizes) -> tuple[Tensor, ...]:
        return (_random_tokens(vocabulary, sizes["batch"], sizes["length"]),)

    def example(sizes: Sizes) -> tuple[Tensor, ...]:
        return _random_tokens(vocabulary, sizes["batch"], 1), *_random_caches(past, sizes)

    next_tokens = Input("tokens", ("batch", 1), "the id of the last token; of the first one with keys of length 0")
    outputs = {"log_probabilities": "[batch, vocabulary], of the next token"}
    outputs |= {f"next_{one.name}": f"{one.name} with the new token" for one in past}
    # Other positions than learned ones have no last one.
    limit = context if isinstance(model.input.position, Learned) else None
    length = 7 if limit is None else min(7, limit)
    return [
        Program(
            "model", "the token after each token of a text", _Forward(model, lambda tokens: (model(tokens),)),
            (tokens,), {"logits": "[batch, length, vocabulary], of the token after each one"}, first_tokens,
            {"batch": 8, "length": length}, {} if limit is None else {"length": limit},
        ),
        Program(
            "step", "the next token, from the last token and the keys and values of the earlier ones",
            _Forward(model, step), (next_tokens, *past), outputs, example,
            {"batch": 8, "past": max(2, length - 2)}, {} if limit is None else {"past": limit - 1},
        ),
    ]  # fmt: skip


# Models that write a text


@dataclass
class _State:
    """How the state of a decoder is a list of tensors.

    Attributes:
        changing: what each step changes.
        constant: what the encoder gave, which stays as it is.
        tensors: the tensors of a state, those of ``changing`` first; it gets the lengths of the sources as well.
        state: the state of such tensors.
    """

    changing: list[Input]
    constant: list[Input]
    tensors: Callable[[Any, Tensor], list[Tensor]]
    state: Callable[[Sequence[Tensor]], Any]

    @property
    def inputs(self) -> list[Input]:
        """All tensors of the state."""
        return [*self.changing, *self.constant]


def _text_predictor(model: Any) -> list[Program]:
    inputs, example, sizes = _source(model)
    decoding = _decoding(model)
    limits = {} if decoding.max_length is None or "source" not in sizes else {"source": decoding.max_length}
    form = _state_form(model)
    vocabulary = model.config.target_vocabulary

    def encode(*source: Tensor) -> tuple[Tensor, ...]:
        encoded = _encoded(model, source)
        return tuple(form.tensors(model.start(encoded), encoded.lengths))

    def step(tokens: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        result = model.step(tokens, form.state(tensors))
        changed = form.tensors(result.state, tokens)[: len(form.changing)]  # the lengths are not among them
        weights = () if result.weights is None else (result.weights,)
        return result.log_probabilities, *weights, *changed

    def step_example(sizes: Sizes) -> tuple[Tensor, ...]:
        with torch.no_grad():
            source = example(sizes)
            tensors = list(encode(*source))
            tokens = torch.full((sizes["batch"],), model.config.bos)
            for _ in range(sizes.get("past", 2)):  # as many tokens as the caches then hold
                _, *rest = step(tokens, *tensors)
                tensors[: len(form.changing)] = rest[len(rest) - len(form.changing) :]
                tokens = _random_tokens(vocabulary, sizes["batch"])
        return tokens, *tensors

    with torch.no_grad():
        first = encode(*example(sizes))
    form.constant = [_with_fixed(one, tensor) for one, tensor in zip(form.inputs, first, strict=True)][
        len(form.changing) :
    ]
    attends = model.attends
    outputs = {"log_probabilities": "[batch, vocabulary], of the next token"}
    if isinstance(model, PointerGenerator) and model.gate is not None:
        outputs["log_probabilities"] = "[batch, vocabulary + source], of the next token or word of the source"
    if attends:
        outputs["weights"] = "[batch, source], the attention weights of the step"
    outputs |= {f"next_{one.name}": f"{one.name} after the step" for one in form.changing}
    tokens = Input("tokens", ("batch",), f"the id of the last token; {model.config.bos} before the first one")
    encoder = Program(
        "encoder", "the state of the decoder before the first token", _Forward(model, encode), inputs,
        {one.name: one.meaning for one in form.inputs}, example, sizes, limits,
    )  # fmt: skip
    past = {"past": 2} if isinstance(decoding, TransformerPredictor) else {}
    longest: Any = getattr(decoding, "max_length", None)
    if past and longest is not None:
        limits = {**limits, "past": longest - 1}
    return [
        encoder,
        Program(
            "step", "the next token, from the last token and the state", _Forward(model, step),
            (tokens, *form.inputs), outputs, step_example, {**sizes, **past}, limits,
        ),
    ]  # fmt: skip


def _with_fixed(one: Input, tensor: Tensor) -> Input:
    """The input with the sizes of an example for its fixed axes."""
    axes = tuple(size if axis == FIXED else axis for axis, size in zip(one.axes, tensor.shape, strict=True))
    return one._replace(axes=axes)


def _decoding(model: Any) -> Any:
    """The model whose decoder runs: that inside of a pointer-generator."""
    return model.translator if isinstance(model, PointerGenerator) else model


def _source(model: Any) -> tuple[tuple[Input, ...], Callable[[Sizes], tuple[Tensor, ...]], dict[str, int]]:
    if isinstance(model, Captioner):
        return _images(*model.encoder.size)
    if isinstance(model, Transcriber):
        return _sound(model)
    if not isinstance(model, Translator):
        raise ArgumentError(f"a {type(model).__name__} cannot be exported: regard knows no program of this class")
    vocabulary = model.config.source_vocabulary

    def example(sizes: Sizes) -> tuple[Tensor, ...]:
        return _random_tokens(vocabulary, sizes["batch"], sizes["source"]), _lengths(sizes, "source")

    meaning = "ids of the tokenizer of the source; padding may hold any id"
    if isinstance(model, PointerGenerator) and model.gate is not None:
        meaning += f". A word that it does not know may have an id from {vocabulary}, by which it is copied"
    longest = _decoding(model).max_length
    length = 7 if longest is None else min(7, longest)
    batch = 3 if length > 3 else 5
    return _sequence("tokens", ("batch", "source"), meaning), example, {"batch": batch, "source": length}


def _encoded(model: Any, source: Sequence[Tensor]) -> Encoded:
    if not isinstance(model, PointerGenerator):
        return model.encode(*source)
    tokens, lengths = source
    encoded = model.translator.encode(model.known(tokens), lengths)
    # Each token of the source adds at most one word to the vocabulary.
    size = model.config.target_vocabulary + (tokens.shape[1] if model.gate is not None else 0)
    return EncodedSource(encoded.annotations, encoded.lengths, encoded.summary, source=tokens, size=size)


def _state_form(model: Any) -> _State:
    if isinstance(model, PointerGenerator):
        return _pointer_state(model, _state_form(model.translator))
    if isinstance(model, TransformerPredictor):
        return _transformer_state(model)
    decoder = model.decoder
    if not isinstance(decoder, RecurrentDecoder):
        raise ArgumentError(f"a {type(decoder).__name__} cannot be exported: regard knows no program of this class")
    return _recurrent_state(decoder)


def _pointer_state(model: PointerGenerator, form: _State) -> _State:
    """Besides the state of the decoder, what is copied from."""
    names = {one.name for one in form.inputs}
    more = [
        Input("annotations", ("batch", "source", FIXED), "what the encoder made of each token"),
        Input("source_tokens", ("batch", "source"), "the source, as the encoder read it"),
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

    return _State(form.changing, [*form.constant, *(more if copies else ())], tensors, state)


def _transformer_state(model: TransformerPredictor) -> _State:
    layers = list(model.decoder.layers)
    changing = _cache_inputs(layers, "past", "past", "the target tokens so far, of length 0 at first,")
    constant = _cache_inputs(layers, "source", "memory", "the source")
    constant.append(Input("source_lengths", ("batch",), "annotations of each source"))
    count = 2 * len(layers)

    def tensors(state: TransformerState, lengths: Tensor) -> list[Tensor]:
        memory: list[Any] = list(state.memory)
        assert all(isinstance(one, KeyValues) for one in memory)
        keys = [tensor for one in memory for tensor in (one.key, one.value)]
        past = []
        for cache, one in zip(state.caches, memory, strict=True):
            empty = one.key[:, :, :0], one.value[:, :, :0]
            past += [cache.key, cache.value] if cache.length else empty
        return [*past, *keys, lengths]

    def state(tensors: Sequence[Tensor]) -> TransformerState:
        *keys, lengths = tensors
        memory = [
            KeyValues(key, value, lengths) for key, value in zip(keys[count::2], keys[count + 1 :: 2], strict=True)
        ]
        return TransformerState(memory, _caches(keys[:count]))

    return _State(changing, constant, tensors, state)


def _recurrent_state(decoder: RecurrentDecoder) -> _State:
    recurrence = decoder.recurrence
    embedding_dim = decoder.embedding.embedding_dim
    attention = getattr(decoder, "attention", None)
    feeds = isinstance(decoder, LuongDecoder) and decoder.input_feeding
    covers = bool(getattr(decoder, "covers", False))
    listens = isinstance(decoder, LocationDecoder) and decoder.located
    scope = decoder.scope if isinstance(decoder, LuongDecoder) else "global"
    names = ("hidden", "cell")[: recurrence.states]
    axes: Axes = (recurrence.layers, "batch", recurrence.hidden_dim)
    changing = [Input(name, axes, f"the {name} states of the layers") for name in names]
    if feeds:
        changing.append(Input("fed", ("batch", embedding_dim), "the last attentional vector"))
    if covers:
        changing.append(Input("coverage", ("batch", "source"), "the sum of the weights of all steps so far"))
    if listens:
        changing.append(Input("previous_weights", ("batch", "source"), "the weights of the step before"))
    if scope == "local-m":
        changing.append(Input("position", (), "the number of tokens so far"))
    constant = []
    if attention is not None:
        constant = [
            Input("keys", ("batch", "source", FIXED), "the annotations, projected by the score"),
            Input("values", ("batch", "source", FIXED), "the annotations"),
            Input("visible", ("batch", "source"), "which of them are no padding"),
        ]
    if scope != "global":
        constant.append(Input("source_lengths", ("batch",), "annotations of each source"))

    def tensors(state: DecoderState, lengths: Tensor) -> list[Tensor]:
        tensors_of_state = list(state.recurrent)
        first = state.recurrent[0]
        if feeds:
            tensors_of_state.append(first.new_zeros(first.shape[1], embedding_dim) if state.fed is None else state.fed)
        if covers:
            tensors_of_state.append(state.covered)
        if listens:
            assert isinstance(state, ListeningState)
            tensors_of_state.append(state.covered if state.weights is None else state.weights)
        if scope == "local-m":
            tensors_of_state.append(torch.as_tensor(state.position))
        if state.memory is not None:
            assert state.memory.mask is not None
            tensors_of_state += [state.memory.key, state.memory.value, state.memory.mask]
        return [*tensors_of_state, *([lengths] if scope != "global" else ())]

    def state(tensors: Sequence[Tensor]) -> DecoderState:
        by_name = dict(zip((one.name for one in (*changing, *constant)), tensors, strict=True))
        memory = None
        if attention is not None:
            memory = Memory(by_name["keys"], by_name["values"], attention.score.projected(), by_name["visible"])
        options = {
            "recurrent": tuple(by_name[name] for name in names),
            "memory": memory,
            "lengths": by_name.get("source_lengths", tensors[0].new_zeros(0)),
            "fed": by_name.get("fed"),
            "coverage": by_name.get("coverage"),
            "position": by_name.get("position", 0),
        }
        if isinstance(decoder, LocationDecoder):
            return ListeningState(**options, weights=by_name.get("previous_weights"))
        return DecoderState(**options)

    return _State(changing, constant, tensors, state)
