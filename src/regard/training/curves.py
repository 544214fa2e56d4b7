"""The picture of the curves of a run."""

from collections.abc import Sequence
from pathlib import Path

from regard.training.run_folder import RunFolder
from regard.training.task import Metric


def draw_curves(folder: RunFolder, metrics: Sequence[Metric]) -> list[Path]:
    """Draw ``pictures/curves.png``: the loss and the metrics over the steps; [] before the first validation."""
    from regard.pictures import save, training_curves

    rows = folder.read_metrics()
    if not rows:
        return []
    folder.make_pictures()
    return [save(training_curves(rows, title=folder.path.name), folder.pictures / "curves.png")]
