"""The tasks on several processes that share the tokens of texts train what one process trains."""

import dataclasses

import datasets
import pytest

from regard.errors import ArgumentError
from regard.tasks import language, translate
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder
from trained_lines import largest_difference, state_of

LINES = {"1 × 4 ddp": (4, "ddp"), "2 × 2 ddp": (2, "ddp"), "2 × 2 fsdp": (2, "fsdp")}
"""Processes of a line, and the strategy."""


def language_run(folder, lines, training):
    """A run whose batches have 4 windows, on all processes together."""
    text = "The old owl sat in an oak.\nThe more it saw, the less it spoke.\n"
    (folder / "train.txt").write_text(text * 9, encoding="utf-8")
    (folder / "validation.txt").write_text(text[10:] * 2, encoding="utf-8")
    return RunConfig(
        "language",
        language.LanguageData(train=f"{folder}/train.txt", validation=f"{folder}/validation.txt", tokenizer="char"),
        language.LanguageModelConfig(context=13, layers=2, hidden=12, heads=2, dropout=0.0, position="rotary"),
        language.LanguageTrainingConfig(batch_size=4 // lines, steps_per_epoch=3, **training),
    )


def translate_run(folder, lines, training):
    """A run whose batches are all pairs, on all processes together: with 4 targets of 11 to 13 tokens on 2 lines."""
    pairs = [
        "an old owl\tun mochuelo\n",
        "it sat in an oak\tse sento ya\n",
        "it saw\tvio mucho\n",
        "we sang a song\tcantamos eh\n",
    ]
    (folder / "train.tsv").write_text("source\ttarget\n" + "".join(pairs * 2), encoding="utf-8")
    (folder / "validation.tsv").write_text("source\ttarget\n" + "".join(pairs[:3]), encoding="utf-8")
    return RunConfig(
        "translate",
        translate.TranslateData(train=f"{folder}/train.tsv", validation=f"{folder}/validation.tsv", tokenizer="char"),
        translate.TranslatorConfig(
            architecture="transformer", encoder_layers=2, decoder_layers=2, hidden=12, heads=2, dropout=0.0
        ),
        translate.TranslationTrainingConfig(tokens_per_batch=8 * 13 // lines, **training),
    )


TASKS = {"language": (language.TASK, language_run), "translate": (translate.TASK, translate_run)}


def config(task, folder, line=1, strategy="auto", **training):
    """Returns the configuration of a run of 6 steps, of one process or of four."""
    _, run = TASKS[task]
    training |= {
        "learning_rate": 0.01, "clip": 0.1, "threads": 1, "accelerator": "cpu", "strategy": strategy, "patience": 0,
        "devices": "1" if strategy == "auto" else "4", "sequence_processes": line, "seed": 1,
        "epochs": 2 if task == "language" else 6, "validate_every": 3,
    }  # fmt: skip
    return run(folder, 4 // line if strategy != "auto" else 1, training)


@pytest.fixture(scope="module")
def cache():
    return str(datasets.config.HF_DATASETS_CACHE)


@pytest.fixture
def group(groups):
    return groups(4)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The state of the run of one process, by task."""
    states = {}
    for name, (task, _) in TASKS.items():
        folder = tmp_path_factory.mktemp(name)
        train_run(task, config(name, folder), RunFolder(folder / "run"), reporter=SilentReporter())
        states[name] = state_of(folder / "run")
    return states


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("task", TASKS)
def test_lines_of_processes_train_what_one_process_trains(group, cache, alone, tmp_path, task, name):
    configuration = config(task, tmp_path, *LINES[name]).to_dict()
    group.call("trained_lines", "trained", cache, str(tmp_path / "run"), configuration)
    (weights, rows), (expected, others) = state_of(tmp_path / "run"), alone[task]
    assert largest_difference(weights, expected) < 1e-5
    assert [row["step"] for row in rows] == [3, 6]
    for row, other in zip(rows, others, strict=True):
        assert row == pytest.approx(other, abs=1e-4)


def test_an_interrupted_run_resumes_exactly(group, cache, tmp_path):
    configuration = config("language", tmp_path, 2, "fsdp", checkpoint_steps=2)
    configuration = dataclasses.replace(
        configuration, model=dataclasses.replace(configuration.model, dropout=0.2)
    ).to_dict()
    whole, broken = str(tmp_path / "whole"), str(tmp_path / "broken")
    assert group.call("trained_lines", "trained", cache, whole, configuration) == [False] * 4
    assert group.call("trained_lines", "trained", cache, broken, configuration, 5) == [True] * 4
    assert group.call("trained_lines", "trained", cache, broken, configuration, 0, True) == [False] * 4
    (weights, rows), (resumed, others) = state_of(whole), state_of(broken)
    assert largest_difference(weights, resumed) == 0
    assert rows == others


REFUSED = {
    "sequence_processes must divide the number of processes of the run .*, 4; it is 3": {"sequence_processes": 3},
    "sequence_processes must be at least 1": {"sequence_processes": 0},
    "must be 1 with self_attention 'native_sparse'": {"sequence_processes": 4, "self_attention": "native_sparse"},
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("message", REFUSED)
def test_lines_that_cannot_be_are_refused(tmp_path, task, message):
    with pytest.raises(ArgumentError, match=message):
        TASKS[task][0].check_run(_with(config(task, tmp_path, 1, "ddp"), **REFUSED[message]))


def test_a_recurrent_translator_is_refused(tmp_path):
    configuration = config("translate", tmp_path, 2, "ddp")
    configuration = dataclasses.replace(configuration, model=translate.TranslatorConfig(architecture="gru"))
    with pytest.raises(ArgumentError, match="sequence_processes must be 1 with architecture 'gru'"):
        translate.TASK.check_run(configuration)


def _with(config, sequence_processes, **model):
    training = dataclasses.replace(config.training, sequence_processes=sequence_processes)
    return dataclasses.replace(config, training=training, model=dataclasses.replace(config.model, **model))
