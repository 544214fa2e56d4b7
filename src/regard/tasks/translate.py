"""The task ``translate``: a text in another language, by a Transformer or a recurrent encoder-decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.configuration import AT_LEAST_0, option
from regard.data import text as text_data
from regard.data.text.alignment import Alignment, alignment_error_rate
from regard.errors import ArgumentError, DataError, RunError
from regard.models.configs import FREE_TOKENS, TranslatorConfig
from regard.tasks.inputs.input import Generated
from regard.tasks.inputs.run_tokenizer import text_tokenizer, tokenizer_path
from regard.tasks.inputs.text import PairedTexts, ReadText, column, row_values
from regard.tasks.lazy import pictures
from regard.tasks.options import (
    BATCH_TOKENS,
    EvaluationOptions,
    NBestOptions,
    SearchOptions,
    SequenceOptions,
    TokenOptions,
    WordVectorOptions,
)
from regard.tasks.outputs.text import (
    SampledTextTraining,
    TextEvaluation,
    TextExperiment,
    TextPrediction,
    TextTask,
    TrainedText,
    WrittenTexts,
    encoder_decoder_facts,
    length_ratio,
    perplexity,
)
from regard.tasks.outputs.text_metrics import (
    ORDER,
    LengthBin,
    TextScores,
    bleu_by_length,
    bleu_name,
    bleu_order,
    bleu_tokenizer,
    text_scores,
)
from regard.tasks.registry import BUILT_IN_TASKS
from regard.tasks.rules import TRANSLATE
from regard.tasks.sequence_lines import LineExperiment, check_lines
from regard.tasks.unknown_words import SourceText, copy_unknown, unknown_words_line
from regard.training.metrics import Metric
from regard.training.results import rounded
from regard.training.task import StepLoss

if TYPE_CHECKING:
    from regard.data.text.batches import PairBatch
    from regard.data.text.tokenizers import Tokenizer
    from regard.models.search import Hypothesis
    from regard.training.results import Prediction
    from regard.training.run_folder import RunFolder

ALIGNMENT_COLUMN = "alignment"
"""The column with the true alignment of each pair."""

MOST_TYPED_TOKENS = 400
"""The most tokens of a text that is translated while somebody types it."""


@dataclass(frozen=True)
class TranslateData(WordVectorOptions, TokenOptions):
    """The data of a run, and how it is split into tokens."""

    train: str | None = None
    """Training pairs: a .tsv, .csv, .jsonl or .parquet file, two aligned text files as 'a.de,b.en', a Hugging Face data
    set 'owner/name', or 'bundled' for the generated English-Spanish corpus."""
    source_column: str | None = None
    """Column to translate from. Default: source, or the first of a table with two columns."""
    target_column: str | None = None
    """Column to translate to. Default: target, or the second of a table with two columns."""
    tokenizer: Literal["bpe", "word", "char"] = "bpe"
    source_tokenizer: Literal["bpe", "word", "char"] | None = None
    """Tokenizer of the source: tokenizer; char where a script has no spaces between words."""
    target_tokenizer: Literal["bpe", "word", "char"] | None = None
    """Tokenizer of the target: tokenizer; char where a script has no spaces between words."""
    vocabulary: int = 8000
    """Largest size of each side's vocabulary, in tokens."""
    max_length: int = 100
    """Largest number of tokens of each side; longer training pairs are left out."""

    columns = ("source_column", "target_column")
    default_bundled = 20_000
    generated = "pairs of the bundled corpus"


@dataclass(frozen=True)
class TranslationTrainingConfig(SequenceOptions, SampledTextTraining):
    """How a translator is trained, and for how long."""

    tokens_per_batch: int = option(2000, within=BATCH_TOKENS)
    """Target tokens of a batch, padding included, on each device, or on each group of sequence_processes devices."""
    validation_pairs: int = option(0, within=AT_LEAST_0)
    """Pairs that each validation translates: the first of the validation data; 0: all."""


