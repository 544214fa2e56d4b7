"""Records check what they are given once, and name the argument that is wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.records import (
    AttentionRecord,
    DenseTiles,
    Document,
    FrameAxis,
    GridAxis,
    ScoreParts,
    StepsRecord,
    TokenAxis,
    WriteSource,
    bin_edges,
    join_pieces,
    word_ranges,
)

AXIS = TokenAxis(("a", "b", "c"))
WEIGHTS = np.full((2, 3, 3), 1 / 3, np.float32)
IMAGE = np.zeros((10, 20, 3), np.uint8)
SOUND = np.zeros((4, 6), np.float32)


def test_axes_and_records_have_lengths():
    assert len(AXIS) == 3
    assert len(GridAxis(2, 5, IMAGE, leading=1)) == 11
    assert len(FrameAxis(SOUND, 0.01)) == 6
    assert len(FrameAxis(SOUND, 0.03, positions=2)) == 2
    assert AttentionRecord("x", 0, "self", AXIS, AXIS, WEIGHTS).heads == 2


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: TokenAxis("abc"), KindError, "tokens"),
        (lambda: TokenAxis(("a", 3)), KindError, r"tokens\[1\]"),
        (lambda: TokenAxis(("a", "b"), special=(True,)), ShapeError, "special"),
        (lambda: TokenAxis(("a", "b"), words=(range(1),)), ArgumentError, "words"),
        (lambda: TokenAxis(("a", "b"), words=(range(1, 2), range(1))), ArgumentError, "words"),
        (lambda: GridAxis(0, 5, IMAGE), ShapeError, "rows"),
        (lambda: GridAxis(2, 5, IMAGE[..., 0]), ShapeError, "image"),
        (lambda: GridAxis(2, 5, IMAGE.astype(float)), KindError, "image"),
        (lambda: GridAxis(2, 5, IMAGE, box=(0, 0, 21, 10)), ArgumentError, "box"),
        (lambda: GridAxis(2, 5, IMAGE, leading=-1), ShapeError, "leading"),
        (lambda: FrameAxis(SOUND[0], 0.1), ShapeError, "spectrogram"),
        (lambda: FrameAxis(SOUND, 0.0), ArgumentError, "seconds"),
        (lambda: FrameAxis(SOUND, 0.1, positions=0), ShapeError, "positions"),
        (lambda: FrameAxis(SOUND * np.nan, 0.1), ArgumentError, "spectrogram"),
        (lambda: AttentionRecord("x", 0, "other", AXIS, AXIS, WEIGHTS), UnknownNameError, "kind"),
        (lambda: AttentionRecord("x", 0, "self", AXIS, AXIS, None), ArgumentError, "weights"),
        (lambda: AttentionRecord("x", 0, "self", AXIS, AXIS, WEIGHTS[:, :2]), ShapeError, "weights"),
        (lambda: AttentionRecord("x", 0, "self", AXIS, AXIS, -WEIGHTS), ArgumentError, "weights"),
        (lambda: AttentionRecord("x", 0, "self", AXIS, AXIS, WEIGHTS * np.inf), ArgumentError, "weights"),
        (lambda: AttentionRecord("x", 0, "self", AXIS, ("a",), WEIGHTS), KindError, "keys"),
        (lambda: AttentionRecord("x", 0, "self", AXIS, AXIS, WEIGHTS, WEIGHTS[0]), KindError, "visible"),
        (lambda: AttentionRecord("x", 0, "self", AXIS, AXIS, WEIGHTS, WEIGHTS[:, 0] > 0), ShapeError, "visible"),
        (
            lambda: AttentionRecord("x", 0, "self", AXIS, AXIS, None, source=DenseTiles(WEIGHTS[:, :2])),
            ShapeError,
            "source",
        ),
        (
            lambda: FrameAxis(SOUND, 1 / 6, sound=np.zeros(10**6, np.int16)),
            ArgumentError,
            r"last 62\.5 s: write sound=",
        ),
        (lambda: record(measures=[1]), KindError, "measures=.*list"),
        (lambda: record(measures=None), KindError, "measures=.*NoneType"),
        (lambda: record(statistics=5), KindError, "statistics=.*int"),
        (lambda: record(statistics=[{"a": 10**400}] * 2), ArgumentError, "statistics.*finite"),
        (lambda: record(statistics=[{"a": np.complex64(1)}] * 2), KindError, "statistics.*complex64"),
        (lambda: record(statistics=[{"a": "1"}] * 2), KindError, "statistics.*str"),
        (lambda: steps(parameters={"temperature": "hot"}), KindError, "temperature.*str"),
        (lambda: steps(parameters={"temperature": 0}), ArgumentError, "temperature.*above 0"),
        (lambda: steps(parameters={"alpha": 0.5}), ArgumentError, "alpha.*above 1"),
        (lambda: steps(parameters={"bias": np.nan}), ArgumentError, "bias.*finite"),
        (lambda: steps(parameters={"heat": 1.0}), UnknownNameError, "heat"),
        (lambda: steps(parameters=None), KindError, "parameters="),
        (lambda: steps(scale=np.inf), ArgumentError, "scale.*finite"),
        (lambda: steps(scale="a"), KindError, "scale.*str"),
        (lambda: steps(cap=0), ArgumentError, "cap.*above 0"),
        (lambda: steps(attention=5), KindError, "attention.*int"),
        (lambda: Document("x", ()), ArgumentError, "records"),
        (lambda: Document("x", (3,)), KindError, "records"),
        (lambda: bin_edges(3, 4), ArgumentError, "bins"),
        (lambda: DenseTiles(WEIGHTS).tile((0, 4), (0, 3)), ArgumentError, "queries"),
    ],
)
def test_records_name_wrong_fields(make, error, named):
    with pytest.raises(error, match=named):
        make()


def matrices(**changes):
    pair = np.zeros((2, 3))
    return {
        "query": np.zeros((2, 5)), "key": np.zeros((3, 5)), "value": np.zeros((3, 7)), "scores": pair, "weights": pair,
        "output": np.zeros((2, 7)), **changes,
    }  # fmt: skip


def record(**fields):
    return AttentionRecord("x", 0, "self", AXIS, AXIS, WEIGHTS, **fields)


def steps(**fields):
    return StepsRecord("x", matrices(), ("a", "b"), ("c", "d", "e"), **fields)


def test_steps_check_their_shapes():
    made = StepsRecord("x", matrices(masked=np.zeros((2, 3))), ("a", "b"), ("c", "d", "e"))
    assert list(made.matrices) == ["query", "key", "value", "scores", "masked", "weights", "output"]
    for wrong, named in ((matrices(scores=np.zeros((3, 2))), "scores"), (matrices(value=np.zeros((2, 7))), "value")):
        with pytest.raises(ShapeError, match=named):
            StepsRecord("x", wrong, ("a", "b"), ("c", "d", "e"))
    with pytest.raises(UnknownNameError, match="logits"):
        StepsRecord("x", matrices(logits=np.zeros((2, 3))), ("a", "b"), ("c", "d", "e"))
    with pytest.raises(ArgumentError, match="weights"):
        StepsRecord("x", {name: m for name, m in matrices().items() if name != "weights"}, ("a", "b"), ("c", "d", "e"))
    one = WriteSource("head", "layers.1.attn", 1, 3)
    StepsRecord("x", matrices(), ("a", "b"), ("c", "d", "e"), parts=ScoreParts((one,), *np.zeros((2, 1, 2, 3))))
    with pytest.raises(ShapeError, match="parts must have 2 queries and 3 keys"):
        StepsRecord("x", matrices(), ("a", "b"), ("c", "d", "e"), parts=ScoreParts((one,), *np.zeros((2, 1, 3, 2))))
    with pytest.raises(ShapeError, match=r"must be \[1, queries, keys\]"):
        ScoreParts((one,), *np.zeros((2, 2, 2, 3)))


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_pooled_maps_are_means_and_maxima_of_their_bins(queries, keys, data):
    rows, columns = data.draw(st.integers(1, queries)), data.draw(st.integers(1, keys))
    weights = np.random.default_rng(queries * keys).random((2, queries, keys), np.float32)
    mean, maximum = DenseTiles(weights).pooled(rows, columns)
    row_of, column_of = np.arange(queries) * rows // queries, np.arange(keys) * columns // keys
    for row, column in ((0, 0), (rows - 1, columns - 1), (rows // 2, columns // 2)):
        block = weights[:, row_of == row][:, :, column_of == column]
        assert np.allclose(mean[:, row, column], block.mean((1, 2)), rtol=1e-5)
        assert np.array_equal(maximum[:, row, column], block.max((1, 2)))


def test_bins_are_those_of_observe():
    import torch

    import regard

    query, key, value = (torch.randn(1, 2, length, 5) for length in (13, 17, 17))
    read = regard.Readings(pooled=(4, 7), weights=True)
    seen = regard.observe(query, key, value, read=read)
    mean, maximum = DenseTiles(seen.weights[0].numpy()).pooled(4, 7)
    assert np.allclose(mean, seen.pooled_mean[0], atol=1e-6)
    assert np.allclose(maximum, seen.pooled_max[0], atol=1e-6)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("un", "##want", "##ed", "noise"), ("unwanted", "noise")),
        (("▁Das", "▁Un", "ab", "▁ist"), ("Das", "Unab", "ist")),
        (("Ġthe", "Ġun", "seen"), ("the", "unseen")),
        (("un@@", "seen", "x"), ("unseen", "x")),
        (("un", "·seen"), ("unseen",)),
    ],
)
def test_words_of_the_tokenizers(tokens, words):
    ranges = word_ranges(tokens)
    assert tuple(join_pieces(tokens[part.start : part.stop]) for part in ranges) == words
    TokenAxis(tokens, words=ranges)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("it", "didn", "'", "t", "see"), ("it", "didn't", "see")),
        (("it", "’", "s", "un", "##seen"), ("it’s", "unseen")),
        (("we", "'re", "one"), ("we're", "one")),
        (("▁we", "▁'", "t"), ("we", "'t")),
        (("say", "'", "d", "'", "un", "##seen"), ("say", "'", "d", "'", "unseen")),
        (("3", "'", "s", "t@@", "x"), ("3", "'", "s", "tx")),
    ],
)
def test_english_contractions_are_one_word(tokens, words):
    assert tuple(join_pieces(tokens[part.start : part.stop]) for part in word_ranges(tokens)) == words


def test_tokens_without_marks_tell_no_words():
    assert word_ranges(("a", "b")) == ()
    assert word_ranges(()) == ()


def test_special_tokens_are_words_of_their_own():
    assert word_ranges(("[CLS]", "a", "##b", "[SEP]"), (True, False, False, True)) == (
        range(1),
        range(1, 3),
        range(3, 4),
    )


def test_words_and_bins_refuse_what_does_not_fit():
    with pytest.raises(ShapeError, match="special must have one entry for each of 2 tokens; it has 1"):
        word_ranges(("a", "##b"), (True,))
    with pytest.raises(ArgumentError, match=r"bins must be an integer from 1 to 4; it is 2\.5"):
        bin_edges(4, 2.5)


@given(st.lists(st.text(max_size=5), max_size=9))
def test_words_cut_any_tokens_into_pieces(tokens):
    ranges = word_ranges(tokens)
    assert not ranges or [position for part in ranges for position in part] == list(range(len(tokens)))
