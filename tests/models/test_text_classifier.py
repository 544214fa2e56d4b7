"""The text classifier: padding without effect, windows in linear memory, its file."""

import itertools
from dataclasses import fields

import pytest
import torch

from regard import masks
from regard.errors import ArgumentError, UnknownNameError
from regard.models import TextClassifier, TextClassifierConfig, load_model, save_model
from regard.models.text_classifier import pool

VOCABULARY, LABELS = 23, 3
LENGTHS = torch.tensor([7, 3, 0, 1])
SMALL = {"embedding": 6, "hidden": 8, "heads": 2, "layers": 2, "dropout": 0.0, "word_dropout": 0.0}
SENTENCES = {"architecture": "hierarchical", "sentence_ends": "5 9"}
ENCODERS = ("none", "lstm", "gru", "transformer")
POOLINGS = ("attention", "mean", "max")


def make(**options):
    plain = TextClassifierConfig(architecture=options.get("architecture", "lstm"))
    small = {one.name: SMALL[one.name] for one in fields(plain) if one.name in SMALL and plain.unmet_need(one) is None}
    return TextClassifier(TextClassifierConfig(**{"vocabulary": VOCABULARY, "labels": LABELS, **small, **options}))


def tokens():
    return torch.randint(4, VOCABULARY, (4, 7))


@pytest.mark.parametrize(("encoder", "pooling"), [*itertools.product(ENCODERS, POOLINGS)])
def test_padding_never_affects_a_text_classifier(encoder, pooling):
    model = make(
        architecture=encoder, pooling=pooling, **({"pooling_heads": 2} if pooling == "attention" else {})
    ).eval()
    text = tokens()
    padded = text.masked_fill(torch.arange(7) >= LENGTHS[:, None], 0)
    found = model(padded, LENGTHS, need_weights=True)
    assert found.logits.shape == (4, LABELS)
    assert (found.weights is not None) == (pooling == "attention") == model.attends
    other = model(text, LENGTHS)
    assert torch.equal(found.logits, other.logits)  # neither what padding holds nor the weights matter
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(text[row : row + 1, : max(1, length)], LENGTHS[row : row + 1])
        torch.testing.assert_close(found.logits[row], alone.logits[0])
    torch.testing.assert_close(found.logits[2], model.output.bias)


@pytest.mark.parametrize("encoder", [*ENCODERS, "hierarchical"])
def test_texts_without_any_token(encoder):
    model = make(architecture=encoder).eval()
    logits = model(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)).logits
    torch.testing.assert_close(logits, model.output.bias.expand(2, -1))


def test_mean_and_maximum():
    values = torch.tensor([[[-1.0], [-3.0], [9.0]], [[5.0], [5.0], [5.0]]])
    lengths = torch.tensor([2, 0])
    assert pool(values, lengths, "mean").tolist() == [[-2.0], [0.0]]
    assert pool(values, lengths, "max").tolist() == [[-1.0], [0.0]]


@pytest.mark.parametrize("encoder", [*ENCODERS, "hierarchical"])
def test_every_parameter_gets_a_gradient(encoder):
    model = make(architecture=encoder, **({"position": "learned"} if encoder == "transformer" else {}))
    model(tokens(), LENGTHS).logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_word_dropout_gives_unknown_tokens_in_training_alone(monkeypatch):
    model = make(architecture="none", word_dropout=0.5, unknown=1)
    seen = []
    monkeypatch.setattr(model, "annotations", lambda tokens, lengths: seen.append(tokens) or torch.zeros(4, 7, 6))
    text = tokens()
    model(text, LENGTHS)
    model.eval()(text, LENGTHS)
    dropped = seen[0] != text
    assert 0.2 < dropped.float().mean() < 0.8
    assert (seen[0][dropped] == 1).all()
    assert torch.equal(seen[1], text)


@pytest.mark.parametrize("global_tokens", [0, 2])
def test_a_window_is_a_mask(global_tokens):
    model = make(architecture="transformer", window=1, global_tokens=global_tokens).double().eval()
    text, lengths = tokens(), torch.tensor([7, 5, 2, 1])
    place = torch.arange(7)
    near = (place[:, None] - place).abs() <= 1
    dense = near | (place < global_tokens)
    expected = model.encoder(model.input(text), lengths=lengths, mask=masks.keep(dense))
    torch.testing.assert_close(model.annotations(text, lengths), expected)


@pytest.mark.parametrize("global_tokens", [0, 1])
def test_tokens_outside_of_the_window_never_affect_a_text_classifier(global_tokens):
    model = make(architecture="transformer", window=1, global_tokens=global_tokens, layers=1).eval()
    text = torch.randint(4, VOCABULARY, (1, 7))
    changed = text.clone()
    changed[0, 0] = 4 + (text[0, 0] - 3) % (VOCABULARY - 4)
    lengths = torch.tensor([7])
    differs = (model.annotations(text, lengths) != model.annotations(changed, lengths)).any(-1)[0]
    assert differs.tolist() == [True, True, *[bool(global_tokens)] * 5]


def kept_for_backward(length):
    """Bytes that a windowed model keeps for the backward pass; the gradient must exist."""
    model = make(architecture="transformer", window=8, global_tokens=2, layers=1)
    storages = {}

    def keep(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(torch.randint(4, VOCABULARY, (1, length)), torch.tensor([length])).logits
    logits.sum().backward()
    assert model.input.embedding.weight.grad.isfinite().all()
    return sum(storages.values())


def test_a_window_takes_memory_linear_in_the_length():
    short, long = kept_for_backward(512), kept_for_backward(2048)
    assert long < 4.5 * short
    assert long < 2048 * 2048  # a quarter of one dense matrix of scores


@pytest.mark.parametrize(
    "options", [{"architecture": encoder} for encoder in ENCODERS] + [{"pooling": "max"}, SENTENCES]
)
def test_the_file_has_the_model(tmp_path, options):
    model = make(**options).eval()
    found = load_model(save_model(tmp_path, model))
    assert found.config == model.config
    text = tokens()
    assert torch.equal(found(text, LENGTHS).logits, model(text, LENGTHS).logits)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"architecture": "cnn"}, UnknownNameError, "unknown architecture"),
        ({"pooling": "sum"}, UnknownNameError, "unknown pooling"),
        ({"labels": 0}, ArgumentError, "labels must be at least 1"),
        ({"window": 3}, ArgumentError, "window has no meaning with"),
        ({"architecture": "transformer", "global_tokens": 3}, ArgumentError, "needs window"),
        ({"architecture": "transformer", "heads": 3}, ArgumentError, "heads must divide"),
        ({"dropout": 1.0}, ArgumentError, "dropout must be in"),
        ({"word_dropout": -0.1}, ArgumentError, "word_dropout must be in"),
        ({"unknown": 99}, ArgumentError, "unknown must be a token"),
        ({**SENTENCES, "sentence_ends": "5 99"}, ArgumentError, "sentence_ends must be tokens"),
        ({**SENTENCES, "pooling_heads": 2}, ArgumentError, "pools by attention with one head"),
    ],
)
def test_text_classifiers_refuse_wrong_options(options, error, words):
    with pytest.raises(error, match=words):
        make(**options)
