"""The task of docs/en/how-to/own-task.md, in a package of its own, used through the commands and in Python."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "en" / "how-to" / "own-task.md").read_text(encoding="utf-8")
FILES = {match[1]: match[2] for match in re.finditer(r"```python\n# (\S+)\n(.*?)```", PAGE, re.S)}
COMMANDS = [shlex.split(line) for line in re.findall(r"^regard .*", PAGE, re.M)]
ENTRY_POINT = re.search(r'\[project.entry-points."(.*?)"\]\n(\w+) = "(.*?)"', PAGE)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the package, as it would be installed, and data for it."""
    folder = tmp_path_factory.mktemp("own-task")
    for name, code in FILES.items():
        path = folder / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    (folder / "site" / "labels" / "__init__.py").write_text('"""A package with a task."""\n')
    installed = folder / "site" / "labels-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: labels\nVersion: 1.0\n")
    group, name, value = ENTRY_POINT.groups()
    (installed / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    fruits = {"apple": ("red", "green"), "banana": ("yellow", "long"), "plum": ("blue", "small")}
    lines = [
        f"{fruit}\ta {size} {color} {fruit if number % 3 else 'one'}"
        for number, (fruit, size) in enumerate(itertools.product(fruits, ("sweet", "sour", "ripe", "old")))
        for color in fruits[fruit]
    ]
    (folder / "train.tsv").write_text("\n".join(["label\ttext", *lines]) + "\n")
    (folder / "validation.tsv").write_text("\n".join(["label\ttext", *lines[::5]]) + "\n")
    return folder


def run(place, *arguments):
    """Runs Python in that folder, as a user of the package would."""
    paths = os.pathsep.join([str(place / "site"), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, *arguments], cwd=place, env={**os.environ, "PYTHONPATH": paths}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


CALL = """
import json, runpy, sys
from regard.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv = words
    try:
        if words[0] == "regard":
            main()
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    print("-- end of a command")
"""

TRAIN = """
from regard.tasks import registry
from regard.training.config import RunConfig
from regard.training.run import train_run
from regard.training.run_folder import RunFolder

task = registry.find("labels")
sections = {"data": {"train": "train.tsv", "validation": "validation.tsv"}, "model": {},
            "training": {"epochs": 30, "learning_rate": 0.1, "accelerator": "cpu", "threads": 1}}
config = RunConfig.from_dict({"task": "labels", **sections}, "here", task)
trained = train_run(task, config, RunFolder.create("runs/fruit"))
print(trained.progress.best)
"""

USE = """
import os, runpy
runpy.run_path("site/use.py", run_name="__main__")
os.rename("runs/fruit", "runs/python")
"""


@pytest.fixture(scope="module")
def printed(place):
    """What the training in Python, the use in Python and each command print, one after the other in one process."""
    (place / "train_it.py").write_text(TRAIN)
    (place / "use_it.py").write_text(USE)
    ended = run(place, "-c", CALL, json.dumps([["train_it.py"], ["use_it.py"], *COMMANDS]))
    assert ended.returncode == 0, ended.stderr
    *outputs, rest = ended.stdout.split("-- end of a command\n")
    assert not rest
    return outputs


@pytest.mark.slow
def test_the_own_task_of_the_page_learns_in_python(place, printed):
    best, label, accuracy = [*printed[0].split(), *printed[1].split()]
    assert float(best) >= 0.8
    assert label == "apple"
    assert float(accuracy) >= 0.8
    made = {path.name for path in (place / "runs" / "python").iterdir()}
    assert made >= {"config.yaml", "model.safetensors", "labels.json", "metrics.csv", "samples.jsonl", "checkpoints"}
    header, *rows = (place / "runs" / "python" / "metrics.csv").read_text().splitlines()
    assert header == "step,epoch,seconds,train_loss,val_loss,val_accuracy,val_macro_f1,texts_per_second,learning_rate"
    assert 1 <= len(rows) <= 30


@pytest.mark.slow
def test_by_the_commands(printed):
    _, _, trained, evaluated, predicted = printed
    assert "accuracy" in trained
    assert re.search(r"accuracy (0\.[89]|1\.0)", evaluated)
    assert re.search(r"^label: +apple$", predicted, re.M), predicted


@pytest.mark.slow
def test_the_task_is_listed_without_an_import_of_its_package(place):
    code = (
        "import sys; from regard.tasks.registry import names; "
        "print(names()['labels'], 'labels' in sys.modules, 'regard.tasks.translate' in sys.modules)"
    )
    ended = run(place, "-c", code)
    assert ended.stdout.strip() == "A task of the package labels. False False", ended.stderr
