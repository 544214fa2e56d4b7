import itertools
import logging
import pickle

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batches import cuts
from regard.data.ragged import Ragged
from regard.data.text import batches
from regard.data.text.batches import PairBatch, encode_pairs, pair_batches
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, DataError


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["a b c d e"], "char")


@pytest.fixture
def texts():
    random = np.random.default_rng(7)
    return [
        tuple("".join(random.choice(list("abcde"), size)) for size in random.integers(1, 19, 2)) for _ in range(211)
    ]


@pytest.fixture
def encoded(texts, tokenizer, monkeypatch):
    monkeypatch.setattr(batches, "_BLOCK", 53)  # so that the table has several pieces
    sides = {"source": [s for s, _ in texts], "target": [t for _, t in texts]}
    return encode_pairs(datasets.Dataset.from_dict(sides), tokenizer, tokenizer)


def same(left: PairBatch, right: PairBatch) -> bool:
    return all(torch.equal(getattr(left, name), getattr(right, name)) for name in PairBatch.__dataclass_fields__)


def rows_of(batches):
    return [row for batch in batches for row in batch.index.tolist()]


def test_encoded_pairs_are_memory_mapped_lists(encoded, texts, tokenizer, own_cache):
    assert encoded.column_names == ["source", "target", "source_length", "target_length", "row"]
    assert isinstance(encoded.data, datasets.table.MemoryMappedTable)
    assert encoded.cache_files[0]["filename"].startswith(str(own_cache))
    assert [tokenizer.decode(ids) for ids in encoded["source"]] == [source for source, _ in texts]
    assert list(encoded["target_length"]) == [len(target) for _, target in texts]
    assert list(encoded["row"]) == list(range(len(texts)))


def test_overlong_pairs_are_dropped_or_cut_and_counted(tokenizer, caplog):
    dataset = datasets.Dataset.from_dict({"source": ["abc", "a", "ab"], "target": ["a", "abcd", "ab"]})
    with caplog.at_level(logging.WARNING, logger="regard"):
        dropped = encode_pairs(dataset, tokenizer, tokenizer, max_length=2)
        cut = encode_pairs(dataset, tokenizer, tokenizer, max_length=2, overlong="cut")
    assert list(dropped["row"]) == [2]
    assert [tokenizer.decode(ids) for ids in cut["source"]] == ["ab", "a", "ab"]
    assert [tokenizer.decode(ids) for ids in cut["target"]] == ["a", "ab", "ab"]
    assert [record.getMessage() for record in caplog.records] == [
        "left out 2 of 3 pairs with more than 2 tokens",
        "cut 2 of 3 pairs with more than 2 tokens",
    ]
    with pytest.raises(DataError, match="none of 2 pairs has at most 2 tokens a side; raise max_length"):
        encode_pairs(dataset.select([0, 1]), tokenizer, tokenizer, max_length=2)


def test_encoding_follows_tokenizer_and_data(tokenizer):
    dataset = datasets.Dataset.from_dict({"source": ["ab", "b"], "target": ["a", "b"]})
    other = Tokenizer.train(["b a"], "char")
    first, second = (encode_pairs(dataset, each, tokenizer) for each in (tokenizer, other))
    assert first["source"][0] != second["source"][0]
    assert encode_pairs(dataset.select([1]), tokenizer, tokenizer)["source"][0] == first["source"][1]


