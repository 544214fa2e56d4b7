"""Tables and folders that are not as they should be: read rightly, or one line that says what is wrong."""

import csv
import json
import logging
import os
import shutil
import subprocess
import time

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from regard.data.images.image_rows import captioned_images, labelled_images
from regard.data.images.masked_images import open_masked
from regard.data.images.pictures import pixel_table
from regard.data.labels import Labels
from regard.data.speech.utterances import open_utterances
from regard.data.tables import column_names, record_places
from regard.data.text.running_text import text_blocks, text_files
from regard.data.text.sources import open_labelled, open_pairs
from regard.errors import DataError
from regard.names.counted import counted

OPENERS = {
    "pairs": (open_pairs, ("en", "de")),
    "labelled": (open_labelled, ("text", "label")),
    "captions": (captioned_images, ("image", "caption")),
    "images": (labelled_images, ("image", "label")),
    "masks": (open_masked, ("image", "mask")),
    "sounds": (open_utterances, ("audio", "text")),
}
"""What opens the tables of the tasks, and the two columns that it needs."""


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture(params=OPENERS)
def opener(request, tmp_path):
    """Opens a table with the given content; gives the values of the second column, or the message of the error."""
    open_table, columns = OPENERS[request.param]
    Image.fromarray(np.zeros((2, 3), np.uint8)).save(tmp_path / "a.png")

    def opened(suffix, content):
        path = tmp_path / f"table{suffix}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        os.utime(path, ns=(0, time.monotonic_ns()))  # another content of the same size is read again
        try:
            rows = list(open_table(path))
        except DataError as error:
            message = str(error)
            return message.removeprefix(str(path)) if len(message) < 1500 and "\n" not in message else "not one line"
        texts = {"captions": "texts", "images": "texts", "masks": "mask", "sounds": "text"}.get(request.param)
        found = [row["target"] if texts is None else getattr(row, texts) for row in rows]
        return [one[0] if isinstance(one, tuple) else one.removeprefix(f"{tmp_path}/") for one in found]

    opened.first, opened.second = columns
    opened.labels = request.param in ("labelled", "images", "sounds")
    return opened


def test_delimited_tables_of_every_form_are_read(opener):
    """Separators, line ends, encodings, cells of any length."""
    first, second = opener.first, opener.second
    for suffix, own, others in ((".tsv", "\t", ",;|"), (".csv", ",", "\t;|")):
        good = f"{first}{own}{second}\na.png{own}a.png\n"
        for content in (good, "\ufeff" + good, good.replace("\n", "\r\n"), good.rstrip("\n"), good + "\n\n"):
            assert opener(suffix, content) == ["a.png"]
        for other in others:
            found = opener(suffix, good.replace(own, other))
            assert found == ["a.png"] if suffix == ".csv" else "; its columns seem to be separated by " in found
        assert "lines end with carriage returns (CR)" in opener(suffix, good.replace("\n", "\r"))
        mixed = good + f"a.png{own}a.png\ra.png{own}a.png\n"
        assert "line 3 has 3 fields where the header has 2" in opener(suffix, mixed)
        assert "a carriage return (CR) inside it ends no line" in opener(suffix, mixed)
        for encoding in ("utf-16-le", "utf-16-be", "utf-32"):
            assert "is UTF-16 or UTF-32, not UTF-8" in opener(suffix, good.encode(encoding))
        assert "line 1 is empty" in opener(suffix, "\n" + good)
        assert "two columns are called" in opener(suffix, f"{first}{own}{second}{own}{second}\na.png{own}a.png{own}x\n")
        assert "no row" in (message := opener(suffix, good.splitlines()[0] + "\n")) or "there are no rows" in message
        assert "file is empty" in (message := opener(suffix, "")) or "no rows" in message
        assert "'Zone'" in opener(suffix, f"Zone{own}{first}{own}x\na{own}a.png{own}b\n")
    header = f"{first},{second}\n"
    assert opener(".csv", header + '"a.png","a.png"\n') == ["a.png"]
    assert "a field has no closing quotation mark" in opener(".csv", header + 'a.png,"a.png\n' + "a.png,x\n" * 3)
    assert "no comma after a closing quotation mark" in opener(".csv", header + '"a"b,a.png\n')


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_another_separator_of_a_csv_file_is_read_where_it_is_certain_and_said(tmp_path, caplog, mark):
    """Excel writes semicolons where the comma is the decimal mark."""
    path = tmp_path / "a.csv"
    rows = [("text", "label"), ("1,5 Liter, bitte", "a"), (f"x\ny{mark}z", "b"), ("zwei", "b")]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=mark).writerows(rows)
    with caplog.at_level("WARNING", logger="regard"):
        table = open_labelled(path)
    assert list(zip(table["source"], table["target"], strict=True)) == rows[1:]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{path}: the columns are separated by ")
    path.write_text(f"text{mark}label\na{mark}b\nc{mark}d{mark}e\n")
    with pytest.raises(DataError, match=r"convert the file, which pandas does: pandas\.read_csv\('a\.csv', sep="):
        open_labelled(path)


