"""The picture of a calculation is a flow: each matrix once, operations between them, one pair traced through all."""

import itertools
import re

import pytest
import torch
from matplotlib.patches import Rectangle
from matplotlib.text import Text

import regard
from regard import scores
from regard.cli.attention_options import make_score
from regard.errors import ArgumentError
from regard.palette import ACCENT, HEAD_HUES
from regard.pictures import save
from regard.pictures.numbers import shown_indices

WORDS = ["This", "is", "book"]


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def projected(length=3, dim=5, size=3, heads=1, **options):
    weights = {f"w_{name}": numbers(dim, size * heads, seed=k) for k, name in enumerate(("query", "key", "value"))}
    return regard.explain(numbers(length, dim, seed=9), heads=heads, **weights, **options)


def scored(name):
    options = {"scale": None, "cap": None, "weight": None, "seed": 0}
    query, key, value = numbers(3, 4), numbers(5, 4, seed=1), numbers(5, 2, seed=2)
    score = make_score(name, 4, 4, 5, **options)
    return regard.explain(query.float(), key.float(), value.float(), score=score)


CALCULATIONS = {
    "projected": lambda: projected().labelled(None, WORDS),
    "causal": lambda: projected(mask="causal"),
    "heads": lambda: projected(heads=2, w_output=numbers(6, 4)),
    "decoder": lambda: regard.explain([5, 1, 20], [[3, 12, 45], [59, 2, 5]], score="dot", w_decoder=[[0.1] * 6]),
    "cross": lambda: regard.explain(
        numbers(2, 4), numbers(3, 5), w_query=numbers(4, 3), w_key=numbers(5, 3), w_value=numbers(5, 2)
    ),
    "one input": lambda: regard.explain(numbers(3, 4)),
    "bias": lambda: regard.explain(
        numbers(3, 4), bias=numbers(3, 3), mask="causal", score=scores.SoftCap("scaled_dot", 5.0)
    ),
    "single": lambda: regard.explain([[1.0]]),
    "hidden": lambda: regard.explain(numbers(2, 3), mask=torch.zeros(2, 2, dtype=torch.bool)),
    "long": lambda: projected(32, 16, 12).labelled(None, [f"a long word {k}" for k in range(32)]),
    **{
        name: lambda name=name: scored(name)
        for name in ("cosine", "distance", "general", "additive", "mlp", "location")
    },
    **{
        name: lambda name=name: projected(normalizer=name) for name in ("sparsemax", "entmax15", "sigmoid", "hard")
    },
    "sink": lambda: projected(normalizer=regard.normalizers.softmax_with_sink(0.5)),
}  # fmt: skip


def matrices(figure):
    return {axes.get_label(): axes for axes in figure.axes[1:]}


def written(figure):
    return [text.get_text() for text in (*figure.axes[0].texts, *figure.texts) if text.get_text()]


@pytest.mark.parametrize("width", [None, 5.0])
@pytest.mark.parametrize("name", CALCULATIONS)
@pytest.mark.filterwarnings("ignore::regard.pictures.MissingGlyphWarning")
def test_flows_of_any_calculation_do_not_overlap(name, width):
    figure = CALCULATIONS[name]().figure(width=width, language="zh" if width is None else "en")
    figure.canvas.draw()
    cells = [axes.get_window_extent() for axes in figure.axes[1:]]
    texts = [text.get_window_extent() for text in (*figure.axes[0].texts, *figure.texts) if text.get_text()]
    labels = [
        label.get_window_extent()
        for axes in matrices(figure).values()
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels())
    ]
    for one, other in (
        *itertools.combinations(cells, 2),
        *itertools.combinations(texts, 2),
        *itertools.product(texts, [*cells, *labels]),
    ):
        assert min(one.x1, other.x1) - max(one.x0, other.x0) < 1 or min(one.y1, other.y1) - max(one.y0, other.y0) < 1
    sheet = figure.bbox
    for box in (*cells, *texts, *labels):
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= sheet.x1 + 1
        assert box.y1 <= sheet.y1 + 1


