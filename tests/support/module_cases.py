"""Every public module of regard, small: how it is made, and what it is called with."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import models, nn, normalizers, positions, scores
from regard.models.speech.sound_classifier import SoundClassifier, SoundClassifierConfig
from regard.models.speech.transcriber import RecurrentTranscriber, TranscriberConfig, TransformerTranscriber
from regard.models.vision.image_classifier import ImageClassifier, ImageClassifierConfig
from regard.models.vision.recurrent_captioner import RecurrentCaptioner
from regard.models.vision.segmenter import Segmenter, SegmenterConfig
from regard.models.vision.transformer_captioner import TransformerCaptioner

DIM, HEADS, WORDS, CHANNELS, WIDTH = 12, 2, 13, 16, 7
LAYER = nn.LayerConfig(dim=DIM, heads=HEADS, feedforward=17, dropout=0.0)
IMAGE = {"image_height": 8, "image_width": 12}
GRID = {**IMAGE, "grid": 6, "stages": 2, "patch": 2, "target_vocabulary": WORDS}
SOUND = {"width": WIDTH, "hidden": 12, "channels": 5, "dropout": 0.0}
SPEECH_TRANSFORMER = {"architecture": "transformer", "encoder_layers": 1, "heads": 3, "feedforward": 17}
RECURRENT = {"embedding": 10, "hidden": 14, "dropout": 0.0}
TRANSFORMER = {
    "architecture": "transformer",
    "hidden": DIM,
    "heads": HEADS,
    "feedforward": 17,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dropout": 0.0,
}


def _classifier(**options: object) -> torch_nn.Module:
    sizes = {"dropout": 0.0, "word_dropout": 0.0, **options}
    sizes |= {} if options["architecture"] == "none" else {"hidden": DIM}
    sizes |= {} if options["architecture"] == "transformer" else {"embedding": 8}
    return models.TextClassifier(models.TextClassifierConfig(WORDS, 3, **sizes))  # type: ignore[arg-type]


class OfTokens(torch_nn.Module):
    """Calls a layer with the lengths of padded sequences by their name."""

    def __init__(self, layer: torch_nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, input: Tensor, lengths: Tensor) -> Tensor:
        return self.layer(input, lengths=lengths)


class OfTwo(OfTokens):
    """The same for a decoder, which is causal."""

    def forward(self, input: Tensor, memory: Tensor, lengths: Tensor, memory_lengths: Tensor) -> Tensor:
        return self.layer(input, memory, mask="causal", lengths=lengths, memory_lengths=memory_lengths)


class OfSource(OfTokens):
    """The same for an encoder and a decoder."""

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        return self.layer(source, target, tgt_mask="causal", src_lengths=source_lengths, tgt_lengths=target_lengths)


LAYERS: dict[str, Callable[[], torch_nn.Module]] = {
    "MultiheadAttention": lambda: nn.MultiheadAttention(DIM, HEADS, batch_first=True),
    "MultiheadAttention grouped": lambda: nn.MultiheadAttention(
        DIM, HEADS, batch_first=True, kv_heads=1, position=positions.Rotary(DIM // HEADS)
    ),
    "Attention": lambda: nn.Attention.create("additive", DIM, DIM, 5),
    "AttentionPooling": lambda: nn.AttentionPooling(DIM, 2),
    "AttentionPooling concat": lambda: nn.AttentionPooling(DIM, 2, score="concat", normalizer="entmax15"),
    "CoAttention": lambda: nn.CoAttention(DIM),
    "KeyValueMemoryNetwork": lambda: nn.KeyValueMemoryNetwork(DIM, hops=2),
    "GaussianWindow": lambda: nn.GaussianWindow(DIM, windows=2),
    "TransformerEncoderLayer": lambda: OfTokens(LAYER.encoder_layer()),
    "TransformerDecoderLayer": lambda: OfTwo(LAYER.decoder_layer()),
    "TransformerEncoder": lambda: OfTokens(nn.TransformerEncoder.create(2, LAYER)),
    "TransformerDecoder": lambda: OfTwo(nn.TransformerDecoder.create(2, LAYER)),
    "Transformer": lambda: OfSource(nn.Transformer.create(1, 1, LAYER)),
}
"""Called with sequences."""

BLOCKS: dict[str, Callable[[], torch_nn.Module]] = {
    "SqueezeExcitation": lambda: nn.SqueezeExcitation(CHANNELS, 4),
    "ChannelGate": lambda: nn.ChannelGate(CHANNELS, 4),
    "SpatialGate": lambda: nn.SpatialGate(CHANNELS, 3),
    "CBAM": lambda: nn.CBAM(CHANNELS, 4, 3),
    "MSCAM": lambda: nn.MSCAM(CHANNELS, 4),
    "NonLocal": lambda: nn.NonLocal(CHANNELS, zero=False),
    "PositionAttention": lambda: nn.PositionAttention(CHANNELS),
    "ChannelAttention": lambda: nn.ChannelAttention(CHANNELS),
    "DualAttention": lambda: nn.DualAttention(CHANNELS),
    "ECA": lambda: nn.ECA(CHANNELS),
    "CoordinateAttention": lambda: nn.CoordinateAttention(CHANNELS),
    "GlobalContext": lambda: nn.GlobalContext(CHANNELS, 4),
    "SelectiveKernel": lambda: nn.SelectiveKernel(CHANNELS, hidden=4),
    "SplitAttention": lambda: nn.SplitAttention(CHANNELS, hidden=4, cardinality=2),
    "XCA": lambda: nn.XCA(CHANNELS, 4),
    "BatchNorm2d": lambda: nn.BatchNorm2d(CHANNELS),
}
"""Called with one feature map."""

FUSIONS: dict[str, Callable[[], torch_nn.Module]] = {
    "AFF": lambda: nn.AFF(CHANNELS, 4),
    "IAFF": lambda: nn.IAFF(CHANNELS, 4),
}
"""Called with two feature maps."""

MODELS: dict[str, Callable[[], torch_nn.Module]] = {
    **{
        f"TextClassifier {kind}": lambda kind=kind: _classifier(architecture=kind)
        for kind in ("none", "lstm", "gru", "hierarchical")
    },
    "TextClassifier transformer": lambda: _classifier(architecture="transformer", heads=HEADS, pooling="mean"),
    "RecurrentTranslator": lambda: models.RecurrentTranslator(models.TranslatorConfig(WORDS, WORDS, **RECURRENT)),
    "TransformerTranslator": lambda: models.TransformerTranslator(models.TranslatorConfig(WORDS, WORDS, **TRANSFORMER)),
    "LanguageModel": lambda: models.LanguageModel(
        models.LanguageModelConfig(
            WORDS, hidden=DIM, position="learned", heads=HEADS, feedforward=17, layers=1, context=11, dropout=0.0
        )
    ),
    "RecurrentPointerGenerator": lambda: models.RecurrentPointerGenerator(
        models.PointerConfig(WORDS, WORDS, **RECURRENT)
    ),
    "TransformerPointerGenerator": lambda: models.TransformerPointerGenerator(
        models.PointerConfig(WORDS, WORDS, **TRANSFORMER)
    ),
    "SoundClassifier": lambda: SoundClassifier(SoundClassifierConfig(**SOUND, labels=5)),
    "SoundClassifier transformer": lambda: SoundClassifier(
        SoundClassifierConfig(**SOUND, **SPEECH_TRANSFORMER, labels=5)
    ),
    "RecurrentTranscriber": lambda: RecurrentTranscriber(
        TranscriberConfig(**SOUND, target_vocabulary=WORDS, embedding=6, decoder_hidden=10, score_features=8)
    ),
    "TransformerTranscriber": lambda: TransformerTranscriber(
        TranscriberConfig(**SOUND, **SPEECH_TRANSFORMER, target_vocabulary=WORDS)
    ),
    "ImageClassifier vit": lambda: ImageClassifier(
        ImageClassifierConfig(**IMAGE, labels=3, patch=4, hidden=6, layers=1, heads=2, pooling="attention", dropout=0.0)
    ),
    "ImageClassifier cls": lambda: ImageClassifier(
        ImageClassifierConfig(**IMAGE, labels=3, patch=4, hidden=6, layers=1, heads=2, dropout=0.0)
    ),
    "ImageClassifier cnn": lambda: ImageClassifier(
        ImageClassifierConfig(
            **IMAGE, labels=3, architecture="cnn", gate="cbam", pooling="mean", grid=16, stages=1, patch=4
        )
    ),
    "RecurrentCaptioner": lambda: RecurrentCaptioner(
        models.CaptionerConfig(**GRID, embedding=5, hidden=7, dropout=0.0)
    ),
    "TransformerCaptioner": lambda: TransformerCaptioner(
        models.CaptionerConfig(**GRID, architecture="transformer", hidden=6, heads=2, feedforward=5, dropout=0.0)
    ),
    "Segmenter": lambda: Segmenter(SegmenterConfig(classes=5, channels=3, decoder_channels=4, levels=3, blocks=1)),
}  # type: ignore[arg-type]

PARTS: dict[str, Callable[[], torch_nn.Module]] = {
    **{
        f"score {name}": lambda name=name: scores.create(name, DIM, DIM)
        for name in ("dot", "cosine", "additive", "mlp")
    },
    "SoftCap": lambda: scores.SoftCap("scaled_dot", 3.0),
    "Modified": lambda: scores.Modified("dot", lambda score, *where: score),
    "Custom": lambda: scores.Custom(lambda query, key: query @ key.mT),
    "local_gaussian": lambda: normalizers.local_gaussian("softmax", torch.zeros(1), 1.0),
    "Entmax": lambda: normalizers.entmax(1.3),
    "Sinusoidal": lambda: positions.Sinusoidal(DIM),
    "Learned": lambda: positions.Learned(11, DIM),
    "RelativeBias": lambda: positions.RelativeBias(HEADS),
}
"""Scores, normalizers and positions."""

MODULES = {**LAYERS, **BLOCKS, **FUSIONS, **MODELS, **PARTS}

TEXTS = ("RecurrentTranslator", "TransformerTranslator", "RecurrentPointer", "TransformerPointer")


def lengths_of(batch: int, length: int) -> Tensor:
    """Lengths from ``length`` downwards."""
    return (length - torch.arange(batch) * 2).clamp(min=1)


def inputs_of(name: str, batch: int = 3, length: int = 5) -> tuple[Tensor, ...]:
    """What the module of this name is called with; padded sequences come with their lengths."""
    random = torch.Generator().manual_seed(batch * 100 + length)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    def words(steps: int) -> Tensor:
        return torch.randint(4, WORDS, (batch, steps), generator=random)

    x, memory, lengths = numbers(batch, length, DIM), numbers(batch, length + 2, DIM), lengths_of(batch, length)
    memory_lengths = lengths_of(batch, length + 2)
    if name in BLOCKS:
        return (numbers(batch, CHANNELS, length, length + 1),)
    if name in FUSIONS:
        return numbers(batch, CHANNELS, length, length + 1), numbers(batch, CHANNELS, length, length + 1)
    if name.startswith("MultiheadAttention"):
        return x, x, x
    if name == "Attention":
        return numbers(batch, DIM), x
    if name in ("CoAttention", "GaussianWindow"):
        return x, memory
    if name == "KeyValueMemoryNetwork":
        return numbers(batch, DIM), x, x
    if "Decoder" in name:
        return x, memory, lengths, memory_lengths
    if name == "Transformer":
        return memory, x, memory_lengths, lengths
    if name in LAYERS:
        return x, lengths
    if name.startswith("TextClassifier"):
        return words(length), lengths
    if name == "LanguageModel":
        return (words(length),)
    if name.startswith(TEXTS):
        return words(length + 2), memory_lengths, words(length), lengths
    images = torch.rand(batch, 8, 12, 3, generator=random)
    if name.startswith("ImageClassifier"):
        return (images,)
    if name == "Segmenter":
        return (numbers(batch, 3, 4 * length, 29),)
    if name.endswith("Captioner"):
        return images, torch.arange(batch), words(length), lengths
    sounds, sound_lengths = numbers(batch, 8 * length, WIDTH), lengths_of(batch, 8 * length)
    if name.startswith("SoundClassifier"):
        return sounds, sound_lengths
    return sounds, sound_lengths, words(length), lengths


def first_output(result: object) -> Tensor:
    """The tensor that a module's result begins with."""
    return result if isinstance(result, Tensor) else first_output(result[0])  # type: ignore[index]
