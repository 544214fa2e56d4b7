"""Unknown words are shown as they are written, and copied by attention, whatever the tokenizer cuts text into."""

import pytest
import torch

from regard.data.text.piece_tokenizer import KINDS
from regard.data.text.tokenizers import Tokenizer
from regard.data.text.words import split_words
from regard.tasks.unknown_words import SourceText, copy_unknown, unknown_words_line

KNOWN = ["the cat sat on the mat .", "a dog and a cat , the boy's dog .", "el perro come (el pan) ."] * 3


@pytest.fixture(params=KINDS)
def tokenizer(request):
    return Tokenizer.train(KNOWN, request.param, 90)


def read(tokenizer, text):
    return SourceText.of(tokenizer, text, tokenizer.encode(text))


def attends(source, pairs, rows):
    """Weights of ``rows`` target tokens: target position → the source word that it attends to."""
    weights = torch.full((rows, len(source.pieces)), 1e-3)
    for row, word in pairs.items():
        for column in source.groups[source.words.index(word)]:
            weights[row, column] = 1.0
    return weights


@pytest.mark.parametrize(
    "text",
    [
        "ΩΨ the  zzz cat. 5Ω", "Ω", "the caΩt été e\u0301te\u0301 XΩ", " \u00a0ﬁx 漢字 cat漢",
        "<unk> İstanbul $x$ [red]",
        "😀 the שלום \u202eevil", "\ue000 the \ue000\ue000",
    ],
)  # fmt: skip
def test_every_piece_and_word_is_as_it_is_written(tokenizer, text):
    ids = tokenizer.encode(text)
    source = read(tokenizer, text)
    assert len(source.tokens) == len(source.pieces) == len(ids)
    assert [position for group in source.groups for position in group] == list(range(len(ids)))
    assert all(source.tokens)
    assert "<unk>" not in source.tokens
    assert all(word in text for word in (*source.words, *source.unknown, *source.pieces))
    assert not "".join(text.split()).replace("".join(source.words), "")
    if "İ" not in text:  # which is two letters in lower case
        assert "".join(source.pieces) == "".join(text.split())
    if tokenizer.kind != "word":  # this one cuts no word out of a run of letters
        assert source.words == split_words(text)
        known = {letter for line in KNOWN for letter in line}
        assert source.unknown == [word for word in source.words if not known.issuperset(word)]


def test_known_text_is_cut_as_ever(tokenizer):
    for text in KNOWN:
        ids, source = tokenizer.encode(text), read(tokenizer, text)
        assert source.tokens == tokenizer.tokens(ids) == tokenizer.tokens(ids, text)
        assert source.groups == tokenizer.word_groups(ids) == tokenizer.word_groups(ids, text)
        assert source.words == split_words(text)
        assert source.unknown == []


@pytest.mark.parametrize(
    ("target", "words", "expected"),
    [
        ("Ω el perro", {0: "Zürich"}, "Zürich el perro"),
        ("el perro Ω", {-1: "Zürich"}, "el perro Zürich"),
        ("Ω el Ω perro Ω", {0: "Zürich", "middle": "ЖЖ", -1: "the"}, "Zürich el ЖЖ perro the"),
        ("el (Ω) perro", {"middle": "Zürich"}, "el (Zürich) perro"),
        ("Ω", {0: "Zürich"}, "Zürich"),
    ],
)
def test_unknown_words_are_copied_wherever_they_stand(tokenizer, target, words, expected):
    source = read(tokenizer, "the Zürich ЖЖ cat")
    ids = tokenizer.encode(target)
    places = [place for place, id in enumerate(ids) if id == tokenizer.UNK]
    at = {0: places[0], -1: places[-1], "middle": places[len(places) // 2]}
    copied = copy_unknown(
        source, tokenizer, ids, attends(source, {at[where]: word for where, word in words.items()}, len(ids))
    )
    assert copied.text == expected
    assert len(copied.tokens) == len(ids)
    assert "<unk>" not in copied.tokens
    assert [position for group in copied.groups for position in group] == list(range(len(ids)))


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_a_run_of_unknown_pieces_is_one_word(kind):
    tokenizer = Tokenizer.train(KNOWN, kind, 90)
    source = read(tokenizer, "the Ωμέγα cat")
    ids = tokenizer.encode("el ΨΨΨ perro")
    weights = attends(source, {place: "Ωμέγα" for place, id in enumerate(ids) if id == tokenizer.UNK}, len(ids))
    copied = copy_unknown(source, tokenizer, ids, weights)
    assert copied.text == "el Ωμέγα perro"
    # Within a word that is known otherwise, only the piece is copied.
    source = read(tokenizer, "the caΩt")
    ids = tokenizer.encode("el peΨro")
    weights = torch.zeros(len(ids), len(source.pieces))
    weights[ids.index(tokenizer.UNK), source.pieces.index("Ω")] = 1.0
    assert copy_unknown(source, tokenizer, ids, weights).text == "el peΩro"


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_characters_that_are_words_are_copied_one_by_one(kind):
    tokenizer = Tokenizer.train(KNOWN, kind, 90)
    source = read(tokenizer, "the 漢字")
    ids = tokenizer.encode("el ΨΨ")
    first, second = (place for place, id in enumerate(ids) if id == tokenizer.UNK)
    copied = copy_unknown(source, tokenizer, ids, attends(source, {first: "漢", second: "字"}, len(ids)))
    assert copied.text == "el 漢字"


def test_unknown_words_are_named_in_one_line():
    assert unknown_words_line([], copied=False) is None
    line = unknown_words_line(["zzz", "a\nb\x1b[31m", "zzz", "\u202eevil", "x" * 5000], copied=False)
    assert line.startswith(r"not in the model's vocabulary: 'zzz', 'a↵b␛[31m', '\u202eevil', 'xxx")
    assert "--replace-unknown" in line
    assert len(line) < 300
    assert line.isprintable()
    many = unknown_words_line(map(str, range(100)), copied=True)
    assert many.endswith("'9' and 90 more")
