"""The tokens that a caller names for weights, and the axes that they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.errors import ArgumentError, KindError, ShapeError
from regard.records import Axis, FrameAxis, GridAxis, TokenAxis, word_ranges
from regard.records.axis import special_by_name
from regard.shapes.checks import type_text
from regard.watching.token_ids import is_tokenizer

AXES = (TokenAxis, GridAxis, FrameAxis)
"""The kinds of axes."""


@dataclass(frozen=True)
class TokenLabels:
    """The tokens that a caller named, for both sides or for queries and keys, and an example of a batch, from 0."""

    tokens: Any = None
    rows: Any = None
    columns: Any = None
    example: int | None = None
    batch: int | None = None

    @property
    def count(self) -> int | None:
        """For how many texts lists of tokens are named; None: for one."""
        kinds = (list, tuple, *AXES)
        for labels in (self.tokens, self.rows, self.columns):
            if isinstance(labels, (list, tuple)) and labels and all(isinstance(one, kinds) for one in labels):
                return len(labels)
        return None

    def of_text(self, number: int) -> TokenLabels:
        """Returns the tokens of one of several texts."""
        parts = [None if labels is None else labels[number] for labels in (self.tokens, self.rows, self.columns)]
        return TokenLabels(*parts)

    def check_count(self, texts: int) -> None:
        """Raises ShapeError if tokens are named for another number of texts."""
        if self.count != texts:
            raise ShapeError(f"tokens must be lists for {texts} texts; there are {self.count}")

    def refuse(self, content: str) -> None:
        """Raises ArgumentError if anything is named for a content that has its own labels."""
        named = [name for name in ("tokens", "rows", "columns", "example") if getattr(self, name) is not None]
        if named:
            raise ArgumentError(f"{content} has its tokens; leave {' and '.join(named)} out: View(content)")

    def axes(self, queries: int, keys: int) -> tuple[Axis, Axis]:
        """Returns the axes of weights ``[queries, keys]``."""
        sizes = f"the weights have {queries} queries and {keys} keys"
        if self.tokens is not None and (self.rows is not None or self.columns is not None):
            raise ArgumentError("name tokens for both sides, or rows and columns: View(weights, rows=..., columns=...)")
        if self.tokens is not None:
            axis = labelled_axis("tokens", self.tokens)
            if queries != keys:
                raise ShapeError(
                    f"{sizes}, so each side has tokens of its own: View(weights, rows=[{queries} tokens of the "
                    f"queries], columns=[{keys} tokens of the keys])"
                )
            if len(axis) != queries:
                raise ShapeError(
                    f"tokens must be {queries}, one for each position of the weights, special tokens included; there "
                    f"are {len(axis)}. Of a tokenizer write View(weights, tokenizer.convert_ids_to_tokens(ids))"
                )
            return axis, axis
        if self.rows is None and self.columns is None:
            named = f"View(weights, tokens) with {queries} tokens, or View(weights, range({queries})) for numbers"
            if queries != keys:
                named = f"View(weights, rows=[{queries} tokens of the queries], columns=[{keys} tokens of the keys])"
            raise ArgumentError(f"tokens are missing: {sizes}; write {named}")
        for name, labels, side, count in (
            ("rows", self.rows, "queries", queries),
            ("columns", self.columns, "keys", keys),
        ):
            if labels is None:
                raise ArgumentError(
                    f"{name} is missing, the {count} tokens of the {side}: View(weights, rows=..., columns=...)"
                )
        pair = labelled_axis("rows", self.rows), labelled_axis("columns", self.columns)
        for name, axis, count in zip(("rows", "columns"), pair, (queries, keys), strict=True):
            if len(axis) != count:
                raise ShapeError(f"{name} must be {count} tokens, since {sizes}; there are {len(axis)}")
        # Equal tokens are one axis.
        return (pair[0], pair[0]) if pair[0] == pair[1] else pair

    def row(self, batch: int, line: str) -> int:
        """Returns the number of the example in a batch."""
        if self.batch is not None and self.batch != batch:
            raise ShapeError(f"tokens must be lists for the {batch} examples of the batch; there are {self.batch}")
        if self.example is None:
            if batch != 1:
                raise ArgumentError(f"there are {batch} examples in the batch; write which one: {line}")
            return 0
        if isinstance(self.example, bool) or not isinstance(self.example, int) or not 0 <= self.example < batch:
            raise ArgumentError(f"example must be from 0 to {batch - 1}; it is {self.example!r}")
        return self.example


def labelled_axis(name: str, tokens: Any) -> Axis:
    """Returns the axis of tokens that a caller named."""
    if isinstance(tokens, AXES):
        return tokens
    if is_tokenizer(tokens):
        raise KindError(
            f"{name} is a tokenizer, and the weights have no token ids: write "
            "View(weights, tokenizer.convert_ids_to_tokens(inputs['input_ids'][0]))"
        )
    if isinstance(tokens, str):
        words = tokens.split()
        raise KindError(
            f"{name} must be a list of texts, one for each position; it is one text: write "
            f"{name}={words[:3] if len(words) > 1 else list(tokens.strip()[:3])}"
        )
    if isinstance(tokens, torch.Tensor):
        raise KindError(f"{name} must be texts; these are ids: write tokenizer.convert_ids_to_tokens(ids)")
    if not isinstance(tokens, Iterable):
        raise KindError(f"{name} must be a list of texts, or an axis of regard.records; it is {type_text(tokens)}")
    texts = [token if isinstance(token, str) else _numbered(name, token) for token in tokens]
    special = special_by_name(texts)
    return TokenAxis(tuple(texts), special, word_ranges(texts, special))


def _numbered(name: str, token: Any) -> str:
    if isinstance(token, bool) or not isinstance(token, (int, np.integer)):
        raise KindError(f"{name} must hold texts or numbers of positions; one is {type_text(token)}")
    return str(token)
