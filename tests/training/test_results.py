"""Results as people see them: one line each, tables that run no script of anybody, answers with a rank in files."""

import json
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import pytest

from regard.cli.predict import report_lines
from regard.cli.prediction_file import PredictionFile
from regard.errors import ArgumentError
from regard.tasks import registry
from regard.tasks.attended import attended_regions, attended_times, attended_words
from regard.training.results import AttendedParts, Evaluation, Predictions, TextAnswer

HOSTILE = "<script>alert(1)</script>&\"'</td><img src=x onerror=alert(2)>"


@dataclass(frozen=True, repr=False)
class Answer(TextAnswer):
    source: object
    text: str
    score: float = -0.5

    @property
    def certainty(self):
        return {"score": self.score}


@dataclass(frozen=True, repr=False)
class Measured(Evaluation):
    data: str
    accuracy: float
    by_label: list

    def lines(self):
        return [f"{self.data}: accuracy {self.accuracy}"]

    def to_dict(self):
        return dict(vars(self))


class Tags(HTMLParser):
    def __init__(self, content):
        super().__init__()
        self.tags, self.texts = set(), []
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        assert not attributes
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


def predicted(source=HOSTILE, texts=(HOSTILE, "b")):
    first, *others = (Answer(source, text, -1.0 - rank) for rank, text in enumerate(texts))
    return first.followed_by(others)


@pytest.mark.parametrize(
    "result",
    [predicted(), Predictions([predicted(), predicted()]), Measured(HOSTILE, 0.5, [{HOSTILE: HOSTILE}])],
    ids=["prediction", "predictions", "evaluation"],
)
def test_a_table_of_a_notebook_has_hostile_text_as_text(result):
    shown = Tags(result._repr_html_())
    assert shown.tags == {"table", "thead", "tbody", "tr", "th", "td"}
    assert HOSTILE in "".join(shown.texts)


def test_a_table_has_a_row_for_each_answer():
    shown = Predictions([predicted(), predicted()])._repr_html_()
    assert shown.count("<tr>") == 1 + 4
    assert "<th>rank</th>" in shown
    assert "<th>rank</th>" not in Predictions([predicted(texts=("a",))])._repr_html_()
    many = Predictions([predicted(texts=("a",))] * 250)
    assert many._repr_html_().count("<tr>") == 101
    assert "150 more" in many._repr_html_()


def test_long_predictions_print_shortened():
    for result in (Predictions([predicted("a" * 10_000)] * 1000), predicted(b"a" * 10_000)):
        assert len(repr(result)) < 3000
        assert len(repr(result).splitlines()) == 1
    some = Predictions(range(5))
    assert (some, some[1:3], some[0]) == ([0, 1, 2, 3, 4], [1, 2], 0)
    assert isinstance(some[1:3], Predictions)


class Trained:
    task = registry.find("translate")
    model = type("Model", (), {"attends": False})

    @staticmethod
    def attended(prediction):
        return prediction.attended()


def test_a_report_has_an_empty_answer_and_numbered_ones():
    alone, ranked = (list(report_lines(Trained, predicted("a\nb", (" ", "c")), ranked)) for ranked in (False, True))
    assert alone == [
        "input:        a",
        "              b",
        "translation:  (empty)",
        "score:        -1.0000",
        "attended to:  nothing: the answer is empty",
    ]
    assert ranked[2:4] == ["1:            (empty)  (score -1.0000)", "2:            c  (score -2.0000)"]


def test_attended_words_regions_and_times_are_summed():
    assert attended_words(["a", "b", "a"], [[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]]).parts == (("a", 0.625), ("b", 0.375))
    assert attended_words(["a"], None) == attended_words([], [[]]) == AttendedParts()
    regions = dict(attended_regions((2, 4), [0.5, 0, 0, 0.125, 0, 0.25, 0, 0.125], "pixel 1,2").parts)
    assert regions == {"top left": 0.5, "bottom": 0.25, "top right": 0.125, "bottom right": 0.125}
    assert dict(attended_regions((1, 1), [2.0]).parts) == {"middle": 1}
    assert attended_times(0.5, [0, 1.0, 3.0]).parts == (("1.00–1.50 s", 0.75), ("0.50–1.00 s", 0.25))
    assert attended_times(0.1, [1.0] * 80).parts[0] == ("0.00–1.00 s", pytest.approx(1 / 8))


