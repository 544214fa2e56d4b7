"""Tables whose columns have other names: what is taken is said, what is not told is proposed, and the proposal works.

The tables are made here, from a grid of names, contents and orders of columns.
"""

import itertools
import json
import random
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import regard
from regard.errors import ColumnError, DataError
from regard.tasks import registry
from regard.tasks.stored_data import store

ROWS = 24
QUICK = {"quiet": True, "epochs": 1, "hidden": 8}
WORDS = ["parcel", "invoice", "late", "login", "broken", "refund", "twice", "charged", "screen", "order"]
TEXTS = [" ".join(random.Random(number).choices(WORDS, k=9)) for number in range(ROWS)]
SHORT = [" ".join(text.split()[:3]) + f" {number}" for number, text in enumerate(TEXTS)]
DATES = [f"2026-0{1 + number % 9}-1{number % 7}" for number in range(ROWS)]
IDS = [f"T-{1000 + number}" for number in range(ROWS)]


def labels(kinds):
    return [f"kind {number % kinds}" for number in range(ROWS)]


def table_of(task, folder):
    """The columns of a table for a task, in order: what it needs under None, first, and what could be mistaken."""
    if task in ("images", "caption", "segment"):
        for number in range(ROWS):
            pixels = np.full((8, 8, 3), number, np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
            Image.fromarray(pixels[..., 0] % 2).save(folder / f"mask-{number}.png")
    if task in ("sounds", "transcribe"):
        for number in range(ROWS):
            np.save(folder / f"{number}.npy", np.full((20, 5), number, np.float32))
    needed = {
        "classify": (TEXTS, labels(2)), "translate": (TEXTS, SHORT), "summarize": (TEXTS, SHORT),
        "images": ([f"{number}.png" for number in range(ROWS)], labels(2)),
        "caption": ([f"{number}.png" for number in range(ROWS)], TEXTS),
        "segment": ([f"{number}.png" for number in range(ROWS)], [f"mask-{number}.png" for number in range(ROWS)]),
        "sounds": ([f"{number}.npy" for number in range(ROWS)], labels(2)),
        "transcribe": ([f"{number}.npy" for number in range(ROWS)], SHORT),
    }  # fmt: skip
    return needed[task]


TASKS = ("classify", "translate", "summarize", "images", "caption", "segment", "sounds", "transcribe")
FIELDS = {
    "classify": ("text_column", "label_column"), "translate": ("source_column", "target_column"),
    "summarize": ("article_column", "summary_column"), "images": ("image_column", "label_column"),
    "caption": ("image_column", "text_column"), "segment": ("image_column", "mask_column"),
    "sounds": ("sound_column", "label_column"), "transcribe": ("sound_column", "text_column"),
}  # fmt: skip
USUAL = {
    "classify": [("Review", "Sentiment"), ("TEXT", "Label"), ("customer_message", "Category"), ("本文", "ラベル")],
    "translate": [("Source", "Target"), ("src", "tgt")],
    "summarize": [("Body", "Headline"), ("document", "Summary"), ("Article", "highlights")],
    "images": [("file_name", "class"), ("Picture", "Category"), ("zzz", "label")],
    "caption": [("filepath", "Caption"), ("Image", "description")],
    "segment": [("Image", "Mask"), ("image_path", "mask_path")],
    "sounds": [("path", "category"), ("Recording", "Label")],
    "transcribe": [("path", "sentence"), ("wav", "Transcript")],
}


def opened(task, path):
    """What the task reads in a table for a training, and the columns that it says."""
    task = registry.find(task)
    fitted = task.fit({"data": {"train": str(path)}, "model": {}, "training": {}})
    named = {one: fitted[one].value for one in task.data_config.columns if one in fitted}
    data = task.data_config(train=str(path), **named)
    return task.input.open(str(path), data.named_columns, data), named


def pairs(task, rows):
    if task == "segment":
        return [(str(row.image).rsplit("/")[-1], str(row.mask).rsplit("/")[-1]) for row in rows]
    found = registry.find(task).input
    return [(name.rsplit("/")[-1], text) for name, text in zip(found.names(rows), found.targets(rows), strict=True)]


def written(path, columns):
    frame = pd.DataFrame(columns)
    if path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True, force_ascii=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep={".csv": ",", ".tsv": "\t"}[path.suffix], index=False)
    return path


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("task", TASKS)
def test_columns_of_usual_names_are_taken_in_any_order_and_said(task, tmp_path):
    needed = table_of(task, tmp_path)
    formats = itertools.cycle((".csv", ".tsv", ".jsonl", ".parquet"))
    for names, suffix in zip(USUAL[task], formats, strict=False):
        first, second = zip(names, needed, strict=True)
        others = ("ticket_id", IDS), ("created", DATES)
        for number, order in enumerate(((*others, first, second), (second, first), (second, *others, first))):
            path = written(tmp_path / f"{number}{names[0]}{suffix}", dict(order))
            rows, named = opened(task, path)
            assert pairs(task, rows) == list(zip(*needed, strict=True)), (names, number)
            said = dict(zip(FIELDS[task], names, strict=True))
            default = {"label", "image", "mask", "caption"}
            assert named == {field: name for field, name in said.items() if name not in default}


