"""The programs that a trained model is exported as: functions of tensors, with the names and axes of their inputs.

A classifier, a segmenter and a language model are one program, ``model``. A model that writes a text is two:
``encoder`` gives the state of the decoder before the first token, and ``step`` predicts the next token from the last
one and the state. A language model has a ``step`` too. A search calls ``step`` in a loop: its output ``next_NAME`` is
the input ``NAME`` of the next call; inputs without such an output stay as they are.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.speech.log_mel import FLOOR, LogMel
from regard.errors import ArgumentError
from regard.exports.decoder_states import cache_inputs, cache_tensors, caches_of, decoder_form, random_caches
from regard.exports.program import (
    FIXED_SIZE,
    PADDING,
    Axes,
    AxisSizes,
    Program,
    ProgramInput,
    generator_of,
    random_tokens,
    row_lengths,
)
from regard.models.encoders import Encoded
from regard.models.language_model import LanguageModel
from regard.models.pointer_generator import EncodedSource, PointerGenerator
from regard.models.speech.sound_classifier import SoundClassifier
from regard.models.speech.transcriber import Transcriber
from regard.models.text_classifier import TextClassifier
from regard.models.text_predictor import TextPredictor
from regard.models.transformer_decoding import TransformerPredictor
from regard.models.translator import Translator
from regard.models.vision.captioner import Captioner
from regard.models.vision.image_classifier import ImageClassifier
from regard.models.vision.segmenter import Segmenter
from regard.positions import Learned


def programs_of(model: nn.Module, front_end: LogMel | None = None) -> list[Program]:
    """Returns the programs of a model of regard, which must be in evaluation mode on the CPU, with the computation of
    its features of sounds, if there is a front end. Raises ArgumentError if the model is of a class that has none."""
    makers: Any = (
        (TextClassifier, _text_classifier),
        (ImageClassifier, lambda model: [_classifier(model, "the label of an image", *_images(*model.encoder.size))]),
        (SoundClassifier, lambda model: [_classifier(model, "the label of a sound", *_sound(model))]),
        (Segmenter, _segmenter),
        (LanguageModel, _language_model),
        (TextPredictor, _text_predictor),
    )
    for kind, make in makers:
        if isinstance(model, kind):
            programs = make(model)
            if front_end is None:
                return programs
            return [reads_samples(one, front_end) if one.inputs[0].name == FEATURES else one for one in programs]
    raise ArgumentError(f"a {type(model).__name__} cannot be exported: regard knows no program of this class")


class _Forward(nn.Module):
    """A function of tensors that calls a model, as a module with the model's parameters."""

    def __init__(self, model: nn.Module, function: Callable[..., tuple[Tensor, ...]]):
        super().__init__()
        self.model = model
        self._function = function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._function(*inputs)


def _text_classifier(model: TextClassifier) -> list[Program]:
    vocabulary = model.config.vocabulary
    inputs = _sequence("tokens", ("batch", "length"), "ids of the tokenizer; padding may hold any id")

    def example(sizes: AxisSizes) -> tuple[Tensor, ...]:
        return random_tokens(vocabulary, sizes["batch"], sizes["length"]), row_lengths(sizes, "length")

    return [_classifier(model, "the label of a text", inputs, example, {"batch": 3, "length": 7})]


