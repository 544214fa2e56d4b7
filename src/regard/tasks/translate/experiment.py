"""One prepared training of a translator: its data, its model, its loss and its validation."""

from pathlib import Path
from typing import Any

from regard.data.batches import Batches
from regard.data.text.batches import PairBatch, pair_batches
from regard.errors import ArgumentError
from regard.models.checkpoint import save_model
from regard.models.recurrent_translator import RecurrentTranslator, TranslatorConfig
from regard.models.transformer_translator import TransformerConfig, TransformerTranslator
from regard.models.translator import Translator, longest_translation
from regard.tasks.greedy_validation import GreedyValidation
from regard.tasks.translate.corpora import Corpora, open_corpora
from regard.tasks.translate.task import TranslationRun
from regard.tasks.translate.text_metrics import text_scores
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, StepLoss, ValidationResult

SAMPLES = 4


class TranslationExperiment(Experiment):
    """A translator and its data.

    Args:
        config: the configuration of the run.
        folder: the run folder, in which the tokenizers and the bundled corpus are.
    """

    unit = "tokens"

    def __init__(self, config: TranslationRun, folder: RunFolder):
        self.config = config.training
        if config.model.attention == "transformer" and self.config.scheduled_sampling:
            raise ArgumentError("scheduled_sampling must be 0 with attention 'transformer', which has no steps")
        self.corpora = open_corpora(config, folder)
        text = self.corpora.validation_text
        self.references = list(text["target"])
        self.samples = list(zip(text[:SAMPLES]["source"], self.references[:SAMPLES], strict=True))
        self.validation = GreedyValidation(
            pair_batches(self.corpora.validation, self.config.tokens_per_batch, seed=self.config.seed, shuffle=False),
            len(self.references),
            lambda row, tokens: self.corpora.target_tokenizer.decode(tokens),
            config.data.max_length,
        )
        # The libraries that opened the data may have drawn random numbers.
        seed_step(self.config.seed, -1)
        self.model: Translator = build_model(config, self.corpora)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.description = (
            f"{len(self.corpora.train)} pairs · vocabularies {len(self.corpora.source_tokenizer)} and "
            f"{len(self.corpora.target_tokenizer)}"
        )

    def batches(self, rank: int, world_size: int) -> Batches[Any, PairBatch]:
        tokens, seed = self.config.tokens_per_batch, self.config.seed
        return pair_batches(self.corpora.train, tokens, seed=seed, shuffle=True, rank=rank, world_size=world_size)

    def loss(self, batch: PairBatch) -> StepLoss:
        loss = self.model.loss(
            batch.source,
            batch.source_lengths,
            batch.target,
            batch.target_lengths,
            label_smoothing=self.config.label_smoothing,
            sampling_probability=self.config.scheduled_sampling,
        )
        return StepLoss(loss.total, float(loss.nll), batch.target_tokens)

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        found = self.validation.run(self.model, rank, world_size)
        scores = text_scores(found.texts, self.references)
        samples = [
            {"source": source, "reference": reference, "translation": translation}
            for (source, reference), translation in zip(self.samples, found.texts, strict=False)
        ]
        return ValidationResult(found.loss, {"bleu": scores.bleu, "chrf": scores.chrf}, samples)

    def save_model(self, path: Path) -> None:
        save_model(path, self.model)


def build_model(config: TranslationRun, corpora: Corpora) -> Translator:
    """A new model: with the configuration of the run, and the sizes that the data decide."""
    if config.model.attention == "transformer":
        return TransformerTranslator(_transformer_config(config, corpora))
    return RecurrentTranslator(_recurrent_config(config, corpora))


def _transformer_config(config: TranslationRun, corpora: Corpora) -> TransformerConfig:
    model = config.model
    assert model.encoder_layers is not None
    assert model.decoder_layers is not None
    assert model.dropout is not None
    return TransformerConfig(
        source_vocabulary=len(corpora.source_tokenizer),
        target_vocabulary=len(corpora.target_tokenizer),
        dim=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        feedforward=model.feedforward,
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
        norm_first=model.norm == "pre",
        activation=model.activation,
        position=model.position,
        # A translation may be longer than its source.
        max_length=longest_translation(config.data.max_length),
        score=model.score or "scaled_dot",
        normalizer=model.normalizer,
        dropout=model.dropout,
        tied_embeddings=model.tied,
        feedforward_chunk=model.feedforward_chunk,
        activation_checkpointing=model.activation_checkpointing,
    )


def _recurrent_config(config: TranslationRun, corpora: Corpora) -> TranslatorConfig:
    model = config.model
    assert model.embedding is not None
    assert model.encoder_layers is not None
    assert model.decoder_layers is not None
    assert model.dropout is not None
    return TranslatorConfig(
        source_vocabulary=len(corpora.source_tokenizer),
        target_vocabulary=len(corpora.target_tokenizer),
        embedding_dim=model.embedding,
        hidden_dim=model.hidden,
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
        cell=model.cell,
        attention=model.attention,
        score=model.score,
        scope=model.scope,
        window=model.window,
        input_feeding=model.input_feeding,
        readout=model.readout,
        hard_estimator=model.hard_estimator,
        entropy_weight=model.entropy_weight,
        max_source=model.max_source or config.data.max_length,
        dropout=model.dropout,
        tied_embeddings=model.tied,
    )
