"""The picture of a translator: BLEU by source length."""

from collections.abc import Sequence
from pathlib import Path

from regard.tasks.translate.text_metrics import LengthBin
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
