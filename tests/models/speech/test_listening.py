"""Laws of models that listen: padding, features, the location-aware decoder, the pyramid, windows, transcribers."""

import math
from itertools import groupby, product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.errors import ArgumentError, UnknownNameError
from regard.models.bahdanau_decoder import window_around
from regard.models.checkpoint import load_model, save_model
from regard.models.encoders import Encoded
from regard.models.speech.ctc import AlignmentHead, fewest_annotations
from regard.models.speech.encoders import BidirectionalLayer, Frames, HalvingConvolution, SpeechEncoder
from regard.models.speech.encoders import SpeechEncoderConfig as EncoderConfig
from regard.models.speech.feature_input import FeatureInput, SpecAugment, deltas, normalized
from regard.models.speech.focus import focus, smoothed
from regard.models.speech.sound_classifier import SoundClassifier, SoundClassifierConfig
from regard.models.speech.transcriber import RecurrentTranscriber, TranscriberConfig, TransformerTranscriber

WIDTH, VOCABULARY = 7, 11
SMALL = {"width": WIDTH, "hidden": 12, "channels": 5, "dropout": 0.0}


def sounds(lengths=(13, 29, 1, 22), seed=1):
    random = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths)
    return torch.randn(len(lengths), int(lengths.max()), WIDTH, generator=random), lengths


def make(kind="recurrent", **options):
    torch.manual_seed(4)
    shape = {**SMALL, "target_vocabulary": VOCABULARY, "ctc_weight": 0.0, **options}
    if kind == "transformer":
        shape |= {"architecture": "transformer", "encoder_layers": 2, "heads": 3, "feedforward": 17}
        return TransformerTranscriber(TranscriberConfig(**shape)).eval()
    if kind in ("monotonic", "chunkwise"):
        shape |= {"attention": kind}
    if options.get("score", "location_aware") in ("location_aware", "additive"):
        shape |= {"score_features": 8}
    return RecurrentTranscriber(TranscriberConfig(**{"embedding": 6, "decoder_hidden": 10, **shape})).eval()


TARGET, TARGET_LENGTHS = (
    torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0], [1, 8, 9, 2], [1, 2, 0, 0]]),
    torch.tensor([4, 3, 4, 2]),
)


# --- features


def test_deltas_are_the_slope_of_the_best_line():
    """Furui's equation: over five frames, the slope of the line with the least squared error."""
    features, lengths = sounds((9, 6))
    found = deltas(features.double(), lengths)
    for row, length in enumerate(lengths.tolist()):
        for t in range(length):
            places = [min(max(t + n, 0), length - 1) for n in range(-2, 3)]
            line = np.polyfit(np.arange(-2, 3), features[row, places].double().numpy(), 1)[0]
            np.testing.assert_allclose(found[row, t].numpy(), line, atol=1e-9)
    assert found[1, 6:].abs().sum() == 0


