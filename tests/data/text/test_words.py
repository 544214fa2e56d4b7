import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.text.words import sentence_words, split_words, unspaced_share, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n", []),
        ("The boy's dog.", ["The", "boy's", "dog", "."]),
        ("¿Dónde está?", ["¿", "Dónde", "está", "?"]),
        ("'quoted' l’homme", ["'", "quoted", "'", "l’homme"]),
        ("the boys' dog", ["the", "boys", "'", "dog"]),
        ("12 apples, 3.5 kg", ["12", "apples", ",", "3", ".", "5", "kg"]),
        ("我喜欢 茶。", ["我", "喜", "欢", "茶", "。"]),
        ("كيف حالك؟", ["كيف", "حالك", "؟"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("ที่นี่", ["ที่", "นี่"]),
    ],
)
def test_words_of_a_text(text, words):
    assert split_words(text) == words


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_words_cover_everything_but_spaces_in_order(text):
    spans = word_spans(text)
    covered = [position for span in spans for position in span]
    assert covered == sorted(covered)
    left_out = set(range(len(text))) - set(covered)
    assert all(text[position].isspace() for position in left_out)
    assert all(not character.isspace() for word in split_words(text) for character in word)


UNSPACED = {
    "彼は帽子を取った": ["彼", "は", "帽", "子", "を", "取", "っ", "た"],
    "ไม่ได้รับ ok.": ["ไ", "ม่", "ไ", "ด้", "รั", "บ", "ok."],
    "ကျေးဇူး": ["ကျေး", "ဇူး"],
    "བཀྲ་ཤིས་བདེ་ལེགས།": ["བཀྲ་", "ཤིས་", "བདེ་", "ལེགས།"],
    "届きません。iPhone 15です": ["届", "き", "ま", "せ", "ん", "。", "iPhone", "15", "で", "す"],
}


@pytest.mark.parametrize("sentence", UNSPACED)
def test_a_typed_sentence_without_spaces_is_split_into_characters_with_their_marks(sentence):
    words, note = sentence_words(sentence)
    assert words == UNSPACED[sentence]
    assert "no spaces between its words" in note
    assert 0.5 < unspaced_share([sentence]) <= 1.0


def test_a_chinese_sentence_is_split_by_jieba_or_into_characters(monkeypatch):
    jieba = pytest.importorskip("jieba", reason="jieba cuts Chinese words")
    sentence = "我的 iPhone15坏了，please help."
    words, note = sentence_words(sentence)
    assert "jieba split it" in note
    assert "".join(words) == sentence.replace(" ", "")
    assert {"iPhone15", "please", "help."} <= {*words}
    sentence = "他拿起帽子并检查了它"
    assert sentence_words(sentence).words == jieba.lcut(sentence)
    monkeypatch.setitem(sys.modules, "jieba", None)
    words, note = sentence_words("我的 iPhone15坏了，please help.")
    assert words == ["我", "的", "iPhone15", "坏", "了", "，", "please", "help."]
    assert note.endswith("characters are taken for them; with jieba installed, Chinese is split into words")


@pytest.mark.parametrize("sentence", ["This is book.", "소포가 아직 안 왔어요", "الطرد لم يصل", "it's 5 %", "", "  "])
def test_a_typed_sentence_with_spaces_is_split_at_them_alone(sentence):
    assert sentence_words(sentence) == (sentence.split(), "")
    assert unspaced_share([sentence]) == 0.0


def test_the_share_counts_letters_alone():
    assert unspaced_share(["ab 坏了 12 ，!"]) == 0.5
    assert unspaced_share([]) == unspaced_share(["12 %"]) == 0.0
