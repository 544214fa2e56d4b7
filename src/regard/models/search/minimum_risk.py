"""Minimum Bayes risk: of many samples of a sentence, the one that is most like all others."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.models.search.decoder_protocol import Hypothesis, SearchableDecoder
from regard.models.search.greedy_and_sampling import sample
from regard.models.search.token_choice import own_generator
from regard.shapes.checks import whole_number


@dataclass(frozen=True)
class MinimumRisk:
    """The options of minimum Bayes risk decoding: sampling and utility.

    Attributes:
        samples: of each sentence.
        temperature: of the sampling, above 0; below 1, likely tokens become more likely.
        order: the longest n-grams of the utility.
        seed: of the random number generator.

    Raises:
        ArgumentError: a number is out of its range.
        KindError: it is not a whole number.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.RecurrentTranslator(models.TranslatorConfig(20, 20, hidden=8, embedding=8))
        >>> risk = models.MinimumRisk(samples=20, temperature=0.5)
        >>> best = model.translate(torch.tensor([[4, 5, 6]]), torch.tensor([3]), risk=risk, max_length=4)[0]
        >>> 0 <= best.score <= 1  # the mean utility, a BLEU
        True
    """

    samples: int = 100
    temperature: float = 0.7
    order: int = 4
    seed: int = 1

    def __post_init__(self) -> None:
        for name, low, high in (("samples", 1, None), ("order", 1, None), ("seed", 0, 2**63 - 1)):
            whole_number(name, getattr(self, name), low, high)
        if not self.temperature > 0:
            raise ArgumentError(f"temperature must be above 0; it is {self.temperature}")


def minimum_risk(
    decoder: SearchableDecoder,
    encoded: Encoded,
    *,
    bos: int,
    eos: int,
    how: MinimumRisk,
    max_length: int | Sequence[int] = 100,
    forbidden: Sequence[int] = (),
    n_best: int = 1,
    numbers: Sequence[int] | None = None,
) -> list[Hypothesis]:
    """Returns the sample with the largest mean utility: minimum Bayes risk decoding.

    .. math::

        Y^* = argmax_h 1/N Σ_r u(h, r),    h and r among N samples
        u(h, r) = min(1, e^(1 − |r|/|h|)) Π_n p_n^(1/order),    n from 1 to order
        p_n = (m_n + k_n) / (max(0, |h| − n + 1) + k_n),    k_1 = 0, all other k_n = 1

    Kumar & Byrne 2004, "Minimum Bayes-Risk Decoding for Statistical Machine Translation", section 2; with samples as
    hypotheses and as evidence as in Eikema & Aziz 2020, "Is MAP Decoding All You Need?", section 6. The utility is the
    BLEU of tokens (Papineni et al. 2002), m_n the n-grams of h that are in r; k is that of Lin & Och 2004, "ORANGE",
    section 3.1. A beam finds the sentence that is most likely as a whole; this finds the one that has most in common
    with all that are likely. Samples are drawn as `sample` draws them.

    Args:
        decoder, encoded, bos, eos, max_length, forbidden: as for `greedy`.
        how: the samples and their utility.
        n_best: different samples of each sentence, as far as there are so many: the best one has the others as
            ``next_best``.
        numbers: of each row, 0 or more, which decides its draws together with the seed, so that they do not depend on
            the other rows; None: 0, 1, 2, ...

    Returns:
        One hypothesis for each row, whose score is its mean utility, in [0, 1]. Of two with the same, the one that is
        more likely.

    Raises:
        ArgumentError: ``max_length`` is negative, or has not one number for each row.

    Example:
        >>> import torch
        >>> from regard import models
        >>> class Chain:  # p(next token | last token); 0 is bos, 1 is eos
        ...     table = torch.tensor([[0, 0, 0.6, 0.4], [0, 1, 0, 0], [0, 0.5, 0.3, 0.2], [0, 0.9, 0.1, 0]])
        ...     start = select = lambda self, _: self
        ...     step = lambda self, tokens, state: (self.table[tokens].log(), self, None)
        >>> encoded = models.Encoded(torch.zeros(1, 1, 1), torch.tensor([1]))
        >>> how = models.MinimumRisk(samples=500)
        >>> models.minimum_risk(Chain(), encoded, bos=0, eos=1, how=how)[0].tokens  # most like both [3] and [2]
        [2, 3]
    """
    numbers = range(len(encoded.lengths)) if numbers is None else numbers
    generators = [own_generator(how.seed, number) for number in numbers]
    drawn = sample(
        decoder, encoded, bos=bos, eos=eos, max_length=max_length, forbidden=forbidden,
        temperature=how.temperature, generator=generators, samples=how.samples,
    )  # fmt: skip
    groups = (drawn[start : start + how.samples] for start in range(0, len(drawn), how.samples))
    return [_best(group, how.order, n_best) for group in groups]


def _best(samples: Sequence[Hypothesis], order: int, n_best: int) -> Hypothesis:
    """Returns the samples with the largest mean utilities, which become their scores."""
    utilities = mean_utilities([one.tokens for one in samples], order)
    order_of = sorted(
        range(len(samples)), key=lambda number: (utilities[number], samples[number].log_probability), reverse=True
    )
    different: dict[tuple[int, ...], Hypothesis] = {}
    for number in order_of:
        different.setdefault(tuple(samples[number].tokens), replace(samples[number], score=float(utilities[number])))
    return Hypothesis.of_ranked(list(different.values())[:n_best])


def mean_utilities(sentences: Sequence[Sequence[int]], order: int) -> np.ndarray:
    """Computes the mean over all sentences r of u(h, r) of `minimum_risk`, for each h; float64 ``[sentences]``.

    Two empty lists of tokens have the utility 1, an empty one and another 0.
    """
    copies = Counter(tuple(sentence) for sentence in sentences)
    unique = {sentence: number for number, sentence in enumerate(copies)}
    lengths = np.array([len(sentence) for sentence in unique], dtype=np.float64)
    logarithms = np.zeros((len(unique), len(unique)))
    with np.errstate(divide="ignore"):
        for n in range(1, order + 1):
            known = 0 if n == 1 else 1
            possible = np.maximum(0, lengths - n + 1)[:, None] + known
            logarithms += np.log((_shared(list(unique), n) + known) / np.maximum(1, possible)) / order
        shortness = np.minimum(0, 1 - lengths / np.maximum(1, lengths)[:, None])
    utilities = np.exp(logarithms + shortness)
    empty = lengths == 0
    utilities[empty] = empty
    means = utilities @ np.array(list(copies.values()), dtype=np.float64) / len(sentences)
    return means[[unique[tuple(sentence)] for sentence in sentences]]


def _shared(sentences: Sequence[tuple[int, ...]], n: int) -> np.ndarray:
    """Counts the n-grams that two sentences share, each as often as in both; float64 ``[sentences, sentences]``."""
    # An n-gram that occurs a second time is a column of its own: then min(a, b) is a product of zeros and ones.
    columns: dict[Any, int] = {}
    cells: list[tuple[int, int]] = []
    for row, sentence in enumerate(sentences):
        times: Counter[tuple[int, ...]] = Counter()
        for start in range(len(sentence) - n + 1):
            gram = sentence[start : start + n]
            times[gram] += 1
            cells.append((row, columns.setdefault((gram, times[gram]), len(columns))))
    holds = np.zeros((len(sentences), len(columns)), dtype=np.float32)
    if cells:
        holds[tuple(np.array(cells).T)] = 1
    return (holds @ holds.T).astype(np.float64)
