"""Labelled texts: from every kind of source the same, labels with names, batches that can be resumed."""

import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.data.labels import Labels
from regard.data.text import sources
from regard.data.text.sources import open_labelled
from regard.errors import DataError, RunError

ROWS = [("Good.", "2"), ("Bad.", "-1"), ('It is "so so".', "10"), ("Great!", "2")]


def rows_of(dataset):
    return list(zip(dataset["source"], dataset["target"], strict=True))


def written(folder, kind, label=int):
    path = folder / f"texts.{kind}"
    records = [{"label": label(own), "text": text} for text, own in ROWS]
    if kind == "tsv":
        path.write_text("label\ttext\n" + "".join(f"{own}\t{text}\n" for text, own in ROWS))
    elif kind == "csv":
        quoted = [(text.replace('"', '""'), own) for text, own in ROWS]
        path.write_text("text,label\n" + "".join(f'"{text}",{own}\n' for text, own in quoted))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        pq.write_table(pa.Table.from_pylist(records), path)
    return path


@pytest.mark.parametrize("label", [int, str])
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet"])
def test_every_kind_of_file_gives_the_same(tmp_path, kind, label):
    assert rows_of(open_labelled(written(tmp_path, kind, label))) == ROWS
    assert rows_of(open_labelled(str(tmp_path / f"texts.{kind}"), limit=2)) == ROWS[:2]


def test_labelled_texts_of_a_folder_of_classes(tmp_path):
    for name, texts in (("ham", ["Hello\nyou.", "Bye."]), ("spam", ["Buy!"]), ("empty", [])):
        (tmp_path / name).mkdir()
        for number, text in enumerate(texts):
            (tmp_path / name / f"{number}.txt").write_text(text)
    (tmp_path / "README.md").write_text("no text of a class")
    assert rows_of(open_labelled(tmp_path)) == [("Hello\nyou.", "ham"), ("Buy!", "spam"), ("Bye.", "ham")]
    (tmp_path / "spam" / "0.txt").write_text("Buy now!")  # another content is read again
    assert rows_of(open_labelled(str(tmp_path)))[1] == ("Buy now!", "spam")
    (tmp_path / "spam" / "1.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"1\.txt: is not valid UTF-8"):
        open_labelled(tmp_path)


def test_a_folder_without_classes(tmp_path):
    with pytest.raises(DataError, match="a folder without classes"):
        open_labelled(tmp_path)


def test_the_classes_of_a_data_set_of_the_hub_have_their_names(monkeypatch):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    found = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    monkeypatch.setattr(sources, "_hub_answers", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: found)
    assert rows_of(open_labelled("owner/reviews")) == [("a", "pos"), ("b", "neg")]
    found = datasets.Dataset.from_dict({"text": ["c"], "label": [-1]}, features=features)
    with pytest.raises(DataError, match="no row has text on both sides"):
        open_labelled("owner/hidden")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"text": "a", "label": Infinity}', "'label' must be text"),
        ('{"text": "a", "label": [1]}', "'label' must be text"),
        ('{"text": 7, "label": 1}', "'text' must be text"),
        ('{"txt": "a", "label": 1}', "say with --text-column which column has the texts .*--text-column 'txt'"),
    ],
)
def test_bad_rows_are_named(tmp_path, content, words):
    path = tmp_path / "texts.jsonl"
    path.write_text(content + "\n")
    with pytest.raises(DataError, match=words):
        open_labelled(path)


def labelled(labels):
    """Texts with these labels, as a table gives them."""
    return datasets.Dataset.from_dict({"source": ["a"] * len(labels), "target": labels})


class TestLabels:
    def test_numbers_are_sorted_by_value(self, tmp_path):
        labels = Labels.of(labelled(["10", "2", "b", "-1"]), "data")
        assert labels.names == ("-1", "2", "10", "b")
        labels.save(tmp_path / "labels.json")
        loaded = Labels.load(tmp_path / "labels.json")
        assert (loaded.names, loaded.fingerprint) == (labels.names, labels.fingerprint)
        assert loaded.encode_batch(["10", "-1"]) == [[2], [0]]

    def test_other_labels_are_named(self):
        with pytest.raises(DataError, match=r"file\.tsv: no training text has the label '3', 'x' \(known: '1', '2'\)"):
            Labels(["1", "2"]).require(labelled(["x", "1", "3"]), "file.tsv")

    def test_one_label_tells_nothing(self):
        with pytest.raises(DataError, match="nothing to tell apart"):
            Labels.of(labelled(["1", "1"]), "data")

    @pytest.mark.parametrize("content", ["", "[]", '{"labels": ["a"]}', '{"labels": ["a", "a"]}', '{"labels": [1, 2]}'])
    def test_a_damaged_file(self, tmp_path, content):
        path = tmp_path / "labels.json"
        path.write_text(content)
        with pytest.raises(RunError, match=r"labels\.json"):
            Labels.load(path)
        with pytest.raises(RunError, match="cannot be read"):
            Labels.load(tmp_path / "missing.json")
