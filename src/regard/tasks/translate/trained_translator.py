"""A trained translator, loaded from its run folder: translates text and gives the attention weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.data.text.batches import PairBatch
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.search import Hypothesis, MinimumRisk
from regard.models.translator import Translator, longest_translation
from regard.records import TokenAxis
from regard.tasks.run_data import chunks, load_files_and_model, on_device
from regard.tasks.run_files import tokenizer_path
from regard.tasks.translate.config import EvaluationConfig, PredictionConfig
from regard.tasks.translate.task import TASK, TranslationRun
from regard.tasks.translate.unknown_words import CopiedText, SourceText, copy_unknown, unknown_words_line
from regard.tasks.translator_attention import translator_attention
from regard.training.run_folder import RunFolder
from regard.training.task import Prediction, Trained

if TYPE_CHECKING:
    from regard.tasks.translate.evaluation import Evaluation


@dataclass(frozen=True, slots=True, repr=False)
class Translation(Prediction):
    """A sentence, its translation, and the attention weights.

    Attributes:
        source: the source sentence, unchanged.
        text: its translation.
        score: log-probability of the translation in nats, divided by the length penalty of the search.
        source_tokens: labels of the source tokens.
        target_tokens: labels of the target tokens, without ``eos``.
        source_words: positions of the tokens of each source word.
        target_words: positions of the tokens of each target word.
        weights: float32 ``[target tokens, source tokens]``; None for a model without attention.
        merge_words: whether pictures and `to_dict` have words, not sub-words.
        unknown_words: the source words of which a part is unknown to the tokenizer, as they are written.
        target_ids: ids of the target tokens.
    """

    source: str
    text: str
    score: float
    source_tokens: list[str]
    target_tokens: list[str]
    source_words: list[range]
    target_words: list[range]
    weights: Tensor | None
    merge_words: bool = False
    unknown_words: tuple[str, ...] = ()
    target_ids: tuple[int, ...] = field(default=(), repr=False)

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("source", self.source), ("translation", self.text)

    def to_dict(self) -> dict[str, Any]:
        """Source, translation, score in nats, unknown words, tokens and weights ``[target][source]``."""
        found: dict[str, Any] = {
            "source": self.source,
            "translation": self.text,
            "score": round(self.score, 4),
            "unknown_words": list(self.unknown_words),
        }
        rows, columns, weights = self.target_tokens, self.source_tokens, self.weights
        if self.merge_words:
            from regard.pictures import merge

            rows = [_word(rows, group) for group in self.target_words]
            columns = [_word(columns, group) for group in self.source_words]
            if weights is not None:
                weights = merge(weights, self.target_words, self.source_words)
        found["source_tokens"], found["target_tokens"] = columns, rows
        if weights is not None:
            found["weights"] = [[round(float(weight), 4) for weight in row] for row in weights]
        return found


class TrainedTranslator(Trained):
    """The best model of a run with its tokenizers.

    Args:
        folder: the run folder, or its path. Only safetensors, JSON and safe YAML are read.
        device: PyTorch device of the model.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
    """

    def __init__(self, folder: RunFolder | str, device: str = "cpu"):
        self.task = TASK
        self.folder = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
        self.config: TranslationRun = self.folder.read_config(TASK)
        loaders = {tokenizer_path(self.folder, side): Tokenizer.load for side in ("source", "target")}
        (self.source_tokenizer, self.target_tokenizer), model = load_files_and_model(
            self.folder, loaders, Translator, "which does not translate"
        )
        sizes = len(self.source_tokenizer), len(self.target_tokenizer)
        if sizes != (model.config.source_vocabulary, model.config.target_vocabulary):
            raise RunError(f"{self.folder.path}: the vocabulary sizes of the tokenizers and of the model differ")
        self.model: Translator = on_device(model, device)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.device = device

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {"source": self.source_tokenizer, "target": self.target_tokenizer}

    def predict_with(self, inputs: Sequence[str], options: PredictionConfig) -> list[Translation]:
        found = self.translate(
            inputs,
            width=options.beam,
            length_penalty=options.length_penalty,
            risk=options.minimum_risk,
            replace_unknown=options.replace_unknown,
            batch_size=options.batch_size,
        )
        return [replace(translation, merge_words=options.merge_words) for translation in found]

    def remarks(self, predictions: Sequence[Prediction], options: PredictionConfig) -> list[str]:
        words = (word for found in predictions if isinstance(found, Translation) for word in found.unknown_words)
        line = unknown_words_line(words, options.replace_unknown)
        return [] if line is None else [line]

    def evaluate_with(self, data: Any, options: EvaluationConfig) -> Evaluation:
        from regard.tasks.translate.evaluation import evaluate

        if data == "bundled" and not Path(data).exists():
            return self._evaluate_bundled(options)
        trained_on = self.config.data
        columns = options.source_column, options.target_column
        pair_of_files = isinstance(data, str) and "," in data and not Path(data).exists()
        if trained_on.bundled:
            if not any(columns) and str(data).endswith(".tsv"):
                columns = "english", "spanish"
        elif not pair_of_files:
            columns = columns[0] or trained_on.source_column, columns[1] or trained_on.target_column
        return evaluate(
            self,
            data,
            *columns,
            width=options.beam,
            length_penalty=options.length_penalty,
            risk=options.minimum_risk,
            batch_size=options.batch_size,
            limit=options.limit,
        )

    def _evaluate_bundled(self, options: EvaluationConfig) -> Evaluation:
        # The test part does not depend on the number of training pairs, so a run on other data makes it again.
        from regard.tasks.translate.corpora import write_bundled_test

        columns = {
            "source_column": options.source_column or "english",
            "target_column": options.target_column or "spanish",
        }
        with tempfile.TemporaryDirectory(prefix="regard-") as folder:
            return replace(self.evaluate_with(write_bundled_test(folder), replace(options, **columns)), data="bundled")

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        from regard.tasks.alignment_pictures import draw_alignments

        if not self.model.attends:
            raise ArgumentError(f"{self.folder.path} is a model without attention; there is nothing to draw")
        translations = [found for found in predictions if isinstance(found, Translation)]
        return draw_alignments(folder, translations, words=any(found.merge_words for found in translations))

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, Translation)
        return translator_attention(
            self.model,
            self.source_tokenizer.encode(prediction.source),
            prediction.target_ids,
            TokenAxis(tuple(prediction.source_tokens), words=tuple(prediction.source_words)),
            TokenAxis(tuple(prediction.target_tokens), words=tuple(prediction.target_words)),
            prediction.weights if getattr(self.model.config, "attention", None) == "hard" else None,
        )

    def translate(
        self,
        sentences: Sequence[str],
        *,
        width: int = 5,
        length_penalty: float = 1.0,
        risk: MinimumRisk | None = None,
        replace_unknown: bool = False,
        batch_size: int = 64,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate sentences.

        Args:
            sentences: the texts; the translation of an empty text is empty.
            width: beam width, hypotheses for each sentence; 1: greedy search.
            length_penalty: exponent α of the beam's length normalization.
            risk: choose from samples, instead of a beam: `regard.models.search.minimum_risk`.
            replace_unknown: replace an unknown word by the source word with the largest weight (Luong et al. 2015,
                §4.1).
            batch_size: sentences, of similar length, that are translated at once.
            on_batch: called after each batch with the number of sentences translated so far.

        Returns:
            the translations, in the order of ``sentences``.
        """
        ids = self.source_tokenizer.encode_batch(list(sentences))
        found: dict[int, Translation] = {}
        order = sorted((row for row in range(len(ids)) if ids[row]), key=lambda row: len(ids[row]))
        with torch.inference_mode():
            for rows in chunks(order, batch_size):
                hypotheses = self.search([ids[row] for row in rows], width, length_penalty, risk)
                for row, hypothesis in zip(rows, hypotheses, strict=True):
                    found[row] = self._translation(sentences[row], ids[row], hypothesis, replace_unknown)
                if on_batch:
                    on_batch(len(found))
        return [
            found.get(row) or Translation(text, "", 0.0, [], [], [], [], None) for row, text in enumerate(sentences)
        ]

    def search(
        self, sources: Sequence[Sequence[int]], width: int, length_penalty: float, risk: MinimumRisk | None = None
    ) -> list[Hypothesis]:
        """The best hypothesis for each source: a list of ids without ``bos`` and ``eos``, which must not be empty."""
        batch = PairBatch.of(sources).to(self.device)
        longest, limit = [longest_translation(len(source)) for source in sources], self.model.max_length
        if limit is not None:
            if batch.source.shape[1] > limit:
                raise ArgumentError(
                    f"a text has {batch.source.shape[1]} tokens, and {self.folder.path} has learned positions for "
                    f"{limit}; shorten it"
                )
            longest = [min(length, limit - 1) for length in longest]
        encoded = self.model.encode(batch.source, batch.source_lengths)
        return self.model.search(encoded, width=width, length_penalty=length_penalty, risk=risk, max_length=longest)

    def _translation(self, source: str, ids: list[int], hypothesis: Hypothesis, replace_unknown: bool) -> Translation:
        target_tokenizer, weights = self.target_tokenizer, hypothesis.weights
        read = SourceText.of(self.source_tokenizer, source, ids)
        written = CopiedText(
            target_tokenizer.decode(hypothesis.tokens),
            target_tokenizer.tokens(hypothesis.tokens),
            target_tokenizer.word_groups(hypothesis.tokens),
        )
        if replace_unknown and weights is not None and target_tokenizer.UNK in hypothesis.tokens:
            written = copy_unknown(read, target_tokenizer, hypothesis.tokens, weights)
        return Translation(
            source=source,
            text=written.text,
            score=hypothesis.score,
            source_tokens=read.tokens,
            target_tokens=written.tokens,
            source_words=read.groups,
            target_words=written.groups,
            weights=weights,
            unknown_words=tuple(read.unknown),
            target_ids=tuple(hypothesis.tokens),
        )


def _word(tokens: list[str], group: range) -> str:
    first, *others = (tokens[position] for position in group)
    # A space before a word can be a piece of its own.
    return (first.removeprefix("␣") if others else first) + "".join(piece.removeprefix("·") for piece in others)
