"""The task ``caption``: what an image shows, in words, by a decoder that attends to its parts."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.configuration import AT_LEAST_1, option
from regard.models.vision.configs import CaptionerConfig
from regard.tasks.attended import attended_regions
from regard.tasks.inputs.image import (
    ImageInput,
    ImageOptions,
    ImagePrediction,
    ImageTraining,
    generated_scenes,
    image_box,
    network_facts,
)
from regard.tasks.lazy import np, records
from regard.tasks.options import EvaluationOptions, ImageColumn, NBestOptions, SearchOptions, TextColumn, TokenOptions
from regard.tasks.outputs.text import (
    AttendedText,
    TextEvaluation,
    TextExperiment,
    TextTask,
    TextTraining,
    TrainedText,
    WrittenTexts,
    word_text,
)
from regard.tasks.outputs.text_metrics import ORDER, caption_scores, cider_limit
from regard.tasks.pointing import AttendedCaption, Pointing, pointing
from regard.tasks.registry import BUILT_IN_TASKS
from regard.tasks.rules import CAPTION
from regard.tasks.trained_run import draw_figures
from regard.training.metrics import Metric
from regard.training.results import AttendedParts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from regard.data.images.image_rows import ImageRow
    from regard.data.images.pictures import InputImage
    from regard.models.search import Hypothesis
    from regard.records import GridAxis, TokenAxis
    from regard.tasks.task import TableExperiment
    from regard.training.run_folder import RunFolder

DRAWN_CAPTIONS = 6
"""The most captions that an evaluation draws."""


@dataclass(frozen=True)
class CaptionData(ImageOptions, TokenOptions):
    """The data of a run."""

    train: str | None = None
    """Training images: a .jsonl or .json file of objects with image and captions, a .tsv or .csv file with the columns
    image and caption (paths are relative to the file), or 'bundled' for generated scenes."""
    held_out: float = 1000
    text_column: str | None = None
    """Column of the texts, which are captions. Default: captions, caption, or the only one of a usual name."""
    lowercase: bool = True
    """Turn captions into lower case."""
    vocabulary: int = 10000
    min_count: int = option(1, within=AT_LEAST_1)
    """word: a word that occurs fewer times in the training captions is unknown."""
    max_length: int = 40
    """Largest number of tokens of a caption; longer ones are cut in training."""

    columns = ("image_column", "text_column")


@dataclass(frozen=True)
class CaptionTrainingConfig(ImageTraining, TextTraining):
    """How a captioner is trained, and for how long."""


@dataclass(frozen=True)
class CaptionSearch(SearchOptions):
    """How captions are searched."""

    batch_size: int = 32


@dataclass(frozen=True)
class CaptionPredictionOptions(NBestOptions, CaptionSearch):
    """How images are captioned."""


@dataclass(frozen=True)
class CaptionEvaluationOptions(TextColumn, ImageColumn, CaptionSearch, EvaluationOptions):
    """How a captioner is measured on a data set."""


@dataclass(frozen=True, repr=False)
class Caption(ImagePrediction, AttendedText):
    """An image, its caption, and where the model attended.

    Attributes:
        image: the image.
        text: its caption.
        score: log-probability of the caption in nats, divided by the length penalty of the search.
        tokens: labels of the tokens, without ``eos``.
        words: positions of the tokens of each word.
        weights: float32 ``[tokens, rows · columns]``; None for a model without attention.
        grid: rows and columns.
        target_ids: ids of the tokens.
    """

    image: InputImage
    text: str
    score: float
    tokens: list[str]
    words: list[range]
    weights: NDArray[np.float32] | None
    grid: tuple[int, int]
    target_ids: tuple[int, ...] = field(default=(), repr=False)

    attended_input: ClassVar[str] = "image"

    @property
    def token_ids(self) -> tuple[int, ...]:
        """`target_ids` by its name in version 0.2."""
        return self.target_ids

    def attended(self) -> AttendedParts:
        return attended_regions(self.grid, self.word_weights)

    @property
    def word_texts(self) -> list[str]:
        """The words, as they are written."""
        return [word_text(self.tokens, word) for word in self.words]

    @property
    def word_weights(self) -> NDArray[np.float32] | None:
        """``[words, rows · columns]``: the mean over the tokens of each word."""
        if self.weights is None:
            return None
        rows = [self.weights[word.start : word.stop].mean(0) for word in self.words]
        return np.stack(rows) if rows else self.weights[:0]

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("image", self.image.name), ("caption", self.text)

    def axes(self) -> tuple[GridAxis, TokenAxis]:
        return self.axis, records.TokenAxis(tuple(self.tokens), words=tuple(self.words))

    def details(self) -> dict[str, Any]:
        """Returns the words, and their weights ``[word][row][column]`` over ``box`` of the image."""
        return {"words": self.word_texts, **self.grid_details(self.word_weights)}


@dataclass(frozen=True, repr=False, kw_only=True)
class CaptionEvaluation(TextEvaluation):
    """How good a captioner is on a data set."""

    images: int
    """Evaluated images."""
    captions: int
    """True captions of these images."""
    bleu1: float
    """BLEU-1, 0 to 100."""
    bleu2: float
    bleu3: float
    bleu4: float
    bleu_order: int
    """The longest n-grams that BLEU-4 counts: 4, or less where no true caption has so many words."""
    bleu_signature: str
    """How sacreBLEU computed BLEU-4."""
    cider: float
    """CIDEr-D, 0 to 10."""
    cider_limit: float
    """The largest CIDEr-D that is possible with these true captions: 10, or less where they are short or alike."""
    pointing: float | None
    """Pointing accuracy, 0 to 1: the share of the names in the captions at which the cell with the largest weight
    is on the object; None if the data do not say where objects are, or the model has no attention."""
    names_shown: float | None
    """The share of the names in the captions whose object the image shows."""
    pointing_chance: float | None
    """The pointing accuracy of cells drawn at random."""
    pointing_weight: float | None
    """Mean share of the weight that is on the object."""
    names: int
    """Names said."""
    predictions: list[Caption]
    """The captions."""
    rows: list[ImageRow]
    """The images with their true captions."""

    examples: ClassVar[tuple[str, ...]] = ("predictions", "rows")

    def lines(self) -> list[str]:
        first = (
            f"{self.data}: {self.images} images · BLEU-1 {self.bleu1:.2f} · BLEU-2 {self.bleu2:.2f} · BLEU-3 "
            f"{self.bleu3:.2f} · BLEU-4 {self.bleu4:.2f} · CIDEr {self.cider:.3f} · loss {self.loss:.4f}"
        )
        lines = [first, self.search_line()]
        if self.bleu_order < ORDER:
            lines.append(f"  no true caption has {ORDER} words: n-grams count up to {self.bleu_order}, in BLEU-4 too")
        if round(self.cider_limit, 3) < 10:
            lines.append(f"  {limit_line(self.cider_limit)}")
        if self.pointing is None:
            return lines
        pointing = (
            f"  pointing accuracy {self.pointing:.3f} over {self.names} names said (chance {self.pointing_chance:.3f}; "
            f"{self.names_shown:.3f} of the names are of something in the image; {self.pointing_weight:.3f} of the "
            "weight is on it)"
        )
        return [*lines, pointing]

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Writes the numbers, the captions (``evaluation-<name>.tsv``), and pictures of the first ones."""
        text = io.StringIO()
        writer = csv.writer(text, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None)
        writer.writerow(("image", "caption", "score", "true"))
        for one, row in zip(self.predictions, self.rows, strict=True):
            cells = row.picture.name, one.text, f"{one.score:.4f}", " | ".join(row.texts)
            writer.writerow([" ".join(cell.replace("\\", "/").split()) for cell in cells])
        paths = self.write_table(folder, f"evaluation-{name}.tsv", text.getvalue().splitlines(), name)
        folder.make_pictures()
        figures = (one.figure() for one in self.predictions[:DRAWN_CAPTIONS])
        return [*paths, *draw_figures(folder.pictures, figures, f"caption-{name}")]


