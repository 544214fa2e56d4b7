"""Encoded pairs, and the batches that a model is trained on: of similar length, in an order that can be continued."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from regard.data.cache import cached_table, fingerprint, require_datasets
from regard.data.tokenizers import Tokenizer
from regard.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

log = logging.getLogger("regard")

_BLOCK = 16384  # rows encoded at once


def encode_pairs(
    dataset: "datasets.Dataset",
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    max_length: int = 256,
    overlong: Literal["drop", "cut"] = "drop",
) -> "datasets.Dataset":
    """The ids of every pair, memory-mapped in the cache folder of Hugging Face ``datasets``.

    Args:
        dataset: columns ``source`` and ``target``, as `regard.data.sources.open_pairs` gives.
        source_tokenizer: encodes the source side.
        target_tokenizer: encodes the target side.
        max_length: the most tokens of either side, begin and end not counted.
        overlong: what happens to a pair with a longer side: ``"drop"`` (for training; a warning of the logger
            ``regard`` counts them) or ``"cut"`` (for evaluation, where every row must stay).

    Returns:
        columns ``source`` and ``target`` (lists of int32 ids, without begin and end), ``source_length`` and
        ``target_length`` (their lengths), ``row`` (the row in ``dataset``).

    Raises:
        ArgumentError: ``max_length`` is below 1, or ``overlong`` is unknown.
        DataError: no pair is left.
    """
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
        raise ArgumentError(f"max_length must be a whole number of at least 1; got {max_length!r}")
    if overlong not in ("drop", "cut"):
        raise ArgumentError(f"overlong must be 'drop' or 'cut'; got {overlong!r}")
    require_datasets()
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    kinds = [("source", ids), ("target", ids), ("source_length", pa.int32()), ("target_length", pa.int32())]
    schema = pa.schema([*kinds, ("row", pa.int64())])

    def batches(counted: dict[str, int]) -> Iterator["pa.RecordBatch"]:
        counted["overlong"] = counted["kept"] = first = 0
        for block in dataset.iter(_BLOCK):
            sources = source_tokenizer.encode_batch(block["source"])  # pyright: ignore
            targets = target_tokenizer.encode_batch(block["target"])  # pyright: ignore
            rows = range(first, first + len(sources))
            first = rows.stop
            long = [max(len(s), len(t)) > max_length for s, t in zip(sources, targets, strict=True)]
            counted["overlong"] += sum(long)
            if overlong == "drop":
                sources, targets, rows = (
                    [value for value, out in zip(side, long, strict=True) if not out]
                    for side in (sources, targets, rows)
                )
            else:
                sources, targets = ([side[:max_length] for side in sides] for sides in (sources, targets))
            counted["kept"] += len(sources)
            lengths = [[len(side) for side in sides] for sides in (sources, targets)]
            yield pa.record_batch(
                [
                    pa.array(values, field.type)
                    for values, field in zip([sources, targets, *lengths, rows], schema, strict=True)
                ],
                schema=schema,
            )
        if not counted["kept"]:
            raise DataError(f"none of {first} pairs has at most {max_length} tokens a side; raise max_length")

    tokenizers = source_tokenizer.fingerprint, target_tokenizer.fingerprint
    # `_fingerprint` is how datasets documents a table's content; nothing public carries it.
    key = fingerprint("encoded", dataset._fingerprint, tokenizers, max_length, overlong)
    table, counted = cached_table(key, schema, batches)
    if counted["overlong"]:
        done = "left out" if overlong == "drop" else "cut"
        total = len(dataset)
        log.warning("%s %d of %d pairs with more than %d tokens", done, counted["overlong"], total, max_length)
    return table


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Pairs side by side, padded with id 0.

    Attributes:
        source: int64 ``[batch, source_tokens]``, without begin and end.
        source_lengths: int64 ``[batch]``.
        target: int64 ``[batch, target_tokens]``: begin, the sentence, end.
        target_lengths: int64 ``[batch]``, begin and end counted.
        index: int64 ``[batch]``: the row of each pair in the data set that was encoded.
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
        """How many tokens are predicted: all of the target but the begins and the padding."""
        return int(self.target_lengths.sum()) - len(self)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "PairBatch":
        """The same batch on a device."""
        moved = (getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self))
        return PairBatch(*moved)

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]] | None = None) -> "PairBatch":
        """A batch of lists of ids (without begin and end); without targets, each target is begin and end alone."""
        if targets is None:
            targets = [()] * len(sources)
        if len(targets) != len(sources):
            raise ArgumentError(f"sources and targets must be as many; got {len(sources)} and {len(targets)}")
        sides = [_Ragged.of(side) for side in (sources, targets)]
        return _assemble(*sides, np.arange(len(sources)), np.arange(len(sources)))
