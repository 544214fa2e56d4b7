"""The folder of an export: complete or not there, replaced only where an export was, and readable by other programs."""

import json
import signal
import subprocess
import sys

import pytest
import torch

from exports.test_hugging_face import language_model
from module_cases import MODELS
from regard.errors import ArgumentError, MissingPartError, RunError, UnknownNameError
from regard.exports.export import INDEX, Exportable, export, size_text
from regard.exports.hugging_face import gpt2

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.manual_seed(1)
    model, files = language_model(position="rotary")
    path = tmp_path_factory.mktemp("run") / "tokenizer.json"
    files["tokenizer"].save(path)
    return Exportable("run", "language", model.eval(), {"tokenizer": (files["tokenizer"], path)}, {"context": 11})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_export_says_what_it_wrote(run, tmp_path):
    said = []
    exported = export(run, "hf", tmp_path / "new" / "folder", report=said.append)
    assert exported.folder == tmp_path / "new" / "folder"
    assert sorted(exported.files) == names(exported.folder)
    assert exported.differences["Starcoder2ForCausalLM"] < 1e-5
    assert len(said) == 1
    index = json.loads((exported.folder / INDEX).read_text())
    assert index["format"] == "hf"
    assert index["preparation"] == {"context": 11}
    assert sorted(index["files"]) == sorted(exported.files)
    assert names(tmp_path / "new") == ["folder"]
    namespace = {}
    exec(exported.usage, namespace)
    assert type(namespace["model"]).__name__ == "Starcoder2ForCausalLM"


def test_an_empty_folder_is_used_and_another_one_is_kept(run, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    export(run, "hf", folder)
    with pytest.raises(RunError, match=r"not empty.* overwrite=True, .* folder$"):
        export(run, "hf", folder)
    before = (folder / INDEX).stat().st_ino
    export(run, "hf", folder, overwrite=True)
    assert (folder / INDEX).stat().st_ino != before
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match=r"mine\.txt"):
        export(run, "hf", folder, overwrite=True)
    assert (folder / "mine.txt").read_text() == "mine"
    assert names(tmp_path) == ["folder"]


def test_nothing_is_replaced_but_an_export(run, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(RunError, match="is a file"):
        export(run, "hf", file, overwrite=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / INDEX).write_text('{"files": ["../file", 3, null]}')
    with pytest.raises(RunError, match="no file of an export"):
        export(run, "hf", other, overwrite=True)
    (tmp_path / "link").symlink_to(other)
    with pytest.raises(RunError, match="link"):
        export(run, "hf", tmp_path / "link", overwrite=True)
    assert file.read_text() == "mine"
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "to-empty").symlink_to(empty)
    with pytest.raises(RunError, match="link"):
        export(run, "hf", tmp_path / "to-empty")
    assert names(tmp_path) == ["empty", "file", "link", "other", "to-empty"]


SCRIPT = """
import os, signal, sys
from pathlib import Path
from regard.exports import hugging_face
from regard.exports.export import Exportable, export
from regard.training.signal_handler import exit_on_signals

def interrupted(model, files, path, fit):
    (path / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGTERM)

hugging_face.save = interrupted
with exit_on_signals():
    export(Exportable("x", "language", None, {}), "hf", Path(sys.argv[1]))
"""


def test_a_signal_leaves_nothing(tmp_path):
    ended = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path / "folder"], capture_output=True, text=True)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    assert "stopped by SIGTERM" in ended.stderr
    assert not names(tmp_path)


def test_the_folder_has_the_mode_of_a_new_one(run, tmp_path):
    (tmp_path / "plain").mkdir()
    export(run, "hf", tmp_path / "folder")
    assert (tmp_path / "folder").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_failure_leaves_nothing(run, tmp_path, monkeypatch):
    folder = tmp_path / "folder"

    def fail(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gpt2, "save_tokenizer", fail)
        with pytest.raises(KeyboardInterrupt):
            export(run, "hf", folder)
    assert not names(tmp_path)
    export(run, "hf", folder)
    with monkeypatch.context() as patch:
        patch.setattr(gpt2, "difference", lambda *arguments: (_ for _ in ()).throw(RunError("differs")))
        with pytest.raises(RunError, match="differs"):
            export(run, "hf", folder, overwrite=True)
    assert names(tmp_path) == ["folder"]
    assert (folder / INDEX).is_file()


def test_bad_arguments_are_named(run, tmp_path, monkeypatch):
    with pytest.raises(UnknownNameError, match="'onyx'; did you mean 'onnx'"):
        export(run, "onyx", tmp_path / "x")
    with pytest.raises(ArgumentError, match="int8 is for onnx; to is 'torch'"):
        export(run, "torch", tmp_path / "x", int8=True)
    with pytest.raises(ArgumentError, match="Segmenter"):
        export(Exportable("x", "segment", MODELS["Segmenter"]().eval(), {}), "hf", tmp_path / "x")
    for part, to in (("onnxscript", "onnx"), ("transformers", "hf")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, part, None)
            with pytest.raises(MissingPartError, match=rf"{part} is not installed.*regard\[export\]"):
                export(run, to, tmp_path / "x")
    assert not names(tmp_path)


def test_sizes_are_for_people():
    assert [size_text(size) for size in (12, 1300, 4_560_000, 7 * 10**9)] == ["12 bytes", "1.3 kB", "4.6 MB", "7.0 GB"]
