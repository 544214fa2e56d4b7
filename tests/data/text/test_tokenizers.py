import itertools
import json
import os
import pickle
import stat

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.text.piece_tokenizer import KINDS
from regard.data.text.tokenizers import Tokenizer
from regard.data.text.words import split_words
from regard.errors import ArgumentError, DataError, RunError, UnknownNameError

TEXTS = [
    "The boy's dog sees the cat, and the cat sleeps.",
    "¿Dónde está la niña? ¡Aquí! Son las 12:35 y «nada».",
    "我喜欢喝茶。彼は本を読む。",
    "كيف حالك اليوم؟ الكتابُ جميل.",
    "हिन्दी में नमस्ते e\u0301te\u0301 q\u0323\u0307 👩\u200d👩\u200d👧",
    "two  spaces\u00a0and\ta tab, f(x)=_y_; don’t <bos> <unk> '' \"q\" --",
]
CHARACTERS = sorted(set("".join(TEXTS)))


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return Tokenizer.train(TEXTS * 3, request.param, 300)


@pytest.fixture(scope="module", params=["bpe", "char"])
def open_tokenizer(request):
    """A tokenizer that knows every text made of the characters it has seen."""
    return Tokenizer.train([*TEXTS, " ".join(CHARACTERS)], request.param, 300)


def test_decoding_inverts_encoding_of_seen_texts(tokenizer):
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert tokenizer.UNK not in ids
        assert tokenizer.decode(ids) == tokenizer.normalize(text)


def test_normalization_is_nfc_and_single_spaces(tokenizer):
    assert tokenizer.normalize("  e\u0301  a\u00a0\n\u3000b\x1cc\x85") == "é a b c"


@given(st.text(st.sampled_from(CHARACTERS), max_size=31))
@settings(max_examples=200, deadline=None)
def test_any_text_of_seen_characters_comes_back(open_tokenizer, text):
    normal = open_tokenizer.normalize(text)
    # NFC may make a character that was never seen out of two that were.
    if set(normal) <= {*CHARACTERS, *open_tokenizer.normalize(" ".join(TEXTS))}:
        assert open_tokenizer.decode(open_tokenizer.encode(text)) == normal


@given(st.text(max_size=31))
@settings(max_examples=200, deadline=None)
def test_any_text_gets_ids_in_range_and_groups_that_cover_it(tokenizer, text):
    ids = tokenizer.encode(text)
    assert all(tokenizer.EOS < id < len(tokenizer) for id in ids)
    groups = tokenizer.word_groups(ids)
    assert [position for group in groups for position in group] == list(range(len(ids)))
    assert all(len(group) > 0 for group in groups)
    assert len(tokenizer.words(ids)) == len(groups)
    assert len(tokenizer.tokens(ids)) == len(ids)
    assert all(tokenizer.tokens(ids))


@given(st.lists(st.integers(0, 100), max_size=13))
@settings(max_examples=100, deadline=None)
def test_any_ids_decode_and_group(tokenizer, ids):
    ids = [id % len(tokenizer) for id in ids]
    tokenizer.decode(ids)
    groups = tokenizer.word_groups(ids)
    assert [position for group in groups for position in group] == list(range(len(ids)))
    assert all(len(group) == 1 for group in groups if ids[group.start] <= tokenizer.UNK)


def test_batches_encode_like_single_texts(tokenizer):
    assert tokenizer.encode_batch(TEXTS) == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.encode_batch([]) == []


def test_groups_are_the_words_of_the_text():
    text = "The boy's dog. ¿Dónde está, señor? 12,5 'so'"
    for kind in KINDS:
        tokenizer = Tokenizer.train([text, *TEXTS], kind, 400)
        assert tokenizer.words(tokenizer.encode(text)) == split_words(text)


def test_sub_words_merge():
    tokenizer = Tokenizer("bpe", False, ["<pad>", "<bos>", "<eos>", "<unk>", "▁un", "▁", "a", "b", ",", "ab", "▁x"], [])
    ids = [1, 4, 9, 6, 8, 5, 7, 10, 3, 6, 2, 0]
    assert [(g.start, g.stop) for g in tokenizer.word_groups(ids)] == [
        (0, 1), (1, 4), (4, 5), (5, 7), (7, 8), (8, 9), (9, 10), (10, 11), (11, 12)
    ]  # fmt: skip
    assert tokenizer.words(ids) == ["<bos>", "unaba", ",", "b", "x", "<unk>", "a", "<eos>", "<pad>"]
    assert tokenizer.tokens(ids) == ["<bos>", "un", "·ab", "·a", ",", "␣", "·b", "x", "<unk>", "a", "<eos>", "<pad>"]
    assert tokenizer.decode(ids) == "unaba, b x⁇a"
    assert tokenizer.decode(ids, unknown="") == "unaba, b xa"


MARKED = "क़ुा वुरारु e\u0301\u0323 q\u0307\u0323 \u0344 \u1100\u1161ㅏ İX Å ▁ שּׁ สวัสดี ﬁ ｆ\u3000\u00a0 क्षि"
"""Letters with marks that the normalization joins, reorders, takes apart or leaves alone, and several spaces."""


