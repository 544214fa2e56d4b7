"""Tables of sounds: rows are named, features are computed once, batches are functions of seed and epoch."""

import logging
import shutil

import numpy as np
import pytest
import soundfile

from regard.data.ragged import Ragged
from regard.data.speech.batches import SpeechBatch, Variation, speech_batches, stretched
from regard.data.speech.log_mel import LogMel
from regard.data.speech.utterances import FeatureTable, feature_table, open_utterances
from regard.data.speech.voices import PHONES, RATE, WORDS, Voice, speak, utterance, write_speech
from regard.errors import ArgumentError, DataError, UnknownNameError


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(1)
    (tmp_path / "sounds").mkdir()
    for number in range(3):
        soundfile.write(tmp_path / "sounds" / f"{number}.wav", rng.uniform(-0.5, 0.5, 900 + 160 * number), 8000)
    path = tmp_path / "a.tsv"
    path.write_text("audio\ttext\nsounds/0.wav\tOne two\nsounds/1.wav\t \nsounds/2.wav\tthree\n")
    return path


def test_rows_without_a_text_are_left_out_and_rows_keep_their_numbers(table, caplog):
    with caplog.at_level(logging.WARNING, "regard"):
        found = open_utterances(table)
    assert [one.text for one in found] == ["One two", "three"]
    assert found[1].name == f"{table}: row 3: {table.parent / 'sounds/2.wav'}"
    assert "left out 1 row without" in caplog.text
    assert [one.text for one in open_utterances(str(table), lowercase=True, limit=1)] == ["one two"]


def test_columns_are_chosen_and_labels_may_be_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"digit": 7, "file": "x.wav", "other": 1}\n{"digit": 8, "file": "y.wav", "other": 2}\n')
    assert [one.text for one in open_utterances(path, "file", "digit")] == ["7", "8"]
    with pytest.raises(DataError, match="say with --text-column which column has the texts"):
        open_utterances(path)
    with pytest.raises(DataError, match="no column 'fil'"):
        open_utterances(path, "fil", "digit")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.tsv", "", "is empty"),
        ("a.tsv", "audio\ttext\n", "no row has a sound and a text"),
        ("a.tsv", "audio\ttext\n \tone\n", "no row has a sound and a text .the first without them is row 1."),
        ("a.txt", "x", "unknown kind of file"),
        ("a.tsv", "audio\ttext\tsegments\nx.wav\tone\t0.5-0.2\n", "row 1: the column 'segments'"),
    ],
)
def test_bad_tables_are_one_line(tmp_path, name, content, reason):
    (tmp_path / name).write_text(content)
    columns = ("audio", "text") if "segments" in content else (None, None)
    with pytest.raises(DataError, match=reason):
        open_utterances(tmp_path / name, *columns)


def test_a_missing_table_and_an_empty_folder_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none.tsv: no such file"):
        open_utterances(tmp_path / "none.tsv")
    with pytest.raises(DataError, match="folder without classes"):
        open_utterances(tmp_path)


def test_sounds_of_a_folder_of_classes_take_turns(table):
    folder = table.parent / "classes"
    for label, names in {"low": ["b", "a"], "high": ["c"]}.items():
        (folder / label).mkdir(parents=True)
        for name in names:
            shutil.copy(table.parent / "sounds/0.wav", folder / label / f"{name}.wav")
    found = open_utterances(folder)
    assert [(one.text, one.path.name) for one in found] == [("high", "c.wav"), ("low", "a.wav"), ("low", "b.wav")]


def test_features_are_those_of_the_front_end_and_come_from_the_cache(table, monkeypatch):
    front_end, listed = LogMel(8000, bands=6), open_utterances(table)
    found = feature_table(listed, front_end)
    assert found.width == 6
    assert found.lengths.tolist() == [12, 16]
    for number, one in enumerate(listed):
        np.testing.assert_array_equal(found[number], front_end(soundfile.read(one.path, dtype="float32")[0]))

    def fail(*_):
        raise AssertionError("it was read again")

    monkeypatch.setattr("regard.data.speech.utterances.utterance_features", fail)
    np.testing.assert_array_equal(feature_table(listed, front_end)[1], found[1])
    with pytest.raises(AssertionError, match="read again"):
        feature_table(listed, LogMel(8000, bands=7))


