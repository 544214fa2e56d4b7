"""The bundled text: paragraphs of sentences, the same ones each time."""

import itertools
import re

import pytest

from regard.data.text import generated
from regard.data.text.generated import write_text
from regard.errors import ArgumentError, DataError

SIZES = {"train": 400, "validation": 60, "test": 50}


def sentences(path):
    return re.split(r"(?<=[.?])\s+", path.read_text().strip())


def test_parts_of_generated_text_are_paragraphs_and_share_no_sentence(tmp_path):
    files = write_text(tmp_path / "new", SIZES, 3)
    found = {part: sentences(files[part]) for part in SIZES}
    assert {part: len(of_part) for part, of_part in found.items()} == SIZES
    assert not set(found["train"]) & (set(found["validation"]) | set(found["test"]))
    assert len({*found["validation"], *found["test"]}) == 110
    text = files["train"].read_text()
    assert text.endswith((".\n", "?\n"))
    paragraphs = text.strip().split("\n\n")
    assert all("\n" not in paragraph for paragraph in paragraphs)
    assert len({len(re.split(r"(?<=[.?]) ", paragraph)) for paragraph in paragraphs[:-1]}) == 6


def test_a_sentence_that_comes_again_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(
        generated, "english_sentences", lambda seed: (f"Number {7 * n % 90}." for n in itertools.count())
    )
    files = write_text(tmp_path, {"train": 150, "validation": 20, "test": 10}, 3)
    found = {part: sentences(file) for part, file in files.items()}
    assert len({*found["validation"], *found["test"]}) == 30
    assert set(found["train"]) == {f"Number {n}." for n in range(90)} - {*found["validation"], *found["test"]}


def test_the_test_part_does_not_depend_on_the_size_of_the_others(tmp_path):
    first = write_text(tmp_path / "a", SIZES, 3)
    second = write_text(tmp_path / "b", {"validation": 60, "test": 50}, 3)
    third = write_text(tmp_path / "c", SIZES, 4)
    assert first["test"].read_bytes() == second["test"].read_bytes() != third["test"].read_bytes()


def test_generated_text_refuses_wrong_arguments(tmp_path):
    with pytest.raises(ArgumentError, match="size of 'train' must be at least 0"):
        write_text(tmp_path, {"train": -1}, 3)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_text(tmp_path / "file", SIZES, 3)
