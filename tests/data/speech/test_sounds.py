"""Sounds are read exactly or refused with one line that names the file."""

import io

import numpy as np
import pytest
import soundfile

from regard.data.speech.sounds import Sound, read_features, read_sound, resampled
from regard.errors import ArgumentError, DataError


def sine(seconds, rate, hertz=440.0):
    return (0.4 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


@pytest.mark.parametrize("suffix", ["wav", "flac"])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_a_sound_is_the_mean_of_its_channels(tmp_path, suffix, channels):
    samples = np.random.default_rng(1).uniform(-0.9, 0.9, (1013, channels)).astype(np.float32)
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, samples, 8000, subtype="PCM_24")
    found = read_sound(path)
    assert found.rate == 8000
    assert found.seconds == 1013 / 8000
    np.testing.assert_allclose(found.samples, samples.mean(1), atol=1e-6)


@pytest.mark.parametrize("own", [8000, 11025, 22050, 44100, 48000])
def test_every_rate_becomes_the_rate_that_is_asked_for(tmp_path, own):
    path = tmp_path / "a.wav"
    soundfile.write(path, sine(0.5, own), own, subtype="FLOAT")
    found = read_sound(path, 16000)
    assert found.rate == 16000
    assert len(found.samples) == 8000
    middle = slice(1000, 7000)  # filters ring at the ends
    np.testing.assert_allclose(found.samples[middle], sine(0.5, 16000)[middle], atol=2e-3)


def test_resampling_removes_tones_above_half_the_rate():
    """A tone of 7 kHz would become one of 1 kHz at 8 kHz if samples were only left out."""
    assert np.abs(resampled(sine(0.5, 48000, 7000.0), 48000, 8000)[500:-500]).max() < 1e-3


def test_bytes_are_a_sound_too(tmp_path):
    buffer = io.BytesIO()
    soundfile.write(buffer, sine(0.1, 8000), 8000, format="WAV", subtype="FLOAT")
    np.testing.assert_array_equal(read_sound(buffer.getvalue()).samples, sine(0.1, 8000))


def whole(tmp_path, suffix):
    path = tmp_path / f"whole.{suffix}"
    soundfile.write(path, sine(0.3, 8000), 8000)
    return path.read_bytes()


def bad_files(tmp_path):
    wav, flac = whole(tmp_path, "wav"), whole(tmp_path, "flac")
    nothing = io.BytesIO()
    soundfile.write(nothing, np.zeros(0), 8000, format="WAV")
    holes = io.BytesIO()
    soundfile.write(holes, np.array([0.0, np.nan, 0.1]), 8000, format="WAV", subtype="FLOAT")
    slow = bytearray(wav)
    slow[24:28] = (5).to_bytes(4, "little")
    return {
        "truncated.wav": (wav[: len(wav) // 2], "truncated"),
        "truncated.flac": (flac[: len(flac) // 2], "damaged|truncated"),
        "header.wav": (wav[:20], "not a sound|no samples"),
        "text.wav": (b"hello world" * 9, "not a sound"),
        "empty.wav": (b"", "is empty"),
        "silent.wav": (nothing.getvalue(), "no samples"),
        "nan.wav": (holes.getvalue(), "NaN or infinite"),
        "slow.wav": (bytes(slow), "5 samples a second"),
    }


@pytest.mark.parametrize(
    "name",
    ["truncated.wav", "truncated.flac", "header.wav", "text.wav", "empty.wav", "silent.wav", "nan.wav", "slow.wav"],
)
def test_a_bad_sound_is_one_line_that_names_it(tmp_path, name):
    content, reason = bad_files(tmp_path)[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=reason) as error:
        read_sound(path, 8000, f"a.tsv: row 3: {path}")
    assert str(error.value).startswith(f"a.tsv: row 3: {path}: ")
    assert "\n" not in str(error.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_sound(tmp_path / "none.wav")
    with pytest.raises(DataError, match="is a folder"):
        read_sound(tmp_path)


def test_a_sound_of_many_hours_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "a.flac"
    soundfile.write(path, np.zeros(8000 * 40), 8000)
    monkeypatch.setattr("regard.data.speech.sounds.LONGEST_SECONDS", 30.0)

    def read(*_, **__):
        raise AssertionError("it was read")

    monkeypatch.setattr(soundfile.SoundFile, "read", read)
    with pytest.raises(DataError, match="lasts 40 s"):
        read_sound(path)


def test_rates_have_limits():
    with pytest.raises(ArgumentError, match="to_rate must be from"):
        resampled(sine(0.1, 8000), 8000, 3)


def test_a_sound_knows_its_duration():
    assert Sound(np.zeros(400, np.float32), 8000).seconds == 0.05


def test_features_are_read_as_they_are(tmp_path):
    features = np.random.default_rng(0).normal(size=(7, 13))
    np.save(tmp_path / "a.npy", features)
    found = read_features(tmp_path / "a.npy")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, features.astype(np.float32))


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((3, 5, 2)), "must hold real numbers"),
        (np.zeros(4), "must hold real numbers"),
        (np.zeros((0, 5)), "must have 1 to"),
        (np.array([["a", "b"]]), "must hold real numbers"),
        (np.array([[1 + 2j]]), "must hold real numbers"),
        (np.array([[0.0, 1.0], [np.inf, 2.0]]), "feature 0 of frame 1"),
        (np.array([[1e300]]), "feature 0 of frame 0"),
    ],
)
def test_other_arrays_are_refused(tmp_path, array, reason):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match=reason):
        read_features(tmp_path / "a.npy", "row 2: a.npy")


def test_damaged_arrays_and_pickles_are_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((70, 13), np.float32))
    content = path.read_bytes()
    for bad in (content[:-100], content[:30], b"", b"text"):
        path.write_bytes(bad)
        with pytest.raises(DataError, match="not a whole"):
            read_features(path)
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(DataError, match="not a whole"):
        read_features(path)
    np.savez(tmp_path / "b.npz", np.zeros((2, 2)))
    (tmp_path / "b.npz").rename(path)
    with pytest.raises(DataError, match=r"archive|not a whole"):
        read_features(path)
    with pytest.raises(DataError, match="no such file"):
        read_features(tmp_path / "none.npy")


def test_a_header_that_promises_terabytes_takes_no_memory(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((2, 3), np.float32))
    path.write_bytes(path.read_bytes().replace(b"(2, 3)", b"(9999999999, 3)").replace(b" " * 8 + b"\n", b"\n"))
    with pytest.raises(DataError):
        read_features(path)
