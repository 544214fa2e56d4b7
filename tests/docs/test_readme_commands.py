"""The first command of each task's page: training on files of the form that it names, then predict and evaluate."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

import regard
import shell_files
from book import all_pages
from regard.tasks import registry
from regard.tasks.options import SearchOptions, search_line
from shell_files import SMALL, short_arguments
from translation_runs import own_cache, same_threads  # noqa: F401

PAGES = {task: text for task in SMALL if (text := all_pages().get(f"docs/en/how-to/{task}.md"))}
LINES = [re.search(r"^regard train .*", text, re.M)[0] for text in PAGES.values()]
COMMANDS = [short_arguments(re.sub(r" --(run|validation|test) \S+", "", line)) for line in LINES]
"""The first training of each task's page, on one file."""

SEARCHES = {
    "translate": ["search: beam 5 · length penalty 1"],
    "summarize": ["search: beam 4 · length penalty 1"],
    "caption": ["search: beam 5 · length penalty 1"],
    "transcribe": ["search: beam 5 · length penalty 0.5 · CTC weight 0.3"],
}
"""How an evaluation of each task searches, unless its options say something else."""


def test_the_pages_train_every_task():
    assert {command[1] for command in COMMANDS} == set(registry.names()) == set(SMALL)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command[1]}-{len(command)}")
def test_command_on_files(command, tmp_path, monkeypatch, run_command):
    task = command[1]
    data, example = getattr(shell_files, f"{task}_files")(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, errors = run_command(*command, "--run", "model")
    assert code == 0, errors
    assert "runs/model" in out
    run = Path("runs") / "model"
    code, out, errors = run_command("predict", run, example)
    assert code == 0, errors
    assert out.strip() or task in SEARCHES  # an untrained model may write no word
    code, out, errors = run_command("evaluate", run, data)
    assert code == 0, errors
    assert json.loads(next(run.glob("evaluation-*.json")).read_text())
    searches = [line for line in out.splitlines() if line.startswith("search: ")]
    assert [re.sub(r" · at most \d+(–\d+)? tokens", "", line, count=1) for line in searches] == SEARCHES.get(task, [])
    assert all(" · at most " in line for line in searches)
    trained = regard.load(run)
    (prediction,), evaluation = trained.predict([str(example)]), trained.evaluate(str(data))
    # What is printed is short, whatever a result holds.
    for shown in (repr(prediction), repr(evaluation), str(evaluation)):
        assert len(shown.splitlines()) == 1
        assert len(shown) < 1200, shown
    assert str(evaluation).startswith(f"{data}: ")
    assert prediction.lines()[0].removeprefix(f"{example}: ").endswith(prediction.answer_text)
    if task in ("classify", "images", "sounds"):
        assert prediction.answer == prediction.label == prediction.ranked()[0][0] == prediction.to_dict()["output"]


def test_the_search_line_names_all_that_decides_a_search():
    """The line names whatever decides the search, and nothing that it does not use."""
    options = SearchOptions(samples=100, temperature=0.5, utility_order=1, seed=3)
    line = search_line(5, 1.0, dataclasses.asdict(options.minimum_risk), (7, 7))
    assert line == (
        "search: minimum Bayes risk of 100 samples · temperature 0.5 · utility order 1 · seed 3 · at most 7 tokens"
    )
    line = search_line(1, 1.0, None, (3, 1200), "window 2 s")
    assert line == "search: greedy (beam 1) · at most 3–1,200 tokens · window 2 s"
