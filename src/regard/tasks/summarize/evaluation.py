"""Metrics of a trained summarizer on a data set: ROUGE, perplexity, and what is copied, new and repeated."""

import json
import math
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from regard.atomic_file import write_atomically
from regard.data.text.batches import pair_batches
from regard.data.text.sources import open_pairs
from regard.errors import DataError
from regard.tasks.search_options import search_line
from regard.tasks.summarize.config import EvaluationConfig
from regard.tasks.summarize.copied_spans import LEAST_SHARE
from regard.tasks.summarize.corpora import columns_of, open_articles
from regard.tasks.summarize.encoding import encode_articles
from regard.tasks.summarize.rouge import rouge_scores
from regard.tasks.summarize.text_shares import SpanCount, novel_share, repeated_share, spans_exact
from regard.tasks.summarize.trained_summarizer import Summary, TrainedSummarizer
from regard.training import task
from regard.training.run_folder import RunFolder

COPIED_COLUMN = "copied"


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(task.Evaluation):
    """How good a summarizer is on a data set."""

    data: str
    """Name of the data set."""
    articles: int
    """Evaluated articles."""
    rouge_1: float
    """0 to 100; the mean F1 of the summaries, as the next two."""
    rouge_2: float
    rouge_l: float
    loss: float
    """Mean −log p of a summary's token, in nats."""
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
    width: int
    """Beam width: hypotheses for each article; samples (``risk``) need no beam."""
    length_penalty: float
    """Exponent α of the beam's length normalization."""
    risk: dict[str, Any] | None
    """How samples were drawn and compared; None: a beam search."""
    seconds: float
    """Duration of the search."""
    summaries: list[Summary]

    def lines(self) -> list[str]:
        rouge = f"ROUGE-1 {self.rouge_1:.2f} · ROUGE-2 {self.rouge_2:.2f} · ROUGE-L {self.rouge_l:.2f}"
        copied = "" if self.copied_tokens is None else f"copied tokens {100 * self.copied_tokens:.1f} % · "
        shares = (
            f"{copied}novel words {100 * self.novel_words:.1f} % · novel trigrams {100 * self.novel_trigrams:.1f} % · "
            f"repeated trigrams {100 * self.repeated_trigrams:.1f} %"
        )
        found = [f"{self.data}: {self.articles} articles · {rouge} · perplexity {self.perplexity:.2f}"]
        found += [search_line(self.width, self.length_penalty, self.risk), shares]
        if self.copied_spans_exact is not None:
            found.append(f"copied spans exact {100 * self.copied_spans_exact:.1f} % ({self.spans} spans)")
        return found

    def to_dict(self) -> dict[str, Any]:
        """All fields but the summaries."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        del content["summaries"]
        return content

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Write the numbers, and the summaries (``evaluation-<name>.txt``)."""
        paths = task.Evaluation.write(self, folder, name)
        text = "".join(one.summary.replace("\n", " ") + "\n" for one in self.summaries)
        write_atomically(folder.file(f"evaluation-{name}.txt"), text.encode())
        return [*paths, folder.file(f"evaluation-{name}.txt")]


