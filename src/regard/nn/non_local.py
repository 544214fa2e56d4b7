"""Non-local blocks: they add to each position of a feature map a weighted mean of all positions, in linear memory."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Observed, Readings
from regard.attention.execution import check_backend
from regard.attention.readings import ReadingName
from regard.attention.verbs import BackendName
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError
from regard.nn.feature_maps import (
    MapAttention,
    PositionMixer,
    as_feature_map,
    as_sequence,
    check_feature_map,
    reduced_channels,
)
from regard.nn.fx_leaf import fx_leaf
from regard.shapes.checks import flag, known_name, whole_number
from regard.shapes.grid import upcast

Pairwise = Literal["embedded_gaussian", "gaussian", "dot", "concatenation"]
PAIRWISE = ("embedded_gaussian", "gaussian", "dot", "concatenation")
"""The pairwise functions f of the paper, eq. 2 to 5."""


@fx_leaf
class NonLocal(PositionMixer):
    """Adds to each position of a feature map a weighted mean of all positions.

    .. math::

        y_i = 1 / C(x) · Σ_j f(x_i, x_j) g(x_j)
        z_i = W_z y_i + x_i
        f = exp(θ(x_i) · φ(x_j)),    C = Σ_j f    (embedded_gaussian)
        f = exp(x_i · x_j),    C = Σ_j f    (gaussian)
        f = θ(x_i) · φ(x_j),    C = number of positions    (dot)
        f = ReLU(w · [θ(x_i), φ(x_j)]),    C = number of positions    (concatenation)

    Wang et al. 2018, "Non-local Neural Networks", eq. 1 to 6. Their θ, φ, g and W_z are the 1 × 1 convolutions
    ``query``, ``key``, ``value`` and ``output``; w is ``weight``, whose first half multiplies θ.

    No form needs a matrix of positions × positions. The Gaussian forms are softmax attention and run through
    `regard.attend`; ``dot`` is computed as θ (φᵀ g); ``concatenation`` is a sum of terms that are linear where they are
    not 0, so it follows from running sums over the sorted keys.

    Args:
        channels: channels of the feature map.
        hidden: channels of θ, φ and g. Default: half of ``channels``, as in section 3.3.
        pairwise: the function f.
        subsample: size of the windows whose maxima are the keys and values (section 3.3: 2); 1: all positions.
        zero: whether W_z is initially 0, so that a new block is the identity (section 3.3).
        backend: backend of `regard.attend`, for the Gaussian forms.

    Raises:
        ArgumentError: a number is below 1.
        KindError: an argument has the wrong type.
        UnknownNameError: the pairwise function or the backend is unknown.

    Example:
        >>> import torch
        >>> import regard
        >>> block = regard.nn.NonLocal(16, subsample=2)
        >>> features = torch.randn(2, 16, 6, 8)
        >>> torch.equal(block(features), features)  # W_z is 0
        True
        >>> seen = block.observe(features, regard.Readings(rows=[2 * 8 + 3]))
        >>> weights = seen.rows.view(2, 3, 4)  # those of row 2, column 3, over windows of 2 × 2
        >>> weights.sum((1, 2)).detach()
        tensor([1.0000, 1.0000])
    """

    def __init__(
        self,
        channels: int,
        hidden: int | None = None,
        pairwise: Pairwise = "embedded_gaussian",
        *,
        subsample: int = 1,
        zero: bool = True,
        backend: BackendName = "auto",
    ):
        super().__init__()
        known_name("pairwise", pairwise, PAIRWISE)
        self.channels = channels
        self.hidden = reduced_channels(channels, 2, hidden)
        self.pairwise = pairwise
        self.subsample = whole_number("subsample", subsample, 1)
        self.backend: BackendName = check_backend(backend)
        embeds = pairwise != "gaussian"
        self.query = nn.Conv2d(channels, self.hidden, 1) if embeds else nn.Identity()
        self.key = nn.Conv2d(channels, self.hidden, 1) if embeds else nn.Identity()
        self.value = nn.Conv2d(channels, self.hidden, 1)
        self.output = nn.Conv2d(self.hidden, channels, 1)
        self.weight = nn.Parameter(torch.empty(2 * self.hidden)) if pairwise == "concatenation" else None
        if self.weight is not None:
            nn.init.normal_(self.weight, std=self.hidden**-0.5)
        if flag("zero", zero):
            nn.init.zeros_(self.output.weight)
            if self.output.bias is not None:
                nn.init.zeros_(self.output.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Adds to each position the weighted mean of all positions.

        Arguments, result and errors are those of `PositionAttention.forward`.
        """
        refuse_parts(type(self).__name__)
        mixed = self._mixed(*self.projected(features))[:, 0]
        return features + self.output(as_feature_map(mixed, *features.shape[2:]))

    def observe(self, features: Tensor, read: Readings | ReadingName) -> Observed:
        """Reads the weights f / C of the Gaussian forms; as `PositionAttention.observe`, with y as output.

        Raises:
            ArgumentError: the pairwise function is not Gaussian.
        """
        if not self.pairwise.endswith("gaussian"):
            raise ArgumentError(f"the pairwise function {self.pairwise!r} has no weights that sum to 1, to be read")
        return super().observe(features, read)

    def projected(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        check_feature_map("features", features, self.channels)
        key, value = (as_sequence(self._subsampled(part(features)))[:, None] for part in (self.key, self.value))
        return as_sequence(self.query(features))[:, None], key, value

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.pairwise == "dot":
            return query @ (key.mT @ value / key.shape[2])
        if self.pairwise == "concatenation":
            assert self.weight is not None
            query_weight, key_weight = self.weight.chunk(2)
            sums = relu_of_sums(query[:, 0] @ query_weight, key[:, 0] @ key_weight, value[:, 0])
            return (sums / key.shape[2])[:, None]
        return self._attended(query, key, value)

    def _subsampled(self, features: Tensor) -> Tensor:
        # Incomplete windows at the edge are included, so that no position is lost.
        return F.max_pool2d(features, self.subsample, ceil_mode=True) if self.subsample > 1 else features

    def extra_repr(self) -> str:
        return f"channels={self.channels}, pairwise={self.pairwise!r}, subsample={self.subsample}"


@fx_leaf
class GlobalContext(MapAttention):
    """Adds to each position what one learned query finds among all positions.

    .. math::

        α_j = softmax_j(W_k x_j)
        z_i = x_i + W_{v2} ReLU(LN(W_{v1} Σ_j α_j x_j))

    Cao et al. 2019, "GCNet: Non-local Networks Meet Squeeze-Excitation Networks and Beyond", eq. 5: a non-local block
    whose weights are the same for all queries. W_k is the only ``query``, without a bias, which softmax would cancel;
    keys and values are the positions. W_v1, LN and W_v2 are ``reduce``, ``norm`` and ``expand``, initially 0.

    Args:
        channels: channels of the feature map.
        reduction: W_v1 has ``channels // reduction`` outputs, at least 8, since layer normalization leaves but signs
            of two and nothing of one; default 16, as in the paper.
        hidden: the number of these outputs, which overrides ``reduction``.
        backend: backend of `regard.attend`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> import regard
        >>> block = regard.nn.GlobalContext(16)
        >>> features = torch.randn(2, 16, 5, 7)
        >>> torch.equal(block(features), features)  # W_v2 is 0
        True
        >>> weights = block.observe(features, regard.Readings(weights=True)).weights.view(2, 5, 7)
        >>> weights.sum((1, 2)).detach()
        tensor([1.0000, 1.0000])
    """

    is_cross_attention: ClassVar[bool] = True  # for `regard.watch`
    score = "dot"

    def __init__(self, channels: int, reduction: int = 16, *, hidden: int | None = None, backend: BackendName = "auto"):
        super().__init__()
        units = reduced_channels(channels, reduction, hidden, least=8)
        self.channels = channels
        self.backend: BackendName = check_backend(backend)
        self.query = nn.Parameter(torch.randn(channels) / math.sqrt(channels))
        self.reduce = nn.Linear(channels, units)
        self.norm = nn.LayerNorm(units)
        self.expand = nn.Linear(units, channels)
        nn.init.zeros_(self.expand.weight)
        nn.init.zeros_(self.expand.bias)

    def projected(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns one query, and all positions as keys and values; arguments and errors as in `forward`."""
        check_feature_map("features", features, self.channels)
        positions = as_sequence(features)[:, None]
        return self.query.to(features.dtype).expand(features.shape[0], 1, 1, -1), positions, positions

    def forward(self, features: Tensor) -> Tensor:
        """Adds the same context to each position; arguments, result and errors as in `PositionAttention.forward`."""
        refuse_parts(type(self).__name__)
        context = self._attended(*self.projected(features))[:, 0, 0]  # B C
        return features + self.expand(self.norm(self.reduce(context)).relu())[:, :, None, None]


def relu_of_sums(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Computes ``output_i = Σ_j ReLU(query_i + key_j) value_j`` without a matrix of pairs.

    With the keys in descending order, the nonzero terms are the first ``n_i``, and their sum is
    ``query_i · Σ_{j ≤ n_i} value_j + Σ_{j ≤ n_i} key_j value_j``, two running sums at ``n_i``, in float32 for half
    precision. Queries and keys are ``[batch, length]``, values ``[batch, keys, dim]``.
    """
    dtype = value.dtype
    query, key, value = upcast(query), upcast(key), upcast(value)
    key, order = key.sort(dim=1, descending=True)
    value = value.gather(1, order[..., None].expand_as(value))
    sums = F.pad(torch.cat((value, key[..., None] * value), -1).cumsum(1), (0, 0, 1, 0))  # B keys+1 2·dim
    count = torch.searchsorted((-key).detach().contiguous(), query.detach().contiguous())  # keys above −query_i
    value_sum, product_sum = sums.gather(1, count[..., None].expand(-1, -1, sums.shape[-1])).chunk(2, -1)
    return (query[..., None] * value_sum + product_sum).to(dtype)
