"""Metrics of a trained translator on a data set: BLEU, chrF, perplexity, BLEU by length, alignment error rate."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from regard.atomic_file import write_atomically
from regard.data.records import record_places
from regard.data.text.alignment import Alignment, alignment_error_rate
from regard.data.text.batches import PairBatch, encode_pairs, pair_batches
from regard.data.text.sources import open_pairs
from regard.errors import DataError
from regard.models.search import MinimumRisk
from regard.tasks.search_options import search_line
from regard.tasks.translate.pictures import draw_lengths
from regard.tasks.translate.text_metrics import LengthBin, bleu_by_length, text_scores
from regard.tasks.translate.trained_translator import TrainedTranslator, Translation
from regard.training import task
from regard.training.run_folder import RunFolder

ALIGNMENT_COLUMN = "alignment"


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(task.Evaluation):
    """How good a translator is on a data set."""

    data: str
    """Name of the data set."""
    pairs: int
    """Evaluated pairs."""
    bleu: float
    """0 to 100."""
    chrf: float
    """0 to 100."""
    bleu_signature: str
    chrf_signature: str
    loss: float
    """Mean −log p of a target token, in nats."""
    perplexity: float
    """exp(loss). It depends on the tokenizer: compare it only between runs with the same tokenizer."""
    alignment_error_rate: float | None
    """0 to 1; None if the data has no true alignments or the model has no attention."""
    width: int
    """Beam width: hypotheses for each sentence; samples (``risk``) need no beam."""
    length_penalty: float
    """Exponent α of the beam's length normalization."""
    risk: dict[str, Any] | None
    """How samples were drawn and compared; None: a beam search."""
    seconds: float
    """Duration of the translation."""
    by_length: list[LengthBin]
    translations: list[Translation]

    def lines(self) -> list[str]:
        rate = "" if self.alignment_error_rate is None else f" · AER {self.alignment_error_rate:.3f}"
        scores = f"BLEU {self.bleu:.2f} · chrF {self.chrf:.2f} · perplexity {self.perplexity:.2f}{rate}"
        search = search_line(self.width, self.length_penalty, self.risk)
        by_length = [f"  {part.label:>6} words: BLEU {part.bleu:6.2f} ({part.pairs} pairs)" for part in self.by_length]
        return [f"{self.data}: {self.pairs} pairs · {scores}", search, *by_length, self.bleu_signature]

    def to_dict(self) -> dict[str, Any]:
        """All fields but the translations."""
        content: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        del content["translations"]
        content["by_length"] = [asdict(part) for part in self.by_length]
        return content

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Write the numbers, the translations (``evaluation-<name>.txt``) and a picture of BLEU by length."""
        paths = task.Evaluation.write(self, folder, name)
        text = "".join(translation.text.replace("\n", " ") + "\n" for translation in self.translations)
        write_atomically(folder.file(f"evaluation-{name}.txt"), text.encode())
        picture = draw_lengths(folder, self.by_length, f"bleu-by-length-{name}")
        return [*paths, folder.file(f"evaluation-{name}.txt"), *([picture] if picture else [])]


def evaluate(
    translator: TrainedTranslator,
    data: Any,
    source_column: str | None = None,
    target_column: str | None = None,
    *,
    width: int = 5,
    length_penalty: float = 1.0,
    risk: MinimumRisk | None = None,
    batch_size: int = 64,
    limit: int | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> Evaluation:
    """Translate a data set and compare the translations with the references.

    Args:
        translator: the trained model.
        data: a source of `open_pairs`. If it is a table with a column ``alignment`` (Pharaoh format, as in the bundled
            corpus), the alignment error rate is measured too.
        source_column: as in `open_pairs`.
        target_column: as in `open_pairs`.
        width: beam width, hypotheses for each sentence; 1: greedy search.
        length_penalty: exponent α of the beam's length normalization.
        risk: choose from samples, instead of a beam: `regard.models.search.minimum_risk`.
        batch_size: sentences that are translated at once.
        limit: evaluate only the first ``limit`` pairs; None: all pairs.
        on_batch: called after each batch with the number of sentences translated so far.

    Raises:
        DataError: the data cannot be used.
    """
    lowercase = translator.config.data.lowercase
    dataset = open_pairs(data, source_column, target_column, lowercase=lowercase, limit=limit)
    sources, references = list(dataset["source"]), list(dataset["target"])
    start = time.monotonic()
    translations = translator.translate(
        sources, width=width, length_penalty=length_penalty, risk=risk, batch_size=batch_size, on_batch=on_batch
    )
    seconds = time.monotonic() - start
    texts = [translation.text for translation in translations]
    scores = text_scores(texts, references)
    loss = teacher_forced_loss(translator, dataset)
    alignments = read_alignments(data, len(sources))
    rate = None
    if alignments is not None and translator.model.attends:
        predicted = teacher_forced_alignments(translator, sources, references)
        rate = alignment_error_rate(
            predicted, [alignment.sure for alignment in alignments], [alignment.possible for alignment in alignments]
        )
    return Evaluation(
        data=str(data),
        pairs=len(sources),
        bleu=scores.bleu,
        chrf=scores.chrf,
        bleu_signature=scores.bleu_signature,
        chrf_signature=scores.chrf_signature,
        loss=loss,
        perplexity=math.exp(min(loss, 700.0)),
        alignment_error_rate=rate,
        width=width,
        length_penalty=length_penalty,
        risk=None if risk is None else asdict(risk),
        seconds=seconds,
        by_length=bleu_by_length(sources, texts, references),
        translations=translations,
    )


def teacher_forced_loss(translator: TrainedTranslator, dataset: Any, tokens_per_batch: int = 4000) -> float:
    """Mean −log p of a reference token, in nats, given the reference tokens before it; ``eos`` is counted.

    Args:
        translator: the trained model.
        dataset: columns ``source`` and ``target``.
        tokens_per_batch: target tokens of a batch.
    """
    encoded = encode_pairs(
        dataset, translator.source_tokenizer, translator.target_tokenizer, max_length=1000, overlong="cut"
    )
    total, tokens = 0.0, 0
    with torch.inference_mode():
        for batch in pair_batches(encoded, tokens_per_batch, shuffle=False):
            moved = batch.to(translator.device)
            loss = translator.model.loss(
                moved.source, moved.source_lengths, moved.target, moved.target_lengths, label_smoothing=0.0
            )
            total += float(loss.nll) * batch.target_tokens
            tokens += batch.target_tokens
    return total / max(1, tokens)


def teacher_forced_alignments(
    translator: TrainedTranslator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    min_weight: float = 0.0,
    batch_size: int = 64,
) -> list[set[tuple[int, int]]]:
    """The word alignments that the attention weights give between sentences and their reference translations.

    The decoder reads the reference translation (teacher forcing), so that its words can be compared with the true
    alignment. The weights of sub-words are merged to words: summed over the parts of a source word, averaged over those
    of a target word. Each target word is linked to the source word with the largest weight, if this weight is at least
    ``min_weight``.

    Args:
        translator: the trained model; it must have attention.
        sources: the source sentences.
        targets: their reference translations.
        min_weight: a target word whose largest weight is smaller gets no link; in [0, 1].
        batch_size: pairs of a batch.

    Returns:
        for each pair a set of ``(source word, target word)``.
    """
    from regard.pictures import merge

    source_tokenizer, target_tokenizer = translator.source_tokenizer, translator.target_tokenizer
    source_ids, target_ids = source_tokenizer.encode_batch(list(sources)), target_tokenizer.encode_batch(list(targets))
    links: list[set[tuple[int, int]]] = []
    with torch.inference_mode():
        for first in range(0, len(source_ids), batch_size):
            rows = range(first, min(first + batch_size, len(source_ids)))
            batch = PairBatch.of([source_ids[row] for row in rows], [target_ids[row] for row in rows])
            moved = batch.to(translator.device)
            weights = translator.model(
                moved.source, moved.source_lengths, moved.target, moved.target_lengths
            ).weights.float().cpu()  # fmt: skip
            for number, row in enumerate(rows):
                of_pair = weights[number, : len(target_ids[row]), : len(source_ids[row])]
                target_words = target_tokenizer.word_groups(target_ids[row])
                source_words = source_tokenizer.word_groups(source_ids[row])
                word_weights = merge(of_pair, target_words, source_words)
                links.append(
                    {
                        (int(word.argmax()), target)
                        for target, word in enumerate(word_weights)
                        if word.size and word.max() >= min_weight
                    }
                )
    return links


def read_alignments(data: Any, pairs: int) -> list[Alignment] | None:
    """The true alignments of a TSV or JSON-lines file, or None if it has no column ``alignment``.

    Args:
        data: the evaluated data.
        pairs: number of pairs that were read from it; as many alignments are read.

    Raises:
        DataError: an alignment is not in Pharaoh format, or there are fewer alignments than pairs.
    """
    path = Path(data) if isinstance(data, (str, Path)) else Path()
    if path.suffix not in (".tsv", ".jsonl") or not path.is_file():
        return None
    found = []
    for number, (_, row) in enumerate(record_places(path), start=1):
        if ALIGNMENT_COLUMN not in row:
            return None
        if number > pairs:
            break
        if not isinstance(row[ALIGNMENT_COLUMN], str):
            raise DataError(f"{path}: row {number}: the column {ALIGNMENT_COLUMN!r} must be text")
        try:
            found.append(Alignment.parse(row[ALIGNMENT_COLUMN]))
        except DataError as error:
            raise DataError(f"{path}: row {number}: {error}") from error
    if len(found) != pairs:
        raise DataError(f"{path} has {len(found)} alignments for {pairs} pairs with text; correct or remove the column")
    return found
