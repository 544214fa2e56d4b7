"""Tokenizers of running text lose nothing, and other programs read their files."""

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from regard.data.text.piece_tokenizer import KINDS
from regard.data.text.tokenizers import TextTokenizer
from regard.errors import ArgumentError, DataError, RunError, UnknownNameError

TEXT = (
    "To be, or not to be:\nthat is the question.\r\n\n  Whether 'tis 1600 nobler\tin the mind <end> <unk> \n"
    "naïve e\u0301 日本語 🦊\u00a0x\u2028y ▁ ﬁ\n"
)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return TextTokenizer.train([TEXT] * 5, request.param, 400)


def test_the_text_it_was_learned_from_comes_back(tokenizer):
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert not {tokenizer.END, tokenizer.UNK} & set(ids)
    assert tokenizer.byte_lengths[ids].sum() == len(TEXT.encode())
    assert len(tokenizer.labels(ids)) == len(ids)
    assert tokenizer.unknown(TEXT) == []


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_sub_words_know_every_text(text):
    tokenizer = TextTokenizer.train([TEXT] * 5, "bpe", 400)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.byte_lengths[ids].sum() == len(text.encode())
    assert tokenizer.unknown(text) == []


@given(text=st.text(alphabet=[*sorted(set(TEXT)), "ñ", "\U0001f40d"]))
@pytest.mark.parametrize("kind", ["char", "word"])
def test_characters_are_kept_or_unknown(kind, text):
    tokenizer = TextTokenizer.train([TEXT], kind, 400)
    ids = tokenizer.encode(text)
    if tokenizer.UNK not in ids:
        assert tokenizer.decode(ids) == text
    if kind == "char":
        assert len(ids) == len(text)
        assert tokenizer.decode(ids) == "".join(one if one in TEXT else "⁇" for one in text)
        assert set(tokenizer.unknown(text)) == set(text) - set(TEXT)


@given(first=st.text(alphabet="ab \n\t1.é"), second=st.text(alphabet="ab \n\t1.é"))
@pytest.mark.parametrize("kind", KINDS)
def test_lines_can_be_encoded_one_by_one(kind, first, second):
    """So the ids of a file do not depend on the blocks that it is read in."""
    tokenizer = TextTokenizer.train(["ab ba  a.b 11 é\n\n\ta ab\n"] * 5, kind, 400)
    assert tokenizer.encode(f"{first}\n{second}") == tokenizer.encode(f"{first}\n") + tokenizer.encode(second)


def test_a_text_tokenizer_file_is_read_here_and_by_other_programs(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    again, other = TextTokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))
    text = TEXT + "unseen Ω words\n"
    assert again.fingerprint == tokenizer.fingerprint
    assert again.kind == tokenizer.kind
    assert again.encode(text) == tokenizer.encode(text) == other.encode(text).ids
    assert other.decode(tokenizer.encode(TEXT)) == TEXT


def test_labels_show_what_is_invisible():
    tokenizer = TextTokenizer.train(["a b\n\té"], "char")
    assert tokenizer.labels(tokenizer.encode("a\n\té?")) == ["a", "↵", "⇥", "é", "<unk>"]
    assert tokenizer.labels([tokenizer.END]) == ["<end>"]
    tokenizer = TextTokenizer.train(["aa aa aa"], "bpe", 300)
    assert tokenizer.labels(tokenizer.encode(" aaé")) == ["␣aa", "<C3>", "<A9>"]


def test_text_tokenizers_refuse_wrong_arguments(tokenizer):
    with pytest.raises(UnknownNameError, match="did you mean 'word'"):
        TextTokenizer.train([TEXT], "words")
    with pytest.raises(ArgumentError, match="size must be a whole number above 2"):
        TextTokenizer.train([TEXT], "word", 2)
    for kind in KINDS:
        with pytest.raises(DataError, match="too little text"):
            TextTokenizer.train([], kind)
    with pytest.raises(DataError, match="surrogate"):
        tokenizer.encode("a\udcff")
    for id in (-1, len(tokenizer)):
        with pytest.raises(ArgumentError, match="ids must be from 0"):
            tokenizer.decode([id])


def damaged(content):
    """Contents of a file that no tokenizer of running text has."""
    vocabulary = content["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.__getitem__)
    yield []
    yield {**content, "model": None}
    yield {**content, "normalizer": {"type": "NFC"}}
    yield {**content, "pre_tokenizer": {"pretokenizers": [{"pattern": {"Regex": "."}}]}}
    yield {**content, "model": {**content["model"], "type": "Unigram"}}
    yield {**content, "model": {**content["model"], "vocab": {**vocabulary, last: len(vocabulary)}}}
    yield {**content, "model": {**content["model"], "vocab": {**vocabulary, "<end>": 1, "<unk>": 0}}}
    yield {**content, "model": {**content["model"], "vocab": {"<end>": 0, "<unk>": 1}}}
    yield {**content, "model": {**content["model"], "merges": [["a", "☃"]]}}


def test_a_damaged_file_is_one_line(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    for content in damaged(json.loads(path.read_text())):
        path.write_text(json.dumps(content))
        with pytest.raises(RunError, match="is not a tokenizer of running text") as caught:
            TextTokenizer.load(path)
        assert "\n" not in str(caught.value)
    path.write_text("{")
    with pytest.raises(RunError, match="is not a tokenizer"):
        TextTokenizer.load(path)
    with pytest.raises(RunError, match="cannot be read"):
        TextTokenizer.load(tmp_path / "none.json")
