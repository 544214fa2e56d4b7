"""Surveys are kept, read again and compared: every bit, every doubt, and nothing that differs in silence."""

import copy
import json
import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import regard
from regard.errors import ArgumentError, DataError, KindError, UnknownNameError
from regard.watching import HeadStatistics, Survey
from survey_corpus import SPECIAL, Encoder, corpus


def survey(model, texts, **options):
    return regard.survey(model, texts, **{"special": SPECIAL, "offsets": 2, **options})


def changed(size=0.1):
    """The encoder of `survey_corpus` after a step of training."""
    model = copy.deepcopy(Encoder())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


class Wrapped(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.base_model = model

    def forward(self, ids):
        return self.base_model(ids)


@pytest.fixture(scope="module")
def texts():
    return [*corpus(), *corpus(seed=5), *corpus(seed=6)]


@pytest.fixture(scope="module")
def before(texts):
    return survey(Encoder(), texts)


@pytest.fixture(scope="module")
def after(texts):
    return survey(changed(), texts)


def test_noise_is_that_of_leaving_groups_of_texts_out(texts, before, after):
    """Each group is left out in a survey of its own, whose texts keep their numbers."""
    differences, means = [], []
    for group in range(16):
        rest = [[] if number % 16 == group else text for number, text in enumerate(texts)]
        if rest != texts:
            one, other = survey(Encoder(), rest), survey(changed(), rest)
            pairs = zip(one.heads, other.heads, strict=True)
            means.append([list(head.values.values()) for head in one.heads])
            differences.append(
                [[b - a for a, b in zip(x.values.values(), y.values.values(), strict=True)] for x, y in pairs]
            )
    for found, parts in (
        ([head.noise for head in before.heads], np.array(means)),
        ([head.noise for head in (after - before).heads], np.array(differences)),
    ):
        expected = np.sqrt((len(parts) - 1) * parts.var(0))
        given = [list(noise.values()) for noise in found]
        np.testing.assert_allclose(given, expected, rtol=1e-6, atol=1e-12)


def test_noise_covers_the_difference_from_a_large_corpus():
    """Differences of small corpora lie within two standard errors of the large one's about as often as they should."""

    def draw(count, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(4, 16, (count,), generator=generator).tolist()
        return [torch.randint(3, 3 + 2 + length % 4, (length,), generator=generator).tolist() for length in lengths]

    models = Encoder(), changed(0.05)

    def difference(texts):
        one, other = (survey(model, texts, batch=500, offsets=0) for model in models)
        return other - one

    large = difference(draw(2000, 99))
    multiples = []
    for seed in range(12):
        for small, true in zip(difference(draw(80, seed)).heads, large.heads, strict=True):
            for name, noise in small.noise.items():
                if noise > 0:
                    multiples.append((small.values[name] - true.values[name]) / noise)
    assert len(multiples) > 300
    assert 0.85 < np.mean(np.abs(multiples) < 2) < 0.99


def test_a_kept_survey_has_every_bit(before, after, tmp_path):
    found = Survey.load(before.save(tmp_path / "before.json"))
    assert found == before
    assert found.to_json() == before.to_json()
    assert (after - found).heads == (after - before).heads
    single = survey(Encoder(), [[3]])
    again = Survey.load(single.save(tmp_path / "before.json"))  # over the former file
    assert again == single
    assert again.to_json() == single.to_json()
    assert math.isnan(again.heads[0].values["same_token"])
    assert math.isnan(again.heads[0].noise["entropy"])
    single.heads[0].values["loss"] = 0.25  # measured by `ablate`
    assert Survey.load(single.save(tmp_path / "c.json")).heads[0].values["loss"] == 0.25
    by_hand = Survey((HeadStatistics("a", 0, "self", 0, {"first": 0.1 + 0.2}),), 1, 2, 0, {"b": "cross"}, 0)
    assert Survey.load(by_hand.save(tmp_path / "c.json")) == by_hand


def test_a_file_of_an_earlier_version_is_read(before, tmp_path):
    stored = json.loads(before.to_json())
    for name in ("version", "corpus", "sums"):
        del stored[name]
    for head in stored["heads"]:
        del head["noise"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(stored, indent=1))
    found = Survey.load(path)
    assert [head.values for head in found.heads] == [head.values for head in before.heads]
    change = before - found
    assert "as a file has no digest" in change.notes[0]
    assert all(math.isnan(value) for value in change.heads[0].noise.values())
    assert all(row.value == 0 for row in change.largest(99))


def edited(path, edit):
    stored = json.loads(path.read_text())
    edit(stored)
    path.write_text(json.dumps(stored))


def set_in(*keys, value):
    def edit(stored):
        for key in keys[:-1]:
            stored = stored[key]
        stored[keys[-1]] = value

    return edit


MODULE = "encoder.layers.0.self_attn"

HOSTILE = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"version": 1})),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "deep": lambda path: path.write_text("[" * 100_000),
    "a list": lambda path: path.write_text("[1, 2]"),
    "other JSON": lambda path: path.write_text('{"version": 1, "heads": []}'),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "missing": lambda path: path.unlink(),
    "later": lambda path: edited(path, set_in("version", value=2)),
    "NaN": lambda path: edited(path, set_in("heads", 0, "values", "peak", value=math.nan)),
    "text": lambda path: edited(path, set_in("heads", 0, "values", "peak", value="0.5")),
    "an attribute": lambda path: edited(path, set_in("heads", 0, "x", value=0.5)),
    "a large head": lambda path: edited(path, set_in("heads", 0, "head", value=10**12)),
    "a head of text": lambda path: edited(path, set_in("heads", 0, "head", value="0")),
    "offsets": lambda path: edited(path, set_in("offsets", value=10**9)),
    "a name": lambda path: edited(path, set_in("heads", 0, "name", value=["a"])),
    "counts": lambda path: edited(path, set_in("texts", value=1.5)),
    "negative counts": lambda path: edited(path, set_in("texts", value=-1)),
    "infinite counts": lambda path: edited(path, set_in("texts", value=math.inf)),
    "another statistic": lambda path: edited(path, set_in("heads", 0, "values", "peak", value=0.5)),
    "a head twice": lambda path: edited(path, lambda stored: stored["heads"].append(stored["heads"][0])),
    "another layer": lambda path: edited(path, set_in("heads", 0, "layer", value=7)),
    "short sums": lambda path: edited(path, set_in("sums", MODULE, "total", value="AAAAAAAA")),
    "no base64": lambda path: edited(path, set_in("sums", MODULE, "count", value="!!")),
    "heads of sums": lambda path: edited(path, set_in("sums", MODULE, "heads", value=-1)),
    "sums of others": lambda path: edited(path, lambda stored: stored["sums"].pop(MODULE)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_survey_is_refused(before, name, tmp_path):
    path = before.save(tmp_path / "survey.json")
    HOSTILE[name](path)
    reason = "(is no survey|was written by another version)" if path.is_file() else ": (No such file|Is a directory)"
    with pytest.raises(DataError, match=rf"survey\.json ?{reason}"):
        Survey.load(path)


def test_the_largest_differences_are_those_of_the_values(before, after):
    change = after - before
    assert change.title == "after − before, the same 51 texts, 373 counted tokens"
    assert change.notes == ()
    values = {
        (head.layer, head.head, name): head.values[name] - other.values[name]
        for head, other in zip(after.heads, before.heads, strict=True)
        for name in head.values
    }
    rows = change.largest(5, "entropy")
    assert [row.value for row in rows] == sorted(
        (value for key, value in values.items() if key[2] == "entropy"), key=abs, reverse=True
    )
    assert all(row.after - row.before == row.value == values[row[:3]] for row in change.largest(99))
    assert {row.statistic for row in change.largest(999)} == set(before.heads[0].values) - {"entropy", "distance"}
    sizes = [abs(row.value) for row in change.largest(999)]
    assert sizes == sorted(sizes)[::-1]
    assert [head.values for head in (before - after).heads] == [
        {name: -value for name, value in head.values.items()} for head in change.heads
    ]
    with pytest.raises(UnknownNameError, match="entropi"):
        change.largest(3, "entropi")
    with pytest.raises(ArgumentError, match="count"):
        change.largest(0)


def test_a_survey_without_offsets_is_printed_and_compared(before, texts):
    found = survey(Encoder(), texts, offsets=0)
    for text in (str(found), str(found - before)):
        assert "offset 0" in text
        assert "offset -1" not in text


def test_the_same_model_differs_in_nothing(before, texts):
    change = survey(Encoder(), texts, batch=3) - before
    assert change.notes == ()
    assert all(abs(row.value) < 1e-12 for row in change.largest(999))


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        ({"special": (0, 1)}, "other texts or tokens"),
        ({"max_length": 5}, "other texts or tokens"),
        ({"offsets": 1}, "offsets up to 1 after and 2 before"),
        ({"layers": 1}, "heads that only the survey before has: 'encoder.layers.0.self_attn' 0, 1"),
    ],
)
def test_differences_of_options_and_texts_are_said(before, texts, options, noted):
    change = survey(changed(), texts, **options) - before
    assert any(noted in note for note in change.notes)
    for shown in (str(change), change._repr_html_().replace("&#x27;", "'"), str(change.grid("peak"))):
        assert noted.split(":")[0] in shown
    assert {name for head in change.heads for name in head.values} <= set(before.heads[0].values)


