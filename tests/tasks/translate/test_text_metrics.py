"""BLEU and chrF are sacreBLEU's, and the bins by length cut the corpus into parts."""

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.tasks.outputs.text_metrics import (
    LEAST_IN_BIN,
    bleu_by_length,
    bleu_name,
    bleu_tokenizer,
    error_rates,
    plain_words,
    rouge_scores,
    text_scores,
)

REFERENCES = ["The cat sat on the mat.", "It is raining again, isn't it?", "¿Dónde está el río?"]
TRANSLATIONS = ["The cat is on the mat.", "It rains again, doesn't it?", "¿Dónde está el río?"]


def test_the_numbers_are_sacrebleus():
    found = text_scores(TRANSLATIONS, REFERENCES)
    assert found.bleu == sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]).score
    assert found.chrf == sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES]).score
    assert f"version:{sacrebleu.__version__}" in found.bleu_signature
    assert "tok:13a" in found.bleu_signature
    assert "nc:6" in found.chrf_signature


def test_the_same_text_has_100():
    found = text_scores(REFERENCES, REFERENCES)
    assert found.bleu == pytest.approx(100)
    assert found.chrf == pytest.approx(100)


def test_nothing_and_unequal_numbers():
    assert text_scores([], []).bleu == 0
    with pytest.raises(ArgumentError, match="2 translations and 3 references"):
        text_scores(TRANSLATIONS[:2], REFERENCES)


SHORT = ["eins zwei drei", "rot hund", "blau"]
WORDS = st.lists(st.sampled_from(["rot", "blau", "hund", "katze", "7", "zwei."]), min_size=1, max_size=6).map(" ".join)


def test_bleu_of_texts_without_four_words():
    """sacreBLEU 2.6.0: 0 for the right texts, and 63.3 with a word too many; of 3-grams 100 and 68.5."""
    right = text_scores(SHORT, SHORT)
    assert (right.bleu, right.bleu_order) == (pytest.approx(100), 3)
    assert right.bleu_signature.endswith("|ngram:3")
    for wrong in (["eins zwei drei vier", *SHORT[1:]], ["eins zwei", *SHORT[1:]], [*SHORT[:2], "grün"], ["", "", ""]):
        found = text_scores(wrong, SHORT)
        assert found.bleu < 95
        assert found.bleu_order == 3
    assert text_scores(["eins zwei drei vier", *SHORT[1:]], SHORT).bleu == pytest.approx(68.50067, abs=1e-4)
    assert text_scores([""], ["blau"]).bleu == 0
    # Only the references decide what is counted, so that all models of a run are measured alike.
    assert "ngram" not in text_scores(SHORT, [*SHORT[:2], "blau wie das meer"]).bleu_signature
    assert bleu_name(right.bleu_order) == "BLEU-3"
    assert bleu_name(4) == "BLEU"


def test_bleu_where_every_translation_is_too_short():
    """One reference of four words; the translation lacks a word of it, and sacreBLEU 2.6.0 gives 0."""
    references = ["eins zwei drei vier", *SHORT]
    found = text_scores(["eins zwei drei", *SHORT], references)
    assert 80 < found.bleu < 100
    assert "eff:yes" in found.bleu_signature
    assert found.bleu_order == 4


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5))
def test_right_texts_have_the_best_bleu_whatever_their_lengths(pairs):
    texts, references = map(list, zip(*pairs, strict=True))
    assert text_scores(references, references).bleu == pytest.approx(100)
    found = text_scores(texts, references)
    assert found.bleu <= 100 + 1e-9
    tokens = [max(len(sacrebleu.BLEU().tokenizer(text).split()) for text in side) for side in (texts, references)]
    if min(tokens) >= 4:
        assert found.bleu == sacrebleu.corpus_bleu(texts, [references]).score
    assert found.bleu_order == min(4, tokens[1])


def test_bins_of_short_texts_name_their_bleu():
    sources = ["a b"] * 12 + ["a b c d e f"] * 12
    bins = bleu_by_length(sources, ["x y"] * 12 + ["x y z u v w"] * 12, ["x y"] * 12 + ["x y z u v w"] * 12)
    assert [(one.label, round(one.bleu), one.bleu_order) for one in bins] == [("2", 100, 2), ("6", 100, 4)]


SCRIPTS = {
    "chinese": (["今天天气很好。", "我喜欢喝茶。"], ["今天天气真好。", "我爱喝茶。"]),
    "japanese": (["今日はとても暑いです。", "お茶が好きです。"], ["今日はとても寒いです。", "お茶が嫌いです。"]),
    "thai": (["วันนี้อากาศดีมาก", "ฉันชอบดื่มชา"], ["วันนี้อากาศดีจัง", "ฉันรักดื่มชา"]),
    "arabic": (["الطقس جميل جدا اليوم في المدينة", "أحب شرب الشاي في الصباح الباكر"],
               ["الطقس جميل جدا اليوم في القرية", "أحب شرب الشاي في الصباح المشمس"]),
}  # fmt: skip
"""References, and texts in which one word is wrong."""


@pytest.mark.parametrize("script", SCRIPTS)
def test_nearly_right_texts_of_every_script_have_good_scores(script):
    references, texts = SCRIPTS[script]
    assert text_scores(texts, references).bleu > 30
    assert 0 < error_rates(texts, references).wer < 0.4
    assert rouge_scores(texts, references).rouge_l > 60
    for metric in (rouge_scores(references, references).rouge_2, text_scores(references, references).bleu):
        assert metric == pytest.approx(100)


def test_bleu_splits_as_the_references_are_written(monkeypatch):
    assert bleu_tokenizer(SCRIPTS["chinese"][0]) == "zh"
    assert bleu_tokenizer(SCRIPTS["thai"][0]) == "char"
    assert bleu_tokenizer(SCRIPTS["arabic"][0]) == "13a"
    assert bleu_tokenizer(["나는 차를 좋아한다."]) == "13a"
    assert bleu_tokenizer(["The word 茶 is Chinese, and this sentence is not."]) == "13a"
    assert bleu_tokenizer([]) == "13a"
    assert "tok:zh" in text_scores(*SCRIPTS["chinese"]).bleu_signature
    references, texts = SCRIPTS["chinese"]
    assert text_scores(texts, references).bleu == sacrebleu.corpus_bleu(texts, [references], tokenize="zh").score
    for installed, tokenizer in ((None, "char"), (object(), "ja-mecab")):
        monkeypatch.setattr("regard.tasks.outputs.text_metrics.find_spec", lambda name, spec=installed: spec)
        assert bleu_tokenizer(SCRIPTS["japanese"][0]) == tokenizer


def test_words_of_captions_keep_the_marks_of_their_script():
    assert plain_words("कुत्ता दौड़ता है।") == "कुत्ता दौड़ता है"
    assert plain_words("一只狗。") == "一 只 狗"
    assert plain_words("ชา ดี") == "ช า ด ี".replace("ด ี", "ดี")


def test_bins_count_words_of_scripts_without_spaces():
    sources = ["我"] * LEAST_IN_BIN + ["今天天气很好"] * LEAST_IN_BIN
    bins = bleu_by_length(sources, sources, sources)
    assert [(part.shortest, part.longest, part.pairs) for part in bins] == [(1, 1, LEAST_IN_BIN), (6, 6, LEAST_IN_BIN)]