JAPANESE = "text,label\n返金をお願いします。カタカナのテキスト,返金\n届きません,配送\n"


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        (JAPANESE, "cp932", "CP932"),
        ("text,label\n我的订单还没有到,配送\n请退款，谢谢！,退款\n", "gb18030", "GB18030"),
        ("text,label\nCafé très agréable,où\n", "latin-1", "CP1252"),
        ("text,label\nÜber 5 € für Bücher,größer\n", "cp1252", "CP1252"),
    ],
)
def test_a_file_in_another_encoding_is_answered_with_the_command_that_converts_it(tmp_path, text, codec, name):
    path = tmp_path / "my table.csv"
    path.write_bytes(text.encode(codec))
    with pytest.raises(DataError, match="is not valid UTF-8") as refused:
        open_labelled(path)
    command = str(refused.value).partition("with: ")[2]
    assert name in str(refused.value)
    if shutil.which("iconv"):
        subprocess.run(command.replace(command.split()[2], name), shell=True, check=True)
        assert (tmp_path / "my table-utf8.csv").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_a_table_in_utf_16_is_read_by_its_byte_order_mark(tmp_path, suffix, codec):
    """Excel writes Unicode text so; bytes of some characters are those of a line end, and parts of a file cut some."""
    rows = [(f"\u0a0a\u010a {number} \U0001d11e\u0d0a", "a\u2028b") for number in range(5000)]
    if suffix == ".jsonl":
        text = "".join(json.dumps({"text": one, "label": two}, ensure_ascii=False) + "\n" for one, two in rows)
    else:
        text = "".join(
            f"{one}{',' if suffix == '.csv' else chr(9)}{two}\r\n" for one, two in [("text", "label"), *rows]
        )
    path, content = tmp_path / f"a{suffix}", f"\ufeff{text}".encode(codec)
    path.write_bytes(content)
    assert [tuple(row.values()) for _, row in record_places(path)] == rows
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match=r"a\..*: is not valid UTF-16"):
        list(record_places(path))


def test_json_is_read_strictly(opener):
    """Nothing of a file is left out: text after an object or an array, a name that occurs twice, half an object."""
    first, second = opener.first, opener.second
    row = json.dumps({first: "a.png", second: "a.png"})
    for content in (f"[{row}]", f" [ {row} ] \n", f"\ufeff[\n{row}\n]", f"[{row}]".encode("utf-16")):
        assert opener(".json", content) == ["a.png"]
    for content, message in (
        (f"[{row}] and more", "text follows the closing ']' of the array ('and more')"),
        (f"[{row}]\n[{row}]", "text follows the closing ']'"),
        (f"[{row} {row}]", "a comma or the closing ']' must follow object 1"),
        (f"[{row}", "a comma or the closing ']' must follow object 1"),
        (f"[{row},]", "object 2 of the array is not JSON"),
        (f"[,{row}]", "object 1 of the array is not JSON"),
        (f"[[{row}]]", "object 1 must be a JSON object"),
        (f"[{row}, {row[:-3]}", "object 2 of the array is not JSON"),
        (f"{row} more\n", "line 1 is not JSON (Extra data"),
        (f"{row}\n{row[:-3]}", "line 2 is not JSON (Unterminated string starting at character"),
        (row.replace(",", ",\n").replace("{", "{\n"), "write each object on one line, or all objects in one array"),
        (row[:-1] + f', "{first}": "b"}}', f"line 1 is not JSON (the name '{first}' occurs twice"),
        (row[:-1] + f', "x": {"9" * 10_000}}}', "a number has 10,000 digits"),
        ("[" * 100_000, "is not JSON (it is nested too deeply)"),
        ('{"a": ' * 100_000, "is not JSON (it is nested too deeply)"),
        (row.encode("utf-16-le"), "is UTF-16"),
    ):
        assert message in opener(".json", content), content[:80]


