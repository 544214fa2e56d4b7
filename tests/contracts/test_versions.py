"""The files that say which versions were tested agree with the ranges of pyproject.toml."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
RAISED = {"datasets", "huggingface_hub", "safetensors", "tokenizers"}
"""What other packages of the tests need newer than pyproject.toml does."""
INDIRECT = {"pyarrow"}
"""What only other packages need, and does not say itself with what it runs."""
NEWEST = ("export", "widget")
"""Extras whose packages are tried in their newest versions alone."""


def ranges():
    """The lower bound of each package that regard runs on, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    groups = re.fullmatch(r"regard\[(.*)\]", extras["all"][0])
    assert groups is not None
    tried = [name for name in groups[1].split(",") if name not in NEWEST]
    wanted = [*project["dependencies"], *(one for name in tried for one in extras[name])]
    # What stands behind a comma is an upper bound, and behind a semicolon where the package is needed.
    return dict(re.split("[,;]", one)[0].split(">=") for one in wanted)


def pinned(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_the_oldest_versions_are_the_lower_bounds():
    oldest = pinned("constraints-oldest.txt")
    direct = {name: version for name, version in oldest.items() if name not in INDIRECT}
    assert direct == {name: version for name, version in ranges().items() if name not in RAISED}


def number(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def test_pinned_versions_are_within_the_ranges():
    tested = {name.lower().replace("_", "-"): version for name, version in pinned("constraints.txt").items()}
    for name, lowest in ranges().items():
        assert number(tested[name.replace("_", "-")]) >= number(lowest), name
