import json
import logging

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import column_roles, json_rows, records, tables
from regard.data.text import sources
from regard.data.text.sources import open_pairs
from regard.errors import ArgumentError, DataError

PAIRS = [("Hola.", "Hello."), ('Dijo "sí".', 'He said "yes".'), ("¿Qué, señor?", "What, sir?")]


def pairs_of(dataset):
    assert dataset.column_names == ["source", "target"]
    return list(zip(dataset["source"], dataset["target"], strict=True))


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def written(folder, kind):
    path = folder / f"pairs.{kind}"
    if kind == "tsv":
        return write(path, "eng\tspa\n" + "".join(f"{e}\t{s}\n" for s, e in PAIRS))
    if kind == "csv":
        quoted = [[side.replace('"', '""') for side in pair] for pair in PAIRS]
        return write(path, "eng,spa\n" + "".join(f'"{e}","{s}"\n' for s, e in quoted))
    records = [{"eng": e, "spa": s, "id": i} for i, (s, e) in enumerate(PAIRS)]
    if kind == "jsonl":
        return write(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    if kind == "json":
        return write(path, json.dumps(records, indent=1))
    pq.write_table(pa.Table.from_pylist(records), path, row_group_size=2)
    return path


def error_of(*arguments, **options):
    with pytest.raises(DataError) as caught:
        open_pairs(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("kind", tables.READERS)
def test_every_kind_of_file_gives_the_same_pairs(tmp_path, kind):
    path = written(tmp_path, kind[1:])
    assert pairs_of(open_pairs(path, "spa", "eng")) == PAIRS
    assert pairs_of(open_pairs(str(path), "eng", "spa")) == [(e, s) for s, e in PAIRS]


def test_pairs_are_memory_mapped_and_read_once(tmp_path, own_cache, monkeypatch):
    path = written(tmp_path, "tsv")
    dataset = open_pairs(path, "spa", "eng")
    assert isinstance(dataset.data, datasets.table.MemoryMappedTable)
    assert [file["filename"].startswith(str(own_cache)) for file in dataset.cache_files] == [True]
    monkeypatch.setitem(tables.READERS, ".tsv", lambda *_: pytest.fail("read again"))
    assert pairs_of(open_pairs(path, "spa", "eng")) == PAIRS


def test_a_changed_file_is_read_again(tmp_path):
    path = written(tmp_path, "tsv")
    open_pairs(path, "spa", "eng")
    write(path, "eng\tspa\nNew.\tNuevo.\n")
    assert pairs_of(open_pairs(path, "spa", "eng")) == [("Nuevo.", "New.")]


def test_aligned_text_files(tmp_path):
    source = write(tmp_path / "a.es", "uno\ndos\ntres")
    target = write(tmp_path / "a.en", "one\r\ntwo\r\nthree\r\n")
    expected = [("uno", "one"), ("dos", "two"), ("tres", "three")]
    assert pairs_of(open_pairs((source, target))) == expected
    assert pairs_of(open_pairs(f"{source},{target}")) == expected


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json"])
def test_byte_order_mark_and_windows_line_ends(tmp_path, kind):
    path = written(tmp_path, kind)
    write(path, b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert pairs_of(open_pairs(path, "spa", "eng")) == PAIRS


def test_a_quotation_mark_in_tsv_is_a_character(tmp_path):
    path = write(tmp_path / "a.tsv", 'a\tb\n"open\tthe "door"\n""\t"\n')
    assert pairs_of(open_pairs(path, "a", "b")) == [('"open', 'the "door"'), ('""', '"')]


def test_a_quoted_csv_field_holds_commas_and_lines(tmp_path):
    path = write(tmp_path / "a.csv", 'a,b\n"one, two","line\nline"\n')
    assert pairs_of(open_pairs(path, "a", "b")) == [("one, two", "line\nline")]


def test_only_line_feeds_end_lines(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tb\none\u2028two\x85three\x0cfour\tx\n")
    assert pairs_of(open_pairs(path, "a", "b")) == [("one\u2028two\x85three\x0cfour", "x")]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_columns_inside_objects(tmp_path, kind):
    records = [{"translation": {"de": "Ja", "en": "Yes"}}]
    path = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        write(path, json.dumps(records[0]))
    else:
        pq.write_table(pa.Table.from_pylist(records), path)
    assert pairs_of(open_pairs(path, "translation.de", "translation.en")) == [("Ja", "Yes")]


def test_two_columns_need_no_names(tmp_path):
    assert pairs_of(open_pairs(written(tmp_path, "tsv"))) == [(e, s) for s, e in PAIRS]


def test_lowercase_and_limit(tmp_path):
    path = written(tmp_path, "tsv")
    assert pairs_of(open_pairs(path, "spa", "eng", lowercase=True, limit=2)) == [
        (s.lower(), e.lower()) for s, e in PAIRS[:2]
    ]


def test_empty_sides_are_left_out_and_counted(tmp_path, caplog):
    path = write(tmp_path / "a.tsv", "a\tb\nx\ty\n \tz\nz\t\n\nu\tv\n")
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="regard"):
            assert pairs_of(open_pairs(path, "a", "b")) == [("x", "y"), ("u", "v")]
        assert [record.getMessage() for record in caplog.records] == [
            f"{path}: left out 2 rows (1 without 'a', 1 without 'b'): line 3, line 4; 2 are left"
        ]


def test_rows_that_are_left_out_are_counted_for_each_side(tmp_path, caplog):
    rows = ["x\ty", *[" \tz"] * 4, *["z\t"] * 2, "\t", "u\tv"]
    path = write(tmp_path / "a.tsv", "本文\tカテゴリ\n" + "\n".join(rows) + "\n")
    one, other = write(tmp_path / "a.de", "a\n\nb\n"), write(tmp_path / "a.en", "a\nb\nc\n")
    with caplog.at_level(logging.WARNING, logger="regard"):
        assert len(open_pairs(path, "本文", "カテゴリ")) == len(open_pairs((one, other))) == 2
    counts = "4 without '本文', 2 without 'カテゴリ', 1 without '本文' and 'カテゴリ'"
    assert caplog.messages == [
        f"{path}: left out 7 rows ({counts}): line 3, line 4, line 5, ...; 2 are left",
        f"{one} and {other}: left out 1 row without {str(one)!r}: line 2; 2 are left",
    ]


def test_a_json_array_larger_than_one_read(tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "CHUNK", 7)
    rows = [{"a": f"ñandú {i}", "b": "é" * i + "."} for i in range(23)]
    path = write(tmp_path / "a.json", json.dumps(rows, ensure_ascii=False))
    assert pairs_of(open_pairs(path, "a", "b")) == [(r["a"], r["b"]) for r in rows]


FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\ufeff"), max_size=11)


@given(st.lists(st.tuples(FIELD, FIELD), max_size=7))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_out_of_tsv_as_it_went_in(tmp_path, pairs):
    path = write(tmp_path / "a.tsv", "a\tb\nfirst\tpair\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    kept = [(a.strip(), b.strip()) for a, b in pairs if a.strip() and b.strip()]
    assert pairs_of(open_pairs(path, "a", "b")) == [("first", "pair"), *kept]


class TestMessages:
    def test_a_missing_file_of_pairs_is_named(self, tmp_path):
        path = tmp_path / "none.tsv"
        assert error_of(path, "a", "b") == f"{path}: no such file; check the path"

    def test_a_folder_in_place_of_pairs_is_named(self, tmp_path):
        assert error_of(tmp_path, "a", "b") == f"{tmp_path}: is a folder; name the file inside it"

    @pytest.mark.parametrize("kind", tables.READERS)
    def test_an_empty_file_of_pairs_is_named(self, tmp_path, kind):
        path = write(tmp_path / f"a{kind}", "")
        assert error_of(path, "a", "b") == f"{path}: the file is empty; it should hold sentences"

    @pytest.mark.parametrize("content", ["a\tb\n", "a\tb\n \t \n", "a\tb\n\n\n"])
    def test_pairs_without_a_sentence_are_refused(self, tmp_path, content):
        path = write(tmp_path / "a.tsv", content)
        assert error_of(path, "a", "b") == f"{path}: no row has text on both sides; check the columns and the file"

    @pytest.mark.parametrize("kind", tables.READERS)
    def test_a_wrong_column_of_pairs_gets_a_suggestion(self, tmp_path, kind):
        message = error_of(written(tmp_path, kind[1:]), "spa", "englisch")
        assert "there is no column 'englisch'; did you mean 'eng'? (columns: 'eng', 'spa'" in message

    def test_columns_not_named(self, tmp_path):
        path = write(tmp_path / "a.tsv", "a\tb\tc\nx\ty\tz\n")
        said = "say with --source-column which column has the sources and with --target-column which column has"
        assert error_of(path).startswith(f"{path}: {said} the targets (columns: 'a', 'b', 'c')")
        articles = error_of(path, roles=(column_roles.ARTICLE, column_roles.SUMMARY))
        assert "say with --article-column which column has the articles and with --summary-column" in articles

    def test_a_column_of_pairs_that_occurs_twice_is_refused(self, tmp_path):
        path = write(tmp_path / "a.tsv", "a\tb\ta\nx\ty\tz\n")
        assert "two columns are called 'a'" in error_of(path, "a", "b")

    def test_pairs_of_files_with_unequal_line_counts_are_refused(self, tmp_path):
        source, target = write(tmp_path / "a.es", "uno\ndos\n"), write(tmp_path / "a.en", "one\ntwo\nthree")
        assert error_of((source, target)).startswith(f"{source} has 2 lines and {target} has 3; line n of one must")

    @pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json"])
    def test_invalid_utf8_in_pairs_is_named(self, tmp_path, kind):
        path = written(tmp_path, kind)
        content = path.read_bytes()
        if kind == "json":
            content = content.decode("unicode_escape").encode()
        spot = content.index(b"Dijo")
        write(path, content[:spot] + b"\xff" + content[spot + 1 :])
        line = content[:spot].count(b"\n") + 1
        assert error_of(path, "spa", "eng") == (
            f"{path}: line {line} is not valid UTF-8 (byte 0xFF at offset {spot} of the file); "
            "save or convert the file as UTF-8"
        )

    def test_invalid_utf8_in_aligned_files(self, tmp_path):
        source, target = write(tmp_path / "a.es", b"uno\nd\xf3s\n"), write(tmp_path / "a.en", "one\ntwo\n")
        assert f"{source}: line 2 is not valid UTF-8 (byte 0xF3 at offset 5" in error_of((source, target))

    def test_invalid_utf8_in_parquet(self, tmp_path):
        text = pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"a": text, "b": ["x", "y"]}), path)
        assert error_of(path, "a", "b").startswith(f"{path}: column 'a' is not valid UTF-8 between rows 1 and 2")

    def test_a_damaged_parquet_file_of_pairs_is_named(self, tmp_path):
        path = write(tmp_path / "a.parquet", "no parquet at all")
        assert error_of(path, "a", "b").startswith(f"{path}: is not a Parquet file, or is damaged")

    @pytest.mark.parametrize(("fields", "said"), [("x", "1 field"), ("x\ty\tz", "3 fields")])
    def test_wrong_number_of_fields(self, tmp_path, fields, said):
        path = write(tmp_path / "a.tsv", f"a\tb\nx\ty\n{fields}\n")
        assert error_of(path, "a", "b") == (
            f"{path}: line 3 has {said} where the header has 2 (a, b); correct or remove that line"
        )

    def test_open_quotation_in_csv(self, tmp_path):
        path = write(tmp_path / "a.csv", 'a,b\nx,y\n"open,y\n')
        assert error_of(path, "a", "b").startswith(f"{path}: line 3 is not CSV")

    def test_wrong_lines_of_jsonl_pairs_are_named(self, tmp_path):
        path = write(tmp_path / "a.jsonl", '{"a": "x", "b": "y"}\n{"a": "x"\n')
        assert error_of(path, "a", "b").startswith(f"{path}: line 2 is not JSON")
        write(path, '{"a": "x", "b": "y"}\n{"a": "x", "b": 3}\n')
        assert error_of(path, "a", "b") == f"{path}: line 2, column 'b' must be text; it is a number"
        write(path, '{"a": "x", "b": "\\ud800"}\n')
        assert error_of(path, "a", "b").startswith(f"{path}: line 1, column 'b' holds half a surrogate pair")
        write(path, '"just text"\n')
        assert error_of(path, "a", "b").startswith(f"{path}: line 1 must be a JSON object")
        write(path, "[" * 100_000)
        assert "is not JSON" in error_of(path, "a", "b")

    def test_unfinished_json_array(self, tmp_path):
        path = write(tmp_path / "a.json", '[{"a": "x", "b": "y"}, {"a": ')
        assert error_of(path, "a", "b").startswith(f"{path}: object 2 of the array is not JSON")

    def test_an_unknown_kind_of_file_of_pairs_is_named(self, tmp_path):
        path = write(tmp_path / "a.docx", "x")
        assert error_of(path).startswith(f"{path}: unknown kind of file '.docx'; give .tsv, .csv")

    def test_a_line_without_end(self, tmp_path, monkeypatch):
        monkeypatch.setattr(records, "LONGEST_LINE", 32)
        path = write(tmp_path / "a.tsv", "a\tb\n" + "x" * 50)
        assert "line 2 is longer than 16 MiB" in error_of(path, "a", "b")

    def test_split_and_limit(self, tmp_path):
        path = written(tmp_path, "tsv")
        with pytest.raises(ArgumentError, match="split belongs to Hugging Face data sets"):
            open_pairs(path, "spa", "eng", split="train")
        for limit in (0, -1, True, 2.0):
            with pytest.raises(ArgumentError, match="limit must be a whole number of at least 1"):
                open_pairs(path, "spa", "eng", limit=limit)

    def test_nothing_is_left_in_the_cache_by_a_failure(self, tmp_path, own_cache):
        error_of(write(tmp_path / "a.tsv", "a\tb\nx\n"), "a", "b")
        assert list((own_cache / "regard").iterdir()) == []


class TestHub:
    def test_rows_of_a_named_data_set(self, monkeypatch):
        asked = []

        def load_dataset(path, name=None, *, split):
            asked.append((path, name, split))
            return datasets.Dataset.from_list([{"translation": {"de": "Ja", "en": "Yes"}}] * 3)

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        dataset = open_pairs("owner/name:de-en", "translation.de", "translation.en", split="test", limit=2)
        assert pairs_of(dataset) == [("Ja", "Yes")] * 2
        assert asked == [("owner/name", "de-en", "test")]

    def test_a_failure_is_one_line(self, monkeypatch):
        def load_dataset(*_, **__):
            raise RuntimeError("no network\nand more")

        monkeypatch.setattr(sources, "_hub_answers", lambda: True)
        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        message = error_of("owner/name", "a", "b")
        assert message.startswith("owner/name: no such file, and no Hugging Face data set of that name could be loaded")
        assert message.endswith("no network; check the path or the name")

    def test_a_missing_file_is_not_looked_up(self, monkeypatch):
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("asked the hub"))
        for name in ("data/train.tsv", "train.jsonl", "./train", "/none/train"):
            assert "no such file" in error_of(name, "a", "b")