def evaluate(
    trained: TrainedSummarizer,
    data: Any,
    article_column: str | None,
    summary_column: str | None,
    options: EvaluationConfig,
) -> Evaluation:
    """Summarize a data set and compare the summaries with the references.

    Args:
        trained: the trained model.
        data: a source of `open_articles`. If it is a file with a column ``copied`` (a JSON list of spans, as in the
            generated articles), the spans are looked up in the summaries.
        article_column: as in `open_articles`.
        summary_column: as in `open_articles`.
        options: the search, and how many articles.

    Raises:
        DataError: the data cannot be used.
    """
    lowercase = trained.config.data.lowercase
    dataset = open_articles(data, article_column, summary_column, lowercase=lowercase, limit=options.limit)
    articles, references = list(dataset["source"]), list(dataset["target"])
    spans = read_spans(data, article_column or "article", len(articles), lowercase)
    start = time.monotonic()
    summaries = trained.summarize(
        articles,
        width=options.beam,
        length_penalty=options.length_penalty,
        risk=options.minimum_risk,
        max_summary=options.max_summary,
        batch_size=options.batch_size,
    )
    seconds = time.monotonic() - start
    texts = [one.summary for one in summaries]
    scores = rouge_scores(texts, references)
    loss = teacher_forced_loss(trained, dataset)
    shares = [share > LEAST_SHARE for one in summaries for share in one.copied_share]
    exact = SpanCount(0, 0) if spans is None else spans_exact(texts, spans)
    return Evaluation(
        data=str(data),
        articles=len(articles),
        rouge_1=scores.rouge_1,
        rouge_2=scores.rouge_2,
        rouge_l=scores.rouge_l,
        loss=loss,
        perplexity=math.exp(min(loss, 700.0)),
        copied_tokens=sum(shares) / max(1, len(shares)) if trained.config.model.copy else None,
        novel_words=novel_share(texts, articles, 1),
        novel_trigrams=novel_share(texts, articles, 3),
        repeated_trigrams=repeated_share(texts, 3),
        spans=None if spans is None else exact.spans,
        copied_spans_exact=exact.found / exact.spans if exact.spans else None,
        width=options.beam,
        length_penalty=options.length_penalty,
        risk=None if options.minimum_risk is None else asdict(options.minimum_risk),
        seconds=seconds,
        summaries=summaries,
    )


def teacher_forced_loss(trained: TrainedSummarizer, dataset: Any, tokens_per_batch: int = 8000) -> float:
    """Mean −log p of a reference's token, in nats, given the tokens before it; ``eos`` is counted.

    Args:
        trained: the trained model.
        dataset: columns ``source`` and ``target``.
        tokens_per_batch: tokens of the articles of a batch.
    """
    data = trained.config.data
    encoded = encode_articles(
        dataset,
        trained.tokenizer,
        copy=trained.config.model.copy,
        max_length=data.max_length,
        max_summary=data.max_summary,
        cut_summaries=True,
    )
    total, tokens = 0.0, 0
    loader = pair_batches(encoded, tokens_per_batch, shuffle=False, source_tokens_per_batch=tokens_per_batch)
    with torch.inference_mode():
        for batch in loader:
            moved = batch.to(trained.device)
            loss = trained.model.loss(moved.source, moved.source_lengths, moved.target, moved.target_lengths)
            total += float(loss.nll) * batch.target_tokens
            tokens += batch.target_tokens
    return total / max(1, tokens)


def read_spans(data: Any, article_column: str, articles: int, lowercase: bool) -> list[list[str]] | None:
    """The spans that the summary of each article must copy, or None if the data have no column ``copied``.

    Args:
        data: the evaluated data.
        article_column: the column with the articles.
        articles: number of articles that were read from it; the spans of as many are read.
        lowercase: whether to turn the spans into lower case.

    Raises:
        DataError: the spans of an article are no JSON list of texts, or there are fewer of them than articles.
    """
    columns = columns_of(data)
    if COPIED_COLUMN not in columns or article_column not in columns:
        return None
    found = []
    for number, text in enumerate(open_pairs(data, article_column, COPIED_COLUMN, limit=articles)["target"], 1):
        try:
            spans = json.loads(text)
        except (ValueError, RecursionError):
            spans = None
        if not isinstance(spans, list) or not all(isinstance(span, str) and span.strip() for span in spans):
            raise DataError(f"{data}: the column {COPIED_COLUMN!r} of article {number} must be a JSON list of texts")
        found.append([span.lower() if lowercase else span for span in spans])
    if len(found) != articles:
        raise DataError(
            f"{data} has spans in the column {COPIED_COLUMN!r} for {len(found)} of {articles} articles; "
            "correct or remove the column"
        )
    return found
