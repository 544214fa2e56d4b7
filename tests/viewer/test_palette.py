"""The colours: those of the viewer are those of Python; their steps are even, and letters on them are readable."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from regard import palette

MODULES = Path(__file__).parents[2] / "viewer" / "modules"
READABLE = 4.5  # WCAG 2, level AA


def table(name, scheme):
    """The points that palette.js has, as ``#rrggbb``."""
    text = (MODULES / "palette.js").read_text()
    found = re.search(rf"\b{name}: {{\s*light: \"([^\"]+)\",\s*dark: \"([^\"]+)\"", text)
    return [f"#{point}" for point in found[1 if scheme == "light" else 2].split()]


def theme(scheme):
    """The colours that themes.js has, by name."""
    body = re.search(rf"export const {scheme.upper()} = {{(.*?)\n}};", (MODULES / "themes.js").read_text(), re.S)[1]
    heads = re.search(r"heads: \[([^\]]+)\]", body)[1]
    return {**dict(re.findall(r'(\w+): "(#[0-9a-f]{6})"', body)), "heads": re.findall("#[0-9a-f]{6}", heads)}


def linear(color):
    part = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    low, high = sorted(linear(color) @ (0.2126, 0.7152, 0.0722) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def lightness(color):
    """CIE 1976 L*, from 0 to 100: another measure than the one the palettes were made with."""
    share = linear(color) @ (0.2126, 0.7152, 0.0722)
    return 116 * np.cbrt(share) - 16 if share > 0.008856 else 903.3 * share


def as_seen_without(cone, color):
    """A colour as it is seen without the long (0) or the middle (1) cones (Viénot, Brettel and Mollon, 1999)."""
    to_cones = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    cones = to_cones @ linear(color)
    if cone == 0:
        cones[0] = 2.02344 * cones[1] - 2.52581 * cones[2]
    else:
        cones[1] = 0.494207 * cones[0] + 1.24827 * cones[2]
    return np.linalg.solve(to_cones, cones)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_viewer_and_python_have_one_palette(scheme):
    assert table("amount", scheme) == palette.points(palette.AMOUNT[scheme])
    assert table("sign", scheme) == palette.points(palette.SIGN[scheme])
    if scheme == "light":
        colors = theme("light")
        assert tuple(colors["heads"]) == palette.HEAD_HUES
        dashes = re.search(r"const DASHES = \[(.*)\];", (MODULES / "themes.js").read_text())[1]
        assert tuple(map(tuple, json.loads(f"[{dashes}]"))) == palette.HEAD_DASHES
        names = ["background", "text", "muted", "border", "accent", "maskedFill", "hatch", "missing"]
        assert [colors[name] for name in names] == [
            palette.PAPER, palette.INK, palette.MUTED, palette.BORDER, palette.ACCENT, palette.MASKED_PAPER,
            palette.HATCH, palette.MISSING_MARK,
        ]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_amounts_go_from_paper_to_ink_in_even_steps(scheme):
    colors, paper = table("amount", scheme), theme(scheme)["background"]
    levels = np.array([lightness(color) for color in colors])
    steps = np.diff(levels) * (1 if scheme == "dark" else -1)
    assert steps.min() > 0.5 * steps.mean()
    assert steps.max() < 1.5 * steps.mean()
    assert contrast(colors[-1], paper) >= 7
    assert 1 <= abs(lightness(colors[0]) - lightness(paper)) <= 4, "what is nearly zero is nearly blank"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_signs_are_alike_in_size_and_differ_in_hue_for_all_eyes(scheme):
    colors, paper = table("sign", scheme), theme(scheme)["background"]
    levels = [lightness(color) for color in colors]
    assert np.abs(np.subtract(levels, levels[::-1])).max() < 8
    middle = len(colors) // 2
    assert abs(levels[middle] - lightness(paper)) < 12
    red, blue = (np.subtract(*linear(colors[end])[[0, 2]]) for end in (0, -1))
    assert red > 0 > blue
    for cone in (0, 1):
        for away in (middle // 2, middle):
            negative, positive = (as_seen_without(cone, colors[middle + side * away]) for side in (-1, 1))
            assert np.abs(negative - positive).max() > 0.15, "the side is seen without a kind of cones"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_are_readable_on_everything(scheme):
    colors = theme(scheme)
    pairs = [(ink, ground) for ink in ("text", "muted") for ground in ("background", "surface", "highlight")]
    pairs += [("accentText", "accent"), ("text", "maskedFill"), ("text", "missingFill"), ("text", "missing")]
    found = {pair: contrast(*(colors[name] for name in pair)) for pair in pairs}
    # What is no text needs 3 to 1: focus, lines of heads, marks.
    found |= {("head", head): contrast(head, colors["background"]) * 1.5 for head in colors["heads"]}
    found |= {name: contrast(colors[name], colors["background"]) * 1.5 for name in ("focus", "accent")}
    for point in table("amount", scheme) + table("sign", scheme):
        found[point] = max(contrast(point, "#000000"), contrast(point, "#ffffff"))
    assert {name: value for name, value in found.items() if value < READABLE} == {}
