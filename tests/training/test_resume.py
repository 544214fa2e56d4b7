"""A run that is interrupted, however and wherever, and resumed, is the run that never was interrupted."""

import math
import os
import pickle
import shutil
import signal
import time
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import DataError, RunError, TrainingError
from regard.models.recurrent_translator import RecurrentTranslator
from regard.tasks.translate import TASK
from regard.training import loop
from regard.training.checkpoints import list_checkpoints, load_checkpoint, save_checkpoint
from regard.training.loop import TrainingLoop
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder
from signal_at import SignalAt

TIMES = ("seconds", "tokens_per_second")


def train(config, path, resume=False, reporter=None):
    folder = RunFolder.open(path) if resume else RunFolder.create(path)
    return train_run(TASK, config, folder, resume=resume, reporter=reporter or SilentReporter())


def results(path):
    """Everything of a run that is no measurement of time: metrics, samples, the best weights and the last state."""
    folder = RunFolder(path)
    rows = [{name: value for name, value in row.items() if name not in TIMES} for row in folder.read_metrics()]
    last = load_checkpoint(list_checkpoints(folder.checkpoints)[-1])
    tensors = {**load_file(folder.model), **{f"last.{name}": value for name, value in last["state_dict"].items()}}
    for number, state in last["optimizer_states"][0]["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
    return rows, folder.read_samples(), tensors


def assert_same(one, other):
    assert one[:2] == other[:2]
    assert one[2].keys() == other[2].keys()
    for name, value in one[2].items():
        assert torch.equal(value, other[2][name]), name


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """A run that nothing interrupted."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    config = tiny(checkpoint_steps=4)
    trained = train(config, path)
    assert trained.progress.epoch == 2
    return path, config, results(path), trained.progress.step


@pytest.fixture
def uninterrupted(whole, tmp_path):
    """A copy of that run in ``tmp_path / "whole"``, with its configuration, results and number of steps."""
    path, *rest = whole
    shutil.copytree(path, tmp_path / "whole")
    return rest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(uninterrupted, tmp_path, number):
    before = signal.getsignal(signal.SIGINT)
    config, expected, steps = uninterrupted
    for stop in (3, steps // 2 + 2):  # in the first epoch, and in the second
        path = tmp_path / f"stopped-{stop}"
        stopped = train(config, path, reporter=SignalAt(stop, number))
        assert stopped.interrupted == number
        assert stopped.progress.step == stop + 1
        assert not train(config, path, resume=True).interrupted
        assert_same(results(path), expected)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_finished_run_has_nothing_to_resume(uninterrupted, tmp_path):
    config, expected, steps = uninterrupted
    again = train(config, tmp_path / "whole", resume=True)
    assert again.progress.step == steps
    assert again.progress.finished
    assert_same(results(tmp_path / "whole"), expected)


def test_rows_that_the_checkpoint_does_not_know_are_written_again(uninterrupted, tmp_path):
    config, expected, _ = uninterrupted
    path = tmp_path / "stopped"
    train(config, path, reporter=SignalAt(2, signal.SIGINT))
    folder = RunFolder(path)
    folder.write_metrics([{**row, "seconds": 0, "tokens_per_second": 0} for row in expected[0]])
    folder.write_samples(expected[1])
    train(config, path, resume=True)
    assert_same(results(path), expected)


@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
def test_a_loss_that_is_no_number_stops_the_run(tiny, tmp_path, monkeypatch, on_host):
    # The losses of an accelerator are read after some steps, and before each checkpoint.
    monkeypatch.setattr(loop, "is_on_host", lambda tensor: on_host)
    found = RecurrentTranslator.loss
    calls = []

    def loss(model, *arguments, **options):
        calls.append(model.training)
        true = found(model, *arguments, **options)
        return true._replace(total=true.total * math.nan) if sum(calls) == 6 else true

    monkeypatch.setattr(RecurrentTranslator, "loss", loss)
    with pytest.raises(TrainingError, match="nan at step 6; the last good checkpoint is kept"):
        train(tiny(checkpoint_steps=2), tmp_path / "run")
    kept = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert [path.name for path in kept] == ["step-00000002.ckpt", "step-00000004.ckpt"]


def test_losses_that_are_read_later_are_the_same(tiny, whole, tmp_path, monkeypatch):
    """The host waits for the device then, which is time of the training and not of a validation."""
    read, steps, waited = loop.TrainingLoop._read_losses, [], [0.0]

    def noted(training):
        progress, unread = training.progress, len(training._unread)
        steps.append((progress.step, unread))
        before = progress.training_seconds
        waited[0] += 1000.0 * bool(unread)
        read(training)
        assert progress.training_seconds - before >= 1000.0 * bool(unread)
        assert progress.validation_seconds < 1000.0

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + waited[0]))
    monkeypatch.setattr(loop.TrainingLoop, "_read_losses", noted)
    monkeypatch.setattr(loop, "is_on_host", lambda tensor: False)
    monkeypatch.setattr(loop, "STEPS_PER_READING", 3)
    train(tiny(checkpoint_steps=4), tmp_path / "later")
    assert_same(results(tmp_path / "later"), whole[2])
    assert max(unread for _, unread in steps) == 3
    assert sum(unread for _, unread in steps) == whole[3]


def test_weights_that_are_no_numbers_are_never_saved(tiny, tmp_path, monkeypatch):
    take_step = TrainingLoop._take_step

    def spoil(loop, batch):
        if loop.progress.step == 3:
            next(loop.module.parameters()).data[0] = math.inf
        return take_step(loop, batch)

    monkeypatch.setattr(TrainingLoop, "_take_step", spoil)
    with pytest.raises(TrainingError, match=r"step \d+"):
        train(tiny(checkpoint_steps=2), tmp_path / "run")
    (kept,) = list_checkpoints(tmp_path / "run" / "checkpoints")
    state = load_checkpoint(kept)["state_dict"]
    assert all(value.isfinite().all() for value in state.values())


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_strangers_checkpoint_executes_nothing(uninterrupted, tmp_path):
    config, *_ = uninterrupted
    trap = tmp_path / "executed"
    place = list_checkpoints(tmp_path / "whole" / "checkpoints")[-1]
    content = load_checkpoint(place)
    torch.save({**content, "more": Hostile(trap)}, place)
    (tmp_path / "whole" / "manifest.json").unlink()
    with pytest.raises(RunError, match="was not loaded"):
        train(config, tmp_path / "whole", resume=True)
    place.write_bytes(pickle.dumps(Hostile(trap)))
    with pytest.raises(RunError, match=r"was not loaded|cannot be read"):
        train(config, tmp_path / "whole", resume=True)
    assert not trap.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04half a zip", {"state_dict": {}}])
def test_a_damaged_checkpoint_is_an_error_of_one_line(tmp_path, content):
    place = tmp_path / "step-00000001.ckpt"
    if isinstance(content, bytes):
        place.write_bytes(content)
    else:
        torch.save(content, place)
    with pytest.raises(RunError) as caught:
        load_checkpoint(place)
    assert "\n" not in str(caught.value)


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    place = tmp_path / "step-00000001.ckpt"
    content = {"state_dict": {"a": torch.ones(3)}, "regard": {}}
    save_checkpoint(place, content)

    def full(content, path):
        path.write_bytes(b"half")
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(DataError, match="unchanged"):
        save_checkpoint(place, {"state_dict": {}, "regard": {}})
    monkeypatch.undo()
    assert torch.equal(load_checkpoint(place)["state_dict"]["a"], torch.ones(3))
    assert os.listdir(tmp_path) == [place.name]
