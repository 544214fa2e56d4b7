"""What a type checker knows of regard: the public names, the code in README.md and docs, and the types of calls.

One run of pyright checks all of it, with the installed package as users have it.
"""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import book
import regard
from regard.normalizers import names as normalizer_names
from regard.scores import names as score_names

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *book.sources(ROOT / "docs/en")]

SETTINGS = {
    "include": ["."],
    "pythonVersion": "3.11",
    "typeCheckingMode": "standard",
    "reportPrivateImportUsage": "error",
    "reportUnusedExpression": "none",  # a page writes an expression to show what can be read
}

PRELUDE = """
import torch

tokens: torch.Tensor
lengths: torch.Tensor
bos: int
pad: int
attends: bool
"""
"""The types of names that the text of a page describes and its code does not define."""

FROM_THE_TEXT = {"docs/en/how-to/export.md": "tokens, lengths, bos, pad, attends"}
"""Page → the names of the prelude that its code uses."""

TYPES = """
from typing import assert_type
import numpy as np
import torch
from torch import Tensor
import regard
from regard import masks, models, nn, normalizers, positions, scores

x = torch.ones(1, 2, 4)
assert_type(nn.MultiheadAttention(4, 2)(x, x, x)[0], Tensor)
assert_type(nn.Attention()(x, x), regard.Attended)
assert_type(nn.AttentionPooling(4)(x, torch.tensor([2])), nn.Pooled)
assert_type(nn.SqueezeExcitation(4)(x), Tensor)
assert_type(positions.Sinusoidal(4)(x), Tensor)
assert_type(normalizers.sparsemax(x, dim=-1), Tensor)
assert_type(normalizers.sparsemax([[1, 2.5]]), Tensor)
assert_type(normalizers.hard("argmax")(np.ones(3)), Tensor)
regard.attend(x, x, x, score="cosine", normalizer="entmax15", mask=masks.causal(align="start"))
regard.attend(x, x, x, score=lambda query, key: query @ key.mT, normalizer=torch.sigmoid)
regard.observe(x, x, x).entropy.shape
regard.attend_with_weights(x, x, x).weights.sum()
nn.AttentionPooling(4, score="general")
scores.create("location_aware", 4, 4, channels=1, kernel_size=3)
nn.LayerConfig(4, 2, position="rotary")

nn.MultiheadAttention(4, 2)(x, x, x, need_weight=False)  # error
nn.Attention()(x, x).wieghts  # error
nn.SqueezeExcitation(4)(x).shpae  # error
regard.attend(x, x, x, score="cosin")  # error
regard.attend(x, x, x, score="general")  # error
regard.attend(x, x, x, normalizer="sparse_max")  # error
regard.attend(x, x, x, mask=masks.causal(align="begin"))  # error
regard.observe(x, x, x).entropie  # error
regard.observe(x, x, x).entropy.shpae  # error
regard.attend_with_weights(x, x, x).weights.summ()  # error
nn.AttentionPooling(4, score="location")  # error
scores.create("locations", 4, 4)  # error
nn.LayerConfig(4, 2, position="rotray")  # error
regard.errors.NoSuchError  # error
regard.no_such_module  # error
"""
"""Calls and their types; a line is an error for a type checker exactly if it says so."""


def public_packages():
    """Every package that is reached from `regard` by public names, by its full name."""
    packages, waiting = {}, [regard]
    while waiting:
        package = waiting.pop()
        packages[package.__name__] = package
        values = [getattr(package, name) for name in package.__all__]
        waiting += [value for value in values if hasattr(value, "__path__") and value.__name__ not in packages]
    return packages


def candidates(package):
    """The names that a package may have: its public names, what is in its namespace, and its modules."""
    modules = [path.stem for path in Path(package.__path__[0]).iterdir() if path.suffix in ("", ".py")]
    names = {*package.__all__, *vars(package), *modules}
    return sorted(name for name in names if name.isidentifier() and not name.startswith("_"))