def test_utterances_have_mean_0_and_variance_1_whatever_is_behind_them():
    features, lengths = sounds()
    module = FeatureInput(WIDTH, order=2).eval()
    poisoned = features.clone()
    poisoned[torch.arange(features.shape[1]) >= lengths[:, None]] = math.nan
    found = module(poisoned, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = module(features[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(found[row, :, :length], alone[0])
        assert found[row, :, length:].abs().sum() == 0
        if length > 5:
            torch.testing.assert_close(alone.mean(2), torch.zeros(1, 3, WIDTH), atol=1e-5, rtol=0)
            torch.testing.assert_close(alone.var(2, correction=0), torch.ones(1, 3, WIDTH), atol=1e-4, rtol=0)


def test_a_constant_feature_stays_finite():
    found = normalized(torch.full((1, 1, 5, 2), 3.0), torch.tensor([5]))
    assert found.abs().max() < 1e-3


def test_corpus_statistics_are_those_of_all_frames():
    features, lengths = sounds()
    module = FeatureInput(WIDTH, normalization="corpus").eval()
    module.fit([(features[:2], lengths[:2]), (features[2:], lengths[2:])])
    frames = torch.cat([features[row, :length] for row, length in enumerate(lengths.tolist())])
    torch.testing.assert_close(module.mean[0], frames.mean(0))
    torch.testing.assert_close(module.deviation[0], frames.std(0, correction=0))
    found = module(features, lengths)
    torch.testing.assert_close(found[1, 0, :29], (features[1, :29] - frames.mean(0)) / frames.std(0, correction=0))
    with pytest.raises(ArgumentError, match="no frames"):
        module.fit([])


def test_masks_are_blocks_of_zeros_within_the_sound_and_only_while_training():
    lengths = torch.tensor([40, 25])
    channels = torch.ones(2, 1, 40, 16) * (torch.arange(40) < lengths[:, None])[:, None, :, None]
    masks = SpecAugment(time_masks=1, longest=9, feature_masks=1, widest=3, share=0.5)
    seen_time, seen_features = set(), set()
    for _ in range(60):
        found = masks(channels, lengths)
        for row, length in enumerate(lengths.tolist()):
            hidden = found[row, 0, :length] == 0
            time, features = hidden.all(1), hidden.all(0)
            assert (hidden == (time[:, None] | features)).all()
            for line, most, seen in ((time, 9, seen_time), (features, 3, seen_features)):
                count = int(line.sum())
                assert count <= most
                assert int((line[1:] != line[:-1]).sum()) <= 2  # one block
                seen.add(count)
    assert seen_time == set(range(10))
    assert seen_features == set(range(4))
    module = FeatureInput(16, masks=masks, normalization="none").eval()
    torch.testing.assert_close(module(torch.ones(1, 40, 16), torch.tensor([40])), torch.ones(1, 1, 40, 16))


# --- encoders


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"architecture": "gru", "deltas": 2, "pyramid_layers": 2},
        {"convolutions": 0, "encoder_layers": 0, "pyramid_layers": 3},
        {"convolutions": 1, "pyramid_layers": 0, "encoder_layers": 2, "normalization": "none"},
        {"architecture": "transformer", "encoder_layers": 2, "heads": 3, "feedforward": 17},
    ],
)
def test_an_utterance_has_the_same_annotations_in_every_batch(options):
    torch.manual_seed(2)
    config = EncoderConfig(**{**SMALL, **options})
    encoder = SpeechEncoder(config).eval()
    features, lengths = sounds()
    features[torch.arange(features.shape[1]) >= lengths[:, None]] = 1e9
    whole = encoder(features, lengths)
    assert whole.lengths.tolist() == [-(-length // config.reduction) for length in lengths.tolist()]
    for row, length in enumerate(lengths.tolist()):
        alone = encoder(features[row : row + 1, :length], torch.tensor([length]))
        count = int(alone.lengths[0])
        torch.testing.assert_close(whole.annotations[row, :count], alone.annotations[0], atol=1e-5, rtol=1e-5)
        assert whole.annotations[row, count:].abs().sum() == 0
        if alone.summary is not None:
            torch.testing.assert_close(whole.summary[row], alone.summary[0], atol=1e-5, rtol=1e-5)


def test_a_convolution_stands_for_its_two_frames():
    """Output t depends on inputs 2t − 1 to 2t + 2, whose centre is between 2t and 2t + 1."""
    layer = HalvingConvolution(1, 3, 5).double()
    channels = torch.randn(1, 1, 9, 5, dtype=torch.float64)
    found, lengths = layer(channels, torch.tensor([9]))
    assert found.shape == (1, 3, 5, 3)
    assert lengths.tolist() == [5]
    for frame in range(9):
        changed = channels.clone()
        changed[0, 0, frame] += 1
        differs = (layer(changed, torch.tensor([9]))[0] != found).any(3).any(1)[0].nonzero().flatten().tolist()
        assert set(differs) <= {t for t in range(5) if 2 * t - 1 <= frame <= 2 * t + 2}
        assert frame // 2 in differs


def test_a_pyramid_layer_reads_pairs_of_neighbours():
    """Chan et al. 2016, eq. 5, with the layer of PyTorch on concatenated pairs."""
    layer = BidirectionalLayer(3, 8, halves=True)
    features = torch.randn(2, 5, 3)
    features[1, 4:] = 0
    (found, lengths), _ = layer(Frames(features, torch.tensor([5, 4])))
    assert lengths.tolist() == [3, 2]
    pairs = torch.stack([torch.cat([features[0, 2 * i], features[0, 2 * i + 1] if i < 2 else torch.zeros(3)])
                         for i in range(3)])  # fmt: skip
    torch.testing.assert_close(found[0], layer.rnn(pairs[None])[0][0])
    assert found[1, 2].abs().sum() == 0


def test_empty_sounds_and_batches_have_no_annotations():
    encoder = SpeechEncoder(EncoderConfig(**SMALL)).eval()
    found = encoder(torch.zeros(2, 0, WIDTH), torch.tensor([0, 0]))
    assert found.lengths.tolist() == [0, 0]
    assert found.annotations.abs().sum() == 0


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"architecture": "rnn"}, UnknownNameError, "architecture"),
        ({"hidden": 13}, ArgumentError, "even"),
        ({"architecture": "transformer", "pyramid_layers": 2}, ArgumentError, "pyramid_layers"),
        ({"encoder_layers": 0, "pyramid_layers": 0}, ArgumentError, "must not both be 0"),
        ({"convolutions": 9, "pyramid_layers": 2}, ArgumentError, "at most 10"),
        ({"dropout": 1.0}, ArgumentError, "dropout"),
        ({"position": "learned"}, UnknownNameError, "position"),
    ],
)
def test_impossible_encoders_are_refused(options, error, reason):
    with pytest.raises(error, match=reason):
        EncoderConfig(**{**SMALL, **options})
    encoder = SpeechEncoder(EncoderConfig(**SMALL))
    with pytest.raises(ArgumentError, match=r"features must be \[batch, frames, 7\]"):
        encoder(torch.zeros(2, 5, 6), torch.tensor([5, 5]))


