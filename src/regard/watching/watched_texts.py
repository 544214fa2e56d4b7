"""The texts that a watched model of Hugging Face read: their tokens, by its tokenizer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.records import TokenAxis
from regard.watching.generation import Generation
from regard.watching.token_ids import TokenIds, token_axis


class WatchedText(NamedTuple):
    """One text that a watched model read.

    Attributes:
        sequence: the number of its sequence, as for `Watch.stitched`.
        batch_row: its row, from 0.
        queries: the tokens of the queries.
        keys: the tokens of the source of an encoder-decoder; None for other models.

    Example:
        >>> from regard import records, watching
        >>> text = watching.WatchedText(0, 1, records.TokenAxis(("a", "good", "book")), None)
        >>> text.batch_row, text.queries.tokens
        (1, ('a', 'good', 'book'))
    """

    sequence: int
    batch_row: int
    queries: TokenAxis
    keys: TokenAxis | None


def texts_of(
    generation: Generation, token_ids: TokenIds, tokenizer: Any, sequences: Sequence[int]
) -> list[WatchedText]:
    """Returns each row of some sequences: see `Watch.texts`."""
    texts = []
    for number, ids, source in _separate(generation, token_ids, sequences):
        prompt = generation.prompt(number)
        for row in range(len(ids)):
            queries = token_axis(tokenizer, ids[row].tolist())
            keys = None if source is None else token_axis(tokenizer, source[row].tolist())
            if keys is None and prompt is not None and prompt < len(queries):
                queries = replace(queries, generated=prompt)
            texts.append(WatchedText(number, row, queries, keys))
    return texts


def _separate(
    generation: Generation, token_ids: TokenIds, sequences: Sequence[int]
) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """Yields sequences with their ids and a source's; one that the next continues by one token is a step of it."""
    last = None
    for number in sequences:
        modules = [parts for parts in generation.parts(number) if parts]
        decoder = [parts for parts in modules if parts[0].call.kind != "self"] or modules
        has_source = any(parts[0].call.kind == "cross" for parts in decoder)
        ids, source = token_ids.of_sequence(max(decoder, key=lambda parts: parts[-1].end), has_source)
        if last is not None and not torch.equal(last[1], ids[:, :-1]):
            yield last
        last = number, ids, source
    if last is not None:
        yield last
