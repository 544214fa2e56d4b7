"""The Transformer that translates: its loss, its steps, its file."""

import pytest
import torch
from torch.nn import functional as F

from regard.errors import ArgumentError, UnknownNameError
from regard.models import TransformerTranslator, TranslatorConfig, beam, greedy, load_model, save_model

VOCABULARY = 13
KINDS = {
    "default": {},
    "post-norm": {"norm": "post"},
    "grouped": {"kv_heads": 1},
    "learned": {"position": "learned"},
    "rotary": {"position": "rotary"},
    "alibi": {"position": "alibi"},
    "t5": {"position": "t5"},
    "shaw": {"position": "shaw"},
    "none": {"position": "none"},
    "additive": {"score": "additive"},
    "sparsemax": {"normalizer": "sparsemax"},
    "all tied": {"tied": "all"},
    "untied": {"tied": "none"},
}


def make(**options):
    torch.manual_seed(11)
    sizes = {
        "architecture": "transformer",
        "hidden": 12,
        "heads": 2,
        "feedforward": 17,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "dropout": 0.0,
    }
    return TransformerTranslator(TranslatorConfig(VOCABULARY, VOCABULARY, **{**sizes, **options})).double().eval()


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_steps_of_a_transformer_translator_give_the_whole_prediction(batch, options):
    model = make(**options)
    whole = model(*batch)
    expected = whole.logits.log_softmax(-1)
    state = model.start(model.encode(batch.source, batch.source_lengths))
    for time in range(batch.target.shape[1] - 1):
        found, state, weights = model.step(batch.target[:, time], state)
        seen = time < batch.target_lengths - 1
        torch.testing.assert_close(found[seen], expected[seen, time].float())
        torch.testing.assert_close(weights[seen], whole.weights[seen, time].float())
        torch.testing.assert_close(weights.sum(-1), torch.ones(len(weights)))


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_the_loss_is_the_mean_cross_entropy_of_target_tokens(batch, options):
    model = make(**options)
    logits = model(*batch).logits
    labels = batch.target[:, 1:].clone()
    labels[torch.arange(labels.shape[1]) >= (batch.target_lengths - 1)[:, None]] = -100
    for smoothing in (0.0, 0.1):
        expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
        torch.testing.assert_close(model.loss(*batch, label_smoothing=smoothing).total, expected)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_every_parameter_of_a_transformer_translator_learns(batch, options):
    model = make(**options).train()
    model.loss(*batch).total.backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without
    # A bias of the keys is the same for all keys of a query: softmax removes it.
    zero = [name for name, parameter in model.named_parameters() if not parameter.grad.any()]
    assert not zero


def test_padding_never_affects_a_transformer_translator(batch):
    model = make()
    padded = [F.pad(batch.source, (0, 3), value=4), batch.source_lengths, F.pad(batch.target, (0, 2), value=5)]
    longer = model(*padded, batch.target_lengths)
    shorter = model(*batch)
    seen = torch.arange(batch.target.shape[1] - 1) < (batch.target_lengths - 1)[:, None]
    torch.testing.assert_close(longer.logits[:, : seen.shape[1]][seen], shorter.logits[seen])
    torch.testing.assert_close(model.loss(*padded, batch.target_lengths), model.loss(*batch))


@pytest.mark.parametrize("width", [1, 3])
def test_a_search_over_a_batch_is_that_over_each_sentence(batch, width):
    model = make().float()
    ids = {"bos": 1, "eos": 2, "max_length": 9, "forbidden": (0,)}

    def search(source, lengths):
        encoded = model.encode(source, lengths)
        return greedy(model, encoded, **ids) if width == 1 else beam(model, encoded, width=width, **ids)

    together = search(batch.source, batch.source_lengths)
    for row, found in enumerate(together):
        length = batch.source_lengths[row]
        (alone,) = search(batch.source[row : row + 1, :length], batch.source_lengths[row : row + 1])
        assert found.tokens == alone.tokens
        assert found.score == pytest.approx(alone.score, abs=1e-4)
        torch.testing.assert_close(found.weights, alone.weights)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_saved_model_is_the_same(batch, options, tmp_path):
    model = make(**options).float()
    loaded = load_model(save_model(tmp_path, model))
    assert loaded.config == model.config
    assert torch.equal(loaded(*batch).logits, model(*batch).logits)


def test_transformer_translators_name_wrong_arguments(batch):
    with pytest.raises(UnknownNameError, match="position"):
        make(position="nowhere")
    with pytest.raises(ArgumentError, match="heads must divide hidden"):
        make(heads=5)
    with pytest.raises(ArgumentError, match="one vocabulary"):
        TranslatorConfig(5, 6, tied="all")
    with pytest.raises(ArgumentError, match="sampling_probability"):
        make()(*batch, sampling_probability=0.5)
    with pytest.raises(ArgumentError, match="positions must be in"):
        make(position="learned", max_length=3)(*batch)
