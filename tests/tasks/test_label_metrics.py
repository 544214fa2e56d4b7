"""Metrics of labels, by their definitions."""

from types import SimpleNamespace

import pytest

from regard.tasks.attended import attended_line
from regard.tasks.outputs.label_metrics import confusion_lines, label_metrics, table_lines


def test_label_metrics_are_those_computed_by_hand():
    found = label_metrics([0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 0, 0], ["a", "b", "c"])
    assert found.confusion == [[2, 1, 0], [1, 1, 0], [1, 0, 0]]
    assert found.accuracy == pytest.approx(3 / 6)
    a, b, c = found.by_label
    assert (a.label, a.texts, b.texts, c.texts) == ("a", 3, 2, 1)
    assert (a.precision, a.recall, a.f1) == pytest.approx((2 / 4, 2 / 3, 4 / 7))
    assert (b.precision, b.recall, b.f1) == pytest.approx((1 / 2, 1 / 2, 1 / 2))
    assert (c.precision, c.recall, c.f1) == (0, 0, 0)
    assert found.macro_precision == pytest.approx((2 / 4 + 1 / 2) / 3)
    assert found.macro_recall == pytest.approx((2 / 3 + 1 / 2) / 3)
    assert found.macro_f1 == pytest.approx((4 / 7 + 1 / 2) / 3)


def test_labels_that_do_not_occur_are_no_part_of_the_means():
    with_more = label_metrics([0, 1, 1], [0, 1, 0], ["a", "b", "c", "d"])
    without = label_metrics([0, 1, 1], [0, 1, 0], ["a", "b"])
    assert with_more.macro_f1 == without.macro_f1
    assert with_more.by_label[2].f1 == 0


def test_all_right_and_nothing():
    assert label_metrics([0, 1], [0, 1], ["a", "b"]).macro_f1 == 1
    assert label_metrics([], [], ["a", "b"]).accuracy == 0


def test_the_tables_are_aligned_in_the_cells_of_a_terminal():
    """A wide character takes two cells: every number of a column ends in the same one."""
    from rich.cells import cell_len

    labels = ["返金", "delivery", "配送の問題"]
    metrics = label_metrics([0, 0, 1], [0, 1, 1], labels)
    lines = table_lines(metrics.by_label, "texts")
    assert lines[3].endswith("     0  (none of these texts has this label)")
    assert len({cell_len(line.partition("  (none")[0]) for line in lines}) == 1, lines
    head, *rows = confusion_lines(metrics.confusion, labels)
    assert {cell_len(line) for line in rows} == {cell_len(head.removesuffix("  (found)"))}


def test_an_empty_text_is_said_to_be_empty():
    trained = SimpleNamespace(task=SimpleNamespace(input_kind="text"), attended=lambda _: ((), ""))
    prediction = SimpleNamespace(input_text=" ", is_empty=False)
    assert attended_line(trained, prediction) == "nothing: the text is empty"  # pyright: ignore
    prediction = SimpleNamespace(input_text="a", is_empty=False)
    assert attended_line(trained, prediction) == "nothing: the model has no attention weights"  # pyright: ignore