def names_of_packages():
    """A module with one line for each name that a package may have, and the names line by line."""
    lines, names = [], []
    for name, package in public_packages().items():
        lines += [f"import {name}", *(f"{name}.{attribute}" for attribute in candidates(package))]
        names += [None, *((name, attribute) for attribute in candidates(package))]
    return "\n".join(lines), names


def code_of(page):
    """File → the Python code of a page, each line in its own line: one file, and those that a block names."""
    files, current = {}, None
    name = page.relative_to(ROOT).as_posix()
    own = f"{re.sub(r'[^a-z]', '_', name.removesuffix('.md').lower())}.py"
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines()):
        if current is None and re.fullmatch(r"\s*```python\s*", line):
            current = ""
        elif current is not None and line.strip() == "```":
            current = None
        elif current is not None:
            if not current:
                first = re.fullmatch(r"# ([\w/]+\.py)", line)
                current = first[1] if first else own
                files.setdefault(current, [])
            files[current] += [""] * (number - len(files[current])) + [line]
    if name in FROM_THE_TEXT:
        files[own][0] = f"from prelude import {FROM_THE_TEXT[name]}"
    return {file: "\n".join(lines) for file, lines in files.items()}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """File → (line, message) of each error that pyright reports."""
    folder = tmp_path_factory.mktemp("types")
    files = {"prelude.py": PRELUDE, "public_names.py": names_of_packages()[0], "calls.py": TYPES}
    for page in PAGES:
        files |= code_of(page)
    # The pages are about regard: the checker need not read the hundreds of models of transformers.
    stub = "typings/transformers/__init__.pyi"
    files[stub] = (ROOT / stub).read_text(encoding="utf-8")
    files["pyrightconfig.json"] = json.dumps(SETTINGS)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(folder), "--pythonpath", sys.executable]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    try:
        report = json.loads(ended.stdout)
    except ValueError:
        pytest.skip(f"pyright cannot run: {(ended.stderr or ended.stdout).strip()[-500:]}")
    assert report["summary"]["filesAnalyzed"] == len(files) - 1
    errors = {name: [] for name in files}
    for diagnostic in report["generalDiagnostics"]:
        if diagnostic["severity"] == "error":
            name = Path(diagnostic["file"]).resolve().relative_to(folder.resolve()).as_posix()
            errors[name].append((diagnostic["range"]["start"]["line"], diagnostic["message"]))
    return errors


def test_public_names_are_what_is_listed_and_what_a_type_checker_sees(seen):
    for name, package in public_packages().items():
        listed = [attribute for attribute in dir(package) if not attribute.startswith("__")]
        assert listed == sorted(package.__all__), name
    unknown = {line for line, _ in seen["public_names.py"]}
    for line, entry in enumerate(names_of_packages()[1]):
        if entry is not None:
            package, attribute = entry
            is_public = attribute in importlib.import_module(package).__all__
            assert (line not in unknown) == is_public, f"{package}.{attribute}"


def test_the_code_of_every_page_is_correct(seen):
    wrong = []
    for page in PAGES:
        for file in code_of(page):
            wrong += [f"{page.relative_to(ROOT).as_posix()}:{line + 1}: {message}" for line, message in seen[file]]
    assert not wrong, "\n".join(wrong)


def test_calls_have_types_and_names_are_checked(seen):
    wrong = dict(seen["calls.py"])
    for number, line in enumerate(TYPES.splitlines()):
        assert (number in wrong) == line.endswith("# error"), f"{line}: {wrong.get(number)}"


def test_the_names_in_signatures_are_those_that_exist():
    assert get_args(score_names.ScoreName) == tuple(score_names.READY_SCORES)
    assert get_args(score_names.AnyScoreName) == score_names.NAMES
    of_places = {"location", "location_aware", "coverage", "dynamic_convolution"}  # of keys, or of earlier weights
    assert set(get_args(score_names.ContentScoreName)) == set(score_names.NAMES) - of_places
    for name in get_args(normalizer_names.NormalizerName):
        assert normalizer_names.as_normalizer(name) is not None
