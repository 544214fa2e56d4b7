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
    folder.pictures.mkdir(exist_ok=True)
    qualities = {f"val_{metric.name}": metric.label for metric in metrics}
    figure = training_curves(rows, title=folder.path.name, qualities=qualities)
    return [save(figure, folder.pictures / "curves.png")]
