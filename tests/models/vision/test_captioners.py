"""Captioners: the equations of Show, Attend and Tell, laws of the loss and of the search, saving and loading."""

from dataclasses import replace

import pytest
import torch

from regard.errors import ArgumentError, UnknownNameError
from regard.models import load_model, save_model
from regard.models.vision.recurrent_captioner import CaptionerConfig, RecurrentCaptioner, doubly_stochastic_loss
from regard.models.vision.transformer_captioner import TransformerCaptioner

IMAGE = {"image_height": 8, "image_width": 12, "grid": 6, "stages": 2, "patch": 2, "target_vocabulary": 13}
KINDS = {
    "soft": (RecurrentCaptioner, CaptionerConfig(**IMAGE, embedding=5, hidden=7)),
    "hard": (RecurrentCaptioner, CaptionerConfig(**IMAGE, attention="hard", embedding=5, hidden=7)),
    "none": (RecurrentCaptioner, CaptionerConfig(**IMAGE, attention="none", embedding=5, hidden=7)),
    "transformer": (
        TransformerCaptioner,
        CaptionerConfig(**IMAGE, architecture="transformer", hidden=6, heads=2, feedforward=5),
    ),
}  # fmt: skip


@pytest.fixture(params=KINDS)
def model(request):
    kind, config = KINDS[request.param]
    return kind(replace(config, dropout=0.0)).eval()


def batch():
    images = torch.randint(0, 256, (2, 8, 12, 3), dtype=torch.uint8)
    target = torch.tensor([[1, 5, 6, 7, 2], [1, 8, 2, 0, 0], [1, 9, 4, 2, 0]])
    return images, torch.tensor([0, 1, 1]), target, torch.tensor([5, 3, 4])


@pytest.mark.parametrize("query_token", [False, True])
def test_the_equations_of_show_attend_and_tell(query_token):
    """One step after the other in float64, from the parameters alone (Xu et al. 2015, eq. 1 to 7, 13)."""
    config = replace(KINDS["soft"][1], dropout=0.0, query_token=query_token)
    model = RecurrentCaptioner(config).double().eval()
    images, owners, target, lengths = batch()
    found = model(images, owners, target, lengths)
    decoder, rnn, score = model.decoder, model.decoder.recurrence.rnn, model.decoder.attention.score
    features = model.encoder.network(model.encoder.pixels(images))
    for row in range(3):
        a = features[owners[row]].flatten(1).T  # L D
        h, c = torch.tanh(decoder.bridge.weight @ a.mean(0) + decoder.bridge.bias).chunk(2)
        for step in range(lengths[row] - 1):
            y = decoder.embedding.weight[target[row, step]]
            query = score.query_projection(torch.cat([h, y]) if query_token else h)
            e = torch.stack([score.weight @ torch.tanh(query + score.key_projection(cell)) for cell in a])
            alpha = e.softmax(0)
            beta = torch.sigmoid(decoder.gate.weight[0] @ h + decoder.gate.bias)
            z = beta * (alpha @ a)
            gates = rnn.weight_ih_l0 @ torch.cat([y, z]) + rnn.bias_ih_l0 + rnn.weight_hh_l0 @ h + rnn.bias_hh_l0
            i, f, g, o = gates.chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            readout = torch.tanh(decoder.readout.linear(torch.cat([h, y, z])))
            assert torch.allclose(found.weights[row, step], alpha, atol=1e-9)
            assert torch.allclose(found.readout[row, step], readout, atol=1e-9)


def test_the_doubly_stochastic_term():
    weights = torch.rand(2, 3, 5, dtype=torch.float64).softmax(-1)
    is_token = torch.tensor([[True, True, True], [True, False, False]])
    expected = 0.0
    for row in range(2):
        for cell in range(5):
            seen = sum(float(weights[row, step, cell]) for step in range(3) if is_token[row, step])
            expected += (1 - seen) ** 2
    assert float(doubly_stochastic_loss(weights, is_token)) == pytest.approx(expected)
    config = replace(KINDS["soft"][1], dropout=0.0)
    plain, with_term = RecurrentCaptioner(config), RecurrentCaptioner(replace(config, doubly_stochastic=0.3))
    with_term.load_state_dict(plain.state_dict())
    images, owners, target, lengths = batch()
    losses = [one.eval().loss(images, owners, target, lengths) for one in (plain, with_term)]
    assert losses[0].nll == losses[1].nll
    seen = plain(images, owners, target, lengths).weights
    steps = torch.arange(4) < (lengths - 1)[:, None]
    extra = 0.3 * doubly_stochastic_loss(seen, steps) / losses[0].tokens
    assert torch.allclose(losses[1].total - losses[0].total, extra, atol=1e-6)


