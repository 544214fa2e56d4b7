"""The file that the package ships is what its modules are, joined."""

import importlib.util
from pathlib import Path

import pytest

from regard import viewer

ROOT = Path(__file__).parents[2] / "viewer"


@pytest.fixture
def join():
    specification = importlib.util.spec_from_file_location("join", ROOT / "join.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_shipped_file_is_that_of_its_modules(join):
    assert viewer.module_path().read_text("utf-8") == join.joined(), "run: python viewer/join.py"


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"a.js": "const one = 1;\n", "b.js": "function one() {}\n"}, "both have the name one"),
        ({"a.js": 'import { b } from "./b.js";\n'}, "no module of the viewer"),
        ({"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}, "cycle"),
        ({"a.js": 'import * as b from "./b.js";\n', "b.js": "const b = 1;\n"}, "must import as"),
    ],
)
def test_what_cannot_be_joined_is_refused(join, tmp_path, modules, message):
    for name, text in modules.items():
        (tmp_path / name).write_text(text)
    join.MODULES = tmp_path
    with pytest.raises(ValueError, match=message):
        join.joined()
