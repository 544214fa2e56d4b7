"""Sounds as data sets of Hugging Face have them are the sounds of their files: in memory, in Parquet, saved, predicted.

datasets 5.2: a column of `Audio` holds ``{"bytes", "path"}``; read with ``decode=True``, the default, a row gives an
`AudioDecoder` of torchcodec, no mapping, whose ``get_all_samples()`` has ``data [channels, samples]`` and
``sample_rate``; versions before 4.0 gave ``{"path", "array", "sampling_rate"}``.
"""

import io
from types import SimpleNamespace

import datasets
import numpy as np
import pyarrow as pa
import pytest
import soundfile
import torch

import regard
from regard.data.class_folders import class_files
from regard.data.speech.log_mel import LogMel
from regard.data.speech.sounds import Sound
from regard.data.speech.utterances import feature_table
from regard.errors import DataError, KindError
from regard.tasks import registry
from regard.tasks.inputs.sound import SoundOptions, heard
from regard.tasks.stored_data import prepared, store

RATE = 8_000
NOISES = [
    np.random.default_rng(number).uniform(-0.3, 0.3, 1600 + 37 * number).astype(np.float32) for number in range(3)
]
TEXTS = ["low", "middle", "high"]
FRONT_END = LogMel(RATE, bands=6)


class AudioDecoder:
    """What torchcodec 0.8 gives, as far as its documentation says: two channels, whose mean is the sound."""

    def __init__(self, samples):
        self.samples = samples

    def get_all_samples(self):
        data = torch.from_numpy(np.stack([self.samples + 0.1, self.samples - 0.1]))
        return SimpleNamespace(data=data, sample_rate=RATE, pts_seconds=0.0, duration_seconds=len(self.samples) / RATE)


def flac(samples):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, RATE, format="FLAC", subtype="PCM_24")
    return buffer.getvalue()


@pytest.fixture
def paths(tmp_path):
    for name, samples in zip(TEXTS, NOISES, strict=True):
        (tmp_path / f"{name}.flac").write_bytes(flac(samples))
    return [str(tmp_path / f"{name}.flac") for name in TEXTS]


def dataset(paths, column, **audio):
    cells = [{"bytes": None, "path": path} for path in paths]
    return of_cells(cells, column).cast_column("audio", datasets.Audio(**audio))


def with_bytes(paths, column):
    cells = [{"bytes": flac(samples), "path": "somewhere/else.flac"} for samples in NOISES]
    return of_cells(cells, column).cast_column("audio", datasets.Audio())


def of_cells(cells, column):
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    return datasets.Dataset(pa.table({"audio": pa.array(cells, kind), column: TEXTS}))


def saved(paths, column, folder):
    with_bytes(paths, column).save_to_disk(folder / "saved")
    return datasets.load_from_disk(folder / "saved")


MEMORY = {
    "paths, decoded": lambda paths, column, folder: dataset(paths, column),
    "paths, not decoded": lambda paths, column, folder: dataset(paths, column, decode=False),
    "bytes": lambda paths, column, folder: with_bytes(paths, column),
    "saved": saved,
    "streamed": lambda paths, column, folder: with_bytes(paths, column).to_iterable_dataset(),
    "columns": lambda paths, column, folder: (with_bytes(paths, column)["audio"], TEXTS),
    "Arrow": lambda paths, column, folder: with_bytes(paths, column).data.table,
    "pandas": lambda paths, column, folder: with_bytes(paths, column).data.table.to_pandas(),
    "transformed": lambda paths, column, folder: (
        with_bytes(paths, column)
        .cast_column("audio", datasets.Audio(decode=False))
        .with_transform(
            lambda rows: rows | {"audio": [AudioDecoder(NOISES[TEXTS.index(text)]) for text in rows[column]]}
        )
    ),
    "decoders": lambda paths, column, folder: ([AudioDecoder(one) for one in NOISES], TEXTS),
    "arrays": lambda paths, column, folder: (
        [{"path": None, "array": one, "sampling_rate": RATE} for one in NOISES],
        TEXTS,
    ),
    "dictionaries": lambda paths, column, folder: [
        {"audio": {"bytes": None, "path": path}, column: text} for path, text in zip(paths, TEXTS, strict=True)
    ],
    "contents": lambda paths, column, folder: ([flac(one) for one in NOISES], TEXTS),
}


@pytest.mark.parametrize("form", MEMORY)
@pytest.mark.parametrize(("task", "column"), [("sounds", "label"), ("transcribe", "text")])
def test_data_in_memory(form, task, column, paths, tmp_path):
    kind = registry.find(task)
    path, data = prepared(kind, MEMORY[form](paths, column, tmp_path), tmp_path / "train", "train", {})
    store(kind, data, tmp_path / "train", "train", {})
    same_sounds(kind.input.open(path, (), SimpleNamespace(lowercase=False)))


