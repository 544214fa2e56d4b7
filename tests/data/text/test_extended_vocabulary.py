"""The extended vocabulary of a text: its own unknown words have ids, and come back as they are written."""

import pytest

from regard.data.tables import column_names
from regard.data.text.extended_vocabulary import ExtendedVocabulary
from regard.data.text.tokenizers import Tokenizer
from regard.data.text.words import split_words
from regard.errors import DataError

KNOWN = "the dog of saw a big tree and ( the tree ) saw the dog ."
ARTICLE = "The dog of Ωmega saw Zyx (Ωmega) and Zyx saw the tree."


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([KNOWN, "The dog (the tree) saw the tree. The"], "word")


def vocabulary(tokenizer, text, length=None):
    ids = tokenizer.encode(text)[:length]
    return ExtendedVocabulary.of(tokenizer, text, ids), ids


def test_each_unknown_word_has_one_id(tokenizer):
    extended, ids = vocabulary(tokenizer, ARTICLE)
    assert extended.words == ("Ωmega", "Zyx")
    found = extended.encode(ARTICLE, ids)
    size = len(tokenizer)
    assert [id for id in found if id >= size] == [size, size + 1, size, size + 1]
    assert [id for id in found if id < size] == [id for id in ids if id != tokenizer.UNK]
    assert extended.decode(found) == ARTICLE
    assert extended.tokens(found)[3] == "Ωmega"


def test_a_summary_has_the_ids_of_its_article(tokenizer):
    extended, _ = vocabulary(tokenizer, ARTICLE)
    text = "Zyx saw Quux."
    ids = tokenizer.encode(text)
    found = extended.encode(text, ids)
    assert found[0] == len(tokenizer) + 1
    assert found[2] == tokenizer.UNK  # in neither
    assert extended.decode(found) == "Zyx saw ⁇."


def test_words_beyond_the_end_of_a_cut_text_have_no_id(tokenizer):
    extended, ids = vocabulary(tokenizer, ARTICLE, 5)
    assert extended.words == ("Ωmega",)
    assert len(extended.encode(ARTICLE, ids)) == 5


def test_a_text_of_known_words_has_no_more_ids(tokenizer):
    extended, ids = vocabulary(tokenizer, "the dog")
    assert extended.words == ()
    assert extended.encode("the dog", ids) == ids


def test_other_units_are_copied_as_well():
    for kind in ("char", "bpe"):
        tokenizer = Tokenizer.train(["the dog saw the tree"] * 3, kind)
        text = "the Ω dog"
        extended, ids = vocabulary(tokenizer, text)
        assert extended.words == ("Ω",)
        assert extended.decode(extended.encode(text, ids)) == text


DEVANAGARI = "वुरारु का घर क़लम बड़ा है।"


@pytest.mark.parametrize("kind", ["char", "bpe"])
@pytest.mark.parametrize(
    "text", [DEVANAGARI, "วันนี้ดีมาก", "e\u0301te\u0301 q\u0307\u0323z", "\u1112\u1161\u11ab 글", "שָׁלוֹם", "İ \u0344 Å"]
)
def test_letters_with_marks_are_copied_once(kind, text):
    tokenizer = Tokenizer.train(["the dog"] * 3, kind)
    extended, ids = vocabulary(tokenizer, text)
    assert extended.decode(extended.encode(text, ids)) == tokenizer.normalize(text)


def test_the_words_of_copied_letters_are_those_of_the_text():
    tokenizer = Tokenizer.train(["the dog"] * 3, "char")
    extended, ids = vocabulary(tokenizer, DEVANAGARI)
    found = extended.encode(DEVANAGARI, ids)
    assert extended.word_groups(found) == tokenizer.word_groups(ids, DEVANAGARI)
    words = [extended.decode(found[group.start : group.stop]) for group in extended.word_groups(found)]
    assert words == split_words(tokenizer.normalize(DEVANAGARI))


def test_a_space_that_no_text_of_the_training_has_is_copied():
    tokenizer = Tokenizer.train(["猫狗"], "char")
    extended, ids = vocabulary(tokenizer, "猫 是 狗")
    found = extended.encode("猫 是 狗", ids)
    assert extended.decode(found) == "猫 是 狗"
    assert extended.tokens(found) == ["猫", "␣", "是", "␣", "狗"]


def test_rare_words_are_left_out_of_a_vocabulary():
    texts = ["a a a b b c"]
    assert len(Tokenizer.train(texts, "word", min_count=2)) == 6
    assert len(Tokenizer.train(texts, "word")) == 7
    with pytest.raises(DataError, match="min_count"):
        Tokenizer.train(texts, "word", min_count=4)


def test_the_columns_of_every_kind_of_file(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    contents = {
        "a.tsv": "article\tsummary\nx\ty\n",
        "b.csv": '"article","summary"\nx,y\n',
        "c.jsonl": '{"article": "x", "summary": "y"}\n',
        "d.json": '[{"article": "x", "summary": "y"}]',
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
        assert column_names(tmp_path / name) == ["article", "summary"]
    pyarrow.parquet.write_table(pa.table({"article": ["x"], "summary": ["y"]}), tmp_path / "e.parquet")
    assert column_names(tmp_path / "e.parquet") == ["article", "summary"]
    (tmp_path / "f.parquet").write_text("no")
    for name in ("f.parquet", "g.txt"):
        with pytest.raises(DataError):
            column_names(tmp_path / name)
