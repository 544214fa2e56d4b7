"""The pictures of a translator: BLEU by source length, attention weights."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.tasks.translate.text_metrics import LengthBin
from regard.tasks.translate.trained_translator import Translation
from regard.training.run_folder import RunFolder


def draw_lengths(folder: RunFolder, bins: Sequence[LengthBin], name: str) -> Path | None:
    """Draw ``pictures/<name>.png``: BLEU by source length; None without a bin."""
    from regard.pictures import bleu_by_length, save

    if not bins:
        return None
    folder.make_pictures()
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
    """Draw the attention weights of each translation, as ``<prefix>-1.png``, ``<prefix>-2.png``, ...

    Args:
        folder: folder of the pictures; created if it does not exist.
        translations: the translations; those without weights or without words are left out.
        words: whether sub-words are merged to words.
        prefix: start of the file names.

    Returns:
        the files.
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