def test_a_flow_draws_every_matrix_once_with_the_operations_between():
    figure = projected().labelled(None, WORDS).figure()
    names = ["input", "W_query", "query", "W_key", "key", "W_value", "value", "scores", "scaled", "weights", "output"]
    assert sorted(matrices(figure)) == sorted(names)
    texts = written(figure)
    operations = ["×"] * 3 + ["="] * 3 + ["query\n· keyᵀ", "÷ √3", "softmax", "weights\n× value"]
    assert sorted(text for text in texts if text in operations) == sorted(operations)
    keys = ["asks: This", "looked at: is", "attention weight  0", "numbers of each matrix  −max"]
    assert [text for text in texts if text in keys] == keys
    assert [image.get_cmap().name for image in figure.axes[0].images] == ["amount", "sign"]
    assert len(matrices(CALCULATIONS["one input"]().figure())) == 5
    shared = matrices(CALCULATIONS["decoder"]().figure())
    assert "key = value" in shared
    assert "value" not in shared


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("causal", ["+ mask", "softmax"]),
        ("bias", ["÷ √4", "cap ±5", "+ bias", "+ mask"]),
        ("additive", ["query + key", "tanh"]),
        ("general", ["query ×", "query\n· keyᵀ"]),
        ("mlp", ["[query; key] ×", "tanh", "+ b ="]),
        ("location", ["query · Wᵀ"]),
        ("cosine", ["cos(query, key)"]),
        ("distance", ["distance(query, key)"]),
        ("heads", ["with all heads"]),
        ("decoder", ["with the state", "tanh"]),
        ("sparsemax", ["sparsemax"]),
        ("entmax15", ["entmax α = 1.5"]),
        ("sigmoid", ["sigmoid"]),
        ("hard", ["hard"]),
        ("sink", ["softmax with a sink"]),
    ],
)
def test_every_mechanism_names_its_operations(name, operations):
    assert set(operations) <= set(written(CALCULATIONS[name]().figure()))


def test_one_pair_is_traced_through_all_matrices_and_worked():
    steps = projected().labelled(None, WORDS)
    weights = steps.weights.masked_fill(torch.eye(3, dtype=torch.bool), 0)
    query, key = divmod(int(weights.argmax()), 3)
    figure = steps.figure()
    frames = {
        name: [
            (patch.get_edgecolor(), round(patch.get_y() + 0.5))
            for patch in axes.patches
            if isinstance(patch, Rectangle) and patch.get_width() > 1
        ]
        for name, axes in matrices(figure).items()
    }
    asks, looked_at = (Text(color=color).get_color() for color in (ACCENT, HEAD_HUES[2]))
    rows = {name: [row for _, row in found] for name, found in frames.items()}
    assert rows["input"] == [query, key]
    assert all(rows[name] == [query] for name in ("query", "scores", "scaled", "weights", "output"))
    assert all(rows[name] == [key] for name in ("key", "value"))
    assert matrices(figure)["weights"].get_yticklabels()[query].get_color() == asks
    assert matrices(figure)["weights"].get_xticklabels()[key].get_color() == looked_at
    share = f"{100 * weights[query, key].item():.0f} %"
    assert f"“{WORDS[query]}” gives {share} of its attention to “{WORDS[key]}”" in written(figure)
    sums = " ".join(next(text for text in written(figure) if "Σ" in text).split()).partition(" output of ")[0]
    score = f"{steps['scores'][query, key]:.4f}".replace("-", "−")
    left, right = (
        [text.get_text() for text in matrices(figure)[name].texts][3 * row : 3 * row + 3]
        for name, row in (("query", query), ("key", key))
    )
    assert re.findall(r"[−\d.]+(?=\)? ×)", sums) == left
    assert re.findall(r"(?<=× )\(?([−\d.]+)", sums) == right
    printed = sum(float(a.replace("−", "-")) * float(b.replace("−", "-")) for a, b in zip(left, right, strict=True))
    sign = "=" if f"{printed:.4f}".replace("-", "−") == score else "≈"
    assert f"{sign} {score}; ÷ √3 " in sums
    assert sums.endswith(share)


@pytest.mark.filterwarnings("ignore::regard.pictures.MissingGlyphWarning")
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", [name for name in CALCULATIONS if name not in ("sparsemax", "entmax15", "hard")])
def test_calculations_of_a_flow_come_out_of_its_printed_numbers(name, language):
    """Each sign after a step says whether the printed numbers give what is printed."""
    number = r"−?[\d.]+(?:e[−\d]+)?"
    sums = " ".join(
        next(text for text in written(CALCULATIONS[name]().figure(language=language)) if ";" in text).split()
    )
    for own, whole, sign, shown in re.findall(rf"({number}) ÷ ({number}) ?([=≈]?) ?(?:> )?(\d+) ?%", sums):
        printed = float(own) / float(whole)
        assert (sign == "=") == (f"{100 * printed:.0f}" == shown) or not sign
    roots = re.findall(rf"({number}); ÷ √(\d+) ([=≈]) ({number})", sums)
    for before, root, sign, after in roots:
        before, after = (float(text.replace("−", "-")) for text in (before, after))
        assert (sign == "=") == (f"{before / int(root) ** 0.5:.4f}" == f"{after:.4f}")
    assert roots or name not in ("projected", "causal", "heads")


def test_only_the_first_matrix_of_pairs_titles_its_axes():
    assert [
        written(projected(mask="causal").figure()).count(title)
        for title in ("each row asks ↓", "each column is looked at →")
    ] == [1, 1]


