"""Files as other programs write them: read as they are meant, or one line that says what to do."""

import csv
import json
import logging
import zipfile

import pandas as pd
import pytest

from regard.data.delimited import header_doubts
from regard.data.images.image_rows import captioned_images, labelled_images
from regard.data.speech.utterances import open_utterances
from regard.data.tables import record_places
from regard.data.text.sources import open_labelled, open_pairs
from regard.errors import DataError

TEXTS = ['He said "no".', '"Quoted"', "a\tb", "two\nlines", "plain", "", '"', "one, two", 'end"', "é"]


@pytest.fixture(autouse=True)
def _cache(own_cache):
    """The data sets of a test are cached in its own folder."""


def pairs_of(path, *columns):
    rows = open_pairs(path, *columns)
    return list(zip(rows["source"], rows["target"], strict=True))


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("index", [False, True])
def test_tables_of_pandas_are_read_unchanged(tmp_path, suffix, quoting, index):
    """pandas 3.1.1: `to_csv` encloses a field with a quotation mark, a separator or a line end, in a TSV file too."""
    frame = pd.DataFrame({"source": TEXTS, "target": TEXTS[::-1]})
    path = tmp_path / f"a.{suffix}"
    frame.to_csv(path, sep="\t" if suffix == "tsv" else ",", quoting=quoting, index=index)
    kept = [pair for pair in zip(TEXTS, TEXTS[::-1], strict=True) if all(pair)]
    assert pairs_of(path) == kept


@pytest.mark.parametrize("text", TEXTS)
def test_one_text_that_pandas_writes(tmp_path, text):
    frame = pd.DataFrame({"source": ["a", text, "c"], "target": ["x", "y", "z"]})
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    assert pairs_of(tmp_path / "a.tsv") == [pair for pair in frame.itertuples(index=False, name=None) if pair[0]]


@pytest.mark.parametrize(
    "rows",
    [
        ['He said "no".\tx', '"All of it."\ty'],
        ['"open\tx', 'y\tclose"'],
        ['5" pipe\tx'],
        ['""Both""\tx', '"one" and "two"\ty'],
        ['"\t"', 'a\t"""'],
    ],
)
def test_in_a_raw_table_a_quotation_mark_is_a_character(tmp_path, rows, caplog):
    (tmp_path / "a.tsv").write_text("source\ttarget\n" + "".join(f"{row}\n" for row in rows))
    with caplog.at_level(logging.WARNING, logger="regard"):
        assert pairs_of(tmp_path / "a.tsv") == [tuple(row.split("\t")) for row in rows]
    assert not caplog.records


def test_where_quotation_marks_may_be_either_it_is_said(tmp_path, caplog):
    path = tmp_path / "a.tsv"
    path.write_text('source\ttarget\nplain\tx\n"All of it."\ty\n')
    for _ in range(2):  # the second time from the cache
        with caplog.at_level(logging.WARNING, logger="regard"):
            assert pairs_of(path) == [("plain", "x"), ('"All of it."', "y")]
        assert [record.getMessage() for record in caplog.records] == [
            f"{path}: line 3 has a field in quotation marks, which are read as characters of the text; if they only "
            "enclose it, write the table as .csv"
        ]
        caplog.clear()


def test_two_readings_of_quotation_marks_are_those_of_every_reader(tmp_path):
    path = tmp_path / "a.tsv"
    pd.DataFrame({"text": ['a "b"', "c"], "label": ["x", "y"]}).to_csv(path, sep="\t", index=False)
    assert list(open_labelled(path)["source"]) == ['a "b"', "c"]
    assert [row["text"] for _, row in record_places(path)] == ['a "b"', "c"]


