import io
import unicodedata
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.pictures import MissingGlyphWarning, alignment
from regard.pictures.fonts import Lettering, visible, wrapped
from regard.pictures.sheet import new_sheet, text_extent

NOBODYS = "\U0010fffd"
"""A private-use character of the last plane, for which no font has a glyph."""


def drawn(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=50)
    return file.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("", ""),
        (" ", "␣"),
        ("a b", "a b"),
        ("a\nb\t", "a↵b⇥"),
        ("\x00\x1b[31m", "␀␛[31m"),
        ("\u202eevil", r"\u202eevil"),
        ("\ud800", r"\ud800"),
        ("\u2028", r"\u2028"),
        ("\u0301", "◌\u0301"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("x" * 24, "x" * 24),
        ("x" * 25, "x" * 23 + "…"),
        ("e\u0323\u0301" * 24, "e\u0323\u0301" * 24),
    ],
)
def test_invisible_characters_are_written_visibly(text, shown):
    assert visible(text) == shown


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(), max_size=60), st.integers(2, 9))
def test_visible_is_one_short_line_and_stays_as_it_is(text, limit):
    line = visible(text, limit)
    assert len(line) <= 12 * limit
    assert all(unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") for c in line)
    assert visible(line, limit) == line


def test_a_tower_of_marks_is_cut():
    assert len(visible("e" + "\u0301" * 10_000)) == 12


def test_wrapped_breaks_long_sentences_and_keeps_its_own_breaks():
    assert wrapped("one two\nthree", 20) == "one two\nthree"
    lines = wrapped("word " * 100, 20).split("\n")
    assert len(lines) == 4
    assert all(len(line) <= 20 for line in lines)


def test_text_is_never_mathematics():
    hostile = [r"$\frac{1}{", "$x$", "a_b^c", "%", r"\textbf{x}", "\\"]
    figure = alignment(np.eye(6), hostile, hostile, title="$$ $")
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == hostile
    assert drawn(figure)
    assert not any(tick.get_parse_math() for tick in figure.axes[0].get_xticklabels())


def test_characters_without_a_font_are_named_once_and_drawn_as_squares():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure = alignment([[0.5, 0.5]], [f"a{NOBODYS}", NOBODYS], ["x"], title=NOBODYS)
        drawn(figure)
    (warning,) = caught
    assert warning.category is MissingGlyphWarning
    assert "U+10FFFD" in str(warning.message)
    assert "Install a font" in str(warning.message)
    assert warning.filename == __file__
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["a□", "□"]


def test_many_missing_characters_make_a_short_message():
    with pytest.warns(MissingGlyphWarning, match="and 92 more"):
        Lettering([chr(0x10FFFD - i) for i in range(100)])


def test_plain_text_needs_no_other_font():
    letters = Lettering(["plain", "Größe", "−∞ □ …"])
    assert letters.families("Größe") == letters.families("plain")
    assert not letters.missing


@pytest.mark.parametrize(
    "text", ["你好", "日本語", "한국어", "السلام", "שלום", "नमस्ते", "ไม้เอก", "e\u0323\u0301", "Ελλάδα"]
)
def test_any_script_is_drawn_without_a_warning(text, need_system_fonts):
    need_system_fonts(text)
    figure = alignment([[1.0]], [text], [f"a{text}"], title=f"{text} and plain")
    assert drawn(figure)
    assert figure.axes[0].get_xticklabels()[0].get_text() == text


def test_one_font_for_a_whole_word_and_regional_forms(need_system_fonts):
    need_system_fonts("直あ가")
    assert Lettering(["直"]).families("直")[0].endswith("SC")
    assert Lettering(["直", "あ"]).families("直")[0].endswith("JP")
    assert Lettering(["直", "가"]).families("直a")[0].endswith("KR")


def test_right_to_left_words_are_shaped(need_system_fonts):
    """The joined letters of a word are narrower than the same letters apart."""
    need_system_fonts("سلام")
    figure = new_sheet(4, 2)
    letters = Lettering(["سلام"])
    widths = []
    for word in ("سلام", "س\u200cل\u200cا\u200cم"):
        text = letters.letter(figure.text(0.5, 0.5, "", fontsize=20), word)
        widths.append(text_extent(text)[0])
    assert widths[0] < 0.9 * widths[1]
