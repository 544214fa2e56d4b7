"""The catalogue of mechanisms: a TOML file for each kind, and what the docstrings say; it draws and writes nothing."""

import contextlib
import importlib
import inspect
import io
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).parents[1] / "catalogue"
KINDS = ("scores", "normalizers", "masks", "biases", "positions", "layers")
SECTION = re.compile(r"^(Args|Raises|Returns|Attributes|Numerics|Example|Examples)\s*:", re.MULTILINE)


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of a kind: an entry of its file."""

    kind: str
    room: str
    key: str
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name, "")

    @property
    def documented(self) -> Any:
        """The public name whose docstring says the equation: the first one."""
        return getattr(importlib.import_module(f"regard.{self.room}"), self["names"][0])

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring."""
        return " ".join(inspect.getdoc(self.documented).split("\n\n")[0].split())

    @property
    def body(self) -> str:
        """The docstring between its first paragraph and its first section: equation, paper, meaning of the symbols."""
        text = inspect.getdoc(self.documented).partition("\n\n")[2]
        section = SECTION.search(text)
        return text[: section.start()].strip() if section else text.strip()

    @property
    def preamble(self) -> str:
        """The code that makes the common example."""
        return tomllib.loads((CATALOGUE / "examples.toml").read_text(encoding="utf-8"))[self["example"]]

    def run(self) -> tuple[dict[str, Any], str]:
        """Runs the code. Returns its names and what it printed."""
        import torch

        names: dict[str, Any] = {}
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), torch.random.fork_rng(devices=[]):
                exec(compile(self.preamble, "example", "exec"), names)
                exec(compile(self["code"], f"{self.kind}.toml, {self.key}", "exec"), names)
        finally:
            torch.set_printoptions(profile="default")
        return names, printed.getvalue()


@dataclass(frozen=True)
class Kind:
    """A file of the catalogue.

    Attributes:
        other: public names of the room that are no mechanisms: types, parts and conversions.
        patterns: combinations that have a name in papers.
    """

    name: str
    room: str
    title: str
    about: str
    other: list[str]
    mechanisms: list[Mechanism]
    patterns: list[dict[str, str]] = field(default_factory=list)


def read_kind(name: str) -> Kind:
    """Reads the file of a kind. Values of the whole file are the defaults of its entries."""
    content = tomllib.loads((CATALOGUE / f"{name}.toml").read_text(encoding="utf-8"))
    entries = {key: value for key, value in content.items() if isinstance(value, dict)}
    common = {key: value for key, value in content.items() if isinstance(value, str)}
    room = content.get("room", name)
    mechanisms = [Mechanism(name, room, key, {**common, **entry}) for key, entry in entries.items()]
    return Kind(
        name, room, content["title"], content["about"], content["other"], mechanisms, content.get("patterns", [])
    )
