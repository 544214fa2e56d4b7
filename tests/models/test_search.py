from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError, KindError
from regard.models import Encoded, beam, greedy, replace_unknown, sample

BOS, EOS = 0, 1
IDS = {"bos": BOS, "eos": EOS}


class Table:
    """A decoder over four words whose next word depends on the source row and on all words so far."""

    def __init__(self, seed: int):
        self.seed = seed

    def start(self, encoded):
        return Prefixes([(int(length), ()) for length in encoded.lengths])

    def step(self, tokens, state):
        rows = [(source, (*words, int(token))) for (source, words), token in zip(state.rows, tokens, strict=True)]
        after = Prefixes(rows)
        weights = torch.tensor([[source, len(words) - 1.0, 0.0] for source, words in rows])
        return torch.stack([self.next(row) for row in rows]), after, weights

    def next(self, row):
        generator = torch.Generator().manual_seed(hash((self.seed, row)) % 2**31)
        return (2 * torch.randn(4, generator=generator)).log_softmax(-1)

    def log_probability(self, source, words):
        row, total = (source, (BOS,)), 0.0
        for word in (*words, EOS):
            total += float(self.next(row)[word])
            row = (source, (*row[1], word))
        return total


class Prefixes:
    def __init__(self, rows):
        self.rows = rows

    def select(self, index):
        return Prefixes([self.rows[row] for row in index.tolist()])

    reordered = select


def encoded(*lengths):
    return Encoded(
        torch.zeros(len(lengths), 3, 1), torch.tensor(lengths, dtype=torch.int64), torch.zeros(len(lengths), 1)
    )


def penalty(words, alpha):
    return ((5 + len(words) + 1) / 6) ** alpha


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.6, 1.0, 2.0]), st.integers(0, 3))
def test_a_beam_as_wide_as_all_sentences_finds_the_best(seed, alpha, longest):
    decoder = Table(seed)
    everything = [words for length in range(longest + 1) for words in product((2, 3), repeat=length)]
    found = beam(decoder, encoded(1, 2, 3), **IDS, width=len(everything), length_penalty=alpha, max_length=longest)
    for source, hypothesis in zip((1, 2, 3), found, strict=True):
        scores = {words: decoder.log_probability(source, words) / penalty(words, alpha) for words in everything}
        best = max(scores, key=scores.__getitem__)
        assert hypothesis.tokens == list(best)
        assert hypothesis.score == pytest.approx(scores[best], abs=1e-5)
        assert hypothesis.log_probability == pytest.approx(decoder.log_probability(source, best), abs=1e-5)


def plain_beam(decoder, source, width, alpha, longest):
    """One sentence, one list of hypotheses, and the rules of `beam` word for word."""
    alive, finished = [(0.0, ())], []
    for length in range(longest + 1):
        words = [EOS] if length == longest else [EOS, 2, 3]
        extended = [
            (total + float(decoder.next((source, (BOS, *before)))[word]), (*before, word))
            for total, before in alive
            for word in words
        ]
        extended.sort(reverse=True)
        ended = [
            (total / penalty(words[:-1], alpha), words[:-1]) for total, words in extended[:width] if words[-1] == EOS
        ]
        finished = (finished + ended)[:width]
        alive = [(total, words) for total, words in extended if words[-1] != EOS][:width]
        if len(finished) == width or not alive:
            break
        if finished and alive[0][0] / penalty(range(longest), alpha) <= max(finished)[0]:
            break
    return max(finished)


@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([0.0, 1.0]))
def test_a_narrow_beam_is_the_plain_one(seed, width, alpha):
    decoder = Table(seed)
    found = beam(decoder, encoded(1, 2), **IDS, width=width, length_penalty=alpha, max_length=5)
    for source, hypothesis in zip((1, 2), found, strict=True):
        score, words = plain_beam(decoder, source, width, alpha, 5)
        assert hypothesis.tokens == list(words)
        assert hypothesis.score == pytest.approx(score, abs=1e-5)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0]), st.integers(0, 2), st.data())
def test_a_wide_beam_ranks_all_sentences(seed, alpha, longest, data):
    decoder = Table(seed)
    everything = [words for length in range(longest + 1) for words in product((2, 3), repeat=length)]
    n_best = data.draw(st.integers(1, len(everything)))
    options = {"width": len(everything), "length_penalty": alpha, "max_length": longest}
    for source, best in zip((1, 2), beam(decoder, encoded(1, 2), **IDS, **options, n_best=n_best), strict=True):
        ranked = sorted(everything, key=lambda words: -decoder.log_probability(source, words) / penalty(words, alpha))
        assert [tuple(one.tokens) for one in (best, *best.next_best)] == ranked[:n_best]


