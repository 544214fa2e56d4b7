"""Minimum Bayes risk: the utility is BLEU, and the sample with the largest mean utility is chosen."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from regard.errors import ArgumentError, KindError
from regard.models import Encoded, MinimumRisk, minimum_risk, sample
from regard.models.search.greedy_and_sampling import SAMPLED_ROWS
from regard.models.search.minimum_risk import mean_utilities
from regard.models.search.token_choice import own_generator

BOS, EOS = 0, 1
IDS = {"bos": BOS, "eos": EOS, "max_length": 6}

sentences = st.lists(st.lists(st.integers(2, 5), max_size=8), min_size=1, max_size=7)


class Chain:
    """A decoder whose next word depends on the last one and on the row's length alone."""

    def __init__(self, words=6):
        self.table = (2 * torch.randn(4, words, words, generator=torch.Generator().manual_seed(3))).log_softmax(-1)

    def start(self, encoded):
        return Rows(encoded.lengths)

    def step(self, tokens, state):
        weights = torch.nn.functional.one_hot(tokens % 3, 3).float()
        return self.table[state.lengths, tokens], state, weights


class Rows:
    def __init__(self, lengths):
        self.lengths = lengths

    def select(self, index):
        return Rows(self.lengths[index])

    reordered = select


def encoded(*lengths):
    return Encoded(torch.zeros(len(lengths), 3, 1), torch.tensor(lengths, dtype=torch.int64), None)


def utility(found, true, order):
    """u(h, r), term by term."""
    if not found or not true:
        return float(len(found) == len(true))
    product = 1.0
    for n in range(1, order + 1):
        grams, others = (
            Counter(tuple(text[place : place + n]) for place in range(len(text) - n + 1)) for text in (found, true)
        )
        known = int(n > 1)
        shared = sum((grams & others).values()) + known
        product *= (shared / (max(0, len(found) - n + 1) + known)) ** (1 / order)
    return min(1.0, math.exp(1 - len(true) / len(found))) * product


@given(sentences, st.integers(1, 5))
def test_mean_utilities_are_those_of_the_equation(texts, order):
    wanted = [sum(utility(one, other, order) for other in texts) / len(texts) for one in texts]
    assert mean_utilities(texts, order).tolist() == pytest.approx(wanted, abs=1e-9)


@given(st.lists(st.integers(2, 5), min_size=1, max_size=9), st.lists(st.integers(2, 5), min_size=1, max_size=9))
def test_the_utility_is_the_bleu_of_a_sentence(found, true):
    metric = BLEU(smooth_method="add-k", smooth_value=1, tokenize="none", force=True)
    words = [" ".join(map(str, text)) for text in (found, true)]
    wanted = metric.sentence_score(words[0], [words[1]]).score / 100
    # The mean over a text itself, whose utility is 1, and the other.
    assert mean_utilities([found, true], 4)[0] == pytest.approx((1 + wanted) / 2, abs=1e-9)


@pytest.mark.parametrize("order", [1, 4])
def test_the_sample_with_the_largest_mean_utility_is_chosen(order):
    how = MinimumRisk(samples=20, temperature=0.8, order=order, seed=5)
    found = minimum_risk(Chain(), encoded(1, 2, 3), **IDS, how=how)
    generators = [own_generator(5, number) for number in range(3)]
    drawn = sample(Chain(), encoded(1, 2, 3), **IDS, temperature=0.8, generator=generators, samples=20)
    for row, one in enumerate(found):
        group = drawn[20 * row : 20 * row + 20]
        means = [sum(utility(a.tokens, b.tokens, order) for b in group) / 20 for a in group]
        assert one.score == pytest.approx(max(means), abs=1e-9)
        best = [each for each, mean in zip(group, means, strict=True) if mean > max(means) - 1e-12]
        likely = max(best, key=lambda each: each.log_probability)
        assert one.tokens == likely.tokens
        assert one.log_probability == likely.log_probability
        assert torch.equal(one.weights, likely.weights)
    assert len({tuple(one.tokens) for one in found}) > 1


