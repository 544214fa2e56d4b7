"""The pictures of a run: its curves, BLEU by source length, and where it looked."""

from collections.abc import Iterable
from pathlib import Path

from regard.training.evaluation import Evaluation
from regard.training.run_folder import RunFolder
from regard.training.trained_translator import Translation


def draw_curves(folder: RunFolder) -> Path | None:
    """``pictures/curves.png``: loss, BLEU and chrF over the steps; None when nothing was validated yet."""
    from regard.pictures import save, training_curves

    rows = folder.read_metrics()
    if not rows:
        return None
    folder.pictures.mkdir(exist_ok=True)
    return save(training_curves(rows, title=folder.path.name), folder.pictures / "curves.png")


def draw_lengths(folder: RunFolder, evaluation: Evaluation, name: str) -> Path | None:
    """``pictures/<name>.png``: BLEU by source length; None when there is nothing to draw."""
    from regard.pictures import bleu_by_length, save

    if not evaluation.by_length:
        return None
    folder.pictures.mkdir(exist_ok=True)
    bins = evaluation.by_length
    figure = bleu_by_length(
        [part.label for part in bins],
        {folder.path.name: [part.bleu for part in bins]},
        [part.pairs for part in bins],
        title="BLEU by source length in words",
    )
    return save(figure, folder.pictures / f"{name}.png")


def draw_alignments(
    folder: Path, translations: Iterable[Translation], *, words: bool = True, prefix: str = "alignment"
) -> list[Path]:
    """A picture of the attention of each translation, ``<prefix>-1.png``, ``-2``, ...

    Args:
        folder: where; made if it is missing.
        translations: those without weights or without words are left out.
        words: merge sub-words to words.
        prefix: of the file names.
    """
    from regard.pictures import alignment, save

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, found in enumerate(translations, start=1):
        if found.weights is None or not found.target_tokens:
            continue
        figure = alignment(
            found.weights,
            found.source_tokens,
            found.target_tokens,
            source_groups=found.source_words if words else None,
            target_groups=found.target_words if words else None,
        )
        paths.append(save(figure, folder / f"{prefix}-{number}.png"))
    return paths
