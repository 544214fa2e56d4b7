"""Search for the sentences that a decoder predicts: greedy search, sampling, beam search, minimum Bayes risk.

All sentences of a batch, and all their hypotheses, are rows of one tensor; a finished sentence is removed from it.
A search runs on any decoder with the methods of `SearchableDecoder`.
"""

from regard.models.search.beam_search import beam
from regard.models.search.decoder_protocol import Hypothesis, SearchableDecoder, SearchState
from regard.models.search.greedy_and_sampling import greedy, sample
from regard.models.search.minimum_risk import MinimumRisk, minimum_risk
from regard.models.search.token_choice import TokenChoice
from regard.models.search.unknown_words import replace_unknown
from regard.names.lazy_names import public_names

__all__ = [
    "Hypothesis",
    "MinimumRisk",
    "SearchState",
    "SearchableDecoder",
    "TokenChoice",
    "beam",
    "greedy",
    "minimum_risk",
    "replace_unknown",
    "sample",
]

__dir__ = public_names(__name__)