def limit_line(limit: float) -> str:
    """Returns why CIDEr cannot reach 10."""
    return (
        f"CIDEr is at most {limit:.3f} here, not 10: it is a mean over n-grams of 1 to {ORDER} words; short true "
        "captions have no long n-grams, and n-grams that all images share count for nothing"
    )


class CaptionExperiment(TextExperiment):
    """A captioner and its data."""

    def sampled(self, row: int) -> list[str]:
        return list(self.references[row])


class TrainedCaptioner(TrainedText):
    """The best model of a run with its tokenizer."""

    def longest(self, inputs: Sequence[InputImage], options: SearchOptions) -> int:
        return self.model.longest(self.config.data.max_length)

    def forbidden(self) -> tuple[int, ...]:
        return (self.tokenizer.UNK,)  # an unknown word says nothing of an image

    def predictions(self, inputs: Sequence[InputImage], hypotheses: Sequence[Hypothesis]) -> list[Caption]:
        written = []
        for image, hypothesis in zip(inputs, hypotheses, strict=True):
            tokens, weights = hypothesis.tokens, hypothesis.weights
            written.append(
                Caption(
                    image=image,
                    text=self.tokenizer.decode(tokens),
                    score=hypothesis.score,
                    tokens=self.tokenizer.tokens(tokens),
                    words=self.tokenizer.word_groups(tokens),
                    weights=None if weights is None else weights.float().numpy(),
                    grid=self.model.grid,
                    target_ids=tuple(tokens),
                )
            )
        return written

    def evaluation(self, written: WrittenTexts, options: CaptionEvaluationOptions) -> CaptionEvaluation:
        rows, inputs, predictions = written.rows, written.inputs, written.predictions
        scores = caption_scores(written.texts, written.references)
        longest = self.model.longest(self.config.data.max_length)
        targets = [[ids[:longest] for ids in self.tokenizer.encode_batch(list(row.texts))] for row in rows]
        loss, _ = self.known_texts(inputs, targets, options.batch_size)
        measured = self._pointing(rows, predictions)
        return CaptionEvaluation(
            **written.fields,
            images=len(rows),
            captions=sum(len(row.texts) for row in rows),
            bleu1=scores.bleu[0],
            bleu2=scores.bleu[1],
            bleu3=scores.bleu[2],
            bleu4=scores.bleu[3],
            bleu_order=scores.bleu_order,
            bleu_signature=scores.signature,
            cider=scores.cider,
            cider_limit=scores.cider_limit,
            loss=loss,
            pointing=None if measured is None else measured.accuracy,
            names_shown=None if measured is None else measured.shown,
            pointing_chance=None if measured is None else measured.chance,
            pointing_weight=None if measured is None else measured.weight,
            names=0 if measured is None else measured.names,
            predictions=predictions,
            rows=rows,
        )

    def _pointing(self, rows: list[ImageRow], captions: list[Caption]) -> Pointing | None:
        if not self.model.attends or not any(row.objects for row in rows):
            return None
        attended = []
        for one in captions:
            weights = one.word_weights
            assert weights is not None
            attended.append(AttendedCaption(one.word_texts, weights, one.grid, image_box(one.image)))
        return pointing(attended, [row.objects for row in rows])

    def facts(self) -> str:
        config = self.model.config
        if config.architecture == "transformer":
            return f"Transformer, {config.layers} layers × {config.heads} heads, on {network_facts(config)}"
        attention = config.attention.replace("none", "no")
        return f"{config.architecture.upper()}, {attention} attention to {network_facts(config)}"