@dataclass(frozen=True)
class TranslatePredictionOptions(NBestOptions, SearchOptions):
    """How sentences are translated."""

    replace_unknown: bool = False
    """Replace an unknown word by the source word with the largest weight."""
    merge_words: bool = False
    """Merge sub-words to words, in pictures and in JSON."""


@dataclass(frozen=True)
class TranslateEvaluationOptions(SearchOptions, EvaluationOptions):
    """How a translator is measured on a data set."""

    source_column: str | None = None
    """Column to translate from. Default: as in training."""
    target_column: str | None = None
    """Column with the references. Default: as in training."""


class TranslationPairs(PairedTexts):
    """Sentences with their translations; each side has a tokenizer."""

    def tokenizer(self, learnt: Mapping[str, Any]) -> Tokenizer:
        return learnt["source"]

    def columns(self, data: Any, folder: RunFolder, source: Any, named: Sequence[str | None] = ()) -> Any:
        if data.bundled:
            return self.generated.columns if not any(named) and str(source).endswith(".tsv") else named
        # Two aligned files have no columns.
        if isinstance(source, str) and "," in source and not Path(source).exists():
            return named
        return super().columns(data, folder, source, named)


@dataclass(frozen=True, repr=False, kw_only=True)
class Translation(TextPrediction):
    """A sentence, its translation, and the attention weights.

    Attributes:
        unknown_words: the source words of which a part is unknown to the tokenizer, as they are written.
    """

    unknown_words: tuple[str, ...] = ()

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("source", self.source), ("translation", self.text)

    def details(self) -> dict[str, Any]:
        """Returns the unknown words, the tokens and the weights ``[target][source]``."""
        rows, columns, weights = self.target_tokens, self.source_tokens, self.weights
        if self.merge_words:
            rows = [_word(rows, group) for group in self.target_words]
            columns = [_word(columns, group) for group in self.source_words]
            if weights is not None:
                weights = pictures.merge(weights, self.target_words, self.source_words)
        return {
            "unknown_words": list(self.unknown_words),
            "source_tokens": columns,
            "target_tokens": rows,
            **({} if weights is None else {"weights": rounded(weights)}),
        }


