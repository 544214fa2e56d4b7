"""BLEU and chrF are sacreBLEU's, and the bins by length cut the corpus into parts."""

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.tasks.outputs.text_metrics import bleu_by_length, text_scores

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


@given(st.lists(st.integers(1, 40), max_size=13))
def test_every_sentence_is_in_one_bin(lengths):
    sources = [" ".join(["word"] * length) for length in lengths]
    bins = bleu_by_length(sources, sources, sources, edges=(5, 11))
    assert sum(part.pairs for part in bins) == len(lengths)
    for part in bins:
        inside = [part.shortest <= length <= (part.longest or length) for length in lengths]
        assert sum(inside) == part.pairs
    assert [part.label for part in bins] == [
        label
        for label, some in [
            ("1–5", any(n <= 5 for n in lengths)),
            ("6–11", any(5 < n <= 11 for n in lengths)),
            ("12+", any(n > 11 for n in lengths)),
        ]
        if some
    ]