@given(text=st.text(st.sampled_from([*sorted(set(MARKED)), "a", "́"]), max_size=13), lowercase=st.booleans())
@settings(max_examples=200, deadline=None)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seen", ["a b", MARKED])
def test_the_spans_of_a_text_follow_each_other_and_miss_no_character(kind, seen, text, lowercase):
    tokenizer = Tokenizer.train([seen] * 2, kind, 300, lowercase)
    ids, spans, written = tokenizer.encode(text), tokenizer.spans(text), tokenizer.written(text)
    assert len(spans) == len(written) == len(ids)
    assert all(before.stop <= after.start for before, after in itertools.pairwise(spans))
    visible = [position for position, letter in enumerate(text) if not letter.isspace() and letter != "▁"]
    assert [position for span in spans for position in span] == visible
    assert "".join(written) == tokenizer.normalize(text).replace(" ", "")
    for id, piece in zip(ids, written, strict=True):
        assert id == tokenizer.UNK or tokenizer.decode([id]) == piece
    groups = tokenizer.word_groups(ids, text)
    assert [position for group in groups for position in group] == list(range(len(ids)))


def test_a_mark_belongs_to_its_own_piece_or_to_the_letter_that_it_was_composed_with():
    tokenizer = Tokenizer.train(["abc"], "char")
    assert tokenizer.spans("वुरा") == [range(1), range(1, 2), range(2, 3), range(3, 4)]
    assert tokenizer.spans("e\u0301o") == [range(2), range(2, 3)]
    assert tokenizer.spans("\u1100\u1161 \u0958o") == [range(2), range(3, 3), range(3, 4), range(4, 4), range(4, 5)]
    assert tokenizer.tokens(tokenizer.encode("वु\u0958"), "वु\u0958") == ["व", "◌ु", "\u0958", "◌\u093c"]


def test_each_han_character_is_a_word():
    tokenizer = Tokenizer.train(["我喜欢茶"] * 2, "char")
    assert tokenizer.words(tokenizer.encode("我喜欢茶")) == list("我喜欢茶")


def test_a_lone_mark_has_a_circle_to_sit_on():
    tokenizer = Tokenizer.train(["q\u0323"], "char")
    assert tokenizer.tokens(tokenizer.encode("q\u0323")) == ["q", "◌\u0323"]


def test_text_that_spells_a_special_piece_stays_text(tokenizer):
    ids = tokenizer.encode("<bos> <eos> <pad> <unk>")
    assert not set(ids) & {tokenizer.PAD, tokenizer.BOS, tokenizer.EOS}


def test_the_mode_of_a_file_follows_the_umask(tokenizer, tmp_path):
    before = os.umask(0o022)
    try:
        tokenizer.save(tmp_path / "a.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_white_space_has_no_tokens(tokenizer):
    assert tokenizer.encode("") == tokenizer.encode(" \t\u00a0\n") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.word_groups([]) == tokenizer.words([]) == tokenizer.tokens([]) == []


def test_a_lowercase_tokenizer_lowers_its_texts():
    for kind in KINDS:
        tokenizer = Tokenizer.train(["Él Ve"], kind, 300, lowercase=True)
        assert tokenizer.decode(tokenizer.encode("ÉL VE")) == "él ve"


def test_a_tokenizer_has_the_chosen_size():
    words = ["one two two three three three"] * 2
    assert len(Tokenizer.train(words, "word", 6)) == 6
    assert Tokenizer.train(words, "word", 6).decode([4, 5]) == "three two"
    assert len(Tokenizer.train(TEXTS * 9, "bpe", 180)) == 180
    # every character is kept, however small the vocabulary was to be
    for kind in ("bpe", "char"):
        small = Tokenizer.train(TEXTS, kind, 5)
        assert small.UNK not in small.encode(TEXTS[2])


def test_training_is_deterministic(tokenizer):
    assert Tokenizer.train(iter(TEXTS * 3), tokenizer.kind, 300).fingerprint == tokenizer.fingerprint


def test_saved_and_pickled_tokenizers_are_the_same(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    for copy in (Tokenizer.load(path), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.fingerprint == tokenizer.fingerprint
        assert (copy.kind, copy.lowercase, len(copy)) == (tokenizer.kind, tokenizer.lowercase, len(tokenizer))
        assert copy.encode_batch([*TEXTS, "<bos> new 例"]) == tokenizer.encode_batch([*TEXTS, "<bos> new 例"])
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


@given(st.text(max_size=31))
@settings(max_examples=200, deadline=None)
def test_a_saved_tokenizer_is_a_tokenizer_json(saved_tokenizer, text):
    tokenizer, standard = saved_tokenizer
    assert standard.encode(text).ids == tokenizer.encode(text)
    ids = tokenizer.encode(text)
    assert tokenizer.UNK in ids or standard.decode(ids) == tokenizer.decode(ids)


@pytest.fixture(scope="module", params=[(kind, lowercase) for kind in KINDS for lowercase in (False, True)], ids=str)
def saved_tokenizer(request, tmp_path_factory):
    """A tokenizer, and what the library of Hugging Face reads from its file."""
    tokenizer = Tokenizer.train([*TEXTS, " ".join(CHARACTERS)], *(request.param[0], 300, request.param[1]))
    path = tmp_path_factory.mktemp("saved") / "tokenizer.json"
    tokenizer.save(path)
    return tokenizer, tokenizers.Tokenizer.from_file(str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_a_saved_tokenizer(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.train(TEXTS, kind, 300)
    tokenizer.save(tmp_path / "tokenizer.json")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in [*TEXTS, "<bos> new 例"]:
        assert fast(text)["input_ids"] == tokenizer.encode(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lowercase", [False, True])
def test_the_file_of_version_0_1_is_the_same_tokenizer(kind, lowercase, tmp_path):
    tokenizer = Tokenizer.train(TEXTS, kind, 300, lowercase)
    tokenizer.save(tmp_path / "new.json")
    content = json.loads((tmp_path / "new.json").read_text())["model"]
    state = {
        "regard": {"what": "tokenizer", "format": 1},
        "kind": kind,
        "lowercase": lowercase,
        "pieces": sorted(content["vocab"], key=content["vocab"].get),
        "merges": content.get("merges", []),
    }
    (tmp_path / "old.json").write_text(json.dumps(state, ensure_ascii=False))
    assert Tokenizer.load(tmp_path / "old.json").fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    "damage",
    [
        {"model": None},
        {"model": {"type": "Unigram", "vocab": []}},
        {"normalizer": None},
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}]}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "a"}}]}},
    ],
)
def test_a_tokenizer_json_of_another_kind_is_refused(tmp_path, damage):
    path = tmp_path / "t.json"
    Tokenizer.train(TEXTS, "bpe", 300).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(RunError, match="is not a tokenizer of regard"):
        Tokenizer.load(path)


