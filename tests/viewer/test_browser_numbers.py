"""What the viewer says of a cell is what float64 PyTorch computes there; and the mouse is where the labels say."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import viewer_documents as documents
from regard.pictures.numbers import cell_number, percent, short_number, short_weight
from regard.records import Document
from regard.viewer import View, view


def decimals(text):
    """How far a number that is written with so many decimals may be from what it stands for."""
    mantissa, _, exponent = text.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def written(text):
    """The weight of a readout (a text like ``…: 0.1234 (…``), and how exact it claims to be."""
    value, bound = re.search(r": ([\d.]+(?:e-?\d+)?)(?: ± ([\d.]+))? \(", text.replace("−", "-")).groups()
    return float(value), float(bound) if bound else decimals(value) * 1.001


@pytest.mark.parametrize("budget", [2_000_000, 0])
def test_every_cell_of_an_alignment_is_true_to_the_digits_shown(show, budget):
    """Exact numbers to half of their last digit; coded ones within the bound that they state, at most 0.005."""
    record, weights = documents.alignment(heads=1)
    shown = show(View(record, budget_bytes=budget))
    for row in range(3):
        for column in range(5):
            text = shown.hover(row=row, column=column)
            assert text == shown.tip
            value, bound = written(text)
            assert abs(value - weights[0, row, column].item()) <= bound
            assert bound <= (0.00006 if budget else 0.005)
            assert f"“⁨q{row}⁩” → “⁨k{column}⁩”" in text
            assert ("±" in text) == (budget == 0)
            total, slack = re.search(r"row sum ([\d.]+)(?: ± ([\d.]+))?", text).groups()
            assert abs(float(total) - 1) <= (float(slack) if slack else 0.00005)


def test_masked_cells_say_so_and_the_rest_is_the_mean_of_heads(show):
    record, weights = documents.causal()
    shown = show(View(record, head="mean"))
    shown.call("set", {"words": False})
    for row, column in ((0, 0), (0, 1), (3, 2), (4, 5), (5, 5)):
        text = shown.hover(row=row, column=column)
        if column > row:
            assert ": masked (" in text
        else:
            value, bound = written(text)
            assert abs(value - weights[:, row, column].mean().item()) <= bound


def test_words_add_their_columns_and_average_their_rows(show):
    from regard.pictures import merge

    record, weights = documents.causal()
    shown = show(View(record, head="mean"))
    assert shown.menu().get_by_label("Whole words").is_checked()
    merged = merge(weights.mean(0), record.queries.words, record.keys.words)
    for row in range(4):
        for column in range(row + 1):
            text = shown.hover(row=row, column=column)
            value, bound = written(text)
            assert abs(value - merged[row, column]) <= bound
    assert "unwanted" in shown.hover(row=1, column=1)


def test_hidden_special_tokens_have_their_mass_said(show):
    record, weights = documents.causal()
    shown = show(View(record, head=3))
    shown.call("set", {"words": False})
    shown.menu().get_by_label("Hide special tokens").check()
    shown.settle()
    text = shown.hover(row=2, column=1)
    of_word = "(of “⁨unwanted⁩”)"
    assert f"“⁨##ed⁩” {of_word} → “⁨##want⁩” {of_word}" in text
    hidden = weights[3, 3, [0, 5]].sum().item()
    assert abs(float(re.search(r"hidden special tokens ([\d.]+)", text)[1]) - hidden) <= 0.00005
    share = weights[3, 1:5, :][:, [0, 5]].sum(-1).mean().item()
    assert f"2 special tokens hidden with {percent(share)} of the weight" in shown.words


def test_scales_are_named(show):
    shown = show(View(documents.alignment()[0]))
    for value, name in (
        ("linear", "attention weight"),
        ("root", "square-root scale"),
        ("log", "log scale"),
        ("row", "part of the largest in its row"),
    ):
        shown.menu().get_by_label("Scale").select_option(value)
        shown.settle()
        assert name in shown.words


def test_the_third_row_and_fifth_column_are_where_they_are_drawn(show):
    """3 × 5: the mouse at cell (2, 4), from the picture's own geometry: the last cell of the last row."""
    record, weights = documents.alignment(heads=1)
    shown = show(View(record))
    first, last = shown.call("locate", {"row": 0, "column": 0}), shown.call("locate", {"row": 2, "column": 4})
    assert last["x"] == pytest.approx(first["x"] + 4 * first["width"])
    assert last["y"] == pytest.approx(first["y"] + 2 * first["height"])
    for row, column in ((2, 4), (1, 3)):
        shown.page.mouse.move(first["x"] + (column + 0.5) * first["width"], first["y"] + (row + 0.5) * first["height"])
        shown.settle()
        assert f"“⁨q{row}⁩” → “⁨k{column}⁩”" in shown.readout
        assert abs(written(shown.readout)[0] - weights[0, row, column].item()) <= 0.00005
    shown.page.mouse.move(2, 2)
    shown.settle()
    # The darkest cell on light paper is the largest weight.
    brightness = {}
    for row in range(3):
        for column in range(5):
            x, y = shown.middle({"row": row, "column": column})
            brightness[row, column] = sum(shown.pixel(x - 16, y - 14))
    assert min(brightness, key=brightness.get) == divmod(int(weights[0].argmax()), 5)


def test_patches_are_over_their_pixels(show):
    """14 × 21 patches: the mouse at row 2, column 4 names it, its pixels and the weight of the locked word."""
    record, weights = documents.patches()
    shown = show(View(record, head="mean"))
    shown.click(side="query", row=1)
    corner = shown.call("locate", {"side": "key", "column": 1})
    place = {"x": corner["x"] + 4.5 * corner["width"], "y": corner["y"] + 2.5 * corner["height"]}
    shown.page.mouse.move(place["x"], place["y"])
    shown.settle()
    assert "“⁨red⁩” → patch 46 (row 2, column 4), pixels x 32–40, y 16–24" in shown.readout
    value, bound = written(shown.readout)
    assert abs(value - weights[:, 1, 1 + 2 * 21 + 4].mean().item()) <= bound
    outside = weights[:, 1, 0].mean().item()
    assert f"{percent(outside)} on positions before the grid" in shown.words


def test_frames_are_at_their_seconds(show):
    record, weights = documents.sound()
    shown = show(View(record, head="mean"))
    text = shown.hover(row=2, column=4)
    assert "“⁨three⁩” → ⁨0.16–0.20 s⁩" in text
    value, bound = written(text)
    assert abs(value - weights[:, 2, 4].mean().item()) <= bound


def test_steps_show_the_calculation(show, numbers):
    """Products, scale, softmax and output are those of float64 PyTorch, in the stations and in the saved picture."""
    record, explanation = documents.steps()
    shown = show(View(Document("steps", (), (record,))))
    shown.click(row=2, column=1)
    svg = shown.call("svg")
    drawn = numbers(re.sub(r"<(?!/?text)[^>]*>", " ", svg))
    names = shown.page.locator(".strip button").evaluate_all("all => all.map((one) => one.dataset.goes)")
    assert len(names) == 7
    cards = []
    for name in names:
        card = shown.station(name)
        cards += [card.inner_text(), *card.locator(".cell").evaluate_all("all => all.map((one) => one.title)")]
    shown_numbers = numbers(" ".join(cards))
    query, key = explanation.query[0, 0, 2], explanation.key[0, 0, 1]
    expected = [*(query * key), query @ key, (query @ key) / 3**0.5, *explanation.weights[0, 0, 2, :3]]
    scores = explanation.scaled[0, 0, 2, :3]
    expected += [*torch.exp(scores), torch.exp(scores).sum(), *explanation.output[0, 0, 2]]
    for number in map(float, expected):
        for several in (drawn, shown_numbers):
            assert any(abs(number - one) <= max(0.00005001, 0.0005001 * abs(number)) for one in several), number
    assert all("÷ √3" in one for one in (svg, " ".join(cards)))
    assert "masked" in svg
    assert "(masked)" in shown.hover(row=1, column=3)


def test_browser_and_python_write_every_number_alike(pages):
    """Weights, cells, legends and percents in both languages: random numbers, halves of units and bounds."""
    rng = np.random.default_rng(0)
    halves = np.arange(0, 201) / 200
    random = [
        rng.random(2000),
        10 ** rng.uniform(-9, 0, 2000),
        1 - 10 ** rng.uniform(-9, 0, 1000),
        10 ** rng.uniform(0, 10, 500),
    ]
    values = np.concatenate(
        [np.arange(0, 65) / 64, halves, halves.astype(np.float32), np.nextafter(halves, 0), *random]
    )
    values = np.concatenate([values, -values])
    with pages.opened(300, 300, {}, offline=True) as page:
        program = (Path(view.__file__).parent / "viewer.js").read_text(encoding="utf-8").rpartition("export {")[0]
        told = page.evaluate(
            """(values) => { PROGRAM
              const parts = values.filter((value) => value >= 0 && value <= 1);
              const percents = ["en", "zh"].map((tag) => { speak(tag); return parts.map(percent); });
              const all = (write) => values.map((value) => write(value));
              const [weights, cells, legends] = [shortWeight, cellText, legendNumber].map(all);
              return { weights, cells, legends, percents };
            }""".replace("PROGRAM", program),
            values.tolist(),
        )
    parts = [part for part in values.tolist() if 0 <= part <= 1]
    for name, write in (("weights", short_weight), ("cells", cell_number), ("legends", short_number)):
        expected = [write(value) for value in values.tolist()]
        assert [one for one in zip(values, expected, told[name], strict=True) if one[1] != one[2]] == []
    assert told["percents"] == [[percent(part, language) for part in parts] for language in ("en", "zh")]
    for part, text in zip(parts, told["percents"][0], strict=True):
        number = int(text.strip("<>\xa0%"))
        assert abs(100 * part - number) <= 1 if text[0] in "<>" else abs(100 * part - number) <= 0.5 + 1e-4
        assert (number == 100) == (part >= 1 - 1e-6)
        assert (number == 0) == (part == 0)
        if part:  # the digits of all forms are the same
            assert short_weight(part).strip("<>") == f"{number / 100:.2f}" or part < 0.005
            assert cell_number(part).strip("<>") in ("", f"{number / 100:.2f}".removeprefix("0"), "1")
