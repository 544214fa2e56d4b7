"""Runs of the task transcribe: training, evaluation, prediction, pictures, the commands, bad input."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

import regard
from regard.data.speech.sounds import Sound
from regard.data.speech.utterances import Utterance
from regard.errors import ArgumentError, DataError, KindError, ShapeError
from regard.models.speech.transcriber import RecurrentTranscriber
from regard.records import FrameAxis
from regard.tasks.inputs.sound import HeardSound
from regard.tasks.outputs.text_metrics import error_rates
from regard.tasks.transcribe import (
    TASK,
    TrainedTranscriber,
    TranscribeData,
    TranscriberConfig,
    TranscriptionTrainingConfig,
    alignment_times,
    mean_seconds,
)
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder
from tone_corpus import HOP, WIDTH, write_tones

SMALL = {
    "convolutions": 1, "channels": 8, "hidden": 48, "pyramid_layers": 1, "encoder_layers": 0, "embedding": 24,
    "decoder_hidden": 48, "score_features": 32, "location_width": 5, "location_channels": 3, "dropout": 0.0,
    "time_masks": 0, "feature_masks": 0,
}  # fmt: skip
TRANSFORMER = {
    "architecture": "transformer", "convolutions": 2, "channels": 4, "hidden": 24, "heads": 2, "feedforward": 32,
    "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0, "longest_mask": 2, "widest_mask": 1,
}  # fmt: skip


def config_of(files, data=None, model=None, **training):
    places = {"train": str(files["train"]), "validation": str(files["validation"]), "sound_column": "audio"}
    data = {**places, "text_column": "text", "tokenizer": "word", "hop_seconds": HOP, **(data or {})}
    chosen = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "threads": 1, "accelerator": "cpu", "join": 2,
              "stretch": 0.1, "patience": 0, **training}  # fmt: skip
    return RunConfig("transcribe", TranscribeData(**data), TranscriberConfig(**(SMALL if model is None else model)),
                     TranscriptionTrainingConfig(**chosen))  # fmt: skip


def train(config, path, resume=False, reporter=None):
    folder = RunFolder.open(path) if resume else RunFolder.create(path)
    return train_run(TASK, config, folder, resume=resume, reporter=reporter or SilentReporter())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_tones(tmp_path_factory.mktemp("tones"), {"train": 120, "validation": 10, "test": 12})


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    """A run that has learnt its task."""
    path = tmp_path_factory.mktemp("runs") / "learnt"
    train(config_of(files, epochs=12, join=1, stretch=0.0), path)
    return regard.load(path)


def test_a_transcription_run_learns_to_write(trained, files):
    found = trained.evaluate(str(files["test"]), sound_column="audio", text_column="text")
    assert found.wer < 0.7  # 0.5 was seen; a guess is wrong in three of four words, besides their number
    assert found.wer == (found.substitutions + found.deletions + found.insertions) / found.words
    assert found.words == sum(len(text.split()) for text in found.references)
    assert found.alignment_error > 0
    assert 0 < found.attention_on_words < 1


def test_the_alignment_error_is_in_seconds():
    """Planted weights: a word in the middle of its time is right, one that is 0.2 s late is 0.2 s off."""
    weights = np.zeros((2, 10))
    weights[0, 1:3] = 0.5  # 0.1 to 0.3 s, in the middle 0.2 s
    weights[1, 7] = 1.0  # 0.7 to 0.8 s, in the middle 0.75 s
    assert mean_seconds(weights, 0.1) == pytest.approx([0.2, 0.75])
    known = Utterance(Path("a.npy"), "ba do", "a.tsv: row 1", ((0.1, 0.3), (0.5, 0.6)))
    distance, share = alignment_times([known], [weights], 0.1)
    assert distance == pytest.approx((0.0 + 0.2) / 2)
    assert share == pytest.approx(0.5)
    half = replace(known, segments=((0.2, 0.25), (0.7, 0.9)))
    assert alignment_times([half], [weights], 0.1) == pytest.approx(((0.025 + 0.05) / 2, (0.25 + 1.0) / 2))
    assert alignment_times([replace(known, segments=None)], [weights], 0.1) is None
    with pytest.raises(DataError, match=r"a\.tsv: row 1: .* has 1 times for 2 words"):
        alignment_times([replace(known, segments=((0.1, 0.2),))], [weights], 0.1)


def test_a_sound_and_its_annotations_cover_the_same_time():
    sound = HeardSound("a", np.arange(22.0, dtype=np.float32).reshape(11, 2), HOP, 4)
    assert sound.annotations == 3
    axis = sound.axis()
    assert (len(axis), axis.seconds) == (3, pytest.approx(0.04))
    assert axis.spectrogram.shape == (2, 12)
    assert axis.spectrogram[:, :11].tolist() == sound.features.T.tolist()
    assert axis.labels == ("0.00 s", "0.04 s", "0.08 s")


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "window": 0.3}, {"batch_size": 3}, {"samples": 6}])
def test_options_of_a_prediction(trained, files, options):
    sounds = sorted(files["test"].parent.glob("test-*.npy"))[:5]
    found = trained.predict(sounds, **options)
    assert [one.sound.name for one in found] == [str(path) for path in sounds]
    assert all(one.weights.shape == (len(one.tokens), one.sound.annotations) for one in found)
    assert trained.model.decoder.window is None  # as before
    if options == {"batch_size": 3}:
        assert [one.text for one in found] == [one.text for one in trained.predict(sounds)]


@pytest.mark.parametrize("options", [{"samples": 6, "temperature": 1.5, "n_best": 2}, {"beam": 3}])
def test_other_sounds_change_no_transcription(trained, files, options):
    sounds = sorted(files["test"].parent.glob("test-*.npy"))[:4]
    together = [one.text for one in trained.predict(sounds, **options)]
    assert [one.text for one in trained.predict(sounds, **options, batch_size=1)] == together
    assert [one.text for one in trained.predict(sounds[::-1], **options)] == together[::-1]
    assert trained.predict(sounds[2:3], **options)[0].text == together[2]


def write_sounds(folder, texts, frames):
    """A table of features of so many frames, one for each text."""
    for number in range(len(texts)):
        features = np.random.default_rng(number).normal(size=(frames, WIDTH))
        np.save(folder / f"{number}.npy", features.astype(np.float32))
    table = folder / "sounds.tsv"
    table.write_text("audio\ttext\n" + "".join(f"{number}.npy\t{text}\n" for number, text in enumerate(texts)))
    return table


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (["abcdefghijklmno"] * 4 + ["abc"] * 4, 4),
        (
            ["abcde", "abcdd", "aabb", "aaa", "ab b", "abba", "aabc", "abcdef"],
            3,
        ),  # 5, 6, 6, 5, 4, 5, 5 and 6 are needed
        (["abc", "cba"] * 4, 0),
    ],
)
@pytest.mark.parametrize("model", [SMALL, TRANSFORMER], ids=["recurrent", "transformer"])
def test_texts_that_are_too_long_for_their_sounds_are_counted(texts, count, model, tmp_path, caplog):
    """Sounds of 0.2 s with an annotation every 0.04 s have five of them."""
    table = write_sounds(tmp_path, texts, 20)
    places = {"train": table, "validation": table}
    for weight in (0.3, 0.0):
        caplog.clear()
        (tmp_path / str(weight)).mkdir()
        config = config_of(places, {"tokenizer": "char"}, {**model, "ctc_weight": weight}, join=1, stretch=0.0)
        experiment = TASK.prepare(config, RunFolder(tmp_path / str(weight)))
        lines = [one.getMessage() for one in caplog.records if "too short for their text" in one.getMessage()]
        assert len(lines) == (1 if count and weight else 0)
        assert all(line.startswith(f"{count} of 8 sounds") and "every 0.04 s" in line for line in lines)
    assert experiment.model.config.reduction == 4


def test_an_evaluation_says_what_the_alignment_head_cannot_give(trained, tmp_path):
    table = write_sounds(
        tmp_path, ["ba ba ba", "ba do ki", "ba"], 16
    )  # four annotations; five are needed for the first
    columns = {"sound_column": "audio", "text_column": "text", "beam": 1}
    found = trained.evaluate(str(table), **columns)
    assert found.to_dict()["too_short"] == 1
    assert "  1 of 3 sounds have too few annotations for their text" in "\n".join(found.lines())
    assert "too few" not in "\n".join(trained.evaluate(str(table), **columns, ctc_weight=0.0).lines())


def test_a_prediction_as_json_pictures_and_records(trained, files, tmp_path):
    (found,) = trained.predict([files["test"].parent / "test-0.npy"])
    content = json.loads(json.dumps(found.to_dict()))
    assert content["output"] == found.text
    assert content["seconds"] == pytest.approx(4 * HOP)
    assert [word["word"] for word in content["words"]] == found.text.split()
    (picture,) = trained.draw([found], tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    document = trained.document(found)
    (record,) = document.records
    assert isinstance(record.keys, FrameAxis)
    assert record.keys.seconds == pytest.approx(4 * HOP)
    np.testing.assert_allclose(record.weights[0], found.weights.numpy(), atol=1e-5)
    steps = trained.attentions(found)[0].steps(0)
    assert steps.key_labels[1] == "0.04 s"


def test_the_transformer_trains_and_shows_all_its_attentions(files, tmp_path):
    train(config_of(files, {"tokenizer": "char"}, TRANSFORMER, epochs=2), tmp_path / "run")
    trained = regard.load(tmp_path / "run")
    (found,) = trained.predict([files["test"].parent / "test-0.npy"])
    records = trained.document(found).records
    assert [record.kind for record in records][:1] == ["self"]
    if found.tokens:
        assert [record.kind for record in records] == ["self", "causal", "cross"]
    with pytest.raises(ArgumentError, match="window is for a recurrent decoder"):
        trained.predict([files["test"].parent / "test-0.npy"], window=0.5)


@pytest.mark.parametrize("attention", ["stepwise", "forward", "monotonic"])
def test_a_window_around_the_weights_of_alignments_is_refused(attention):
    """An alignment loses what it has outside of the window."""
    config = TranscriberConfig(width=WIDTH, target_vocabulary=9, attention=attention, score="additive")
    trained = SimpleNamespace(model=RecurrentTranscriber(config), seconds=0.1)
    with (
        pytest.raises(ArgumentError, match=f"window is for .* has architecture 'lstm' and attention '{attention}'"),
        TrainedTranscriber._windowed(trained, 0.5),
    ):
        pass


def test_inputs_of_every_kind(trained):
    features = np.random.default_rng(2).normal(size=(40, WIDTH)).astype(np.float32)
    (found,) = trained.predict([features])
    assert found.sound.annotations == 10
    buffer = io.BytesIO()
    np.save(buffer, features)
    assert trained.predict([buffer.getvalue()])[0].text == found.text
    wav = io.BytesIO()
    soundfile.write(wav, np.zeros(900), 8000, format="WAV")
    for bad, error, reason in (
        (wav.getvalue(), ShapeError, "has 40 features a frame, and the model reads 6"),
        (Sound(np.zeros(900, np.float32), 8000), ShapeError, "has 40 features"),
        (Sound(np.zeros(0, np.float32), 8000), ShapeError, "must have finite samples"),
        (features[:, :3], ShapeError, "has 3 features"),
        (features * np.nan, ShapeError, "finite"),
        (features[0], ShapeError, "must be real numbers"),
        ("none.wav", DataError, "none.wav: no such file"),
        ("", DataError, "names no file"),
        (7, KindError, "must be a path"),
    ):
        with pytest.raises(error, match=reason):
            trained.predict([bad])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"train": None}, "nothing to train on"),
        ({"bundled": 5}, "exclude each other"),
        ({"bands": 0}, "bands must be"),
        ({"rate": 8000, "highest": 5000.0}, "half the rate"),
        ({"sound_column": "text"}, "must not be the column"),
    ],
)
def test_options_that_do_not_fit_are_refused(files, data, reason):
    with pytest.raises(ArgumentError, match=reason):
        config_of(files, data)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"location_width": 4}, "odd"),
        ({"hidden": 25}, "even"),
        ({"architecture": "transformer", "pyramid_layers": 2}, "pyramid_layers has no meaning"),
        ({"architecture": "transformer", "normalizer": "smoothing"}, "normalizer has no meaning"),
        ({"score": "dot", "hidden": 24, "decoder_hidden": 20}, "decoder_hidden must be hidden"),
        ({"architecture": "transformer", "hidden": 24, "heads": 5}, "heads must divide"),
    ],
)
def test_models_that_do_not_fit_are_refused(model, reason):
    with pytest.raises(ArgumentError, match=reason):
        TranscriberConfig(**model)


def test_bad_rows_end_the_start_of_a_run_and_leave_no_folder(files, tmp_path):
    shutil.copytree(files["train"].parent, tmp_path / "data")
    (tmp_path / "data/train-7.npy").write_bytes(b"no numbers")
    here = {part: tmp_path / "data" / path.name for part, path in files.items()}
    with pytest.raises(DataError, match=r"train\.tsv: row 8: .*train-7\.npy: is not a whole"):
        train(config_of(here), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_transcription_commands_train_evaluate_predict_and_view(files, tmp_path, run_command, monkeypatch):
    """Trained on generated speech for a moment: train, evaluate, predict and view, with a sound file."""
    monkeypatch.chdir(tmp_path)
    options = ["--bundled", 20, "--convolutions", 1, "--channels", 2, "--hidden", 8, "--decoder-hidden", 8,
               "--embedding", 8, "--score-features", 4, "--bands", 12, "--rate", 8000, "--epochs", 1, "--threads", 1,
               "--tokenizer", "word", "--max-length", 8]  # fmt: skip
    monkeypatch.setattr(TASK.input.generated, "validation", 4)
    monkeypatch.setattr(TASK.input.generated, "test", 3)
    code, printed, _ = run_command("train", "transcribe", *options, "--run", "r")
    assert code == 0
    assert "alignment error" in printed
    sound = tmp_path / "runs/r/corpus/sounds/test-000000.wav"
    code, printed, _ = run_command("predict", "runs/r", sound, "--json", "--pictures", "pictures")
    assert code == 0
    assert json.loads(printed)["input"] == str(sound)
    code, printed, _ = run_command("evaluate", "runs/r", "bundled", "--limit", 2)
    assert code == 0
    assert printed.startswith("bundled: 2 sounds")
    code, _, errors = run_command("predict", "runs/r", "none.wav")
    assert code == 2 or code == 1
    assert errors.strip().splitlines() == ["regard: error: none.wav: no such file; check the path"]
    code, _, errors = run_command("train", "transcribe", *options, "--run", "r", "--overwrite")
    assert code == 0, errors


def test_error_rates_add_up_edits_before_they_are_divided():
    found = error_rates(["a b c", "x"], ["a c", "x y z"])
    assert (found.insertions, found.deletions, found.words) == (1, 2, 5)
    assert found.wer == 3 / 5
    assert found.cer == (2 + 4) / (3 + 5)
    assert error_rates([""], ["a b"]).wer == 1.0
    assert error_rates([], []).wer == 0.0
    with pytest.raises(ArgumentError, match="2 transcriptions and 1 references"):
        error_rates(["a", "b"], ["a"])
    with pytest.raises(ArgumentError, match=r"references\[0\] has no word"):
        error_rates(["a"], [" "])
