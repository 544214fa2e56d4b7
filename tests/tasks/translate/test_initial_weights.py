"""A run starts from the weights and the tokenizers of another one, or says in one line why it cannot."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import RunError
from regard.tasks.inputs.run_tokenizer import tokenizer_path
from regard.tasks.translate import TASK
from regard.training.checkpoints import list_checkpoints
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def first(tiny, tmp_path_factory):
    """The run to start from."""
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "first")
    train_run(TASK, tiny(epochs=1), folder, reporter=SilentReporter())
    return folder


def start(config, path):
    folder = RunFolder.create(path)
    train_run(TASK, config, folder, reporter=SilentReporter())
    return folder


def test_the_weights_and_the_tokenizers_are_those_of_the_other_run(first, tiny, corpus, tmp_path):
    # A learning rate too small to change a weight; other data, whose words the tokenizers have not seen.
    config = tiny(epochs=1, init_from=str(first.path), learning_rate=1e-30, seed=7)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, train=str(corpus["test"])))
    folder = start(config, tmp_path / "second")
    found, wanted = load_file(folder.model), load_file(first.model)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    for side in ("source", "target"):
        assert tokenizer_path(folder, side).read_bytes() == tokenizer_path(first, side).read_bytes()
    assert folder.read_config(TASK).training.init_from == str(first.path)


def test_a_resumed_run_does_not_start_again(first, tiny, tmp_path):
    config = tiny(epochs=1, init_from=str(first.path), checkpoint_steps=2)
    whole = start(config, tmp_path / "whole")
    path = list_checkpoints(whole.checkpoints)[0]
    for later in list_checkpoints(whole.checkpoints)[1:]:
        later.unlink()
    before = load_file(whole.model)
    assert path.is_file()
    train_run(TASK, config, whole, resume=True, reporter=SilentReporter())
    after = load_file(whole.model)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"hidden": 12}}, "does not fit this run's options: --hidden is .* there and 12 here"),
        ({"model": {"attention": "none"}}, "does not fit this run's options: --attention is .* there and 'none' here"),
        ({"data": {"tokenizer": "char"}}, "--tokenizer is 'word' in .* and 'char' here"),
        ({"data": {"lowercase": True}}, "--lowercase is False in .* and True here"),
    ],
)
def test_initial_weights_that_do_not_fit_are_one_line(first, tiny, tmp_path, change, message):
    config = tiny(init_from=str(first.path))
    parts = {name: dataclasses.replace(getattr(config, name), **fields) for name, fields in change.items()}
    with pytest.raises(RunError, match=f"--init-from: .*{message}") as caught:
        start(dataclasses.replace(config, **parts), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_initial_weights_need_a_trained_run(first, tiny, tmp_path):
    with pytest.raises(RunError, match="there is no run folder"):
        start(tiny(init_from=str(tmp_path / "none")), tmp_path / "a")
    empty = RunFolder.create(tmp_path / "empty")
    empty.write_config(tiny())
    with pytest.raises(RunError, match=r"no model\.safetensors"):
        start(tiny(init_from=str(empty.path)), tmp_path / "b")
    empty.config.write_text(empty.config.read_text().replace("task: translate", "task: count"))
    with pytest.raises(RunError, match=r"--init-from: .* is a run of the task 'count'"):
        start(tiny(init_from=str(empty.path)), tmp_path / "c")
