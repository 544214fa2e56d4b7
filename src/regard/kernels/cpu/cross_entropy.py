"""Cross-entropy of rows of logits, in one pass over each row."""

from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.fields import address_of
from regard.kernels.cpu.own_record import OwnRecord
from regard.kernels.cpu.record import CLASSES

_RECORD = OwnRecord(CLASSES)

WORK = 16.0
"""Elementary operations of a logit, roughly."""


def exponentials(logits: Tensor, bias: Tensor | None, target: Tensor, slope: float) -> tuple[Tensor, Tensor, Tensor]:
    """The largest logit of each row, the sum of exponentials below it, and the target's logit, each ``[rows]``.

    The logits become these exponentials, ``e^(logit − largest)``; the target's one becomes its sum with ``slope ·
    mass``: with a slope of −1, that is the gradient of the logits times the sum.

    Args:
        logits: ``[rows, classes]``, float32 or float64, contiguous.
        bias: ``[classes]``, added to the logits first; contiguous. None: nothing.
        target: ``int64 [rows]``, in [0, classes); contiguous.
        slope: see above.
    """
    rows, classes = logits.shape
    statistics = logits.new_empty(3, rows)
    _RECORD.launch(
        kernels.class_exponentials(logits.dtype),
        rows,
        WORK * rows * classes,
        rows=rows,
        classes=classes,
        logits=address_of(logits),
        bias=address_of(bias),
        target=address_of(target),
        statistics=address_of(statistics),
        slope=slope,
    )
    largest, mass, chosen = statistics
    return largest, mass, chosen
