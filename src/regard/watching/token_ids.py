"""The token ids that a watched model of Hugging Face read, and their texts by its tokenizer."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.records import TokenAxis, word_ranges
from regard.records.axis import join_contractions
from regard.tracing.transforms import active_transform, has_data
from regard.watching.generation import JoinedPart


class TokenIds:
    """The ids that the table of tokens looked up, in the order of the calls.

    Only a model that names its table of tokens is read (``get_input_embeddings`` of transformers); other models do not
    say which of their tables holds tokens.

    Attributes:
        tables: the ``id`` of each table of tokens; an encoder and a decoder may have one each.
    """

    def __init__(self, modules: Mapping[str, nn.Module]):
        tokens = _table(modules)
        self.tables: set[int] = set()
        if tokens is not None:
            self.tables = {
                id(module)
                for module in modules.values()
                if isinstance(module, nn.Embedding) and module.num_embeddings == tokens.num_embeddings
            }
        self._reads: list[tuple[int, Tensor]] = []

    def read(self, args: tuple[Any, ...], forward: int) -> None:
        """Stores the ids with which a table is called in a forward pass of the model."""
        ids = args[0] if args else None
        if isinstance(ids, Tensor) and ids.dim() == 2 and active_transform() is None and has_data(ids):
            self._reads.append((forward, ids.detach().clone()))

    def of_sequence(self, parts: Sequence[JoinedPart], has_source: bool) -> tuple[Tensor, Tensor | None]:
        """Returns the ids of a sequence's queries ``[batch, queries]``, and those of an encoder-decoder's source.

        The ``parts`` are those of one module's calls; it ``has_source`` in an encoder-decoder's decoder. ArgumentError
        is raised if the ids are not known.
        """
        # In one forward pass the decoder reads after its encoder, and before that of the next sequence.
        last = {(forward, *ids.shape): number for number, (forward, ids) in enumerate(self._reads)}
        numbers = [last.get((part.call.forward, part.call.batch, part.call.queries)) for part in parts]
        first = min((number for number in numbers if number is not None), default=0)
        reads = [None if number is None else self._reads[number][1].cpu() for number in numbers]
        if None in numbers or (has_source and first == 0):
            raise ArgumentError(
                "the model's token ids are not known (it is no model of transformers, or it read embeddings): "
                "write View(watched, tokenizer.convert_ids_to_tokens(ids)) with the ids of the example"
            )
        ids = [ids[part.rows, : part.queries] for ids, part in zip(reads, parts, strict=True) if ids is not None]
        if not has_source:
            return torch.cat(ids, dim=1), None
        # The encoder reads each source once, and the decoder has a row for each of its beams.
        source = self._reads[first - 1][1].cpu()
        return torch.cat(ids, dim=1), source[parts[0].rows * len(source) // parts[0].call.batch]


def _table(modules: Mapping[str, nn.Module]) -> nn.Embedding | None:
    """Returns the table of tokens that a model names."""
    for module in modules.values():
        # Classes are searched faster than modules.
        if getattr(type(module), "get_input_embeddings", None) is not None:
            try:
                table = module.get_input_embeddings()  # pyright: ignore[reportCallIssue]
            except (NotImplementedError, AttributeError):
                continue
            if isinstance(table, nn.Embedding):
                return table
    return None


def is_tokenizer(tokens: Any) -> bool:
    """Whether tokens are a tokenizer of transformers, which makes them of ids."""
    return callable(getattr(tokens, "convert_ids_to_tokens", None))


def token_axis(tokenizer: Any, ids: Sequence[int], text: str | None = None) -> TokenAxis:
    """Returns the axis of some token ids: readable labels, words, special tokens.

    The ``text`` is the one that was encoded to them; None: the model wrote them.
    """
    special_ids = set(tokenizer.all_special_ids)
    special = tuple(token in special_ids for token in ids)
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    labels = tuple(
        str(piece) if is_special else _label(tokenizer, id, str(piece))
        for id, piece, is_special in zip(ids, pieces, special, strict=True)
    )
    words = _words(tokenizer, ids, text)
    words = join_contractions(labels, words) if words else word_ranges(labels, special)
    return TokenAxis(labels, special, words)


def _label(tokenizer: Any, id: int, piece: str) -> str:
    """Returns a token as text: bytes become the characters that they encode, a space before a word becomes ``▁``."""
    if "▁" in piece or piece.isascii():
        return piece
    text = tokenizer.decode([id])
    if not text or "\ufffd" in text:  # a part of a character
        return piece
    return text.replace(" ", "▁")


def _words(tokenizer: Any, ids: Sequence[int], text: str | None) -> tuple[range, ...]:
    """Returns the positions of each word according to the tokenizer; () if unknown."""
    if text is None or not getattr(tokenizer, "is_fast", False):
        return ()
    encoded = tokenizer(text)
    numbers = encoded.word_ids() if list(encoded["input_ids"]) == list(ids) else []
    if not any(number is not None for number in numbers):
        return ()
    words: list[range] = []
    before: object = object()
    for position, number in enumerate(numbers):
        if number is not None and number == before:
            words[-1] = range(words[-1].start, position + 1)
        else:
            words.append(range(position, position + 1))
        before = number
    return tuple(words)