# --- attention


def test_smoothing_is_normalized_logistic_functions():
    scores = torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(smoothed(scores), scores.sigmoid() / scores.sigmoid().sum(-1, keepdim=True))
    far = smoothed(torch.full((1, 4), -800.0))
    torch.testing.assert_close(far, torch.full((1, 4), 0.25))
    hidden = focus("smoothing")(torch.tensor([[0.0, -math.inf], [-math.inf, -math.inf]]))
    assert hidden.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    with pytest.raises(UnknownNameError, match="normalizer"):
        focus("smooth")


def test_the_window_is_around_the_median():
    weights = torch.tensor([[0.1, 0.1, 0.1, 0.3, 0.4, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 6])
    assert window_around(weights, 1).tolist() == [
        [False, False, True, True, True, False],
        [True, True, False, False, False, False],
        [True, True, False, False, False, False],
    ]
    assert window_around(weights, 9).all()
    with pytest.raises(ArgumentError, match="half_width"):
        window_around(weights, -1)


def test_a_decoder_step_is_the_equations_of_chorowski():
    """e = w · tanh(W s + V h + U (F ∗ α) + b), α = softmax(e), c = Σ α h, in plain tensor operations."""
    model = make()
    encoded = model.encode(*sounds())
    decoder = model.decoder
    score, state = decoder.attention.score, decoder.start(encoded)
    tokens = torch.tensor([5, 6, 7, 8])
    previous = torch.zeros(4, encoded.annotations.shape[1])
    present = torch.arange(previous.shape[1]) < encoded.lengths[:, None]
    for _ in range(3):
        hidden = state.recurrent[0][-1]
        location = F.conv1d(previous[:, None], score.convolution.weight, padding="same").transpose(1, 2)
        projected = score.query_projection(hidden)[:, None] + score.key_projection(encoded.annotations)
        energies = torch.tanh(projected + score.location_projection(location)) @ score.weight
        expected = energies.masked_fill(~present, -math.inf).softmax(-1)
        found = decoder.step(tokens, state)
        torch.testing.assert_close(found.weights, expected, atol=1e-5, rtol=1e-4)
        state, previous = found.state, found.weights


@pytest.mark.parametrize("score", ["location_aware", "coverage", "dynamic_convolution", "general"])
@pytest.mark.parametrize("normalizer", ["softmax", "smoothing", "sparsemax"])
def test_steps_give_what_teacher_forcing_gives(score, normalizer):
    model = make(score=score, normalizer=normalizer)
    features, lengths = sounds()
    predicted = model(features, lengths, TARGET, TARGET_LENGTHS)
    state = model.start(model.encode(features, lengths))
    for time in range(TARGET.shape[1] - 1):
        step = model.step(TARGET[:, time], state)
        state = step.state
        torch.testing.assert_close(step.log_probabilities, predicted.logits[:, time].log_softmax(-1))
        torch.testing.assert_close(step.weights, predicted.weights[:, time])


def test_a_window_hides_what_is_far_from_the_last_weights():
    model = make()
    features, lengths = sounds((90, 61))
    free = model(features, lengths, TARGET[:2], TARGET_LENGTHS[:2]).weights
    model.decoder.window = 2
    found = model(features, lengths, TARGET[:2], TARGET_LENGTHS[:2]).weights
    torch.testing.assert_close(found[:, 0], free[:, 0])  # the first step has no window
    for time in (1, 2):
        near = window_around(found[:, time - 1], 2)
        assert found[:, time][~near].abs().max() == 0
        torch.testing.assert_close(found[:, time].sum(-1), torch.ones(2))
    model.decoder.window = 1000
    torch.testing.assert_close(model(features, lengths, TARGET[:2], TARGET_LENGTHS[:2]).weights, free)


@pytest.mark.parametrize("kind", ["recurrent", "monotonic", "chunkwise", "transformer"])
def test_a_transcriber_saves_searches_and_does_not_see_padding(kind, tmp_path):
    model = make(kind, ctc_weight=0.3)
    features, lengths = sounds()
    whole = model.loss(features, lengths, TARGET, TARGET_LENGTHS, label_smoothing=0.0)
    poisoned = features.clone()
    poisoned[torch.arange(features.shape[1]) >= lengths[:, None]] = 1e9
    torch.testing.assert_close(
        model.loss(poisoned, lengths, TARGET, TARGET_LENGTHS, label_smoothing=0.0).nll, whole.nll
    )
    assert int(whole.tokens) == 9
    again = load_model(save_model(tmp_path, model))
    for width in (1, 3):
        found = model.translate(features, lengths, width=width, max_length=5)
        other = again.translate(poisoned, lengths, width=width, max_length=5)
        assert [one.tokens for one in found] == [one.tokens for one in other]
        for one, length in zip(found, lengths.tolist(), strict=True):
            assert one.weights.shape == (len(one.tokens), -(-length // model.config.reduction))


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_the_training_loss_is_the_mixture_of_both_losses(kind):
    model = make(kind, ctc_weight=0.3, time_masks=0, feature_masks=0)
    features, lengths = sounds((61, 70, 66, 90))
    plain = model.loss(features, lengths, TARGET, TARGET_LENGTHS)
    encoded = model.encode(features, lengths)
    aligned = model.alignment_head.loss(encoded, TARGET, TARGET_LENGTHS) / 9
    model.train()
    found = model.loss(features, lengths, TARGET, TARGET_LENGTHS)
    torch.testing.assert_close(found.total, 0.7 * plain.total + 0.3 * aligned)
    torch.testing.assert_close(found.nll, plain.nll)
    found.total.backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without


@pytest.mark.parametrize("text", [[], [1], [1, 1], [1, 2, 1], [1, 1, 1], [2, 2, 1, 1], [1, 2, 2]])
def test_the_fewest_annotations_of_a_text_are_those_of_its_shortest_path(text):
    """A path gives the tokens that are left when repetitions and then blanks (0) are taken away."""

    def gives(path):
        return [token for token, _ in groupby(path) if token]

    shortest = next(
        length for length in range(8) if any(gives(path) == text for path in product(range(3), repeat=length))
    )
    assert fewest_annotations(text) == shortest
    head = AlignmentHead(4, 3)
    target, lengths = torch.tensor([[7, *text, 8]]), torch.tensor([len(text) + 2])
    for annotations in {max(1, shortest - 1), max(1, shortest)}:
        loss = head.loss(Encoded(torch.ones(1, annotations, 4), torch.tensor([annotations])), target, lengths)
        assert (float(loss.detach()) > 0) == (annotations >= shortest)


def test_paths_give_the_probability_of_a_text():
    """−log p of a text of two tokens is the sum over all paths of three annotations."""
    head = AlignmentHead(4, 3)
    annotations = torch.randn(1, 3, 4)
    p = head(annotations)[0].exp().detach()
    texts = {"12": 0.0}
    for path in ((1, 1, 2), (1, 2, 2), (1, 2, 0), (1, 0, 2), (0, 1, 2)):
        texts["12"] += float(p[0, path[0]] * p[1, path[1]] * p[2, path[2]])
    encoded = Encoded(annotations, torch.tensor([3]))
    found = head.loss(encoded, torch.tensor([[9, 1, 2, 9]]), torch.tensor([4]))
    assert float(found.detach()) == pytest.approx(-math.log(texts["12"]), rel=1e-5)
    best = p.argmax(-1).unique_consecutive().tolist()
    assert head.best_path(encoded) == [[token for token in best if token]]
    too_long = torch.tensor([[9, 1, 2, 1, 2, 9]])
    assert float(head.loss(encoded, too_long, torch.tensor([6])).detach()) == 0.0


def test_impossible_transcribers_are_refused():
    for options, reason in (
        ({"score": "dot"}, "decoder_hidden must be hidden"),
        ({"location_width": 4}, "odd"),
        ({"ctc_weight": 1.0}, "ctc_weight"),
        ({"target_vocabulary": 2}, "eos must be a target token"),
        ({"normalizer": "hard"}, "unknown normalizer"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            make(**options)
    with pytest.raises(ArgumentError, match="architecture must be lstm or gru here"):
        RecurrentTranscriber(
            TranscriberConfig(**SMALL, target_vocabulary=VOCABULARY, architecture="transformer", heads=3)
        )
    with pytest.raises(ArgumentError, match="architecture must be transformer"):
        TransformerTranscriber(TranscriberConfig(**SMALL, target_vocabulary=VOCABULARY))
    with pytest.raises(ArgumentError, match="sampling_probability"):
        make("transformer")(*sounds(), TARGET, sampling_probability=0.5)


@pytest.mark.parametrize("pooling", ["attention", "mean", "max"])
def test_a_classifier_does_not_see_padding_nor_whether_weights_are_read(pooling, tmp_path):
    torch.manual_seed(1)
    model = SoundClassifier(
        SoundClassifierConfig(**SMALL, labels=5, pooling=pooling, pooling_heads=2 if pooling == "attention" else 1)
    ).eval()
    features, lengths = sounds()
    found = model(features, lengths, need_weights=True)
    assert torch.equal(found.logits, model(features, lengths).logits)
    again = load_model(save_model(tmp_path, model))
    for row, length in enumerate(lengths.tolist()):
        alone = again(features[row : row + 1, :length], torch.tensor([length])).logits
        torch.testing.assert_close(found.logits[row : row + 1], alone, atol=1e-5, rtol=1e-5)
    if pooling == "attention":
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(4, 2))
        assert found.weights.shape == (4, 2, 4)
    else:
        assert found.weights is None