def test_values_of_json(opener):
    """What is no text, and text that no file can hold."""
    first, second = opener.first, opener.second
    for value in ("Infinity", "1e400", "[[1]]", "{}", '"\\ud800"', '"\\udce9.png"', '" \\ud83d "'):
        for name, other in ((second, first), (first, second)):
            message = opener(".jsonl", f'{{"{other}": "a.png", "{name}": {value}}}\n')
            assert isinstance(message, str), (name, value)
            assert "line 1" in message or "row 1" in message
    if opener.labels:
        for value, text in (("1", "1"), ("1.0", "1"), ("-2.5", "-2.5"), ("true", "true"), ('" x "', "x")):
            assert opener(".jsonl", f'{{"{first}": "a.png", "{second}": {value}}}\n') == [text]


def test_long_cells_and_wide_tables(tmp_path):
    """The length of a cell has no limit of its own; the time grows with the number of columns, not with its square."""
    import csv

    limit = csv.field_size_limit()
    long = "x " * 100_000 + 'y, "z"\nend'
    path = tmp_path / "a.csv"
    quoted = long.replace('"', '""')
    path.write_text(f'a,b\n"{quoted}",{"w" * 200_000}\n')
    assert open_pairs(path)[0] == {"source": long, "target": "w" * 200_000}
    assert csv.field_size_limit() == limit
    names = [f"c{number}" for number in range(10_000)]
    rows = [["text", "label", *names], *[["a", "b", *names]] * 2]
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        wide = tmp_path / f"wide{suffix}"
        wide.write_text("".join(separator.join(row) + "\n" for row in rows))
        assert len(open_labelled(wide)) == 2
        assert len(column_names(wide)) == 10_002
        with pytest.raises(DataError, match=r"there is no column 'c-1'; did you mean 'c\d+'\? .* and 9,982 more\)"):
            open_labelled(wide, "c-1")
    (tmp_path / "wide.jsonl").write_text(json.dumps(dict(zip(*rows[:2], strict=True))) + "\n")
    assert len(open_labelled(tmp_path / "wide.jsonl")) == 1


def test_parquet_columns_of_every_type_are_labels(tmp_path):
    path = tmp_path / "a.parquet"
    for labels, found in (
        ([1.0, 2.5], ["1", "2.5"]),
        ([True, False], ["true", "false"]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        ([1.0, float("inf")], "row 2, column 'label' must be text or a finite number; it is inf"),
        ([b"x", b"y"], "row 1, column 'label' must be text"),
        ([["x"], ["y"]], "row 1, column 'label' must be text"),
    ):
        pq.write_table(pa.table({"text": ["a", "b"], "label": labels, "more": [{"text": "z"}, {"text": "z"}]}), path)
        os.utime(path, ns=(0, time.monotonic_ns()))
        if isinstance(found, list):
            assert list(open_labelled(path)["target"]) == found
        else:
            with pytest.raises(DataError, match=found):
                open_labelled(path)


def test_boxes_of_objects(tmp_path):
    path = tmp_path / "a.jsonl"
    for edge in ("1" + "0" * 400, "1e400", "NaN", '"x"', "null", "-1"):
        path.write_text(
            f'{{"image": "a.png", "caption": "x", "objects": [{{"name": "a", "box": [0, 0, {edge}, 5]}}]}}\n'
        )
        with pytest.raises(DataError, match="line 1: an entry of 'objects' must have a name and a box"):
            captioned_images(path)
    path.write_text('{"image": "a.png", "captions": ["x"], "caption": "y"}\n')
    with pytest.raises(DataError, match="line 1: has 'captions' and 'caption'"):
        captioned_images(path)


@pytest.mark.parametrize("name", ["a\0.png", "a\nb.png", "x" * 100_000, "no/such.png", "a.png/b"])
def test_names_that_no_file_has(tmp_path, name):
    Image.fromarray(np.zeros((2, 3), np.uint8)).save(tmp_path / "a.png")
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"image": name, "caption": "x", "label": "x", "mask": "a.png"}) + "\n")
    for read in (
        lambda: pixel_table([row.picture for row in captioned_images(path)], (2, 2)),
        lambda: pixel_table([row.picture for row in labelled_images(path)], (2, 2)),
        lambda: open_masked(path),
    ):
        with pytest.raises(DataError, match=r"a\.jsonl: (line|row) 1") as refused:
            read()
        assert len(str(refused.value).splitlines()) == 1
        assert len(str(refused.value)) < 2100


