"""Normalizers, which turn the scores that the mask allows into weights.

=================================================  ============================================================
`softmax`, `Softmax` (temperature)                 proportional to the exponentials of the scores
`softmax_with_sink` (sink)                         the same, with a term for attending to nothing
`sparsemax`, `entmax15`, `entmax` (alpha)          sparse: small scores get exactly 0
`sigmoid`, `Sigmoid` (bias)                        each key independently
`softpick`, `Softpick` (epsilon)                   rectified softmax: scores below 0 get exactly 0
`signed_softmax`                                   softmax of magnitudes, with the signs of the scores
`scalable_softmax`, `ScalableSoftmax` (scale)      softmax that sharpens with the number of keys
`stick_breaking`                                   each key takes a share of what the keys after it left
`squared_relu`, `SquaredReLU` (mean)               each key independently: the square of a positive score
`identity`                                         the scores as they are
`ratio`                                            the share of each score in the sum of its row
`hard` (mode, temperature, generator)              all weight on one key, chosen or drawn
`local_gaussian` (normalizer, center, sigma)       another normalizer's weights in a Gaussian window
`Monotonic` (mode, bias, noise)                    where each query stops, going on from the one before it
`Stepwise` (mode, bias, noise)                     each query stays at a key or moves on by one
`ForwardAlignment` (transition)                    softmax over the keys at which it may stay or to which it may move on
`Chunkwise` (stops, width)                         softmax over the chunk of keys before each stop
`top_k` (k, normalizer)                            another normalizer of the largest scores alone
`top_p` (p, normalizer)                            another normalizer of the keys that hold a share of the weight
`query_temperature` (temperature, normalizer)      another normalizer, with a temperature for each query
`talking_heads` (before, after, normalizer)        another normalizer between mixtures of all heads
`over_queries`, `OverQueries` (epsilon)            queries compete for each key: slot attention
`sinkhorn`, `Sinkhorn` (iterations)                rows and columns in turn: towards equal sums of both
a function of scores                               anything
=================================================  ============================================================

Each can be passed to `regard.attend` or called as a function: ``normalizers.sparsemax(scores, dim=-1)``.
"""

from regard.names.lazy_names import public_names
from regard.normalizers.coupled import OverQueries, Sinkhorn, TalkingHeads
from regard.normalizers.custom import Custom
from regard.normalizers.elementwise import Identity, Ratio, Sigmoid, SquaredReLU, identity, ratio, sigmoid, squared_relu
from regard.normalizers.entmax import Entmax, Sparsemax, entmax, sparsemax
from regard.normalizers.forward_alignment import ForwardAlignment
from regard.normalizers.hard import Hard, hard
from regard.normalizers.local import LocalGaussian
from regard.normalizers.monotonic import Chunkwise, Monotonic, Stepwise
from regard.normalizers.names import (
    NormalizerName,
    Normalizing,
    as_normalizer,
    entmax15,
    forward,
    local_gaussian,
    monotonic,
    over_queries,
    own_normalizer,
    query_temperature,
    sinkhorn,
    stepwise,
    talking_heads,
    top_k,
    top_p,
)
from regard.normalizers.normalizer import Normalizer, RowPrimitive, Softmax, SoftmaxWithSink, softmax, softmax_with_sink
from regard.normalizers.query_temperature import QueryTemperature
from regard.normalizers.selection import TopK, TopP
from regard.normalizers.softmax_variants import (
    ScalableSoftmax,
    SignedSoftmax,
    Softpick,
    scalable_softmax,
    signed_softmax,
    softpick,
)
from regard.normalizers.stick_breaking import StickBreaking, stick_breaking

__all__ = [
    "Normalizer",
    "NormalizerName",
    "Normalizing",
    "RowPrimitive",
    "Softmax",
    "SoftmaxWithSink",
    "Entmax",
    "Sparsemax",
    "Sigmoid",
    "SquaredReLU",
    "Softpick",
    "SignedSoftmax",
    "ScalableSoftmax",
    "StickBreaking",
    "Identity",
    "Ratio",
    "Hard",
    "LocalGaussian",
    "Monotonic",
    "Stepwise",
    "ForwardAlignment",
    "Chunkwise",
    "TopK",
    "TopP",
    "QueryTemperature",
    "TalkingHeads",
    "OverQueries",
    "Sinkhorn",
    "Custom",
    "softmax",
    "softmax_with_sink",
    "sparsemax",
    "entmax",
    "entmax15",
    "sigmoid",
    "squared_relu",
    "softpick",
    "signed_softmax",
    "scalable_softmax",
    "stick_breaking",
    "identity",
    "ratio",
    "hard",
    "local_gaussian",
    "top_k",
    "top_p",
    "query_temperature",
    "talking_heads",
    "over_queries",
    "monotonic",
    "stepwise",
    "forward",
    "sinkhorn",
    "as_normalizer",
    "own_normalizer",
]

__dir__ = public_names(__name__)
