"""A file is uploaded to a model that reads sounds; what is too large or no sound is answered with a message."""

import io
import itertools

import numpy as np
import pytest
import soundfile

from page_servers import serving
from regard.data.speech.voices import RATE
from regard.page import access
from regard.page.models import open_model
from regard.tasks.sounds import TASK, SoundClassifierConfig, SoundsData, SoundsTrainingConfig
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
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
        SoundsData(train=str(files["train"]), validation=str(files["validation"]), sound_column="audio",
                   label_column="text", bands=6),
        SoundClassifierConfig(convolutions=1, channels=2, hidden=8, encoder_layers=0),
        SoundsTrainingConfig(epochs=1, threads=1, accelerator="cpu"),
    )  # fmt: skip
    train_run(TASK, config, RunFolder.create(folder / "run"), reporter=SilentReporter())
    return open_model(folder / "run")


NUMBERS = itertools.count(1)


def upload(client, content, model=0):
    query = f"model={model}&pane=p&number={next(NUMBERS)}"
    return client.ask(f"upload?{query}", content, method="POST", headers={"Content-Type": "application/octet-stream"})


def test_a_sound_is_answered_with_labels_and_attention(model):
    with serving(model) as client:
        (listed,) = client.ask("models").json["models"]
        assert listed["accepts"] == "sound"
        reply = upload(client, wav())
        assert reply.status == 200
        found = reply.json
        assert len(found["answer"]["ranked"]) == 4
        assert len(found["payload"]["records"]) == 1
        assert found["view"] is None
        number = next(NUMBERS)
        steps = client.ask(
            "steps", {"reading": found["reading"], "record": 0, "head": 0, "pane": "p", "number": number}
        )
        assert steps.status == 200
        features = io.BytesIO()
        np.save(features, np.zeros((30, 6), np.float32))
        assert upload(client, features.getvalue()).status == 200


def test_an_upload_that_is_no_sound_is_a_message(model):
    with serving(model) as client:
        for content, reason in (
            (b"hello", "is not a sound"),
            (b"", "is not a sound"),
            (wav()[:60], "truncated"),
            (wav(200, 8000), "lasts 200 s"),
            (b"\x93NUMPY", "not a whole .npy"),
        ):
            reply = upload(client, content)
            assert (reply.status, reason in reply.json["error"]) == (422, True), reply.json
        assert upload(client, wav(), model=1).status == 400
        read = client.ask("read", {"model": 0, "text": "hello", "pane": "p", "number": next(NUMBERS)})
        assert (read.status, "no text" in read.json["error"]) == (422, True)


def test_only_uploads_may_be_large(model, monkeypatch):
    monkeypatch.setattr(access, "MOST_UPLOADED", 100_000)
    monkeypatch.setattr(access, "MOST_BYTES", 1_000)
    with serving(model) as client:
        assert upload(client, wav(1.0)).status == 200
        text = {"model": 0, "text": "x" * 2_000, "pane": "p", "number": next(NUMBERS)}
        assert client.ask("read", text).status == 413
        assert upload(client, bytes(100_001)).status == 413
