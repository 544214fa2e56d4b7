"""A file of predictions is continued where it was stopped, and where it was damaged."""

import csv
import json
from dataclasses import dataclass

import pytest

from regard.cli.prediction_file import PredictionFile
from regard.errors import ArgumentError
from regard.training.results import TextAnswer

SOURCES = ['The dog "sleeps", sir.', "", "She\treads.\r\nShe rests.\n", "He\treads.", "é"]
ROWS = [1, 2, 4, 5, 7]


@dataclass(frozen=True, repr=False)
class Answer(TextAnswer):
    source: str
    text: str

    def details(self):
        return {"length": len(self.text)}


def predicted(number, n_best):
    best, *others = (Answer(SOURCES[number], f'{SOURCES[number][:4]}, "{rank}"\t{number}') for rank in range(n_best))
    return best.followed_by(others)


def written(path, n_best, block=1, complete=True):
    """Writes what is missing, a block after the other; gives the file."""
    file = PredictionFile(path, SOURCES, {}, ROWS, ranked=n_best > 1, block=block)
    for first in range(file.done, len(SOURCES), block):
        file.append([predicted(number, n_best) for number in range(first, min(first + block, len(SOURCES)))])
    if complete:
        file.complete()
    return file


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
@pytest.mark.parametrize("n_best", [1, 2, 3])
@pytest.mark.parametrize("block", [1, 2])
def test_a_damaged_file_is_made_again_from_there_on(tmp_path, suffix, n_best, block):
    path = tmp_path / f"a{suffix}"
    part = written(path, n_best, block, complete=False).part
    lines = part.read_bytes().splitlines(keepends=True)
    written(path, n_best, block)
    expected = path.read_bytes()
    assert not part.exists()
    for number in range(1, len(lines)):
        for damage in (b"", b"\n", b"\xff\xfe\n", b"{}\n", b"[1]\n", b"3\n", b'{"rank": "x", "input": 3}\n',
                       b"[" * 99_999 + b"\n", b"1\t2\t3\n", b'"open\n', lines[number][:3], lines[number] * 3,
                       lines[number][:-1] + b"\x00\n", lines[number][::-1] + b"\n"):  # fmt: skip
            if not damage and n_best > 1:
                continue  # an input may have fewer different answers
            part.write_bytes(b"".join([*lines[:number], damage, *lines[number + 1 :]]))
            written(path, n_best, block)
            if not damage.endswith(b"\x00\n"):  # the text of an answer cannot be checked
                assert path.read_bytes().count(b"\n") == expected.count(b"\n"), (number, damage)
            assert not part.exists()
    part.write_bytes(b"\xff" + b"".join(lines))
    with pytest.raises(ArgumentError, match="holds predictions of other inputs"):
        written(path, n_best, block)


@pytest.mark.parametrize("n_best", [1, 2])
def test_every_form_has_the_same_answers(tmp_path, n_best):
    for suffix in (".tsv", ".csv", ".jsonl"):
        written(tmp_path / f"a{suffix}", n_best)
    objects = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    head, *raw = (tmp_path / "a.tsv").read_bytes().decode().removesuffix("\n").split("\n")
    assert [one["input"] for one in objects[::n_best]] == SOURCES
    assert [one["row"] for one in objects[::n_best]] == ROWS
    for one, row, line in zip(objects, table, raw, strict=True):
        assert {name: str(one[name]) for name in row} == row
        joined = {name: " ".join(text.split()) for name, text in row.items()}
        assert dict(zip(head.split("\t"), line.split("\t"), strict=True)) == joined
