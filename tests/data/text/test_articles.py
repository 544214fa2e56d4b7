"""The generated articles: a summary is a function of its article, and its invented words are in it."""

import json
import re

import pytest

from regard.data.text.articles import CHOICES, COLUMNS, KINDS, generate_articles, write_articles
from regard.errors import ArgumentError, DataError

SLOT = re.compile(r"\{(\w+)(?::\w+)?\}")


def test_copied_spans_are_in_the_article_and_in_the_summary_in_order():
    for article in generate_articles(500, 3):
        position = 0
        for span in article.copied:
            assert span in article.text
            position = article.summary.index(span, position) + len(span)


def test_everything_else_in_a_summary_is_of_a_closed_vocabulary():
    rest, articles = set(), list(generate_articles(3000, 5))
    for article in articles:
        text = article.summary
        for span in article.copied:
            text = text.replace(span, " ")
        rest |= set(re.findall(r"\w+", text))
    templates = {word for kind in KINDS for word in re.findall(r"\w+", SLOT.sub(" ", kind.summary))}
    values = {value for values in CHOICES.values() for value in values}
    assert rest <= templates | values | {value.capitalize() for value in values}
    # Invented words are those of one article only, with few exceptions.
    spans = [word for article in articles for span in set(article.copied) for word in span.split()]
    assert len(set(spans)) > 0.99 * len(spans)


def test_articles_have_words_that_the_summary_does_not_need():
    unused = [
        set(re.findall(r"\b(?:[A-Z]\w{5,}|\d{5,})\b", article.text))
        - {word for span in article.copied for word in span.split()}
        for article in generate_articles(300, 7)
    ]
    days = set(CHOICES["day"])
    assert sum(bool({word for word in words if word not in days and word != "Because"}) for words in unused) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_the_slots_of_a_summary_are_in_every_version_of_the_report(kind):
    wanted = set(SLOT.findall(kind.summary))
    for version in kind.first:
        reported = set(SLOT.findall(version)).union(
            *(set.intersection(*(set(SLOT.findall(text)) for text in versions)) for versions in kind.facts)
        )
        assert wanted <= reported
    assert not wanted & {slot for aside in kind.asides for slot in SLOT.findall(aside)}


def test_an_article_depends_on_its_number_only():
    whole = list(generate_articles(20, 11))
    assert whole[7:] == list(generate_articles(13, 11, start=7))
    assert whole != list(generate_articles(20, 12))


def test_files_hold_the_articles(tmp_path):
    files = write_articles(tmp_path, {"train": 30, "validation": 5, "test": 7}, 2)
    rows = {split: path.read_text(encoding="utf-8").splitlines() for split, path in files.items()}
    assert {split: len(lines) for split, lines in rows.items()} == {"train": 31, "validation": 6, "test": 8}
    assert all(lines[0] == "\t".join(COLUMNS) for lines in rows.values())
    texts = [line.split("\t")[0] for lines in rows.values() for line in lines[1:]]
    assert len(set(texts)) == 42
    fields = rows["test"][1].split("\t")
    assert all(span in fields[0] for span in json.loads(fields[2]))
    again = write_articles(tmp_path / "more", {"train": 90, "validation": 5, "test": 7}, 2)
    assert again["test"].read_text() == files["test"].read_text()
    assert again["validation"].read_text() == files["validation"].read_text()


def test_wrong_sizes_and_places_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="at least 0"):
        write_articles(tmp_path, {"train": -1}, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_articles(tmp_path / "file", {"train": 1}, 1)
