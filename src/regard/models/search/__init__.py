"""How a decoder's next-word probabilities become sentences: greedy, sampled and beam search.

All sentences of a batch, and all their hypotheses, are rows of one tensor; a sentence that is done leaves the batch.
Any decoder with the two methods of `SearchableDecoder` can be searched.
"""

from regard.models.search.beam_search import beam
from regard.models.search.decoder_protocol import Hypothesis, SearchableDecoder, SearchState
from regard.models.search.greedy_and_sampling import greedy, sample
from regard.models.search.unknown_words import replace_unknown

__all__ = ["Hypothesis", "SearchState", "SearchableDecoder", "beam", "greedy", "replace_unknown", "sample"]
