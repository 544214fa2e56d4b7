"""Pretrained word vectors: formats, mistakes in files, and the embeddings of every task that reads words."""

import gzip
import logging
import tracemalloc

import numpy as np
import pytest
import torch

from regard.data.text.tokenizers import TextTokenizer, Tokenizer
from regard.data.text.word_vectors import OtherDimensionError, read_word_vectors
from regard.errors import ArgumentError, DataError
from regard.tasks import registry
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder

IDS = {"the": [4, 7], "dog": [5], "." : [6]}  # fmt: skip
TRAIN = "train classify --bundled 40 --embedding 6 --hidden 8 --word-vectors v.txt --run x --threads 1 --device cpu"
GLOVE = "the 0.5 -1 2\ncat 1 1 1\n. 3 4 5e-1\n"


def read(path, content, ids=IDS, dim=3):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_word_vectors(path, ids, dim, 9)


@pytest.mark.parametrize(
    "content",
    [
        GLOVE,
        f"3 3\n{GLOVE}",
        GLOVE.replace("\n", " \n"),
        GLOVE.replace(" ", "\t").replace("\n", "\r\n"),
        f"{GLOVE}the 9 9 9\n\n",
        f". . . 1 2 3\n{GLOVE}",
        f"\ufeff{GLOVE}",
        f"\ufeff3 3\n{GLOVE}",
        f"in 2008 1 2 3\n{GLOVE}",
    ],
    ids=[
        *("glove", "word2vec", "spaces at the ends", "tabs", "twice", "words with spaces"),
        *("byte order mark", "byte order mark and header", "a word with a number"),
    ],
)
def test_word_vectors_of_every_format_are_read(tmp_path, content):
    found = read(tmp_path / "v.txt", content)
    assert (found.rows, found.words, found.bad_lines) == ([4, 6, 7], 2, 0)
    expected = [[0.5, -1, 2], [3, 4, 0.5], [0.5, -1, 2]]
    np.testing.assert_array_equal(found.vectors, np.array(expected, np.float32))


@pytest.mark.parametrize(
    ("content", "dim", "words"),
    [
        ("5 7\nthe 1\n", 1, {"5", "the"}),
        ("2 2\n5 1 2\nthe 1 2\n", 2, {"5", "the"}),
        ("in 2008 1 2\nthe 1 2\n", 2, {"the", "in 2008"}),
    ],
    ids=["no header", "header", "tie"],
)
def test_a_header_says_how_many_numbers_the_next_line_has(tmp_path, content, dim, words):
    found = read(tmp_path / "v.txt", content, {word: [number] for number, word in enumerate(sorted(words))}, dim)
    assert (found.words, found.bad_lines) == (2, 0)


def test_a_number_has_no_underscore(tmp_path):
    found = read(tmp_path / "v.txt", f"{GLOVE}dog 1 1_0 2\n")
    assert (found.words, found.bad_lines) == (2, 1)


def test_a_compressed_file(tmp_path):
    assert read(tmp_path / "v.vec.gz", gzip.compress(GLOVE.encode())).words == 2
    with pytest.raises(DataError, match="not a complete gzip file"):
        read(tmp_path / "v.vec.gz", gzip.compress(GLOVE.encode())[:-9])
    with pytest.raises(DataError, match="not a complete gzip file"):
        read(tmp_path / "v.vec.gz", GLOVE)


def test_bad_lines_are_counted(tmp_path, caplog):
    bad = "dog 1 2\ndog x 2 3\ndog nan 1 1\ndog 1e300 1 1\n"
    good = "".join(f"word{number} 1 2 3\n" for number in range(9))
    with caplog.at_level(logging.WARNING, "regard"):
        found = read(tmp_path / "v.txt", GLOVE + bad + good)
    assert (found.words, found.bad_lines) == (2, 4)
    assert "left out 4 lines without a vector of 3 finite numbers: 4, 5, 6, ..." in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a b\nc d\n" * 9, "line 1 is not a word and its 3 numbers, nor are 17 of the other lines"),
        (b"\x00\xff\x01 \xfe" * 99, "line 1 is not a word"),
        ("cat 1 2 3\n", r"none of the 3 words of the vocabulary among its 1 words"),
        ("", "none of the 3 words"),
        (b"x" * (2 << 20), "line 1 is longer than 1,048,576 bytes"),
    ],
    ids=["text", "binary", "another language", "empty", "one line"],
)
def test_files_that_cannot_be_used(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path / "v.txt", content)


@pytest.mark.parametrize("content", [GLOVE, "3 4\n", "the 1 2 3 4\n"])
def test_another_dimension_is_named(tmp_path, content):
    dim = 2 if content == GLOVE else 3
    with pytest.raises(OtherDimensionError, match=f"numbers, and the model embeds a word in {dim}") as raised:
        read(tmp_path / "v.txt", content, dim=dim)
    assert raised.value.dim == (3 if content == GLOVE else 4)