def test_answers_with_the_same_text_are_the_best_of_them():
    ranked = predicted("x", ("a", "b", "a", "c", "b"))
    assert [(one.text, one.score) for one in ranked.n_best] == [("a", -1.0), ("b", -2.0), ("c", -4.0)]
    assert predicted("x", ("a", "a")).n_best == (predicted("x", ("a",)),)
    lower = predicted("x", ("A", "b", "a")).each(lambda one: replace(one, text=one.text.lower()))
    assert [(one.text, one.score) for one in lower.n_best] == [("a", -1.0), ("b", -2.0)]


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
@pytest.mark.parametrize("ranked", [False, True])
def test_a_file_goes_on_at_the_beginning_of_a_block(tmp_path, suffix, ranked):
    inputs = [predicted(name, ("a", "b")) for name in "vwxyz"]
    path = tmp_path / f"answers{suffix}"
    whole = PredictionFile(path, list("vwxyz"), {}, ranked=ranked, block=2)
    whole.append(inputs)
    lines = whole.part.read_bytes().splitlines(keepends=True)
    whole.complete()
    expected = path.read_bytes()
    for written in range(1, len(lines) + 1):
        whole.part.write_bytes(b"".join(lines[:written]))
        again = PredictionFile(path, list("vwxyz"), {}, ranked=ranked, block=2)
        complete = (written - 2) // 2 if ranked else written - 1
        assert again.done == max(0, complete) // 2 * 2
        again.append(inputs[again.done :])
        again.complete()
        assert path.read_bytes() == expected


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
@pytest.mark.parametrize("cut", range(4))
def test_a_file_with_ranks_goes_on_after_the_last_complete_input(tmp_path, suffix, cut):
    inputs = [predicted(name, texts) for name, texts in (("x", ("a", "b")), ("y", ("c",)), ("z", ("d", "e")))]
    path = tmp_path / f"answers{suffix}"
    whole = PredictionFile(path, list("xyz"), {"of": 1}, ranked=True)
    whole.append(inputs)
    content = whole.part.read_bytes()
    whole.complete()
    expected = path.read_bytes()
    lines = content.splitlines(keepends=True)
    whole.part.write_bytes(b"".join(lines[: len(lines) - cut]) + b"torn"[:cut])
    again = PredictionFile(path, list("xyz"), {"of": 1}, ranked=True)
    assert again.done == (2, 2, 1, 0)[cut]
    again.append(inputs[again.done :])
    again.complete()
    assert path.read_bytes() == expected
    if suffix == ".jsonl":
        assert [json.loads(line)["rank"] for line in expected.splitlines()] == [1, 2, 1, 1, 2]


@pytest.mark.parametrize("name", registry.names())
def test_more_answers_than_there_are_name_the_line_that_is_right(name):
    config = registry.find(name).prediction_config
    assert config().n_best == 1
    with pytest.raises(ArgumentError, match="n_best must be"):
        config(n_best=0)
    if hasattr(config, "beam"):
        with pytest.raises(ArgumentError, match=r"n_best is 7, and a search with beam 6 .* give beam 7 too"):
            config(n_best=7, beam=6)
        with pytest.raises(ArgumentError, match="give samples 7 too"):
            config(n_best=7, samples=6)
        assert config(n_best=7, beam=7).beam == 7
    if name == "segment":
        with pytest.raises(ArgumentError, match="one map of classes"):
            config(n_best=2)
    if name == "language":
        for other in ({"tokens": 0}, {"temperature": 0}):
            with pytest.raises(ArgumentError, match="n_best must be 1 with"):
                config(n_best=2, **other)
