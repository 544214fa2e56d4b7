"""What weighs the output of a residual block: nothing, its channels, or its channels and positions."""

from regard.errors import UnknownNameError
from regard.models.vision.convolutional_grid import Channels
from regard.nn import CBAM, SqueezeExcitation

WEIGHINGS = ("none", "se", "cbam")


def weighing(name: str) -> Channels | None:
    """Makes what weighs a map of so many channels; None: nothing.

    Args:
        name: ``"none"``, ``"se"`` (Hu et al. 2018) or ``"cbam"`` (Woo et al. 2018).
    """
    if name not in WEIGHINGS:
        raise UnknownNameError("weigh", name, WEIGHINGS)
    return {"none": None, "se": SqueezeExcitation, "cbam": CBAM}[name]
