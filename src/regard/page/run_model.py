"""A trained run of regard as a model of the page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.errors import ArgumentError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.page.reading import MOST_CHARACTERS, Answer, Reading, ServedModel, check_weights, rest_of
from regard.records import AttentionRecord, StepsRecord
from regard.tasks import registry
from regard.training.task import Trained


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
        self.facts = self.trained.facts()
        self.placeholder = self.trained.task.input_hint
        self.accepts = self.trained.task.input_kind
        self.example = _example(self.trained) if self.accepts == "text" else ""
        self.example_file = None if self.accepts == "text" else _example_file(self.trained)
        self.has_example_file = self.example_file is not None

    def _read(self, text: str) -> Reading:
        return self._reading(text, bool(text.strip()))

    def _read_file(self, content: bytes | None) -> Reading:
        source = str(self.example_file) if content is None else content
        return self._reading(source, True)

    def _reading(self, source: Any, has_content: bool) -> Reading:
        trained = self.trained
        read = trained.read(source)
        delay = trained.delay(read)
        if delay is not None:
            raise ArgumentError(delay)
        check_weights(*trained.attention_size(read))
        options = trained.task.prediction_config(**trained.task.typing_options)
        (prediction,) = trained.predict_with([read], options)
        attentions = trained.attentions(prediction)
        document = replace(trained.document(prediction, attentions), title=self.name)
        records = document.records
        # What options of the command line could change is cut off.
        notes = tuple(line.split("; --")[0] for line in trained.remarks([prediction], options))
        attends = bool(records) or getattr(trained.model, "attends", False)
        if has_content and not attends:
            notes += ("This model has no attention.",)
        ranked = prediction.ranked()
        answer = Answer(trained.task.answer_name, prediction.answer_text, ranked, notes, rest_of(ranked))
        return Reading(
            answer,
            document,
            lambda record, head: _steps(attentions, record, head),
            first=_first(trained, records),
            view="words" if self.accepts == "text" and records and records[-1].name == "pooling" else None,
            attends=attends,
        )


def _steps(attentions: Sequence[ModelAttention], record: int, head: int) -> StepsRecord:
    if record >= len(attentions):
        raise ArgumentError("rollout is a product of all layers; choose one of the layers to see its calculation")
    return attentions[record].steps(head)


def _first(trained: Trained, records: Sequence[AttentionRecord]) -> int:
    """The index of the attention that explains an output best: to the source in the layer that aligns, or the last."""
    if records and records[-1].name.startswith("rollout"):
        return len(records) - 1
    crossing = [index for index, record in enumerate(records) if record.kind == "cross"]
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
