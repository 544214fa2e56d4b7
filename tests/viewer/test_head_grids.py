"""One number for each head of each layer: in the viewer, in pictures, in tables of notebooks and as text."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import regard
from regard.errors import ArgumentError, KindError, ShapeError
from regard.palette import SIGN, color_at
from regard.pictures import head_grid
from regard.records import Document, HeadGrid

VALUES = np.random.default_rng(0).normal(size=(3, 5)) * 0.01
VALUES[1, 2], VALUES[2, 0] = np.nan, 0.0
LARGEST = float(np.nanmax(np.abs(VALUES)))
HOSTILE = "<script>alert(1)</script>"


def grid(**options):
    options = {"unit": "nats", "noise": np.abs(VALUES) / 4, "notes": ["a note"]} | options
    return HeadGrid("after − before", options.pop("values", VALUES), **options)


def written(value):
    """A number as cells have it: three decimals here, since the largest is 0.0x."""
    text = f"{abs(value):.3f}"[1:]
    return ("−" if value < 0 else "+") + text if text.strip(".0") else text


def test_cells_of_the_viewer_have_their_number_on_its_colour(show):
    shown = show(regard.View(grid(), theme="light"))
    tree = ET.fromstring(shown.call("svg"))
    texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    for value in VALUES[~np.isnan(VALUES) & (VALUES != 0)]:
        assert written(value) in texts
    for row, column in ((0, 0), (0, 1), (2, 4)):
        x, y = shown.middle({"row": row, "column": column})
        place = shown.call("locate", {"row": row, "column": column})
        # Beside the digits.
        pixel = shown.pixel(x, y - place["height"] / 2 + 3)
        expected = color_at(SIGN["light"], (VALUES[row, column] / LARGEST + 1) / 2)
        assert np.abs(np.subtract(pixel, expected)).max() <= 4
    said = shown.hover(row=0, column=1)
    assert "layer 0 · head 1" in said
    assert f"−{-VALUES[0, 1]:.3g} ± {-VALUES[0, 1] / 4:.2g} nats" in said
    assert "no number" in shown.hover(row=1, column=2)
    assert "a note" in shown.words


def test_the_cursor_walks_over_the_numbers_of_several_grids(show):
    shown = show(regard.View([grid(), HeadGrid("effects", [[1.0, -30.0]], axis="position", columns=["北京", HOSTILE])]))
    shown.page.locator("canvas").focus()
    first = shown.readout
    shown.press("ArrowRight", "[", "+")
    assert shown.readout != first
    shown.page.get_by_role("combobox", name="Numbers").select_option("1")
    shown.settle()
    assert shown.hover(row=0, column=1).endswith(": −30")
    assert HOSTILE in shown.readout
    assert "layer 0 · 北京" in shown.hover(row=0, column=0).replace("\u2068", "").replace("\u2069", "")
    assert shown.requests[1:] == []


def test_a_picture_of_signed_numbers_has_zero_in_its_middle():
    drawn = head_grid([grid()], "title").axes[0]
    assert drawn.images[0].get_clim() == (-LARGEST, LARGEST)
    assert drawn.images[0].get_cmap().name == "sign"
    texts = [text.get_text() for text in drawn.texts]
    assert texts[0] == written(VALUES[0, 0]).removeprefix("+")
    assert (texts[7], texts[10]) == ("", "0")
    positive = HeadGrid("a", [[0.1, 0.5]], signed=True)
    assert head_grid([positive], "").axes[0].images[0].get_clim() == (-0.5, 0.5)


def test_a_text_and_a_table_name_layers_heads_and_largest_numbers():
    lines = str(grid()).splitlines()
    assert lines[:2] == ["after − before [nats]", "a note"]
    assert lines[2].split() == ["layer", "head", "0", "1", "2", "3", "4"]
    assert len(lines) == 6
    assert "NaN" in lines[4]
    wide = HeadGrid("wide", [[*range(20)], [*range(-40, -20)]], signed=False)
    assert "layer 1, head 0: −40.00" in str(wide)
    assert [one.value for one in wide.largest(3)] == [-40, -39, -38]
    assert np.isnan(wide.largest(1)[0].noise)
    hostile = HeadGrid(HOSTILE, [[1.0]], layers=[HOSTILE], notes=HOSTILE)
    page = hostile._repr_html_() + Document("x", (), grids=(hostile,))._repr_html_()
    assert "<script" not in page
    assert page.count("regard.View(grid)") == 2


def test_layers_with_fewer_heads_end_in_unknown_numbers():
    ragged = HeadGrid("x", [[1, 2, 3], [4]])
    assert np.array_equal(ragged.values, [[1, 2, 3], [4, np.nan, np.nan]], equal_nan=True)
    assert [(one.layer, one.column) for one in ragged.largest(9)] == [("1", "0"), ("0", "2"), ("0", "1"), ("0", "0")]


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"values": [[]]}, ArgumentError, "values"),
        ({"values": 3.0, "noise": None}, ShapeError, "values"),
        ({"values": [["a"]]}, ArgumentError, "values"),
        ({"layers": ["a"]}, ShapeError, "layers must have 3"),
        ({"columns": "abcde"}, KindError, "columns"),
        ({"noise": [[1.0]]}, ShapeError, "noise"),
        ({"high": "a"}, KindError, "high"),
    ],
)
def test_a_grid_of_heads_checks_its_numbers(options, error, named):
    with pytest.raises(error, match=named):
        grid(**options)
