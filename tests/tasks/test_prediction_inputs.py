"""What is predicted: a table, a folder or data in memory are read as a training and an evaluation read them."""

import io
import json
import logging

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

import regard
from regard.errors import ArgumentError, DataError

SHORT = {"epochs": 1, "threads": 1, "quiet": True, "accelerator": "cpu"}
TEXTS = ['a "fine" film', "a dull one", "fine,\nby all means", "dull\tfilm", "é"]
FRAME = pd.DataFrame({"text": TEXTS, "label": ["good", "bad", "good", "bad", "good"]})


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """The data sets of these tests are cached in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def classifier():
    return regard.train("classify", FRAME, validation=FRAME, architecture="none", embedding=8, **SHORT)


PIXELS = [np.full((16, 16, 3), 50 * number, np.uint8) for number in range(4)]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder with images of two classes, and tables that name them; and a run of each task on images."""
    folder = tmp_path_factory.mktemp("images")
    for number, pixels in enumerate(PIXELS):
        for name in (f"data/{'ab'[number % 2]}/{number}.png", f"masks/images/{number}.png"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / name)
        (folder / "masks/labels").mkdir(exist_ok=True)
        Image.fromarray(np.eye(16, dtype=np.uint8)).save(folder / f"masks/labels/{number}.png")
    rows = [{"image": f"data/{'ab'[number % 2]}/{number}.png", "label": "ab"[number % 2]} for number in range(4)]
    frame = pd.DataFrame(rows)
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_json(folder / "table.jsonl", orient="records", lines=True)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    cells = [{"image": {"bytes": encoded(pixels), "path": None}, "label": "a"} for pixels in PIXELS]
    datasets.Dataset.from_list(cells, features=features).to_parquet(folder / "cells.parquet")
    tiny = {"image_size": 16, "stages": 1, "batch_size": 4, **SHORT}
    folder_runs = {
        "images": regard.train("images", folder / "data", validation=folder / "data", architecture="cnn", **tiny),
        "segment": regard.train("segment", folder / "masks", validation=folder / "masks", channels=4, levels=3,
                                blocks=1, decoder_channels=8, batch_size=4, **SHORT),
    }  # fmt: skip
    return folder, folder_runs