@dataclass(frozen=True, repr=False, kw_only=True)
class TranslateEvaluation(TextScores, TextEvaluation):
    """How good a translator is on a data set."""

    pairs: int
    """Evaluated pairs."""
    perplexity: float
    """exp(loss)."""
    alignment_error_rate: float | None
    """0 to 1; None if the data has no true alignments or the model has no attention."""
    by_length: list[LengthBin]
    translations: list[Translation]

    examples: ClassVar[tuple[str, ...]] = ("translations",)

    def lines(self) -> list[str]:
        rate = "" if self.alignment_error_rate is None else f" · AER {self.alignment_error_rate:.3f}"
        bleu = f"{bleu_name(self.bleu_order)} {self.bleu:.2f}"
        scores = f"{bleu} · chrF {self.chrf:.2f} · perplexity {self.perplexity:.2f}{rate}"
        by_length = [
            f"  {part.label:>7} words: {bleu_name(part.bleu_order)} {part.bleu:6.2f} ({part.pairs} pairs)"
            for part in self.by_length
        ]
        first = f"{self.data}: {self.pairs} pairs · {scores}"
        return [first, self.search_line(), *by_length, self.bleu_signature]

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Writes the numbers, the translations (``evaluation-<name>.txt``) and a picture of BLEU by length."""
        lines = [translation.text.replace("\n", " ") for translation in self.translations]
        paths, bins = self.write_table(folder, f"evaluation-{name}.txt", lines, name), self.by_length
        if not bins:
            return paths
        folder.make_pictures()
        orders = ["" if part.bleu_order == ORDER else f"\n{bleu_name(part.bleu_order)}" for part in bins]
        figure = pictures.bleu_by_length(
            [part.label + order for part, order in zip(bins, orders, strict=True)],
            {folder.path.name: [part.bleu for part in bins]},
            [part.pairs for part in bins],
            title="BLEU by source length in words",
        )
        return [*paths, pictures.save(figure, folder.pictures / f"bleu-by-length-{name}.png")]


class TranslationExperiment(LineExperiment, TextExperiment):
    """A translator and its pairs.

    Processes that share texts do so in training. A validation, which needs less memory, translates token by token, so
    that each process has whole texts of its own.
    """

    def loss(self, batch: PairBatch) -> StepLoss:
        inputs = batch.target[:, :-1]
        source, target = (self.lines.shards(tokens.shape[1]) for tokens in (batch.source, inputs))
        if source is None or target is None:
            return super().loss(batch)
        from regard.distributed import sequence
        from regard.models.text_predictor import predicted_tokens

        parts = inputs, *predicted_tokens(batch.target, batch.target_lengths)
        inputs, labels, is_token = (target.cut(part, 1) for part in parts)
        with sequence(source, target):
            encoded = self.model.encode(source.cut(batch.source, 1), batch.source_lengths)
            predicted = self.model.decode_tokens(encoded, inputs, batch.target_lengths - 1, need_weights=False)
            loss = self.model.loss_of_labels(predicted, labels, is_token, self.training.label_smoothing)
        nll = self.lines.sums(loss.nll * loss.tokens)
        return StepLoss(loss.total, nll / batch.target_tokens, int(loss.tokens))


class TrainedTranslator(TrainedText):
    """The best model of a run with its tokenizers."""

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer of the language that is translated."""
        return self.files["source"]

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the other language."""
        return self.files["target"]

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {"source": self.source_tokenizer, "target": self.target_tokenizer}

    def check_sizes(self, files: dict[str, Any], config: Any) -> None:
        sizes = len(files["source"]), len(files["target"])
        if sizes != (config.source_vocabulary, config.target_vocabulary):
            raise RunError(f"{self.folder.path}: the vocabulary sizes of the tokenizers and of the model differ")

    def predict_with(self, inputs: Sequence[Any], options: TranslatePredictionOptions) -> list[Translation]:
        translations = self.write_texts(self.input.read(inputs, self), options)
        if options.replace_unknown:
            translations = [one.each(self._replaced) for one in translations]
        return [one.each(lambda each: replace(each, merge_words=options.merge_words)) for one in translations]

    def _replaced(self, one: Translation) -> Translation:
        """Returns a translation whose unknown words are replaced by source words (Luong et al. 2015, §4.1)."""
        if one.weights is None or self.target_tokenizer.UNK not in one.target_ids:
            return one
        source = SourceText.of(self.source_tokenizer, one.source, self.source_tokenizer.encode(one.source))
        written = copy_unknown(source, self.target_tokenizer, one.target_ids, one.weights)
        return replace(one, text=written.text, target_tokens=written.tokens, target_words=written.groups)

    def longest(self, inputs: Sequence[ReadText], options: SearchOptions) -> list[int]:
        limit = self.model.max_length
        if limit is None:
            return self.bounded(inputs)
        if (tokens := max(len(one.ids) for one in inputs)) > limit:
            raise ArgumentError(
                f"a text has {tokens} tokens, and {self.folder.path} has learned positions for {limit}; shorten it"
            )
        return self.bounded(inputs, limit - 1)

    def predictions(self, inputs: Sequence[ReadText], hypotheses: Sequence[Hypothesis]) -> list[Translation]:
        tokenizer, written = self.target_tokenizer, []
        for one, hypothesis in zip(inputs, hypotheses, strict=True):
            source = SourceText.of(self.source_tokenizer, one.text, one.ids)
            written.append(
                Translation(
                    source=one.text,
                    text=tokenizer.decode(hypothesis.tokens),
                    score=hypothesis.score,
                    source_tokens=source.tokens,
                    target_tokens=tokenizer.tokens(hypothesis.tokens),
                    source_words=source.groups,
                    target_words=tokenizer.word_groups(hypothesis.tokens),
                    weights=hypothesis.weights,
                    unknown_words=tuple(source.unknown),
                    target_ids=tuple(hypothesis.tokens),
                )
            )
        return written

    def empty(self, one: ReadText) -> Translation:
        return Translation(source=one.text)

    def remarks(self, predictions: Sequence[Prediction], options: TranslatePredictionOptions) -> list[str]:
        words = (word for one in predictions if isinstance(one, Translation) for word in one.unknown_words)
        line = unknown_words_line(words, options.replace_unknown)
        return [] if line is None else [line]

    def evaluation(self, written: WrittenTexts, options: TranslateEvaluationOptions) -> TranslateEvaluation:
        inputs = written.inputs

        texts, references = written.texts, [text for (text,) in written.references]
        scores = text_scores(texts, references)
        alignments, rate = read_alignments(written.source, len(inputs)), None
        if alignments is not None and self.model.attends:
            loss, links = self._alignments(inputs, self.input.targets(written.rows), options.batch_size)
            rate = alignment_error_rate(links, [one.sure for one in alignments], [one.possible for one in alignments])
        else:
            loss, _ = self.known_texts(inputs, self.target_tokenizer.encode_batch(references), options.batch_size)
        return TranslateEvaluation(
            **written.fields,
            pairs=len(inputs),
            **vars(scores),
            loss=loss,
            perplexity=perplexity(loss),
            alignment_error_rate=rate,
            by_length=bleu_by_length([one.text for one in inputs], texts, references),
            translations=written.predictions,
        )

    def alignments(self, sources: Sequence[str], targets: Sequence[str], **options: Any) -> list[set[tuple[int, int]]]:
        """Returns word alignments between sentences and their reference translations, by the attention weights.

        The decoder reads the reference translation (teacher forcing), so that its words can be compared with the true
        alignment. The weights of sub-words are merged to words: summed over the parts of a source word, averaged over
        those of a target word. Each target word is linked to the source word with the largest weight.

        Args:
            sources: the source sentences; the model must have attention.
            targets: their reference translations.
            options: ``batch_size``; ``min_weight`` in [0, 1]: a target word whose largest weight is smaller has no
                link.

        Returns:
            for each pair a set of ``(source word, target word)``.
        """
        return self._alignments(self.input.read(sources, self), targets, **options)[1]

    def _alignments(
        self, inputs: Sequence[ReadText], targets: Sequence[str], batch_size: int = 64, min_weight: float = 0.0
    ) -> tuple[float, list[set[tuple[int, int]]]]:
        ids = self.target_tokenizer.encode_batch(list(targets))
        loss, weights = self.known_texts(inputs, ids, batch_size, need_weights=True)
        links = []
        for one, target, of_pair in zip(inputs, targets, weights, strict=True):
            # Words of the texts themselves: a part of one may be unknown.
            target_words = self.target_tokenizer.word_groups([], target)
            source_words = self.source_tokenizer.word_groups([], one.text)
            merged = enumerate(pictures.merge(of_pair, target_words, source_words))
            links.append(
                {(int(word.argmax()), number) for number, word in merged if word.size and word.max() >= min_weight}
            )
        return loss, links

    def facts(self) -> str:
        return encoder_decoder_facts(self.model.config)

    def delay(self, source: ReadText) -> str | None:
        tokens = len(source.ids)
        if tokens <= MOST_TYPED_TOKENS:
            return None
        return f"the text has {tokens:,} tokens, more than the {MOST_TYPED_TOKENS} that are translated here; shorten it"


class TranslateTask(TextTask):
    """Translating text."""

    name = "translate"
    hub_task = "translation"
    summary = BUILT_IN_TASKS[name]
    input = TranslationPairs(
        Generated(
            lambda folder, sizes: text_data.generated.write_corpus(folder, sizes, 1),
            validation=500,
            test=1000,
            columns=("english", "spanish"),
            lengths=(40.0, 42.0),
        )
    )
    input_hint = "A sentence to translate"
    answer_name = "Translation"
    metrics = (
        Metric("bleu", "BLEU", trivial=1.0, perfect=100.0, unit="0 to 100"),
        Metric("chrf", "chrF", perfect=100.0, unit="0 to 100"),
    )
    data_config = TranslateData
    model_config = TranslatorConfig
    training_config = TranslationTrainingConfig
    rules = TRANSLATE
    prediction_config = TranslatePredictionOptions
    evaluation_config = TranslateEvaluationOptions
    experiment = TranslationExperiment
    trained = TrainedTranslator
    model_class = "regard.models.translator:Translator"
    variant = ("model", "attention", "architecture")
    picture_prefix = "alignment"
    sample_names = ("source", "reference", "translation")
    reports = ("evaluation-*.txt", "pictures/bleu-by-length-*.png", "pictures/translations.html")
    lack = "which does not translate"

    def loaders(self) -> dict[str, tuple[str, Callable[[Path], Any]]]:
        return {side: (f"tokenizer-{side}.json", text_data.tokenizers.Tokenizer.load) for side in ("source", "target")}

    def learn(self, run: Any, folder: RunFolder, rows: Any, held_out: Any) -> dict[str, Any]:
        return {
            side: text_tokenizer(tokenizer_path(folder, side), run, column(rows, side), option=f"{side}_tokenizer")
            for side in ("source", "target")
        }

    def check_run(self, run: Any) -> None:
        super().check_run(run)
        architecture, processes = run.model.architecture, run.training.sequence_processes
        run.training.check_architecture(run.model)
        if architecture != "transformer" and processes > 1:
            raise ArgumentError(
                f"sequence_processes must be 1 with architecture {architecture!r}, which reads one token after the "
                f"other; it is {processes}: give architecture 'transformer'"
            )
        check_lines(run)

    def validation_limit(self, run: Any) -> int:
        return run.training.validation_pairs

    def sizes(self, experiment: TextExperiment) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        references = [text for (text,) in experiment.references]
        tokenizer, order = bleu_tokenizer(references), bleu_order(references)
        return [
            f"vocabularies {len(experiment.files['source'])} and {len(experiment.files['target'])}",
            *([] if tokenizer == "13a" else [f"BLEU of the tokenizer {tokenizer}"]),
            *([] if order == ORDER else [f"BLEU is {bleu_name(order)}: no reference has {ORDER} tokens"]),
        ]

    def simple_texts(self, rows: Any, references: Sequence[str]) -> tuple[str, list[str]]:
        return "a copy of the source", self.input.names(rows)

    def scores(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
        scores = text_scores(texts, [text for (text,) in references])
        return {"bleu": scores.bleu, "chrf": scores.chrf}

    def word_embeddings(self, run: Any, model: Any) -> tuple[list[Any], str]:
        if run.model.architecture == "transformer":
            return [model.source_input.embedding], "hidden"
        return [model.encoder.embedding], "embedding"

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        fields = {"source_vocabulary": len(files["source"]), "target_vocabulary": len(files["target"])}
        if run.model.score == "location":
            fields["max_source"] = run.model.max_source or run.data.max_length
        # A translation may be longer than its source.
        return {**fields, "max_length": 2 * run.data.max_length + FREE_TOKENS, "length_ratio": length_ratio(train)}


def _word(tokens: list[str], group: range) -> str:
    first, *others = (tokens[position] for position in group)
    # A space before a word can be a piece of its own.
    return (first.removeprefix("␣") if others else first) + "".join(piece.removeprefix("·") for piece in others)


def read_alignments(data: Any, pairs: int) -> list[Alignment] | None:
    """Returns the true alignments of a TSV or JSON-lines file, or None if it has no column ``alignment``.

    Raises:
        DataError: an alignment is not in Pharaoh format, or there are fewer alignments than pairs.
    """

    def alignment(text: Any) -> Alignment:
        if not isinstance(text, str):
            raise DataError(f"the column {ALIGNMENT_COLUMN!r} must be text")
        return Alignment.parse(text)

    counts, suffixes = "{} alignments for {} pairs with text", (".tsv", ".jsonl")
    return row_values(data, ALIGNMENT_COLUMN, pairs, alignment, counts, suffixes)


TASK = TranslateTask()
