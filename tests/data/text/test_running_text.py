"""Running text is read as it is, whatever its size, and what cannot be read is named."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.data.text import running_text
from regard.data.text.running_text import text_blocks, text_files
from regard.errors import DataError

HARD = "a\r\nb\rc\n\n\t  d \x0b\x0c e\u2028f\u0301g 日本 🦊\x00<end>\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 16])
def test_every_character_is_kept(tmp_path, monkeypatch, size):
    monkeypatch.setattr(running_text, "_LONGEST_PIECE", size)
    monkeypatch.setattr(running_text, "_BLOCK", 2 * size)
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + (HARD * 5).encode())
    blocks = list(text_blocks(path))
    assert "".join(blocks) == HARD * 5
    assert all(blocks)
    assert len(blocks) == 1 if size == 1 << 16 else len(blocks) > 5


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(
        lambda text: not text.startswith("\ufeff")
    )
)
@example("a zero \0 as a rare control character")  # many zeros are those of UTF-16
def test_any_text_is_kept(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(text.encode())
    assert "".join(text_blocks(path)) == text
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert "".join(text_blocks(path)) == text


@pytest.mark.parametrize("content", [b"good\nbad \xe9 byte\n", b"good\nbad \xe9", b"good\nbad \xe6\x97"])
@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_invalid_utf8_is_named_by_line_and_offset(tmp_path, monkeypatch, content, size):
    monkeypatch.setattr(running_text, "_LONGEST_PIECE", size)
    path = tmp_path / "latin.txt"
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"latin\.txt: line 2 is not valid UTF-8 \(byte 0xE.* at offset 9 of the file\)"
    ):
        list(text_blocks(path))


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a.txt", "below/c.txt", "d.md", "e,f.txt"):
        path = tmp_path / "books" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(name)
    return tmp_path / "books"


def names(source, folder):
    return [str(path.relative_to(folder)) for path in text_files(source)]


def test_files_are_named_in_many_ways(folder):
    assert names(f"{folder}/b.txt", folder) == ["b.txt"]
    assert names(f"{folder}/b.txt, {folder}/a.txt", folder) == ["b.txt", "a.txt"]
    assert names(folder, folder) == ["a.txt", "b.txt", "below/c.txt", "e,f.txt"]
    assert names(f"{folder}/*.md,{folder}/below", folder) == ["d.md", "below/c.txt"]
    assert names(f"{folder}/**/*.txt", folder) == ["a.txt", "b.txt", "below/c.txt", "e,f.txt"]
    assert names(f"{folder}/e,f.txt", folder) == ["e,f.txt"]
    assert names([folder / "d.md", folder / "a.txt"], folder) == ["d.md", "a.txt"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{folder}/none.txt", "none.txt: no such file"),
        ("{folder}/a.txt,{folder}/none.txt", "none.txt: no such file"),
        ("{folder}/*.tex", "no file fits this pattern"),
        ("{folder}/a.txt,{folder}/*.txt", "a.txt: the file is named twice"),
        ("{folder}/a.txt,", "'' is not the name of a file"),
        ("https://example.org/a.txt", "web addresses are not read"),
        ("x" * 5000, "cannot be read"),
        ("a\0b", "is not the name of a file"),
        ([], "no text file is named"),
    ],
)
def test_a_source_without_text_files_is_one_line(folder, source, message):
    with pytest.raises(DataError, match=message) as caught:
        text_files(source.format(folder=folder) if isinstance(source, str) else source)
    assert "\n" not in str(caught.value)


def test_a_folder_without_text_names_a_way_out(tmp_path):
    with pytest.raises(DataError, match=r"has no \.txt files; give a pattern"):
        text_files(tmp_path)
