"""One prepared training of a summarizer: its data, its model, its loss and its validation."""

from pathlib import Path
from typing import Any

from regard.data.batches import Batches
from regard.data.text.batches import PairBatch, pair_batches
from regard.data.text.extended_vocabulary import ExtendedVocabulary
from regard.models.checkpoint import save_model
from regard.models.pointer_generator import PointerGenerator
from regard.models.recurrent_pointer_generator import RecurrentPointerConfig, RecurrentPointerGenerator
from regard.models.transformer_pointer_generator import TransformerPointerConfig, TransformerPointerGenerator
from regard.tasks.greedy_validation import GreedyValidation
from regard.tasks.summarize.corpora import open_corpora
from regard.tasks.summarize.rouge import rouge_scores
from regard.tasks.summarize.task import SummaryRun
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, StepLoss, ValidationResult

SAMPLES = 4


class SummaryExperiment(Experiment):
    """A summarizer and its data.

    Args:
        config: the configuration of the run.
        folder: the run folder, in which the tokenizer and the generated articles are.
    """

    unit = "tokens"

    def __init__(self, config: SummaryRun, folder: RunFolder):
        self.config = config.training
        self.max_length = config.data.max_length
        self.corpora = open_corpora(config, folder)
        text = self.corpora.validation_text
        self.articles, self.references = list(text["source"]), list(text["target"])
        self.validation = GreedyValidation(
            self._loader(self.corpora.validation, shuffle=False),
            len(self.references),
            self._decode,
            config.data.max_summary,
            # With copying, a word that the model does not know is one of the article's.
            (self.corpora.tokenizer.UNK,) if config.model.copy else (),
        )
        # The libraries that opened the data may have drawn random numbers.
        seed_step(self.config.seed, -1)
        self.model: PointerGenerator = make_model(config, len(self.corpora.tokenizer))  # pyright: ignore[reportIncompatibleVariableOverride]
        self.description = f"{len(self.corpora.train)} articles · vocabulary {len(self.corpora.tokenizer)}"

    def batches(self, rank: int, world_size: int) -> Batches[Any, PairBatch]:
        return self._loader(self.corpora.train, shuffle=True, rank=rank, world_size=world_size)

    def loss(self, batch: PairBatch) -> StepLoss:
        loss = self.model.loss(
            batch.source,
            batch.source_lengths,
            batch.target,
            batch.target_lengths,
            label_smoothing=self.config.label_smoothing,
        )
        return StepLoss(loss.total, float(loss.nll), batch.target_tokens)

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        found = self.validation.run(self.model, rank, world_size)
        scores = rouge_scores(found.texts, self.references)
        samples = [
            {"article": article, "reference": reference, "summary": summary}
            for article, reference, summary in zip(self.articles, self.references, found.texts, strict=True)
        ][:SAMPLES]
        return ValidationResult(found.loss, scores._asdict(), samples)

    def save_model(self, path: Path) -> None:
        save_model(path, self.model)

    def _loader(self, encoded, *, shuffle: bool, rank: int = 0, world_size: int = 1) -> Batches[Any, PairBatch]:
        tokens = self.config.tokens_per_batch
        return pair_batches(
            encoded,
            tokens,
            seed=self.config.seed,
            shuffle=shuffle,
            source_tokens_per_batch=tokens,
            rank=rank,
            world_size=world_size,
        )

    def _decode(self, row: int, tokens: list[int]) -> str:
        tokenizer, article = self.corpora.tokenizer, self.articles[row]
        return ExtendedVocabulary.of(tokenizer, article, tokenizer.encode(article)[: self.max_length]).decode(tokens)


def make_model(run: SummaryRun, vocabulary: int) -> PointerGenerator:
    """A new model of a run.

    Args:
        run: the configuration of the run.
        vocabulary: tokens of the vocabulary.
    """
    model = run.model
    encoder_layers, decoder_layers = model.layers
    if model.model == "transformer":
        return TransformerPointerGenerator(
            TransformerPointerConfig(
                source_vocabulary=vocabulary,
                target_vocabulary=vocabulary,
                dim=model.dim,
                heads=model.heads,
                feedforward=model.feedforward,
                encoder_layers=encoder_layers,
                decoder_layers=decoder_layers,
                norm_first=model.norm_first,
                position=model.position,
                max_length=max(run.data.max_length, run.data.max_summary + 1),
                dropout=model.dropout,
                tied_embeddings=model.tied,
                feedforward_chunk=model.feedforward_chunk,
                activation_checkpointing=model.activation_checkpointing,
                copy=model.copy,
                coverage=model.coverage,
                coverage_weight=model.coverage_weight,
            )
        )
    return RecurrentPointerGenerator(
        RecurrentPointerConfig(
            source_vocabulary=vocabulary,
            target_vocabulary=vocabulary,
            embedding_dim=model.embedding,
            hidden_dim=model.hidden,
            encoder_layers=encoder_layers,
            decoder_layers=decoder_layers,
            cell=model.cell,
            attention=model.attention,
            score=model.score or ("additive" if model.coverage else None),
            readout=model.readout,
            dropout=model.dropout,
            tied_embeddings=model.tied,
            copy=model.copy,
            coverage=model.coverage,
            coverage_weight=model.coverage_weight,
        )
    )
