"""The reference: no public name, command or option is missing, and what the derivations name exists."""

import importlib
import inspect
import io
import re
import sys
from pathlib import Path

import command_line_page
import pytest
import reference_pages
from mechanism_catalogue import CATALOGUE
from rich.console import Console

import regard
from book import all_pages
from regard.cli.commands import COMMANDS, build
from regard.tasks import registry

ROOT = Path(__file__).parents[2]
UNDERSTAND = ROOT / "docs" / "en" / "understand"
SOURCES = [path for folder in ("src", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]


@pytest.fixture(scope="module")
def pages():
    return reference_pages.pages()


def public_names():
    """Every public name that is reached from `regard` by ``__all__``: its package, itself, its value."""
    waiting, reached = [regard], []
    while waiting:
        package = waiting.pop()
        for name in package.__all__:
            value = getattr(package, name)
            reached.append((package.__name__, name, value))
            if hasattr(value, "__all__") and value not in [one for _, _, one in reached[:-1]]:
                waiting.append(value)
    return reached


SECOND_NAMES = {
    (package, name)
    for package, name, value in public_names()
    if inspect.isclass(value) and value.__name__ != name and value.__name__ in sys.modules[package].__all__
}
"""Packages and second names of their classes."""


def described(text):
    """The full names of the objects that a page describes."""
    module = ""
    for directive, name in re.findall(r"^\.\. ([\w:]+):: ([\w.]+)", text, re.MULTILINE):
        if directive == "py:currentmodule":
            module = name
        elif directive in ("autoclass", "autofunction"):
            yield name
        elif directive in ("py:function", "py:data", "py:type"):
            yield f"{module}.{name}"


def test_each_public_name_is_listed_and_described_once(pages):
    names = [name for text in pages.values() for name in described(text)]
    assert len(names) == len(set(names))
    owners = {name: importlib.import_module(name.rpartition(".")[0]) for name in names}
    values = [getattr(owners[name], name.rpartition(".")[2]) for name in names]
    objects = [id(value) for value in values if reference_pages.is_described_once(value)]
    assert len(objects) == len(set(objects)), "an object is described twice"
    missing = []
    for package, name, value in public_names():
        if (package, name) in SECOND_NAMES:
            continue
        row = rf"^   \* - :[\w:]+:`{name} <"
        is_listed = re.search(row, pages[package], re.MULTILINE)
        is_described = inspect.ismodule(value) or id(value) in objects or f"{package}.{name}" in names
        missing += [] if is_listed and is_described else [f"{package}.{name}"]
    assert not missing


def test_a_class_with_two_names_has_one_spelling_on_all_pages(pages):
    """Keras has a class of the second name, of which its page and the lines that name Keras speak."""
    assert SECOND_NAMES
    for _, name in SECOND_NAMES:
        spelled = re.compile(rf"\b{name}\b")
        texts = all_pages() | pages | {path.name: path.read_text("utf-8") for path in CATALOGUE.glob("*.toml")}
        lines = [(page, line) for page, text in texts.items() for line in text.splitlines() if spelled.search(line)]
        assert [(page, line) for page, line in lines if "keras" not in page and "Keras" not in line] == []


def test_each_public_name_has_a_first_sentence(pages):
    silent = [row for text in pages.values() for row in re.findall(r"^   \* - .*\n     - $", text, re.MULTILINE)]
    assert not silent


def test_an_instance_shows_its_call_and_its_equation(pages):
    text = pages["regard.normalizers"]
    softmax = text[text.index(".. py:function:: softmax(scores, dim=-1)") :].split("\n.. ")[0]
    assert ".. math::" in softmax
    assert "An instance of `Softmax`" in softmax


def help_of(command):
    """The help that a user sees, wide enough that no option is cut."""
    output = io.StringIO()
    app = build(command)
    app.help_print(list(command), console=Console(file=output, width=200))
    return output.getvalue()


TRAININGS = [("train", task) for task in registry.names()]


@pytest.fixture(scope="module")
def command_line():
    return command_line_page.page()


@pytest.mark.parametrize("command", [*((name,) for name in COMMANDS), *TRAININGS], ids=" ".join)
def test_each_option_of_a_command_is_in_its_section(command_line, command):
    sections = re.split(r"^##+ (regard [\w ]+)$", command_line, flags=re.MULTILINE)
    texts = dict(zip(sections[1::2], sections[2::2], strict=True))
    shared = texts["regard train"] if len(command) == 2 else ""
    section = shared + texts[" ".join(("regard", *command))]
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", help_of(command))) - {"--help", "--version"}
    assert options or command == ("train",)
    assert not {option for option in options if f"`{option}`" not in section}


@pytest.mark.parametrize("page", sorted((UNDERSTAND / "derivations").glob("*.md")), ids=lambda path: path.stem)
def test_names_in_a_derivation_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    paths = [f"/{path.relative_to(ROOT).as_posix()}" for path in SOURCES]
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES if not path.is_relative_to(ROOT / "tests"))
    for name in re.findall(r"`([\w./]+)`", text):
        if name.endswith((".py", "/")):
            assert any(path.endswith(f"/{name}") for path in paths), name
        elif re.fullmatch(r"[A-Za-z_]\w*_\w+|[A-Z]\w+\.\w+", name):
            assert re.search(rf"\b{name.rpartition('.')[2]}\b", code), name