def test_a_batch_is_padded_and_bounded(encoded, texts, tokenizer):
    for batch in pair_batches(encoded, 97, seed=3):
        for row, index in enumerate(batch.index.tolist()):
            source, target = texts[index]
            size, length = int(batch.source_lengths[row]), int(batch.target_lengths[row])
            assert tokenizer.decode(batch.source[row, :size].tolist()) == source
            assert batch.target[row, 0] == tokenizer.BOS
            assert batch.target[row, length - 1] == tokenizer.EOS
            assert tokenizer.decode(batch.target[row, 1 : length - 1].tolist()) == target
            assert not batch.source[row, size:].any()
            assert not batch.target[row, length:].any()
        assert batch.source.shape[1] == batch.source_lengths.max()
        assert batch.target.shape[1] == batch.target_lengths.max()
        assert batch.target_tokens == sum(len(texts[index][1]) + 1 for index in batch.index.tolist())
        assert {getattr(batch, name).dtype for name in PairBatch.__dataclass_fields__} == {torch.int64}


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_every_row_once_an_epoch_within_the_budgets(encoded, shuffle, width):
    loader = pair_batches(encoded, 131, source_tokens_per_batch=150, shuffle=shuffle, bucket_width=width)
    for _ in range(3):
        epoch = list(loader)
        assert sorted(rows_of(epoch)) == list(range(211))
        assert len(epoch) == len(loader)
        assert all(batch.target.numel() <= 131 and batch.source.numel() <= 150 for batch in epoch)


def test_a_pair_beyond_the_budget_is_alone(encoded):
    loader = pair_batches(encoded, 1)
    assert len(loader) == 211
    assert all(len(batch) == 1 for batch in loader)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_cuts_fill_batches_as_far_as_they_go(lengths, budget):
    lengths = np.array(sorted(lengths))
    target, source = lengths[:, 0] + 2, lengths[:, 1]
    boundaries = cuts(np.stack([target, source], 1), (budget, 2 * budget))

    def fits(start, stop):
        rows = stop - start
        return rows * target[start:stop].max() <= budget and rows * source[start:stop].max() <= 2 * budget

    assert boundaries[0] == 0
    assert boundaries[-1] == len(lengths)
    for start, stop in itertools.pairwise(boundaries):
        assert stop - start == 1 or fits(start, stop)
        assert stop == len(lengths) or not fits(start, stop + 1)


def test_the_order_is_that_of_seed_and_epoch(encoded):
    def epoch(seed, number):
        loader = pair_batches(encoded, 131, seed=seed)
        loader.set_epoch(number)
        return rows_of(loader)

    assert epoch(5, 0) == epoch(5, 0)
    assert epoch(5, 0) != epoch(5, 1)
    assert epoch(5, 0) != epoch(6, 0)
    loader = pair_batches(encoded, 131, seed=5)
    assert [rows_of(loader) for _ in range(3)] == [epoch(5, 0), epoch(5, 1), epoch(5, 2)]


def test_an_epoch_that_was_left_is_over(encoded):
    loader, whole = pair_batches(encoded, 131), pair_batches(encoded, 131)
    next(iter(loader))
    list(whole)
    assert rows_of(loader) == rows_of(whole)


@pytest.mark.parametrize("delivered", [0, 1, 3, 8, 100])
def test_a_loaded_state_goes_on_after_the_last_batch(encoded, delivered):
    loader = pair_batches(encoded, 331, seed=2)
    list(loader)
    expected = list(loader) + list(loader)
    loader.set_epoch(1)
    delivered = min(delivered, len(loader))
    epoch = iter(loader)
    for _ in range(delivered):
        next(epoch)
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    other = pair_batches(encoded, 331, seed=2)
    other.load_state_dict(state)
    rest = list(other)
    if delivered < len(loader):
        rest += list(other)
    assert len(rest) == 2 * len(loader) - delivered
    assert all(map(same, rest, expected[delivered:]))
    assert all(map(same, epoch, expected[delivered : len(loader)]))


def test_setting_the_epoch_of_a_loaded_state_keeps_it(encoded):
    loader = pair_batches(encoded, 131)
    expected = list(loader)
    loader.load_state_dict({"epoch": 0, "position": 2})
    loader.set_epoch(0)
    assert all(map(same, loader, expected[2:]))


def test_evaluation_is_sorted_and_the_order_comes_back(encoded, texts, tokenizer):
    loader = pair_batches(encoded, 131, shuffle=False)
    lengths = [length for batch in loader for length in batch.target_lengths.tolist()]
    assert lengths == sorted(lengths)
    restored = [""] * len(texts)
    for batch in loader:
        for index, ids in zip(batch.index.tolist(), batch.source.tolist(), strict=True):
            restored[index] = tokenizer.decode(ids)
    assert restored == [source for source, _ in texts]
    assert rows_of(loader) == rows_of(loader)


