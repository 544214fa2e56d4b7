"""Pictures of predicted texts with their attention weights over the source."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from regard.regular_file import path_inside


class Attended(Protocol):
    """A predicted text and the weights of its tokens."""

    @property
    def weights(self) -> Any:
        """``[target tokens, source tokens]``, or None."""
        ...

    @property
    def source_tokens(self) -> Sequence[str]:
        """Labels of the source tokens."""
        ...

    @property
    def target_tokens(self) -> Sequence[str]:
        """Labels of the target tokens."""
        ...

    @property
    def source_words(self) -> Sequence[range]:
        """Positions of the tokens of each source word."""
        ...

    @property
    def target_words(self) -> Sequence[range]:
        """Positions of the tokens of each target word."""
        ...


def draw_alignments(
    folder: Path, predictions: Iterable[Attended], *, words: bool = True, prefix: str = "alignment"
) -> list[Path]:
    """Draw the attention weights of each prediction, as ``<prefix>-1.png``, ``<prefix>-2.png``, ...

    Args:
        folder: folder of the pictures; created if it does not exist.
        predictions: the predictions; those without weights or without words are left out.
        words: whether sub-words are merged to words.
        prefix: start of the file names.

    Returns:
        the files.
    """
    from regard.pictures import alignment, save

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, found in enumerate(predictions, start=1):
        if found.weights is None or not found.target_tokens:
            continue
        figure = alignment(
            found.weights,
            found.source_tokens,
            found.target_tokens,
            source_groups=found.source_words if words else None,
            target_groups=found.target_words if words else None,
        )
        paths.append(save(figure, path_inside(folder, f"{prefix}-{number}.png")))
    return paths
