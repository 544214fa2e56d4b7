"""The task ``classify``: the label of a text, told by a recurrent network or a Transformer with attention pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from regard.data import text as text_data
from regard.data.text.words import word_spans
from regard.errors import DataError, RunError
from regard.models.configs import TextClassifierConfig
from regard.names.missing_names import hinted
from regard.tasks.attended import attended_words
from regard.tasks.inputs.input import Generated
from regard.tasks.inputs.text import LabelledTextOptions, LabelledTexts, LabelledTextTraining, ReadText, row_values
from regard.tasks.lazy import pictures, records, torch
from regard.tasks.options import EvaluationOptions, LabelColumn, LabelOptions, TextColumn, WordVectorOptions
from regard.tasks.outputs.label import (
    LabelEvaluation,
    LabelPrediction,
    LabelTask,
    LabelTraining,
    Outputs,
    TrainedLabels,
)
from regard.tasks.registry import BUILT_IN_TASKS
from regard.tasks.rules import CLASSIFY
from regard.training.results import AttendedParts, rounded

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.text.tokenizers import Tokenizer
    from regard.explanations.model_attention import ModelAttention
    from regard.records import AttentionRecord
    from regard.shapes.checks import Requested
    from regard.training.results import Prediction

SENTENCE_ENDS, SPACE_MARKS = frozenset(".!?…。！？"), "·␣ "
"""The characters that end a sentence, and the marks of a space in tokens."""

DECIDING_COLUMN = "deciding"
"""The column with the positions of the words that decide the label of a text."""


@dataclass(frozen=True)
class ClassifyData(WordVectorOptions, LabelledTextOptions):
    """The data of a run, and how it is split into tokens."""

    default_bundled = 10_000
    generated = "generated reviews"


@dataclass(frozen=True)
class ClassificationTrainingConfig(LabelTraining, LabelledTextTraining):
    """How a classifier of texts is trained, and for how long."""


@dataclass(frozen=True)
class ClassifyEvaluationOptions(LabelColumn, TextColumn, EvaluationOptions):
    """How a classifier is measured on a data set."""


@hinted
@dataclass(frozen=True, repr=False)
class Classification(LabelPrediction):
    """A text, its label, and the weights of its words.

    Attributes:
        source: the text, unchanged.
        label: the name of the most probable label.
        probabilities: label → probability, the most probable first.
        words: the words as they are written; those after the longest length of the model are missing.
        spans: the characters of each word.
        weights: ``[heads, words]``: attention weights, those of sub-words added; None for a model without attention.
        cut: whether the text was longer than the model reads.
        sentences: the words of each sentence; None unless the model has attention to sentences.
    """

    source: str
    label: str
    probabilities: dict[str, float]
    words: list[str]
    spans: list[range]
    weights: Requested[Tensor]
    cut: bool = False
    sentences: list[range] | None = None

    @property
    def sentence_weights(self) -> list[float] | None:
        """The weight of each sentence: the sum of its words' weights; None without attention to sentences."""
        if self.sentences is None or self.weights is None:
            return None
        return [float(self.weights[0, sentence.start : sentence.stop].sum()) for sentence in self.sentences]

    @property
    def sentence_texts(self) -> list[str]:
        """Each sentence as it is written."""
        return [
            self.source[self.spans[words.start].start : self.spans[words.stop - 1].stop]
            for words in self.sentences or []
        ]

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("text", self.source), ("label", self.label)

    def attended(self) -> AttendedParts:
        return attended_words(self.words, self.weights)

    def details(self) -> dict[str, Any]:
        """Returns the probabilities, the words and their weights ``[head][word]``."""
        content = {**super().details(), "words": self.words}
        if self.weights is not None:
            content["weights"] = rounded(self.weights)
        if self.sentence_weights is not None:
            pairs = zip(self.sentence_texts, self.sentence_weights, strict=True)
            content["sentences"] = [{"text": text, "weight": round(weight, 4)} for text, weight in pairs]
        return content

    def record(self) -> AttentionRecord | None:
        return self.pooling_record(self.weights, records.TokenAxis(tuple(self.words))) if self.words else None

    def report(self) -> Any:
        from regard.tasks.word_report import WordReport

        # With several answers each has its probability before.
        probabilities = {} if self.next_best else self.probabilities
        sentences = list(zip(self.sentence_texts, self.sentence_weights or [], strict=True))
        weights = None if self.weights is None else self.weights.tolist()
        return WordReport(probabilities, self.words, weights, sentences)


