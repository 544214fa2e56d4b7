"""Dropout as a layer."""

from numbers import Real

from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ArgumentError, KindError
from regard.nn.fused_dropout import dropout
from regard.nn.fx_leaf import fx_leaf
from regard.shapes import flag, kind_of


@fx_leaf
class Dropout(nn.Dropout):
    """`torch.nn.Dropout` whose random numbers cost a fifth on a CPU; see `regard.nn.fused_dropout`.

    Args:
        p: probability of an element to be set to 0, in [0, 1]; on a CPU rounded to a multiple of 1 / 65,536.
        inplace: as in `torch.nn.Dropout`.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False):
        if isinstance(p, bool) or not isinstance(p, Real):
            raise KindError(f"p must be a number; it is {kind_of(p)}")
        if not 0.0 <= p <= 1.0:  # NaN too
            raise ArgumentError(f"p must be in [0, 1]; it is {p}")
        super().__init__(float(p), flag("inplace", inplace))

    def forward(self, input: Tensor, *, relu: bool = False, residual: Tensor | None = None) -> Tensor:
        """Drop elements while training.

        Args:
            input: any floating-point tensor.
            relu: whether the input goes through a ReLU first, in the same pass where that is possible.
            residual: added to the result, in the same pass; not with ``relu``. None: nothing.
        """
        if self.inplace and not relu and residual is None:
            return F.dropout(input, self.p, self.training, inplace=True)
        return dropout(input, self.p if self.training else 0.0, relu=relu, residual=residual)


FORWARD = Dropout.forward
"""The method as it is defined here, whatever replaces it later."""
