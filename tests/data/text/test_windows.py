"""Tables of ids and their windows: nothing lost, nothing twice, an order that resumes."""

import pickle
from collections import Counter

import numpy as np
import pytest
import torch

from regard.data.text import running_text
from regard.data.text.piece_tokenizer import KINDS
from regard.data.text.running_text import TokenTable, encode_text, text_files, window_batches
from regard.data.text.tokenizers import TextTokenizer
from regard.errors import ArgumentError, DataError

TABLE = TokenTable([np.arange(0, 7), np.arange(0), np.arange(7, 8), np.arange(8, 53)])


def test_a_table_is_its_arrays_one_after_the_other():
    assert len(TABLE) == 53
    assert TABLE.ids().tolist() == list(range(53))
    starts = np.array([0, 6, 5, 42, 7])
    assert TABLE.windows(starts, 11).tolist() == [list(range(start, start + 11)) for start in starts]
    part = TABLE.part(5, 30)
    assert part.ids().tolist() == list(range(5, 30))
    assert part.part(3, 99).ids().tolist() == list(range(8, 30))
    assert part.ids(4, 4).tolist() == []
    assert pickle.loads(pickle.dumps(part)).ids().tolist() == list(range(5, 30))


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_of_files_are_those_of_their_texts(tmp_path, monkeypatch, own_cache, kind):
    texts = ["One line.\nAnother, with 12 é.\r\n\n" * 7, "", "no end of line"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
    tokenizer = TextTokenizer.train(texts, kind, 300)
    expected = [id for text in texts for id in (tokenizer.END, *tokenizer.encode(text))]
    monkeypatch.setattr(running_text, "_BLOCK", 20)
    assert encode_text(text_files(tmp_path), tokenizer).ids().tolist() == expected
    (written,) = own_cache.rglob("*.arrow")
    before = written.stat().st_mtime_ns
    assert encode_text(text_files(tmp_path), tokenizer).ids().tolist() == expected
    assert written.stat().st_mtime_ns == before
    (tmp_path / "0.txt").write_text("changed")
    assert tokenizer.decode(encode_text(text_files(tmp_path / "0.txt"), tokenizer).ids()).startswith(
        "ch" if kind == "bpe" else ""
    )
    assert encode_text(text_files(tmp_path), tokenizer).ids().tolist() != expected


def test_empty_files_are_no_text(tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(DataError, match=r"a\.txt: there is no text in it"):
        encode_text([tmp_path / "a.txt"], TextTokenizer.train(["a"], "char"))


def epochs(loader, count):
    return [torch.cat(list(loader)) for _ in range(count)]


@pytest.mark.parametrize("order", ["random", "consecutive"])
def test_a_batch_is_windows_and_the_tokens_after_them(order):
    loader = window_batches(TABLE, 3, 5, order=order, seed=2)
    batches = list(loader)
    assert len(batches) == len(loader)
    for batch in batches:
        assert (batch.dtype, batch.shape) == (torch.int64, (3, 6))
        assert (batch == batch[:, :1] + torch.arange(6)).all()


def test_random_windows_begin_everywhere():
    loader = window_batches(TABLE, 7, 5, steps=100)
    starts = Counter(torch.cat(epochs(loader, 3))[:, 0].tolist())
    assert set(starts) == set(range(53 - 5))
    assert max(starts.values()) < 3 * min(starts.values())


def test_consecutive_windows_give_each_token_once():
    loader = window_batches(TABLE, 3, 5, order="consecutive", seed=4)
    found = epochs(loader, 30)
    assert len({tuple(sorted(epoch[:, 0].tolist())) for epoch in found}) > 3
    assert len({tuple(epoch[:, 0].tolist()) for epoch in found}) == 30
    for epoch in found:
        inputs = epoch[:, :-1].flatten().tolist()
        assert len(set(inputs)) == len(inputs) == 9 * 5
        assert max(inputs) - min(inputs) == 9 * 5 - 1


@pytest.mark.parametrize("order", ["random", "consecutive"])
def test_the_order_depends_on_seed_and_epoch_and_resumes_anywhere(order):
    options = {"order": order, "steps": 2}
    whole = window_batches(TABLE, 3, 5, seed=4, **options)
    batches = [batch for _ in range(3) for batch in whole]
    assert len(batches) == 6
    assert not torch.equal(batches[0], batches[2])
    other = window_batches(TABLE, 3, 5, seed=5, **options)
    assert not torch.equal(batches[0], next(iter(other)))
    for taken in range(6):
        resumed = window_batches(TABLE, 3, 5, seed=4, **options)
        resumed.load_state_dict({"epoch": taken // 2, "position": taken % 2})
        rest = [batch for _ in range(3 - taken // 2) for batch in resumed]
        assert all(map(torch.equal, rest, batches[taken:]))
        assert len(rest) == 6 - taken
    resumed.load_state_dict({"epoch": 0, "position": 2})
    assert torch.equal(next(iter(resumed)), batches[2])


@pytest.mark.parametrize("order", ["random", "consecutive"])
def test_processes_share_the_batches(order):
    whole = list(window_batches(TABLE, 2, 5, order=order, steps=4))
    parts = [list(window_batches(TABLE, 2, 5, order=order, steps=2, rank=rank, world_size=2)) for rank in (0, 1)]
    for number, batch in enumerate(whole):
        assert torch.equal(batch, parts[number % 2][number // 2])
    many = [window_batches(TABLE, 7, 5, order=order, rank=rank, world_size=3) for rank in range(3)]
    assert [len(list(loader)) for loader in many] == [1, 1, 1]
    assert all(len(batch) == 7 for loader in many for batch in loader)


def test_a_text_of_one_window():
    table = TokenTable([np.arange(6)])
    for order in ("random", "consecutive"):
        (batch,) = window_batches(table, 2, 5, order=order)
        assert batch[0].tolist() == list(range(6))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ArgumentError, "batch_size must be at least 1"),
        ({"length": 0}, ArgumentError, "length must be at least 1"),
        ({"steps": -1}, ArgumentError, "steps must be at least 0"),
        ({"rank": 1}, ArgumentError, "rank must be from 0"),
        ({"length": 53}, DataError, "53 tokens, too few for a window of 53"),
        ({"order": "consecutive", "steps": 4}, ArgumentError, "steps_per_epoch must be at most 3"),
    ],
)
def test_window_batches_refuse_wrong_arguments(options, error, message):
    with pytest.raises(error, match=message):
        window_batches(TABLE, **{"batch_size": 3, "length": 5, **options})
    with pytest.raises(ArgumentError, match="was the data changed"):
        window_batches(TABLE, 3, 5).load_state_dict({"epoch": 0, "position": 99})