def test_labels_that_are_none(caplog):
    assert Labels.of({"2", "10", "nan", "inf", "b"}, "data").names == ("2", "10", "b", "inf", "nan")
    assert "data: 'nan' is the label of a class" in caplog.text
    with pytest.raises(DataError, match="a label has 1,000,000 characters, at most 1,000 are possible"):
        Labels.of({"x" * 1_000_000, "y"}, "data")


FOLDERS = {
    "texts": (open_labelled, ".txt", lambda path: path.write_text("a text")),
    "images": (labelled_images, ".png", lambda path: Image.fromarray(np.zeros((2, 3), np.uint8)).save(path, "png")),
    "sounds": (open_utterances, ".wav", lambda path: path.write_bytes(b"RIFF")),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_files_that_a_folder_of_classes_leaves_out_are_counted(tmp_path, caplog, kind):
    open_folder, suffix, write = FOLDERS[kind]
    folder = tmp_path / "data"
    for label in ("a", "b"):
        (folder / label).mkdir(parents=True)
        write(folder / label / f"1{suffix}")
        write(folder / label / f"2{suffix.upper()}")
    with caplog.at_level(logging.WARNING, logger="regard"):
        assert len(list(open_folder(folder))) == 4
        assert not caplog.records
        (folder / "a" / f"3{suffix}").symlink_to("nowhere")
        (folder / "a" / f"4{suffix}").symlink_to(f"4{suffix}")
        (folder / "a" / f"5{suffix}").mkdir()
        (folder / "a" / "6.xyz").write_text("other")
        write(folder / "b" / f"._1{suffix}")
        (folder / ".hidden").mkdir()
        (folder / "README").write_text("no class")
        if kind != "images":  # an error there, since a class without an image is a mistake
            (folder / "empty").mkdir()
        assert len(list(open_folder(folder))) == 4
    count = 7 if kind == "images" else 8
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"{folder}: left out {counted(count, 'entry')} besides its {kind}: '.hidden', 'README'"
    )
    bad = os.fsencode(folder) + b"/a/\xe9" + os.fsencode(suffix)
    os.close(os.open(bad, os.O_CREAT | os.O_WRONLY))
    with pytest.raises(DataError, match="its name is not valid UTF-8; rename it"):
        open_folder(folder)


def test_files_that_other_folders_leave_out_are_counted(tmp_path, caplog):
    streets = tmp_path / "streets"
    for part in ("images", "labels"):
        (streets / part).mkdir(parents=True)
        Image.fromarray(np.zeros((2, 3), np.uint8)).save(streets / part / "1.PNG", "png")
        (streets / part / "2.png").symlink_to("nowhere")
        (streets / part / "._1.png").write_bytes(b"x")
    (streets / "images" / "notes.txt").write_text("x")
    books = tmp_path / "books"
    books.mkdir()
    (books / "one.TXT").write_text("text")
    (books / "two.txt").symlink_to("nowhere")
    with caplog.at_level(logging.WARNING, logger="regard"):
        assert len(open_masked(streets)) == 1
        assert text_files(books) == (books / "one.TXT",)
    assert [record.getMessage().split(":")[1] for record in caplog.records] == [
        " left out 5 entries besides its images", " left out 1 entry besides its text files",
    ]  # fmt: skip
    (books / "one.TXT").write_bytes("text".encode("utf-16-le"))
    with pytest.raises(DataError, match="is UTF-16"):
        list(text_blocks(books / "one.TXT"))
