"""The normalizers that every law of theirs is tested over."""

import pytest
import torch
from torch import Tensor

from regard import normalizers
from regard.normalizers import Normalizer

B, H, Q, K = 2, 3, 5, 7
INF = float("inf")

HEADS = torch.tensor([1.25, 1.5, 2.5], dtype=torch.float64)

SUM_TO_ONE = {
    "softmax": normalizers.softmax,
    "softmax T=0.5": normalizers.Softmax(0.5),
    "softmax T a head": normalizers.Softmax(HEADS),
    "sparsemax": normalizers.sparsemax,
    "entmax 1.01": normalizers.entmax(1.01),
    "entmax 1.3": normalizers.entmax(1.3),
    "entmax 1.5": normalizers.entmax(1.5),
    "entmax 3": normalizers.entmax(3.0),
    "entmax a head": normalizers.entmax(HEADS),
    "top 3": normalizers.top_k(3),
    "top 2 of sparsemax": normalizers.top_k(2, "sparsemax"),
    "top 0.8": normalizers.top_p(0.8),
    "scalable": normalizers.scalable_softmax,
    "custom softmax": normalizers.Custom(lambda scores: scores.softmax(-1)),
}
HARD = {
    "hard argmax": normalizers.hard(),
    "hard straight-through": normalizers.hard("straight_through", temperature=0.7),
    "hard sample": normalizers.hard("sample"),
    "hard gumbel": normalizers.hard("gumbel", temperature=0.7),
}
OTHERS = {
    "sink 0": normalizers.softmax_with_sink(0.0),
    "sink a head": normalizers.softmax_with_sink(HEADS),
    "sigmoid": normalizers.sigmoid,
    "sigmoid bias a head": normalizers.Sigmoid(-HEADS),
    "squared relu mean": normalizers.SquaredReLU(mean=True),
    "softpick": normalizers.softpick,
    "signed softmax": normalizers.signed_softmax,
    "stick-breaking": normalizers.stick_breaking,
    "chunkwise": normalizers.Chunkwise(torch.tensor(0.75, dtype=torch.float64), 3),
    "identity": normalizers.identity,
    "ratio": normalizers.ratio,
    "local": normalizers.local_gaussian(normalizers.softmax, torch.tensor(2.25, dtype=torch.float64), 1.5),
    "temperature": normalizers.query_temperature(torch.tensor(1.5, dtype=torch.float64)),
    "custom squared relu": normalizers.Custom(lambda scores: scores.relu().square()),
}
SIGNED = (normalizers.identity, normalizers.ratio, normalizers.signed_softmax)
"""Those whose weights may be negative, as their scores."""
ALL = SUM_TO_ONE | HARD | OTHERS
SMOOTH = {name: value for name, value in ALL.items() if name not in HARD}
FIXED = {name: value for name, value in ALL.items() if not value.random}
POSITIONAL = ("local", "chunkwise", "stick-breaking")
"""Weights that depend on where a key is."""
INVARIANT = {name: value for name, value in FIXED.items() if name not in OTHERS}


def over(cases: dict[str, Normalizer]):
    return pytest.mark.parametrize("normalizer", cases.values(), ids=cases.keys())


def near_zero(normalizer: Normalizer, epsilon: float) -> float:
    """The error of a small weight. With alpha = 3 weights leave 0 like a square root: with half of the digits."""
    roots = normalizer in (SUM_TO_ONE["entmax 3"], SUM_TO_ONE["entmax a head"])
    return epsilon**0.5 if roots else epsilon


def some_scores(scale: float = 1.5) -> Tensor:
    """``[B, H, Q, K]``, with a full row, a row of one key, a row of none and rows with gaps."""
    scores = torch.randn(B, H, Q, K, dtype=torch.float64) * scale
    scores[:, :, 1] = -INF
    scores[:, :, 2, 1:] = -INF
    scores[:, :, 3, ::2] = -INF
    scores[0, 1, 4, -3:] = -INF
    return scores