@pytest.mark.parametrize("task", TASKS)
def test_missing_column_options_are_proposed_by_content(task, tmp_path):
    needed = table_of(task, tmp_path)
    for number, suffix in enumerate((".csv", ".jsonl")):
        columns = {"nr": IDS, "wann": DATES, "eins": needed[0], "zwei": needed[1]}
        if number:
            columns = {"eins": needed[0], "wann": DATES, "zwei": needed[1], "nr": IDS}
        if task in ("classify", "images", "sounds"):
            columns["viele"] = labels(6)
        path = written(tmp_path / f"odd{suffix}", columns)
        with pytest.raises(ColumnError) as refused:
            regard.train(task, path, quiet=True)
        proposed = dict(zip(FIELDS[task], ("eins", "zwei"), strict=True))
        # Any of several columns of labels may be meant: the number of their values is no proof.
        label = FIELDS[task][1]
        choices = [proposed, {**proposed, label: "viele"}] if "viele" in columns else [proposed]
        assert refused.value.choices == choices
        assert refused.value.columns == (proposed if len(choices) == 1 else {})
        calls = [", ".join(f"{field}={column!r}" for field, column in one.items()) for one in choices]
        said = " or ".join(f"regard.train({task!r}, {str(path)!r}, {call})" for call in calls)
        assert str(refused.value).endswith(f"write {said}")
        data = registry.find(task).data_config(train=str(path), **proposed)
        rows = registry.find(task).input.open(str(path), data.named_columns, data)
        assert pairs(task, rows) == list(zip(*needed, strict=True))


def test_neither_an_identifier_nor_a_date_nor_a_number_is_proposed(tmp_path):
    codes = [f"{number:032x}" for number in range(ROWS)]  # longer than the texts
    columns = {"uuid": codes, "customer_id": [number % 2 for number in range(ROWS)], "day": DATES, "q": ["短い文"] * 2}
    columns["q"] = [f"短い文が{'あいうえお'[number % 5] * (number // 5 + 1)}" for number in range(ROWS)]
    columns |= {"price": [1.5 * number for number in range(ROWS)], "art": labels(4), "at": ["10:30"] * ROWS}
    with pytest.raises(ColumnError) as refused:
        regard.train("classify", written(tmp_path / "a.csv", columns), **QUICK)
    assert refused.value.columns == {"text_column": "q", "label_column": "art"}


def test_two_columns_of_usual_names_are_not_chosen_between(tmp_path):
    path = written(tmp_path / "a.csv", {"Review": TEXTS, "Comment": SHORT, "Sentiment": labels(2)})
    with pytest.raises(ColumnError, match="say with text_column which column has the texts") as refused:
        regard.train("classify", path, **QUICK)
    assert refused.value.columns == {"text_column": "Review", "label_column": "Sentiment"}
    path = written(tmp_path / "b.csv", {"text": TEXTS, "target": [number / 7 for number in range(ROWS)]})
    with pytest.raises(DataError):  # a number for each row is no label
        regard.train("classify", path, **QUICK)


@pytest.mark.parametrize("form", [dict, pd.DataFrame, lambda columns: pd.DataFrame(columns).to_dict("records")])
def test_data_in_memory_follow_the_same_law(form):
    named = form({"id": IDS, "Message": TEXTS, "Category": labels(2)})
    run = regard.train("classify", named, validation=0.25, **QUICK)
    assert run.config.data.named_columns == ("Message", "Category")
    assert len(run.predict(named)) == ROWS
    assert run.evaluate(form({"Text": TEXTS, "Label": labels(2)})).texts == ROWS
    odd = form({"nr": IDS, "eins": TEXTS, "zwei": labels(2)})
    for call, written_call in (
        (lambda: regard.train("classify", odd, **QUICK), "regard.train('classify', data, text_column='eins'"),
        (lambda: run.evaluate(odd), "run.evaluate(data, text_column='eins', label_column='zwei')"),
        (lambda: regard.train("classify", named, validation=odd, **QUICK), "call its columns as those of the training"),
    ):
        with pytest.raises(DataError) as refused:
            call()
        assert written_call in str(refused.value)
    assert len(run.predict(odd)) == ROWS  # only one column can have texts
    with pytest.raises(ColumnError, match=r"write run\.predict\(data, column='eins'\)"):
        run.predict(form({"eins": TEXTS, "mehr": SHORT}))


