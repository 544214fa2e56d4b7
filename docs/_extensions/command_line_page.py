"""The page of the command line, written before a build from the commands themselves."""

import inspect
import re
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cyclopts import App
from generated_pages import write_page
from sphinx.application import Sphinx

from regard.cli.commands import COMMANDS, build, default_text
from regard.cli.evaluate import make_command as evaluate_command
from regard.cli.predict import make_command as predict_command
from regard.tasks import registry

PAGE = "reference/command-line.md"

Cells = Callable[[Any], Sequence[str]]
"""What an option has in further columns."""

BY_TASK = {"evaluate": evaluate_command, "predict": predict_command}
"""Commands whose options depend on the task of the run."""

INTRODUCTION = """\
# Command line

`regard COMMAND --help` prints what is below, and `regard train TASK --help` the options of one task. An option
without a value is a switch, which is off by default; the spelling with `no` turns it off, where there is one. An error
is one line on standard error, with exit code 2; Ctrl-C gives exit code 130.
"""


class Option(NamedTuple):
    """A row of a table."""

    names: str
    value: str
    help: str
    panel: str

    def row(self, *more: str) -> str:
        return "| " + " | ".join((self.names, self.value, self.help, *more)) + " |"


def options(app: App) -> list[Option]:
    """The options and arguments of a command, in the order of its help."""
    found = []
    usual = build(["--help"]).default_parameter
    for argument in app.assemble_argument_collection(default_parameter=usual, parse_docstring=True):
        if argument.show:
            default = default_text(argument.field_info.default) if not argument.required else None
            ending = "Required." if argument.required else ""
            if default not in (None, "()"):
                ending = "Default: on." if default == "True" else f"Default: `{default}`."
            found.append(
                Option(
                    ", ".join(f"`{name}`" for name in argument.names),
                    value_text(argument),
                    f"{escaped(argument.parameter.help or '')} {ending}".strip(),
                    argument.parameter.group[0].name,
                )
            )
    return found


def is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.Literal


def value_text(argument: Any) -> str:
    hint = argument.hint
    choices = [
        choice for kind in (hint, *typing.get_args(hint)) if is_literal(kind) for choice in typing.get_args(kind)
    ]
    if choices:
        return " ".join(f"`{choice}`" for choice in choices)
    kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType] or [hint]
    names = [getattr(kind, "__name__", str(kind)).lower() for kind in kinds if kind is not Ellipsis]
    many = "…" if typing.get_origin(hint) in (tuple, list) else ""
    return "" if names == ["bool"] else " or ".join(dict.fromkeys(names)) + many


def escaped(text: str) -> str:
    """The text of a help, which is plain, in Markdown."""
    plain = re.sub(r"([\\`*_{}\[\]<>|$~])", r"\\\1", " ".join(text.split()))
    return re.sub(r"(?<![\w-])(--[a-z][a-z0-9-]*)", r"`\1`", plain)


def paragraphs(text: str) -> str:
    """The description of a command, with its shell lines."""
    parts = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        is_shell = all(line.startswith("regard ") for line in block.splitlines())
        parts.append(f"```bash\n{block}\n```" if is_shell else escaped(block))
    return "\n\n".join(parts)


def table(
    rows: Iterable[Option], more: Sequence[str] = (), cells: Callable[[Option], Sequence[str]] = lambda _: ()
) -> str:
    titles = ("option", "value", "meaning", *more)
    lines = ["| " + " | ".join(titles) + " |", "| " + " | ".join("---" for _ in titles) + " |"]
    return "\n".join([*lines, *(row.row(*cells(row)) for row in rows)]) + "\n"


def by_panel(rows: Sequence[Option], level: str) -> str:
    """One table for each panel of the help; a single one has no title."""
    panels = list(dict.fromkeys(row.panel for row in rows))
    parts = []
    for panel in panels:
        title = f"{level} {panel}\n\n" if panel not in ("Arguments", "Parameters") else ""
        parts.append(title + table([row for row in rows if row.panel == panel]))
    return "\n".join(parts)


def common(tables: dict[str, list[Option]]) -> list[Option]:
    """The options that are the same in all tasks."""
    times = Counter(row for rows in tables.values() for row in rows)
    return [row for row in next(iter(tables.values())) if times[row] == len(tables)]


def train_section(app: App) -> str:
    tables = {task: options(app[task]) for task in registry.names()}
    shared = common(tables)
    parts = [
        f"{escaped(app.help)} There is a command for each task. These options are common to all; those of "
        "each task follow.\n",
        by_panel(shared, "###"),
    ]
    for task, rows in tables.items():
        parts += [f"### regard train {task}\n", paragraphs(registry.names()[task]) + "\n"]
        parts.append(by_panel([row for row in rows if row not in shared], "####"))
    return "\n".join(parts)


def section_by_task(make: Callable[[Any], Any]) -> str:
    """The options of a command for a trained run: those of all tasks, then those of some."""
    tables = {}
    for task in registry.names():
        app = App()
        app.command(make(registry.find(task)), name="command")
        tables[task] = [row._replace(panel="") for row in options(app["command"])]
    shared = common(tables)
    tasks: dict[Option, list[str]] = {}
    for task, rows in tables.items():
        for row in rows:
            if row not in shared:
                tasks.setdefault(row, []).append(task)
    parts = [table(shared)]
    if tasks:
        parts.append("Options that depend on the task of the run:\n")
        parts.append(table(tasks, ("tasks",), lambda row: (", ".join(tasks[row]),)))
    return "\n".join(parts)


def page() -> str:
    app = build(["--help"])
    parts = [INTRODUCTION]
    for command in COMMANDS:
        parts.append(f"## regard {command}\n")
        if command == "train":
            parts.append(train_section(app["train"]))
            continue
        parts.append(paragraphs(app[command].help) + "\n")
        parts.append(
            section_by_task(BY_TASK[command]) if command in BY_TASK else by_panel(options(app[command]), "###")
        )
    return "\n".join(parts)


def write(app: Sphinx) -> None:
    if app.config.language == "en":
        write_page(Path(app.srcdir) / PAGE, page())


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
