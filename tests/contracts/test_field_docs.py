"""The help of every public dataclass and named tuple says what each field is."""

import dataclasses
import inspect
import pydoc
import re

import regard
from regard.models import TranslatorConfig


def public_classes(package, seen):
    """Every class that is reached from a package by public names of packages."""
    for name in package.__all__:
        value = getattr(package, name)
        if hasattr(value, "__path__") and value.__name__ not in seen:
            seen.add(value.__name__)
            yield from public_classes(value, seen)
        elif isinstance(value, type) and value.__module__.startswith("regard."):
            yield value


def test_help_says_what_each_field_is():
    silent = set()
    for kind in public_classes(regard, set()):
        fields = [one.name for one in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else ()
        text = inspect.getdoc(kind) or ""
        for name in (*fields, *getattr(kind, "_fields", ())):
            if not name.startswith("_") and not re.search(rf"\b{name}\b", text):
                silent.add(f"{kind.__name__}.{name}")
    assert not silent


def test_the_text_below_a_field_is_in_the_help():
    for text in (pydoc.render_doc(TranslatorConfig), inspect.getdoc(TranslatorConfig)):
        assert "Attributes:" in text
        assert "encoder_layers: Layers of the encoder." in text
        assert not re.search(r"^\s+\w+: $", text, re.M), "a field has no text"
