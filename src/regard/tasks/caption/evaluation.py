"""Metrics of a trained captioner on a data set."""

import csv
import io
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.atomic_file import write_atomically
from regard.data.images.caption_batches import CaptionBatch, caption_examples
from regard.data.images.image_rows import ImageRow, captioned_images
from regard.models.search import MinimumRisk
from regard.tasks.caption.caption import Caption
from regard.tasks.caption.caption_metrics import caption_scores
from regard.tasks.caption.pictures import draw_captions
from regard.tasks.caption.pointing import AttendedCaption, Pointing, pointing
from regard.tasks.caption.trained_captioner import TrainedCaptioner
from regard.tasks.run_data import chunks
from regard.tasks.search_options import search_line
from regard.training import task
from regard.training.run_folder import RunFolder

DRAWN = 6
"""Captions that are drawn."""


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(task.Evaluation):
    """How good a captioner is on a data set."""

    data: str
    """Name of the data set."""
    images: int
    """Evaluated images."""
    captions: int
    """True captions of these images."""
    bleu1: float
    """BLEU-1, 0 to 100."""
    bleu2: float
    bleu3: float
    bleu4: float
    bleu_signature: str
    """How sacreBLEU computed BLEU-4."""
    cider: float
    """CIDEr-D, 0 to 10."""
    loss: float
    """Mean −log p of a token of the true captions, in nats."""
    pointing: float | None
    """Pointing accuracy, 0 to 1: the share of the names said for which the cell with the largest weight is on the
    object; None if the data do not say where objects are, or the model has no attention."""
    names_shown: float | None
    """The share of the names said whose object the image shows."""
    pointing_chance: float | None
    """The pointing accuracy of cells drawn at random."""
    pointing_weight: float | None
    """Mean share of the weight that is on the object."""
    names: int
    """Names said."""
    width: int
    """Beam width: hypotheses for each image; samples (``risk``) need no beam."""
    length_penalty: float
    """Exponent α of the beam's length normalization."""
    risk: dict[str, Any] | None
    """How samples were drawn and compared; None: a beam search."""
    seconds: float
    """Duration of the search, with the reading of the images."""
    found: list[Caption]
    """The captions."""
    rows: list[ImageRow]
    """The images with their true captions."""

    def lines(self) -> list[str]:
        first = (
            f"{self.data}: {self.images} images · BLEU-1 {self.bleu1:.2f} · BLEU-2 {self.bleu2:.2f} · BLEU-3 "
            f"{self.bleu3:.2f} · BLEU-4 {self.bleu4:.2f} · CIDEr {self.cider:.3f} · loss {self.loss:.4f}"
        )
        search = search_line(self.width, self.length_penalty, self.risk)
        if self.pointing is None:
            return [first, search]
        assert self.names_shown is not None
        pointing = (
            f"  pointing accuracy {self.pointing:.3f} over {self.names} names said (chance {self.pointing_chance:.3f}; "
            f"{self.names_shown:.3f} of the names are of something in the image; {self.pointing_weight:.3f} of the "
            "weight is on it)"
        )
        return [first, search, pointing]

    def to_dict(self) -> dict[str, Any]:
        """All fields but the captions and the images."""
        content = {one.name: getattr(self, one.name) for one in fields(self)}
        del content["found"], content["rows"]
        return content

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Write the numbers, the captions (``evaluation-<name>.tsv``), and pictures of the first ones."""
        paths = task.Evaluation.write(self, folder, name)
        text = io.StringIO()
        writer = csv.writer(text, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None)
        writer.writerow(("image", "caption", "score", "true"))
        for one, row in zip(self.found, self.rows, strict=True):
            cells = row.picture.name, one.text, f"{one.score:.4f}", " | ".join(row.texts)
            writer.writerow([" ".join(cell.replace("\\", "/").split()) for cell in cells])
        path = folder.file(f"evaluation-{name}.tsv")
        write_atomically(path, text.getvalue().encode())
        folder.make_pictures()
        return [*paths, path, *draw_captions(folder.pictures, self.found[:DRAWN], f"caption-{name}")]


def evaluate(
    captioner: TrainedCaptioner,
    data: Any,
    *,
    width: int = 5,
    length_penalty: float = 1.0,
    risk: MinimumRisk | None = None,
    batch_size: int = 32,
    limit: int | None = None,
) -> Evaluation:
    """Caption the images of a data set and compare with the true captions.

    Args:
        captioner: the trained model.
        data: a source of `regard.data.images.image_rows.captioned_images`. If its rows have ``objects``, the pointing
            accuracy is measured too.
        width: beam width, hypotheses for each image; 1: greedy search.
        length_penalty: exponent α of the beam's length normalization.
        risk: choose from samples, instead of a beam: `regard.models.search.minimum_risk`.
        batch_size: images captioned at once.
        limit: number of images, from the first; None: all.

    Raises:
        DataError: the data cannot be used.
    """
    rows = captioned_images(data, limit=limit)
    start = time.monotonic()
    found = captioner.caption(
        [row.picture for row in rows], width=width, length_penalty=length_penalty, risk=risk, batch_size=batch_size
    )
    seconds = time.monotonic() - start
    scores = caption_scores([one.text for one in found], [row.texts for row in rows])
    measured = _pointing(captioner, rows, found)
    return Evaluation(
        data=str(data),
        images=len(rows),
        captions=sum(len(row.texts) for row in rows),
        bleu1=scores.bleu[0],
        bleu2=scores.bleu[1],
        bleu3=scores.bleu[2],
        bleu4=scores.bleu[3],
        bleu_signature=scores.signature,
        cider=scores.cider,
        loss=teacher_forced_loss(captioner, rows, found, batch_size),
        pointing=None if measured is None else measured.accuracy,
        names_shown=None if measured is None else measured.shown,
        pointing_chance=None if measured is None else measured.chance,
        pointing_weight=None if measured is None else measured.weight,
        names=0 if measured is None else measured.names,
        width=width,
        length_penalty=length_penalty,
        risk=None if risk is None else asdict(risk),
        seconds=seconds,
        found=found,
        rows=rows,
    )


def _pointing(captioner: TrainedCaptioner, rows: list[ImageRow], found: list[Caption]) -> Pointing | None:
    if not captioner.model.attends or not any(row.objects for row in rows):
        return None
    attended = []
    for one in found:
        weights = one.word_weights
        assert weights is not None
        # Boxes are in pixels of the image, the shown one may be smaller.
        x0, y0, x1, y1 = (edge / one.image.scale for edge in one.image.box)
        attended.append(AttendedCaption(one.word_texts, weights, one.grid, (x0, y0, x1, y1)))
    return pointing(attended, [row.objects for row in rows])


def teacher_forced_loss(
    captioner: TrainedCaptioner, rows: list[ImageRow], found: list[Caption], batch_size: int
) -> float:
    """Mean −log p of a token of the true captions, in nats, given the true tokens before it; ``eos`` is counted.

    Args:
        captioner: the trained model.
        rows: the images with their true captions.
        found: their captions, which have the pixels in the size of the model.
        batch_size: images of a batch.
    """
    longest = captioner.model.longest(captioner.config.data.max_length)
    examples, _ = caption_examples((row.texts for row in rows), captioner.tokenizer, longest)
    total, tokens = 0.0, 0
    with torch.inference_mode():
        for numbers in chunks(list(range(len(rows))), batch_size):
            pixels = np.stack([found[number].image.pixels for number in numbers])
            batch = CaptionBatch.of([_at(examples[number], place) for place, number in enumerate(numbers)], pixels)
            moved = batch.to(captioner.device)
            loss = captioner.model.loss(moved.images, moved.owners, moved.target, moved.target_lengths)
            total += float(loss.nll) * batch.target_tokens
            tokens += batch.target_tokens
    return total / max(1, tokens)


def _at(example: Any, place: int) -> Any:
    return type(example)(place, example.captions)
