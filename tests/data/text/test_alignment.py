import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.text.alignment import Alignment, alignment_error_rate
from regard.errors import ArgumentError, DataError

LINKS = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=13)


def test_error_rate_by_hand():
    # A = {00, 11, 22}, S = {00, 12}, P = S + {11}: A∩S = {00}, A∩P = {00, 11}, so 1 − (1 + 2) / (3 + 2)
    assert alignment_error_rate([{(0, 0), (1, 1), (2, 2)}], [{(0, 0), (1, 2)}], [{(1, 1)}]) == pytest.approx(0.4)


def test_error_rate_counts_links_of_all_pairs_together():
    # First pair: A = S = {00}. Second: A = {00, 01, 02}, S = {11}, P = S. 1 − (1 + 1 + 0 + 0) / (1 + 1 + 3 + 1)
    predicted = [{(0, 0)}, {(0, 0), (0, 1), (0, 2)}]
    sure = [{(0, 0)}, {(1, 1)}]
    assert alignment_error_rate(predicted, sure, sure) == pytest.approx(1 - 2 / 6)


@given(LINKS, LINKS)
def test_error_rate_laws(sure, possible):
    assert alignment_error_rate([sure], [sure], [possible]) == 0
    assert alignment_error_rate([sure | possible], [sure], [possible]) == 0
    elsewhere = {(source + 100, target) for source, target in sure | possible}
    assert alignment_error_rate([elsewhere], [sure], [possible]) == (1 if sure | possible else 0)


def test_error_rate_of_nothing():
    assert alignment_error_rate([], [], []) == 0
    assert alignment_error_rate([()], [()], [()]) == 0


def test_error_rate_wants_one_alignment_a_pair():
    with pytest.raises(ArgumentError, match="one alignment a pair; they hold 1, 2 and 1"):
        alignment_error_rate([()], [(), ()], [()])


@given(LINKS, LINKS)
def test_pharaoh_round_trip(sure, possible):
    alignment = Alignment(sure, sure | possible)
    assert Alignment.parse(str(alignment)) == alignment


def test_alignments_in_pharaoh_format_are_parsed():
    alignment = Alignment.parse(" 0-0 1-2  1p1\n")
    assert alignment.sure == {(0, 0), (1, 2)}
    assert alignment.possible == {(0, 0), (1, 2), (1, 1)}
    assert str(alignment) == "0-0 1p1 1-2"
    assert str(Alignment.parse("")) == ""


@pytest.mark.parametrize("text", ["0", "0-", "-1-2", "a-b", "0-1-2", "0–1", "٣-1", "0-99999999999999"])
def test_texts_that_are_no_pharaoh_links_are_refused(text):
    with pytest.raises(DataError, match="is not a link of an alignment"):
        Alignment.parse(text)


def test_sure_links_must_be_possible():
    with pytest.raises(ArgumentError, match=r"\[\(0, 0\)\] are not"):
        Alignment(frozenset({(0, 0)}), frozenset())
