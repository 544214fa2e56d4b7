"""The hierarchical attention network is that of its paper, sentence by sentence, on a CPU and as on a device."""

import pytest
import torch

from regard.models import hierarchical_encoder
from regard.models.hierarchical_encoder import HierarchicalEncoder

TEXTS = [
    [[7, 8, 4], [9, 10, 11, 5, 4], [7, 4]],  # "?!" is one end
    [[6, 7, 8, 9, 10], [11, 12, 13]],  # no end: a sentence of the greatest length, and the rest
    [[5]],
    [],
]


def batch():
    rows = [torch.tensor([word for sentence in text for word in sentence], dtype=torch.int64) for text in TEXTS]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=4)
    return tokens, torch.tensor([len(row) for row in rows])


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return HierarchicalEncoder(torch.nn.Embedding(14, 6), 8, ends=[4, 5], longest=5).double().eval()


def pooled(pooling, annotations):
    """Yang et al. 2016, equations 5 to 7, for one sequence: α and the sum."""
    hidden = torch.tanh(annotations @ pooling.score.key_projection.weight.T + pooling.query[0])
    weights = (hidden @ pooling.score.weight[0]).exp()
    weights = weights / weights.sum()
    return weights, weights @ annotations


@pytest.mark.parametrize("device", [False, True], ids=["sizes known", "sizes unknown"])
def test_words_then_sentences(encoder, device, monkeypatch):
    if device:
        monkeypatch.setattr(hierarchical_encoder, "can_read", lambda *tensors: False)
    tokens, lengths = batch()
    found = encoder(tokens, lengths, need_weights=True)
    assert torch.equal(encoder(tokens, lengths).output, found.output)
    for row, text in enumerate(TEXTS):
        expected = [number for number, sentence in enumerate(text) for _ in sentence]
        assert encoder.sentences(tokens, lengths)[row].tolist() == expected + [-1] * (10 - len(expected))
        weights, vector = torch.zeros(10, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
        if text:
            read = [encoder.words.rnn(encoder.embedding(torch.tensor(sentence))[None])[0][0] for sentence in text]
            parts = [pooled(encoder.word_pooling, annotations) for annotations in read]
            states = encoder.texts(torch.stack([vector for _, vector in parts])[None])[0][0]
            of_sentence, vector = pooled(encoder.sentence_pooling, states)
            whole = torch.cat([weight * of_sentence[number] for number, (weight, _) in enumerate(parts)])
            weights[: len(whole)] = whole
        torch.testing.assert_close(found.output[row], vector)
        torch.testing.assert_close(found.weights[row, 0], weights)