def test_other_texts_have_the_noise_of_two_surveys(before):
    other = survey(changed(), corpus(seed=9)[::-1])
    head = (other - before).heads[3]
    expected = math.hypot(other.heads[3].noise["peak"], before.heads[3].noise["peak"])
    assert head.noise["peak"] == pytest.approx(expected)
    assert "17 texts" in (other - before).notes[0]


def test_names_of_wrapped_models_and_of_others(before, texts):
    change = survey(Wrapped(changed()), texts) - before
    assert len(change.heads) == 4
    assert "'base_model.' begins all names" in change.notes[0]
    assert change.heads[0].name == change.after[0].name == f"base_model.{MODULE}"
    assert change.before[0].name == MODULE
    backward = before - survey(Wrapped(changed()), texts)
    assert backward.notes == change.notes
    by_hand = Survey((HeadStatistics("a", 0, "self", 0, {}),), 20, 2, 0, {}, 0)
    with pytest.raises(ArgumentError, match=r"heads in common.*\['a'\].*self_attn"):
        by_hand.difference(before)
    with pytest.raises(KindError, match=r"before must be the result of regard\.survey"):
        before.difference(3)


def test_a_difference_is_a_table_a_picture_and_a_view(before, after):
    change = after - before
    lines = str(change).splitlines()
    assert lines[0].startswith(change.title)
    assert sum("self" in line for line in lines) == 4
    for head in change.heads:
        value, noise = head.values["first"], head.noise["first"]
        text = f"{value:+.3f}".replace("-", "−")
        assert any((f"({text})" if abs(value) <= 2 * noise else f" {text} ") in line for line in lines)
    grid = change.grid("first")
    assert grid.signed
    assert grid.values.tolist() == [
        [head.values["first"] for head in change.heads if head.layer == layer] for layer in range(2)
    ]
    assert "of 4 heads changed by more than 2 standard errors" in grid.notes[-1]
    view = regard.View(change)
    titles = [entry["title"] for entry in view.payload()["grids"]]
    assert titles[0] == change.largest(1)[0].statistic.replace("_", " ")
    assert len(titles) == 9 + 5
    assert regard.View(before).payload()["grids"][0]["title"] == "entropy"
    pytest.importorskip("matplotlib")
    for drawn in (change.figure(["first", "entropy"]), change.figure()):
        maps = [axes for axes in drawn.axes if axes.get_title()]
        low, high = maps[0].images[0].get_clim()
        assert low == -high
    with pytest.raises(UnknownNameError, match="offset"):
        change.figure(["offset -3"])
