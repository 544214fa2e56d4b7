"""A row without its input or its target is left out, counted and said, whatever form the table has."""

import csv
import json
import logging

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from regard.data.images.image_rows import captioned_images, labelled_images
from regard.data.images.masked_images import open_masked
from regard.data.speech.utterances import open_utterances
from regard.data.text.sources import open_labelled, open_pairs
from regard.errors import DataError

OPENERS = {
    "pairs": (open_pairs, ("en", "de"), "left out 2 rows {lacking}; 2 are left"),
    "labelled": (open_labelled, ("text", "label"), "left out 2 rows {lacking}; 2 are left"),
    "captions": (captioned_images, ("image", "caption"), "left out 2 rows without 'image' and 'caption'; 2 are left"),
    "images": (labelled_images, ("image", "label"), "left out 2 rows without 'image' and 'label'; 2 are left"),
    "masks": (open_masked, ("image", "mask"), "left out 2 rows without an image or a mask; 2 are left"),
    "sounds": (open_utterances, ("audio", "text"), "left out 2 rows without a sound or a text; 2 are left"),
}
"""What opens the tables of the tasks, the two columns that it needs, and what it says of two empty rows."""


POSITIONS = {
    "csv": "line 3, line 5", "tsv": "line 3, line 5", "jsonl": "line 2, line 4", "json": "object 2, object 4",
    "parquet": "row 2, row 4",
}  # fmt: skip
"""Suffix → where the second and the fourth row are."""


def write_csv(path, first, second, rows, separator=","):
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=separator).writerows([(first, second), *rows])


def write_json_lines(path, first, second, rows, missing=lambda row: row):
    path.write_text("".join(json.dumps(missing(dict(zip((first, second), row, strict=True)))) + "\n" for row in rows))


FORMS = {
    "csv": write_csv,
    "tsv": lambda *arguments: write_csv(*arguments, "\t"),
    "null.jsonl": write_json_lines,
    "nan.jsonl": lambda *arguments: write_json_lines(
        *arguments, lambda row: {name: float("nan") if value is None else value for name, value in row.items()}
    ),
    "missing.jsonl": lambda *arguments: write_json_lines(
        *arguments, lambda row: {name: value for name, value in row.items() if value is not None}
    ),
    "json": lambda path, first, second, rows: path.write_text(
        json.dumps([dict(zip((first, second), row, strict=True)) for row in rows])
    ),
    "pandas.jsonl": lambda path, first, second, rows: pd.DataFrame(rows, columns=[first, second]).to_json(
        path, orient="records", lines=True
    ),
    "pandas.csv": lambda path, first, second, rows: pd.DataFrame(rows, columns=[first, second]).to_csv(
        path, index=False
    ),
    "pandas.parquet": lambda path, first, second, rows: pd.DataFrame(rows, columns=[first, second]).to_parquet(path),
    "parquet": lambda path, first, second, rows: pq.write_table(
        pa.table({first: [row[0] for row in rows], second: [row[1] for row in rows]}), path
    ),
}
"""What writes rows of two columns as a table."""


@pytest.fixture(autouse=True)
def _cache(own_cache):
    """The data sets of a test are cached in its own folder."""


@pytest.mark.parametrize("kind", OPENERS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lacking", [(1, 1), (0, 1), (0, 0)])
def test_null_rows_of_a_file_are_left_out_and_counted(tmp_path, caplog, kind, form, lacking):
    open_table, columns, said = OPENERS[kind]
    for number in range(4):
        Image.fromarray(np.zeros((2, 3), np.uint8)).save(tmp_path / f"{number}.png")
    rows: list[list[str | None]] = [[f"{number}.png"] * 2 for number in range(4)]
    for row, column in zip((1, 3), lacking, strict=True):
        rows[row][column] = None
    path = tmp_path / f"table.{form}"
    FORMS[form](path, *columns, rows)
    with caplog.at_level(logging.WARNING, logger="regard"):
        assert len(list(open_table(path))) == 2
    names = [repr(columns[column]) for column in lacking]
    counts = f"without {names[0]}" if len({*lacking}) == 1 else f"(1 without {names[0]}, 1 without {names[1]})"
    where = POSITIONS[form.rpartition(".")[2]]
    assert caplog.messages == [f"{path}: {said.format(lacking=f'{counts}: {where}')}"]


@pytest.mark.parametrize("kind", OPENERS)
@pytest.mark.parametrize("form", ["csv", "null.jsonl", "parquet"])
def test_a_table_whose_every_row_lacks_one_is_an_error(tmp_path, kind, form):
    open_table, columns, _ = OPENERS[kind]
    path = tmp_path / f"table.{form}"
    FORMS[form](path, *columns, [["a.png", None], ["a.png", None]])
    with pytest.raises(DataError, match=r"no row has|has no .*, and so has no other|has no image and mask") as refused:
        open_table(path)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("kind", OPENERS)
def test_the_first_row_may_lack_a_field(tmp_path, kind):
    open_table, (first, second), _ = OPENERS[kind]
    Image.fromarray(np.zeros((2, 3), np.uint8)).save(tmp_path / "a.png")
    for row in ({first: "a.png"}, {first: "a.png", second: None}, {second: "a.png"}):
        path = tmp_path / "table.jsonl"
        path.write_text(f"{json.dumps(row)}\n" + json.dumps({first: "a.png", second: "a.png"}) + "\n")
        names = (first, second) if open_table in (open_pairs, open_utterances) else ()
        assert len(list(open_table(path, *names))) == 1


def test_a_first_row_that_lacks_a_field_does_not_name_the_columns(tmp_path):
    path = tmp_path / "a.jsonl"
    for lacking in ({"target": "y"}, {"target": "y", "source": None}):
        path.write_text("".join(json.dumps(row) + "\n" for row in (lacking, {"source": "a", "target": "x"})))
        pairs = open_pairs(path)
        assert (pairs["source"][:], pairs["target"][:]) == (["a"], ["x"])
    rows = [{"id": "1", "en": "Yes."}, {"id": "2", "en": "No.", "fr": "Non."}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        DataError, match="line 2: say with --source-column which column has the sources and with --target-column"
    ):
        open_pairs(path)


def test_empty_captions_of_an_image_that_has_others(tmp_path, caplog):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"image": "a.png", "captions": ["one", None, " ", "two"]}) + "\n")
    with caplog.at_level(logging.WARNING, logger="regard"):
        assert captioned_images(path)[0].texts == ("one", "two")
    assert [record.getMessage() for record in caplog.records] == [f"{path}: left out 2 captions without text"]


def test_an_object_that_is_null(tmp_path):
    rows = [{"translation": None}, {"translation": {"de": "Ja", "en": "Yes"}}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows[::-1]), tmp_path / "a.parquet")
    for suffix in ("jsonl", "parquet"):
        found = open_pairs(tmp_path / f"a.{suffix}", "translation.de", "translation.en")
        assert list(found["target"]) == ["Yes"]


def test_numbers_of_classes_have_their_names_in_parquet(tmp_path):
    """`datasets` 5.2.0 writes the names into the schema; −1 marks a row without a label there."""
    names = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names, "inner": {"label": names}})
    data = {"text": ["a", "b", "c", "d"], "label": [1, -1, None, 0], "inner": [{"label": 0}] * 4}
    datasets.Dataset.from_dict(data, features=features).to_parquet(tmp_path / "a.parquet")
    assert list(open_labelled(tmp_path / "a.parquet")["target"]) == ["pos", "neg"]
    assert list(open_labelled(tmp_path / "a.parquet", "text", "inner.label")["target"]) == ["neg"] * 4
