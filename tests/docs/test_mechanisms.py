"""The pages of mechanisms: each public mechanism has an entry, and everything that an entry says can be generated."""

import importlib
import re
from pathlib import Path

import pytest
from mechanism_catalogue import KINDS, read_kind

DOCS = Path(__file__).parents[2] / "docs"

ENTRIES = {(kind, entry.key): entry for kind in KINDS for entry in read_kind(kind).mechanisms}
OWN = {"custom", "lengths", "keep", "ignore", "where", "and", "or", "not", "appended", "tensor", "sum", "packing"}
"""Entries that no paper introduced."""


@pytest.mark.parametrize("name", KINDS)
def test_every_public_name_is_a_mechanism_or_not(name):
    kind = read_kind(name)
    names = [public for entry in kind.mechanisms for public in entry["names"]] + kind.other
    assert sorted(names) == sorted(importlib.import_module(f"regard.{kind.room}").__all__)


@pytest.mark.parametrize(("kind", "key"), ENTRIES)
def test_an_entry_is_whole_and_its_code_runs(kind, key):
    entry = ENTRIES[kind, key]
    missing = [name for name in ("title", "time", "memory", "gradient", "when", "avoid", "course") if not entry[name]]
    assert not missing
    assert "::" in entry.body or entry.kind == "layers" or key == "hard", "the docstring has no equation"
    assert key in OWN or re.search(r"\b(19|20)\d\d\b", entry.summary + entry.body), "the docstring names no paper"
    names, printed = entry.run()
    assert printed.strip()
    for code in entry["panels"].values() if entry["panels"] else ["weights"]:
        assert eval(code, names).dim() in (2, 3), code


def test_the_pictures_of_patterns_differ():
    import torch

    from regard import masks
    from regard.shapes import Grid

    grid = Grid.whole(1, 1, 24, 24)
    patterns = [eval(each["code"], {"masks": masks, "torch": torch}) for each in read_kind("masks").patterns]
    visible = [mask.dense(grid).expand(1, 1, 24, 24).flatten().tolist() for mask in patterns]
    assert len({tuple(pairs) for pairs in visible}) == len(patterns)
