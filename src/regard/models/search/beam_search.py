"""Beam search for all sentences of a batch at once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError
from regard.models.encoders import Encoded
from regard.models.search.decoder_protocol import Hypothesis, Limits, SearchableDecoder
from regard.tracing.transforms import sent


@torch.no_grad()
def beam(
    decoder: SearchableDecoder,
    encoded: Encoded,
    *,
    bos: int,
    eos: int,
    width: int = 5,
    length_penalty: float = 1.0,
    max_length: int | Sequence[int] = 100,
    forbidden: Sequence[int] = (),
    n_best: int = 1,
) -> list[Hypothesis]:
    """Searches for the best finished hypothesis of each sentence, with ``width`` hypotheses at each step.

    .. math::

        score(Y) = log p(Y) / ((5 + |Y|) / 6)^α

    Wu et al. 2016, §7, eq. 14 (without the coverage penalty); ``|Y|`` counts ``eos``. A hypothesis that ends in ``eos``
    and is among the ``width`` best extensions is finished. The search of a sentence ends when it has ``width`` finished
    hypotheses, or when no unfinished one can be among its ``n_best``. With ``width=1`` it finds the tokens that
    `greedy` finds.

    Args:
        decoder, encoded, bos, eos, max_length, forbidden: as for `greedy`.
        width: hypotheses of each sentence.
        length_penalty: α, 0 or more; 0 ranks by probability, which favours short sentences.
        n_best: hypotheses of each sentence, at most ``width``: the best one has the others as ``next_best``. There may
            be fewer, if the sentence may have only a few tokens.

    Returns:
        One hypothesis for each row.

    Raises:
        ArgumentError: ``width`` is below 1, ``length_penalty`` is negative, or ``n_best`` is not from 1 to ``width``.

    Example:
        >>> import math
        >>> import torch
        >>> from regard import models
        >>> class Chain:  # p(next token | last token); 0 is bos, 1 is eos
        ...     table = torch.tensor([[0, 0, 0.6, 0.4], [0, 1, 0, 0], [0, 0.5, 0.3, 0.2], [0, 0.9, 0.1, 0]])
        ...     start = select = reordered = lambda self, _: self
        ...     step = lambda self, tokens, state: (self.table[tokens].log(), self, None)
        >>> encoded = models.Encoded(torch.zeros(1, 1, 1), torch.tensor([1]))
        >>> found = models.beam(Chain(), encoded, bos=0, eos=1, width=2, length_penalty=0.0, n_best=2)[0]
        >>> [(one.tokens, round(math.exp(one.log_probability), 2)) for one in (found, *found.next_best)]
        [([3], 0.36), ([2], 0.3)]
    """
    if width < 1:
        raise ArgumentError(f"width must be at least 1; it is {width}")
    if not length_penalty >= 0:
        raise ArgumentError(f"length_penalty must be 0 or more; it is {length_penalty}")
    if not 1 <= n_best <= width:
        raise ArgumentError(f"n_best must be from 1 to {width}, the width of the beam; it is {n_best}")
    if not len(encoded.lengths):
        return []
    limits = Limits(bos, eos, max_length, forbidden)
    lengths = limits.lengths(len(encoded.lengths))
    record = _BeamRecord(width, length_penalty, lengths, n_best)
    device = encoded.lengths.device
    alive = torch.arange(len(encoded.lengths), device=device)  # the unfinished sentences
    sentences = list(range(len(encoded.lengths)))  # the same on the host
    state = decoder.start(encoded).select(alive.repeat_interleave(width))
    tokens = torch.full((len(alive) * width,), bos, device=device)
    totals = torch.full((len(alive), width), -torch.inf, device=device)
    totals[:, 0] = 0  # all hypotheses of a sentence start equal, so only the first is extended

    longest = sent(torch.tensor(lengths, device="cpu"), device)
    for length in range(max(lengths) + 1):
        log_probabilities, state, weights = decoder.step(tokens, state)
        vocabulary = log_probabilities.shape[1]
        must_end = (longest[alive] <= length).repeat_interleave(width) if length >= min(lengths) else None
        allowed = limits.restrict(log_probabilities, must_end)
        extended = totals[:, :, None] + allowed.view(len(alive), width, vocabulary)
        # Each hypothesis has one extension by eos, so at least width of the best 2·width extensions do not end.
        best, index = extended.flatten(1).topk(min(2 * width, width * vocabulary), dim=1)
        origin = index.div(vocabulary, rounding_mode="floor")
        token = index % vocabulary
        ends = token == eos
        finished = _Finishing(best[:, :width], origin[:, :width], ends[:, :width])

        totals = best.masked_fill(ends, -torch.inf)
        totals, chosen = totals.topk(width, dim=1) if totals.shape[1] > width else totals.sort(dim=1, descending=True)
        origin, token = origin.gather(1, chosen), token.gather(1, chosen)
        record.extend(alive, origin, token, weights)
        unfinished = record.finish(length, sentences, finished, totals[:, 0])
        if not unfinished:
            break
        if len(unfinished) == len(sentences):
            rows = torch.arange(len(sentences), device=device)[:, None] * width + origin
            state = _reordered(state, rows.flatten())
        else:
            index = sent(torch.tensor(unfinished, device="cpu"), device)
            state = state.select((index[:, None] * width + origin[index]).flatten())
            alive, totals, token = alive[index], totals[index], token[index]
            sentences = [sentences[number] for number in unfinished]
        tokens = token.flatten()
    return record.best(encoded.lengths)


def _reordered(state: Any, index: Tensor) -> Any:
    """Returns the rows of a state, each of which keeps its source."""
    try:
        reordered = state.reordered
    except AttributeError:
        raise KindError(
            f"beam: the decoder's state, of type {type(state).__name__}, needs the method reordered(index), which "
            "returns these rows; earlier versions called it reorder"
        ) from None
    return reordered(index)


class _Finishing(NamedTuple):
    """The best extensions of a step, each ``[alive, width]``: log-probabilities, the hypotheses that they extend, and
    whether they end."""

    totals: Tensor
    origin: Tensor
    ends: Tensor


class _Finished(NamedTuple):
    score: float
    log_probability: float
    length: int
    origin: int  # index of the hypothesis in the beam after ``length`` tokens


class _BeamRecord:
    """The record of a beam search: the tokens of each step with links to the previous step; finished hypotheses."""

    def __init__(self, width: int, length_penalty: float, max_lengths: list[int], n_best: int = 1):
        self.sentences, self.width, self.n_best = len(max_lengths), width, n_best
        self.length_penalty, self.max_lengths = length_penalty, max_lengths
        self._finished: list[list[_Finished]] = [[] for _ in max_lengths]
        self._origins: list[Tensor] = []  # each [sentences, width]: index of the extended hypothesis
        self._tokens: list[Tensor] = []  # each [sentences, width]
        self._weights: list[Tensor] = []  # each [sentences, width, source], of the hypotheses before the step

    def penalty(self, length: int) -> float:
        """Returns the divisor of the log-probability of a hypothesis of ``length`` tokens and ``eos``."""
        return ((5 + length + 1) / 6) ** self.length_penalty

    def finish(self, length: int, alive: list[int], step: _Finishing, best_total: Tensor) -> list[int]:
        """Records the hypotheses that end after ``length`` tokens, and returns the indices into ``alive`` of the
        sentences whose search goes on, by ``best_total``, the log-probability of the best hypothesis that has not
        ended. This alone waits for an accelerator, once a step."""
        ends = step.ends & (step.totals > -torch.inf)
        # The numbers of hypotheses are exact in the dtype of the log-probabilities.
        parts = step.totals, step.origin, ends, best_total[:, None]
        table = torch.cat([part.to(best_total.dtype) for part in parts], dim=1).tolist()
        unfinished = []
        for index, (sentence, row) in enumerate(zip(alive, table, strict=True)):
            finished, width = self._finished[sentence], (len(row) - 1) // 3
            for total, hypothesis, has_ended in zip(
                row[:width], row[width : 2 * width], row[2 * width :], strict=False
            ):
                if has_ended and len(finished) < self.width:
                    finished.append(_Finished(total / self.penalty(length), total, length, int(hypothesis)))
            # An upper bound: log-probabilities do not increase, and the longest sentence has the largest divisor.
            bound = row[-1] / self.penalty(self.max_lengths[sentence])
            scores = sorted((end.score for end in finished), reverse=True)
            least = scores[self.n_best - 1] if len(scores) >= self.n_best else -torch.inf
            if len(scores) < self.width and bound > least:
                unfinished.append(index)
        return unfinished

    def extend(self, alive: Tensor, origin: Tensor, token: Tensor, weights: Tensor | None) -> None:
        """Records a step: ``origin`` and ``token [alive, width]``, ``weights [alive · width, source]``."""
        zeros = origin.new_zeros(self.sentences, self.width)
        self._origins.append(zeros.index_copy(0, alive, origin))
        self._tokens.append(zeros.index_copy(0, alive, token))
        if weights is not None:
            step_weights = weights.view(len(alive), self.width, -1)
            all_weights = step_weights.new_zeros(self.sentences, *step_weights.shape[1:])
            self._weights.append(all_weights.index_copy(0, alive, step_weights))

    def best(self, source_lengths: Tensor) -> list[Hypothesis]:
        """Returns the best finished hypotheses of each sentence, with their tokens and weights."""
        origins, all_tokens = torch.stack(self._origins).tolist(), torch.stack(self._tokens).tolist()
        all_weights = torch.stack(self._weights).float().cpu() if self._weights else None

        def hypothesis(sentence: int, source: int, end: _Finished) -> Hypothesis:
            index, tokens, rows = end.origin, [], []
            for time in reversed(range(end.length)):
                tokens.append(all_tokens[time][sentence][index])
                index = origins[time][sentence][index]
                if all_weights is not None:
                    rows.append(all_weights[time, sentence, index, :source])
            weights = None
            if all_weights is not None:
                weights = torch.stack(rows[::-1]) if rows else all_weights.new_zeros(0, source)
            return Hypothesis(tokens[::-1], end.score, end.log_probability, weights)

        hypotheses = []
        for sentence, source in enumerate(source_lengths.tolist()):
            ends = sorted(self._finished[sentence], key=lambda finished: finished.score, reverse=True)
            hypotheses.append(Hypothesis.of_ranked([hypothesis(sentence, source, end) for end in ends[: self.n_best]]))
        return hypotheses
