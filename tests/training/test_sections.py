"""Sections of a configuration: what is built from a file has the types of the fields."""

import math
from dataclasses import dataclass
from typing import Literal

import pytest

from regard.configuration import AT_LEAST_1, RATE, Configuration, option
from regard.errors import ArgumentError, RunError, UnknownNameError
from regard.training.sections import build_section


@dataclass(frozen=True)
class Section(Configuration):
    path: str
    size: int = option(3, within=AT_LEAST_1)
    rate: float = option(0.5, within=RATE)
    fast: bool = False
    kind: Literal["round", "flat"] = "round"
    shade: Literal["dark", "light"] | None = None
    limit: int | None = None


def test_a_written_section_is_built_again():
    content = {"path": "a", "size": 7, "rate": 0, "fast": True, "kind": "flat", "shade": "dark", "limit": 2}
    assert build_section(Section, content, "here") == Section(**content)
    assert build_section(Section, {"path": "a"}, "here") == Section("a")
    assert build_section(Section, {"path": "a", "shade": None, "limit": None}, "here") == Section("a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "here must be a mapping"),
        ({}, "here has no field 'path'"),
        ({"path": "a", "sise": 1}, "a field 'sise'"),
        ({"path": 7}, r"here\.path must be text; it is 7"),
        ({"path": "a", "size": 1.5}, r"here\.size must be a whole number; it is 1\.5"),
        ({"path": "a", "size": True}, r"here\.size must be a whole number; it is True"),
        ({"path": "a", "rate": "0.5"}, r"here\.rate must be a number; it is '0\.5'"),
        ({"path": "a", "fast": 1}, r"here\.fast must be true or false; it is 1"),
        ({"path": "a", "kind": 1}, r"here\.kind must be one of round, flat; it is 1"),
        ({"path": "a", "kind": None}, r"here\.kind must be one of round, flat; it is None"),
        ({"path": "a", "limit": "2"}, r"here\.limit must be a whole number or null; it is '2'"),
    ],
)
def test_other_types_are_named(content, message):
    with pytest.raises(RunError, match=message):
        build_section(Section, content, "here")


def test_unknown_choices_have_neighbours():
    with pytest.raises(UnknownNameError, match="unknown kind 'rond'; did you mean 'round'"):
        Section("a", kind="rond")
    with pytest.raises(RunError, match="shade must be one of dark, light or null; it is 'darker'"):
        build_section(Section, {"path": "a", "shade": "darker"}, "here")


@pytest.mark.parametrize("options", [{"size": 0}, {"size": math.nan}, {"rate": 1.0}, {"rate": math.nan}, {"rate": -1}])
def test_sections_refuse_numbers_out_of_range(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        Section("a", **options)
