"""Cross-covariance attention: channels of a feature map attend to channels, in time linear in the positions."""

from torch import Tensor, nn

from regard.attention.execution import check_backend
from regard.attention.verbs import BackendName
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError
from regard.nn.feature_maps import MapAttention, check_feature_map
from regard.nn.fx_leaf import fx_leaf
from regard.scores import Cosine
from regard.shapes.checks import size


@fx_leaf
class XCA(MapAttention):
    """Lets the channels of each head attend to each other, by the cosine of their maps.

    .. math::

        XCA(Q, K, V) = V softmax(K̂ᵀ Q̂ / τ)

    El-Nouby et al. 2021, "XCiT: Cross-Covariance Image Transformers", section 3.2. Q̂ and K̂ have columns of length 1,
    and softmax goes over the channels of keys. Here a channel is a query of `regard.attend` whose features are its
    positions. The weights are ``[batch, heads, d, d]`` with d = ``channels // heads``: row i and column j of head h
    are the channels h·d + i of the queries and h·d + j of the keys. τ is ``score.temperature``, initially 1, and the
    projections are the 1 × 1 convolutions ``query``, ``key``, ``value`` and ``output``. Time and memory are linear in
    the positions. A sequence of tokens is a map ``tokens.mT[..., None]``.

    Args:
        channels: channels of the feature map.
        heads: heads, a divisor of ``channels``.
        backend: backend of `regard.attend`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> import regard
        >>> attention = regard.nn.XCA(12, heads=3)
        >>> attention.observe(torch.randn(2, 12, 5, 7), regard.Readings(weights=True)).weights.shape
        torch.Size([2, 3, 4, 4])
    """

    def __init__(self, channels: int, heads: int = 1, *, backend: BackendName = "auto"):
        super().__init__()
        self.channels, self.heads = size("channels", channels), size("heads", heads)
        if channels % heads:
            raise ArgumentError(f"heads must divide channels, {channels}; it is {heads}")
        self.backend: BackendName = check_backend(backend)
        self.score = Cosine.create(heads, temperature=1.0)
        self.query, self.key, self.value, self.output = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def projected(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values ``[batch, heads, d, positions]``; arguments and errors as in `forward`."""
        check_feature_map("features", features, self.channels)
        maps = (part(features) for part in (self.query, self.key, self.value))
        query, key, value = (each.flatten(2).unflatten(1, (self.heads, each.shape[1] // self.heads)) for each in maps)
        return query, key, value

    def forward(self, features: Tensor) -> Tensor:
        """Mixes the channels of each head; arguments, result and errors as in `PositionAttention.forward`."""
        refuse_parts(type(self).__name__)
        mixed = self._attended(*self.projected(features))  # B heads C/heads positions
        return self.output(mixed.flatten(1, 2).unflatten(2, features.shape[2:]))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, heads={self.heads}"
