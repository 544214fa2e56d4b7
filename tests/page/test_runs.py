"""Runs on the page: typed text gives what a direct forward pass gives."""

import numpy as np
import pytest
import torch

import regard
from page_runs import CLASSIFIERS, SUMMARIZERS, TRANSLATORS
from page_servers import serving
from regard.errors import RunError
from regard.page.models import open_model, open_models
from viewer_decoding import unpacked_numbers

SENTENCE = "My sister gives the old book to her friend."
NAMES = [*TRANSLATORS, *CLASSIFIERS, *SUMMARIZERS, "language-char", "language-bpe"]


def exact(found, record):
    return unpacked_numbers(found["payload"]["records"][record]["exact"])


@pytest.mark.parametrize("name", NAMES)
def test_a_typed_text_gives_what_the_run_predicts(run_of, name):
    trained = regard.load(run_of(name))
    options = {"tokens": 12, "temperature": 0, "next": 8} if name.startswith("language") else {}
    (expected,) = trained.predict([SENTENCE], **options)
    document = trained.document(expected)
    with serving(open_model(run_of(name))) as client:
        found = client.read(SENTENCE).json
    assert found["answer"]["text"] == expected.answer
    ranked = [(one["label"], one["probability"]) for one in found["answer"]["ranked"]]
    assert ranked == list(expected.ranked())
    assert bool(ranked) == (trained.task.name in ("classify", "language"))
    if name in ("none", "classify-mean"):
        assert found["payload"] is None
        assert "This model has no attention." in found["answer"]["notes"]
        return
    assert len(found["payload"]["records"]) == len(document.records)
    for place, record in enumerate(document.records):
        assert np.array_equal(exact(found, place), record.weights)


def test_a_translation_and_its_attention_are_those_of_a_forward_pass(run_of):
    """The classes of the run are not asked: the model alone reads the sentence and writes its own words."""
    with serving(open_model(run_of("transformer"))) as client:
        found = client.read(SENTENCE).json
    trained = regard.load(run_of("transformer"))
    model, source = trained.model, trained.source_tokenizer.encode(SENTENCE)
    hypothesis = model.translate(torch.tensor([source]), torch.tensor([len(source)]), width=5)[0]
    assert found["answer"]["text"] == trained.target_tokenizer.decode(hypothesis.tokens)
    target = torch.tensor([[model.config.bos, *hypothesis.tokens]])
    with torch.inference_mode():
        output = model(torch.tensor([source]), torch.tensor([len(source)]), target)
    records = found["payload"]["records"]
    place = next(number for number, record in enumerate(records) if (record["kind"], record["layer"]) == ("cross", 1))
    assert found["first"] == place  # the second last layer, which the model aligns by
    np.testing.assert_allclose(exact(found, place).mean(0), output.weights[0].numpy(), atol=1e-6)


def test_next_tokens_are_those_of_a_forward_pass(run_of):
    with serving(open_model(run_of("language-char"))) as client:
        found = client.read("the more").json["answer"]
    trained = regard.load(run_of("language-char"))
    ids = [trained.tokenizer.END, *trained.tokenizer.encode("the more")]
    with torch.inference_mode():
        probabilities = trained.model(torch.tensor([ids]))[0, -1].softmax(-1)
    best = probabilities.topk(8)
    assert [one["label"] for one in found["ranked"]] == trained.tokenizer.labels(best.indices.tolist())
    np.testing.assert_allclose([one["probability"] for one in found["ranked"]], best.values.numpy(), rtol=1e-5)
    assert (found["choice"], found["label"]) == ("Next token", "Continuation")


def test_a_continuation_and_its_attention_are_those_of_a_forward_pass(run_of):
    """What was written is known, and the model's most likely tokens, one after the other."""
    trained = regard.load(run_of("language-char"))
    prompt = [trained.tokenizer.END, *trained.tokenizer.encode("the more")]
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(12):
            logits = trained.model(torch.tensor([ids]))[0, -1]
            logits[trained.tokenizer.UNK] = -torch.inf
            ids.append(int(logits.argmax()))
            if ids[-1] == trained.tokenizer.END:
                break
        weights = trained.model.attention_weights(torch.tensor([ids]), 1)[0]
    with serving(open_model(run_of("language-char"))) as client:
        found = client.read("the more").json
    end = -1 if ids[-1] == trained.tokenizer.END else None
    assert found["answer"]["text"] == trained.tokenizer.decode(ids[len(prompt) : end])
    (axis,) = found["payload"]["axes"]
    assert axis["generated"] == len(prompt)
    shown = axis["length"]
    np.testing.assert_allclose(exact(found, 1).mean(0), weights[:shown, :shown].numpy(), atol=1e-6)


