"""The task ``summarize``: a short text for a long one, by a network that can copy words of the article."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.configuration import AT_LEAST_0, AT_LEAST_1, option
from regard.data import text as text_data
from regard.data.text.words import spaced_words
from regard.errors import DataError
from regard.models.configs import PointerConfig
from regard.tasks.copied_spans import LEAST_COPIED_SHARE, CopiedSpan, copied_spans, marked
from regard.tasks.inputs.input import Generated
from regard.tasks.inputs.run_tokenizer import text_tokenizer, tokenizer_path
from regard.tasks.inputs.text import PairedTexts, ReadText, TextExamples, column
from regard.tasks.lazy import records, tables
from regard.tasks.options import (
    BATCH_TOKENS,
    LENGTH,
    EvaluationOptions,
    NBestOptions,
    SearchOptions,
    TokenOptions,
    WordVectorOptions,
)
from regard.tasks.outputs.text import (
    TextEvaluation,
    TextExperiment,
    TextPrediction,
    TextTask,
    TextTraining,
    TrainedText,
    WrittenTexts,
    encoder_decoder_facts,
    length_ratio,
    perplexity,
)
from regard.tasks.outputs.text_metrics import SpanCount, novel_share, repeated_share, rouge_scores, spans_exact
from regard.tasks.registry import BUILT_IN_TASKS
from regard.tasks.rules import SUMMARIZE
from regard.training.metrics import Metric
from regard.training.results import Prediction, rounded

if TYPE_CHECKING:
    import datasets

    from regard.data.text.batches import IdEncoder
    from regard.data.text.extended_vocabulary import ExtendedVocabulary
    from regard.data.text.tokenizers import Tokenizer
    from regard.models.search import Hypothesis
    from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")

COPIED_COLUMN = "copied"
"""The column with the spans that a summary must copy."""


@dataclass(frozen=True)
class SummarizeData(WordVectorOptions, TokenOptions):
    """The data of a run, and how it is split into tokens."""

    train: str | None = None
    """Training articles with summaries: a .tsv, .csv, .jsonl or .parquet file, two aligned text files as
    'articles.txt,summaries.txt', a Hugging Face data set 'owner/name', or 'bundled' for generated articles."""
    article_column: str | None = None
    """Column with the articles. Default: article, the only one of a usual name, or the first of two columns."""
    summary_column: str | None = None
    """Column with the summaries. Default: summary, the only one of a usual name, or the second of two columns."""
    tokenizer: Literal["word", "bpe", "char"] = "word"
    """word, bpe (sub-words) or char; articles and summaries share it."""
    vocabulary: int = 20000
    min_count: int = option(5, within=AT_LEAST_1)
    """Tokenizer word: a word that occurs fewer times in the training data is not in the vocabulary; only copying can
    write it."""
    max_length: int = 400
    """Largest number of tokens of an article; the rest of a longer one is cut off."""
    max_summary: int = option(100, within=LENGTH)
    """Largest number of tokens of a summary; training articles with longer ones are left out."""

    columns = ("article_column", "summary_column")
    default_bundled = 20_000
    generated = "generated articles"


@dataclass(frozen=True)
class SummaryTrainingConfig(TextTraining):
    """How a summarizer is trained, and for how long."""

    tokens_per_batch: int = option(8000, within=BATCH_TOKENS)
    """Tokens of the articles of a batch, padding included, on each device."""
    label_smoothing: float = 0.0
    validation_articles: int = option(0, within=AT_LEAST_0)
    """Articles that each validation summarizes: the first of the validation data; 0: all."""


@dataclass(frozen=True)
class SummarySearch(SearchOptions):
    """How a summary is searched for."""

    batch_size: int = 32
    beam: int = 4
    max_summary: int | None = option(None, within=LENGTH)
    """Largest number of tokens of a summary. Default: as in training."""


@dataclass(frozen=True)
class SummarizePredictionOptions(NBestOptions, SummarySearch):
    """How articles are summarized."""

    mark_copied: bool = False
    """Mark copied words with their places in the article: [Ada Byron @7-8]."""
    merge_words: bool = False
    """Merge sub-words to words, in pictures."""


@dataclass(frozen=True)
class SummarizeEvaluationOptions(SummarySearch, EvaluationOptions):
    """How a summarizer is measured on a data set."""

    article_column: str | None = None
    """Column with the articles. Default: as in training."""
    summary_column: str | None = None
    """Column with the references. Default: as in training."""


@dataclass(frozen=True)
class ReadArticle(ReadText):
    """An article as a model reads it; words that are not in the vocabulary have ids of its extended vocabulary."""

    vocabulary: ExtendedVocabulary | None = field(default=None, repr=False)


class Articles(PairedTexts):
    """Articles with summaries, which share a tokenizer."""

    roles = "ARTICLE", "SUMMARY"

    def batch_tokens(self, training: Any) -> tuple[int, int]:
        return training.tokens_per_batch, training.tokens_per_batch

    def learn(self, run: Any, folder: RunFolder, rows: datasets.Dataset) -> dict[str, Any]:
        texts = column(rows, "source", "target")
        return {"tokenizer": text_tokenizer(tokenizer_path(folder), run, texts, run.data.min_count)}

    def encode(
        self, rows: datasets.Dataset, run: Any, learnt: Mapping[str, Any], target: IdEncoder, training: bool
    ) -> TextExamples:
        table = encode_articles(
            rows,
            self.tokenizer(learnt),
            copy=run.model.copy,
            max_length=run.data.max_length,
            max_summary=run.data.max_summary,
            cut_summaries=not training,
        )
        return TextExamples(table, self)

    def read(self, inputs: Sequence[Any], trained: Any) -> list[ReadText]:
        data, tokenizer, read_inputs = trained.config.data, trained.tokenizer, []
        if data.lowercase:
            inputs = [one.lower() if isinstance(one, str) else one for one in inputs]
        for source, one in zip(inputs, super().read(inputs, trained), strict=True):
            if isinstance(source, ReadArticle):
                read_inputs.append(source)
                continue
            ids = one.ids[: data.max_length]
            extended = text_data.extended_vocabulary.ExtendedVocabulary.of(tokenizer, one.text, ids)
            read_inputs.append(ReadArticle(one.text, extended.encode(one.text, ids), len(one.ids) - len(ids), extended))
        return read_inputs


@dataclass(frozen=True, repr=False, kw_only=True)
class Summary(TextPrediction):
    """An article, its summary, the copied words and the attention weights.

    Attributes:
        text: the summary.
        copied_share: for each token of the summary the part of its probability that is copied, 0 to 1.
        copied: the runs of copied tokens and their positions in the article.
        tokens_cut: tokens at the end of the article that were not read.
        mark_copied: whether copied words are marked where the summary is printed.
    """

    copied_share: list[float] = field(default_factory=list)
    copied: list[CopiedSpan] = field(default_factory=list)
    tokens_cut: int = 0
    mark_copied: bool = False

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("article", self.source), ("summary", self.text)

    @property
    def shown(self) -> str:
        return marked(self.text, self.copied) if self.mark_copied else self.text

    def details(self) -> dict[str, Any]:
        """Returns the copied spans, the tokens, the copied shares and the weights ``[target][source]``."""
        return {
            "tokens_cut": self.tokens_cut,
            "copied": [span.to_dict() for span in self.copied],
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "copied_share": rounded(self.copied_share),
            **({} if self.weights is None else {"weights": rounded(self.weights)}),
        }

    def figure(self) -> Any:
        return TextPrediction.figure(self.with_marked_tokens())

    def with_marked_tokens(self) -> Summary:
        """Returns the summary with brackets around the labels of copied tokens, for pictures."""
        copied, labels = {position for span in self.copied for position in span.tokens}, list(self.target_tokens)
        tokens = [range(position, position + 1) for position in range(len(labels))]
        for group in self.target_words if self.merge_words else tokens:
            if copied.issuperset(group):
                first = labels[group.start]
                labels[group.start] = f"[{records.join_pieces([first]) if self.merge_words else first}"
                labels[group.stop - 1] += "]"
        return replace(self, target_tokens=labels)


@dataclass(frozen=True, repr=False, kw_only=True)
class SummarizeEvaluation(TextEvaluation):
    """How good a summarizer is on a data set."""

    articles: int
    """Evaluated articles."""
    rouge_1: float
    """0 to 100; the mean F1 of the summaries, as the next two."""
    rouge_2: float
    rouge_l: float
    perplexity: float
    """exp(loss)."""
    copied_tokens: float | None
    """Share of the summaries' tokens that the model copied, 0 to 1; None for a model without copying."""
    novel_words: float
    """Share of the summaries' words that their articles do not have, 0 to 1."""
    novel_trigrams: float
    """Share of the runs of three words, likewise."""
    repeated_trigrams: float
    """Share of the runs of three words that their summary had before, 0 to 1."""
    spans: int | None
    """Spans that must be copied, in the column ``copied`` of the data; None: there is no such column."""
    copied_spans_exact: float | None
    """Share of these spans that the summaries have, word for word and in their order, 0 to 1."""
    summaries: list[Summary]

    examples: ClassVar[tuple[str, ...]] = ("summaries",)

    def lines(self) -> list[str]:
        rouge = f"ROUGE-1 {self.rouge_1:.2f} · ROUGE-2 {self.rouge_2:.2f} · ROUGE-L {self.rouge_l:.2f}"
        copied = "" if self.copied_tokens is None else f"copied tokens {100 * self.copied_tokens:.1f} % · "
        shares = (
            f"{copied}novel words {100 * self.novel_words:.1f} % · novel trigrams {100 * self.novel_trigrams:.1f} % · "
            f"repeated trigrams {100 * self.repeated_trigrams:.1f} %"
        )
        first = f"{self.data}: {self.articles} articles · {rouge} · perplexity {self.perplexity:.2f}"
        lines = [first, self.search_line(), shares]
        if self.copied_spans_exact is not None:
            lines.append(f"copied spans exact {100 * self.copied_spans_exact:.1f} % ({self.spans} spans)")
        return lines

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Writes the numbers, and the summaries (``evaluation-<name>.txt``)."""
        lines = [one.text.replace("\n", " ") for one in self.summaries]
        return self.write_table(folder, f"evaluation-{name}.txt", lines, name)


class SummaryExperiment(TextExperiment):
    """A summarizer and its data."""

    def decode(self, row: int, tokens: list[int]) -> str:
        article, tokenizer = self.validation_rows[row]["source"], self.files["tokenizer"]
        read = tokenizer.encode(article)[: self.run.data.max_length]
        return text_data.extended_vocabulary.ExtendedVocabulary.of(tokenizer, article, read).decode(tokens)


class TrainedSummarizer(TrainedText):
    """The best model of a run with its tokenizer."""

    def predict_with(self, inputs: Sequence[Any], options: SummarizePredictionOptions) -> list[Summary]:
        return [
            one.each(lambda each: replace(each, mark_copied=options.mark_copied, merge_words=options.merge_words))
            for one in super().predict_with(inputs, options)
        ]

    def longest(self, inputs: Sequence[ReadText], options: SummarySearch) -> list[int]:
        config, most = self.model.config, options.max_summary or self.config.data.max_summary
        if config.architecture == "transformer" and config.position == "learned":
            most = min(most, config.max_length - 1)
        # A length that was asked for is not bounded by that of the training summaries.
        return [most] * len(inputs) if options.max_summary else self.bounded(inputs, most)

    def predictions(self, inputs: Sequence[ReadArticle], hypotheses: Sequence[Hypothesis]) -> list[Summary]:
        batch = self.input.batch(inputs, [written.tokens for written in hypotheses]).to(self.device)
        copied = self.model.copied(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
        written = []
        for row, (one, hypothesis) in enumerate(zip(inputs, hypotheses, strict=True)):
            vocabulary, tokens = one.vocabulary, hypothesis.tokens
            assert vocabulary is not None
            text, source_words = vocabulary.decode(tokens), vocabulary.word_groups(one.ids)
            share, position = (part[row, : len(tokens)].tolist() for part in (copied.share, copied.position))
            written.append(
                Summary(
                    source=one.text,
                    text=text,
                    score=hypothesis.score,
                    source_tokens=vocabulary.tokens(one.ids),
                    target_tokens=vocabulary.tokens(tokens),
                    source_words=source_words,
                    target_words=vocabulary.word_groups(tokens),
                    weights=hypothesis.weights,
                    copied_share=share,
                    copied=copied_spans(vocabulary, tokens, share, position, source_words),
                    tokens_cut=one.cut,
                    target_ids=tuple(tokens),
                )
            )
        return written

    def empty(self, one: ReadText) -> Summary:
        return Summary(source=one.text)

    def remarks(self, predictions: Sequence[Prediction], options: SummarizePredictionOptions) -> list[str]:
        cut = sum(isinstance(one, Summary) and one.tokens_cut > 0 for one in predictions)
        if not cut:
            return []
        longest = self.config.data.max_length
        return [f"cut {cut} of {len(predictions)} articles to {longest} tokens, the --max-length of the training"]

    def evaluation(self, written: WrittenTexts, options: SummarizeEvaluationOptions) -> SummarizeEvaluation:
        rows, inputs, predictions = written.rows, written.inputs, written.predictions
        data, copies = self.config.data, self.config.model.copy
        articles, references = list(rows["source"]), list(rows["target"])
        spans = read_spans(written.source, written.columns[0] or "article", len(articles), data.lowercase)
        texts, read = written.texts, self.compared(articles)
        scores = rouge_scores(texts, [text for (text,) in written.references])
        targets = [ids[: data.max_summary] for ids in self.tokenizer.encode_batch(references)]
        if copies:
            targets = [
                one.vocabulary.encode(text, ids) for one, text, ids in zip(inputs, references, targets, strict=True)
            ]
        loss, _ = self.known_texts(inputs, targets, options.batch_size)
        shares = [share > LEAST_COPIED_SHARE for one in predictions for share in one.copied_share]
        counted = SpanCount(0, 0) if spans is None else spans_exact(texts, [self.compared(each) for each in spans])
        return SummarizeEvaluation(
            **written.fields,
            articles=len(articles),
            **scores._asdict(),
            loss=loss,
            perplexity=perplexity(loss),
            copied_tokens=sum(shares) / max(1, len(shares)) if copies else None,
            novel_words=novel_share(texts, read, 1),
            novel_trigrams=novel_share(texts, read, 3),
            repeated_trigrams=repeated_share(texts, 3),
            spans=None if spans is None else counted.spans,
            copied_spans_exact=counted.exact / counted.spans if counted.spans else None,
            summaries=predictions,
        )

    def facts(self) -> str:
        return encoder_decoder_facts(self.model.config)

    def attention_size(self, source: ReadText) -> tuple[int, int]:
        tokens = len(source.ids)
        if self.config.model.architecture != "transformer":
            return tokens, 0
        return tokens, self.model.config.encoder_layers * self.model.config.heads * tokens**2


def columns_of(source: Any) -> list[str]:
    """Returns the columns of a table in a file; [] for any other source."""
    paths = text_data.sources.local_files(source)
    if paths is None or len(paths) != 1 or paths[0].suffix.lower() not in tables.READERS or not paths[0].is_file():
        return []
    return tables.column_names(paths[0])


def encode_articles(
    dataset: datasets.Dataset,
    tokenizer: Tokenizer,
    *,
    copy: bool,
    max_length: int,
    max_summary: int,
    cut_summaries: bool = False,
) -> datasets.Dataset:
    """Encodes every article and its summary; the ids are memory-mapped.

    Args:
        copy: whether unknown words get the ids of the article's `ExtendedVocabulary`, also in the summary; else they
            are ``unk``.
        cut_summaries: whether a longer summary is cut, for evaluation; else its article is left out.

    Returns:
        a table as `regard.data.text.batches.encode_pairs` gives it.

    Raises:
        DataError: no article is left.
    """
    from regard.data.cache import fingerprint

    def encode(block: dict[str, list[str]]) -> text_data.batches.EncodedBlock:
        articles = tokenizer.encode_batch(block["source"])
        summaries = tokenizer.encode_batch(block["target"])
        rows = [position for position, ids in enumerate(summaries) if cut_summaries or len(ids) <= max_summary]
        counts = {
            "overlong": sum(len(articles[position]) > max_length for position in rows),
            "summaries": sum(len(ids) > max_summary for ids in summaries),
        }
        source, target = [], []
        for position in rows:
            article, summary = articles[position][:max_length], summaries[position][:max_summary]
            if copy:
                text = block["source"][position]
                extended = text_data.extended_vocabulary.ExtendedVocabulary.of(tokenizer, text, article)
                article = extended.encode(text, article)
                summary = extended.encode(block["target"][position], summary)
            source.append(article)
            target.append(summary)
        return text_data.batches.EncodedBlock(source, target, rows, counts)

    limits = max_length, max_summary, cut_summaries
    # datasets documents `_fingerprint` as the key of a table's content; there is no public attribute for it.
    key = fingerprint("articles", 2, dataset._fingerprint, tokenizer.fingerprint, copy, *limits)
    refused = f"none of {len(dataset)} summaries has at most {max_summary} tokens; raise --max-summary"
    table, counted = text_data.batches.encoded_table(key, dataset, encode, refused)
    if counted["overlong"]:
        log.warning("cut %d of %d articles with more than %d tokens", counted["overlong"], len(dataset), max_length)
    if counted["summaries"]:
        done = "cut" if cut_summaries else "left out"
        log.warning(
            "%s %d of %d summaries with more than %d tokens", done, counted["summaries"], len(dataset), max_summary
        )
    return table


def read_spans(data: Any, article_column: str, articles: int, lowercase: bool) -> list[list[str]] | None:
    """Returns the spans that the summary of each article must copy, or None if the data have no column ``copied``.

    Raises:
        DataError: the spans of an article are no JSON list of texts, or there are fewer of them than articles.
    """
    columns = columns_of(data)
    if COPIED_COLUMN not in columns or article_column not in columns:
        return None
    read = []
    for number, text in enumerate(
        text_data.sources.open_pairs(data, article_column, COPIED_COLUMN, limit=articles)["target"], 1
    ):
        try:
            spans = json.loads(text)
        except (ValueError, RecursionError):
            spans = None
        if not isinstance(spans, list) or not all(isinstance(span, str) and span.strip() for span in spans):
            raise DataError(f"{data}: the column {COPIED_COLUMN!r} of article {number} must be a JSON list of texts")
        read.append([span.lower() if lowercase else span for span in spans])
    if len(read) != articles:
        raise DataError(
            f"{data} has spans in the column {COPIED_COLUMN!r} for {len(read)} of {articles} articles; "
            "correct or remove the column"
        )
    return read


class SummarizeTask(TextTask):
    """Summarizing text."""

    name = "summarize"
    hub_task = "summarization"
    summary = BUILT_IN_TASKS[name]
    input = Articles(
        Generated(
            lambda folder, sizes: text_data.articles.write_articles(folder, sizes, 1),
            validation=500,
            test=1000,
            lengths=(278.0, 144.0),
        ),
        examples="articles",
    )
    input_hint = "An article to summarize"
    answer_name = "Summary"
    metrics = (
        Metric("rouge_l", "ROUGE-L", trivial=10.0, perfect=100.0, unit="0 to 100"),
        Metric("rouge_1", "ROUGE-1", perfect=100.0, unit="0 to 100"),
        Metric("rouge_2", "ROUGE-2", perfect=100.0, unit="0 to 100"),
    )
    data_config = SummarizeData
    model_config = PointerConfig
    training_config = SummaryTrainingConfig
    rules = SUMMARIZE
    prediction_config = SummarizePredictionOptions
    evaluation_config = SummarizeEvaluationOptions
    experiment = SummaryExperiment
    trained = TrainedSummarizer
    model_class = "regard.models.pointer_generator:PointerGenerator"
    variant = ("model", "architecture")
    picture_prefix = "alignment"
    length_option = "max_summary"
    sample_names = ("article", "reference", "summary")
    reports = ("evaluation-*.txt",)
    lack = "which does not summarize"

    def learn(self, run: Any, folder: RunFolder, rows: Any, held_out: Any) -> dict[str, Any]:
        return self.input.learn(run, folder, rows)

    def validation_limit(self, run: Any) -> int:
        return run.training.validation_articles

    def scores(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
        return rouge_scores(texts, [text for (text,) in references])._asdict()

    def simple_texts(self, rows: Any, references: Sequence[str]) -> tuple[str, list[str]]:
        length = round(sum(len(spaced_words(text)) for text in references) / max(1, len(references)))
        leads = [" ".join(spaced_words(article)[:length]) for article in self.input.names(rows)]
        return f"the first {length} words of the article", leads

    def forbidden(self, run: Any, files: Mapping[str, Any]) -> tuple[int, ...]:
        # With copying, a word that the model does not know is one of the article's.
        return (files["tokenizer"].UNK,) if run.model.copy else ()

    def word_embeddings(self, run: Any, model: Any) -> tuple[list[Any], str]:
        # Articles and summaries have one vocabulary.
        if run.model.architecture == "transformer":
            return [model.translator.source_input.embedding, model.target_embedding], "hidden"
        return [model.translator.encoder.embedding, model.target_embedding], "embedding"

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        vocabulary, longest = len(files["tokenizer"]), max(run.data.max_length, run.data.max_summary + 1)
        sizes = {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary}
        return {**sizes, "max_length": longest, "length_ratio": length_ratio(train)}


TASK = SummarizeTask()
