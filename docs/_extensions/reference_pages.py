"""The pages of the interface, one for each package with public names, written from ``__all__`` before a build.

Each name is described once, where it is first listed; other pages that list it refer there. Names of other libraries'
types are not resolved, and a name without its module is resolved if only one object has it.
"""

import functools
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from generated_pages import write_page
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject, PythonDomain
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.typing import stringify_annotation

from regard.configuration import Configuration

FOLDER = "reference/python"

PAGES = {
    "regard": "The verbs, and what they return. Everything here is imported with ``import regard``; nothing else is "
    "loaded until it is used. The other pages are the rooms, which the verbs use and which can be used alone.",
    "regard.scores": "A score compares a query with a key. Pass one to ``score=`` of a verb or a layer, by its name, "
    "as a `Score`, or as a function of queries and keys. What a score lowers to is below, too, for authors of "
    "scores and backends.",
    "regard.normalizers": "A normalizer turns the scores that the mask allows into weights, row by row. Pass one to "
    "``normalizer=``, or call it on scores: ``normalizers.sparsemax(scores, dim=-1)``.",
    "regard.masks": 'A mask says which keys a query may attend to; True means "may attend". Masks combine with ``&``, '
    "``|`` and ``~``. Functions with small letters make them; the classes are what they return.",
    "regard.biases": "A bias is added to the scaled scores before the mask applies. ``+`` adds biases.",
    "regard.positions": "Positions are added to the inputs of attention, or turned into queries and keys. The biases "
    "by position are listed here, too.",
    "regard.nn": "Layers: attention for decoders, drop-ins for the attention and the Transformer of ``torch.nn``, "
    "pooling, and attention over channels and pixels. Methods that a layer inherits from `torch.nn.Module` are not "
    "listed.",
    "regard.attention": "The verbs again, and the interface of a backend: what it is given, what it returns, and how "
    "it is registered.",
    "regard.distributed": "Sequences that lie in pieces on several processes: who holds what, and what plain tensors "
    "stand for. :doc:`../../how-to/shard-a-sequence` shows their use.",
    "regard.explanations": "Worked calculations: every intermediate number of an attention by its name.",
    "regard.models": "Models that are made of these parts, as the tasks train them: translators, language models, "
    "classifiers, captioners, and the searches that write their texts.",
    "regard.models.search": "Searches on any decoder with the methods of `SearchableDecoder`.",
    "regard.models.vision": "The modules of the models of images.",
    "regard.models.speech": "The modules of the models of sounds.",
    "regard.watching": "A record of every attention call of any PyTorch model, and what follows from such records. The "
    "output of the model never changes.",
    "regard.records": "Attention weights and worked calculations as plain data: what the viewer, the pictures and the "
    "local page show.",
    "regard.pictures": "Figures of matplotlib, drawn from records and arrays. They need the extra ``pictures``.",
    "regard.viewer": "Records as one HTML file that needs no network, as a notebook's output, or as a picture.",
    "regard.exports": "A trained model for other programs; `regard export` and the method ``export`` of a trained run "
    "write it.",
    "regard.training": "What all trainings share: their options, the loop, the run folder, and the interface of a "
    "task.",
    "regard.tasks": "The tasks that `regard.train` knows, each with its options and its trained run.",
    "regard.tasks.inputs": "The inputs of tasks: reading and checking examples, and their batches.",
    "regard.tasks.outputs": "The outputs of tasks: loss, validation, predictions and evaluation.",
    "regard.data": "Where examples come from, and how they become batches.",
    "regard.data.text": "Texts: sources, tokenizers, batches, and the generated corpora.",
    "regard.data.images": "Images: reading, resizing, batches, and the generated scenes.",
    "regard.data.speech": "Sounds: reading, features, batches, and the generated speech.",
    "regard.configuration": "Dataclasses of options, for a task of your own.",
    "regard.errors": "The errors that regard raises. :doc:`../errors` has a message of each, and what to do.",
}
"""Package → what it is for. The pages follow in this order."""

CALLS = ("forward", "__call__")
NEVER_LISTED = ("extra_repr",)
LONGEST_RESULT = 40


def public_names(module: ModuleType) -> list[str]:
    """Functions, classes, constants and modules of ``__all__``; without it, what the module defines.

    A second name of a class, as `MultiHeadAttention` of `MultiheadAttention`, is on no page: pages use one spelling.
    """
    own = {
        name: value for name, value in list(vars(module).items()) if getattr(value, "__module__", "") == module.__name__
    }
    own = [name for name, value in own.items() if inspect.isclass(value) or inspect.isfunction(value)]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    first = [name for name in names if getattr(getattr(module, name), "__name__", name) not in {*names} - {name}]
    return sorted(first, key=lambda name: kind_of(getattr(module, name)))


def kind_of(value: object) -> int:
    if inspect.ismodule(value):
        return 3
    if inspect.isclass(value):
        return 1
    return 0 if is_described_once(value) else 2