def test_captions_of_one_image_are_those_of_the_image_alone(model):
    """A batch with several captions for an image is the mean of its captions, each with its own image."""
    images, owners, target, lengths = batch()
    whole = model.loss(images, owners, target, lengths)
    total, tokens = 0.0, 0
    for row in range(3):
        length = lengths[row : row + 1]
        one = model.loss(images[owners[row]][None], torch.tensor([0]), target[row : row + 1, : int(length)], length)
        total += float(one.nll) * int(one.tokens)
        tokens += int(one.tokens)
    assert tokens == int(whole.tokens) == 4 + 2 + 3
    assert float(whole.nll) == pytest.approx(total / tokens, rel=1e-5)


def test_padding_has_no_influence(model):
    images, owners, target, lengths = batch()
    first = model.loss(images, owners, target, lengths)
    longer = torch.cat([target, torch.full((3, 2), 11)], 1)
    longer[1, 3:] = 12
    assert model.loss(images, owners, longer, lengths).nll == pytest.approx(float(first.nll), rel=1e-5)


def test_a_caption_has_a_row_of_weights_for_each_token(model):
    images = batch()[0]
    for width in (1, 3):
        for found in model.caption(images, width=width, max_length=4):
            assert len(found.tokens) <= 4
            if not model.attends:
                assert found.weights is None
                continue
            assert found.weights.shape == (len(found.tokens), 12 // 4 * 8 // 4)
            assert torch.allclose(found.weights.sum(-1), torch.ones(len(found.tokens)), atol=1e-5)


def test_a_search_step_is_a_step_with_known_tokens(model):
    images, owners, target, lengths = batch()
    predicted = model(images, owners, target, lengths)
    state = model.start(model.encode(images).select(owners))
    for step in range(2):
        found = model.step(target[:, step], state)
        state = found.state
        expected = predicted.logits[:, step].log_softmax(-1)
        assert torch.allclose(found.log_probabilities, expected.float(), atol=1e-5)


def test_hard_attention_chooses_one_cell_and_trains_by_reinforce():
    model = RecurrentCaptioner(KINDS["hard"][1])
    images, owners, target, lengths = batch()
    predicted = model.train()(images, owners, target, lengths)
    assert set(predicted.weights.detach().unique().tolist()) == {0.0, 1.0}
    assert torch.equal(predicted.weights.sum(-1), torch.ones(3, 4))
    before = float(model.baseline.value)
    model.loss(images, owners, target, lengths).total.backward()
    assert float(model.baseline.value) != before
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
    assert float(model.decoder.attention.score.weight.grad.abs().sum()) > 0


def test_every_parameter_of_a_captioner_learns(model):
    images, owners, target, lengths = batch()
    model.train().loss(images, owners, target, lengths).total.backward()
    # A normalization that begins with a factor of 0 blocks the gradient of what is before it.
    blocked = {name for name, one in model.named_parameters() if one.grad is None}
    assert not blocked


def test_a_saved_captioner_loads_unchanged(model, tmp_path):
    save_model(tmp_path, model)
    again = load_model(tmp_path)
    images, owners, target, lengths = batch()
    assert type(again) is type(model)
    assert again.config == model.config
    assert torch.equal(
        model(images, owners, target, lengths).logits, again(images, owners, target, lengths).logits
    ) or (model.config.attention == "hard")


def test_configurations_out_of_range():
    for bad in (
        {"hidden": 0}, {"dropout": 1.0}, {"doubly_stochastic": -1.0}, {"target_vocabulary": 0}, {"eos": 13},
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=next(iter(bad))):
            CaptionerConfig(**{**IMAGE, **bad})
    with pytest.raises(ArgumentError, match="doubly_stochastic has no meaning with attention 'hard'"):
        CaptionerConfig(**IMAGE, attention="hard", doubly_stochastic=1.0)
    for name in ("attention", "architecture", "readout", "score", "hard_estimator"):
        with pytest.raises(UnknownNameError):
            CaptionerConfig(**IMAGE, **{name: "x"})
    with pytest.raises(ArgumentError, match="heads must divide hidden"):
        CaptionerConfig(**IMAGE, architecture="transformer", hidden=6, heads=4)
