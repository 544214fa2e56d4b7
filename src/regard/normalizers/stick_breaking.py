"""Stick-breaking attention: each key takes a share of what the keys after it have left."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from regard.normalizers.normalizer import Normalizer, check_rows
from regard.shapes.axes import Float
from regard.shapes.grid import upcast


class StickBreaking(Normalizer, fields=()):
    r"""Lets each key take a share of what the visible keys after it have left: under a causal mask, the nearest first.

    .. math:: w_{ij} = \sigma(s_{ij}) \prod_{k > j} (1 - \sigma(s_{ik}))

    Tan et al. 2024, "Scaling stick-breaking attention: an efficient implementation and in-depth study", where a token
    does not see itself: ``mask=masks.causal(offset=-1)``. Weights prefer recent keys without position encodings.
    What no key takes, :math:`\prod_k (1 - \sigma(s_{ik}))`, goes nowhere, so a row sums to at most 1.

    Hidden keys are passed over. A NaN makes its own weight and those of the keys before it NaN; a score of +∞ takes all
    that is left. A row is needed whole, in the order of its keys.

    Numerics: logarithms are summed from the last key on, so that nothing cancels and long rows do not underflow. Half
    precision is computed in float32. `log_sum_exp` is that of the scores.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.stick_breaking(torch.tensor([0.0, 0.0, 0.0]))
        tensor([0.1250, 0.2500, 0.5000])
    """

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        hidden = row == -torch.inf
        visible = row.masked_fill(hidden, 0.0)
        left = F.logsigmoid(-visible).masked_fill(hidden, 0.0)
        # The sum over the keys after each one; a key's own number is not subtracted, since it may be infinite.
        after = F.pad(left.movedim(dim, -1)[..., 1:], (0, min(1, row.shape[dim])))
        after = after.flip(-1).cumsum(-1).flip(-1).movedim(-1, dim)
        weights = (F.logsigmoid(visible) + after).exp()
        return weights.masked_fill(hidden, 0.0).to(scores.dtype)


stick_breaking = StickBreaking()
