"""Scores, which compare queries with keys."""

from regard.names.lazy_names import public_names
from regard.scores.additive_scores import Additive, ReluSum, TanhSum
from regard.scores.custom import Custom, Pairwise
from regard.scores.distance import Distance
from regard.scores.dynamic_convolution import DynamicConvolution
from regard.scores.features import Features, RandomFeatures
from regard.scores.gaussian_mixture import GaussianMixture
from regard.scores.inner_product import Cosine, Dot, General, InnerProduct, ScaledDot
from regard.scores.location_scores import Location, LocationAware
from regard.scores.modifiers import Modified, SoftCap
from regard.scores.names import (
    NAMES,
    AnyScoreName,
    ContentScoreName,
    ScoreName,
    Scoring,
    as_score,
    cosine,
    create,
    distance,
    dot,
    own_score,
    scaled_dot,
)
from regard.scores.perceptron import MLP
from regard.scores.recurrent_scores import Decayed, DecayedProduct, DeltaProduct, DeltaRule, ForgetGate
from regard.scores.score import Places, Prepared, Primitive, Score
from regard.scores.trilinear import Trilinear

__all__ = [
    "dot",
    "scaled_dot",
    "cosine",
    "distance",
    "Dot",
    "ScaledDot",
    "Cosine",
    "General",
    "Distance",
    "Additive",
    "MLP",
    "Location",
    "LocationAware",
    "DynamicConvolution",
    "GaussianMixture",
    "Trilinear",
    "Features",
    "RandomFeatures",
    "Decayed",
    "DeltaRule",
    "ForgetGate",
    "SoftCap",
    "Modified",
    "Custom",
    "Score",
    "Places",
    "Scoring",
    "ScoreName",
    "ContentScoreName",
    "AnyScoreName",
    "as_score",
    "own_score",
    "create",
    "NAMES",
    "Prepared",
    "Primitive",
    "InnerProduct",
    "DecayedProduct",
    "DeltaProduct",
    "ReluSum",
    "TanhSum",
    "Pairwise",
]

__dir__ = public_names(__name__)
