"""The language task on several processes that share the tokens of windows trains what one process trains."""

import dataclasses

import datasets
import pytest

from language_lines import largest_difference, state_of
from process_groups import ProcessGroup
from regard.errors import ArgumentError
from regard.tasks.language import TASK, DataConfig, LanguageTrainingConfig, ModelConfig
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train
from regard.training.run_folder import RunFolder

CONTEXT = 13
LINES = {"1 × 4 ddp": (4, "ddp"), "2 × 2 ddp": (2, "ddp"), "2 × 2 fsdp": (2, "fsdp")}
"""Processes of a line, and the strategy."""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Makes the configuration of a run whose batches have 4 windows, on all processes together."""
    folder = tmp_path_factory.mktemp("texts")
    text = "The old owl sat in an oak.\nThe more it saw, the less it spoke.\n"
    (folder / "train.txt").write_text(text * 9, encoding="utf-8")
    (folder / "validation.txt").write_text(text[10:] * 2, encoding="utf-8")

    def make(line=1, strategy="auto", **training):
        lines = 4 // line if strategy != "auto" else 1
        return RunConfig(
            "language",
            DataConfig(train=f"{folder}/train.txt", validation=f"{folder}/validation.txt", tokenizer="char"),
            ModelConfig(context=CONTEXT, layers=2, hidden=12, heads=2, dropout=0.0, position="rotary"),
            LanguageTrainingConfig(
                batch_size=4 // lines, epochs=2, steps_per_epoch=3, learning_rate=0.01, clip=0.1, threads=1,
                accelerator="cpu", devices="1" if strategy == "auto" else "4", strategy=strategy, patience=0,
                sequence_processes=line, **training,
            ),
        )  # fmt: skip

    return make


@pytest.fixture(scope="module")
def cache():
    return str(datasets.config.HF_DATASETS_CACHE)


@pytest.fixture(scope="module")
def group():
    group = ProcessGroup(4)
    yield group
    group.close()


@pytest.fixture(scope="module")
def alone(config, tmp_path_factory):
    """The state of the run of one process."""
    folder = RunFolder(tmp_path_factory.mktemp("alone") / "run")
    train(TASK, config(), folder, reporter=SilentReporter())
    return state_of(folder.path)


@pytest.mark.parametrize("name", LINES)
def test_lines_of_processes_train_what_one_process_trains(group, config, cache, alone, tmp_path, name):
    group.call("language_lines", "trained", cache, str(tmp_path / "run"), config(*LINES[name]).to_dict())
    weights, rows = state_of(tmp_path / "run")
    assert largest_difference(weights, alone[0]) < 1e-4
    assert [row["step"] for row in rows] == [3, 6]
    for row, other in zip(rows, alone[1], strict=True):
        assert row == pytest.approx(other, abs=1e-4)


def test_an_interrupted_run_resumes_exactly(group, config, cache, tmp_path):
    configuration = config(2, "fsdp", checkpoint_steps=2)
    configuration = dataclasses.replace(
        configuration, model=dataclasses.replace(configuration.model, dropout=0.2)
    ).to_dict()
    whole, broken = str(tmp_path / "whole"), str(tmp_path / "broken")
    assert group.call("language_lines", "trained", cache, whole, configuration) == [False] * 4
    assert group.call("language_lines", "trained", cache, broken, configuration, 5) == [True] * 4
    assert group.call("language_lines", "trained", cache, broken, configuration, 0, True) == [False] * 4
    (weights, rows), (resumed, others) = state_of(whole), state_of(broken)
    assert largest_difference(weights, resumed) == 0
    assert rows == others


@pytest.mark.parametrize(
    ("line", "message"),
    [(3, "sequence_processes must divide the 4 processes of the run"), (0, "sequence_processes must be at least 1")],
)
def test_lines_that_do_not_divide_the_processes_are_refused(config, line, message):
    with pytest.raises(ArgumentError, match=message):
        TASK.check_run(_with_line(config(1, "ddp"), line))


def _with_line(config, line):
    return dataclasses.replace(config, training=dataclasses.replace(config.training, sequence_processes=line))
