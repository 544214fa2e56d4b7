"""Pointer-generators: without copying they are translators; their steps, their loss and their file."""

import dataclasses

import pytest
import torch

from regard.errors import ArgumentError
from regard.models import (
    PointerConfig,
    RecurrentPointerGenerator,
    TransformerPointerGenerator,
    beam,
    greedy,
    load_model,
    save_model,
)
from regard.models.copying import coverage_loss
from tests.models.conftest import VOCABULARY

KINDS = {
    "bahdanau": {"attention": "bahdanau"},
    "bahdanau coverage": {"attention": "bahdanau", "coverage": True, "coverage_weight": 0.7},
    "luong": {"attention": "luong"},
    "luong coverage": {"attention": "luong", "score": "additive", "coverage": True},
    "two layers": {"attention": "bahdanau", "coverage": True, "decoder_layers": 2, "architecture": "gru"},
    "transformer": {"architecture": "transformer"},
    "transformer coverage": {"architecture": "transformer", "coverage": True, "coverage_weight": 0.7},
}


def make(**options):
    torch.manual_seed(11)
    if options.get("architecture") == "transformer":
        sizes = {"hidden": 12, "heads": 2, "feedforward": 17, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
        config = PointerConfig(VOCABULARY, VOCABULARY, **{**sizes, **options})
        return TransformerPointerGenerator(config).double().eval()
    sizes = {"embedding": 10, "hidden": 14, "dropout": 0.0}
    config = PointerConfig(VOCABULARY, VOCABULARY, **{**sizes, **options})
    return RecurrentPointerGenerator(config).double().eval()


@pytest.fixture
def extended(batch):
    """The batch with words out of the vocabulary: two in the first source, one in the second."""
    source, target = batch.source.clone(), batch.target.clone()
    source[0, :3] = torch.tensor([VOCABULARY, VOCABULARY + 1, VOCABULARY])
    source[1, 1] = VOCABULARY
    target[0, 1:3] = torch.tensor([VOCABULARY + 1, VOCABULARY])
    target[1, 2] = VOCABULARY
    return batch._replace(source=source, target=target)


def stepped(model, batch):
    """The log-probabilities and weights of all steps of the search, with true tokens."""
    state = model.start(model.encode(batch.source, batch.source_lengths))
    steps = []
    for time in range(batch.target.shape[1] - 1):
        found, state, weights = model.step(batch.target[:, time], state)
        steps.append((found, weights))
    return [torch.stack(column, dim=1) for column in zip(*steps, strict=True)]


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_each_step_is_a_distribution_and_the_loss_is_its_mean(extended, options):
    model = make(**options)
    found, weights = stepped(model, extended)
    assert found.shape[-1] == VOCABULARY + 2
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(found.shape[:-1]))
    # A row has no probability for the words of another row.
    assert (found[1, :, VOCABULARY + 1] == -torch.inf).all()
    assert (found[2:, :, VOCABULARY:] == -torch.inf).all()
    labels = extended.target[:, 1:]
    is_token = torch.arange(labels.shape[1]) < (extended.target_lengths - 1)[:, None]
    nll = -found.gather(-1, labels[..., None]).squeeze(-1)[is_token].mean()
    loss = model.loss(*extended)
    torch.testing.assert_close(loss.nll.float(), nll)
    expected = loss.nll
    if options.get("coverage"):
        covered = coverage_loss(weights.double(), is_token) / is_token.sum()
        assert covered > 0
        expected = expected + model.config.coverage_weight * covered
    torch.testing.assert_close(loss.total, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_without_copying_it_is_the_translator(extended, options):
    model = make(**{**options, "copy": False, "coverage": False, "coverage_weight": 1.0})
    within = extended._replace(
        source=model.known(extended.source), target=model.known(extended.target)
    )  # fmt: skip
    for smoothing in (0.0, 0.1):
        found = model.loss(*extended, label_smoothing=smoothing)
        expected = model.translator.loss(*within, label_smoothing=smoothing)
        assert torch.equal(found.total, expected.total)
        assert torch.equal(found.nll, expected.nll)
    log_probabilities, _ = stepped(model, extended)
    expected = model.translator(*within[:3]).logits.log_softmax(-1).float()
    torch.testing.assert_close(log_probabilities, expected)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_searches_feed_words_out_of_the_vocabulary_back_as_unknown(extended, options):
    model = make(**options)
    # A gate that always copies.
    torch.nn.init.zeros_(model.gate.linear.weight)
    torch.nn.init.constant_(model.gate.linear.bias, -50.0)
    limits = {"bos": 1, "eos": 2, "max_length": 7, "forbidden": (0,)}
    encoded = model.encode(extended.source, extended.source_lengths)
    for hypotheses in (greedy(model, encoded, **limits), beam(model, encoded, width=3, **limits)):
        for row, found in enumerate(hypotheses):
            assert set(found.tokens) <= set(extended.source[row].tolist())
            assert found.weights.shape == (len(found.tokens), extended.source_lengths[row])
    alone = model.encode(extended.source[:1], extended.source_lengths[:1])
    (single,) = beam(model, alone, width=3, **limits)
    assert single.tokens == hypotheses[0].tokens
    assert any(token >= VOCABULARY for found in hypotheses for token in found.tokens)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_every_parameter_learns_and_survives_its_file(extended, options, tmp_path):
    model = make(**options).train()
    model.loss(*extended).total.backward()
    without = [name for name, each in model.named_parameters() if each.grad is None or not each.grad.any()]
    # The output's softmax and a bias of keys are blind to a constant.
    assert [name for name in without if "in_proj_bias" not in name] == []
    model = model.float().eval()
    loaded = load_model(save_model(tmp_path, model))
    assert torch.equal(loaded.loss(*extended).total, model.loss(*extended).total)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_padding_never_affects_the_pointer_generator(extended, options):
    model = make(**options)
    alone = [
        model.loss(*(each[row : row + 1] for each in extended)).nll * (extended.target_lengths[row] - 1)
        for row in range(7)
    ]
    whole = model.loss(*extended).nll * (extended.target_lengths - 1).sum()
    torch.testing.assert_close(torch.stack(alone).sum(), whole)


def test_the_copied_place_holds_the_word(extended):
    model = make(attention="bahdanau")
    found = model.copied(*extended)
    assert found.position[0, :2].tolist()[0] == 1
    assert found.position[0, 1] in (0, 2)
    assert found.share[0, :2].tolist() == [1, 1]
    assert not make(attention="bahdanau", copy=False).copied(*extended).share.any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attention": "none"}, "attention"),
        ({"attention": "hard"}, "attention"),
        ({"score": "general", "coverage": True}, "additive"),
        ({"attention": "luong", "score": "additive", "coverage": True, "input_feeding": False}, "input_feeding"),
        ({"coverage_weight": -1.0}, "coverage_weight"),
        ({"unk": VOCABULARY}, "unk"),
    ],
)
def test_models_that_cannot_copy_are_refused(options, words):
    with pytest.raises(ArgumentError, match=words):
        make(**options)


