"""The words of captions beside those of the PTB tokenizer, row by row of the page's table."""

import contextlib
import io
import re
import shutil
from pathlib import Path

import pytest

from regard.tasks.outputs.text_metrics import caption_scores, plain_words

PAGES = [Path(__file__).parents[3] / "docs" / language / "how-to" / "caption.md" for language in ("en", "zh")]
ROW = re.compile(r"\| `(.+?)` \| `(.+?)` \| `(.+?)` \|")

TRUE = [
    "A man (in red) holds a sign & a flag.",
    "The dog's bowl isn't on the floor.",
    "A bus #42 stops at 3:45 p.m. in the rain.",
    "Two [blurry] men sell fruit for $5 each.",
]
CAPTIONS = [
    "A man (in red) holds a sign & an umbrella.",
    "The dog's bowl isn't on a table.",
    "A bus #42 stops at 3:45 p.m. in the snow.",
    "Two [blurry] men sell fish for $5 each.",
]


def rows(page):
    return ROW.findall(page.read_text(encoding="utf-8"))


def test_the_words_here_are_those_of_the_table():
    english, chinese = map(rows, PAGES)
    assert english == chinese
    assert len(english) == 5
    for caption, words, _ in english:
        assert plain_words(caption) == words
    here = caption_scores(CAPTIONS, [[text] for text in TRUE]).bleu[3]
    assert all(f"{here:.1f}" in page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.skipif(shutil.which("java") is None, reason="the PTB tokenizer needs Java")
def test_the_words_of_the_ptb_tokenizer_are_those_of_the_table():
    """pycocoevalcap 1.2, which runs Stanford CoreNLP 3.4.1."""
    package = pytest.importorskip("pycocoevalcap.tokenizer.ptbtokenizer", exc_type=ImportError)
    from pycocoevalcap.bleu.bleu import Bleu

    def split(texts):
        with contextlib.redirect_stderr(io.StringIO()):
            return package.PTBTokenizer().tokenize({number: [{"caption": text}] for number, text in enumerate(texts)})

    table = rows(PAGES[0])
    words = split([caption for caption, _, _ in table] + CAPTIONS + TRUE)
    assert [words[number][0] for number in range(len(table))] == [row[2] for row in table]
    first = len(table)
    captions = {number: words[first + number] for number in range(len(CAPTIONS))}
    true = {number: words[first + len(CAPTIONS) + number] for number in range(len(TRUE))}
    with contextlib.redirect_stdout(io.StringIO()):
        scores, _ = Bleu(4).compute_score(true, captions)
    assert all(f"{100 * scores[3]:.1f}" in page.read_text(encoding="utf-8") for page in PAGES)
