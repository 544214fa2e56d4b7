"""The corpus of a survey, from an iterable of texts to batches of token ids; memory is that of one batch."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import ArgumentError, DataError, KindError
from regard.shapes.checks import check_integers, type_text, whole_number
from regard.watching.head_statistics import TokenizedTexts
from regard.watching.token_ids import token_axis

Text = str | Sequence[int] | Tensor
"""A text, or its token ids if there is no tokenizer."""

EXAMPLE_TEXT = "The 1,024 naïve readers asked: ¿Dónde está Пётр? (It's not-so-clear…)"
"""A text that tokenizers cut in different ways."""


class CorpusBatch(NamedTuple):
    """Consecutive texts of the corpus.

    Attributes:
        number: the number of the batch, from 0.
        first: the number of its first text, from 0.
    """

    number: int
    first: int
    texts: list[Text]

    def digest(self) -> int:
        """Returns a number of 256 bits that depends on the texts and their position in the corpus."""
        hashed = hashlib.sha256(str(self.first).encode())
        for text in self.texts:
            content = text if isinstance(text, str) else repr([int(token) for token in text])
            data = content.encode("utf-8", "surrogatepass")
            hashed.update(str(len(data)).encode() + b":" + data)
        return int.from_bytes(hashed.digest())


def batches(texts: Iterable[Text], size: int) -> Iterator[CorpusBatch]:
    """Yields the corpus in batches of ``size`` texts; the last one may be smaller."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise KindError(f"texts must be an iterable of texts; it is {type_text(texts)}")
    iterator, number = iter(texts), 0
    while some := list(islice(iterator, size)):
        yield CorpusBatch(number, number * size, some)
        number += 1


class TextTokens(NamedTuple):
    """The ids of one text's tokens, and whether each is counted: all but special ones are."""

    ids: tuple[int, ...]
    counted: tuple[bool, ...]


class CorpusTokenizer:
    """Texts → tokens, by a tokenizer of Hugging Face or any function; the arguments are those of `survey`.

    Attributes:
        cut: the number of texts that were cut.
    """

    def __init__(self, tokenizer: Any, special: Iterable[int], max_length: int | None):
        if tokenizer is not None and not callable(tokenizer) and not _is_of_library(tokenizer):
            raise KindError(f"tokenizer must be a tokenizer or a function text -> ids; it is {type_text(tokenizer)}")
        self._tokenizer: Any = tokenizer
        self._special = frozenset(whole_number("each entry of special", token) for token in special)
        self._max_length = max_length
        self.cut = 0

    def tokens(self, text: Text, number: int) -> TextTokens:
        """Returns the tokens of one text; raises KindError or DataError if the tokenizer cannot take it."""
        if self._tokenizer is None:
            if isinstance(text, str):
                raise KindError(f"tokenizer must be given where texts are texts; text {number} is one")
            ids, marked = self._ids(text, number), None
        else:
            if not isinstance(text, str):
                raise KindError(f"texts must be texts where there is a tokenizer; text {number} is {type_text(text)}")
            ids, marked = self._encoded(text, number)
        if self._max_length is not None and len(ids) > self._max_length:
            self.cut += 1
            if marked is not None and _is_of_transformers(self._tokenizer):
                # The tokenizer keeps its special tokens at both ends.
                ids, marked = self._of_transformers(text, truncation=True, max_length=self._max_length)
            else:
                ids, marked = ids[: self._max_length], marked and marked[: self._max_length]
        counted = (token not in self._special and not (marked and marked[index]) for index, token in enumerate(ids))
        return TextTokens(tuple(ids), tuple(counted))

    def _of_transformers(self, text: Text, **options: Any) -> tuple[list[int], list[int]]:
        encoded = self._tokenizer(text, return_special_tokens_mask=True, **options)
        return list(encoded["input_ids"]), list(encoded["special_tokens_mask"])

    def labels(self, ids: Sequence[int]) -> list[str]:
        """Returns the text of each token, as far as the tokenizer says it; else the ids."""
        if _is_of_transformers(self._tokenizer):
            return list(token_axis(self._tokenizer, ids).tokens)
        if _is_of_library(self._tokenizer):
            return [str(self._tokenizer.id_to_token(token)) for token in ids]
        return [str(token) for token in ids]

    def describe(self) -> str:
        """Returns a text that differs between most tokenizers: a hash of the tokens of an example."""
        if self._tokenizer is None:
            return "none"
        try:
            ids, marked = self._encoded(EXAMPLE_TEXT, 0)
        except (DataError, KindError):
            return type(self._tokenizer).__qualname__
        return hashlib.sha256(repr((ids, marked)).encode()).hexdigest()

    def _encoded(self, text: str, number: int) -> tuple[list[int], list[int] | None]:
        tokenizer = self._tokenizer
        try:
            if _is_of_transformers(tokenizer):
                return self._of_transformers(text, verbose=False)
            if _is_of_library(tokenizer):
                encoding = tokenizer.encode(text)
                return list(encoding.ids), list(encoding.special_tokens_mask)
            ids = tokenizer(text)
        except Exception as error:
            raise DataError(f"the tokenizer cannot read text {number}: {error}") from error
        return self._ids(ids, number), None

    def _ids(self, ids: object, number: int) -> list[int]:
        if isinstance(ids, Tensor):
            check_integers(f"text {number}", ids)
            ids = ids.tolist()
        ids = getattr(ids, "tolist", lambda: ids)()
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Sequence):
            raise KindError(f"text {number} must be a sequence of token ids; it is {type_text(ids)}")
        return [whole_number(f"token {index} of text {number}", token, low=0) for index, token in enumerate(ids)]