def test_a_file_that_does_not_exist_or_is_a_folder(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            read_word_vectors(path, IDS, 3, 9)


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Twenty times as many lines need no more memory."""
    peaks = []
    for lines in (2_000, 40_000):
        (tmp_path / "v.txt").write_text(GLOVE + "".join(f"w{number} 1.5 2.5 3.5\n" for number in range(lines)))
        tracemalloc.start()
        read_word_vectors(tmp_path / "v.txt", IDS, 3, 9)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 50_000, peaks


def test_the_words_of_tokenizers():
    sentences = Tokenizer.train(["the dog sees the dog"], "word", 50)
    ids = sentences.word_ids()
    assert set(ids) == {"the", "dog", "sees"}
    assert sentences.encode("sees the")[1] in ids["the"]
    text = TextTokenizer.train(["The dog. The dog.\n"], "word", 50)
    ids = text.word_ids()
    assert set(ids) == {"The", "dog", "."}
    assert len(ids["The"]) == 2, "with a space before it, and without"


RUNS = {
    "classify": ({"bundled": 30}, {"embedding": 6, "hidden": 8}, "embedding"),
    "classify-none": ({"bundled": 30}, {"architecture": "none", "embedding": 6}, "embedding"),
    "classify-transformer": ({"bundled": 30}, {"architecture": "transformer", "hidden": 6, "heads": 2}, "hidden"),
    "translate": ({"bundled": 30, "tokenizer": "word"}, {"embedding": 6, "hidden": 8}, "embedding"),
    "translate-transformer": (
        {"bundled": 30, "tokenizer": "word"}, {"architecture": "transformer", "hidden": 6, "heads": 2}, "hidden",
    ),
    "summarize": ({"bundled": 30, "min_count": 1}, {"embedding": 6, "hidden": 8}, "embedding"),
    "language": ({"bundled": 30, "tokenizer": "word"}, {"hidden": 6, "heads": 1, "layers": 1}, "hidden"),
}  # fmt: skip
"""Name → options of the data and of the model, and the option of the features of a word."""


def experiment(name, folder, vectors):
    task = registry.find(name.partition("-")[0])
    data, model, _ = RUNS[name]
    config = RunConfig(
        task.name, task.data_config(**data, word_vectors=str(vectors)), task.model_config(**model),
        task.training_config(),
    )  # fmt: skip
    folder.mkdir()
    (folder / "checkpoints").mkdir()
    (folder / "corpus").mkdir()
    return task.prepare(config, RunFolder(folder))


@pytest.mark.parametrize("name", RUNS)
def test_the_embeddings_start_from_the_vectors(name, tmp_path, own_cache):
    vectors = tmp_path / "vectors.txt"
    words = ("the", "The", "dog", ".", "a", "I", "and", "film")
    vectors.write_text("".join(f"{word} {' '.join([str(number)] * 6)}\n" for number, word in enumerate(words)))
    made = experiment(name, tmp_path / "run", vectors)
    tokenizer = made.task.read_tokenizer(made.files)
    ids = tokenizer.word_ids()
    found = [word for word in words if word in ids]
    assert found
    assert f"vectors for {len(found)} of {len(ids):,} words" in made.description
    embeddings, _ = made.task.word_embeddings(made.run, made.model)
    for embedding in embeddings:
        for word in found:
            for row in ids[word]:
                assert torch.equal(embedding.weight[row], torch.full((6,), float(words.index(word))))
        others = sorted({row for word in ids for row in ids[word]} - {row for word in found for row in ids[word]})
        assert (embedding.weight[others].std(1) > 0).all(), "other words have their random vectors"


@pytest.mark.parametrize("name", ["classify-transformer", "translate", "language"])
def test_the_option_of_another_dimension_is_named(name, tmp_path, own_cache):
    (tmp_path / "vectors.txt").write_text("the 1 2 3 4\n")
    with pytest.raises(ArgumentError, match=f"--word-vectors: .* give --{RUNS[name][2]} 4, or other vectors"):
        experiment(name, tmp_path / "run", tmp_path / "vectors.txt")


def test_only_words_have_vectors():
    with pytest.raises(ArgumentError, match="word_vectors needs tokenizer 'word'; it is 'bpe'"):
        registry.find("translate").data_config(bundled=3, word_vectors="v.txt")
    with pytest.raises(ArgumentError, match="word_vectors is empty"):
        registry.find("classify").data_config(bundled=3, word_vectors="")


def test_the_command_and_a_resumed_run(tmp_path, own_cache, run_command, monkeypatch):
    """The number of words is printed, and a resumed run does not need the file any more."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.cli.evaluate.evaluate_run", lambda *arguments, **options: None)
    (tmp_path / "v.txt").write_text("the 1 2 3 4 5 6\n")
    code, _, error = run_command(*TRAIN.split(), "--epochs", 1)
    assert code == 0, error
    assert "vectors for 1 of" in error
    assert "| word_vectors | v.txt |" in (tmp_path / "runs/x/README.md").read_text()
    (tmp_path / "v.txt").unlink()
    code, _, error = run_command("train", "classify", "--run", "x", "--resume", "--epochs", 2)
    assert code == 0, error
    code, _, error = run_command(*TRAIN.split(), "--overwrite")
    assert (code, "v.txt: cannot be read" in error) == (2, True), error