def test_processes_share_an_epoch_of_sentence_pairs(encoded):
    whole = [tuple(batch.index.tolist()) for batch in pair_batches(encoded, 131, seed=1)]
    parts = [
        [tuple(batch.index.tolist()) for batch in pair_batches(encoded, 131, seed=1, rank=rank, world_size=3)]
        for rank in range(3)
    ]
    assert len({len(part) for part in parts}) == 1
    merged = [batch for together in zip(*parts, strict=True) for batch in together]
    assert merged[: len(whole)] == whole
    assert merged[len(whole) :] == whole[: len(merged) - len(whole)]


def test_a_loader_can_be_pickled_in_the_middle(encoded):
    loader = pair_batches(encoded, 131, seed=4)
    expected = list(loader)
    pickled = pickle.dumps(loader)
    assert len(pickled) < 30_000
    copy = pickle.loads(pickled)
    copy.set_epoch(0)
    assert all(map(same, copy, expected))


def test_a_selection_keeps_its_row_numbers(encoded):
    loader = pair_batches(encoded.select([7, 3, 101]), 131, shuffle=False)
    assert sorted(rows_of(loader)) == [3, 7, 101]


def test_a_batch_of_lists():
    batch = PairBatch.of([[5, 6, 7], [], [8]], [[9], [5, 5], []])
    assert batch.source.tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert batch.source_lengths.tolist() == [3, 0, 1]
    assert batch.target.tolist() == [[1, 9, 2, 0], [1, 5, 5, 2], [1, 2, 0, 0]]
    assert batch.target_lengths.tolist() == [3, 4, 2]
    assert batch.target_tokens == 6
    assert PairBatch.of([[4]]).target.tolist() == [[1, 2]]
    assert len(PairBatch.of([])) == 0
    with pytest.raises(ArgumentError, match="got 1 and 2"):
        PairBatch.of([[4]], [[4], [5]])


def test_a_batch_moves_as_a_whole():
    moved = PairBatch.of([[4]]).to("meta")
    assert {getattr(moved, name).device.type for name in PairBatch.__dataclass_fields__} == {"meta"}


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=23), st.data())
@settings(max_examples=60, deadline=None)
def test_ragged_rows_in_pieces_are_the_rows(lists, data):
    cut = data.draw(st.integers(0, len(lists)))
    whole = [Ragged.from_lists(part) for part in (lists[:cut], lists[cut:])]
    ragged = Ragged([piece for part in whole for piece in part._pieces])
    rows = np.array(data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=11)), np.int64)
    table = ragged.padded(rows, before=1, after=2, fill=-1)
    assert len(ragged) == len(lists)
    assert table.shape == (len(rows), 3 + max((len(lists[row]) for row in rows), default=0))
    for row, line in zip(rows, table.tolist(), strict=True):
        assert line == [-1, *lists[row], *[-1] * (len(line) - 1 - len(lists[row]))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens_per_batch": 0}, "tokens_per_batch must be a whole number of at least 1; got 0"),
        ({"bucket_width": 0}, "bucket_width must be"),
        ({"source_tokens_per_batch": -1}, "source_tokens_per_batch must be"),
        ({"seed": -1}, "seed must be"),
        ({"rank": 2, "world_size": 2}, "rank must be from 0 to world_size - 1 = 1; got 2"),
    ],
)
def test_pair_batches_refuse_wrong_arguments(encoded, options, message):
    with pytest.raises(ArgumentError, match=message):
        pair_batches(encoded, **{"tokens_per_batch": 64, **options})


def test_bad_state_and_lengths(encoded, tokenizer):
    with pytest.raises(ArgumentError, match="was the data changed"):
        pair_batches(encoded, 64).load_state_dict({"epoch": 0, "position": 10_000})
    with pytest.raises(ArgumentError, match="max_length must be"):
        encode_pairs(encoded, tokenizer, tokenizer, max_length=0)
    with pytest.raises(ArgumentError, match="overlong must be 'drop' or 'cut'"):
        encode_pairs(encoded, tokenizer, tokenizer, overlong="keep")
