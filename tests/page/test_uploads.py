"""A file is uploaded to a model that reads sounds; what is too large or no sound is answered with a message."""

import base64
import io

import numpy as np
import pytest
import soundfile

from page_servers import serving
from regard.data.speech.voices import RATE
from regard.page import access
from regard.page.models import open_model
from regard.tasks.sounds.config import DataConfig, ModelConfig, SoundsTrainingConfig
from regard.tasks.sounds.task import TASK
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train
from regard.training.run_folder import RunFolder
from tone_corpus import write_tones


def wav(seconds=0.5, rate=RATE):
    content = io.BytesIO()
    soundfile.write(content, 0.1 * np.sin(np.arange(round(seconds * rate)) / 9), rate, format="WAV")
    return content.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A classifier of sounds that has seen eight steps, and reads 6 features a frame or 6 mel bands."""
    folder = tmp_path_factory.mktemp("sounds")
    files = write_tones(folder, {"train": 24, "validation": 4}, words=(1, 1))
    config = RunConfig(
        "sounds",
        DataConfig(train=str(files["train"]), validation=str(files["validation"]), sound_column="audio",
                   text_column="text", bands=6),
        ModelConfig(convolutions=1, channels=2, hidden=8, encoder_layers=0),
        SoundsTrainingConfig(epochs=1, threads=1, accelerator="cpu"),
    )  # fmt: skip
    train(TASK, config, RunFolder.create(folder / "run"), reporter=SilentReporter())
    return open_model(folder / "run")


def body(content, name="a.wav", **more):
    data = base64.b64encode(content).decode()
    return {"model": 0, "name": name, "data": data, "pane": "p", "number": 1, **more}


def test_a_sound_is_answered_with_labels_and_attention(model):
    with serving(model) as client:
        (listed,) = client.ask("models").json["models"]
        assert listed["takes"] == "sound"
        reply = client.ask("upload", body(wav()))
        assert reply.status == 200
        found = reply.json
        assert len(found["answer"]["ranked"]) == 4
        assert len(found["payload"]["records"]) == 1
        assert found["view"] is None
        assert found["payload"]["texts"][0] == ["sound", "a.wav"]
        steps = client.ask("steps", {"reading": found["reading"], "record": 0, "head": 0, "pane": "p", "number": 2})
        assert steps.status == 200
        features = io.BytesIO()
        np.save(features, np.zeros((30, 6), np.float32))
        assert client.ask("upload", body(features.getvalue(), "x/b.npy", number=3)).json["payload"]["texts"][0] == [
            "sound", "b.npy"
        ]  # fmt: skip


def test_what_is_no_sound_is_a_message(model):
    with serving(model) as client:
        for number, (given, status, reason) in enumerate(
            [
                (body(b"hello"), 422, "a.wav: is not a sound"),
                (body(wav()[:60]), 422, "truncated"),
                (body(wav(200, 8000)), 422, "lasts 200 s"),
                (body(b"", data="*"), 400, "base 64"),
                (body(wav(), model=1), 400, "model must be"),
                (body(b"x", "a.npy"), 422, "not a whole .npy"),
            ]
        ):
            reply = client.ask("upload", {**given, "number": number})
            assert (reply.status, reason in reply.json["error"]) == (status, True), reply.json
        read = client.ask("read", {"model": 0, "text": "hello", "pane": "p", "number": 9})
        assert (read.status, "no text" in read.json["error"]) == (422, True)


def test_only_uploads_may_be_large(model, monkeypatch):
    monkeypatch.setattr(access, "MOST_UPLOAD_BYTES", 400_000)
    monkeypatch.setattr(access, "MOST_BYTES", 1_000)
    with serving(model) as client:
        assert client.ask("upload", body(wav(1.0))).status == 200
        assert client.ask("read", {"model": 0, "text": "x" * 2_000, "pane": "p", "number": 1}).status == 413
        assert client.ask("upload", body(bytes(400_000))).status == 413