@dataclass(frozen=True, repr=False)
class ClassifyEvaluation(LabelEvaluation):
    """How good a classifier of texts is on a data set."""

    texts: int
    """Evaluated texts."""
    attention_on_deciding: float | None
    """Share of the attention weights on the words that decide the label, 0 to 1; None if the data do not say which
    words decide, or the model has no attention."""
    cut: int
    """Texts that were longer than the model reads, and cut."""

    def counted(self) -> str:
        return f"{self.texts} texts"

    def others(self) -> str:
        share = self.attention_on_deciding
        return "" if share is None else f" · on deciding words {share:.3f}"


class TrainedClassifier(TrainedLabels):
    """The best model of a run with its tokenizer and its labels."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the texts."""
        return self.files["tokenizer"]

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {"text": self.tokenizer}

    @property
    def max_length(self) -> int:
        """Tokens of a text that the model reads; the others are cut."""
        return self.config.data.max_length

    def check_sizes(self, files: dict[str, Any], config: Any) -> None:
        if (len(files["tokenizer"]), len(files["labels"])) != (config.vocabulary, config.labels):
            raise RunError(f"{self.folder.path}: the sizes of the tokenizer or the labels and of the model differ")

    def prediction(self, one: ReadText, label: str, probabilities: dict[str, float], weights: Any) -> Classification:
        groups, spans = words_of(self.tokenizer, one.text, len(one.ids))
        merged = None if weights is None else torch.from_numpy(pictures.merge(weights, None, groups)).float()
        words = [one.text[span.start : span.stop] for span in spans]
        sentences = None
        if self.model.config.architecture == "hierarchical":
            sentences = self._sentences(one, groups)
        return Classification(one.text, label, probabilities, words, spans, merged, one.cut > 0, sentences)

    def _sentences(self, one: ReadText, groups: Sequence[range]) -> list[range]:
        """Returns the words of each sentence; a word belongs to that of its first token."""
        tokens = torch.tensor([list(one.ids)], dtype=torch.int64)
        numbers = self.model.encoder.sentences(tokens, torch.tensor([len(one.ids)]))[0].tolist() if one.ids else []
        first = [numbers[group.start] for group in groups]
        begins = [word for word, number in enumerate(first) if not word or number != first[word - 1]]
        return [range(begin, end) for begin, end in pairwise([*begins, len(first)])]

    def remarks(self, predictions: Sequence[Prediction], options: LabelOptions) -> list[str]:
        classified = [one for one in predictions if isinstance(one, Classification)]
        cut, empty = sum(one.cut for one in classified), sum(not one.source.strip() for one in classified)
        lines = [f"{cut} of {len(predictions)} texts have more than {self.max_length} tokens and were cut"] * bool(cut)
        return lines + [f"{empty} of {len(predictions)} texts are empty; their label says nothing"] * bool(empty)

    def measures_weights(self, source: Any, rows: Any) -> bool:
        return self.model.attends and read_deciding(source, len(rows)) is not None

    def evaluation(
        self, shared: dict[str, Any], source: Any, rows: Any, inputs: list[ReadText], outputs: Outputs
    ) -> ClassifyEvaluation:
        deciding = read_deciding(source, len(rows)) if outputs.weights else None
        share = None if deciding is None else self._share(inputs, outputs, deciding)
        return ClassifyEvaluation(
            **shared, texts=len(inputs), attention_on_deciding=share, cut=sum(one.cut > 0 for one in inputs)
        )

    def _share(self, inputs: Sequence[ReadText], outputs: Outputs, deciding: Sequence[frozenset[int]]) -> float:
        """Returns the mean over texts and heads of the share of the weights on tokens of the deciding words."""
        total = 0.0
        for one, weights, words in zip(inputs, outputs.weights, deciding, strict=True):
            spans_of_text = enumerate(word_spans(one.text))
            characters = {position for number, span in spans_of_text if number in words for position in span}
            groups, spans = words_of(self.tokenizer, one.text, weights.shape[1])
            tokens = [
                token
                for group, span in zip(groups, spans, strict=True)
                if not characters.isdisjoint(span)
                for token in group
            ]
            mass = weights.sum(-1).clamp(min=1e-12)
            total += float((weights[:, tokens].sum(-1) / mass).mean())
        return total / max(1, len(inputs))

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, Classification)
        one = self.read(prediction.source)
        if not one.ids:
            return []
        tokens = self.tokenizer.tokens(self.tokenizer.encode(one.text), one.text)[: len(one.ids)]
        groups = words_of(self.tokenizer, one.text, len(one.ids))[0]
        special: tuple[bool, ...] = ()
        if self.model.config.leading:
            special = (True, *(False for _ in tokens))
            tokens = ["<cls>", *tokens]
            groups = [range(1), *(range(group.start + 1, group.stop + 1) for group in groups)]
        axis = records.TokenAxis(tuple(tokens), special, tuple(groups))
        if self.model.config.architecture == "hierarchical":
            sentences = Classification(one.text, "", {}, [], words_of(self.tokenizer, one.text, len(one.ids))[1], None)
            axis = records.TokenAxis(tuple(replace(sentences, sentences=self._sentences(one, groups)).sentence_texts))
            return self.attentions_of(self.recorded(one)[1:], True, axis, "learned query")
        return self.attentions_of(self.recorded(one), bool(self.model.attends), axis, "learned query")

    def facts(self) -> str:
        config = self.model.config
        named = {"none": "embeddings", "transformer": "Transformer", "hierarchical": "words and sentences"}
        encoder = named.get(config.architecture, config.architecture.upper())
        return f"{encoder}, {config.pooling} pooling"

    def attention_size(self, source: ReadText) -> tuple[int, int]:
        config, tokens = self.model.config, len(source.ids) + self.model.config.leading
        layers = config.layers if config.architecture == "transformer" else 0
        return tokens, layers * config.heads * tokens**2


