"""Writes docs/en/mechanisms: a page with a picture for each mechanism, and an index for each kind.

The pages are written before Sphinx reads its sources, and only if the package, the catalogue or this code has changed.
"""

import hashlib
import html
import importlib
import re
from pathlib import Path
from typing import Any

import mechanism_catalogue as catalogue
from generated_pages import write_page
from mechanism_catalogue import KINDS, Kind, Mechanism, read_kind
from mechanism_pictures import draw, draw_pattern, draw_small
from sphinx.application import Sphinx

import regard

PACKAGE = Path(regard.__file__).parent
LETTERS = (
    "B: batch, H: heads, Q and K: queries and keys, D: features of a head. Memory counts elements, "
    "of 4 bytes in float32, besides inputs and output, in every backend but `reference`."
)
WIDE = '---\nhtml_theme.sidebar_secondary.remove: "true"\n---\n\n'
GPU_BACKENDS = ("flex", "triton")


def write_pages(app: Sphinx) -> None:
    """Writes the pages of the English site."""
    folder = Path(app.srcdir) / "mechanisms"
    if app.config.language != "en":
        return
    stamp = folder / "written.txt"
    state = _state()
    if stamp.exists() and stamp.read_text() == state:
        return
    kinds = [read_kind(name) for name in KINDS]
    for kind in kinds:
        (folder / kind.name / "pictures").mkdir(parents=True, exist_ok=True)
        cards = [_write_mechanism(folder / kind.name, mechanism) for mechanism in kind.mechanisms]
        write_page(folder / kind.name / "index.md", _index(folder / kind.name, kind, cards))
    write_page(folder / "glance.txt", "\n".join(f"## {kind.title}\n\n{_glance(kind)}" for kind in kinds))
    stamp.write_text(state)


def _state() -> str:
    """A digest of everything that the pages depend on."""
    digest = hashlib.sha256()
    for base in (PACKAGE, catalogue.CATALOGUE, Path(__file__).parent):
        for file in sorted(file for file in base.rglob("*") if file.suffix in (".py", ".toml")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _write_mechanism(folder: Path, mechanism: Mechanism) -> str:
    """Writes the page and the pictures of a mechanism. Returns its card for an index."""
    names, printed = mechanism.run()
    draw(folder / "pictures" / f"{mechanism.key}.png", mechanism, names)
    draw_small(folder / "pictures" / f"{mechanism.key}-small.png", mechanism, names)
    write_page(folder / f"{mechanism.key}.md", _page(mechanism, names, printed))
    return _card(mechanism, "")


def _page(mechanism: Mechanism, names: dict[str, Any], printed: str) -> str:
    package = f"regard.{mechanism.room}"
    references = [
        f"{{py:{'class' if isinstance(getattr(importlib.import_module(package), name), type) else 'func'}}}"
        f"`{package}.{name}`"
        for name in mechanism["names"]
    ]
    example = "the sentence" if mechanism["example"] == "sentence" else "the feature map"
    costs = [(name, mechanism[name]) for name in ("time", "memory", "gradient")]
    parts = [
        f"# {mechanism['title']}",
        restructured(mechanism.summary, mechanism.room),
        "Reference: " + " · ".join(references),
        "## Equation",
        restructured(mechanism.body, mechanism.room) if mechanism.body else "",
        "## On the common example" if mechanism["example"] == "sentence" else "## On the common feature map",
        f"![{html.escape(mechanism['title'])}: {example}](pictures/{mechanism.key}.png)",
        f"```python\n{mechanism['code'].strip()}\n```",
        f"```text\n{printed.strip()}\n```",
        f"````{{dropdown}} {example.capitalize()}: the lines before",
        f"```python\n{mechanism.preamble.strip()}\n```\n````",
        "## Cost and gradient",
        "| | |\n|---|---|\n" + "\n".join(f"| {name} | {cost} |" for name, cost in costs),
        f"{LETTERS} {_backends(mechanism, names)}",
        "## When to use it",
        f"**Good:** {mechanism['when']}",
        f"**Not:** {mechanism['avoid']}",
        f"In the course: [chapter {int(mechanism['course'][:2])}](../../learn/{mechanism['course']}.md).",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def restructured(text: str, room: str) -> str:
    """Text of a docstring as a block of reStructuredText; names in single backticks refer to the reference."""
    package = importlib.import_module(f"regard.{room}")

    def role(found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:  # a role or a literal, as it is
            return found.group()
        return f":py:obj:`~regard.{room}.{name}`" if name in package.__all__ else f"``{name}``"

    return "````{eval-rst}\n" + re.sub(r":\w+:`[^`]*`|``[^`]*``|`([^`:]+)`", role, text) + "\n````"


def _backends(mechanism: Mechanism, names: dict[str, Any]) -> str:
    """Which backends can run a call with the mechanism, from its plan."""
    if not mechanism["arguments"]:
        return ""
    arguments = {**dict.fromkeys(("query", "key", "value"), names["x"]), **eval(mechanism["arguments"], names)}
    plan = regard.plan(**arguments)
    runs = [f"`{name}`" for name, reason in plan.reasons.items() if not reason.startswith("cannot")]
    refuse = [
        f"`{name}` does not: {reason.removeprefix('cannot: ')}."
        for name, reason in plan.reasons.items()
        if reason.startswith("cannot") and name not in GPU_BACKENDS
    ]
    return (
        f"By the plan of this call, these backends run it on a CPU: {', '.join(runs)}. {' '.join(refuse)} "
        "On a GPU, `print(regard.plan(...))` says what `flex` and `triton` run."
    )


def _index(folder: Path, kind: Kind, cards: list[str]) -> str:
    pages = "\n".join(mechanism.key for mechanism in kind.mechanisms)
    text = f"{WIDE}# {kind.title}\n\n{kind.about}\n\n{_grid(cards, '2 3 4 4')}\n\n"
    if kind.patterns:
        text += "## Patterns made of them\n\n24 queries and keys; each pattern is one line.\n\n"
        text += f"{_patterns(folder, kind)}\n\n"
    return f"{text}```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def _patterns(folder: Path, kind: Kind) -> str:
    cards = []
    for number, pattern in enumerate(kind.patterns):
        picture = f"pictures/pattern-{number}.png"
        draw_pattern(folder / picture, pattern["code"])
        cards.append(
            f":::{{grid-item-card}} {pattern['title']}\n:img-top: {picture}\n\n"
            f"`{pattern['code']}`\n\n{pattern['paper']}\n:::"
        )
    return _grid(cards, "2 3 3 3")


def _glance(kind: Kind) -> str:
    """The cards of a kind, for the page above the kinds."""
    about = kind.about.replace("](../", "](")
    text = f"{about} [All about them]({kind.name}/index.md).\n\n"
    return text + _grid([_card(mechanism, f"{kind.name}/") for mechanism in kind.mechanisms]) + "\n"


def _card(mechanism: Mechanism, folder: str) -> str:
    return (
        f":::{{grid-item-card}} {mechanism['title']}\n:img-top: {folder}pictures/{mechanism.key}-small.png\n"
        f":link: {folder}{mechanism.key}\n:link-type: doc\n:class-title: sd-fs-6\n:::"
    )


def _grid(cards: list[str], columns: str = "3 4 6 6") -> str:
    return f"::::{{grid}} {columns}\n:gutter: 1\n\n" + "\n".join(cards) + "\n::::"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