@given(st.integers(0, 10**6), st.integers(2, 4))
def test_the_best_hypothesis_does_not_depend_on_how_many_are_requested(seed, width):
    decoder = Table(seed)
    (alone,) = beam(decoder, encoded(2), **IDS, width=width, max_length=5)
    (best,) = beam(decoder, encoded(2), **IDS, width=width, max_length=5, n_best=width)
    assert (best.tokens, best.score) == (alone.tokens, alone.score)
    assert len({tuple(one.tokens) for one in (best, *best.next_best)}) == 1 + len(best.next_best)
    scores = [one.score for one in (best, *best.next_best)]
    assert scores == sorted(scores, reverse=True)
    with pytest.raises(ArgumentError, match=f"n_best must be from 1 to {width}"):
        beam(decoder, encoded(2), **IDS, width=width, max_length=5, n_best=width + 1)


@given(st.integers(0, 10**6))
def test_a_beam_of_one_is_greedy(seed):
    decoder = Table(seed)
    one = beam(decoder, encoded(3, 1, 2, 3), **IDS, width=1, length_penalty=0.0, max_length=6)
    for wide, narrow in zip(one, greedy(decoder, encoded(3, 1, 2, 3), **IDS, max_length=6), strict=True):
        assert wide.tokens == narrow.tokens
        assert wide.score == pytest.approx(narrow.score, abs=1e-5)
        assert torch.equal(wide.weights, narrow.weights)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_each_sentence_is_found_as_if_alone(seed, width):
    decoder = Table(seed)
    together = beam(decoder, encoded(1, 3, 2, 2), **IDS, width=width, max_length=5)
    for length, hypothesis in zip((1, 3, 2, 2), together, strict=True):
        (alone,) = beam(decoder, encoded(length), **IDS, width=width, max_length=5)
        assert alone.tokens == hypothesis.tokens
        assert alone.score == pytest.approx(hypothesis.score, abs=1e-5)
        assert torch.equal(alone.weights, hypothesis.weights)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_scores_and_weights_are_those_of_the_tokens(seed, width):
    decoder = Table(seed)
    for search in (
        lambda: beam(decoder, encoded(1, 3), **IDS, width=width, max_length=4),
        lambda: greedy(decoder, encoded(1, 3), **IDS, max_length=4),
        lambda: sample(decoder, encoded(1, 3), **IDS, max_length=4),
    ):
        for source, hypothesis in zip((1, 3), search(), strict=True):
            assert hypothesis.log_probability == pytest.approx(
                decoder.log_probability(source, hypothesis.tokens), abs=1e-5
            )
            assert not {BOS, EOS} & set(hypothesis.tokens)
            assert len(hypothesis.tokens) <= 4
            expected = torch.tensor([[source, time, 0.0][:source] for time in range(len(hypothesis.tokens))])
            assert torch.equal(hypothesis.weights, expected.view(-1, source))


def test_a_wider_beam_finds_better_sentences_on_average():
    means = []
    for width in (1, 3, 20):
        scores = [beam(Table(seed), encoded(1), **IDS, width=width, max_length=3)[0].score for seed in range(40)]
        means.append(sum(scores) / len(scores))
    assert means == sorted(means)
    assert means[0] < means[2]


def test_samples_follow_the_model():
    decoder, count = Table(4), 1000
    generator = torch.Generator().manual_seed(0)
    drawn = sample(decoder, encoded(*[2] * count), **IDS, max_length=1, generator=generator)
    allowed = decoder.next((2, (BOS,)))[1:].softmax(-1)  # bos is never written
    counts = torch.tensor([sum(h.tokens == words for h in drawn) for words in ([], [2], [3])]) / count
    torch.testing.assert_close(counts, allowed, atol=0.05, rtol=0)


def test_cold_or_narrow_sampling_is_greedy():
    decoder = Table(9)
    expected = [h.tokens for h in greedy(decoder, encoded(1, 2, 3), **IDS, max_length=5)]
    for options in ({"top_k": 1}, {"temperature": 1e-4}):
        assert [h.tokens for h in sample(decoder, encoded(1, 2, 3), **IDS, max_length=5, **options)] == expected


