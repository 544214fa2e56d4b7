"""Tokenizers of running text: bytes merged to sub-words, words, or characters; no character is changed or lost.

``decode(encode(text)) == text`` for every text of known pieces: spaces and line ends are kept as they are. Sub-words
are built from bytes, so that no text is unknown to them.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from regard.atomic_file import write_atomically
from regard.errors import ArgumentError, DataError, MissingPartError, RunError, UnknownNameError
from regard.regular_file import LARGEST_TEXT, read_text

if TYPE_CHECKING:
    import tokenizers

SPECIAL = ("<end>", "<unk>")
"""The first pieces of every vocabulary."""

PATTERNS = {
    # Letters with the space before them, a digit, other visible characters, a line end, or a run of other spaces. No
    # piece goes on after a line end, so that lines can be encoded one by one.
    "bpe": r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\n|[^\S\n]+",
    "word": r" ?[\p{L}\p{M}\p{N}_]+| ?[^\s\p{L}\p{M}\p{N}_]|\s",
    "char": r"[\s\S]",
}
"""Kind of tokenizer → the regular expression that splits a text, before pieces are looked up."""

_UNKNOWN = "⁇"
_CODES = 0x110000


class TextTokenizer:
    """Converts running text to ids and back.

    `train` and `load` make a tokenizer. Id 0 is the end of a document, id 1 an unknown piece (which ``"bpe"`` never
    gives). No text is encoded to id 0, not even a text that contains its name.

    Attributes:
        kind: ``"bpe"`` (sub-words of bytes), ``"word"`` (words and punctuation, each with the space before it) or
            ``"char"``.
    """

    END: ClassVar[int] = 0
    UNK: ClassVar[int] = 1

    def __init__(self, kind: str, pieces: Sequence[str], merges: Sequence[tuple[str, str]] = ()):
        """A tokenizer of known pieces.

        Args:
            kind: one of `PATTERNS`.
            pieces: the vocabulary by id, the special pieces first.
            merges: for ``"bpe"``, the pairs of pieces to join, the most frequent first.
        """
        self.kind = kind
        self._pieces = list(pieces)
        self._merges = [(left, right) for left, right in merges]
        self._backend = _pipeline(kind, {piece: id for id, piece in enumerate(self._pieces)}, self._merges)

    @classmethod
    def train(cls, blocks: Iterable[str], kind: str = "bpe", size: int = 8000) -> "TextTokenizer":
        """Learn the pieces of a text.

        Args:
            blocks: the text, in parts, which are read once.
            kind: ``"bpe"``, ``"word"`` or ``"char"``.
            size: entries of the vocabulary. ``"bpe"`` includes every byte and ``"char"`` every character of the text,
                even if they need more entries; ``"word"`` includes the most frequent words.

        Raises:
            DataError: there is no text.
            ArgumentError: ``size`` is too small, or ``kind`` is unknown.
        """
        if kind not in PATTERNS:
            raise UnknownNameError("kind of tokenizer", kind, PATTERNS)
        if isinstance(size, bool) or not isinstance(size, int) or size <= len(SPECIAL):
            raise ArgumentError(f"size must be a whole number above {len(SPECIAL)}; got {size!r}")
        if kind == "char":
            characters: set[str] = set()
            for block in blocks:
                characters.update(block)
            pieces, merges = [*SPECIAL, *sorted(characters)], []
        else:
            pieces, merges = _learned(blocks, kind, size)
        if len(pieces) == len(SPECIAL) or (kind == "bpe" and not merges):
            raise DataError("there is too little text to learn a tokenizer from; give more text, or --tokenizer char")
        return cls(kind, pieces, merges)

    def __len__(self) -> int:
        """Entries of the vocabulary, the special ones included."""
        return len(self._pieces)

    def __repr__(self) -> str:
        return f"TextTokenizer(kind={self.kind!r}, size={len(self)})"

    @property
    def fingerprint(self) -> str:
        """A key that is equal for tokenizers that encode every text alike."""
        state = json.dumps([self.kind, self._pieces, self._merges])
        return hashlib.sha256(state.encode()).hexdigest()[:32]

    def encode(self, text: str) -> list[int]:
        """The ids of a text; ``[]`` for the empty text.

        Raises:
            DataError: the text holds half a surrogate pair.
        """
        return self.encode_array(text).tolist()

    def encode_array(self, text: str) -> np.ndarray:
        """`encode`, as an array of int64."""
        try:
            if self.kind == "char":
                return self._id_of_code[np.frombuffer(text.encode("utf-32-le"), np.uint32)]
            return np.asarray(self._backend.encode_batch_fast([text])[0].ids, np.int64)
        except (TypeError, UnicodeEncodeError) as error:
            raise DataError(f"a text must not hold halves of surrogate pairs; got {ascii(text)[:60]}") from error

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; an unknown piece is ``⁇``, and the end of a document is left out."""
        texts: list[str] = []
        run: list[int] = []
        for id in ids:
            if id == self.UNK:
                texts += [self._text(run), _UNKNOWN]
                run = []
            elif id != self.END:
                run.append(id)
        return "".join([*texts, self._text(run)])

    def labels(self, ids: Sequence[int]) -> list[str]:
        """One visible label for each id, for pictures and lists: a space is ``␣``, a line end ``↵``, a tab ``⇥``."""
        return [self._label(id) for id in ids]

    def unknown(self, text: str) -> list[str]:
        """The pieces of a text that are not in the vocabulary, each once, in their order."""
        if self.kind == "bpe":
            return []
        spans = [(id, span) for id, span in zip(self.encode(text), self._spans(text), strict=True)]
        return list(dict.fromkeys(text[start:stop].strip(" ") for id, (start, stop) in spans if id == self.UNK))

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """int64 ``[vocabulary]``: bytes of each piece in UTF-8; 0 for the special ones."""
        count = len if self.kind == "bpe" else lambda piece: len(piece.encode())
        return np.array([0] * len(SPECIAL) + [count(piece) for piece in self._pieces[len(SPECIAL) :]], np.int64)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer atomically, as a ``tokenizer.json`` of Hugging Face.

        ``tokenizers.Tokenizer.from_file`` encodes every text as this tokenizer, and decodes known pieces to the same.
        """
        write_atomically(path, self._backend.to_str(pretty=True).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TextTokenizer":
        """Read a file that `save` wrote. The file contains data only.

        Raises:
            RunError: the file is missing, or is not a complete tokenizer of running text.
        """
        try:
            return cls(*_parts_of(json.loads(read_text(path, LARGEST_TEXT))))
        except OSError as error:
            raise RunError(f"{path}: the tokenizer cannot be read ({error.strerror}); is this a run folder?") from error
        except MissingPartError:
            raise
        # A file of somebody else holds values of any type, and the library raises plain exceptions.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RunError(
                f"{path}: is not a tokenizer of running text, or is damaged ({reason:.200}); train it again"
            ) from error

    @cached_property
    def _id_of_code(self) -> np.ndarray:
        ids = np.full(_CODES, self.UNK, np.int64)
        ids[[ord(piece) for piece in self._pieces[len(SPECIAL) :]]] = np.arange(len(SPECIAL), len(self))
        return ids

    def _spans(self, text: str) -> list[tuple[int, int]]:
        if self.kind == "char":
            return [(place, place + 1) for place in range(len(text))]
        return self._backend.encode(text).offsets

    def _text(self, ids: list[int]) -> str:
        for id in ids:
            self._check(id)
        return self._backend.decode(ids, skip_special_tokens=False) if ids else ""

    def _label(self, id: int) -> str:
        self._check(id)
        if id < len(SPECIAL):
            return SPECIAL[id]
        text = self._text([id])
        if "\ufffd" in text and self.kind == "bpe":  # a part of a character
            return "".join(f"<{byte:02X}>" for byte in _bytes_of(self._pieces[id]))
        return text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥").replace("\r", "␍")

    def _check(self, id: int) -> None:
        if not 0 <= id < len(self._pieces):
            raise ArgumentError(f"ids must be from 0 to {len(self._pieces) - 1}; got {id}")


def _learned(blocks: Iterable[str], kind: str, size: int) -> tuple[list[str], list[tuple[str, str]]]:
    from tokenizers import pre_tokenizers, trainers

    backend = _pipeline(kind, {piece: id for id, piece in enumerate(SPECIAL)}, [])
    options: dict[str, Any] = {"vocab_size": size, "special_tokens": list(SPECIAL), "show_progress": False}
    if kind == "bpe":
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(min_frequency=2, initial_alphabet=alphabet, **options)
    else:
        trainer = trainers.WordLevelTrainer(**options)
    backend.train_from_iterator(blocks, trainer)
    model = json.loads(backend.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return pieces, [tuple(pair) for pair in model.get("merges", [])]


def _pipeline(kind: str, vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> "tokenizers.Tokenizer":
    try:
        import tokenizers
    except ImportError as error:
        raise MissingPartError("tokenizers", "train") from error
    from tokenizers import Regex, decoders, models, pre_tokenizers

    cutting = pre_tokenizers.Split(Regex(PATTERNS[kind]), "isolated")
    if kind == "bpe":
        backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([cutting, as_bytes])  # pyright: ignore
        backend.decoder = decoders.ByteLevel()  # pyright: ignore
    else:
        backend = tokenizers.Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=SPECIAL[TextTokenizer.UNK]))
        backend.pre_tokenizer = pre_tokenizers.Sequence([cutting])  # pyright: ignore
        backend.decoder = decoders.Fuse()  # pyright: ignore
    return backend


def _parts_of(content: Any) -> tuple[str, list[str], list[tuple[str, str]]]:
    """The kind, the pieces and the merges from the content of a file; ValueError if `save` cannot have written it."""
    try:
        model, steps = content["model"], content["pre_tokenizer"]["pretokenizers"]
        vocabulary, pattern = model["vocab"], steps[0]["pattern"]["Regex"]
        merges = [(str(left), str(right)) for left, right in model.get("merges", [])]
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        ids = [vocabulary[piece] for piece in pieces]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError("a part is missing") from error
    kind = next((kind for kind, known in PATTERNS.items() if pattern == known), None)
    if kind is None or model.get("type") != ("BPE" if kind == "bpe" else "WordLevel") or content.get("normalizer"):
        raise ValueError("it is of another kind")
    if ids != list(range(len(ids))) or tuple(pieces[: len(SPECIAL)]) != SPECIAL or len(pieces) == len(SPECIAL):
        raise ValueError("the ids of the vocabulary are not the numbers from 0, the special pieces first")
    if kind == "char" and any(len(piece) != 1 for piece in pieces[len(SPECIAL) :]):
        raise ValueError("a piece is not one character")
    if any(part not in vocabulary for left, right in merges for part in (left, right, left + right)):
        raise ValueError("a merge names a piece that is not there")
    return kind, pieces, merges


def _bytes_of(piece: str) -> bytes:
    """The bytes that a piece of bytes stands for: each is a visible character of the byte-level alphabet."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    byte_of = {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(others)}
    return bytes(byte_of[character] for character in piece)
