"""A trained summarizer, loaded from its run folder: summarizes text and says which words it copied from where."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.data.text.batches import PairBatch
from regard.data.text.extended_vocabulary import ExtendedVocabulary
from regard.data.text.tokenizers import Tokenizer
from regard.errors import RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.pointer_generator import PointerGenerator
from regard.models.search import Hypothesis, MinimumRisk
from regard.records import TokenAxis
from regard.tasks.run_data import chunks, load_files_and_model, on_device
from regard.tasks.run_files import tokenizer_path
from regard.tasks.summarize.config import EvaluationConfig, PredictionConfig
from regard.tasks.summarize.copied_spans import CopiedSpan, copied_spans, marked
from regard.tasks.summarize.task import TASK, SummaryRun
from regard.tasks.translator_attention import translator_attention
from regard.training.run_folder import RunFolder
from regard.training.task import Prediction, Trained

if TYPE_CHECKING:
    from regard.tasks.summarize.evaluation import Evaluation


@dataclass(frozen=True, slots=True, repr=False)
class Summary(Prediction):
    """An article, its summary, the copied words and the attention weights.

    Attributes:
        source: the article, unchanged.
        text: its summary; with ``--mark-copied`` the copied words are marked.
        summary: the summary without marks.
        score: log-probability of the summary in nats, divided by the length penalty of the search.
        source_tokens: labels of the article's tokens that were read.
        target_tokens: labels of the summary's tokens, without ``eos``.
        source_words: positions of the tokens of each word of the article.
        target_words: positions of the tokens of each word of the summary.
        weights: float32 ``[target tokens, source tokens]``; None for an empty article.
        copied_share: for each token of the summary the part of its probability that is copied, 0 to 1.
        copied: the runs of copied tokens and their places in the article.
        tokens_cut: tokens at the end of the article that were not read.
        merge_words: whether pictures have words, not sub-words.
        target_ids: ids of the summary's tokens, in the extended vocabulary of the article.
    """

    source: str
    text: str
    summary: str
    score: float
    source_tokens: list[str]
    target_tokens: list[str]
    source_words: list[range]
    target_words: list[range]
    weights: Tensor | None
    copied_share: list[float]
    copied: list[CopiedSpan]
    tokens_cut: int = 0
    merge_words: bool = False
    target_ids: tuple[int, ...] = field(default=(), repr=False)

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("article", self.source), ("summary", self.summary)

    def to_dict(self) -> dict[str, Any]:
        """Article, summary, score in nats, copied spans, tokens, copied shares and weights ``[target][source]``."""
        found: dict[str, Any] = {
            "source": self.source,
            "summary": self.summary,
            "score": round(self.score, 4),
            "tokens_cut": self.tokens_cut,
            "copied": [span.to_dict() for span in self.copied],
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "copied_share": [round(share, 4) for share in self.copied_share],
        }
        if self.weights is not None:
            found["weights"] = [[round(float(weight), 4) for weight in row] for row in self.weights]
        return found

    def with_marked_tokens(self) -> Summary:
        """The same with brackets around the labels of copied tokens, for pictures."""
        copied = {place for span in self.copied for place in span.tokens}
        if not self.merge_words:
            labels = [f"[{label}]" if place in copied else label for place, label in enumerate(self.target_tokens)]
            return replace(self, target_tokens=labels)
        words = []
        for group in self.target_words:
            word = "".join(self.target_tokens[place].removeprefix("·") for place in group)
            words.append(f"[{word}]" if copied.issuperset(group) else word)
        return replace(self, target_tokens=words)


class TrainedSummarizer(Trained):
    """The best model of a run with its tokenizer.

    Args:
        folder: the run folder, or its path. Only safetensors, JSON and safe YAML are read.
        device: PyTorch device of the model.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
    """

    def __init__(self, folder: RunFolder | str, device: str = "cpu"):
        self.task = TASK
        self.folder = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
        self.config: SummaryRun = self.folder.read_config(TASK)
        (self.tokenizer,), model = load_files_and_model(
            self.folder, {tokenizer_path(self.folder): Tokenizer.load}, PointerGenerator, "which does not summarize"
        )
        if len(self.tokenizer) != model.config.target_vocabulary:
            raise RunError(f"{self.folder.path}: the vocabulary sizes of the tokenizer and of the model differ")
        self.model: PointerGenerator = on_device(model, device)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.device = device

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {"text": self.tokenizer}

    def predict_with(self, inputs: Sequence[str], options: PredictionConfig) -> list[Summary]:
        found = self.summarize(
            inputs,
            width=options.beam,
            length_penalty=options.length_penalty,
            risk=options.minimum_risk,
            max_summary=options.max_summary,
            batch_size=options.batch_size,
        )
        return [
            replace(
                one,
                text=marked(one.summary, one.copied) if options.mark_copied else one.summary,
                merge_words=options.merge_words,
            )
            for one in found
        ]

    def remarks(self, predictions: Sequence[Prediction], options: PredictionConfig) -> list[str]:
        cut = sum(isinstance(one, Summary) and one.tokens_cut > 0 for one in predictions)
        if not cut:
            return []
        longest = self.config.data.max_length
        return [f"cut {cut} of {len(predictions)} articles to {longest} tokens, the --max-length of the training"]

    def evaluate_with(self, data: Any, options: EvaluationConfig) -> Evaluation:
        from regard.tasks.summarize.corpora import columns_of, write_bundled_test
        from regard.tasks.summarize.evaluation import evaluate

        if data == "bundled" and not Path(data).exists():
            with tempfile.TemporaryDirectory(prefix="regard-") as folder:
                return replace(self.evaluate_with(str(write_bundled_test(folder)), options), data="bundled")
        columns = options.article_column, options.summary_column
        trained_on = self.config.data.article_column, self.config.data.summary_column
        if columns == (None, None) and None not in trained_on and set(trained_on) <= set(columns_of(data)):
            columns = trained_on
        return evaluate(self, data, *columns, options)

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        from regard.tasks.alignment_pictures import draw_alignments

        summaries = [found.with_marked_tokens() for found in predictions if isinstance(found, Summary)]
        return draw_alignments(folder, summaries, words=any(found.merge_words for found in summaries))

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, Summary)
        article = prediction.source
        read = self.tokenizer.encode(article)[: self.config.data.max_length]
        return translator_attention(
            self.model,
            ExtendedVocabulary.of(self.tokenizer, article, read).encode(article, read),
            prediction.target_ids,
            TokenAxis(tuple(prediction.source_tokens), words=tuple(prediction.source_words)),
            TokenAxis(tuple(prediction.target_tokens), words=tuple(prediction.target_words)),
        )

    def summarize(
        self,
        articles: Sequence[str],
        *,
        width: int = 4,
        length_penalty: float = 1.0,
        risk: MinimumRisk | None = None,
        max_summary: int | None = None,
        batch_size: int = 32,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[Summary]:
        """Summarize articles.

        Args:
            articles: the texts; the summary of an empty text is empty.
            width: beam width, hypotheses for each article; 1: greedy search.
            length_penalty: exponent α of the beam's length normalization.
            risk: choose from samples, instead of a beam: `regard.models.search.minimum_risk`.
            max_summary: largest number of tokens of a summary; None: as in training.
            batch_size: articles, of similar length, that are summarized at once.
            on_batch: called after each batch with the number of articles summarized so far.

        Returns:
            the summaries, in the order of ``articles``.
        """
        if self.config.data.lowercase:
            articles = [article.lower() for article in articles]
        whole = self.tokenizer.encode_batch(list(articles))
        read = [ids[: self.config.data.max_length] for ids in whole]
        found: dict[int, Summary] = {}
        order = sorted((row for row in range(len(read)) if read[row]), key=lambda row: len(read[row]))
        with torch.inference_mode():
            for rows in chunks(order, batch_size):
                vocabularies = [ExtendedVocabulary.of(self.tokenizer, articles[row], read[row]) for row in rows]
                sources = [
                    vocabulary.encode(articles[row], read[row])
                    for row, vocabulary in zip(rows, vocabularies, strict=True)
                ]
                hypotheses = self.search(sources, width, length_penalty, risk, max_summary)
                shares, places = self._copied(sources, hypotheses)
                for number, (row, vocabulary) in enumerate(zip(rows, vocabularies, strict=True)):
                    one = self._summary(
                        articles[row], sources[number], vocabulary, hypotheses[number], shares[number], places[number]
                    )
                    found[row] = replace(one, tokens_cut=len(whole[row]) - len(read[row]))
                if on_batch:
                    on_batch(len(found))
        empty = ([], [], [], [], None, [], [])
        return [found.get(row) or Summary(text, "", "", 0.0, *empty) for row, text in enumerate(articles)]

    def search(
        self,
        sources: Sequence[Sequence[int]],
        width: int,
        length_penalty: float,
        risk: MinimumRisk | None = None,
        max_summary: int | None = None,
    ) -> list[Hypothesis]:
        """The best hypothesis for each article: a list of ids of its extended vocabulary, which must not be empty."""
        batch = PairBatch.of(sources).to(self.device)
        config = self.model.config
        encoded = self.model.encode(batch.source, batch.source_lengths)
        longest = max_summary or self.config.data.max_summary
        if self.config.model.model == "transformer" and self.config.model.position == "learned":
            longest = min(longest, config.max_length - 1)
        # With copying, a word that the model does not know is one of the article's.
        return self.model.search(
            encoded,
            width=width,
            length_penalty=length_penalty,
            risk=risk,
            max_length=longest,
            forbidden=(config.unk,) if config.copy else (),
        )

    def _copied(
        self, sources: Sequence[Sequence[int]], hypotheses: Sequence[Hypothesis]
    ) -> tuple[list[list[float]], list[list[int]]]:
        """For each token of each hypothesis the copied part of its probability, and its place in the article."""
        batch = PairBatch.of(sources, [found.tokens for found in hypotheses]).to(self.device)
        copied = self.model.copied(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
        lengths = [len(found.tokens) for found in hypotheses]
        shares = [row[:length] for row, length in zip(copied.share.tolist(), lengths, strict=True)]
        return shares, [row[:length] for row, length in zip(copied.place.tolist(), lengths, strict=True)]

    def _summary(
        self,
        article: str,
        source: list[int],
        vocabulary: ExtendedVocabulary,
        hypothesis: Hypothesis,
        share: list[float],
        place: list[int],
    ) -> Summary:
        text, tokens = vocabulary.decode(hypothesis.tokens), vocabulary.tokens(hypothesis.tokens)
        source_words = vocabulary.word_groups(source)
        return Summary(
            source=article,
            text=text,
            summary=text,
            score=hypothesis.score,
            source_tokens=vocabulary.tokens(source),
            target_tokens=tokens,
            source_words=source_words,
            target_words=vocabulary.word_groups(hypothesis.tokens),
            weights=hypothesis.weights,
            copied_share=share,
            copied=copied_spans(vocabulary, hypothesis.tokens, share, place, source_words),
            target_ids=tuple(hypothesis.tokens),
        )
