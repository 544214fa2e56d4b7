"""A trained run of regard as a model of the page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.errors import ArgumentError
from regard.explanations.model_attention import ModelAttention
from regard.page.examples import examples_of
from regard.page.reading import Answer, Reading, ServedModel, check_weights, rest_of
from regard.records import AttentionRecord, StepsRecord
from regard.tasks import registry
from regard.training.task import Trained


class RunModel(ServedModel):
    """A trained run; raises RunError if the folder is not one, or its files are missing, damaged or from different
    runs."""

    def __init__(self, path: Path, device: str = "cpu"):
        self.trained: Trained = registry.load(path, device)
        self.path = str(path)
        self.name = self.trained.folder.path.resolve().name
        self.task = self.trained.task.name
        self.facts = self.trained.facts()
        self.placeholder = self.trained.task.input_hint
        self.accepts = self.trained.task.input_kind
        self.examples = examples_of(self.trained.folder, self.accepts)

    def _read(self, text: str) -> Reading:
        return self._reading(text, bool(text.strip()))

    def _read_file(self, content: bytes) -> Reading:
        return self._reading(content, True)

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
        task = trained.task
        answer = Answer(task.answer_name, prediction.answer_text, ranked, notes, rest_of(ranked), task.choice_name)
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


def _first(trained: Trained, records: Sequence[AttentionRecord]) -> int | None:
    """Returns the index of the attention that explains an output best: the aligning one, or the rollout."""
    if records and records[-1].name.startswith("rollout"):
        return len(records) - 1
    crossing = [index for index, record in enumerate(records) if record.kind == "cross"]
    model = getattr(trained.model, "translator", trained.model)
    layer = getattr(model, "aligned_layer", 0)
    return crossing[min(int(layer), len(crossing) - 1)] if crossing else None
