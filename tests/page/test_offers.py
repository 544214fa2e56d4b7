"""What ``regard serve`` offers without arguments: runs and downloaded models, each loaded when it is chosen."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from page_servers import serving
from regard.page.access import MOST_BYTES, MOST_UPLOADED
from regard.page.examples import examples_of
from regard.page.models import open_model
from regard.page.offers import find_offers
from regard.page.reading import MOST_CHARACTERS
from regard.viewer import module_path

transformers = pytest.importorskip("transformers")


@pytest.fixture
def machine(run_of, tmp_path):
    """A folder of runs, one unfinished, and a cache with a model, one without a tokenizer, one without safetensors."""
    runs, cache = tmp_path / "runs", tmp_path / "hub"
    for name in ("bahdanau", "classify"):
        shutil.copytree(run_of(name), runs / name)
    (runs / "unfinished").mkdir()
    shutil.copy(run_of("bahdanau") / "config.yaml", runs / "unfinished")
    (runs / "notes").mkdir()
    for name in ("a--tiny", "b--old", "c--image"):
        snapshot = cache / f"models--{name}" / "snapshots" / "1"
        config = transformers.BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                                         intermediate_size=8, max_position_embeddings=33)  # fmt: skip
        transformers.BertModel(config).save_pretrained(snapshot)
        (snapshot / "vocab.txt").write_text(
            "\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "red", "."))
        )
        (snapshot / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "do_lower_case": true}')
        # The hub's own files of settings are not all objects.
        (snapshot / "data_config.json").write_text("[]")
    (cache / "models--b--old" / "snapshots" / "1" / "model.safetensors").rename(cache / "weights.bin")
    for name in ("vocab.txt", "tokenizer_config.json"):
        (cache / "models--c--image" / "snapshots" / "1" / name).unlink()
    return runs, cache


def test_models_are_described_without_being_loaded(machine):
    before = sorted(path for folder in machine for path in folder.rglob("*"))
    offers = find_offers(*machine)
    told = {model.name: model.to_dict() for model in offers.models}
    assert list(told)[-1] == "a/tiny"
    assert set(told) == {"bahdanau", "classify", "a/tiny"}
    assert all(one["offered"] and not one["loaded"] and one["examples"] for one in told.values())
    assert told["a/tiny"]["facts"].startswith("BertModel, 2 layers × 2 heads · ")
    assert told["bahdanau"]["kind"] == "run"
    reasons = sorted(line.rsplit("/", 1)[-1] for line in offers.left_out)
    assert [reason.split(": ")[1].split(",")[0] for reason in reasons] == [
        "it has no safetensors", "it has no tokenizer", "its training has not come to a validation",
    ]  # fmt: skip
    assert sorted(path for folder in machine for path in folder.rglob("*")) == before


def test_a_model_is_loaded_when_it_is_chosen(machine):
    offers = find_offers(*machine)
    place = [model.name for model in offers.models].index("a/tiny")
    with serving(*offers.models) as client:
        opened = client.ask("open", {"model": place, "pane": "a", "number": 1}).json
        assert (opened["loaded"], opened["most_tokens"], opened["facts"]) == (True, 33, "BertModel, 2 layers × 2 heads")
        assert client.read("the red a.", model=place).json["payload"]["records"]
        assert [one["loaded"] for one in client.ask("models").json["models"]].count(True) == 1
        too_long = client.read("red " * 40, model=place, number=2)
        assert (too_long.status, "at most 33" in too_long.json["error"]) == (422, True)


def test_a_folder_that_stops_being_a_model_is_a_message(machine):
    offers = find_offers(*machine)
    shutil.rmtree(offers.models[-1].path)
    with serving(*offers.models) as client:
        reply = client.ask("open", {"model": len(offers.models) - 1, "pane": "a", "number": 1})
        assert (reply.status, "there is no folder" in reply.json["error"]) == (422, True)


def test_the_command_offers_them_or_says_what_to_do(machine, tmp_path, run_command, monkeypatch):
    runs, cache = machine
    monkeypatch.setattr("regard.page.server.PageServer.run", lambda self, ready: ready())
    monkeypatch.setattr("regard.page.offers.hub_cache", lambda: cache)
    code, output, error = run_command("serve", "--runs", runs, "--port", 0, "--no-browser")
    assert (code, output.splitlines()[0]) == (0, "regard: 3 models found; each is loaded when it is chosen")
    assert sum(line.startswith("regard: not offered: ") for line in error.splitlines()) == 3
    monkeypatch.setattr("regard.page.offers.hub_cache", lambda: tmp_path / "none")
    code, output, error = run_command("serve", "--runs", tmp_path / "none", "--port", 0)
    assert (code, output) == (2, "")
    for command in ("regard demo", "regard serve path/to/folder", "hf download "):
        assert command in error
    assert "Traceback" not in error


def test_one_bad_folder_hides_no_other(machine, monkeypatch):
    """A folder that may not be read is left out with its reason, and a sample may name what no file can be."""
    runs, cache = machine
    closed = runs / "notes"
    real = os.stat

    def refusing(path, *args, **kwargs):
        if str(path).startswith(f"{closed}{os.sep}"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refusing)
    offers = find_offers(runs, cache)
    assert {model.name for model in offers.models} == {"bahdanau", "classify", "a/tiny"}
    assert f"{closed}: it cannot be read (Permission denied)" in offers.left_out


def test_a_sample_that_names_no_file_is_no_example(tmp_path):
    samples = [{"image": "a" * 900 + ".png"}, {"image": str(tmp_path / "b.png")}]
    (tmp_path / "b.png").write_bytes(b"")
    folder = SimpleNamespace(read_samples=lambda: samples, file=lambda name: tmp_path / name)
    assert [example.text for example in examples_of(folder, "image")] == ["b.png"]


def test_runs_must_be_a_folder(machine, tmp_path, run_command, monkeypatch):
    monkeypatch.setattr("regard.page.offers.hub_cache", lambda: tmp_path / "none")
    for place, told in ((tmp_path / "missing", "there is no folder"), (machine[0], "no finished run in")):
        if place.exists():
            shutil.rmtree(place)
            place.mkdir()
        code, _, error = run_command("serve", "--runs", place, "--port", 0)
        assert code == 2
        assert f"{told} {place}" in error
    (tmp_path / "file").touch()
    code, _, error = run_command("serve", "--runs", tmp_path / "file", "--port", 0)
    assert code == 2
    assert "--runs must be a folder" in error
    assert "Traceback" not in error


def test_sizes_are_told_once_and_alike(run_of):
    with serving(open_model(run_of("bahdanau"))) as client:
        limits = client.ask("models").json["limits"]
    assert limits == {"characters": MOST_CHARACTERS, "upload": MOST_UPLOADED}
    told = (Path(__file__).parents[2] / "docs" / "en" / "how-to" / "page.md").read_text("utf-8")
    for size in (f"{MOST_CHARACTERS:,} characters", f"{MOST_BYTES // 2**10} KiB", f"{MOST_UPLOADED // 2**20} MiB"):
        assert size in told
    assert told.count("MiB") == 1
    scripts = [*module_path().parents[1].joinpath("page", "static").glob("*.js")]
    assert not any(
        number in script.read_text("utf-8") for script in scripts for number in ("10000", "10_000", "1024 *")
    )