def test_two_vocabularies_are_refused():
    with pytest.raises(ArgumentError, match="one vocabulary"):
        PointerConfig(VOCABULARY, VOCABULARY + 1)


def test_the_pointer_generator_refuses_scheduled_sampling(extended):
    with pytest.raises(ArgumentError, match="sampling_probability"):
        make(attention="bahdanau").loss(*extended, sampling_probability=0.5)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_words_out_of_the_vocabulary_are_read_as_unknown(extended, options):
    model = make(**options)
    unknown = extended.source.masked_fill(extended.source >= VOCABULARY, model.config.unk)
    encoded = model.encode(extended.source, extended.source_lengths)
    assert torch.equal(encoded.annotations, model.encode(unknown, extended.source_lengths).annotations)
    state = model.start(encoded)
    found, _, _ = model.step(torch.full((7,), VOCABULARY + 1), state)
    expected, _, _ = model.step(torch.full((7,), model.config.unk), state)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["bahdanau coverage", "luong coverage", "two layers"])
def test_the_score_sees_the_sum_of_all_earlier_weights(extended, name):
    model = make(**KINDS[name])
    state = model.start(model.encode(extended.source, extended.source_lengths))
    total = torch.zeros(7, 5, dtype=torch.float64)
    for time in range(4):
        _, state, weights = model.step(extended.target[:, time], state)
        total += weights
        torch.testing.assert_close(state.decoder.earlier.total.double(), total, atol=1e-6, rtol=0)
    _, _, seen = model.step(extended.target[:, 4], state)
    uncovered = dataclasses.replace(state, decoder=dataclasses.replace(state.decoder, earlier=None))
    _, _, unseen = model.step(extended.target[:, 4], uncovered)
    assert not torch.allclose(seen, unseen)