def test_worked_steps_of_any_head(run_of):
    with serving(open_model(run_of("transformer"))) as client:
        found = client.read(SENTENCE).json
        for number, (record, head) in enumerate(((0, 0), (2, 1), (7, 1)), start=1):
            body = {"reading": found["reading"], "record": record, "head": head, "pane": "a", "number": number}
            (steps,) = client.ask("steps", body).json["payload"]["steps"]
            assert steps["head"] == head
            weights = unpacked_numbers(steps["matrices"]["weights"])
            np.testing.assert_allclose(weights, exact(found, record)[head], atol=2e-6)
        for body in ({"record": 99}, {"head": 2}, {"head": -1}, {"record": "0"}, {"reading": 3}):
            good = {"reading": found["reading"], "record": 0, "head": 0, "pane": "a", "number": 99}
            assert client.ask("steps", good | body).status == 400
        assert client.ask("steps", {**good, "reading": "none"}).status == 410


def test_the_page_answers_with_exact_tiles(run_of):
    with serving(open_model(run_of("transformer"))) as client:
        found = client.read(SENTENCE).json
        good = {"reading": found["reading"], "record": 2, "queries": [0, 2], "keys": [0, 1]}
        tile = unpacked_numbers(client.ask("tile", good).json)
        assert np.array_equal(tile, exact(found, 2)[:, 0:2, 0:1])
        for body in ({"queries": [0, 0]}, {"queries": [0, 999]}, {"keys": [-1, 1]}, {"keys": [0]}, {"keys": "01"},
                     {"queries": [0.5, 1]}, {"queries": [False, True]}):  # fmt: skip
            assert client.ask("tile", good | body).status == 400


def test_old_readings_are_not_kept(run_of):
    with serving(open_model(run_of("bahdanau"))) as client:
        first = client.read("My sister.").json["reading"]
        for number in range(2, 19):
            last = client.read("My sister.", number=number).json["reading"]
        body = {"record": 0, "head": 0, "pane": "a", "number": 1}
        reply = client.ask("steps", {**body, "reading": first})
        assert (reply.status, "type it again" in reply.json["error"]) == (410, True)
        assert client.ask("steps", {**body, "reading": last}).status == 200


def test_several_models_answer_one_text(run_of):
    names = ["none", "bahdanau", "luong", "transformer"]
    models = open_models([run_of(name) for name in names])
    with serving(*models) as client:
        told = client.ask("models").json["models"]
        assert [model["name"] for model in told] == names
        assert [model["facts"] for model in told] == [
            "LSTM, no attention", "LSTM, Bahdanau attention", "LSTM, Luong attention",
            "Transformer, 2 + 3 layers × 2 heads",
        ]  # fmt: skip
        assert all(model["examples"] for model in told)
        for place, name in enumerate(names):
            expected = regard.load(run_of(name)).predict([SENTENCE])[0].text
            assert client.read(SENTENCE, model=place, pane=name).json["answer"]["text"] == expected


def test_models_of_one_name_are_told_apart(run_of, tmp_path):
    copy = tmp_path / "bahdanau"
    copy.symlink_to(run_of("bahdanau"))
    models = open_models([run_of("bahdanau"), run_of("bahdanau"), copy])
    assert [model.name for model in models] == [str(run_of("bahdanau")), str(copy)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("learned", "dog " * 300, "learned positions for"),
        ("transformer", "dog " * 500, "500 tokens, more than the 400"),
        ("bahdanau", "dog " * 401, "shorten it"),
        ("bahdanau", "half \ud800 a pair", "surrogate"),
        ("language-char", "half \ud800 a pair", "surrogate"),
        ("classify", "half \ud800 a pair", "surrogate"),
    ],
)
def test_a_text_that_the_model_cannot_read_is_a_message(run_of, name, text, words):
    with serving(open_model(run_of(name))) as client:
        reply = client.read(text)
        assert reply.status == 422
        assert words in reply.json["error"]
        assert client.read("dog", number=2).status == 200


@pytest.mark.parametrize("name", NAMES)
def test_texts_without_tokens_and_of_one_token(run_of, name):
    with serving(open_model(run_of(name))) as client:
        for number, text in enumerate(("", "  \n\t", "a", "\x00", "\u202e", "\U0001f98a" * 30), start=1):
            reply = client.read(text, number=number)
            assert reply.status == 200, (text, reply.body)


def test_long_texts_that_a_model_cuts_are_read(run_of):
    text = "the more it saw the less it spoke. " * 100
    for name, note in (("language-char", "the model reads the last 23"), ("summarize", "cut"), ("classify", "cut")):
        with serving(open_model(run_of(name))) as client:
            found = client.read(text).json
            assert any(note in line for line in found["answer"]["notes"]), (name, found["answer"])
            assert all("--" not in line.split("--max-length")[0] for line in found["answer"]["notes"])
            record = found["payload"]["records"][-1]
            assert len(found["payload"]["axes"][record["keys"]]["tokens"]) <= 512


@pytest.mark.parametrize("path", ["nothing", "a\x00b", "x" * 5000, ""])
def test_a_folder_that_is_no_model(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"Hugging Face|not the name"):
        open_model(path)