def test_polars_writes_tables_that_are_read(tmp_path):
    """polars 2.1.0: `write_csv` encloses a field as pandas does, and the empty text, which is no null."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"source": [*TEXTS, None], "target": [*TEXTS[::-1], "x"]})
    kept = [pair for pair in zip(TEXTS, TEXTS[::-1], strict=True) if all(pair)]
    frame.write_csv(tmp_path / "a.tsv", separator="\t")
    frame.write_csv(tmp_path / "a.csv")
    frame.write_ndjson(tmp_path / "a.jsonl")
    frame.write_json(tmp_path / "a.json")
    frame.write_parquet(tmp_path / "a.parquet")
    for suffix in ("tsv", "csv", "jsonl", "json", "parquet"):
        assert pairs_of(tmp_path / f"a.{suffix}") == kept


ROWS = [("Go.", "Ve."), ("Where is it?", "¿Dónde está?"), ("I see", "Veo"), ("What, sir", "Qué, señor")]


@pytest.mark.parametrize("separator", ["\t", ","])
def test_a_table_without_a_header_loses_no_row_in_silence(tmp_path, separator, caplog):
    path = tmp_path / f"a.{'tsv' if separator == chr(9) else 'csv'}"
    for first in range(len(ROWS)):
        rows = [*ROWS[first:], *ROWS[:first]]
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=separator).writerows(rows)
        caplog.clear()
        names = f"{path}: line 1, {rows[0][0]!r}, {rows[0][1]!r}, "
        try:
            with caplog.at_level(logging.WARNING, logger="regard"):
                found, said = pairs_of(path), caplog.text
        except DataError as error:
            found, said = None, str(error)
        assert found in (None, rows[1:])
        assert f"{names}{'seems to be a row' if found is None else 'is read as the names of the columns'}" in said
        assert pairs_of(path, *rows[0]) == rows[1:]  # they are the names if the user says so


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("eng spa", "names"), ("source target", "names"), ("source_text target_text", "names"), ("a b", "names"),
        ("0 1", "names"), ("text label", "names"), ("sentence1 sentence2", "names"), ("en-US de_DE", "names"),
        ("English German", "names"), ("audio text", "names"), ("SourceText Label", "names"),
        ("cat gato", "doubt"), ("hello hola", "doubt"), ("frage antwort", "doubt"),
        ("Go. Ve.", "row"), ("a.wav hello", "row"), ("images/1.png cat", "row"), ("fine 1", "row"), ("3.5 4.5", "row"),
        ("Qué? no", "row"),
    ],
)  # fmt: skip
def test_a_first_line_is_recognized_as_header_or_row(header, kind):
    advice, doubt = header_doubts(header.split())
    assert (bool(advice), bool(doubt)) == (kind == "row", kind == "doubt")
    assert header_doubts(["", *header.split()]) == (advice, doubt)  # an index of pandas


@pytest.mark.parametrize(
    ("open_table", "row"),
    [
        (open_labelled, "a fine film\t1"), (labelled_images, "a.png\tcat"), (captioned_images, "a.png\tA cat sits."),
        (open_utterances, "a.wav\thello"), (open_pairs, "Go.\tVe.\tCC-BY 2.0"),
    ],
)  # fmt: skip
def test_every_task_names_the_missing_header(tmp_path, open_table, row):
    path = tmp_path / "a.tsv"
    path.write_text(f"{row}\n" * 3)
    with pytest.raises(DataError, match=r"line 1, .*, seems to be a row, and must be the names of the columns"):
        open_table(path)


SUBTITLES = {
    "srt": "1\n00:00:01,000 --> 00:00:03,500\nHello.\n\n2\n00:00:04,000 --> 00:00:05,000\nBye.\n",
    "vtt": "WEBVTT\n\n00:01.000 --> 00:03.500\nHello.\n",
    "sbv": "0:00:01.000,0:00:03.500\nHello.\n",
    "sub": "{25}{75}Hello.\n",
    "lrc": "[ti:A song]\n[00:12.00]Hello.\n",
    "ass": "[Script Info]\n\n[Events]\nDialogue: 0,0:00:01.00,0:00:03.50,Default,,0,0,0,,Hello.\n",
}


@pytest.mark.parametrize("kind", SUBTITLES)
def test_subtitles_are_no_aligned_text(tmp_path, kind):
    for name in (f"en.{kind}", "en.txt"):
        (tmp_path / name).write_text(SUBTITLES[kind])
        (tmp_path / "de.txt").write_text("x\n" * SUBTITLES[kind].count("\n"))
        for files in ((tmp_path / name, tmp_path / "de.txt"), (tmp_path / "de.txt", tmp_path / name)):
            with pytest.raises(DataError, match=rf"{name}: is subtitles \(line \d+ has times: .*one a line, without"):
                open_pairs(files)


def test_times_in_a_text_are_no_subtitles(tmp_path):
    (tmp_path / "a.txt").write_text("At 10:30 we left.\n12:00\n[1] a note\n")
    assert len(open_pairs((tmp_path / "a.txt", tmp_path / "a.txt"))) == 3


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet"])
def test_two_tables_are_no_aligned_text(tmp_path, suffix):
    for name in "ab":
        (tmp_path / f"{name}.{suffix}").write_text("text\nx\n")
    with pytest.raises(DataError, match="is a table, and each of two files must be text"):
        open_pairs((tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"))


COCO = {
    "info": {"year": 2014},
    "images": [{"id": 5, "file_name": "b.jpg"}, {"id": 3, "file_name": "a.jpg"}],
    "annotations": [
        {"id": 1, "image_id": 3, "caption": "One."},
        {"id": 2, "image_id": 5, "caption": "Two."},
        {"id": 3, "image_id": 3, "caption": "Three."},
    ],
}
KARPATHY = {
    "images": [
        {"filename": "a.jpg", "split": "train", "sentences": [{"raw": "One."}, {"raw": "Three."}], "imgid": 0},
        {"filename": "b.jpg", "split": "train", "sentences": [{"raw": "Two."}], "imgid": 1},
        {"filename": "c.jpg", "split": "test", "sentences": [{"raw": "Four."}], "imgid": 2},
    ],
    "dataset": "flickr8k",
}


@pytest.mark.parametrize("content", [COCO, KARPATHY, dict(reversed(KARPATHY.items())), dict(reversed(COCO.items()))])
@pytest.mark.parametrize("indent", [None, 1])
def test_files_of_captions_in_one_object(tmp_path, content, indent, monkeypatch):
    """The line of the message, run as it stands, writes the table."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "all.json"
    path.write_text(json.dumps(content, indent=indent))
    with pytest.raises(DataError, match=r"is one JSON object, .*, and no table; write its rows") as refused:
        captioned_images(path)
    code = str(refused.value).split("in Python: ")[1]
    exec(code, {})
    found = {row.picture.name.rsplit("/")[-1]: row.texts for row in captioned_images("captions.json")}
    assert found == {"a.jpg": ("One.", "Three."), "b.jpg": ("Two.",)}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl"])
