"""Encoded pairs, and batches of pairs with similar lengths, in an order that can be resumed at any batch."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.data.cache import cached_table, fingerprint, require_datasets
from regard.data.ragged import Ragged
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

log = logging.getLogger("regard")

_BLOCK = 16384  # rows encoded at once


class Encodes(Protocol):
    """Turns texts into lists of ids: a `Tokenizer`, or the `regard.data.text.labels.Labels` of texts."""

    @property
    def fingerprint(self) -> str:
        """A key that is equal for those that encode every text alike."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        ...


def encode_pairs(
    dataset: "datasets.Dataset",
    source_tokenizer: "Encodes",
    target_tokenizer: "Encodes",
    *,
    max_length: int = 256,
    overlong: Literal["drop", "cut"] = "drop",
    unit: str = "pairs",
) -> "datasets.Dataset":
    """Encode every pair; the ids are memory-mapped in the cache folder of Hugging Face ``datasets``.

    Args:
        dataset: columns ``source`` and ``target``, as `regard.data.text.sources.open_pairs` gives.
        source_tokenizer: encodes the source side.
        target_tokenizer: encodes the target side.
        max_length: largest number of tokens of each side, without ``bos`` and ``eos``.
        overlong: treatment of a pair with a longer side. ``"drop"``: it is left out, for training; the logger
            ``regard`` warns with the number of such pairs. ``"cut"``: it is cut, for evaluation, which needs all rows.
        unit: what a row is, in the plural, for messages.

    Returns:
        columns ``source`` and ``target`` (lists of int32 ids, without ``bos`` and ``eos``), ``source_length`` and
        ``target_length`` (their lengths), ``row`` (the row in ``dataset``).

    Raises:
        ArgumentError: ``max_length`` is below 1, or ``overlong`` is unknown.
        DataError: no pair is left.
    """
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
        raise ArgumentError(f"max_length must be a whole number of at least 1; got {max_length!r}")
    if overlong not in ("drop", "cut"):
        raise ArgumentError(f"overlong must be 'drop' or 'cut'; got {overlong!r}")

    def encode(block: dict[str, list[str]]) -> EncodedBlock:
        sides = [source_tokenizer.encode_batch(block["source"]), target_tokenizer.encode_batch(block["target"])]
        long = [max(map(len, pair)) > max_length for pair in zip(*sides, strict=True)]
        kept = [place for place, out in enumerate(long) if overlong == "cut" or not out]
        source, target = ([side[place][:max_length] for place in kept] for side in sides)
        return EncodedBlock(source, target, kept, {"overlong": sum(long)})

    # datasets documents `_fingerprint` as the key of a table's content; there is no public attribute for it.
    tokenizers = source_tokenizer.fingerprint, target_tokenizer.fingerprint
    key = fingerprint("encoded", dataset._fingerprint, tokenizers, max_length, overlong)
    refused = f"none of {len(dataset)} {unit} has at most {max_length} tokens a side; raise max_length"
    table, counted = encoded_table(key, dataset, encode, refused)
    if counted["overlong"]:
        done = "left out" if overlong == "drop" else "cut"
        total = len(dataset)
        log.warning("%s %d of %d %s with more than %d tokens", done, counted["overlong"], total, unit, max_length)
    return table


class EncodedBlock(NamedTuple):
    """The ids of some pairs.

    Attributes:
        source: ids of the source of each pair that is kept.
        target: ids of its target.
        kept: the places of these pairs in the block.
        counts: what a message about the data needs, e.g. pairs that are too long.
    """

    source: list[list[int]]
    target: list[list[int]]
    kept: list[int]
    counts: dict[str, int]


def encoded_table(
    key: str, dataset: "datasets.Dataset", encode: Callable[[dict[str, list[str]]], EncodedBlock], refused: str
) -> tuple["datasets.Dataset", dict[str, int]]:
    """Encode every pair, block by block, into a memory-mapped table.

    Args:
        key: key of the content, see `regard.data.cache.fingerprint`.
        dataset: columns ``source`` and ``target``.
        encode: encodes a block of pairs.
        refused: the message if no pair is kept.

    Returns:
        the table that `encode_pairs` describes, and the sums of the counts.

    Raises:
        DataError: no pair is kept.
    """
    require_datasets()
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    kinds = [("source", ids), ("target", ids), ("source_length", pa.int32()), ("target_length", pa.int32())]
    schema = pa.schema([*kinds, ("row", pa.int64())])

    def batches(counted: dict[str, int]) -> Iterator["pa.RecordBatch"]:
        first = kept = 0
        block: Any
        for block in dataset.iter(_BLOCK):
            found = encode(block)
            rows = [first + place for place in found.kept]
            first += len(block["source"])
            kept += len(rows)
            for name, count in found.counts.items():
                counted[name] = counted.get(name, 0) + count
            lengths = [[len(ids) for ids in side] for side in (found.source, found.target)]
            columns = zip([found.source, found.target, *lengths, rows], schema, strict=True)
            yield pa.record_batch([pa.array(values, field.type) for values, field in columns], schema=schema)
        if not kept:
            raise DataError(refused)

    return cached_table(key, schema, batches)


