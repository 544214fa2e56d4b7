"""Searching with an alignment head beside the decoder: its prefixes against all paths, and what it is worth."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.models.recurrent_decoder import SearchStep
from regard.models.search import beam, greedy
from regard.models.speech.ctc import AlignmentHead
from regard.models.speech.joint_search import LOWEST_LOG_PROBABILITY, JointDecoder
from regard.models.speech.transcriber import RecurrentTranscriber, TranscriberConfig

PAD, BOS, EOS, A, B = range(5)
LENGTHS = (5, 3)


class Indifferent:
    """A decoder to which all tokens are equally likely."""

    config = SimpleNamespace(bos=BOS, eos=EOS)

    def start(self, encoded):
        return Rows(len(encoded.lengths))

    def step(self, tokens, state):
        return SearchStep(torch.full((len(tokens), 5), -math.log(5)), state, None)


class Rows:
    def __init__(self, rows):
        self.rows = rows

    def select(self, index):
        return Rows(len(index))

    reordered = select


@pytest.fixture
def head():
    torch.manual_seed(0)
    return AlignmentHead(3, 5, PAD)


@pytest.fixture
def encoded():
    return Encoded(torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1)), torch.tensor(LENGTHS))


def text_of(path):
    return tuple(token for token, _ in itertools.groupby(path) if token != PAD)


def all_texts(head, encoded, row):
    """The probability of each text, summed over all paths."""
    probabilities = head(encoded.annotations)[row].exp().tolist()
    texts = {}
    for path in itertools.product(range(5), repeat=LENGTHS[row]):
        probability = math.prod(probabilities[t][token] for t, token in enumerate(path))
        texts[text_of(path)] = texts.get(text_of(path), 0.0) + probability
    return texts


@torch.no_grad()
@pytest.mark.parametrize("tokens", [(A, B, A), (A, A, A), (B, B), ()], ids=str)
def test_a_prefix_has_the_probability_of_all_texts_that_begin_with_it(head, encoded, tokens):
    decoder = JointDecoder(Indifferent(), head, 1.0)
    step = decoder.step(torch.tensor([BOS, BOS]), decoder.start(encoded))
    for token in tokens:
        step = decoder.step(torch.tensor([token, token]), step.state)
    for row in range(2):
        texts = all_texts(head, encoded, row)

        def begun(prefix, texts=texts):
            return sum(probability for text, probability in texts.items() if text[: len(prefix)] == prefix)

        for token in (A, B, EOS):
            with_token = texts.get(tokens, 0.0) if token == EOS else begun((*tokens, token))
            expected = math.log(with_token / begun(tokens)) if with_token else LOWEST_LOG_PROBABILITY
            assert step.log_probabilities[row, token].item() == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
def test_both_parts_are_weighed(head, encoded):
    first = torch.tensor([BOS, BOS])
    whole = JointDecoder(Indifferent(), head, 1.0)
    part = JointDecoder(Indifferent(), head, 0.25)
    alone, joint = (one.step(first, one.start(encoded)).log_probabilities for one in (whole, part))
    torch.testing.assert_close(joint, 0.25 * alone - 0.75 * math.log(5))


@torch.no_grad()
def test_a_wide_beam_finds_the_most_likely_text(head, encoded):
    found = beam(
        JointDecoder(Indifferent(), head, 1.0), encoded, bos=BOS, eos=EOS, width=60, length_penalty=0.0, max_length=6,
        forbidden=[PAD],
    )  # fmt: skip
    for row, hypothesis in enumerate(found):
        texts = {text: p for text, p in all_texts(head, encoded, row).items() if not {BOS, EOS} & set(text)}
        best = max(texts, key=lambda text: texts[text])
        assert tuple(hypothesis.tokens) == best
        assert hypothesis.log_probability == pytest.approx(math.log(texts[best]), abs=1e-5)


@torch.no_grad()
def test_a_text_that_no_path_gives_is_still_ended(head):
    short = Encoded(torch.randn(1, 1, 3), torch.tensor([1]))
    found = beam(JointDecoder(Indifferent(), head, 0.5), short, bos=BOS, eos=EOS, width=3, max_length=4)
    assert math.isfinite(found[0].score)


@torch.no_grad()
@pytest.mark.parametrize("width", [1, 4])
def test_a_row_does_not_depend_on_its_batch(head, encoded, width):
    decoder = JointDecoder(Indifferent(), head, 0.7)

    def search(given):
        options = {"bos": BOS, "eos": EOS, "max_length": 5}
        return beam(decoder, given, width=width, **options) if width > 1 else greedy(decoder, given, **options)

    together = search(encoded)
    for row in range(2):
        (alone,) = search(encoded.select(torch.tensor([row])))
        assert alone.tokens == together[row].tokens
        assert alone.score == pytest.approx(together[row].score, abs=1e-5)


CONFIG = TranscriberConfig(width=4, target_vocabulary=7, hidden=8, decoder_hidden=8, ctc_weight=0.3)


def test_a_transcriber_is_searched_with_its_head():
    torch.manual_seed(0)
    model = RecurrentTranscriber(CONFIG)
    source, lengths = torch.randn(2, 40, 4), torch.tensor([40, 25])
    assert model.searched(0.0) is model
    alone = model.translate(source, lengths, width=3)
    joint = model.translate(source, lengths, width=3, decoder=model.searched(0.5))
    assert all(one.weights is not None and one.score != other.score for one, other in zip(joint, alone, strict=True))
    headless = RecurrentTranscriber(replace(CONFIG, ctc_weight=0.0))
    with pytest.raises(ArgumentError, match="without an alignment head"):
        headless.searched(0.5)