def test_files_that_are_no_text_are_named(tmp_path, suffix):
    frame, path = pd.DataFrame({"text": ["a", "b"], "label": ["x", "y"]}), tmp_path / f"a{suffix}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", frame.to_csv())
    for write, kind in (
        (lambda: None, r"an archive \(ZIP\) or a workbook of Excel, not text; unpack it, or save the sheet as CSV"),
        (lambda: frame.to_csv(path, compression="gzip"), r"compressed \(gzip\), not text; unpack it"),
        (lambda: frame.to_parquet(path), "a Parquet file, not text; let its name end in .parquet"),
        (lambda: frame.to_feather(path), "a Feather file, not text; write it as Parquet"),
    ):
        write()
        with pytest.raises(DataError, match=f"is {kind}"):
            open_labelled(path)


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_that_holds_the_rows(tmp_path, indent):
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    columns = {"text": ["a", "b"], "label": ["x", "y"]}
    by_row = {name: dict(enumerate(values)) for name, values in columns.items()}  # pandas' to_json without orient
    for content, advice in (
        ({"version": "1", "data": rows, "meta": [{"a": 1}]}, "write the list 'data' as the file"),
        (columns, r"write its columns as rows \(pandas: to_json\(path, orient='records', lines=True\)\)"),
        (by_row, "write its columns as rows"),
        ({"columns": ["text", "label"], "index": [0], "data": [["a", "x"]]}, "write its columns as rows"),  # "split"
    ):
        path = tmp_path / "a.json"
        path.write_text(json.dumps(content, indent=indent))
        with pytest.raises(DataError, match=f"the file is one JSON object, and a table has one for each row: {advice}"):
            open_labelled(path, "texts", "labels")