def test_the_row_of_a_bad_file_is_named(table):
    (table.parent / "sounds/2.wav").write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"a\.tsv: row 3: .*2\.wav: is not a sound"):
        feature_table(open_utterances(table), LogMel(8000))
    (table.parent / "sounds/2.wav").unlink()
    with pytest.raises(DataError, match=r"a\.tsv: row 3: .*2\.wav: no such file"):
        feature_table(open_utterances(table), LogMel(8000))


def test_features_of_another_width_are_refused_with_their_row(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 3)))
    np.save(tmp_path / "b.npy", np.zeros((4, 5)))
    (tmp_path / "t.tsv").write_text("features\ttext\na.npy\tx\nb.npy\ty\n")
    with pytest.raises(DataError, match=r"t\.tsv: row 2: .*b\.npy: has 5 features a frame, the first utterance has 3"):
        feature_table(open_utterances(tmp_path / "t.tsv"), LogMel())


def numbered(lengths, width=2):
    """Features whose every number says their utterance."""
    return FeatureTable.of([np.full((length, width), number, np.float32) for number, length in enumerate(lengths)])


LENGTHS = [5, 3, 8, 2, 7, 11, 4]


def batches(variation=None, size=3, **options):
    return speech_batches(numbered(LENGTHS), lambda rows: [4 + row for row in rows], size, variation, **options)


def test_a_batch_is_padded_by_zeros_and_targets_have_their_ends():
    batch = SpeechBatch.of([np.ones((3, 2), np.float32), np.ones((5, 2), np.float32)], [[7], [8, 9]])
    assert batch.source.sum((1, 2)).tolist() == [6, 10]
    assert batch.source[0, 3:].abs().sum() == 0
    assert batch.target.tolist() == [[1, 7, 2, 0], [1, 8, 9, 2]]
    assert batch.target_tokens == 5
    assert batch.labels.tolist() == [7, 8]


def test_without_variation_every_utterance_comes_once_from_the_shortest_on():
    found = list(batches())
    assert [len(batch) for batch in found] == [3, 3, 1]
    assert [length for batch in found for length in batch.source_lengths.tolist()] == sorted(LENGTHS)
    for batch in found:
        for row, number in enumerate(batch.index.tolist()):
            assert batch.source_lengths[row] == LENGTHS[number]
            assert batch.target[row, 1] == 4 + number
            assert (batch.source[row, : LENGTHS[number]] == number).all()


@pytest.mark.parametrize("variation", [Variation(), Variation(join=3), Variation(stretch=0.3), Variation(2, 0.1)])
def test_an_epoch_is_a_function_of_seed_and_epoch_and_resumes_anywhere(variation):
    loader = batches(variation, size=2, seed=5)
    epochs = [list(loader) for _ in range(3)]
    assert {len(epoch) for epoch in epochs} == {len(loader)}
    assert [batch.index.tolist() for batch in epochs[0]] != [batch.index.tolist() for batch in epochs[1]]
    for position in range(len(loader) + 1):
        again = batches(variation, size=2, seed=5)
        again.load_state_dict({"epoch": 1, "position": position})
        expected = epochs[1][position:] or epochs[2]
        for one, other in zip(again, expected, strict=True):
            assert (one.source == other.source).all()
            assert (one.target == other.target).all()


def test_joined_examples_are_their_utterances_in_order():
    for batch in batches(Variation(join=4), size=2, seed=1):
        for row in range(len(batch)):
            numbers = [token - 4 for token in batch.target[row, 1 : batch.target_lengths[row] - 1].tolist()]
            assert 1 <= len(numbers) <= 4
            assert batch.index[row] == numbers[0]
            frames = [number for number in numbers for _ in range(LENGTHS[number])]
            assert batch.source[row, : batch.source_lengths[row], 0].tolist() == frames


