"""Laws that hold for every kind of decoder, whole (teacher-forced) and word by word."""

import pytest
import torch
from torch.nn import functional as F

from regard.errors import ArgumentError, UnknownNameError
from regard.models.luong_decoder import local_mask, monotonic_center
from regard.shapes.grid import Grid

KINDS = {
    "none": {"attention": "none"},
    "bahdanau": {"attention": "bahdanau"},
    "bahdanau-maxout-dot": {"attention": "bahdanau", "readout": "maxout", "score": "dot"},
    "luong": {"attention": "luong"},
    "luong-fused": {"attention": "luong", "input_feeding": False},
    "luong-dot": {"attention": "luong", "score": "dot", "readout": "maxout"},
    "luong-concat": {"attention": "luong", "score": "concat", "input_feeding": False},
    "luong-location": {"attention": "luong", "score": "location", "max_source": 17},
    "luong-local-m": {"attention": "luong", "scope": "local-m", "window": 1},
    "luong-local-m-fused": {"attention": "luong", "scope": "local-m", "window": 1, "input_feeding": False},
    "luong-local-p": {"attention": "luong", "scope": "local-p", "window": 1},
    "luong-local-p-fused": {"attention": "luong", "scope": "local-p", "window": 1, "input_feeding": False},
    "monotonic": {"attention": "monotonic", "readout": "maxout"},
    "chunkwise": {"attention": "chunkwise", "chunk_width": 2, "score": "general"},
    "stepwise": {"attention": "stepwise"},
    "forward": {"attention": "forward", "score": "coverage"},
    "coverage": {"attention": "bahdanau", "score": "coverage"},
    "luong-coverage": {"attention": "luong", "score": "coverage"},
    "hard": {"attention": "hard"},
    "hard-straight": {"attention": "hard", "hard_estimator": "straight_through"},
}
everywhere = pytest.mark.parametrize("kind", KINDS)
attending = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
networks = pytest.mark.parametrize(("cell", "layers"), [("lstm", 1), ("lstm", 2), ("gru", 1), ("gru", 2)])


