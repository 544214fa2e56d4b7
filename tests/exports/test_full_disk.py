"""A disk that is full is one error, whatever the library that writes raises: each has an exception of its own."""

import errno
import os

import pytest

from regard.errors import ArgumentError, WriteError
from regard.exports import torch_programs
from regard.exports.export import _new_folder
from regard.exports.hugging_face import folder as hugging_face_folder

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def raising(error):
    def write(*_, **__):
        raise error

    return write


def test_a_full_disk_under_safetensors_is_one_line(tmp_path):
    """safetensors 0.8: a SafetensorError, which is no OSError."""
    safetensors = pytest.importorskip("safetensors")
    pytest.importorskip("transformers")
    full = safetensors.SafetensorError("I/O error: No space left on device (os error 28)")
    model = type("Model", (), {"save_pretrained": raising(full)})()
    with pytest.raises(WriteError, match=r"cannot write into .*No space left on device .*; free some disk space"):
        hugging_face_folder.write(model, tmp_path)


def test_programs_of_pytorch(tmp_path, monkeypatch):
    """PyTorch 2.13: a RuntimeError of its writer of zip files."""
    monkeypatch.setattr(torch_programs, "with_operators_of_pytorch", lambda program: program)
    for error in (RuntimeError("[enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0"), FULL):
        monkeypatch.setattr("torch.export.save", raising(error))
        with pytest.raises(WriteError, match=r"cannot write .*model\.pt2: ") as refused:
            torch_programs.save(None, tmp_path / "model.pt2")  # pyright: ignore
        assert len(str(refused.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    full = pytest.raises(WriteError, match=r"cannot write into the folder .*new: No space left on device")
    with full, _new_folder(tmp_path / "new"):
        raise FULL
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["", " ", ".", "..", "/", "x/..", "../../"])
def test_an_export_replaces_no_working_folder(tmp_path, monkeypatch, path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    refused = pytest.raises(ArgumentError, match=r"folder (is empty|must name something new)")
    with refused, _new_folder(path):  # pyright: ignore
        pass
    assert (tmp_path / "a" / "b").is_dir()
