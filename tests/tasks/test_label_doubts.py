"""Labels that may be one, and labels of few examples: said before the training with counts, never merged unasked."""

import logging

import numpy as np
import pytest

import regard
from regard.data.label_doubts import differences, folded_label, merged_labels, spellings
from regard.errors import DataError
from regard.training.metrics import Metric, comparison_with_rule

WRITTEN = ["Billing", "billing", "BILLING ", "Bil ling", "Ｂilling", "Bil\u00adling", "Other", "other\u00a0", "rare"]
"""Two labels in eight spellings, and a third one."""
COUNTS = [9, 5, 5, 5, 5, 5, 20, 6, 3]
LABELS = [name for name, count in zip(WRITTEN, COUNTS, strict=True) for _ in range(count)]
QUICK = {"epochs": 1, "hidden": 8, "quiet": True}


def data_of(task, folder, labels=LABELS):
    if task == "classify":
        return [f"text number {number}" for number in range(len(labels))], labels
    if task == "sounds":
        return [np.full((20, 5), number % 7, np.float32) for number in range(len(labels))], labels
    return [np.full((9, 9, 3), number, np.uint8) for number in range(len(labels))], labels


def said(caplog, call):
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="regard"):
        result = call()
    return result, caplog.text


@pytest.mark.parametrize("task", ["classify", "images", "sounds"])
def test_labels_that_may_be_one_are_named_and_one_by_an_option(task, tmp_path, caplog):
    data = data_of(task, tmp_path)
    options = QUICK if task != "images" else {**QUICK, "image_size": 16, "architecture": "vit", "layers": 1}
    run, text = said(caplog, lambda: regard.train(task, data, validation=data, **options))
    # White space at the ends does not count, as in every task; "BILLING " is "BILLING".
    assert len(run.labels) == 9
    assert (
        "9 labels are 3 but for case, spaces and Unicode forms: 'Other' (20) and 'other' (6), 'Billing' (9) and" in text
    )
    assert "merge_labels makes one of them" in text
    assert "1 of 9 labels has fewer than 5" in text
    assert "'rare' (3)" in text
    merged, text = said(caplog, lambda: regard.train(task, data, validation=data, merge_labels=True, **options))
    assert merged.labels.names == ("Billing", "Other", "rare")
    assert "but for case" not in text
    assert "1 of 3 labels has fewer than 5" in text
    found = merged.evaluate(data)
    assert {one.label: one.texts for one in found.by_label} == {"Billing": 34, "Other": 26, "rare": 3}
    again = regard.load(merged.folder)
    assert again.evaluate(data).accuracy == found.accuracy
    _, text = said(caplog, lambda: regard.train(task, data_of(task, tmp_path, ["a", "b"] * 9), **options))
    assert "label" not in text.replace("label_column", "")


def test_a_folder_of_classes_and_other_data_with_another_spelling(tmp_path, caplog):
    for name, count in (("Good", 12), ("good", 6), ("bad", 12), ("odd", 2)):
        (tmp_path / "texts" / name).mkdir(parents=True)
        for number in range(count):
            (tmp_path / "texts" / name / f"{number}.txt").write_text(f"text {number}")
    run, text = said(caplog, lambda: regard.train("classify", tmp_path / "texts", **QUICK))
    assert "4 labels are 3 but for case: 'Good' (12) and 'good' (6)" in text
    assert "'odd' (2)" in text
    with pytest.raises(
        DataError, match="'BAD' is 'bad' but for case, spaces or Unicode form: write it so, or train with"
    ):
        run.evaluate((["a"], ["BAD"]))
    merged = regard.train("classify", tmp_path / "texts", merge_labels=True, **QUICK)
    assert merged.evaluate((["a"], ["BAD"])).texts == 1


def test_classes_of_pixels(tmp_path, caplog):
    images = [np.full((12, 12, 3), number, np.uint8) for number in range(9)]
    maps = [np.full((12, 12), number % 2, np.uint8) for number in range(9)]
    maps[0][0, 0] = 2
    options = {"epochs": 1, "quiet": True, "channels": 4, "levels": 2, "blocks": 1, "decoder_channels": 8}
    _, text = said(caplog, lambda: regard.train("segment", (images, maps), classes="road,Road,sky", **options))
    assert "3 labels are 2 but for case: 'road' (5) and 'Road' (4)" in text
    assert "give them one number in the class maps" in text
    assert "2 of 3 labels have fewer than 5 images, too few to learn and to measure: 'sky' (1), 'Road' (4)" in text


def test_spellings_of_one_label_are_folded():
    assert len({folded_label(name) for name in WRITTEN[:6]}) == 1
    assert len({folded_label(name) for name in ("a", "b", "ab", "c++", "c", "1", "1.0", "-1", "é", "e")}) == 10
    assert spellings({"b": 1, "B": 3, "a": 2}) == [["B", "b"], ["a"]]


def test_labels_differ_by_what_is_said_and_a_merged_label_has_one_spelling():
    assert differences([["Yes", "yes"]]) == "case"
    assert differences([["on line", "online"]]) == "spaces"
    assert differences([["Yes", "yes"], ["on line", "online"]]) == "case and spaces"
    assert differences([["ﬁsh", "fish"], ["bil\u00adling", "billing"]]) == "Unicode forms"
    counts = {"Yes": 5, "yes": 2, "no": 4}
    assert merged_labels(counts, lambda name: {"yes": "Yes"}.get(name, name)) == "'Yes' for 'yes' (2)"
    assert not merged_labels(counts, lambda name: name)


def test_a_model_beside_a_rule_is_equal_better_or_not_and_a_cut_training_is_named():
    accuracy = Metric("accuracy", "accuracy", digits=4, perfect=1.0)
    equal = "the model and that simple rule are equal"
    assert comparison_with_rule(accuracy, 1.0, 1.0) == f"{equal}: both are as good as can be"
    assert comparison_with_rule(accuracy, 0.5, 0.5) == equal
    assert comparison_with_rule(accuracy, 0.6, 0.5) == ""
    said = comparison_with_rule(accuracy, 0.4, 0.5, "3 epochs are done")
    assert "it needs more data, more epochs or another model" in said
    said = comparison_with_rule(accuracy, 0.4, 0.5, "2 minutes are over")
    assert said.endswith("its training was cut when 2 minutes are over: it needs more time or another model")