def _classifier(
    model: Any,
    summary: str,
    inputs: tuple[ProgramInput, ...],
    example: Callable[[AxisSizes], tuple[Tensor, ...]],
    sizes: Any,
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
    inputs = (
        ProgramInput("images", axes, f"red, green and blue from 0 to 1, with sides of more than {stride} pixels"),
    )

    def example(sizes: AxisSizes) -> tuple[Tensor, ...]:
        return (torch.rand(sizes["batch"], 3, sizes["height"], sizes["width"], generator=generator_of(sizes)),)

    outputs = {"logits": "[batch, classes, height, width], of each class of each pixel"}
    sizes = {"batch": 3, "height": 2 * stride + 3, "width": 3 * stride + 5}
    module = _Forward(model, lambda images: (model(images),))
    # Sides that are multiples of the stride need no padding.
    sides = ((2 * stride, 3 * stride), (3 * stride, 2 * stride + 1), (2 * stride + 1, 2 * stride))
    checked = tuple({"batch": 2, "height": height, "width": width} for height, width in sides)
    return [Program("model", "the class of each pixel", module, inputs, outputs, example, sizes, checked=checked)]


def _sequence(name: str, axes: Axes, meaning: str) -> tuple[ProgramInput, ...]:
    """Returns the inputs for a padded sequence and the lengths of its rows."""
    lengths = f"entries of each row of {name} that are no padding, from 1"
    return ProgramInput(name, axes, meaning), ProgramInput("lengths", ("batch",), lengths)


def _images(
    height: int, width: int
) -> tuple[tuple[ProgramInput, ...], Callable[[AxisSizes], tuple[Tensor, ...]], dict[str, int]]:
    def example(sizes: AxisSizes) -> tuple[Tensor, ...]:
        shape = sizes["batch"], height, width, 3
        return (torch.randint(256, shape, generator=generator_of(sizes), dtype=torch.uint8),)

    return (
        (ProgramInput("images", ("batch", height, width, 3), "red, green and blue from 0 to 255"),),
        example,
        {"batch": 3},
    )


def _sound(model: Any) -> tuple[tuple[ProgramInput, ...], Callable[[AxisSizes], tuple[Tensor, ...]], dict[str, int]]:
    width, reduction = model.encoder.input.width, model.encoder.config.reduction

    def example(sizes: AxisSizes) -> tuple[Tensor, ...]:
        shape = sizes["batch"], sizes["frames"], width
        return torch.randn(shape, generator=generator_of(sizes)), row_lengths(sizes, "frames")

    meaning = f"features of each frame, of more than {reduction} frames"
    inputs = _sequence(FEATURES, ("batch", "frames", width), meaning)
    return inputs, example, {"batch": 3, "frames": 5 * reduction + 1}


def _language_model(model: LanguageModel) -> list[Program]:
    context, vocabulary = model.config.context, model.input.embedding.num_embeddings
    past = cache_inputs(model.stack.layers, "past", "past", "the earlier tokens")
    tokens = ProgramInput("tokens", ("batch", "length"), f"ids of the tokenizer, at most {context}")

    def step(tokens: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        log_probabilities, caches = model.step(tokens, caches_of(past))
        return log_probabilities, *cache_tensors(caches)

    def example(sizes: AxisSizes) -> tuple[Tensor, ...]:
        return random_tokens(vocabulary, sizes["batch"], 1), *random_caches(past, sizes)

    next_tokens = ProgramInput(
        "tokens", ("batch", 1), "the id of the last token; of the first one with keys of length 0"
    )
    outputs = {"log_probabilities": "[batch, vocabulary], of the next token"}
    outputs |= {f"next_{one.name}": f"{one.name} with the new token" for one in past}
    # Other positions than learned ones have no last one.
    limit = context if isinstance(model.input.position, Learned) else None
    length = 7 if limit is None else min(7, limit)
    return [
        Program(
            "model", "the token after each token of a text", _Forward(model, lambda tokens: (model(tokens),)),
            (tokens,), {"logits": "[batch, length, vocabulary], of the token after each one"},
            lambda sizes: (random_tokens(vocabulary, sizes["batch"], sizes["length"]),),
            {"batch": 8, "length": length}, {} if limit is None else {"length": limit},
        ),
        Program(
            "step", "the next token, from the last token and the keys and values of the earlier ones",
            _Forward(model, step), (next_tokens, *past), outputs, example,
            {"batch": 8, "past": max(2, length - 2)}, {} if limit is None else {"past": limit - 1},
        ),
    ]  # fmt: skip


def _text_predictor(model: Any) -> list[Program]:
    inputs, example, sizes = _source(model)
    decoding = _decoding(model)
    limits = {} if decoding.max_length is None or "source" not in sizes else {"source": decoding.max_length}
    form = decoder_form(model)
    vocabulary = model.config.target_vocabulary

    def encode(*source: Tensor) -> tuple[Tensor, ...]:
        encoded = _encoded(model, source)
        return tuple(form.tensors(model.start(encoded), encoded.lengths))

    def step(tokens: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        result = model.step(tokens, form.state(tensors))
        changed = form.tensors(result.state, tokens)[: len(form.changing)]  # the lengths are not among them
        weights = () if result.weights is None else (result.weights,)
        return result.log_probabilities, *weights, *changed

    def step_example(sizes: AxisSizes) -> tuple[Tensor, ...]:
        with torch.no_grad():
            source = example(sizes)
            tensors = list(encode(*source))
            tokens = torch.full((sizes["batch"],), model.config.bos)
            for _ in range(sizes.get("past", 2)):  # as many tokens as the caches then hold
                _, *rest = step(tokens, *tensors)
                tensors[: len(form.changing)] = rest[len(rest) - len(form.changing) :]
                tokens = random_tokens(vocabulary, sizes["batch"])
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
    tokens = ProgramInput("tokens", ("batch",), f"the id of the last token; {model.config.bos} before the first one")
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


def _with_fixed(one: ProgramInput, tensor: Tensor) -> ProgramInput:
    """Returns the input with the sizes of an example for its fixed axes."""
    axes = tuple(size if axis == FIXED_SIZE else axis for axis, size in zip(one.axes, tensor.shape, strict=True))
    return one._replace(axes=axes)


def _decoding(model: Any) -> Any:
    """Returns the model whose decoder runs: that inside of a pointer-generator."""
    return model.translator if isinstance(model, PointerGenerator) else model


def _source(model: Any) -> tuple[tuple[ProgramInput, ...], Callable[[AxisSizes], tuple[Tensor, ...]], dict[str, int]]:
    if isinstance(model, Captioner):
        return _images(*model.encoder.size)
    if isinstance(model, Transcriber):
        return _sound(model)
    if not isinstance(model, Translator):
        raise ArgumentError(f"a {type(model).__name__} cannot be exported: regard knows no program of this class")
    vocabulary = model.config.source_vocabulary

    def example(sizes: AxisSizes) -> tuple[Tensor, ...]:
        return random_tokens(vocabulary, sizes["batch"], sizes["source"]), row_lengths(sizes, "source")

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


FEATURES = "features"
"""The input of a program that reads features of sounds; its other input is their lengths."""


def exact_hop(front_end: LogMel) -> Fraction:
    """Returns the samples between two frames."""
    return Fraction(front_end.hop).limit_denominator(1_000_000)


class LogMelInput(nn.Module):
    """`regard.data.speech.log_mel.LogMel`, ``front_end``, of a padded batch, in operators that PyTorch exports."""

    window: Tensor
    filters: Tensor

    def __init__(self, front_end: LogMel):
        super().__init__()
        self.front_end = front_end
        self.hop = exact_hop(front_end)
        window = np.hanning(front_end.length + 1)[: front_end.length]
        self.register_buffer("window", torch.from_numpy(window), persistent=False)
        self.register_buffer("filters", torch.from_numpy(front_end.filters.T.copy()), persistent=False)

    def forward(self, samples: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the features ``[batch, frames, bands]`` of samples ``[batch, samples]`` of whole frames, and the
        number of frames of each row; padding has no effect."""
        length = self.front_end.length
        present = torch.arange(samples.shape[1], device=samples.device) < lengths[:, None]
        signal = samples.double()
        emphasized = signal - self.front_end.preemphasis * F.pad(signal[:, :-1], (1, 0))
        padded = F.pad(emphasized.masked_fill(~present, 0.0), (length, 2 * length))
        # Exporters cannot reason about a number of frames that is rounded.
        frames = samples.shape[1] // self.hop.numerator * self.hop.denominator
        frame = torch.arange(frames, device=samples.device)
        starts = ((frame + 0.5) * self.front_end.hop + 0.5).floor().long() - length // 2 + length
        windows = padded[:, starts[:, None] + torch.arange(length, device=samples.device)] * self.window
        spectrum = torch.view_as_real(torch.fft.rfft(windows, self.front_end.size))
        energies = spectrum.square().sum(-1) @ self.filters
        return energies.clamp(min=FLOOR).log().float(), (lengths * self.hop.denominator - 1) // self.hop.numerator + 1


class _OfSamples(nn.Module):
    """A function of samples, made from a front end and a function of features and their lengths."""

    def __init__(self, module: nn.Module, front_end: LogMel):
        super().__init__()
        self.features, self.module = LogMelInput(front_end), module

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.module(*self.features(*inputs))


def reads_samples(program: Program, front_end: LogMel) -> Program:
    """Puts a front end before a program of features ``[batch, frames, bands]`` and lengths, which then reads samples
    instead."""

    def reference(samples: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        rows = [
            torch.from_numpy(front_end(row[:length].numpy()))
            for row, length in zip(samples, lengths.tolist(), strict=True)
        ]
        frames = front_end.frames(samples.shape[1])
        features = torch.stack([F.pad(row, (0, 0, 0, frames - len(row))) for row in rows])
        return program.module(features, torch.tensor([len(row) for row in rows]))

    def example(sizes: AxisSizes) -> tuple[Tensor, ...]:
        whole = -(-sizes["samples"] // block) * block
        samples = 0.1 * torch.randn(sizes["batch"], whole, generator=generator_of(sizes))
        shorter = int(2 * front_end.hop) * torch.arange(sizes["batch"])
        return samples, (sizes["samples"] - sizes.get(PADDING, 0) - shorter).clamp(min=1)

    block = exact_hop(front_end).numerator
    size = max(int(program.sizes["frames"] * front_end.hop), 3 * block)  # PyTorch would fix a size of one block
    inputs = (
        ProgramInput(
            "samples",
            ("batch", "samples"),
            f"samples of sounds, {front_end.rate} a second, with a full scale from -1 to 1; padded to a multiple of "
            f"{block}",
        ),
        ProgramInput("lengths", ("batch",), "samples of each sound, from 1"),
    )
    return Program(
        program.name, program.summary, _OfSamples(program.module, front_end), inputs, program.outputs, example,
        {"batch": program.sizes["batch"], "samples": size}, multiples={"samples": block},
        checked=({"batch": 2, "samples": 2 * size + 37},), reference=reference,
    )  # fmt: skip
