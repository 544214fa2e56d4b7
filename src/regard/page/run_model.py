"""A trained run of regard as a model of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.errors import ArgumentError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.language_model import LanguageModelConfig
from regard.models.recurrent_translator import TranslatorConfig
from regard.models.speech.encoders import SpeechEncoderConfig
from regard.models.text_classifier import TextClassifierConfig
from regard.models.transformer_translator import TransformerConfig
from regard.models.vision.grid_encoder import GridConfig
from regard.models.vision.image_classifier import ImageClassifierConfig
from regard.models.vision.recurrent_captioner import RecurrentCaptionerConfig
from regard.models.vision.segmenter import SegmenterConfig
from regard.models.vision.transformer_captioner import TransformerCaptionerConfig
from regard.page.reading import MOST_CHARACTERS, Answer, Reading, ServedModel, check_weights, rest_of
from regard.records import AttentionRecord, StepsRecord
from regard.tasks import registry
from regard.tasks.sound_inputs import HeardSound, TrainedOnSounds
from regard.training.task import Trained

LABELS = {
    "translate": "Translation",
    "language": "Next token",
    "classify": "Label",
    "summarize": "Summary",
    "images": "Label",
    "caption": "Caption",
    "transcribe": "Transcription",
    "sounds": "Label",
    "segment": "Classes",
}
"""Task → what its answer is."""

PLACEHOLDERS = {
    "translate": "A sentence to translate",
    "language": "The beginning of a text",
    "classify": "A text to classify",
    "summarize": "An article to summarize",
    "images": "An image to classify",
    "caption": "An image to describe",
    "transcribe": "A sound to transcribe",
    "sounds": "A sound to classify",
    "segment": "An image to segment",
}

OPTIONS: Mapping[str, Mapping[str, Any]] = {"language": {"tokens": 0, "next": 8}}
"""Task → options of `Trained.predict` that differ from their defaults."""

MOST_SECONDS = 120.0
"""Duration of the longest sound that is read on the page."""

MOST_SOURCE_TOKENS = 400
"""Tokens of the longest text that is translated as somebody types."""


class RunModel(ServedModel):
    """A trained run.

    Args:
        path: the run folder.
        device: PyTorch device of the model.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
    """

    def __init__(self, path: Path, device: str = "cpu"):
        self.trained: Trained = registry.load(path, device)
        self.path = str(path)
        self.name = self.trained.folder.path.resolve().name
        self.task = self.trained.task.name
        self.facts = _facts(self.trained)
        self.placeholder = PLACEHOLDERS.get(self.task, "A text")
        self.accepts = self.trained.task.input_kind
        self.example = _example(self.trained) if self.accepts == "text" else ""
        self.example_file = None if self.accepts == "text" else _example_file(self.trained)
        self.has_example_file = self.example_file is not None

    def _read(self, text: str) -> Reading:
        self._check_length(text)
        return self._reading(text, bool(text.strip()))

    def _read_file(self, content: bytes | None) -> Reading:
        source = str(self.example_file) if content is None else content
        if isinstance(self.trained, TrainedOnSounds):
            (sound,) = self.trained.hear([source])
            _check_sound(self.trained, sound)
            return self._reading(sound, True)
        return self._reading(source, True)

    def _reading(self, source: Any, has_content: bool) -> Reading:
        trained = self.trained
        options = trained.task.prediction_config(**OPTIONS.get(self.task, {}))
        (prediction,) = trained.predict_with([source], options)
        attentions = trained.attentions(prediction)
        document = replace(trained.document(prediction, attentions), title=self.name)
        records = document.records
        # What options of the command line could change is cut off.
        notes = tuple(line.split("; --")[0] for line in trained.remarks([prediction], options))
        attends = bool(records) or getattr(trained.model, "attends", False)
        if has_content and not attends:
            notes += ("This model has no attention.",)
        ranked = prediction.ranked()
        shown = "" if self.task == "language" else prediction.answer
        answer = Answer(LABELS.get(self.task, "Output"), shown, ranked, notes, rest_of(ranked))
        return Reading(
            answer,
            document,
            lambda record, head: _steps(attentions, record, head),
            first=_first(trained, records),
            view="text" if self.accepts == "text" and records and records[-1].name == "pooling" else None,
            attends=attends,
        )

    def _check_length(self, text: str) -> None:
        """Raise ArgumentError if a text is too long for the model, or for its attention to be kept."""
        if self.task == "translate":
            tokens = len(self.trained.tokenizers["source"].encode(text))
            if tokens > MOST_SOURCE_TOKENS:
                raise ArgumentError(
                    f"the text has {tokens:,} tokens, more than the {MOST_SOURCE_TOKENS} that are translated here; "
                    "shorten it"
                )
        config: Any = self.trained.model.config
        if self.task not in ("classify", "summarize") or not hasattr(config, "heads"):
            return
        tokens = min(len(self.trained.tokenizers["text"].encode(text)), self.trained.config.data.max_length)
        if isinstance(config, TextClassifierConfig):
            layers = config.layers if config.encoder == "transformer" else 0
        else:
            layers = config.encoder_layers
        check_weights(tokens, layers * config.heads * tokens**2)


def _check_sound(trained: Trained, sound: HeardSound) -> None:
    """Raise ArgumentError if a sound is too long to be transcribed while somebody waits, or for its attention."""
    seconds = len(sound.features) * sound.frame_seconds
    if seconds > MOST_SECONDS:
        raise ArgumentError(
            f"the sound lasts {seconds:,.0f} s, more than the {MOST_SECONDS:g} s that are read here; cut it"
        )
    config: Any = trained.model.config
    layers = config.encoder_layers if config.encoder == "transformer" else 0
    check_weights(sound.annotations, layers * config.heads * sound.annotations**2)


def _steps(attentions: Sequence[ModelAttention], record: int, head: int) -> StepsRecord:
    if record >= len(attentions):
        raise ArgumentError("rollout is a product of all layers; choose one of the layers to see its calculation")
    return attentions[record].steps(head)


def _first(trained: Trained, records: Sequence[AttentionRecord]) -> int:
    """The place of the attention that explains an output best: to the source in the layer that aligns, or the last."""
    if records and records[-1].name.startswith("rollout"):
        return len(records) - 1
    crossing = [place for place, record in enumerate(records) if record.kind == "cross"]
    model = getattr(trained.model, "translator", trained.model)
    layer = getattr(model, "aligned_layer", 0)
    return crossing[min(int(layer), len(crossing) - 1)] if crossing else 0


def _example(trained: Trained) -> str:
    """The first input that the run translated, or the like, when it was validated; "" where none is recorded."""
    try:
        samples = trained.folder.read_samples()
    except RunError:
        return ""
    for sample in samples[:1]:
        for name in ("source", "article", "text"):
            if isinstance(sample.get(name), str):
                return sample[name][:MOST_CHARACTERS]
    return ""


EXAMPLE_FILES = ("corpus/test-1.png", "corpus/test-1.wav")
"""In a run on a generated corpus: an example of its test part."""


def _example_file(trained: Trained) -> Path | None:
    """A file to try: of the generated corpus, or the first that the run predicted when it was validated; or None."""
    for name in EXAMPLE_FILES:
        if (path := trained.folder.file(name)).is_file():
            return path
    try:
        samples = trained.folder.read_samples()
    except RunError:
        return None
    for sample in samples[:1]:
        path = sample.get(trained.task.input_kind)
        if isinstance(path, str) and Path(path).is_file():
            return Path(path)
    return None


def _facts(trained: Trained) -> str:
    """What a model is, in a few words."""
    config: Any = trained.model.config
    if isinstance(config, LanguageModelConfig):
        return f"Transformer, {config.layers} layers × {config.heads} heads"
    if isinstance(config, TransformerConfig):
        return f"Transformer, {config.encoder_layers} + {config.decoder_layers} layers × {config.heads} heads"
    if isinstance(config, TextClassifierConfig):
        encoder = {"none": "embeddings", "transformer": "Transformer"}.get(config.encoder, config.encoder.upper())
        return f"{encoder}, {config.pooling} pooling"
    if isinstance(config, SpeechEncoderConfig):
        encoder = "Transformer" if config.encoder == "transformer" else f"pyramidal {config.encoder.upper()}"
        return f"{encoder}, {config.reduction} frames an annotation"
    if isinstance(config, TransformerCaptionerConfig):
        return f"Transformer, {config.layers} layers × {config.heads} heads, on {_grid(config)}"
    if isinstance(config, RecurrentCaptionerConfig):
        return f"{config.cell.upper()}, {config.attention.replace('none', 'no')} attention to {_grid(config)}"
    if isinstance(config, ImageClassifierConfig):
        if config.network == "vit":
            return f"Vision Transformer, {config.layers} layers × {config.heads} heads, {config.pooling} pooling"
        weighed = {"none": "", "se": " with squeeze-and-excitation", "cbam": " with CBAM"}[config.weigh]
        return f"{_grid(config)}{weighed}, {config.pooling} pooling"
    if isinstance(config, SegmenterConfig):
        parts = [config.gate, config.context.replace("_", "-"), config.fusion]
        found = ", ".join(part for part in parts if part not in ("none", "sum"))
        return f"{config.classes} classes, {found or 'no attention'}"
    if isinstance(config, TranslatorConfig):
        named = {"none": "no", "bahdanau": "Bahdanau", "luong": "Luong", "hard": "hard"}
        return f"{config.cell.upper()}, {named[config.attention]} attention"
    return type(trained.model).__name__


def _grid(config: GridConfig) -> str:
    return config.backbone or "a convolutional network"
