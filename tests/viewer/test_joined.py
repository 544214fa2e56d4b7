"""The file that the package ships is what its modules are, joined; a checkout refuses one that is out of date."""

import importlib.util
import runpy
import shutil
from pathlib import Path

import pytest

from regard import viewer
from regard.errors import DataError
from regard.viewer import html_file

ROOT = Path(__file__).parents[2] / "viewer"


@pytest.fixture
def join():
    specification = importlib.util.spec_from_file_location("join", ROOT / "join.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_shipped_file_is_that_of_its_modules(join):
    assert viewer.module_path().read_text("utf-8") == join.joined()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder with the viewer's sources, of which `regard.viewer` is a part."""
    shutil.copytree(ROOT, tmp_path / "viewer", ignore=shutil.ignore_patterns("node_modules", "tests"))
    (tmp_path / "src" / "regard" / "viewer").mkdir(parents=True)
    monkeypatch.setattr(html_file, "__file__", str(tmp_path / "src" / "regard" / "viewer" / "html_file.py"))
    return tmp_path


@pytest.mark.parametrize("changed", ["modules/state.js", "modules/views/new.js", "join.py"])
def test_a_checkout_refuses_a_file_of_other_sources_until_it_is_joined(checkout, changed):
    command = checkout / "viewer" / "join.py"
    with pytest.raises(DataError, match=r"is missing; write it with: python .*join\.py"):
        viewer.module_path()
    runpy.run_path(str(command), run_name="__main__")
    assert viewer.module_path().read_text("utf-8") == runpy.run_path(str(command))["joined"]()
    with (checkout / "viewer" / changed).open("a", encoding="utf-8") as file:
        file.write("\n")
    with pytest.raises(DataError, match=r"differs from the modules .*; write it with: python .*join\.py"):
        viewer.module_path()
    runpy.run_path(str(command), run_name="__main__")
    assert viewer.module_path().is_file()


def test_an_installed_package_takes_the_file_as_it_is(checkout):
    shutil.rmtree(checkout / "viewer")
    assert viewer.module_path() == checkout / "src" / "regard" / "viewer" / "viewer.js"


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"a.js": "const one = 1;\n", "b.js": "function one() {}\n"}, "both have the name one"),
        ({"a.js": 'import { b } from "./b.js";\n'}, "no module of the viewer"),
        ({"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}, "cycle"),
        ({"a.js": 'import * as b from "./b.js";\n', "b.js": "const b = 1;\n"}, "must import as"),
    ],
)
def test_modules_that_cannot_be_joined_are_refused(join, tmp_path, modules, message):
    for name, text in modules.items():
        (tmp_path / name).write_text(text)
    join.MODULES = tmp_path
    with pytest.raises(ValueError, match=message):
        join.joined()