def same_sounds(rows):
    assert [one.text for one in rows] == TEXTS
    features = feature_table(rows, FRONT_END)
    for number, samples in enumerate(NOISES):
        np.testing.assert_allclose(features[number], FRONT_END(samples), atol=2e-2)
        assert len(features[number]) == FRONT_END.frames(len(samples))


@pytest.mark.parametrize("column", ["text", "label"])
@pytest.mark.parametrize("make", [dataset, with_bytes])
def test_audio_columns_of_parquet_are_read(column, make, paths, tmp_path):
    path = tmp_path / "a.parquet"
    make(paths, column).to_parquet(path)
    for task in ("sounds", "transcribe"):
        kind = registry.find(task)
        rows = kind.input.open(str(path), (), SimpleNamespace(lowercase=False))
        same_sounds(rows)
        kind.input.check_rows(rows)
        assert len(set(kind.input.names(rows))) == 3


def test_parquet_of_features_and_of_no_sound(tmp_path):
    content = io.BytesIO()
    np.save(content, np.ones((4, 6), np.float32))
    cells = [{"bytes": content.getvalue(), "path": "a.npy"}, {"bytes": b"nonsense", "path": "b.wav"}, None]
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"audio": cells, "text": ["a", "b", "c"]}), path)
    rows = registry.find("transcribe").input.open(str(path), (), SimpleNamespace(lowercase=False))
    assert len(rows) == 2
    np.testing.assert_array_equal(feature_table(rows[:1], FRONT_END)[0], np.ones((4, 6)))
    with pytest.raises(DataError, match=r"a\.parquet: row 2, b\.wav: is not a sound that can be read"):
        feature_table(rows[1:], FRONT_END)


def test_inputs_of_a_prediction(paths):
    data = SoundOptions(train="x", rate=RATE, bands=6)
    inputs = [
        AudioDecoder(NOISES[0]), {"bytes": flac(NOISES[0]), "path": "a.flac"}, {"bytes": None, "path": paths[0]},
        {"array": NOISES[0], "sampling_rate": RATE}, flac(NOISES[0]), bytearray(flac(NOISES[0])),
        Sound(NOISES[0], RATE),
        {"array": (NOISES[0] * 32768).astype(np.int16), "sampling_rate": float(RATE)}, paths[0],
    ]  # fmt: skip
    for number, one in enumerate(inputs):
        np.testing.assert_allclose(heard(number, one, data, 6, 1).features, FRONT_END(NOISES[0]), atol=2e-2)
    trained = SimpleNamespace(
        config=SimpleNamespace(data=data), model=SimpleNamespace(config=SimpleNamespace(width=6, reduction=1))
    )
    read = registry.find("sounds").input.read(dataset(paths, "label")["audio"], trained)
    assert [len(one.features) for one in read] == [FRONT_END.frames(len(one)) for one in NOISES]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"bytes": None, "path": 3}, "has neither bytes nor a path"),
        ({"array": np.zeros((2, 8), np.float32), "sampling_rate": RATE}, r"array must be samples \[samples\]"),
        ({"array": np.zeros(8, np.float32), "sampling_rate": 7}, "cannot be a sound of 7 samples a second"),
        ({"file": "a.wav"}, "must be a path"),
        (object(), "must be a path"),
    ],
)
def test_values_that_are_no_sound_are_refused(value, reason, tmp_path):
    kind = registry.find("sounds")
    with pytest.raises(KindError, match=rf"train\[0\]: sound.*{reason}"):
        store(kind, [(value, "a")], tmp_path / "train", "train", {})
    with pytest.raises(KindError, match=rf"inputs\[0\].*{reason}"):
        heard(0, value, SoundOptions(train="x", rate=RATE, bands=6), 6, 1)


def test_a_folder_that_datasets_saved_is_named(paths, tmp_path):
    saved(paths, "label", tmp_path)
    with pytest.raises(DataError, match=r"saved: is a data set that `datasets` has saved.*load_from_disk.*\.parquet"):
        class_files(tmp_path / "saved", (".wav",), "sounds")


@pytest.mark.slow
def test_training_evaluation_and_prediction_agree_for_every_form(paths, tmp_path):
    with_bytes(paths, "label").to_parquet(tmp_path / "a.parquet")
    run = regard.train(
        "sounds", str(tmp_path / "a.parquet"), validation=str(tmp_path / "a.parquet"), run=tmp_path / "run", rate=RATE,
        bands=6, hidden=4, pyramid_layers=1, epochs=1, batch_size=3, validate_every=1000, quiet=True, threads=1,
    )  # fmt: skip
    expected = [one.probabilities for one in run.predict(paths)]
    for inputs in (dataset(paths, "label")["audio"], [AudioDecoder(one) for one in NOISES]):
        for one, other in zip(run.predict(inputs), expected, strict=True):
            assert one.probabilities == pytest.approx(other, abs=1e-3)
    accuracy = run.evaluate(str(tmp_path / "a.parquet")).accuracy
    assert run.evaluate(dataset(paths, "label")).accuracy == accuracy
    assert run.evaluate(saved(paths, "label", tmp_path)).accuracy == accuracy
