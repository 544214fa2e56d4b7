"""Variants of softmax: softpick, with weights of 0; signed softmax; and scalable softmax, which knows the length."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.normalizers.normalizer import Normalizer, check_rows, log_sum_exp, row_maximum, safe_softmax
from regard.normalizers.parameter import along_heads, check_range, set_parameter
from regard.shapes.axes import Float
from regard.shapes.grid import upcast


class Softpick(Normalizer, fields=("epsilon",)):
    r"""Computes rectified softmax: keys with scores of 0 and less get weight 0, and lower the others' weights.

    .. math:: w_j = \frac{\mathrm{relu}(e^{s_j - m} - e^{-m})}{\varepsilon + \sum_k |e^{s_k - m} - e^{-m}|}, \qquad
        m = \max(0, \max_k s_k)

    Zuhri et al. 2025, "Softpick: no attention sink, no massive activations with rectified softmax", whose m is the
    largest score; where that is below 0, all weights are 0 with either. A row sums to at most 1, and to 1 if all its
    scores are above 0: a query that finds nothing attends to nothing, without a sink.

    Args:
        epsilon: :math:`\varepsilon > 0`, of account where all scores are 0.

    Raises:
        ArgumentError, KindError: epsilon is not above 0, or no number.

    Numerics: the differences of exponentials are computed by ``expm1``, without cancellation at scores near 0. Keys
    with negative scores have weight 0 but a gradient. Half precision is computed in float32. `log_sum_exp` is that of
    the scores.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.softpick(torch.tensor([1.0, 0.5, 0.0, -1.0]))
        tensor([0.5729, 0.2163, 0.0000, 0.0000])
    """

    def __init__(self, epsilon: float = 1e-8):
        super().__init__()
        check_range("epsilon", epsilon, above=0.0)
        self.epsilon = float(epsilon)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        hidden = row == -torch.inf
        # The difference of a score of 0 is 0, so that hidden keys do not count.
        visible = row.masked_fill(hidden, 0.0)
        maximum, _ = row_maximum(visible, dim)
        # |e^s − 1| = e^{max(s, 0)} (1 − e^{−|s|})
        sizes = (visible.relu() - maximum.relu()).exp() * -torch.expm1(-visible.abs())
        total = sizes.sum(dim, keepdim=True) + self.epsilon
        weights = sizes.masked_fill(visible <= 0.0, 0.0) / total
        return weights.masked_fill(hidden, 0.0).to(scores.dtype)


class SignedSoftmax(Normalizer, fields=()):
    r"""Computes weights of both signs: the softmax of the scores' magnitudes, with the signs of the scores.

    .. math:: w_j = \mathrm{sign}(s_j) \, \exp(|s_j|) \,/\, \sum_k \exp(|s_k|)

    Lv et al. 2024, "More expressive attention with negative weights" (Cog attention). A large negative score subtracts
    its value; magnitudes of a row sum to 1, unless a score is 0, whose weight is 0.

    Entropies of rows with a negative weight are NaN; peaks and the largest weights are those above 0, and the attention
    that a key received is a sum of both signs (`regard.Readings`). Pictures show negative weights in another colour.

    Numerics: the sign jumps at 0, where the gradient is taken to be 0. The row's largest magnitude is subtracted first;
    half precision is computed in float32. `log_sum_exp` is that of the scores, not of their magnitudes.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.signed_softmax(torch.tensor([1.0, 0.0, -2.0]))
        tensor([ 0.2447,  0.0000, -0.6652])
    """

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        hidden = row == -torch.inf
        visible = row.masked_fill(hidden, 0.0)
        sizes = safe_softmax(visible.abs().masked_fill(hidden, -torch.inf), dim)
        # A weight that underflows is 0, not −0.
        weights = sizes * visible.sign() + 0.0
        return weights.masked_fill(hidden, 0.0).to(scores.dtype)


class ScalableSoftmax(Normalizer, fields=("scale",)):
    r"""Computes softmax with scores that grow with the logarithm of the number of keys, so that weights do not flatten.

    .. math:: w_{ij} = n_i^{\,s \cdot s_{ij}} \,/\, \sum_k n_i^{\,s \cdot s_{ik}}
        = \mathrm{softmax}_j\big(s \log(n_i) \, s_{ij}\big)

    Nakanishi 2025, "Scalable-softmax is superior for attention" (SSMax), eq. 2, where :math:`n_i` is the number of keys
    that query i sees and :math:`s` a learned number of each head.

    Args:
        scale: :math:`s > 0`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned; default 1, the paper's
            variant without a scale.

    Raises:
        ArgumentError: the scale is not finite or not above 0.

    Scores are multiplied after bias and mask. Where inner products have no bias, queries multiplied by ``s log n`` and
    the normalizer ``"softmax"`` give the same weights on any backend. `log_sum_exp` is that of the multiplied scores.
    Half precision is computed in float32.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> few, many = torch.zeros(8), torch.zeros(64)
        >>> few[0] = many[0] = 2.0
        >>> normalizers.ScalableSoftmax()(few)[0], normalizers.ScalableSoftmax()(many)[0]
        (tensor(0.9014), tensor(0.9849))
    """

    scale: float | Tensor

    def __init__(self, scale: float | Tensor = 1.0):
        super().__init__()
        set_parameter(self, "scale", scale, above=0.0)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        return safe_softmax(self._multiplied(upcast(scores), dim), dim).to(scores.dtype)

    def log_sum_exp(self, scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
        return log_sum_exp(self._multiplied(upcast(scores), -1)).to(scores.dtype)

    def _multiplied(self, row: Tensor, dim: int) -> Tensor:
        """Returns the scores times ``s log n``; infinite ones stay, and contribute no gradient to the scale."""
        keys = (row != -torch.inf).sum(dim, keepdim=True).clamp(min=1).to(row.dtype)
        factor = along_heads("scale", self.scale, row, dim) * keys.log()
        infinite = row.isinf()
        return torch.where(infinite, row, row.masked_fill(infinite, 0.0) * factor)


softpick = Softpick()
signed_softmax = SignedSoftmax()
scalable_softmax = ScalableSoftmax()
