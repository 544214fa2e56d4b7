"""A trained run of regard as a model of the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.errors import ArgumentError, RunError
from regard.models.language_model import LanguageModelConfig
from regard.models.recurrent_translator import TranslatorConfig
from regard.models.text_classifier import TextClassifierConfig
from regard.models.transformer_translator import TransformerConfig
from regard.page.reading import MOST_CHARACTERS, Answer, Reading, ServedModel, check_weights
from regard.records import AttentionRecord, Document
from regard.tasks import registry
from regard.training.task import Trained

LABELS = {"translate": "Translation", "language": "Next token", "classify": "Label", "summarize": "Summary"}
"""Task → what its answer is."""

PLACEHOLDERS = {
    "translate": "A sentence to translate",
    "language": "The beginning of a text",
    "classify": "A text to classify",
    "summarize": "An article to summarize",
}

OPTIONS: Mapping[str, Mapping[str, Any]] = {"language": {"tokens": 0, "next": 8}}
"""Task → options of `Trained.predict` that differ from their defaults."""

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
        self.example = _example(self.trained)

    def _read(self, text: str) -> Reading:
        trained = self.trained
        self._check_length(text)
        options = trained.task.prediction_config(**OPTIONS.get(self.task, {}))
        (prediction,) = trained.predict_with([text], options)
        attentions = trained.attentions(prediction)
        records = tuple(one.record() for one in attentions)
        # What options of the command line could change is cut off.
        notes = tuple(line.split("; --")[0] for line in trained.remarks([prediction], options))
        attends = bool(records) or getattr(trained.model, "attends", False)
        if text.strip() and not attends:
            notes += ("This model has no attention.",)
        ranked = prediction.ranked()
        shown = "" if self.task == "language" else prediction.text
        answer = Answer(LABELS.get(self.task, "Output"), shown, ranked, notes)
        return Reading(
            answer,
            Document(self.name, records, texts=prediction.texts()),
            lambda record, head: attentions[record].steps(head),
            first=_first(trained, records),
            view="text" if records and records[-1].name == "pooling" else None,
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


def _first(trained: Trained, records: Sequence[AttentionRecord]) -> int:
    """The place of the attention that explains an output best: to the source in the layer that aligns, or the last."""
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
    if isinstance(config, TranslatorConfig):
        named = {"none": "no", "bahdanau": "Bahdanau", "luong": "Luong", "hard": "hard"}
        return f"{config.cell.upper()}, {named[config.attention]} attention"
    return type(trained.model).__name__
