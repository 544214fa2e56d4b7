"""Notebooks' tables: small, escaped, without scripts, shaded by the numbers of their cells."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from rich.cells import cell_len

import regard
from regard.attention import Attended
from regard.records import AttentionRecord, DenseTiles, Document, HeadGrid, TokenAxis
from regard.records.shaded_table import NEGATIVE_COLOR, OPACITY, POSITIVE_COLOR, shade, shaded_table

HOSTILE = ("<script>alert(1)</script>", "' onmouseover='x", "\u202eabc", "a\nb\x00", "")
READ = regard.Readings(weights=True, received=True)


def problem(length=5, heads=2):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, heads, length, 4, generator=generator) for _ in range(3)]


def record(length=5, **options):
    axis = TokenAxis(HOSTILE if length == 5 else tuple(map(str, range(length))))
    weights = np.full((2, length, length), 1 / length, np.float32)
    return AttentionRecord("<b>name", 0, "causal", axis, axis, weights, **options)


def watched(length=5, read=READ):
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    with torch.no_grad(), regard.watch(model, read=read) as seen:
        model(torch.randn(1, length, 8))
    return seen


def hidden_source():
    axis = TokenAxis(HOSTILE)
    return AttentionRecord("x", 0, "self", axis, axis, None, None, DenseTiles(np.ones((1, 5, 5), np.float32)))


RESULTS = {
    "observed": lambda length: regard.observe(*problem(length), read=READ, mask=regard.masks.causal()),
    "received": lambda length: regard.observe(*problem(length), read=regard.Readings(received=True)),
    "pooled": lambda length: regard.observe(*problem(length), read=regard.Readings(pooled=(3, 2))),
    "attended": lambda length: regard.attend_with_weights(*problem(length)),
    "watch": watched,
    "watch, no weights": lambda length: watched(length, regard.Readings(entropy=True)),
    "call": lambda length: watched(length).calls[0],
    "record": record,
    "masked": lambda length: record(length, visible=np.tril(np.ones((length, length), np.bool_))),
    "tiles": lambda length: hidden_source(),
    "document": lambda length: Document("<i>title", (record(length),) * 9, texts=(("<u>", HOSTILE[0]),)),
    "plan": lambda length: regard.plan(*problem(length)),
    "explanation": lambda length: regard.explain(*problem(5)).labelled(HOSTILE, HOSTILE),
}


@pytest.mark.parametrize("length", [1, 5, 100])
@pytest.mark.parametrize("name", RESULTS)
def test_tables_are_small_and_escaped(name, length):
    page = RESULTS[name](length)._repr_html_()
    tree = ET.fromstring(f"<div>{page}</div>")  # nothing that was not escaped ends a tag
    assert {element.tag for element in tree.iter()} <= {
        "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "code", "b", "p"
    }  # fmt: skip
    assert {attribute for element in tree.iter() for attribute in element.attrib} <= {"style"}
    assert not re.search(r"[\x00-\x08\u202a-\u202e]|(?<!-)color:", page)
    assert len(page) < 400_000


@pytest.mark.parametrize("name", ["observed", "attended", "watch", "call", "record", "document"])
@pytest.mark.parametrize("length", [5, 100])
def test_weights_are_shaded_and_more_is_named(name, length):
    page = RESULTS[name](length)._repr_html_()
    assert f"rgba({POSITIVE_COLOR}" in page
    assert re.search(r"<code>(regard\.)?View\(\w+(, tokens)?\)</code> shows", page)
    assert ("100 × 100" in page) == (length == 100)


def test_every_cell_has_room_and_its_side_without_a_host_s_style():
    tree = ET.fromstring(f"<div>{record()._repr_html_()}{RESULTS['observed'](5)._repr_html_()}</div>")
    styles = [cell.get("style", "") for cell in tree.iter() if cell.tag in ("th", "td") and "".join(cell.itertext())]
    assert len(styles) > 60
    assert all("padding:" in style and "text-align:" in style for style in styles)


def test_the_chosen_backend_is_shaded():
    plan = regard.plan(*problem())
    (shaded,) = re.findall(r"<th style='text-align:left;background[^>]*>(\w+)<", plan._repr_html_())
    assert shaded == plan.backend


def test_a_shade_is_the_share_of_the_largest_magnitude():
    assert shade(0.5, 2.0) == f"background:rgba({POSITIVE_COLOR},{OPACITY / 4:.3f})"
    assert shade(-2.0, 2.0) == f"background:rgba({NEGATIVE_COLOR},{OPACITY:.3f})"
    assert shade(0.0, 2.0) == shade(1.0, 0.0) == ""
    assert [shade(hole, 1.0).count("repeating") for hole in (-np.inf, np.nan, np.inf)] == [1, 2, 2]


def contrast(first, second):
    """The contrast of two colours by WCAG 2."""

    def luminance(color):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.asarray(color) / 255]
        return np.dot(linear, (0.2126, 0.7152, 0.0722)) + 0.05

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return high / low


@pytest.mark.parametrize(("paper", "ink"), [((255, 255, 255), (0, 0, 0)), ((17, 17, 17), (255, 255, 255))])
@pytest.mark.parametrize("value", [-1.0, 0.25, 1.0])
def test_letters_are_readable_in_light_and_dark_notebooks(value, paper, ink):
    *color, opacity = map(float, re.search(r"rgba\(([^)]*)\)", shade(value, 1.0)).group(1).split(","))
    mixed = opacity * np.array(color) + (1 - opacity) * np.array(paper)
    assert contrast(mixed, ink) >= 4.5


@pytest.mark.parametrize("shape", [(8, 8), (9, 8), (8, 9), (32, 31)])
def test_a_table_shows_eight_rows_and_columns_and_counts_the_others(shape):
    matrix = np.arange(float(np.prod(shape))).reshape(shape)
    tree = ET.fromstring(f"<div>{shaded_table(matrix, [f'row {k}' for k in range(shape[0])])}</div>")
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    assert {len(row) for row in rows} == {9}
    assert len(rows) == 9
    rest = [f"… {length - 7} more" if length > 8 else last for length, last in zip(shape, ("row 7", "7"), strict=True)]
    assert [rows[-1][0], rows[0][-1]] == rest
    assert rows[7][7] == f"{matrix[6, 6]:.4g}" if matrix[6, 6] >= 100 else f"{matrix[6, 6]:.2f}"
    assert (rows[-1][1] == "…") == (shape[0] > 8)
    assert all("text-align:right;padding" in cell.get("style", "") for cell in tree.iter("td"))


def test_the_text_of_a_grid_aligns_wide_characters():
    lines = str(HeadGrid("effects", [[0.5, -2.0], [1.0, 3.0]], ["层", "b"], ["注意力", "x"])).splitlines()[1:]
    assert len({cell_len(line) for line in lines}) == 1


def test_the_table_of_a_context_has_short_titles_and_aligned_sizes():
    tree = ET.fromstring(f"<div>{watched(5, regard.Readings(entropy=True))._repr_html_()}</div>")
    head, first = (list(row) for row in list(tree.iter("tr"))[:2])
    titles = ["module", "layer", "kind", "batch rows", "heads", "queries", "keys"]
    assert ["".join(cell.itertext()) for cell in head] == titles
    sizes = ["".join(cell.itertext()) for cell in first]
    assert sizes[1].isdecimal()
    assert sizes[-2:] == ["5", "5"]
    for cells in (head, first):
        sides = ["right" if "text-align:right" in cell.get("style") else "left" for cell in cells]
        assert sides == ["left", "right", "left", "right", "right", "right", "right"]


def test_a_large_matrix_is_a_map_of_means():
    matrix = np.arange(64 * 96.0).reshape(64, 96)
    page = shaded_table(matrix, whole=True)
    assert page.count("<tr") == page.count("<td") // 32 == 32
    largest = matrix[-2:, -3:].mean()
    shares = [float(share) for share in re.findall(rf"rgba\({POSITIVE_COLOR},([\d.]+)\)", page)]
    assert len(shares) == 1024
    assert abs(shares[0] - OPACITY * matrix[:2, :3].mean() / largest) < 1e-3
    assert f"the darkest one {largest:.3g}" in page


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 40), (40, 1)])
def test_shaded_tables_of_any_shape_are_wellformed(shape):
    ET.fromstring(f"<div>{shaded_table(np.ones(shape))}</div>")


def test_tensors_without_numbers_are_a_table_of_shapes():
    query = torch.zeros(1, 2, 5, 4, device="meta")
    assert "[1, 2, 5, 5]" in Attended(query, query.new_zeros(1, 2, 5, 5))._repr_html_()


@pytest.mark.parametrize(("leading", "rows"), [((3,), "batch"), ((3, 2), "heads")])
@pytest.mark.parametrize(("reading", "columns"), [("received", "keys"), ("entropy", "queries")])
def test_the_caption_names_the_axes_that_are_shown(leading, rows, reading, columns):
    tensors = [torch.zeros(*leading, 5, 4) for _ in range(3)]
    page = regard.observe(*tensors, read=regard.Readings(**{reading: True}))._repr_html_()
    assert f"{reading}, {rows} × {columns}" in page