@pytest.mark.parametrize("name", ["projected", "causal", "cross", "one input", "long"])
def test_wires_of_a_flow_begin_at_the_traced_rows(name):
    """The query's wires and the key's, each in its colour, leave the middle of the row that is framed in it."""
    figure = CALCULATIONS[name]().figure()
    figure.canvas.draw()
    drawn, canvas = matrices(figure), figure.axes[0]
    for part, color in (("query", ACCENT), ("key", HEAD_HUES[2]), ("weights", ACCENT)):
        axes = next(axes for label, axes in drawn.items() if part in label.split(" = "))
        frame = next(
            patch
            for patch in axes.patches
            if patch.get_width() > 1
            and patch.get_edgecolor() == Rectangle((0, 0), 1, 1, edgecolor=color).get_edgecolor()
        )
        _, y = axes.transData.transform((0, frame.get_y() + 0.5))
        right = axes.get_window_extent().x1
        starts = [
            canvas.transData.transform((line.get_xdata()[0], line.get_ydata()[0]))
            for line in canvas.lines
            if line.get_color() == color
        ]
        assert any(abs(x - right) < 2 and abs(start - y) < 2 for x, start in starts), part


@pytest.mark.filterwarnings("ignore::regard.pictures.MissingGlyphWarning")
def test_every_word_of_a_flow_is_said_in_chinese():
    import regard.pictures.flow_words as terms

    pairs = [(terms.say(text, "en"), terms.say(text, "zh")) for text in terms.CHINESE]
    assert all(re.findall(r"{\w+}", one) == re.findall(r"{\w+}", other) or "{" in one for one, other in pairs)
    for name in ("projected", "bias", "additive", "heads", "decoder"):
        figure = CALCULATIONS[name]().figure(language="zh")
        own = {label.get_text() for axes in matrices(figure).values() for label in axes.get_yticklabels()}
        panels = CALCULATIONS[name]().figure(language="zh", head=None)
        texts = [text for text in written(figure) if text not in own] + [text.get_text() for text in panels.texts]
        assert not [text for text in texts if re.search(r"[a-z]{3,} [a-z]{2,}", text)]


def test_the_head_that_is_shown_has_its_columns_of_the_weights():
    steps = CALCULATIONS["heads"]()
    figure = steps.figure(head=1)
    drawn = matrices(figure)
    assert [label.get_text() for label in drawn["W_query"].get_xticklabels()] == ["3", "4", "5"]
    torch.testing.assert_close(steps["input"] @ steps["W_query"][:, 3:], steps.matrix("query", 0, 1))
    assert "of head 1" in written(figure)
    frame = drawn["concatenated"].patches[-1]
    assert (frame.get_x(), frame.get_width()) == (2.5, 3)


@pytest.mark.parametrize(
    ("size", "traced", "shown"),
    [
        (8, (7,), list(range(8))),
        (32, (None,), [*range(7), None]),
        (32, (2, 20), [*range(6), None, 20]),
        (32, (30, 20), [*range(5), None, 20, 30]),
        (32, (6, 30), [*range(5), None, 6, 30]),
    ],
)
def test_more_than_eight_rows_are_counted_and_the_traced_ones_stay(size, traced, shown):
    assert shown_indices(size, traced) == shown


def test_folded_matrices_say_how_many_are_more():
    drawn = matrices(CALCULATIONS["long"]().figure())
    assert all(max(axes.images[0].get_array().shape) <= 8 for axes in drawn.values())
    labels = [
        label.get_text() for axes in drawn.values() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())
    ]
    assert {"… 25 more", "… 25\nmore", "… 9\nmore"} <= set(labels)


def test_the_same_flow_is_the_same_picture(tmp_path):
    first, second = (
        save(projected(mask="causal").figure(), tmp_path / f"{name}.png", dpi=40).read_bytes() for name in "ab"
    )
    assert first == second
    assert save(projected().figure(), tmp_path / "a.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("width", [5.0, 6.5])
def test_a_flow_is_as_wide_as_its_page_allows(width):
    steps = CALCULATIONS["projected"]()
    wide, narrow = steps.figure(), steps.figure(width=width)
    assert wide.get_size_inches() == pytest.approx((9.7, 6.9), abs=0.5)
    assert narrow.get_size_inches()[0] == pytest.approx(width)
    assert matrices(wide)["input"].get_position().x1 < matrices(wide)["query"].get_position().x0
    assert matrices(narrow)["input"].get_position().y0 > matrices(narrow)["W_query"].get_position().y1
    with pytest.raises(ArgumentError, match="width must be a positive number of inches; it is 0"):
        steps.figure(width=0)