def words_of(tokenizer: Tokenizer, text: str, tokens: int) -> tuple[list[range], list[range]]:
    """Returns the tokens and the characters of each word of a text.

    Args:
        tokens: how many of its first tokens the model reads.

    Returns:
        ranges of tokens that follow one another from 0 to ``tokens``, and ranges of characters.
    """
    groups = [
        range(group.start, min(group.stop, tokens)) for group in tokenizer.word_groups([], text) if group.start < tokens
    ]
    pieces = tokenizer.spans(text)
    return groups, [range(pieces[group.start].start, pieces[group[-1]].stop) for group in groups]


def read_deciding(data: Any, texts: int) -> list[frozenset[int]] | None:
    """Returns the positions of the deciding words in a TSV file, or None if it has no column ``deciding``.

    Raises:
        DataError: a row does not list positions, or there are fewer rows than texts.
    """

    def positions(text: Any) -> frozenset[int]:
        try:
            return frozenset(map(int, text.split()))
        except ValueError as error:
            raise DataError(f"the column {DECIDING_COLUMN!r} must list positions of words") from error

    return row_values(data, DECIDING_COLUMN, texts, positions, "deciding words of {} of {} texts")


class ClassifyTask(LabelTask):
    """Telling the labels of texts."""

    name = "classify"
    hub_task = "text-classification"
    summary = BUILT_IN_TASKS[name]
    input = LabelledTexts(
        Generated(
            lambda folder, sizes: text_data.reviews.write_reviews(folder, sizes, 1),
            validation=500,
            test=1000,
            columns=("text", "label"),
            lengths=(67.0, 8.0),
        )
    )
    input_hint = "A text to classify"
    data_config = ClassifyData
    model_config = TextClassifierConfig
    training_config = ClassificationTrainingConfig
    rules = CLASSIFY
    evaluation_config = ClassifyEvaluationOptions
    trained = TrainedClassifier
    model_class = "regard.models.text_classifier:TextClassifier"
    variant = ("model", "architecture")
    picture_prefix = "words"
    lack = "which does not classify texts"

    def word_embeddings(self, run: Any, model: Any) -> tuple[list[Any], str]:
        transformer = run.model.architecture == "transformer"
        embedding = getattr(model.input, "embedding", model.input) if model.input else model.encoder.embedding
        return [embedding], "hidden" if transformer else "embedding"

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        tokenizer = files["tokenizer"]
        sizes = {"vocabulary": len(tokenizer), "labels": len(files["labels"])}
        fields = {**sizes, "max_length": run.data.max_length, "unknown": tokenizer.UNK}
        if run.model.architecture == "hierarchical":
            tokens = enumerate(tokenizer.tokens(range(len(tokenizer))))
            ends = (
                str(number)
                for number, token in tokens
                if token.strip(SPACE_MARKS) and set(token.strip(SPACE_MARKS)) <= SENTENCE_ENDS
            )
            fields["sentence_ends"] = " ".join(ends)
        return fields


TASK = ClassifyTask()