def test_forbidden_tokens_are_never_written():
    for search in (greedy, sample, beam):
        for seed in range(5):
            for hypothesis in search(Table(seed), encoded(1, 2), **IDS, max_length=5, forbidden=(3,)):
                assert 3 not in hypothesis.tokens


def test_nothing_to_search():
    for search in (greedy, sample, beam):
        assert search(Table(0), encoded(), **IDS) == []


def test_no_room_for_words():
    for search in (greedy, sample, beam):
        (hypothesis,) = search(Table(0), encoded(2), **IDS, max_length=0)
        assert hypothesis.tokens == []
        assert hypothesis.weights.shape == (0, 2)


def test_a_translator_is_searched_row_by_row_and_left_in_its_mode(make, batch):
    local = {"scope": "local-p", "window": 1}
    for attention, options in (("none", {}), ("bahdanau", {}), ("luong", {}), ("luong", local), ("hard", {})):
        model = make(attention=attention, dropout=0.4, decoder_layers=2, **options)
        for width in (1, 3):
            together = model.translate(batch.source, batch.source_lengths, width=width, max_length=6)
            assert model.training
            for row, length in enumerate(batch.source_lengths.tolist()):
                (alone,) = model.translate(
                    batch.source[row : row + 1, :length], torch.tensor([length]), width=width, max_length=6
                )
                assert alone.tokens == together[row].tokens
                assert alone.score == pytest.approx(together[row].score, abs=1e-4)
                if attention == "none":
                    assert alone.weights is None
                else:
                    torch.testing.assert_close(alone.weights, together[row].weights)


@pytest.mark.parametrize(
    ("search", "options", "message"),
    [
        (beam, {"width": 0}, "width must be at least 1; it is 0"),
        (beam, {"length_penalty": -1.0}, "length_penalty must be 0 or more"),
        (sample, {"temperature": 0.0}, "temperature must be above 0"),
        (sample, {"top_k": -1}, "top_k must be 0 or more"),
        (greedy, {"max_length": -1}, "max_length must be 0 or more"),
    ],
)
def test_searches_refuse_wrong_options(search, options, message):
    with pytest.raises(ArgumentError, match=message):
        search(Table(0), encoded(1), **IDS, **options)


def test_unknown_words_become_their_most_attended_source_words():
    weights = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6]])
    assert replace_unknown(["<unk>", "b", "<unk>"], weights, ["x", "y"]) == ["y", "b", "y"]
    assert replace_unknown(["?", "<unk>"], weights[:2], ["x", "y"], unknown="?") == ["y", "<unk>"]
    assert replace_unknown(["<unk>"], None, ["x"]) == ["<unk>"]
    assert replace_unknown([], torch.zeros(0, 1), ["x"]) == []
    assert replace_unknown(["<unk>"], torch.zeros(1, 0), []) == ["<unk>"]
    with pytest.raises(ArgumentError, match="3 tokens and a column for each of 1"):
        replace_unknown(["a"] * 3, weights, ["x"])


@pytest.mark.parametrize("width", [1, 2])
def test_each_sentence_may_have_a_limit_of_its_own(width):
    decoder, limits = Table(3), (0, 5, 2)
    together = beam(decoder, encoded(1, 2, 3), **IDS, width=width, max_length=limits)
    for source, limit, found in zip((1, 2, 3), limits, together, strict=True):
        (alone,) = beam(decoder, encoded(source), **IDS, width=width, max_length=limit)
        assert found.tokens == alone.tokens
        assert len(found.tokens) <= limit
        if width == 1:
            (searched,) = greedy(decoder, encoded(source), **IDS, max_length=[limit])
            assert searched.tokens == found.tokens


def test_limits_must_be_as_many_as_sentences():
    for search in (greedy, beam):
        with pytest.raises(ArgumentError, match="one for each of 2 sentences; it has 1"):
            search(Table(1), encoded(1, 2), **IDS, max_length=[4])
        with pytest.raises(ArgumentError, match="max_length must be 0 or more; it is -1"):
            search(Table(1), encoded(1, 2), **IDS, max_length=[4, -1])


def test_a_state_with_the_former_name_of_a_method_is_told_the_present_one():
    class Former:
        def start(self, encoded):
            return self

        def step(self, tokens, state):
            return torch.zeros(len(tokens), 5).log_softmax(-1), self, None

        def select(self, index):
            return self

        reorder = select

    with pytest.raises(KindError, match=r"Former, needs the method reordered\(index\), .*earlier versions.* reorder"):
        beam(Former(), encoded(3), bos=0, eos=1, width=2, max_length=4)