def test_columns_of_an_evaluation_may_have_other_names(tmp_path, caplog):
    train = written(tmp_path / "a.csv", {"id": IDS, "Message": TEXTS, "Category": labels(2)})
    run = regard.train("classify", train, validation=written(tmp_path / "v.csv", {"text": TEXTS, "label": labels(2)}),
                       **QUICK)  # fmt: skip
    same = run.evaluate(train).accuracy
    caplog.clear()
    assert run.evaluate(written(tmp_path / "b.csv", {"Label": labels(2), "Review": TEXTS})).accuracy == same
    assert "the texts are read in the column 'Review', by its name" in caplog.text
    other = written(tmp_path / "c.csv", {"zwei": labels(2), "eins": TEXTS})
    with pytest.raises(ColumnError):
        run.evaluate(other)
    assert run.evaluate(other, text_column="eins", label_column="zwei").accuracy == same
    assert json.loads(json.dumps(run.evaluate(train).to_dict()))["accuracy"] == same


def test_a_table_is_no_running_text_and_the_call_that_reads_a_column_is_named(tmp_path):
    columns = {"id": IDS, "Beschreibung": TEXTS, "art": labels(3)}
    for suffix in (".csv", ".tsv", ".jsonl", ".parquet"):
        path = written(tmp_path / f"a{suffix}", columns)
        with pytest.raises(DataError, match=r"is a table .* and a language model reads running text") as refused:
            regard.train("language", str(path), quiet=True)
        call = re.search(r"regard\.train\('language', (pandas\..*?)\), or", str(refused.value))
        assert call is not None
        assert list(eval(call[1], {"pandas": pd})) == TEXTS
    one = tmp_path / "one.csv"
    one.write_text("a line\nanother line\n" * 50)
    assert registry.find("language").input.open(str(one), (), None) == (one,)


def test_a_typed_name_of_a_file_is_read_as_the_file(tmp_path, run_command):
    path = written(tmp_path / "a.csv", {"Message": TEXTS, "Category": labels(2)})
    regard.train("classify", path, run=tmp_path / "run", **QUICK)
    code, output, error = run_command("predict", tmp_path / "run", path)
    assert not code
    assert len(output.splitlines()) == ROWS
    assert f"{path} is read as a file" in error
    assert run_command("predict", tmp_path / "run", "--file", path)[1] == output
    code, _, error = run_command("predict", tmp_path / "run", "--file",
                                 written(tmp_path / "b.csv", {"eins": TEXTS, "mehr": SHORT}))  # fmt: skip
    assert code == 2
    assert error.splitlines()[-1] == f"regard predict {tmp_path / 'run'} --file {tmp_path / 'b.csv'} --column eins"
    code, _, error = run_command(
        "evaluate", tmp_path / "run", written(tmp_path / "c.csv", {"zwei": labels(2), "eins": TEXTS})
    )
    assert error.splitlines()[-1].endswith("c.csv --text-column eins --label-column zwei")


@pytest.mark.parametrize("task", ["images", "caption", "segment", "sounds", "transcribe"])
def test_the_files_of_rows_in_memory_are_told_by_name_or_content(task, tmp_path):
    first, second = table_of(task, tmp_path)
    files = [str(tmp_path / name) for name in first]
    if task == "segment":
        second = [str(tmp_path / name) for name in second]
    name = {"segment": "mask", "caption": "caption", "transcribe": "text"}.get(task, "label")
    for number, column in enumerate(("filename", "aufnahme")):
        rows = pd.DataFrame({"id": IDS, "day": DATES, name: second, column: files})
        task_of, path = registry.find(task), tmp_path / f"stored{number}"
        store(task_of, rows, path, "train", {})
        read = task_of.input.open(str(path.with_suffix(".jsonl")), (None, None), task_of.data_config(train="x"))
        assert pairs(task, read) == list(zip(first, [one.rsplit("/")[-1] for one in second], strict=True))
