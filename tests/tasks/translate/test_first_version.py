"""Run folders of version 0.1: they predict, evaluate and resume."""

import dataclasses
import json
import signal

import pytest
import torch
import yaml
from safetensors.torch import load_file

import regard
from regard.errors import RunError
from regard.tasks.inputs.run_tokenizer import tokenizer_path
from regard.tasks.translate import TASK
from regard.training.checkpoints import list_checkpoints, load_checkpoint
from regard.training.manifest import ManifestFile
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder
from signal_at import SignalAt

OLD_NAMES = {
    "embedding": "embedding_dim", "hidden": "hidden_dim", "tied": "tied_embeddings", "architecture": "cell",
}  # fmt: skip


def make_old(folder, tensorboard=False):
    """Give a run folder the form in which version 0.1 wrote it."""
    config = folder.read_config(TASK)
    training = dataclasses.asdict(config.training)
    for name in ("init_from", "logger"):
        del training[name]
    model = {OLD_NAMES.get(name, name): value for name, value in config.to_dict()["model"].items()}
    del model["entropy_weight"]
    content = {
        "data": dataclasses.asdict(config.data),
        "training": {**training, "tensorboard": tensorboard},
        "model": {**model, "max_source": config.data.max_length},
        "task": "translate",
    }
    folder.config.write_text(yaml.safe_dump(content, sort_keys=False))
    (folder.path / ManifestFile.NAME).unlink()
    for side in ("source", "target"):
        path = tokenizer_path(folder, side)
        model = json.loads(path.read_text())["model"]
        state = {
            "regard": {"what": "tokenizer", "format": 1},
            "kind": config.data.tokenizer,
            "lowercase": config.data.lowercase,
            "pieces": sorted(model["vocab"], key=model["vocab"].get),
            "merges": model.get("merges", []),
        }
        path.write_text(json.dumps(state, ensure_ascii=False))
    for path in list_checkpoints(folder.checkpoints):
        checkpoint = load_checkpoint(path)
        progress = checkpoint["regard"]["progress"]
        best, units = progress.pop("best"), progress.pop("units")
        checkpoint["regard"] = {
            "format": 1,
            "progress": {**progress, "best_bleu": -1.0 if best is None else best, "tokens": units},
        }
        torch.save(checkpoint, path)


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """A run that nothing interrupted."""
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "whole")
    trained = train_run(TASK, tiny(), folder, reporter=SilentReporter())
    return folder, trained


@pytest.mark.parametrize("part", [0.25, 0.75], ids=["before a validation", "after a validation"])
def test_an_interrupted_run_of_version_0_1_continues(whole, tiny, tmp_path, part):
    expected, trained = whole
    folder = RunFolder.create(tmp_path / "run")
    stopped = train_run(TASK, tiny(), folder, reporter=SignalAt(int(part * trained.progress.step), signal.SIGINT))
    assert stopped.interrupted
    make_old(folder)
    config = folder.read_config(TASK)
    assert config == tiny()
    resumed = train_run(TASK, config, folder, resume=True, reporter=SilentReporter())
    assert resumed.progress.best == trained.progress.best
    found, wanted = load_file(folder.model), load_file(expected.model)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert list(folder.read_metrics()[0]) == list(expected.read_metrics()[0])
    assert folder.read_samples() == expected.read_samples()


def test_a_finished_run_of_version_0_1_is_used_as_before(whole, tiny, corpus, tmp_path):
    folder, _ = whole
    before = regard.load(folder.path)
    sentences = ["The dog sleeps.", "She reads a zzzz book."]
    wanted = [found.to_dict() for found in before.predict(sentences, beam=2)]
    scores = before.evaluate(corpus["test"], limit=5).to_dict()
    make_old(folder, tensorboard=True)
    after = regard.load(folder.path)
    assert after.config.training.logger == "tensorboard"
    assert [found.to_dict() for found in after.predict(sentences, beam=2)] == wanted
    assert after.evaluate(corpus["test"], limit=5).to_dict() | {"seconds": 0} == scores | {"seconds": 0}


def test_a_configuration_made_in_python_had_200_keys(tmp_path):
    folder = RunFolder(tmp_path)
    content = {"data": {"train": "a.tsv"}, "training": {"tensorboard": False}, "model": {"score": "location"}}
    folder.config.write_text(yaml.safe_dump(content))
    assert folder.read_config(TASK).model.max_source == 200
    folder.config.write_text(yaml.safe_dump(content | {"training": {}}))
    assert folder.read_config(TASK).model.max_source == 0


def test_a_checkpoint_of_a_later_version_is_refused(whole, tiny, tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    train_run(TASK, tiny(), folder, reporter=SignalAt(3, signal.SIGINT))
    (path,) = list_checkpoints(folder.checkpoints)
    checkpoint = load_checkpoint(path)
    checkpoint["regard"]["format"] = 99
    torch.save(checkpoint, path)
    (folder.path / ManifestFile.NAME).unlink()
    with pytest.raises(RunError, match="format 99"):
        train_run(TASK, tiny(), folder, resume=True, reporter=SilentReporter())
