"""The manifest names what was changed, and never a file that the run wrote itself, wherever it was killed."""

import dataclasses
import os

import pytest

from regard.errors import RunError
from regard.files.atomic import AtomicFile
from regard.training.manifest import DataFile, Manifest, ManifestFile


@pytest.fixture
def manifest(tmp_path):
    return ManifestFile(tmp_path)


def write(manifest, path, content, killed_after=None):
    """Replaces a file of the run; the process is killed after that many of the calls that change files."""
    left = [killed_after]

    def counted(replace):
        def call(*arguments):
            if left[0] == 0:
                raise KeyboardInterrupt
            if left[0] is not None:
                left[0] -= 1
            return replace(*arguments)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", counted(os.replace))
        with manifest.recording(path) as record, AtomicFile(path, record) as temporary:
            temporary.write_bytes(content)


def test_a_manifest_survives_json():
    given = Manifest("/there", "old", ("a-*.txt",), {"a": ("1", "2")}, {"train": (DataFile("/a", 3, "f"),)})
    assert Manifest.from_json(given.to_json()) == given


@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize("exists", [False, True])
def test_killed_at_any_moment_the_file_is_right(manifest, tmp_path, moment, exists):
    place = tmp_path / "model"
    if exists:
        write(manifest, place, b"old")
    with pytest.raises(KeyboardInterrupt):
        write(manifest, place, b"new", killed_after=moment)
    manifest.verify(place)
    assert place.exists() == (exists or moment == 2)
    write(manifest, place, b"newer")
    manifest.verify(place)
    assert len(manifest.read().files["model"]) == 1


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"cold"), lambda path: path.unlink()])
def test_a_changed_or_deleted_file_is_named(manifest, tmp_path, change):
    place = tmp_path / "checkpoints" / "model"
    place.parent.mkdir()
    write(manifest, place, b"gold")
    manifest.verify(place)
    change(place)
    with pytest.raises(RunError, match=r"checkpoints/model is (damaged|missing)"):
        manifest.verify(place)


def test_unrecorded_files_pass_the_manifest(manifest, tmp_path):
    (tmp_path / "old").write_bytes(b"from version 0.1")
    manifest.verify(tmp_path / "old")
    manifest.record([tmp_path / "old"])
    (tmp_path / "old").write_bytes(b"changed")
    with pytest.raises(RunError, match="old is damaged"):
        manifest.verify(tmp_path / "old")
    manifest.forget([tmp_path / "old"])
    manifest.verify(tmp_path / "old")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"format": 2}',
        b'{"format": 1, "files": 3}',
        b'{"format": 1, "more": 1}',
        b"[" * 99999,
    ],
    ids=range(8),
)
def test_a_damaged_manifest_is_one_line(manifest, content):
    manifest.path.write_bytes(content)
    with pytest.raises(RunError, match=r"manifest\.json is damaged") as caught:
        manifest.read()
    assert "\n" not in str(caught.value)


def test_a_reader_beside_a_writer_reads_again(manifest, tmp_path):
    place = tmp_path / "model"
    write(manifest, place, b"old")
    calls = []

    def load():
        calls.append(place.read_bytes())
        if len(calls) == 1:
            write(manifest, place, b"new")
            raise RunError("half of it is of another model")
        return calls[-1]

    assert manifest.consistently([place], load) == b"new"
    place.write_bytes(b"bad")
    with pytest.raises(RunError, match="damaged"):
        manifest.consistently([place], load)


def test_changed_data_is_named_and_may_be_allowed(manifest, tmp_path):
    data = tmp_path.parent / "pairs.tsv"
    data.write_text("a\tb\nc\td\n")
    manifest.record_data({"train": [data]})
    manifest.record_data({"train": [data]})
    data.write_text("a\tb\n")
    with pytest.raises(
        RunError, match=r"train data .*pairs\.tsv has changed .*8 bytes then, 4 now.*--allow-changed-data"
    ):
        manifest.record_data({"train": [data]})
    manifest.record_data({"train": [data]}, allow_changed=True)
    manifest.record_data({"train": [data]})
    with pytest.raises(RunError, match="1 files when the run began and has 2"):
        manifest.record_data({"train": [data, data]})
    data.unlink()


def test_data_in_the_run_folder_moves_with_it(manifest, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "train.tsv").write_text("x")
    manifest.record_data({"train": [tmp_path / "corpus" / "train.tsv"]})
    (file,) = manifest.read().data["train"]
    assert file.path == "corpus/train.tsv"


def test_paths_are_found_from_any_working_directory(manifest, tmp_path, monkeypatch):
    (tmp_path / "pairs.tsv").write_text("x")
    assert manifest.resolve("pairs.tsv") == "pairs.tsv"
    manifest.write(dataclasses.replace(Manifest(), began_in=str(tmp_path)))
    monkeypatch.chdir("/")
    assert manifest.resolve("pairs.tsv") == str(tmp_path / "pairs.tsv")
    assert manifest.resolve("owner/name") == "owner/name"
    assert manifest.resolve("/pairs.tsv") == "/pairs.tsv"