def test_joined_utterances_occur_equally_often():
    loader = speech_batches(numbered([2] * 101), list, 4, Variation(join=5), seed=3)
    drawn = [token for batch in loader for row in batch.target.tolist() for token in row[1:]]
    counts = np.bincount([token for token in drawn if token > 2], minlength=101)[3:]
    assert counts.max() - counts.min() <= 1


def test_processes_share_an_epoch_of_utterances():
    whole = {tuple(batch.index.tolist()) for batch in batches(Variation(), seed=2)}
    parts = [list(batches(Variation(), seed=2, rank=rank, world_size=2)) for rank in range(2)]
    assert [len(part) for part in parts] == [2, 2]
    assert {tuple(batch.index.tolist()) for part in parts for batch in part} == whole


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.0, 1.3, 100.0])
def test_stretching_keeps_a_line_a_line(factor):
    """Centres of frames move in proportion: what was a function of time stays one."""
    ramp = np.arange(20, dtype=np.float32)[:, None] + 0.5
    found = stretched(ramp, factor)
    assert len(found) == max(1, round(20 / factor))
    expected = np.clip((np.arange(len(found)) + 0.5) * 20 / len(found), 0.5, 19.5)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5)


def test_impossible_batches_are_refused():
    with pytest.raises(ArgumentError, match="batch_size"):
        batches(size=0)
    with pytest.raises(ArgumentError, match="no examples"):
        speech_batches(FeatureTable(Ragged([]), 3), list, 2)
    with pytest.raises(ArgumentError, match="rank"):
        batches(rank=2, world_size=2)
    with pytest.raises(ArgumentError, match="does not fit"):
        batches().load_state_dict({"epoch": 0, "position": 9})
    with pytest.raises(ArgumentError, match="join"):
        Variation(join=0)
    with pytest.raises(ArgumentError, match="stretch"):
        Variation(stretch=1.0)


def test_generated_speech_does_not_depend_on_sizes_and_knows_its_times(tmp_path):
    small = write_speech(tmp_path / "a", {"train": 2, "test": 1}, seed=4)
    large = write_speech(tmp_path / "b", {"test": 1, "train": 3}, seed=4)
    assert small["test"].read_text() == large["test"].read_text()
    assert large["train"].read_text().startswith(small["train"].read_text())
    listed = open_utterances(small["train"], "audio", "text")
    for number, one in enumerate(listed):
        text, speech = utterance("train", number, 4)
        assert one.text == text
        assert len(one.segments) == len(text.split())
        samples, rate = soundfile.read(one.path, dtype="float32")
        assert rate == RATE
        np.testing.assert_allclose(samples, speech.samples, atol=1e-4)
        np.testing.assert_allclose(one.segments, speech.segments, atol=1e-3)


def test_sound_is_where_the_times_say():
    """The energy between words is that of the room; within each word it is that of a voice."""
    voice = Voice(pitch=120.0, scale=1.0, speed=1.0, melody=0.05, hiss=1e-4)
    speech = speak(["one", "five", "go"], voice, np.random.default_rng(3))
    power = speech.samples.astype(np.float64) ** 2
    times = np.arange(len(power)) / RATE
    inside = np.zeros(len(power), bool)
    for start, end in speech.segments:
        word = (times >= start) & (times < end)
        assert power[word].mean() > 1e-3
        inside |= (times >= start - 0.03) & (times < end + 0.03)
    assert power[~inside].mean() < 1e-6


def test_every_word_is_made_of_known_phones_and_others_are_refused():
    assert {name for phones in WORDS.values() for name in phones.split()} <= PHONES.keys()
    with pytest.raises(UnknownNameError, match="unknown word 'ten'"):
        speak(["ten"], Voice.draw(np.random.default_rng(0)), np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="size of 'a'"):
        write_speech("/nowhere", {"a": -1}, 1)
