"""Every shell line of the README and of the pages runs, on files of the form that it names, or says why it cannot.

A page's lines run in their order, in one folder, with small models. To add a page nothing is needed but that its files
are among those of `prepare`; a run that it names and does not train itself stands in RUNS.
"""

import re
import shutil
from pathlib import Path

import pytest

from book import all_pages, fences
from shell_files import prepare, short_arguments
from translation_runs import own_cache, same_threads  # noqa: F401

NOT_RUN = {
    r"make [a-z-]+": "continuous integration runs it, or what it runs",
    r"(python3? -m )?pip (install|wheel)|python3? -m venv|git clone|cd |source ": "installs; .ci/try_package tests it",
    r"regard serve": "serves until it is stopped; tests/page",
    r"regard demo": "continuous integration runs it",
    r"regard push|.*hf://": "needs an account of a hub; tests/training with a hub of its own",
    r"torchrun|.*--(processes|devices|nodes)": "several processes or machines; tests/training",
    r".*(--device|--accelerator) (cuda|gpu|xpu|mps)|.*bf16": "needs an accelerator; tests/devices",
    r"regard (bench|cache --warm|doctor)": "measures or compiles for minutes; tests/cli",
    r"python3? (docs/|viewer/|-m bench)": "a command of the repository",
    r"regard train labels|regard \w+ runs/fruit": "needs the package of the page; tests/docs/test_own_task.py",
}
"""Pattern of a line → why no test of this file runs it, and what does."""

PAGES_NOT_RUN = {"docs/en/understand/results.md": "trainings of hours, on data sets that the repository does not have"}

RUNS = {
    "translate-bahdanau": "regard train translate --train train.tsv --validation val.tsv",
    "translate-transformer": "regard train translate --train train.tsv --validation val.tsv --architecture transformer",
    "language-bpe": "regard train language --train 'books/**/*.txt'",
    "language-char": "regard train language --train 'books/**/*.txt'",
    "classify-lstm": "regard train classify --train reviews.tsv",
    "films": "regard train classify --train reviews.tsv",
    "reviews": "regard train classify --train reviews.tsv",
    "caption-soft": "regard train caption --train captions.jsonl",
    "segment": "regard train segment --train streets/train",
    "transcribe-lstm": "regard train transcribe --train speech.tsv",
    "demo": "regard train translate --train train.tsv --validation val.tsv",
}
"""A run that lines name → the line that trains it where no line of the page does."""

SHELL = ("bash", "sh", "shell", "console")


def lines_of(page: str) -> list[str]:
    """The commands of a page's blocks, lines that continue joined; a block without a language may hold other things."""
    commands = []
    for fence in fences(page, all_pages()[page]):
        if fence.language in (*SHELL, ""):
            joined = fence.text.replace("\\\n", " ").splitlines()
            lines = [line for raw in joined if (line := re.sub(r"(^|\s+)# .*", "", raw.strip()))]
            pattern = r"(regard|make|pip|python3?|torchrun|git|cd|source)\s" if not fence.language else ""
            commands += [line for line in lines if re.match(pattern, line)]
    return commands


PAGES = [
    page for page in all_pages() if lines_of(page) and not page.startswith("docs/zh/") and page not in PAGES_NOT_RUN
]
"""Chinese pages have the lines of the English ones (test_two_languages.py)."""


def reason(line: str) -> str | None:
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, line)), None)


@pytest.mark.parametrize("page", PAGES)
def test_a_line_is_run_or_says_why_not(page):
    for line in lines_of(page):
        assert line.startswith("regard ") or reason(line), f"{page}: give {line!r} a reason in NOT_RUN"
        for run in re.findall(r"runs/([\w-]+)", line) if not reason(line) else ():
            trained = [f"--run {run}" in other for other in lines_of(page)]
            assert any(trained) or run in RUNS, f"{page}: say in RUNS which line trains {run}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_lines_of_a_page_run(page, tmp_path, monkeypatch, run_command, request):
    if not request.config.getoption("site"):
        pytest.skip("make docs-test runs the lines of all pages; make test those of each task")
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)

    def run(line):
        line, _, file = line.partition(" > ")
        code, output, errors = run_command(*short_arguments(line))
        assert code == 0, f"{page}: {line}\n{errors}"
        if file:
            Path(file).write_text(output, encoding="utf-8")
        if table := re.search(r"--train (\S+\.tsv)", line):
            shutil.copyfile(table[1], "test.tsv")  # which each page evaluates, has the columns of its task

    for line in lines_of(page):
        if reason(line):
            continue
        for name in re.findall(r"runs/([\w-]+)", line):
            if not Path("runs", name).exists():
                run(f"{RUNS[name]} --run {name}")
        run(line)
