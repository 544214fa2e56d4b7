"""Runs of copied tokens: their text is that of the summary, and their words are those of the article."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.text.extended_vocabulary import ExtendedVocabulary
from regard.data.text.tokenizers import Tokenizer
from regard.data.text.words import split_words
from regard.tasks.copied_spans import copied_spans, marked

ARTICLES = ["the वुरारु saw a dog", "वुरारु क़लम", "e\u0301te\u0301 Ωψ the dωg", "the dog वा"]


def read(kind, article):
    """The vocabulary of an article, and its ids there."""
    tokenizer = Tokenizer.train(["the dog saw a dog"] * 3, kind)
    ids = tokenizer.encode(article)
    vocabulary = ExtendedVocabulary.of(tokenizer, article, ids)
    return vocabulary, vocabulary.encode(article, ids)


@pytest.mark.parametrize("article", ARTICLES)
@pytest.mark.parametrize("kind", ["char", "bpe", "word"])
def test_a_whole_article_that_is_copied_is_one_span(kind, article):
    vocabulary, tokens = read(kind, article)
    (span,) = copied_spans(vocabulary, tokens, [1.0] * len(tokens), range(len(tokens)), vocabulary.word_groups(tokens))
    text = vocabulary.tokenizer.normalize(article)
    assert (span.text, span.start, span.stop) == (text, 0, len(text))
    assert (span.first_word, span.last_word) == (1, len(split_words(text)))


@given(data=st.data(), kind=st.sampled_from(["char", "bpe", "word"]), article=st.sampled_from(ARTICLES))
def test_spans_are_parts_of_the_summary_in_their_order(data, kind, article):
    vocabulary, tokens = read(kind, article)
    share = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(tokens), max_size=len(tokens)))
    spans = copied_spans(vocabulary, tokens, share, range(len(tokens)), vocabulary.word_groups(tokens))
    summary = vocabulary.decode(tokens)
    assert [summary[span.start : span.stop] for span in spans] == [span.text for span in spans]
    assert all(before.stop <= after.start for before, after in itertools.pairwise(spans))
    assert sorted(place for span in spans for place in span.tokens) == [n for n, part in enumerate(share) if part]
    unmarked = marked(summary, spans)
    for span in spans:
        words = f"{span.first_word}" if span.first_word == span.last_word else f"{span.first_word}-{span.last_word}"
        unmarked = unmarked.replace(f"[{span.text} @{words}]", span.text, 1)
    assert unmarked == summary
