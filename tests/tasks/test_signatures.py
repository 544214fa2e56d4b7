"""``signatures.pyi``: it says what the tasks say, and type checkers refuse what `regard.train` refuses."""

import functools
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.tasks.registry import BUILT_IN_TASKS, find
from regard.tasks.train import _types

ROOT = Path(__file__).parents[2]

GOOD = """\
from typing import assert_type
import regard
from regard.tasks.caption import Caption
from regard.tasks.translate import TrainedTranslator, Translation

run = regard.train("translate", "pairs.tsv", validation=0.1, epochs=5, architecture="gru", devices=2, run="runs/a")
trained: TrainedTranslator = run
assert_type(run.predict(["Hello"], beam=2)[0], Translation)
regard.train("translate", "pairs.tsv", hidden=None, epochs=None)
run.evaluate("test.tsv", beam=2).bleu
assert_type(regard.load("runs/b", task="caption").predict(["a.png"])[0], Caption)
regard.load("runs/c").predict(["a"])
"""

BAD = """\
import regard
regard.train("translate", "pairs.tsv", epoch=5)
regard.train("classify", "texts.tsv", epochs="5")
regard.train("translat", "pairs.tsv")
regard.load("runs/a", task="translate").predict(["Hello"], beams=2)
regard.load("runs/a", task="translate").predict(["Hello"])[0].label
"""


@functools.cache
def made() -> str:
    specification = importlib.util.spec_from_file_location("make_signatures", ROOT / "docs" / "make_signatures.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.stub()


def test_the_build_makes_it_without_libraries_of_arrays():
    program = """if True:
        import runpy, sys
        sys.modules |= dict.fromkeys(("torch", "numpy", "numba"))
        runpy.run_path(sys.argv[1])["stub"]()
    """
    subprocess.run([sys.executable, "-c", program, str(ROOT / "docs" / "make_signatures.py")], check=True)


@pytest.mark.parametrize("name", BUILT_IN_TASKS)
def test_each_option_is_a_parameter(name):
    start = f'def train(\n    task: Literal["{name}"]'
    (overload,) = [part for part in made().split("@overload\n") if part.startswith(start)]
    head = overload.split('"""')[0]
    missing = [option for option in _types(find(name)) if f"\n    {option}: " not in head]
    assert not missing


@pytest.mark.parametrize("name", BUILT_IN_TASKS)
def test_only_an_option_that_the_data_decide_has_their_default(name):
    start = f'def train(\n    task: Literal["{name}"]'
    (overload,) = [part for part in made().split("@overload\n") if part.startswith(start)]
    head, text = overload.split('"""')[:2]
    for option in find(name).fitted:
        assert re.search(rf"\n    {option}: [^=]*[^N=] \| None = None,\n", head), option
    helps = re.findall(r"\n {8}(\w+): (.*(?:\n {12}.*)*)", text)
    assert {option for option, help in helps if "Default: from the data." in " ".join(help.split())} == find(
        name
    ).fitted


def test_pyright_accepts_a_good_program_and_refuses_each_line_of_a_bad_one(tmp_path):
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    # Git ignores the file; a checkout may have none, or that of other options.
    package = tmp_path / "src" / "regard"
    shutil.copytree(ROOT / "src" / "regard", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "tasks" / "signatures.pyi").write_text(made(), encoding="utf-8")
    configuration = {"include": ["good.py", "bad.py"], "extraPaths": [str(package.parent)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    if not ran.stdout.startswith("{"):
        pytest.skip(f"pyright cannot run here: {ran.stderr.strip()[:200]}")
    lines = {"good.py": set(), "bad.py": set()}
    for one in json.loads(ran.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            lines[Path(one["file"]).name].add(one["range"]["start"]["line"] + 1)
    assert lines == {"good.py": set(), "bad.py": {2, 3, 4, 5, 6}}, ran.stdout