@dataclass(frozen=True, slots=True)
class PairBatch:
    """A batch of pairs, padded with id 0.

    Attributes:
        source: int64 ``[batch, source_tokens]``, without ``bos`` and ``eos``.
        source_lengths: int64 ``[batch]``.
        target: int64 ``[batch, target_tokens]``: ``bos``, the sentence, ``eos``.
        target_lengths: int64 ``[batch]``, with ``bos`` and ``eos``.
        index: int64 ``[batch]``: the row of each pair in the encoded data set.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    @property
    def target_tokens(self) -> int:
        """Number of predicted tokens: all target tokens without ``bos`` and padding."""
        return int(self.target_lengths.sum()) - len(self)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "PairBatch":
        """The same batch on a device."""
        moved = (getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self))
        return PairBatch(*moved)

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]] | None = None) -> "PairBatch":
        """A batch from lists of ids without ``bos`` and ``eos``; None: each target is ``bos`` and ``eos``."""
        if targets is None:
            targets = [()] * len(sources)
        if len(targets) != len(sources):
            raise ArgumentError(f"sources and targets must be as many; got {len(sources)} and {len(targets)}")
        rows = np.arange(len(sources))
        return _assemble(Ragged.from_lists(sources), Ragged.from_lists(targets), rows, rows)


def _assemble(source: Ragged, target: Ragged, rows: np.ndarray, index: np.ndarray) -> PairBatch:
    sources, targets = (
        source.padded(rows, fill=Tokenizer.PAD),
        target.padded(rows, before=1, after=1, fill=Tokenizer.PAD),
    )
    source_lengths, target_lengths = source.lengths(rows), target.lengths(rows) + 2
    targets[:, 0] = Tokenizer.BOS
    targets[np.arange(len(rows)), target_lengths - 1] = Tokenizer.EOS
    return PairBatch(*map(torch.from_numpy, (sources, source_lengths, targets, target_lengths, index.astype(np.int64))))


class BatchLoader:
    """Gives every pair once an epoch, in batches of pairs with similar lengths; can resume after any batch.

    One iteration gives one epoch of `PairBatch`; the next iteration gives the next epoch. The loader is an iterable
    with a length and a state, so Lightning accepts it as a training or validation loader.

    With ``shuffle``, the rows are shuffled, sorted by length in buckets of ``bucket_width`` tokens, split into batches,
    and the batches are shuffled. The order depends only on ``(seed, epoch)``. The split depends only on the sorted
    lengths, so every epoch has the same number of batches. Without ``shuffle``, the batches have a fixed order, from
    the shortest to the longest pairs; ``PairBatch.index`` gives their rows.

    Args:
        encoded: what `encode_pairs` gives.
        tokens_per_batch: largest number of target tokens of a batch, with padding, ``bos`` and ``eos``; a longer pair
            is a batch of one pair.
        seed: seed of the order.
        shuffle: whether each epoch has another order.
        source_tokens_per_batch: largest number of source tokens of a batch, with padding; None: twice
            ``tokens_per_batch``.
        bucket_width: range of lengths in one bucket, in tokens, at least 1: a larger one gives more variation between
            epochs and more padding.
        rank: number of this process; it gets every ``world_size``-th batch of the epoch. All processes get the same
            number of batches; if ``world_size`` does not divide it, the first batches of the epoch are repeated.
        world_size: number of processes.

    Raises:
        ArgumentError: a number is out of its range.
    """

    def __init__(
        self,
        encoded: "datasets.Dataset",
        tokens_per_batch: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        source_tokens_per_batch: int | None = None,
        bucket_width: int = 2,
        rank: int = 0,
        world_size: int = 1,
    ):
        if source_tokens_per_batch is None:
            source_tokens_per_batch = 2 * tokens_per_batch
        named = {
            "tokens_per_batch": tokens_per_batch,
            "source_tokens_per_batch": source_tokens_per_batch,
            "bucket_width": bucket_width,
            "world_size": world_size,
        }
        for name, value in named.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ArgumentError(f"{name} must be a whole number of at least 1; got {value!r}")
        if not 0 <= rank < world_size:
            raise ArgumentError(f"rank must be from 0 to world_size - 1 = {world_size - 1}; got {rank!r}")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ArgumentError(f"seed must be a whole number of at least 0; got {seed!r}")
        self.seed, self.shuffle, self.rank, self.world_size = seed, shuffle, rank, world_size
        self._encoded = encoded
        self._columns: tuple[Ragged, Ragged, np.ndarray] | None = None
        self._epoch, self._position = 0, 0  # of the next batch
        self._resumed = False
        width = bucket_width if shuffle else 1
        lengths = encoded.with_format("numpy")
        source, target = (np.asarray(lengths[name], np.int64) for name in ("source_length", "target_length"))
        source_bucket, target_bucket = -(-source // width), -(-(target + 2) // width)
        self._key = target_bucket * (source_bucket.max(initial=0) + 1) + source_bucket
        order = np.argsort(self._key, kind="stable")
        self._cuts = _cuts(
            np.minimum(target_bucket * width, (target + 2).max(initial=0))[order],
            np.minimum(source_bucket * width, source.max(initial=0))[order],
            tokens_per_batch,
            source_tokens_per_batch,
        )

    def __len__(self) -> int:
        """Number of batches of this process in an epoch, the same in every epoch."""
        return -(-(len(self._cuts) - 1) // self.world_size)

    def __iter__(self) -> Iterator[PairBatch]:
        # An epoch whose iteration stopped early is not continued, unless a state was loaded.
        if not self._resumed and self._position > 0:
            self._epoch, self._position = self._epoch + 1, 0
        self._resumed = False
        return self._batches(self._epoch, self._position)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch, from its first batch (a loaded state of this epoch is kept)."""
        if not (self._resumed and epoch == self._epoch):
            self._epoch, self._position, self._resumed = epoch, 0, False

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its batches the iteration has given."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration start at the batch after the last one before ``state``."""
        epoch, position = int(state["epoch"]), int(state["position"])
        if epoch < 0 or not 0 <= position <= len(self):
            raise ArgumentError(
                f"the state {state} does not fit a loader of {len(self)} batches; was the data changed?"
            )
        if position == len(self):
            epoch, position = epoch + 1, 0
        self._epoch, self._position, self._resumed = epoch, position, True

    def _batches(self, epoch: int, position: int) -> Iterator[PairBatch]:
        source, target, row = self._open()
        order, batches = self._order(epoch)
        for number in range(position, len(self)):
            start, stop = batches[number]
            # Counted before the yield: a state that is read afterwards includes this batch.
            self._epoch, self._position = epoch, number + 1
            rows = order[start:stop]
            yield _assemble(source, target, rows, row[rows])
        self._epoch, self._position = epoch + 1, 0

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        # The rows in their order, and (start, stop) of each batch of this process in this order.
        batches = np.stack([self._cuts[:-1], self._cuts[1:]], axis=1)
        if self.shuffle:
            random = np.random.default_rng([self.seed, epoch])
            order = random.permutation(len(self._key))
            order = order[np.argsort(self._key[order], kind="stable")]
            batches = batches[random.permutation(len(batches))]
        else:
            order = np.argsort(self._key, kind="stable")
        shared = np.arange(self.rank, len(self) * self.world_size, self.world_size)
        return order, batches[shared % max(len(batches), 1)]

    def _open(self) -> tuple[Ragged, Ragged, np.ndarray]:
        if self._columns is None:
            table = self._encoded.with_format("arrow")[:]
            source, target = (Ragged.from_column(table.column(name)) for name in ("source", "target"))  # pyright: ignore
            self._columns = source, target, table.column("row").to_numpy()  # pyright: ignore
        return self._columns

    def __getstate__(self) -> dict[str, Any]:
        # The columns are views of a memory-mapped file; another process opens its own.
        return {**self.__dict__, "_columns": None}


def _cuts(target: np.ndarray, source: np.ndarray, target_budget: int, source_budget: int) -> np.ndarray:
    # The boundaries of the batches: each has as many rows as fit into both budgets after padding, at least one.
    cuts = [0]
    while (start := cuts[-1]) < len(target):
        most = max(1, target_budget // int(target[start]))  # the rows are sorted by target length
        widest = [np.maximum.accumulate(side[start : start + most]) for side in (target, source)]
        rows = np.arange(1, len(widest[0]) + 1)
        fits = (rows * widest[0] <= target_budget) & (rows * widest[1] <= source_budget)
        cuts.append(start + max(1, int(fits.argmin()) if not fits.all() else len(fits)))
    return np.asarray(cuts)