def test_one_sample_is_sampling_and_a_seed_repeats_it():
    rows = encoded(1, 2, 3, 1)
    one = minimum_risk(Chain(), rows, **IDS, how=MinimumRisk(1, 1.3, 4, 7))
    generators = [own_generator(7, number) for number in range(4)]
    drawn = sample(Chain(), rows, **IDS, temperature=1.3, generator=generators)
    assert [found.tokens for found in one] == [found.tokens for found in drawn]
    assert all(found.score == 1.0 for found in one)  # a sample has all in common with itself
    again = minimum_risk(Chain(), rows, **IDS, how=MinimumRisk(1, 1.3, 4, 7))
    assert [found.tokens for found in again] == [found.tokens for found in one]


@pytest.mark.parametrize("samples", [1, 5, SAMPLED_ROWS // 2 + 1])
def test_the_draws_of_a_row_follow_its_own_number(samples):
    """Neither other rows nor their numbers change them, and rows with different numbers have different draws."""
    lengths, numbers = [1, 2, 3, 2, 2], [7, 2**64 - 1, 0, 4, 5]
    how, generators = MinimumRisk(samples, 1.5), [own_generator(3, number) for number in numbers]
    drawn = sample(Chain(), encoded(*lengths), **IDS, generator=generators, samples=samples)
    together = minimum_risk(Chain(), encoded(*lengths), **IDS, how=how, numbers=numbers)
    for row, (length, number) in enumerate(zip(lengths, numbers, strict=True)):
        (alone,) = minimum_risk(Chain(), encoded(length), **IDS, how=how, numbers=[number])
        assert (alone.tokens, alone.score) == (together[row].tokens, together[row].score)
        (_, beside) = minimum_risk(Chain(), encoded(3, length), **IDS, how=how, numbers=[9, number])
        assert beside.tokens == alone.tokens
        own = sample(Chain(), encoded(length), **IDS, generator=[own_generator(3, number)], samples=samples)
        assert [one.tokens for one in own] == [one.tokens for one in drawn[samples * row : samples * (row + 1)]]
    assert samples == 1 or [one.tokens for one in drawn[-samples:]] != [
        one.tokens for one in drawn[-2 * samples : -samples]
    ]


def test_there_is_a_generator_for_each_row():
    with pytest.raises(ArgumentError, match="generator must be one, or one for each of 2 rows; there are 1"):
        sample(Chain(), encoded(1, 2), **IDS, generator=[torch.Generator()])


def test_the_random_numbers_of_others_are_left_alone():
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    minimum_risk(Chain(), encoded(1, 2), **IDS, how=MinimumRisk(5))
    assert torch.equal(torch.rand(3), wanted)


def test_more_sentences_than_are_drawn_at_once():
    how = MinimumRisk(samples=SAMPLED_ROWS // 2 + 1, order=1)
    found = minimum_risk(Chain(), encoded(1, 2, 3), **IDS, how=how)
    assert len(found) == 3
    assert all(0 < one.score <= 1 for one in found)
    assert minimum_risk(Chain(), encoded(), **IDS, how=how) == []


def test_each_sentence_has_its_own_limit_and_no_forbidden_token():
    limits = {"bos": BOS, "eos": EOS, "max_length": [0, 2, 5], "forbidden": (3,)}
    found = minimum_risk(Chain(), encoded(1, 2, 3), **limits, how=MinimumRisk(30))
    for one, longest in zip(found, (0, 2, 5), strict=True):
        assert len(one.tokens) <= longest
        assert not {BOS, EOS, 3} & set(one.tokens)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"samples": 0}, "samples must be at least 1; it is 0"),
        ({"order": 0}, "order must be at least 1; it is 0"),
        ({"samples": 2.5}, "samples must be a whole number|samples must be an integer"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**63}, "seed must be"),
        ({"temperature": 0.0}, "temperature must be above 0; it is 0.0"),
        ({"temperature": math.nan}, "temperature must be above 0; it is nan"),
    ],
)
def test_minimum_risk_refuses_wrong_numbers(wrong, message):
    with pytest.raises((ArgumentError, KindError), match=message):
        MinimumRisk(**wrong)


def test_the_next_best_samples_are_different_and_ranked():
    how = MinimumRisk(samples=30, temperature=1.5)
    (alone,) = minimum_risk(Chain(), encoded(2), **IDS, how=how)
    (best,) = minimum_risk(Chain(), encoded(2), **IDS, how=how, n_best=4)
    assert (best.tokens, best.score) == (alone.tokens, alone.score)
    assert alone.next_best == ()
    ranked = [best, *best.next_best]
    assert len({tuple(one.tokens) for one in ranked}) == 4
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
