"""Normalizers of a transcriber's attention (Chorowski et al. 2015, section 2.3)."""

import torch
from torch import Tensor

from regard.errors import UnknownNameError
from regard.normalizers import Normalizer, as_normalizer

FOCUS_NAMES = ("softmax", "smoothing", "sparsemax", "entmax15")


def smoothed(scores: Tensor) -> Tensor:
    """Returns weights that spread over several keys: logistic functions instead of exponentials.

    .. math::

        α_j = σ(e_j) / Σ_k σ(e_k)

    Chorowski et al. 2015, section 2.3, "smooth focus". Logarithms avoid 0 / 0 if all ``scores [..., keys]`` of a row
    are large and negative; −inf gives weight 0.
    """
    return torch.softmax(torch.nn.functional.logsigmoid(scores), dim=-1)


def focus(name: str) -> Normalizer:
    """Returns the normalizer of a decoder's attention, by its name in `FOCUS_NAMES`."""
    if name not in FOCUS_NAMES:
        raise UnknownNameError("normalizer", name, FOCUS_NAMES)
    return as_normalizer(smoothed if name == "smoothing" else name)
