"""The pages of mechanisms: each public mechanism has an entry, and everything that an entry says can be generated."""

import ast
import importlib
import re
import textwrap
from pathlib import Path

import pytest
from mechanism_catalogue import KINDS, read_kind
from plain_equations import _tex, _tex_of_lines
from reference_pages import public_names

import regard

DOCS = Path(__file__).parents[2] / "docs"

ENTRIES = {(kind, entry.key): entry for kind in KINDS for entry in read_kind(kind).mechanisms}
OWN = {"custom", "lengths", "keep", "ignore", "where", "and", "or", "not", "appended", "tensor", "sum", "packing"}
"""Entries that no paper introduced."""


@pytest.mark.parametrize("name", KINDS)
def test_every_public_name_is_a_mechanism_or_not(name):
    kind = read_kind(name)
    names = [public for entry in kind.mechanisms for public in entry["names"]] + kind.other
    assert sorted(names) == sorted(public_names(importlib.import_module(f"regard.{kind.room}")))


@pytest.mark.parametrize(("kind", "key"), ENTRIES)
def test_an_entry_is_whole_and_its_code_runs(kind, key):
    entry = ENTRIES[kind, key]
    missing = [name for name in ("title", "time", "memory", "gradient", "when", "avoid", "course") if not entry[name]]
    assert not missing
    assert ".. math::" in entry.body, "the docstring has no equation"
    assert key in OWN or re.search(r"\b(19|20)\d\d\b", entry.summary + entry.body), "the docstring names no paper"
    names, printed = entry.run()
    assert printed.strip()
    for code in entry["panels"].values() if entry["panels"] else ["weights"]:
        assert eval(code, names).dim() in (2, 3), code
    if entry["arguments"]:  # of the call whose plan the page tells
        arguments = dict.fromkeys(("query", "key", "value"), names["x"]) | eval(entry["arguments"], names)
        assert regard.plan(**arguments).backend


def test_the_page_of_scope_lists_every_mechanism():
    text = (DOCS / "en" / "mechanisms" / "scope.md").read_text("utf-8")
    linked = set(re.findall(r"\((\w+)/([\w-]+)\.md\)", text))
    lists = {(kind, "index") for kind in KINDS}
    assert linked <= ENTRIES.keys() | lists
    assert ENTRIES.keys() <= linked | {entry for entry in ENTRIES if (entry[0], "index") in linked}


def test_the_page_of_scope_says_what_is_not_in_and_what_to_use_instead():
    text = (DOCS / "en" / "mechanisms" / "scope.md").read_text("utf-8").partition("## Not in, and why")[2]
    rows = dict(re.findall(r"^\| (\w+)[^|]*\|[^|]+\|([^|]*)\|$", text, re.MULTILINE))
    rooms = (importlib.import_module(f"regard.{read_kind(kind).room}") for kind in KINDS)
    public = {name.lower() for room in rooms for name in public_names(room)}
    for name in ("LSH", "Linformer", "Nyström", "cosFormer", "polynomial", "graphs"):
        assert "](" in rows[name], "a row names what to use instead, with a link"
        assert not any(name.lower() in each for each in public), "what is not in has no public name"


def test_no_public_docstring_has_an_equation_in_a_literal_block():
    def is_code(block):
        try:
            return bool(ast.parse(textwrap.dedent(block)))
        except SyntaxError:
            return False

    signs, blocks = set("·Σ√∗⊗⇔σα×φ"), re.compile(r"(?<!math)::\n\n((?: +\S.*\n?|\n)+)")
    found = {
        f"{path.name}, {node.name}: {block}"
        for path in Path(regard.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        for block in blocks.findall((ast.get_docstring(node) or "").partition("Args:")[0])
        if (signs & set(block) or " = " in block) and not is_code(block)
    }
    assert not found, f"an equation is `.. math::`: {found}"


def test_equations_that_help_shows_are_tex_in_the_site():
    assert _tex("score(q_i, k) = −|q|² · W_1 tanh(x_avg) / √(d + 1)") == (
        r"{\text{score}}(q_i, k) &= -|q|^2 \cdot  W_1 \operatorname{tanh}(x_{\text{avg}}) / \sqrt{d + 1}"
    )
    assert _tex("query i sees key j  ⇔  j <= offset") == (
        r"{\text{query }} i {\text{ sees key }} j  &\iff   j \le  {\text{offset}}"
    )
    assert _tex("[log κ̂_t; h̃] = (W₁ q ∘ u)⁻¹") == (
        r"[\operatorname{log} \hat{\kappa }_t; \tilde{h}] &= (W_1 q \circ  u)^{-1}"
    )
    assert _tex_of_lines([]) == ""
    assert _tex_of_lines(["a = b"]) == "a = b"
    assert _tex_of_lines(["a = b", "c = d"]) == r"a &= b \\ c &= d"
    assert _tex_of_lines([r"u &= v, \; a = b \\", r"y &= norm(u)"]) == r"u &= v, \; a = b \\ y &= {\text{norm}}(u)"
    assert _tex(r"E_{ji} = \sum_j \exp(s_j)") == r"E_{ji} &= \sum_j \exp(s_j)"


def test_the_pictures_of_patterns_differ():
    import torch

    from regard import masks
    from regard.shapes.grid import Grid

    grid = Grid.whole(1, 1, 24, 24)
    patterns = [eval(each["code"], {"masks": masks, "torch": torch}) for each in read_kind("masks").patterns]
    visible = [mask.dense(grid).expand(1, 1, 24, 24).flatten().tolist() for mask in patterns]
    assert len({tuple(pairs) for pairs in visible}) == len(patterns)
