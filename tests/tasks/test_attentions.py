"""Every task gives the attention of its model: as the model computes it, with tokens, words and worked steps."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import regard
from page_runs import CLASSIFIERS, SUMMARIZERS, TRANSLATORS
from regard.errors import ArgumentError
from regard.records import FrameAxis
from regard.tasks.caption import Caption
from regard.tasks.images import ImageLabel
from regard.tasks.sounds import SoundLabel
from regard.tasks.transcribe import Transcription
from regard.viewer import View

SENTENCE = "My sister gives the old book to her friend."
ATTENDING = [name for name in TRANSLATORS if name != "none"]
OTHERS = [*(name for name in CLASSIFIERS if name != "classify-mean"), *SUMMARIZERS, "language-char", "language-bpe"]


def predicted(path, text=SENTENCE):
    trained = regard.load(path)
    options = {"tokens": 5} if trained.task.name == "language" else {}
    (prediction,) = trained.predict([text], **options)
    return trained, prediction


@pytest.mark.parametrize("name", [*ATTENDING, *OTHERS])
def test_records_are_weights_with_their_tokens(run_of, name):
    trained, prediction = predicted(run_of(name))
    document = trained.document(prediction)
    assert document.records
    assert len({record.name for record in document.records}) == len(document.records)
    for record in document.records:
        assert record.weights.shape == (record.heads, len(record.queries), len(record.keys))
        if "local" not in name:
            np.testing.assert_allclose(record.weights.sum(-1), 1, atol=1e-5)
        if record.visible is not None:
            assert not record.weights[:, ~record.visible].any()
        if record.kind == "causal":
            assert record.queries == record.keys
            assert np.array_equal(record.visible, np.tril(np.ones_like(record.visible)))
        for axis in (record.queries, record.keys):
            assert not axis.words or axis.words[-1].stop == len(axis)
    assert dict(document.texts)[document.texts[0][0]] == prediction.source


@pytest.mark.parametrize("name", [*ATTENDING, *SUMMARIZERS])
def test_attention_to_the_source_is_that_of_the_prediction(run_of, name):
    """The mean over the heads of the layer that a prediction shows, for each token that was written."""
    trained, prediction = predicted(run_of(name))
    assert prediction.target_tokens
    crossing = [one.record() for one in trained.attentions(prediction) if one.kind == "cross"]
    for record in crossing:
        assert list(record.queries.tokens) == prediction.target_tokens
        assert list(record.keys.tokens) == prediction.source_tokens
    model = getattr(trained.model, "translator", trained.model)
    layer = getattr(model, "aligned_layer", 0)
    np.testing.assert_allclose(crossing[layer].weights.mean(0), prediction.weights.numpy(), atol=2e-5)


@pytest.mark.parametrize("name", ["bahdanau", "transformer", "classify", "language-char"])
def test_a_prediction_is_shown_with_its_own_weights(run_of, name):
    trained, prediction = predicted(run_of(name))
    if name.startswith("language"):
        with pytest.raises(ArgumentError, match=r"View\(trained.document\(prediction\)\)"):
            View(prediction)
        (prediction,) = trained.predict([SENTENCE], tokens=3, layer=0)
    several = View([prediction] * 2).document  # as the predictions of two inputs
    assert several.text_numbers == (0, 1)
    assert several.texts == tuple((name, f"{text} · {text}") for name, text in prediction.texts()[1:])
    (record,) = View(prediction).document.records
    assert record.weights.ndim == 3
    assert np.array_equal(record.weights.ravel(), prediction.weights.numpy().ravel())
    assert View(prediction).document.texts == prediction.texts()
    with pytest.raises(ArgumentError, match="has its tokens"):
        View(prediction, ["a"])


IMAGE = SimpleNamespace(shown=np.zeros((8, 6, 3), np.uint8), box=None, name="x.png")
SOUND = SimpleNamespace(name="x.wav", seconds=0.5, axis=lambda: FrameAxis(np.zeros((3, 4), np.float32), 0.5))
FOUR = np.array([0.5, 0.25, 0.25, 0.0], np.float32)


@pytest.mark.parametrize(
    "prediction",
    [
        Caption(IMAGE, "a cat", -1.0, ["a", "cat"], [range(1), range(1, 2)], np.stack((FOUR, FOUR)), (2, 2)),
        ImageLabel(IMAGE, "cat", {"cat": 1.0}, FOUR, (2, 2)),
        SoundLabel(SOUND, "dog", {"dog": 1.0}, torch.tensor(FOUR)[None]),
        Transcription(SOUND, "one", -1.0, ["one"], [range(1)], ["one"], torch.tensor(FOUR)[None]),
    ],
)
def test_images_and_sounds_are_shown_with_their_weights(prediction):
    (record,) = View(prediction).document.records
    assert (record.weights == FOUR).all()
    assert len(record.keys) == 4
    assert View(prediction).payload()["records"]


def test_all_layers_and_heads_of_a_transformer_are_those_of_its_forward_pass(run_of):
    trained, prediction = predicted(run_of("transformer"))
    attentions = trained.attentions(prediction)
    kinds = [(one.kind, one.layer) for one in attentions]
    assert kinds == [("self", 0), ("self", 1)] + [(kind, layer) for layer in range(3) for kind in ("causal", "cross")]
    assert all(one.heads == 2 for one in attentions)
    # The first layer of the encoder, by hand.
    model, layer = trained.model, trained.model.encoder.layers[0]
    ids = torch.tensor([trained.source_tokenizer.encode(SENTENCE)])
    with torch.inference_mode():
        rows = layer.norm1(model.source_input(ids))
        _, weights = layer.self_attn(rows, rows, rows, need_weights=True, average_attn_weights=False)
    np.testing.assert_allclose(attentions[0].record().weights, weights[0].numpy(), atol=1e-6)
    read = attentions[2].queries
    assert read.tokens == ("<bos>", *prediction.target_tokens[:-1])
    assert read.special == (True, *[False] * (len(read) - 1))


@pytest.mark.parametrize("name", ["language-char", "language-bpe"])
def test_a_language_model_shows_the_tokens_that_it_reads(run_of, name):
    trained, prediction = predicted(run_of(name), "the more it")
    attentions = trained.attentions(prediction)
    assert [one.name for one in attentions] == ["stack.layers.0.self_attn", "stack.layers.1.self_attn"]
    (axis,) = {one.queries for one in attentions}
    ids = prediction.ids[-23:]
    assert len(axis) == len(ids)
    assert axis.special[0] is (prediction.ids[0] == ids[0])
    for layer, one in enumerate(attentions):
        mean = trained.model.attention_weights(torch.tensor([ids]), layer)[0]
        np.testing.assert_allclose(one.record().weights.mean(0), mean.numpy(), atol=1e-6)
    short = trained.attentions(trained.predict(["the more"], tokens=0)[0])[0].queries
    assert short.special == (True, *[False] * (len(short) - 1))
    words = ["".join(short.tokens[place] for place in word).strip("▁␣") for word in short.words]
    assert [word for word in words if word] == ["<end>", "the", "more"]


@pytest.mark.parametrize("name", ["classify", "classify-transformer"])
def test_a_classifier_shows_its_pooling(run_of, name):
    trained, prediction = predicted(run_of(name), "A gripping, funny film.")
    *layers, pooling = [one.record() for one in trained.attentions(prediction)]
    assert len(layers) == (2 if name == "classify-transformer" else 0)
    assert pooling.queries.special == (True,)
    merged = np.stack([pooling.weights[:, 0, list(word)].sum(-1) for word in pooling.keys.words], axis=-1)
    np.testing.assert_allclose(merged, prediction.weights.numpy(), atol=1e-6)
    for record in layers:  # a window of two tokens on each side
        length = len(record.keys)
        near = np.abs(np.arange(length)[:, None] - np.arange(length)) <= 2
        assert np.array_equal(record.visible, near)


@pytest.mark.parametrize("name", [*ATTENDING, *OTHERS])
def test_worked_steps_of_a_run_lead_to_its_weights(run_of, name):
    trained, prediction = predicted(run_of(name))
    for one in trained.attentions(prediction):
        record = one.record()
        for head in range(one.heads):
            steps = one.steps(head)
            found = steps.matrices
            assert steps.layer == one.layer
            assert steps.head == head
            assert steps.query_labels == record.queries.tokens
            if "chosen" not in one.name:
                np.testing.assert_allclose(found["weights"], record.weights[head], atol=2e-6)
            np.testing.assert_allclose(found["weights"] @ found["value"], found["output"], atol=1e-5)
            if steps.score == "dot":
                np.testing.assert_allclose(found["query"] @ found["key"].T, found["scores"], atol=1e-4)
            last = found[next(name for name in ("masked", "biased", "capped", "scaled", "scores") if name in found)]
            if steps.normalizer == "softmax":
                exponentials = np.exp(last - last.max(-1, keepdims=True))
                expected = exponentials / exponentials.sum(-1, keepdims=True)
                np.testing.assert_allclose(found["weights"], expected, atol=1e-6)
        with pytest.raises(ArgumentError, match="head must be from 0 to"):
            one.steps(one.heads)
        with pytest.raises(ArgumentError, match="it is -1"):
            one.steps(-1)


@pytest.mark.parametrize(
    ("name", "comparison", "names"),
    [
        ("luong", "General", {"query_input", "w_query"}),
        ("luong-at-once", "Dot", set()),
        ("bahdanau", "Additive", {"query_input", "w_query", "key_input", "w_key", "w_score"}),
    ],
)
def test_the_matrices_of_a_score_are_shown_with_the_states_that_ask(run_of, name, comparison, names):
    trained, prediction = predicted(run_of(name))
    before = trained.predict([SENTENCE])[0].text
    (one,) = trained.attentions(prediction)
    steps = one.steps(0)
    found = steps.matrices
    assert steps.comparison == comparison
    assert names == {each for each in found if each.startswith("w_") or each.endswith("_input")}
    for side in ("query", "key"):
        if f"w_{side}" in names:
            np.testing.assert_allclose(found[f"{side}_input"] @ found[f"w_{side}"], found[side], atol=1e-4)
    if name == "luong":
        weight = trained.model.decoder.attention.score.weight.detach().double().numpy()
        np.testing.assert_allclose(found["w_query"], weight, atol=1e-6)
        np.testing.assert_array_equal(found["key"], found["value"])
    if name == "bahdanau":
        width = found["value"].shape[1]  # the key's projection has a bias, as the weight of a last input 1
        np.testing.assert_allclose(found["key_input"][:, :width], found["value"])
        assert (found["key_input"][:, width] == 1).all()
        sums = np.tanh(found["query"][:, None] + found["key"])
        np.testing.assert_allclose((sums @ found["w_score"])[..., 0], found["scores"], atol=1e-4)
    assert trained.predict([SENTENCE])[0].text == before


def test_scores_are_named(run_of):
    def named(name):
        trained, prediction = predicted(run_of(name))
        steps = trained.attentions(prediction)[0].steps(0)
        return steps.score, steps.normalizer

    assert named("bahdanau") == ("Additive", "softmax")
    assert named("luong-at-once") == ("dot", "softmax")
    assert named("transformer") == ("dot", "softmax")
    assert named("local") == ("dot", "localgaussian")


def test_hard_attention_shows_choices_and_their_probabilities(run_of):
    trained, prediction = predicted(run_of("hard"))
    chosen, soft = (one.record().weights[0] for one in trained.attentions(prediction))
    assert set(np.unique(chosen)) == {0.0, 1.0}
    assert np.array_equal(chosen.argmax(-1), soft.argmax(-1))
    assert len(np.unique(soft)) > 2


@pytest.mark.parametrize("name", ["none", "classify-mean"])
def test_a_model_without_attention_has_none(run_of, name):
    trained, prediction = predicted(run_of(name))
    assert list(trained.attentions(prediction)) == []
    assert trained.document(prediction).records == ()


@pytest.mark.parametrize("name", ["bahdanau", "transformer", "classify", "summarize", "summarize-transformer"])
def test_an_empty_text_has_no_attention(run_of, name):
    for text in ("", "  \n"):
        trained, prediction = predicted(run_of(name), text)
        assert list(trained.attentions(prediction)) == []