class CaptionTask(TextTask):
    """Saying in words what an image shows."""

    name = "caption"
    hub_task = "image-to-text"
    summary = BUILT_IN_TASKS[name]
    input = ImageInput(generated_scenes("captions"), labelled=False)
    input_hint = "An image to describe"
    answer_name = "Caption"
    # CIDEr first: BLEU-4 is exactly 0 as long as no four words in a row are right, and would choose the first model.
    metrics = (
        Metric("cider", "CIDEr", digits=3, trivial=0.05, unit="0 to 10"),
        Metric("bleu4", "BLEU-4", perfect=100.0, unit="0 to 100"),
        Metric("bleu1", "BLEU-1", perfect=100.0, unit="0 to 100"),
    )
    data_config = CaptionData
    model_config = CaptionerConfig
    training_config = CaptionTrainingConfig
    rules = CAPTION
    prediction_config = CaptionPredictionOptions
    evaluation_config = CaptionEvaluationOptions
    experiment = CaptionExperiment
    trained = TrainedCaptioner
    model_class = "regard.models.vision.captioner:Captioner"
    variant = ("model", "attention", "architecture")
    picture_prefix = "caption"
    sample_names = ("image", "true", "caption")
    reports = ("evaluation-*.tsv", "pictures/caption-*.png")
    lack = "which does not caption images"

    def references(self, rows: list[ImageRow]) -> list[Sequence[str]]:
        return [row.texts for row in rows]

    def scores(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
        scores = caption_scores(texts, references)
        return {"cider": scores.cider, "bleu4": scores.bleu[3], "bleu1": scores.bleu[0]}

    def sizes(self, experiment: TableExperiment) -> list[str]:
        captions = sum(len(one.captions) for one in experiment.train.examples)  # pyright: ignore[reportAttributeAccessIssue]
        limit = cider_limit(experiment.references)  # pyright: ignore[reportAttributeAccessIssue]
        limited = [limit_line(limit)] if round(limit, 3) < 10 else []
        return [f"{captions} captions", *super().sizes(experiment), *self.input.sizes(experiment), *limited]

    def longest(self, run: Any, model: Any, batch: Any) -> int:
        return model.longest(run.data.max_length)

    def check_run(self, run: Any) -> None:
        super().check_run(run)
        run.training.check_backbone(run.model)

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        side, longest = run.data.image_size, run.data.max_length
        sizes = {"image_height": side, "image_width": side, "target_vocabulary": len(files["tokenizer"])}
        return {**sizes, "max_length": longest + 1}


TASK = CaptionTask()