def attribute_docstring(module: ModuleType, name: str, value: object) -> str:
    """The text below the assignment of a constant, in whichever module of the room it is."""
    for found in [module, *[sys.modules[key] for key in sorted(sys.modules) if key.startswith(module.__name__ + ".")]]:
        if vars(found).get(name) is value:
            texts = ModuleAnalyzer.for_module(found.__name__).find_attr_docs()
            if ("", name) in texts:
                return "\n".join(texts["", name]).strip()
    return ""


def docstring(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    return attribute_docstring(module, name, value) or (inspect.getdoc(value) if kind_of(value) == 0 else "") or ""


def first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[^.][.:])\s(?=[A-Z:`])", paragraph)[0]
    return sentence.rstrip(":.") + "." if sentence else ""


def equation(text: str) -> str:
    """The first block of a docstring that is an equation."""
    found = re.search(r"^\.\. math::.*(?:\n(?: +.*)?)*", text, re.MULTILINE)
    return found.group().rstrip() if found else ""


def indented(text: str, by: int = 3) -> str:
    return "\n".join(" " * by + line if line.strip() else "" for line in text.splitlines())


def is_described_once(value: object) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value) or type(value).__module__.startswith("regard")


class Pages:
    """Builds the text of each page, and knows where each object is described."""

    def __init__(self) -> None:
        self.described: dict[int, str] = {}

    def text(self, package: str) -> str:
        module = importlib.import_module(package)
        parts = [heading(package, "="), PAGES[package] + "\n", f".. py:module:: {package}\n"]
        parts.append(self.table(module))
        for name in public_names(module):
            value = getattr(module, name)
            if inspect.ismodule(value) and value.__name__ not in PAGES:
                parts += self.section(value)
            elif not inspect.ismodule(value):
                parts += self.details(module, name)
        return "\n".join(parts)

    def section(self, module: ModuleType) -> Iterator[str]:
        """A module within the page of its package."""
        yield heading(module.__name__.removeprefix("regard."), "-")
        yield f".. py:module:: {module.__name__}\n"
        yield self.table(module)
        for name in public_names(module):
            yield from self.details(module, name)

    def table(self, module: ModuleType) -> str:
        rows = []
        for name in public_names(module):
            value = getattr(module, name)
            full = f"{module.__name__}.{name}"
            if inspect.ismodule(value):
                role, home = ("doc", value.__name__) if value.__name__ in PAGES else ("py:mod", full)
            else:
                role = "py:obj"
                own = getattr(value, "__name__", name)
                own = f"{module.__name__}.{own}" if getattr(module, own, None) is value else full
                home = self.described.setdefault(id(value), own) if is_described_once(value) else full
            rows.append(f"   * - :{role}:`{name} <{home}>`\n     - {first_sentence(docstring(module, name))}")
        return table_of(rows) if rows else ""

    def details(self, module: ModuleType, name: str) -> Iterator[str]:
        value, full = getattr(module, name), f"{module.__name__}.{name}"
        if self.described.get(id(value), full) == full:
            yield f".. py:currentmodule:: {module.__name__}\n"
            yield entry(module, name, value)


def table_of(rows: list[str]) -> str:
    return ".. list-table::\n   :class: names\n   :widths: auto\n\n" + "\n".join(rows) + "\n"


def heading(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n"


def entry(module: ModuleType, name: str, value: Any) -> str:
    """The description of one object."""
    full = f"{module.__name__}.{name}"
    if inspect.isclass(value):
        options = ["members:", "member-order: bysource", f"exclude-members: {', '.join(NEVER_LISTED)}"]
        if public_bases(value):
            options.append("show-inheritance:")
        return f".. autoclass:: {full}\n" + "".join(f"   :{option}\n" for option in options)
    if inspect.isroutine(value):
        return f".. autofunction:: {full}\n"
    text = attribute_docstring(module, name, value)
    if callable(value) and type(value).__module__.startswith("regard"):
        kind = type(value)
        call = next(method for method in CALLS if method in {key for base in kind.__mro__[:-2] for key in vars(base)})
        signature = inspect.signature(getattr(value, call))
        names = ", ".join(str(p.replace(annotation=p.empty)) for p in signature.parameters.values())
        described = inspect.getdoc(kind) or ""
        parts = (text or first_sentence(described), equation(described), f"An instance of `{kind.__name__}`.")
        body = "\n\n".join(parts)
        return f".. py:function:: {name}({names})\n\n{indented(body)}\n"
    if typing.get_origin(value) is not None:
        canonical = stringify_annotation(value, "smart", short_literals=True)
        return f".. py:type:: {name}\n   :canonical: {canonical}\n\n{indented(text)}\n"
    return f".. py:data:: {name}\n   :value: {value!r}\n\n{indented(text)}\n"


def public_bases(kind: type) -> list[type]:
    """The base classes that are regard's own and public: their page says what the class inherits."""
    bases = [base for base in kind.__bases__ if base.__module__.startswith("regard.")]
    return [base for base in bases if base.__name__ in getattr(sys.modules[package_of(base)], "__all__", ())]


def package_of(kind: type) -> str:
    return next((name for name in reversed(PAGES) if kind.__module__.startswith(name + ".")), "regard")


def pages() -> dict[str, str]:
    """Package → the text of its page."""
    made = Pages()
    return {package: made.text(package) for package in PAGES}


def write(app: Sphinx) -> None:
    if app.config.language == "en":
        for package, text in pages().items():
            write_page(Path(app.srcdir) / FOLDER / f"{package}.rst", text)
        write_page(Path(app.srcdir) / FOLDER / "index.rst", index())


def index() -> str:
    """The text of the page that lists the pages."""
    rows = [f"   * - :doc:`{package}`\n     - {first_sentence(text)}" for package, text in PAGES.items()]
    contents = ".. toctree::\n   :hidden:\n\n" + indented("\n".join(PAGES)) + "\n"
    return "\n".join([heading("Python", "="), INTRODUCTION, table_of(rows), contents])


INTRODUCTION = """\
The public names of each room, with their signatures, equations, parameters and errors, and with examples that are run.
"""


def plain_signature(app, what, name, value, options, signature, annotation):
    """Shortens a signature, and the types of its parameters, which are in their descriptions.

    Parameters that only answer unknown arguments, or that are passed on, are left out; types with a public name have
    that name; a short type of the result is part of the signature. The options of a configuration are its attributes.
    """
    if signature is None:
        return None
    types = app.env.current_document.autodoc_annotations.get(name, {})
    for parameter, text in types.items():
        for written, alias in type_aliases().items():
            text = text.replace(written, alias)
        types[parameter] = text
    result = re.sub(r"~?(?:\w+\.)+(\w+)", r"\1", types.pop("return", ""))
    if signature == "(*args, **kwargs)" or (what == "class" and issubclass(value, Configuration)):
        return "", ""
    signature = re.sub(r"(, )?\*\*unknown(?=[,)])", "", signature)
    is_shown = what in ("function", "method") and result != "None" and len(result) <= LONGEST_RESULT
    return signature, result if is_shown else ""


@functools.cache
def type_aliases() -> dict[str, str]:
    """A type as Sphinx writes it → the public name that it has, the longest first."""
    aliases = {}
    for package in PAGES:
        module = importlib.import_module(package)
        for name in public_names(module):
            value = getattr(module, name)
            if typing.get_origin(value) is not None:
                aliases[stringify_annotation(value, "smart", short_literals=True)] = f"~{package}.{name}"
    return dict(sorted(aliases.items(), key=lambda item: -len(item[0])))


def own_bases(app, name, value, options, bases):
    bases[:] = public_bases(value)


def skipped(app, what, name, value, skip, options):
    """Fields of records have their text under "Attributes"."""
    return True if type(value).__name__ == "_tuplegetter" else None


def escaped(app, what, name, value, options, lines):
    """The docstring of an option is its help on the command line: plain text, also in that of its configuration."""
    if what == "attribute" and not any("`" in line for line in lines):
        lines[:] = [re.sub(r"[*|\\]", r"\\\g<0>", line) for line in lines]
    elif what == "class" and issubclass(value, Configuration):
        lines[:] = [line if "`" in line else line.replace("*", r"\*") for line in lines]


def untyped(app, what, name, value, options, lines):
    """Napoleon takes what stands before a colon for the type of a result; here it is part of the sentence."""
    for number, line in enumerate(lines[:-1]):
        if line.strip() == "Returns:":
            indent = len(lines[number + 1]) - len(lines[number + 1].lstrip())
            lines[number + 1] = lines[number + 1][:indent] + ": " + lines[number + 1][indent:]


class InterfaceDomain(PythonDomain):
    """Resolves a name exactly, or, without its module, if only one object outside of classes has it."""

    def find_obj(self, env, modname, classname, name, type, searchmode=0):
        exact = super().find_obj(env, modname, classname, name, type, 0)
        if exact or not name:
            return exact
        if getattr(self, "_count", -1) != len(self.objects):
            self._count, self._by_end = len(self.objects), {}
            for full, entry in self.objects.items():
                if not entry.aliased:
                    parts = full.split(".")
                    for start in range(1, len(parts)):
                        self._by_end.setdefault(".".join(parts[start:]), []).append((full, entry))
        found = [
            (full, entry)
            for full, entry in self._by_end.get(name.strip(".()"), ())
            if "." in name or entry.objtype not in ("attribute", "method", "property", "module")
        ]
        return found if len(found) == 1 else []


def setup(app: Sphinx) -> dict[str, bool]:
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.add_css_file("reference.css")
    app.connect("builder-inited", write)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("autodoc-process-bases", own_bases)
    app.connect("autodoc-skip-member", skipped)
    app.connect("autodoc-process-docstring", escaped)
    app.connect("autodoc-process-docstring", untyped, priority=400)
    app.add_domain(InterfaceDomain, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