def test_a_vocabulary_with_a_gap_is_refused(tmp_path):
    path = tmp_path / "t.json"
    Tokenizer.train(TEXTS, "word", 300).save(path)
    content = json.loads(path.read_text())
    content["model"]["vocab"].pop(next(piece for piece, id in content["model"]["vocab"].items() if id == 5))
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match="numbers from 0"):
        Tokenizer.load(path)


STATE = {
    "regard": {"what": "tokenizer", "format": 1},
    "kind": "bpe",
    "lowercase": False,
    "pieces": ["<pad>", "<bos>", "<eos>", "<unk>", "a", "b", "ab"],
    "merges": [["a", "b"]],
}


@pytest.mark.parametrize(
    "damage",
    [
        {"regard": {"what": "model", "format": 1}},
        {"regard": None},
        {"kind": "pickle"},
        {"kind": ["bpe"]},
        {"kind": "word"},
        {"lowercase": 1},
        {"pieces": None},
        {"pieces": ["a", "b"]},
        {"pieces": [*STATE["pieces"], "a"]},
        {"pieces": [*STATE["pieces"], 7]},
        {"merges": [["a", "c"]]},
        {"merges": [["a"]]},
        {"merges": [["b", "a"]]},
        {"merges": [[["a"], "b"]]},
        {"merges": {"a": "b"}},
    ],
)
def test_a_damaged_tokenizer_is_refused(tmp_path, damage):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(STATE))
    assert len(Tokenizer.load(path)) == 7
    path.write_text(json.dumps({**STATE, **damage}))
    with pytest.raises(RunError, match=r"is not a tokenizer of regard, or is damaged"):
        Tokenizer.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"\x80\x04."])
def test_a_foreign_file_is_no_tokenizer(tmp_path, content):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match="is not a tokenizer of regard") as caught:
        Tokenizer.load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(RunError, match="cannot be read"):
        Tokenizer.load(tmp_path / "none.json")
    with pytest.raises(RunError, match="cannot be read"):
        Tokenizer.load(tmp_path)


def test_tokenizers_refuse_wrong_arguments(tokenizer):
    with pytest.raises(UnknownNameError, match="did you mean 'bpe'"):
        Tokenizer.train(TEXTS, "bpee")
    for size in (4, 0, True, 8.0):
        with pytest.raises(ArgumentError, match="size must be a whole number above 4"):
            Tokenizer.train(TEXTS, size=size)
    for kind in KINDS:
        for texts in ([], ["", " \t"]):
            with pytest.raises(DataError, match="no text to train"):
                Tokenizer.train(texts, kind)
    with pytest.raises(DataError, match="halves of surrogate pairs"):
        tokenizer.encode("\ud800")
    with pytest.raises(DataError, match="halves of surrogate pairs"):
        tokenizer.encode_batch(["fine", "\udfff"])
    for id in (-1, len(tokenizer)):
        with pytest.raises(ArgumentError, match=f"ids must be from 0 to {len(tokenizer) - 1}; got {id}"):
            tokenizer.decode([id])
        with pytest.raises(ArgumentError, match=f"got {id}"):
            tokenizer.words([id])