def texts_by_length(batch: CorpusBatch, tokenizer: CorpusTokenizer, device: torch.device) -> list[TokenizedTexts]:
    """Returns the tokens of a batch, grouped by length to avoid padding; texts without tokens are left out."""
    groups: dict[int, list[tuple[int, TextTokens]]] = {}
    for number, text in enumerate(batch.texts, batch.first):
        tokens = tokenizer.tokens(text, number)
        if tokens.ids:
            groups.setdefault(len(tokens.ids), []).append((number, tokens))
    texts_of_lengths = []
    for group in groups.values():
        ids = torch.tensor([tokens.ids for _, tokens in group], device=device)
        counted = torch.tensor([tokens.counted for _, tokens in group], device=device)
        texts_of_lengths.append(TokenizedTexts(ids, counted, tuple(number for number, _ in group)))
    return texts_of_lengths


Forward = Callable[[torch.nn.Module, Tensor], object]
"""``(model, ids [batch, tokens])``, with a mask after the ids if there is one: returns the output of the model."""


def run_model(model: torch.nn.Module, ids: Tensor, mask: Tensor | None = None) -> Any:
    """Returns the output of any ``model(ids)``, or of a whole model of Hugging Face, which takes a mask of padding."""
    if not _is_of_transformers(model):
        if mask is not None:
            raise ArgumentError("forward must be given, a function of the model, ids and mask: a mask has many names")
        return model(ids)
    cache = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    return model(input_ids=ids, attention_mask=torch.ones_like(ids) if mask is None else mask.long(), **cache)


def call_model(model: torch.nn.Module, ids: Tensor) -> None:
    """Runs a model on token ids: any ``model(ids)``, or a model of Hugging Face, whose encoder runs if it has one."""
    if _is_of_transformers(model) and getattr(model.config, "is_encoder_decoder", False):
        model.get_encoder()(input_ids=ids, attention_mask=torch.ones_like(ids))  # type: ignore[operator]
    else:
        run_model(model, ids)


def _is_of_transformers(value: object) -> bool:
    library: Any = sys.modules.get("transformers")
    return library is not None and isinstance(value, (library.PreTrainedTokenizerBase, library.PreTrainedModel))


def _is_of_library(value: object) -> bool:
    library: Any = sys.modules.get("tokenizers")
    return library is not None and isinstance(value, library.Tokenizer)


def check_vocabulary(ids: Tensor, model: torch.nn.Module) -> None:
    """Raises ArgumentError for ids that the model's embedding does not have; PyTorch's own error is less clear."""
    if not _is_of_transformers(model):
        return
    embedding = model.get_input_embeddings()  # type: ignore[operator]
    if isinstance(embedding, torch.nn.Embedding) and ids.numel() and int(ids.max()) >= embedding.num_embeddings:
        raise ArgumentError(
            f"token id {int(ids.max())} is not below the {embedding.num_embeddings} of the model's vocabulary: "
            "is the tokenizer the model's own?"
        )
