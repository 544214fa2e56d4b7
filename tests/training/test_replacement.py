"""Nothing that was trained, and nothing that a user made, is lost by ``--overwrite``."""

import contextlib
import dataclasses
import math
import os
import shutil
import signal

import pytest

import regard
from regard.errors import ArgumentError, RegardError, RunError, TrainingError
from regard.models.recurrent_translator import RecurrentTranslator
from regard.tasks.translate import TASK
from regard.training import run_replacement
from regard.training.checkpoints import list_checkpoints
from regard.training.run_folder import RunFolder
from regard.training.run_lock import RunLock
from regard.training.run_replacement import foreign_files, remove_own_files
from regard.training.run_session import RunSession


def contents(folder):
    """Every file below a folder with its bytes; what only says who used the folder is left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (".lock", ".in-use.json")
    }


def killing_after(moment):
    """Wraps functions, which together run so many times; the next call kills the process instead."""
    left = [moment]

    def counted(function):
        def call(*arguments, **options):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return function(*arguments, **options)

        return call

    return counted


@pytest.fixture(scope="module")
def made(tiny, train, tmp_path_factory):
    """A trained run."""
    path = tmp_path_factory.mktemp("runs") / "x"
    train(tiny(epochs=1), path)
    return path


@pytest.fixture(scope="module")
def newer(tiny, train, tmp_path_factory):
    """Another run, which is complete."""
    path = tmp_path_factory.mktemp("newer") / "y"
    train(tiny(seed=2, epochs=1), path)
    return path


@pytest.fixture
def old(made, tmp_path):
    """A copy of it."""
    shutil.copytree(made, tmp_path / "x")
    return tmp_path / "x"


def test_a_finished_run_replaces_the_old_one(old, tiny, train, tmp_path):
    trained = train(tiny(epochs=1, seed=2), old, overwrite=True)
    assert trained.folder.path == old
    assert os.listdir(tmp_path) == ["x"]
    assert RunFolder.open(old).manifest.read().replaces is None
    assert "seed: 2" in (old / "config.yaml").read_text()


def test_foreign_files_of_a_replaced_run_stay(old):
    before = contents(old)
    for name in ("notes.txt", "src/thesis.tex", "pictures/mine.png", "checkpoints/step-best.ckpt"):
        place = old / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("dear")
        with pytest.raises(RunError, match=f"holds {name}, which regard did not write"):
            RunFolder.create(old, overwrite=True)
        assert foreign_files(old) == [place]
        place.unlink()
        if place.parent.name == "src":
            place.parent.rmdir()
    assert contents(old) == before
    (old / "notes.txt").write_text("dear")
    (old / "link").symlink_to(old / "notes.txt")
    (old / "empty").mkdir()
    assert foreign_files(old) == [old / "empty", old / "link", old / "notes.txt"]
    remove_own_files(old)
    assert sorted(os.listdir(old)) == ["link", "notes.txt"], "an empty folder is nothing that anyone misses"


def test_every_file_of_a_run_is_known(old, tiny, train):
    assert foreign_files(old) == []
    remove_own_files(old)
    assert not old.exists()


def test_a_folder_that_is_no_run_is_never_replaced(tmp_path):
    (tmp_path / "config.yaml").write_text("name: thesis\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "thesis.tex").write_text("dear")
    with pytest.raises(RunError, match="isn't a run"):
        RunFolder.create(tmp_path, overwrite=True)
    assert (tmp_path / "src" / "thesis.tex").exists()


def test_nothing_is_replaced_through_a_link(old, tmp_path):
    (tmp_path / "link").symlink_to(old)
    with pytest.raises(RunError, match="is a link to"):
        RunFolder.create(tmp_path / "link", overwrite=True)
    os.rename(old / "checkpoints", tmp_path / "elsewhere")
    (old / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="holds checkpoints, which"):
        RunFolder.create(old, overwrite=True)
    remove_own_files(old)
    assert list_checkpoints(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "mistake",
    [
        {"data": {"train": "none.tsv"}},
        {"data": {"source_column": "german"}},
        {"data": {"validation": "none.tsv"}},
        {"data": {"test": "none.tsv"}},
        {"training": {"devices": "0"}},
        {"training": {"accelerator": "abacus"}},
        {"training": {"strategy": "alone"}},
    ],
    ids=str,
)
def test_a_mistake_in_the_options_costs_nothing(old, tiny, train, mistake, tmp_path):
    before = contents(old)
    config = tiny(model=mistake.get("model"), **mistake.get("training", {}))
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, **mistake.get("data", {})))
    with pytest.raises(Exception) as caught:  # noqa: PT011
        train(config, old, overwrite=True)
    assert "data" not in mistake or isinstance(caught.value, RegardError)
    assert contents(old) == before
    assert os.listdir(tmp_path) == ["x"]


def test_a_new_run_that_fails_before_it_has_a_model_leaves_no_trace(old, tiny, train, tmp_path, monkeypatch):
    before = contents(old)
    loss = RecurrentTranslator.loss
    monkeypatch.setattr(
        RecurrentTranslator, "loss", lambda *a, **b: (r := loss(*a, **b))._replace(total=r.total * math.nan)
    )
    with pytest.raises(TrainingError):
        train(tiny(), old, overwrite=True)
    with pytest.raises(TrainingError):
        train(tiny(), tmp_path / "fresh")
    assert contents(old) == before
    assert os.listdir(tmp_path) == ["x"]


def test_an_interrupted_new_run_is_continued_and_then_replaces(old, tiny, train, signal_at, tmp_path):
    before = contents(old)
    stopped = train(tiny(seed=2), old, overwrite=True, reporter=signal_at(2, signal.SIGTERM))
    assert stopped.interrupted
    assert stopped.folder.path == tmp_path / "x.new"
    assert contents(old) == before
    finished = train(tiny(seed=2), tmp_path / "x.new", resume=True)
    assert finished.folder.path == old
    assert os.listdir(tmp_path) == ["x"]
    assert "seed: 2" in (old / "config.yaml").read_text()


def test_a_second_overwrite_starts_the_new_run_again(old, tiny, train, signal_at, tmp_path):
    train(tiny(seed=2), old, overwrite=True, reporter=signal_at(2, signal.SIGTERM))
    finished = train(tiny(seed=3, epochs=1), old, overwrite=True)
    assert finished.folder.path == old
    assert os.listdir(tmp_path) == ["x"]
    assert "seed: 3" in (old / "config.yaml").read_text()


def test_a_stranger_that_came_meanwhile_stays(old, tiny, train, tmp_path, monkeypatch):
    loss = RecurrentTranslator.loss

    def while_training(*arguments, **options):
        (old / "notes.txt").write_text("dear")
        return loss(*arguments, **options)

    monkeypatch.setattr(RecurrentTranslator, "loss", while_training)
    with pytest.raises(RunError, match=r"notes\.txt.*The new run is complete, in .*x\.new"):
        train(tiny(epochs=1, seed=2), old, overwrite=True)
    assert (old / "notes.txt").exists()
    (old / "notes.txt").unlink()
    monkeypatch.undo()
    assert train(tiny(epochs=1, seed=2), tmp_path / "x.new", resume=True).folder.path == old


def test_a_run_in_use_is_neither_replaced_nor_trained(old, tiny, train):
    before = contents(old)
    lock = RunLock(old).acquire()
    for options in ({"overwrite": True}, {"resume": True}):
        with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
            train(tiny(), old, **options)
    assert contents(old) == before
    lock.release()


class Killed(BaseException):
    """Stands for ``kill -9``."""


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("moment", range(4))
def test_killed_while_it_replaces(old, newer, tiny, train, tmp_path, monkeypatch, moment, exchanges):
    shutil.copytree(newer, tmp_path / "x.new")
    new = RunFolder.open(tmp_path / "x.new")
    new.manifest.write(dataclasses.replace(new.manifest.read(), replaces="x"))
    counted = killing_after(moment)
    with monkeypatch.context() as patch:
        if not exchanges:
            patch.setattr(run_replacement, "_exchange", lambda one, other: False)
        patch.setattr(os, "rename", counted(os.rename))
        patch.setattr(run_replacement, "remove_own_files", counted(remove_own_files))
        with contextlib.suppress(Killed):
            train(tiny(seed=2, epochs=1), tmp_path / "x.new", resume=True)
    folder = RunFolder.open(old)  # there is a whole run at every moment
    folder.read_config(TASK)
    folder.manifest.verify(folder.model)
    if (tmp_path / "x.new").exists():
        train(tiny(seed=2, epochs=1), tmp_path / "x.new", resume=True)
    assert "seed: 2" in (old / "config.yaml").read_text()
    train(tiny(seed=3, epochs=1), old, overwrite=True)
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("moment", range(12))
def test_killed_while_the_folder_is_made(tiny, tmp_path, monkeypatch, moment):
    counted = killing_after(moment)
    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "mkdir"):
            patch.setattr(os, name, counted(getattr(os, name)))
        patch.setattr("regard.training.run_session.remove_own_files", counted(remove_own_files))
        session = RunSession(RunFolder.create(tmp_path / "runs" / "x"), TASK, tiny(), resume=False)
        with contextlib.suppress(Killed), session:
            pass
    place = tmp_path / "runs" / "x"
    if place.exists():
        assert RunFolder.open(place).read_config(TASK) == tiny()
        with RunSession(RunFolder.open(place), TASK, tiny(), resume=True):
            pass
    else:
        with RunSession(RunFolder.create(place), TASK, tiny(), resume=False):
            pass


@pytest.mark.parametrize("moment", [1, 3, 5, 7, 9, 12, 16, 21, 27, 34])
def test_killed_at_any_change_of_a_file(tiny, train, tmp_path, monkeypatch, moment):
    counted = killing_after(moment)
    config = tiny(epochs=1, checkpoint_steps=2)
    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(os, name, counted(getattr(os, name)))
        with contextlib.suppress(Killed):
            train(config, tmp_path / "x")
    place = tmp_path / "x"
    assert train(config, place, resume=place.exists()).progress.finished
    folder = RunFolder.open(place)
    folder.manifest.verify_all()
    assert TASK.load(folder)
    assert os.listdir(tmp_path) == ["x"]
    assert not foreign_files(place)


@pytest.mark.parametrize("path", ["", " ", ".", "..", "/", "x/..", "../../"])
def test_a_run_replaces_no_working_folder(tmp_path, monkeypatch, path):
    """An empty working folder would be replaced by the run, and every path of the process would lead nowhere."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    state = os.stat(".").st_ino
    for create in (RunFolder.create, lambda path: regard.train("classify", (["a", "b"], ["x", "y"]), run=path)):
        with pytest.raises(ArgumentError, match=r"run (is empty; give a name|must name something new)"):
            create(path)
    assert os.stat(".").st_ino == state
    assert not os.listdir(".")
