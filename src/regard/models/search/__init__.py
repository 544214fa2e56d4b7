"""How a decoder's next-word probabilities become sentences: greedy, sampled and beam search.

All sentences of a batch, and all their hypotheses, are rows of one tensor; a sentence that is done leaves the batch.
Any decoder with the two methods of `Searchable` can be searched.
"""

from regard.models.search.beam_search import beam
from regard.models.search.searchable import Hypothesis, Searchable, SearchState
from regard.models.search.unknown import replace_unknown
from regard.models.search.walk import greedy, sample

__all__ = ["Hypothesis", "SearchState", "Searchable", "beam", "greedy", "replace_unknown", "sample"]