@everywhere
@pytest.mark.parametrize(("cell", "layers"), [("lstm", 1), ("gru", 2)])
def test_learns_seven_pairs(kind, cell, layers, make, batch):
    model = make(**KINDS[kind], architecture=cell, decoder_layers=layers, encoder_layers=layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(12):
        loss = model.loss(*batch, label_smoothing=0.0)
        optimizer.zero_grad()
        loss.total.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
        losses.append(loss.nll.item())
    assert losses[-1] < 0.8 * losses[0]


@everywhere
@networks
def test_word_by_word_equals_teacher_forced(kind, cell, layers, make, batch):
    model = make(**KINDS[kind], architecture=cell, decoder_layers=layers).eval().double()
    whole = model(*batch)
    expected = whole.logits.log_softmax(-1)
    state = model.start(model.encode(batch.source, batch.source_lengths))
    for time in range(batch.target.shape[1] - 1):
        log_probabilities, state, weights = model.step(batch.target[:, time], state)
        torch.testing.assert_close(log_probabilities.double(), expected[:, time], atol=1e-5, rtol=1e-5)
        if whole.weights is None:
            assert weights is None
        else:
            torch.testing.assert_close(weights, whole.weights[:, time])


@everywhere
def test_padding_changes_no_logits(kind, make, batch):
    model = make(**KINDS[kind]).eval().double()
    plain = model(*batch)
    padded = model(
        F.pad(batch.source, (0, 3), value=7), batch.source_lengths, F.pad(batch.target, (0, 2)), batch.target_lengths
    )
    steps = batch.target.shape[1] - 1
    torch.testing.assert_close(padded.logits[:, :steps], plain.logits)
    for row, length in enumerate(batch.source_lengths.tolist()):
        alone = model(batch.source[row : row + 1, :length], torch.tensor([length]), batch.target[row : row + 1])
        torch.testing.assert_close(alone.logits, plain.logits[row : row + 1])


@everywhere
def test_padding_changes_no_loss_and_no_gradient(kind, make, batch):
    if kind in ("hard", "monotonic", "chunkwise", "stepwise"):
        pytest.skip("draws numbers in training")
    gradients = []
    for extra in (0, 3):
        model = make(**KINDS[kind]).double()
        if kind == "hard-straight":
            model.eval()
        wider = F.pad(batch.source, (0, extra)), batch.source_lengths, F.pad(batch.target, (0, extra))
        loss = model.loss(*wider, batch.target_lengths)
        loss.total.backward()
        gradients.append([loss.total, loss.nll, loss.tokens, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*gradients)
    assert gradients[0][2] == sum(batch.target_lengths - 1)


@attending
def test_weights_are_a_distribution_over_the_source(kind, make, batch):
    weights = make(**KINDS[kind])(*batch).weights
    seen = torch.arange(5) < batch.source_lengths[:, None]
    assert not weights[~seen[:, None].expand_as(weights)].any()
    assert weights.min() >= 0
    total = weights.sum(-1)
    if "local-p" in kind or kind in ("monotonic", "chunkwise", "stepwise"):
        assert ((total > 0) & (total <= 1 + 1e-6)).all()
    if kind in ("monotonic", "chunkwise", "stepwise"):
        assert (weights[:, 1:].sum(-1) <= weights[:, :-1].sum(-1) + 1e-6).all()
    elif "local-p" not in kind:
        torch.testing.assert_close(total, torch.ones_like(total))


@attending
def test_an_empty_source_attends_to_nothing(kind, make, batch):
    lengths = batch.source_lengths.clone()
    lengths[2] = 0
    model = make(**KINDS[kind])
    loss = model.loss(batch.source, lengths, batch.target, batch.target_lengths)
    loss.total.backward()
    assert not model(batch.source, lengths, batch.target).weights[2].any()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("input_feeding", [True, False])
def test_local_m_sees_a_window_that_moves_with_the_words(input_feeding, make, batch):
    weights = make(attention="luong", scope="local-m", window=1, input_feeding=input_feeding)(*batch).weights
    for row, length in enumerate(batch.source_lengths.tolist()):
        for time in range(weights.shape[1]):
            center = min(time, length - 1)
            expected = [abs(key - center) <= 1 and key < length for key in range(5)]
            assert (weights[row, time] > 0).tolist() == expected


def test_local_p_sees_a_window_around_its_prediction(make, batch):
    model = make(attention="luong", scope="local-p", window=1, input_feeding=False).double()
    decoder = model.decoder
    state = model.start(model.encode(batch.source, batch.source_lengths))
    hidden, _ = decoder.recurrence(decoder.embedding(batch.target[:, :-1]), state.recurrent)
    center = decoder.position(hidden, batch.source_lengths)
    weights = decoder.attend(hidden, state).weights
    keys = torch.arange(5)
    distance = (keys - center[..., None]).abs()
    seen = (distance <= 1) & (keys < batch.source_lengths[:, None, None])
    assert torch.equal(weights > 0, seen)
    query = decoder.attention.score.project_query(hidden[:, None])[:, 0]
    scores = (query @ state.memory.key.mT).masked_fill(~seen, -torch.inf)
    expected = scores.softmax(-1).nan_to_num() * torch.exp(-distance.square() / (2 * 0.5**2))
    torch.testing.assert_close(weights, expected)


def test_windows_of_decoders_stay_within_the_lengths():
    lengths = torch.tensor([3, 0])
    center = monotonic_center(1, 3, lengths)
    assert center.tolist() == [[1, 2, 2], [0, 0, 0]]
    allowed = local_mask(center, 4, 1).allows(Grid.whole(2, 1, 3, 4))
    assert allowed.shape == (2, 1, 3, 4)
    assert allowed[0, 0].tolist() == [[True, True, True, False]] + 2 * [[False, True, True, True]]


def test_hard_attention_chooses_one_annotation(make, batch):
    for estimator in ("reinforce", "straight_through"):
        model = make(attention="hard", hard_estimator=estimator)
        for mode in (True, False):
            weights = model.train(mode)(*batch).weights
            torch.testing.assert_close(weights.amax(-1), torch.ones(7, 5))
            assert (weights > 0.5).sum(-1).eq(1).all()


def test_hard_attention_updates_its_baseline_in_training_only(make, batch):
    model = make(attention="hard")
    model.eval().loss(*batch)
    assert model.baseline.value == 0
    loss = model.train().loss(*batch)
    torch.testing.assert_close(model.baseline.value, -0.1 * loss.nll)


@everywhere
def test_scheduled_sampling_without_sampling_is_teacher_forcing(kind, make, batch):
    model = make(**KINDS[kind]).eval()
    state = model.start(model.encode(batch.source, batch.source_lengths))
    inputs = batch.target[:, :-1]
    torch.testing.assert_close(
        model.decoder.decode_sampling(inputs, state, 0.0).readout, model.decoder.decode(inputs, state).readout
    )


@everywhere
def test_scheduled_sampling_feeds_the_models_own_words(kind, make, batch):
    model = make(**KINDS[kind]).eval()
    own = model(*batch, sampling_probability=1.0).logits.argmax(-1)
    target = torch.cat([batch.target[:, :1], own], dim=1)
    assert torch.equal(model(batch.source, batch.source_lengths, target).logits.argmax(-1), own)


def test_dropout_is_off_in_evaluation(make, batch):
    for kind in ("none", "bahdanau", "luong"):
        model = make(**KINDS[kind], dropout=0.5, decoder_layers=2)
        assert not torch.equal(model(*batch).logits, model(*batch).logits)
        model.eval()
        assert torch.equal(model(*batch).logits, model(*batch).logits)


def test_autocast_stays_close(make, batch):
    for kind in ("none", "bahdanau", "luong", "luong-fused", "luong-local-p"):
        model = make(**KINDS[kind])
        exact = model.loss(*batch).total
        with torch.autocast("cpu", torch.bfloat16):
            half = model.loss(*batch).total
            half.backward()
        torch.testing.assert_close(half, exact, atol=0.03, rtol=0.03)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "bahdanua"}, "did you mean 'bahdanau'"),
        ({"score": "aditive"}, "did you mean 'additive'"),
        ({"hidden": 7}, "hidden must be even"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"decoder_layers": 0}, "decoder_layers must be from 1 to 100; it is 0"),
        ({"scope": "local-p"}, "scope has no meaning with attention 'bahdanau', only with 'luong'"),
        ({"eos": 13}, "eos must be a target token; it is 13"),
    ],
)
def test_decoders_refuse_wrong_options(options, message, make):
    with pytest.raises(ArgumentError, match=message):
        make(**options)


def test_bad_sampling_probability(make, batch):
    with pytest.raises(ArgumentError, match="sampling_probability"):
        make()(*batch, sampling_probability=1.5)


def test_an_unknown_readout(make):
    with pytest.raises(UnknownNameError, match="readout 'relu'"):
        make(readout="relu")


def test_tied_embeddings_share_their_weights(make):
    ties = {}
    for tie in ("none", "target", "all"):
        model = make(tied=tie)
        target, output = model.decoder.embedding.weight, model.decoder.output.weight
        ties[tie] = output is target, model.encoder.embedding.weight is target
    assert ties == {"none": (False, False), "target": (True, False), "all": (True, True)}


def test_the_gate_of_a_decoder_is_no_option_by_place(make):
    decoder = make().decoder
    parts = decoder.embedding, decoder.output, decoder.attention, 4, 4, 6, 1, "lstm", "tanh", 0.0, None
    with pytest.raises(TypeError, match="positional"):  # covers was here
        type(decoder)(*parts, True)
