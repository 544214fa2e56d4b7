"""Encoded pairs of texts, encoded labelled texts, and their batches."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Unpack

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Batches, Order, TargetBatch
from regard.data.cache import cached_table, fingerprint, require_datasets
from regard.data.ragged import Ragged
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

log = logging.getLogger("regard")

_BLOCK = 16384  # rows encoded at once


class IdEncoder(Protocol):
    """Turns texts into lists of ids: a `Tokenizer`, or the `regard.data.labels.Labels` of texts."""

    @property
    def fingerprint(self) -> str:
        """A key that is equal for those that encode every text alike."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        ...


def encode_pairs(
    dataset: "datasets.Dataset",
    source_tokenizer: IdEncoder,
    target_tokenizer: IdEncoder,
    *,
    max_length: int = 256,
    overlong: Literal["drop", "cut"] = "drop",
    unit: str = "pairs",
) -> "datasets.Dataset":
    """Encodes every pair; the ids are memory-mapped in the cache folder of Hugging Face ``datasets``.

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
        rows = [row for row, is_long in enumerate(long) if overlong == "cut" or not is_long]
        source, target = ([side[row][:max_length] for row in rows] for side in sides)
        return EncodedBlock(source, target, rows, {"overlong": sum(long)})

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
        kept: the positions of these pairs in the block.
        counts: what a message about the data needs, e.g. pairs that are too long.
    """

    source: list[list[int]]
    target: list[list[int]]
    kept: list[int]
    counts: dict[str, int]


def encoded_table(
    key: str, dataset: "datasets.Dataset", encode: Callable[[dict[str, list[str]]], EncodedBlock], refused: str
) -> tuple["datasets.Dataset", dict[str, int]]:
    """Encodes every pair, block by block, into a memory-mapped table.

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
        first = written = 0
        block: Any
        for block in dataset.iter(_BLOCK):
            encoded_block = encode(block)
            rows = [first + row for row in encoded_block.kept]
            first += len(block["source"])
            written += len(rows)
            for name, count in encoded_block.counts.items():
                counted[name] = counted.get(name, 0) + count
            lengths = [[len(ids) for ids in side] for side in (encoded_block.source, encoded_block.target)]
            columns = zip([encoded_block.source, encoded_block.target, *lengths, rows], schema, strict=True)
            yield pa.record_batch([pa.array(values, field.type) for values, field in columns], schema=schema)
        if not written:
            raise DataError(refused)

    return cached_table(key, schema, batches)


@dataclass(frozen=True)
class PairBatch(TargetBatch):
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

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]] | None = None) -> "PairBatch":
        """Returns a batch of lists of ids without ``bos`` and ``eos``; None: each target is ``bos`` and ``eos``."""
        if targets is None:
            targets = [()] * len(sources)
        if len(targets) != len(sources):
            raise ArgumentError(f"sources and targets must have the same length; got {len(sources)} and {len(targets)}")
        rows = np.arange(len(sources))
        return cls.gather(Ragged.from_lists(sources), Ragged.from_lists(targets), rows, rows)

    @classmethod
    def gather(cls, source: Ragged, target: Ragged, rows: np.ndarray, index: np.ndarray) -> "PairBatch":
        """Returns a batch of some rows of two columns of ids, whose rows in the data are ``index``."""
        sources, source_lengths = source.padded(rows, fill=Tokenizer.PAD), source.lengths(rows)
        targets, target_lengths = target.with_ends(rows, Tokenizer.BOS, Tokenizer.EOS, Tokenizer.PAD)
        columns = index.astype(np.int64), sources, source_lengths, targets, target_lengths
        return cls(*map(torch.from_numpy, columns))


def pair_batches(
    encoded: "datasets.Dataset",
    tokens_per_batch: int,
    *,
    source_tokens_per_batch: int | None = None,
    bucket_width: int = 2,
    **order: Unpack[Order],
) -> Batches[int, PairBatch]:
    """Returns batches of pairs with similar lengths; without shuffling, from the shortest to the longest pairs.

    Args:
        encoded: what `encode_pairs` gives.
        tokens_per_batch: largest number of target tokens of a batch, with padding, ``bos`` and ``eos``; a longer pair
            is a batch of one pair.
        source_tokens_per_batch: largest number of source tokens of a batch, with padding; None: twice
            ``tokens_per_batch``.
        bucket_width: range of lengths in one bucket, in tokens.
        order: options of `regard.data.batches.Batches`.

    Raises:
        ArgumentError: a number is out of its range.
    """
    if source_tokens_per_batch is None:
        source_tokens_per_batch = 2 * tokens_per_batch
    limits = {"tokens_per_batch": tokens_per_batch, "source_tokens_per_batch": source_tokens_per_batch}
    for name, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ArgumentError(f"{name} must be a whole number of at least 1; got {value!r}")
    pairs = _EncodedPairs(encoded)
    return Batches(
        range(len(encoded)),
        None,
        pairs.gather,
        lengths=np.stack([pairs.lengths("target") + 2, pairs.lengths("source")], axis=1),
        limits=(tokens_per_batch, source_tokens_per_batch),
        bucket_width=bucket_width,
        **order,
    )


class _EncodedPairs:
    """The columns of an encoded table; they are opened again in a process that they are sent to."""

    def __init__(self, encoded: "datasets.Dataset"):
        self._encoded = encoded
        self._columns: tuple[Ragged, Ragged, np.ndarray] | None = None

    def lengths(self, side: str) -> np.ndarray:
        return np.asarray(self._encoded.with_format("numpy")[f"{side}_length"], np.int64)

    def gather(self, rows: list[int]) -> PairBatch:
        if self._columns is None:
            table = self._encoded.with_format("arrow")[:]
            source, target = (Ragged.from_column(table.column(name)) for name in ("source", "target"))  # pyright: ignore
            self._columns = source, target, table.column("row").to_numpy()  # pyright: ignore
        source, target, row = self._columns
        chosen = np.asarray(rows, np.int64)
        return PairBatch.gather(source, target, chosen, row[chosen])

    def __getstate__(self) -> dict[str, Any]:
        # The columns are views of a memory-mapped file.
        return {**self.__dict__, "_columns": None}