def encoded(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def tables(folder):
    """The frame in every form of file."""
    FRAME.to_csv(folder / "a.csv", index=False)
    FRAME.to_csv(folder / "b.csv")
    FRAME.to_csv(folder / "a.tsv", sep="\t", index=False)
    FRAME.to_json(folder / "a.jsonl", orient="records", lines=True)
    FRAME.to_json(folder / "a.json", orient="records")
    FRAME.to_parquet(folder / "a.parquet")
    FRAME[["text"]].to_csv(folder / "inputs.csv", index=False)
    FRAME[["text"]].rename(columns={"text": "sentence"}).to_csv(folder / "renamed.csv", index=False)
    return sorted(path for path in folder.iterdir() if path.is_file())


def test_a_table_has_an_answer_for_each_row(classifier, tmp_path):
    for path in tables(tmp_path):
        for source in (path, str(path)):
            assert [one.source for one in classifier.predict(source)] == TEXTS
        if "label" in path.read_bytes().decode(errors="replace"):
            assert classifier.evaluate(path).texts == len(TEXTS)


def test_data_in_memory_have_an_answer_for_each_row(classifier):
    forms = [
        TEXTS, tuple(TEXTS), np.array(TEXTS), pd.Series(TEXTS), iter(TEXTS), FRAME, FRAME[["text"]],
        {"text": TEXTS}, {"label": [0] * 5, "text": TEXTS}, FRAME.to_dict("records"), pa.Table.from_pandas(FRAME),
        datasets.Dataset.from_pandas(FRAME), datasets.Dataset.from_pandas(FRAME).to_iterable_dataset(),
        datasets.Dataset.from_pandas(FRAME)["text"],
    ]  # fmt: skip
    for form in forms:
        assert [one.source for one in classifier.predict(form)] == TEXTS, type(form)
    with pytest.raises(ArgumentError, match="inputs has the parts 'test'"):
        classifier.predict(datasets.DatasetDict({"test": datasets.Dataset.from_pandas(FRAME)}))
    with pytest.raises(ArgumentError, match="inputs must be a list of inputs"):
        classifier.predict("a fine film")


def test_the_column_is_that_of_the_training_or_the_named_one(classifier, tmp_path):
    frame = pd.DataFrame({"id": [1], "title": ["dull"], "body": ["fine"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert classifier.predict(tmp_path / "a.csv", column="body")[0].source == "fine"
    assert classifier.predict(frame, column="title")[0].source == "dull"
    assert classifier.predict(tmp_path / "a.csv")[0].source == "fine"  # a usual name
    frame.rename(columns={"body": "rest"}).to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(DataError, match=r"say with column which column has the inputs \(columns: 'id', 'title'"):
        classifier.predict(tmp_path / "c.csv")
    with pytest.raises(DataError, match="there is no column 'boby'; did you mean 'body'"):
        classifier.predict(tmp_path / "a.csv", column="boby")
    (tmp_path / "b.csv").write_text("A fine film.\nA dull one.\n")
    with pytest.raises(DataError, match=r"line 1, 'A fine film\.', seems to be a row"):
        classifier.predict(tmp_path / "b.csv")


def test_every_list_of_rows_or_texts_is_read(classifier):
    rows = FRAME.to_dict("records")
    expected = [one.label for one in classifier.predict(TEXTS)]

    class Numbered:
        """Has a length, and no end."""

        def __len__(self):
            return len(TEXTS)

        def __getitem__(self, number):
            return TEXTS[number % len(TEXTS)]

    for inputs in (
        iter(rows),
        rows,
        pa.array(TEXTS),
        pa.chunked_array([TEXTS[:2], TEXTS[2:]]),
        iter(TEXTS),
        Numbered(),
    ):
        assert [one.label for one in classifier.predict(inputs)] == expected
    assert [one.label for one in classifier.predict(FRAME.text[2:])] == expected[2:]


def test_a_text_in_an_object_is_read_in_memory_as_in_a_file(classifier, tmp_path):
    rows = [{"translation": {"de": "fine", "en": "dull"}}, {"translation": {"de": "a", "en": "b"}}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for inputs in (rows, pd.DataFrame(rows), path):
        assert [one.source for one in classifier.predict(inputs, column="translation.de")] == ["fine", "a"]
        assert classifier.predict(inputs, column="translation.en")[0].source == "dull"


def test_a_row_may_lack_the_column_in_memory_as_in_a_file(classifier, tmp_path, caplog):
    rows = [{"label": "good"}, {"text": "a dull one", "id": 1}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for inputs in (rows, iter(rows), path):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="regard"):
            (answer,) = classifier.predict(inputs)
        assert answer.source == "a dull one"
        assert "left out 1 row without 'text'" in caplog.text


def test_predict_names_sources_without_inputs(classifier, tmp_path):
    with pytest.raises(DataError, match="inputs: there are no rows"):
        classifier.predict(FRAME.head(0))
    with pytest.raises(
        DataError, match=r"there is no column 'txt'; did you mean 'text'\? \(columns: 'text', 'label'\)"
    ):
        classifier.predict(FRAME, column="txt")
    with pytest.raises(regard.errors.KindError, match="inputs must be a list of inputs, or a table; it is an int"):
        classifier.predict(5)
    for orient in ("columns", "split"):
        FRAME.to_json(tmp_path / "a.json", orient=orient)
        with pytest.raises(DataError, match="write its columns as rows"):
            classifier.predict(tmp_path / "a.json")
    with pytest.raises(regard.errors.KindError, match=r"inputs\[1\] must be text; it is an int"):
        classifier.predict(["a", 1])
    (tmp_path / "a.jsonl").write_text('{"text": 1}\n')
    with pytest.raises(DataError, match="line 1, column 'text' must be text; it is a number"):
        classifier.predict(tmp_path / "a.jsonl")


def test_rows_without_an_input_are_left_out_and_named(classifier, tmp_path, caplog):
    frame = pd.DataFrame({"text": ["fine", None, "dull", " "], "label": ["a"] * 4})
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    for source, said in ((tmp_path / "a.jsonl", "line 2, line 4"), (frame, "row 1, row 3")):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="regard"):
            assert [one.source for one in classifier.predict(source)] == ["fine", "dull"]
        assert f"left out 2 rows without 'text' ({said}), which have no answer; 2 are left" in caplog.text
    with pytest.raises(DataError, match="no row has an input in the column 'text'"):
        classifier.predict(frame[1:2])


def test_folders_of_texts(classifier, tmp_path):
    for number, text in enumerate(("fine", "dull\nfilm\n")):
        (tmp_path / "good").mkdir(exist_ok=True)
        (tmp_path / "good" / f"{number}.txt").write_text(text)
    assert [one.source for one in classifier.predict(tmp_path)] == ["fine", "dull\nfilm\n"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: has no texts \(\.txt\); name another folder"):
        classifier.predict(tmp_path / "empty")


def test_images_of_folders_and_tables(images, caplog):
    folder, runs = images
    for task, data in (("images", "data"), ("segment", "masks")):
        run = runs[task]
        alone = [run.predict([pixels])[0].answer_text for pixels in PIXELS]
        for name in ("table.csv", "table.jsonl", "cells.parquet"):
            assert [one.answer_text for one in run.predict(folder / name)] == alone
        found = run.predict(folder / data)
        assert sorted(one.input_text.rsplit("/")[-1] for one in found) == [f"{number}.png" for number in range(4)]
        assert {one.input_text.rsplit("/")[-1]: one.answer_text for one in found} == {
            f"{number}.png": text for number, text in enumerate(alone)
        }
        in_memory = datasets.Dataset.from_parquet(str(folder / "cells.parquet"))
        assert [one.answer_text for one in run.predict(in_memory)] == alone
        assert [one.answer_text for one in run.predict({"label": list("abab"), "image": PIXELS})] == alone
        assert [one.answer_text for one in run.predict([Image.fromarray(pixels) for pixels in PIXELS])] == alone
    caplog.clear()
    (folder / "data" / "a" / "notes.md").write_text("x")
    with caplog.at_level(logging.WARNING, logger="regard"):
        assert len(runs["images"].predict(folder / "data")) == 4
    assert "left out 1 entry besides its images: 'a/notes.md'" in caplog.text
    lines = folder / "missing.jsonl"
    lines.write_text(json.dumps({"image": "none.png"}) + "\n")
    with pytest.raises(DataError, match=r"missing\.jsonl: line 1: .*none\.png: no such file"):
        runs["images"].predict(lines)


def test_sounds_of_folders_and_tables(tmp_path):
    features = [np.full((20, 13), number, np.float32) for number in range(4)]
    for number, one in enumerate(features):
        (tmp_path / "data" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "data" / "ab"[number % 2] / f"{number}.npy", one)
    run = regard.train("sounds", tmp_path / "data", validation=tmp_path / "data", pyramid_layers=1, hidden=8, **SHORT)
    alone = [run.predict([one])[0].label for one in features]
    paths = [f"data/{'ab'[number % 2]}/{number}.npy" for number in range(4)]
    pd.DataFrame({"audio": paths, "label": list("abab")}).to_csv(tmp_path / "a.csv", index=False)
    assert [one.label for one in run.predict(tmp_path / "a.csv")] == alone
    found = {one.input_text.rsplit("/")[-1]: one.label for one in run.predict(tmp_path / "data")}
    assert found == {f"{number}.npy": label for number, label in enumerate(alone)}


def test_a_generated_corpus_is_predicted_as_it_is_evaluated(tmp_path):
    run = regard.train("segment", bundled=8, run=tmp_path / "run", channels=4, levels=3, blocks=1,
                       decoder_channels=8, batch_size=4, **SHORT)  # fmt: skip
    table = tmp_path / "few.tsv"
    table.write_text("".join((tmp_path / "run/corpus/test.tsv").read_text().splitlines(keepends=True)[:3]))
    assert len(run.predict(table)) == run.evaluate(table).images == 2
