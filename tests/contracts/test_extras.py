"""The extras: `all` has everything for users, and each line that installs something names an extra that brings it."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from book import all_pages
from regard.cli import doctor
from regard.kernels.availability import NUMBA
from regard.training.config import LOGGERS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NOT_IN_ALL = {
    "backbones": "torchvision of another build than PyTorch's, as pip finds it for a CPU alone, stops Lightning",
    **{name: "the client of a service: one of several" for name in LOGGERS if name in EXTRAS},
}
"""Extra for users → why `all` does not have it; the page of the installation says so."""
USERS = {*EXTRAS} - {*doctor.DEVELOPERS, "all"}
LINE = re.compile(r"(?:regard|'\.|whl\))\[([\w,-]+)\]")
"""Extras in a line of a shell or in a message."""


@cache
def extras_of(name):
    """The extras that an extra of regard consists of, itself if it consists of packages."""
    consisting = [one for one in EXTRAS[name] if one.startswith("regard[")]
    inner = {part for one in consisting for part in one[len("regard[") : -1].split(",")}
    return {name} | {each for part in inner for each in extras_of(part)}


def packages(name):
    """The packages that an extra brings, as pip compares their names."""
    return {normalized(re.split(r"[>=<;\[ ]", one)[0]) for part in extras_of(name) for one in EXTRAS[part]} - {"regard"}


def normalized(package):
    return re.sub(r"[-_.]+", "-", package).lower()


def test_all_has_every_extra_for_users():
    assert extras_of("all") - {"all"} == USERS - NOT_IN_ALL.keys()
    assert NOT_IN_ALL.keys() <= USERS
    for name in ("docs", "dev"):
        assert "all" in extras_of(name), f"{name} tries what users install"


def texts():
    """What names an extra: pages, messages, the commands of the repository."""
    yield from ((path, text) for path, text in all_pages().items() if path != "CHANGELOG.md")
    for folder in ("src", "bench", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", "") and path.is_file():
                yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
    yield "Makefile", (ROOT / "Makefile").read_text("utf-8")


def test_each_line_that_installs_names_extras_that_exist():
    named = [(path, name) for path, text in texts() for line in LINE.findall(text) for name in line.split(",")]
    assert {path for path, _ in named} >= {"README.md", "docs/zh/start/01-install.md", "Makefile", "README.zh.md"}
    assert [(path, name) for path, name in named if name not in EXTRAS] == []


def missing_parts():
    """File, package and extra of each error that names them in its source."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "MissingPartError",
                "MissingPartError.instead",
            ):
                part, extra = (one.value if isinstance(one, ast.Constant) else None for one in node.args[:2])
                yield path.name, part, extra


def test_each_message_names_an_extra_that_brings_the_package():
    found = list(missing_parts())
    assert len(found) > 20
    for file, part, extra in found:
        assert extra is None or extra in EXTRAS, file
        assert part is None or normalized(part) in packages(extra), f"{file}: regard[{extra}] does not bring {part}"


def test_each_logger_is_the_extra_of_its_name():
    for name in {*LOGGERS} - {"csv"}:
        assert normalized(name) in packages(name)


def test_the_missing_compiler_is_installed_as_regard_installs_it():
    (required,) = (one for one in PROJECT["dependencies"] if one.startswith("numba"))
    assert required.partition(";")[0].strip() == NUMBA


def test_the_doctor_knows_every_package_of_the_extras(monkeypatch):
    stated = [f"{one}; extra == '{name}'" for name, group in EXTRAS.items() for one in group]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: [*PROJECT["dependencies"], *stated])
    parts = doctor.optional_parts()
    assert {normalized(name) for name in parts} == {package for name in USERS for package in packages(name)}
    for package, extra in parts.items():
        assert normalized(package) in packages(extra)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_lists_every_extra_and_what_all_has(language):
    page = all_pages()[f"docs/{language}/start/01-install.md"]
    rows = re.findall(r"^\| ((?:`\w+`[,、 ]*)+)\|", page, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"\w+", row)]
    assert sorted(names) == sorted({*USERS, "all"})
    assert {*names[: names.index("all")]} == extras_of("all") - {"all"}
    assert page.index("pip install '.[all]'") < page.index("pip install .\n")
