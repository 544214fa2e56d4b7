"""A run folder of somebody else reads and writes nothing outside of it, and every command says so in one line."""

import os
import shutil

import numpy as np
import pytest

from regard.errors import RegardError
from regard.page.models import open_models
from regard.tasks import registry
from regard.tasks.inputs.input import bundled_path
from regard.tasks.inputs.run_tokenizer import tokenizer_path
from regard.tasks.trained_run import draw_figures
from regard.tasks.translate import Translation
from regard.training.checkpoints import list_checkpoints, prune_checkpoints
from regard.training.loggers import make_loggers
from regard.training.model_card import write_card
from regard.training.results import Evaluation
from regard.training.run_folder import RunFolder
from regard.training.run_lock import RunLock
from regard.training.run_replacement import FILES_OF_EVERY_RUN, remove_own_files

LINE = b"export PATH=$HOME/bin:$PATH\n"
SENTENCE = "My sister gives the old book to her friend."


class Numbers(Evaluation):
    """An evaluation that writes what every task writes."""

    def lines(self):
        return []

    def to_dict(self):
        return {}


@pytest.fixture(scope="module")
def made(tiny, train, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "x"
    train(tiny(checkpoint_steps=4, schedule="constant", logger="csv"), path)
    return path


def declared(run):
    """The files that a run has or may get, by the patterns of every run and of its task, and their folders."""
    patterns = (*FILES_OF_EVERY_RUN, *RunFolder(run).manifest.read().patterns)
    names = {name.replace("[0-9]*", "1").replace("test-1", "test").replace("*", "test") for name in patterns}
    names |= {path.relative_to(run).as_posix() for path in run.rglob("*")}
    return sorted(names | {parent for name in names if (parent := os.path.dirname(name))})


def linked(made, run, name):
    """A copy of a run with a link in the place of one file or folder, which is outside now; returns what is outside."""
    shutil.copytree(made, run)
    path, outside = run / name, run.with_name("outside" + os.path.splitext(name)[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        shutil.move(path, outside)
    elif "." in path.name:
        outside.write_bytes(LINE)
    else:
        outside.mkdir()
    path.symlink_to(outside)
    return outside


def state(path):
    """Every file below a path, or the file, with its content."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return [(str(file), file.is_dir() or file.read_bytes()) for file in files]


def uses(run):
    """Everything that is done with the files of a run."""
    folder = RunFolder(run)
    task = registry.find("translate")
    return [
        lambda: folder.write_config(folder.read_config(task)),
        lambda: folder.manifest.write(folder.manifest.read()),
        lambda: folder.manifest.verify_all(),
        lambda: folder.write_metrics(folder.read_metrics()),
        lambda: folder.write_samples(folder.read_samples()),
        lambda: RunLock(run).acquire().release(),
        lambda: Numbers().write(folder, "test"),
        lambda: write_card(task, folder, "test"),
        lambda: folder.file("evaluation-test.txt"),
        lambda: folder.draw_curves({"val_bleu": "BLEU"}),
        lambda: folder.manifest.record_data({"test": [bundled_path(folder, "test")]}),
        lambda: tokenizer_path(folder, "source"),
        lambda: tokenizer_path(folder, "target"),
        lambda: folder.require(),
        lambda: [folder.manifest.verify(path) for path in list_checkpoints(folder.checkpoints)],
        lambda: prune_checkpoints(folder.checkpoints, folder.manifest),
        lambda: make_loggers(["csv"], folder),
        lambda: make_loggers(["tensorboard"], folder),
        lambda: make_loggers(["mlflow"], folder),
        lambda: open_models([run]),
        lambda: RunFolder.create(run, overwrite=True),
        lambda: remove_own_files(run),
    ]


def test_no_file_of_a_run_leads_out_of_it(made, tmp_path, monkeypatch):
    """Each file and folder that a run may have is a link to a file of the user: what is outside stays as it is."""
    # Dozens of times the same curves are drawn: where they are written is what counts.
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, file, **options: file.write_bytes(b"curves"))
    for number, name in enumerate(declared(made)):
        run = tmp_path / str(number) / "x"
        outside = linked(made, run, name)
        before, refused = state(outside), []
        for use in uses(run):
            try:
                use()
            except RegardError as error:
                assert "\n" not in str(error)  # noqa: PT017 (some uses are refused)
                refused.append(str(error))
        assert state(outside) == before, name
        # No file is read or written under the pattern of a temporary file.
        assert ".tmp" in name or any("leads out of" in text or "cannot lock" in text for text in refused), name
        shutil.rmtree(run.parent)


OPENED = {
    "evaluate": (
        "config.yaml", "manifest.json", "model.safetensors", "tokenizer-source.json", "evaluation-test.json",
        "evaluation-test.txt", "pictures", "pictures/bleu-by-length-test.png",
    ),
    "predict": ("config.yaml", "tokenizer-target.json"),
    "view": ("config.yaml", "manifest.json", "model.safetensors"),
    "resume": (
        ".lock", ".in-use.json", "checkpoints", "checkpoints/step-00000018.ckpt", "metrics.csv", "samples.jsonl",
        "csv/version_1",
    ),
    "overwrite": ("manifest.json", "pictures"),
    "demo": ("manifest.json", "pictures/curves.png"),
}  # fmt: skip
"""Command → the files of a run that it opens; `declared` has the others."""


def arguments(command, run, corpus):
    trained = ("translate", "--runs", run.parent, "--run", run.name)
    return {
        "evaluate": ("evaluate", run, corpus["test"]),
        "predict": ("predict", run, SENTENCE, "--pictures", run / "pictures"),
        "view": ("view", run, SENTENCE, "--output", run.parent / "page.html"),
        "resume": ("train", *trained, "--resume", "--epochs", 3, "--logger", "csv"),
        "overwrite": ("train", *trained, "--bundled", "30", "--overwrite"),
        "demo": ("demo", "--short", "--runs", run.parent, "--run", run.name, "--overwrite"),
    }[command]


@pytest.mark.parametrize("command", OPENED)
def test_a_command_follows_no_link_out_of_a_run(made, corpus, run_command, tmp_path, command):
    for number, name in enumerate(OPENED[command]):
        run = tmp_path / str(number) / "x"
        outside = linked(made, run, name)
        before = state(outside)
        code, _, errors = run_command(*arguments(command, run, corpus))
        assert code == 2, (name, errors)
        assert errors.splitlines()[-1].startswith("regard: error: ")
        assert "Traceback" not in errors
        assert state(outside) == before, name


def test_a_typed_link_to_a_run_is_followed(made, corpus, run_command, tmp_path):
    shutil.copytree(made, tmp_path / "x")
    (tmp_path / "typed").symlink_to("x")
    (tmp_path / "x" / "pictures" / "link.png").symlink_to("curves.png")  # a link inside the run leads nowhere else
    code, _, errors = run_command("evaluate", tmp_path / "typed", corpus["test"])
    assert code == 0, errors
    assert (tmp_path / "x" / "evaluation-test.json").is_file()


def test_a_file_becomes_a_link_while_a_run_is_open(made, tmp_path):
    folder = RunFolder.open(shutil.copytree(made, tmp_path / "x"))
    rows = folder.read_metrics()
    (tmp_path / "outside").write_bytes(LINE)
    for name, use in {
        "metrics.csv": lambda: folder.write_metrics(rows),
        "manifest.json": lambda: folder.manifest.forget([folder.file("model.safetensors")]),
        "evaluation-test.json": lambda: Numbers().write(folder, "test"),
    }.items():
        (folder.path / name).unlink(missing_ok=True)
        (folder.path / name).symlink_to(tmp_path / "outside")
        with pytest.raises(RegardError, match="leads out of"):
            use()
        os.remove(folder.path / name)
    assert (tmp_path / "outside").read_bytes() == LINE


def test_a_picture_is_not_drawn_through_a_link(tmp_path):
    """The user typed the folder of the pictures, and not their names."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "typed").symlink_to("folder")
    (tmp_path / "outside").write_bytes(LINE)
    attended = Translation(source="a", weights=np.ones((1, 1)), source_tokens=["a"], target_tokens=["b"])
    (path,) = draw_figures(tmp_path / "typed", [attended.figure()], "alignment")
    path.unlink()
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(RegardError, match="leads out of"):
        draw_figures(tmp_path / "typed", [attended.figure()], "alignment")
    assert (tmp_path / "outside").read_bytes() == LINE


def test_locking_empties_no_other_file(made, tmp_path):
    """The lock file is emptied when it is locked; a second name of somebody's file is not one."""
    run = shutil.copytree(made, tmp_path / "x")
    (tmp_path / "own").write_bytes(LINE)
    (run / ".lock").unlink()
    os.link(tmp_path / "own", run / ".lock")
    with pytest.raises(RegardError, match="cannot lock"):
        RunLock(run).acquire()
    assert (tmp_path / "own").read_bytes() == LINE


@pytest.mark.parametrize("kind", ["pipe", "huge", "device"])
def test_no_command_waits_for_a_pipe_or_reads_without_end(made, corpus, run_command, tmp_path, kind):
    files = ("config.yaml", "manifest.json", "model.safetensors", "tokenizer-source.json")
    names = {
        "evaluate": (*files, "evaluation-test.json") if kind == "pipe" else files,
        "resume": ("metrics.csv", "checkpoints/step-00000018.ckpt") if kind == "pipe" else (),
    }
    for command, opened in names.items():
        for number, name in enumerate(opened):
            run = shutil.copytree(made, tmp_path / f"{command}-{number}" / "x")
            (run / name).unlink(missing_ok=True)
            if kind == "pipe":
                os.mkfifo(run / name)
            elif kind == "device":
                os.symlink("/dev/zero", run / name)
            else:
                with (run / name).open("wb") as file:
                    file.truncate(1 << 42)
            code, _, errors = run_command(*arguments(command, run, corpus))
            assert code == 2, (command, name)
            assert name in errors.splitlines()[-1], errors
            assert "Traceback" not in errors
