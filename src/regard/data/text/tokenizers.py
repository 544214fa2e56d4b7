"""Tokenizers: byte-pair encoding, words or characters, trained on a corpus and saved as JSON.

For text of known pieces each kind is reversible: ``decode(encode(text)) == normalize(text)``. A piece that follows a
space starts with the mark ``▁`` (U+2581), so that `decode` knows the spaces.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

from regard.atomic_file import write_atomically
from regard.data.text.tokenizer_file import KINDS, MARK, PATTERNS, SPECIAL, parts_of
from regard.data.text.words import character_class, word_spans
from regard.errors import ArgumentError, DataError, MissingPartError, RunError, UnknownNameError
from regard.regular_file import LARGEST_TEXT, read_text

if TYPE_CHECKING:
    import tokenizers

_UNKNOWN = "⁇"
# Python's white space, and the mark itself: a mark in the text becomes a space, so each mark in a piece is a space.
_SPACES = r"[\s▁\x{1C}-\x{1F}]+"


class Tokenizer:
    """Converts text to ids and ids to text.

    `train` and `load` make a tokenizer. Ids 0 to 3 of every tokenizer are padding, ``bos``, ``eos`` and unknown. No
    text is encoded to the first three, not even a text that contains their names.

    Attributes:
        kind: ``"bpe"`` (sub-words: Sennrich, Haddow and Birch 2016, section 3.2), ``"word"`` (words and punctuation)
            or ``"char"``.
        lowercase: whether text is turned into lower case first.
    """

    PAD: ClassVar[int] = 0
    BOS: ClassVar[int] = 1
    EOS: ClassVar[int] = 2
    UNK: ClassVar[int] = 3

    def __init__(self, kind: str, lowercase: bool, pieces: Sequence[str], merges: Sequence[tuple[str, str]] = ()):
        """A tokenizer of known pieces.

        Args:
            kind: one of `KINDS`.
            lowercase: whether to turn text into lower case first.
            pieces: the vocabulary by id, the four special pieces first.
            merges: for ``"bpe"``, the pairs of pieces to join, the most frequent first.
        """
        self.kind = kind
        self.lowercase = lowercase
        self._pieces = list(pieces)
        self._merges = [(left, right) for left, right in merges]
        self._backend = _pipeline(kind, lowercase, {piece: id for id, piece in enumerate(self._pieces)}, self._merges)

    @classmethod
    def train(
        cls, texts: Iterable[str], kind: str = "bpe", size: int = 8000, lowercase: bool = False, min_count: int = 1
    ) -> "Tokenizer":
        """Learn the pieces of a corpus.

        Args:
            texts: the sentences, which are read once: an iterator is enough.
            kind: ``"bpe"``, ``"word"`` or ``"char"``.
            size: entries of the vocabulary, with the four special ones. ``"bpe"`` and ``"char"`` include every
                character of the corpus, even if they need more entries; ``"word"`` includes the most frequent words.
            lowercase: whether to turn text into lower case, here and in `encode`.
            min_count: ``"word"``: a word that occurs fewer times is unknown.

        Raises:
            DataError: there is no text, or no word occurs ``min_count`` times.
            ArgumentError: ``size`` is not larger than the number of special entries, or ``kind`` is unknown.
        """
        if kind not in KINDS:
            raise UnknownNameError("kind of tokenizer", kind, KINDS)
        if isinstance(size, bool) or not isinstance(size, int) or size <= len(SPECIAL):
            raise ArgumentError(f"size must be a whole number above {len(SPECIAL)}; got {size!r}")
        backend = _pipeline(kind, lowercase, {piece: id for id, piece in enumerate(SPECIAL)}, [])
        from tokenizers import trainers

        special = list(SPECIAL)
        if kind == "bpe":
            trainer = trainers.BpeTrainer(
                vocab_size=size,
                min_frequency=2,
                special_tokens=special,
                show_progress=False,  # pyright: ignore
            )
        else:
            limit = size if kind == "word" else 0x110000 + len(special)
            trainer = trainers.WordLevelTrainer(
                vocab_size=limit,
                min_frequency=min_count if kind == "word" else 1,  # pyright: ignore
                special_tokens=special,  # pyright: ignore
                show_progress=False,  # pyright: ignore
            )
        try:
            backend.train_from_iterator(texts, trainer)
        except TypeError as error:
            raise DataError(
                "a text to train on is not text, or holds half a surrogate pair; check the corpus"
            ) from error
        learnt = json.loads(backend.to_str())["model"]
        pieces = sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
        if len(pieces) == len(SPECIAL) and min_count > 1:
            raise DataError(f"no word of the corpus occurs {min_count} times; lower min_count")
        if len(pieces) == len(SPECIAL):
            raise DataError("there is no text to train a tokenizer on; the corpus is empty or white space only")
        return cls(kind, lowercase, pieces, [tuple(pair) for pair in learnt.get("merges", [])])

    def __len__(self) -> int:
        """Entries of the vocabulary, the special ones included."""
        return len(self._pieces)

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, size={len(self)}, lowercase={self.lowercase})"

    @property
    def fingerprint(self) -> str:
        """A key that is equal for tokenizers that encode every text alike."""
        return hashlib.sha256(json.dumps(self._state()).encode()).hexdigest()[:32]

    def normalize(self, text: str) -> str:
        """The text that `decode` returns: Unicode NFC, runs of white space as one space, none at the ends."""
        return self._checked(self._backend.normalizer.normalize_str, text)  # pyright: ignore

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without ``bos`` and ``eos``; ``[]`` for white space."""
        return self._checked(self._backend.encode, text).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts, on all cores."""
        return [encoded.ids for encoded in self._checked(self._backend.encode_batch_fast, list(texts))]

    def spans(self, text: str) -> list[range]:
        """The characters of a text that each id of `encode` stands for, without white space.

        A piece that is nothing but a space has the empty range before what follows it.
        """
        encoded = self._checked(self._backend.encode, text)
        found = []
        for start, stop in encoded.offsets:
            # Marks that a letter was composed with belong to it.
            while stop < len(text) and stop > start and character_class(text[stop]) == "mark":
                stop += 1
            start += len(text[start:stop]) - len(text[start:stop].lstrip())
            found.append(range(start, max(start, stop)))
        # The mark before the first word stands for no character.
        return [
            range(span.start, span.start) if self._pieces[id] == MARK else span
            for id, span in zip(encoded.ids, found, strict=True)
        ]

    def decode(self, ids: Iterable[int], *, unknown: str | Sequence[str] = _UNKNOWN) -> str:
        """The text of ids.

        Args:
            ids: ids of the vocabulary; padding, ``bos`` and ``eos`` are left out.
            unknown: the text for every unknown piece, or one for each.
        """
        left_out = (self.PAD, self.BOS, self.EOS)
        texts = repeat(unknown) if isinstance(unknown, str) else iter(unknown)
        pieces = [next(texts) if id == self.UNK else self._piece(id) for id in ids if id not in left_out]
        return "".join(pieces).replace(MARK, " ").strip(" ")

    def word_groups(self, ids: Sequence[int], text: str | None = None) -> list[range]:
        """The tokens of each word (as `regard.data.text.words` defines it).

        Args:
            ids: ids of the vocabulary.
            text: the text that was encoded to ``ids``, or None. With it, a word that is unknown in part is one group.

        Returns:
            ranges of positions in ``ids``, in order, that cover every position once; without the text, a special id is
            a group.
        """
        if text is not None:
            return self._groups_of(text)
        text, starts = "", []
        for id in ids:
            piece = self._piece(id).replace(MARK, " ")
            if id <= self.UNK:
                # A separate word; the unknown piece does not say whether a space came before it.
                piece = _UNKNOWN if id == self.UNK else f" {_UNKNOWN} "
            starts.append(len(text) + len(piece) - len(piece.lstrip(" ")))
            text += piece
        word_at = [-1] * (len(text) + 1)
        for number, span in enumerate(word_spans(text)):
            word_at[span.start : span.stop] = [number] * len(span)
        groups: list[range] = []
        before = None
        for position, start in enumerate(starts):
            word = word_at[start]
            if groups and word == before and ids[position] > self.UNK:
                groups[-1] = range(groups[-1].start, position + 1)
            else:
                groups.append(range(position, position + 1))
            before = word if ids[position] > self.UNK else None
        return groups

    def _groups_of(self, text: str) -> list[range]:
        word_at = {position: number for number, span in enumerate(word_spans(text)) for position in span}
        groups: list[range] = []
        before = None
        for position, span in enumerate(self.spans(text)):
            word = word_at.get(span.start)
            if groups and word is not None and word == before:
                groups[-1] = range(groups[-1].start, position + 1)
            else:
                groups.append(range(position, position + 1))
            before = word
        return groups

    def words(self, ids: Sequence[int]) -> list[str]:
        """The words that `word_groups` groups, as text; special ids by their names."""
        return [
            self._pieces[ids[group.start]] if ids[group.start] <= self.UNK else self.decode(ids[i] for i in group)
            for group in self.word_groups(ids)
        ]

    def tokens(self, ids: Sequence[int], text: str | None = None) -> list[str]:
        """One label for each id, for pictures: a piece that continues a word begins with ``·``, a space is ``␣``.

        Args:
            ids: ids of the vocabulary.
            text: the text that was encoded to ``ids``, or None. With it, an unknown piece is labelled as it is written.
        """
        inside = {i for group in self.word_groups(ids, text) for i in group[1:]}
        spans = None if text is None else self.spans(text)
        labels = []
        for position, id in enumerate(ids):
            label = self._piece(id).lstrip(MARK) or "␣"
            if text is not None and spans is not None and id == self.UNK:
                label = text[spans[position].start : spans[position].stop] or label
            if character_class(label[0]) == "mark":
                label = "◌" + label
            labels.append(f"·{label}" if position in inside and self.kind == "bpe" else label)
        return labels

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer atomically, as a ``tokenizer.json`` of Hugging Face.

        ``tokenizers.Tokenizer.from_file`` and ``transformers.PreTrainedTokenizerFast(tokenizer_file=...)`` encode every
        text as this tokenizer. No piece is declared special there, so that the name of a special piece in a text is
        text for them too.
        """
        write_atomically(path, self._backend.to_str(pretty=True).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a file that `save` wrote, in this version or in 0.1. The file contains data only.

        Raises:
            RunError: the file is missing, or is not a complete tokenizer.
        """
        try:
            state = json.loads(read_text(path, LARGEST_TEXT))
            return cls(*parts_of(state))
        except OSError as error:
            raise RunError(f"{path}: the tokenizer cannot be read ({error.strerror}); is this a run folder?") from error
        except MissingPartError:
            raise
        # A file of somebody else holds values of any type, and the library raises plain exceptions.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RunError(
                f"{path}: is not a tokenizer of regard, or is damaged ({reason:.200}); train it again"
            ) from error

    def _state(self) -> dict[str, Any]:
        return {
            "regard": {"what": "tokenizer", "format": 1},
            "kind": self.kind,
            "lowercase": self.lowercase,
            "pieces": self._pieces,
            "merges": self._merges,
        }

    def _piece(self, id: int) -> str:
        if not 0 <= id < len(self._pieces):
            raise ArgumentError(f"ids must be from 0 to {len(self._pieces) - 1}; got {id}")
        return self._pieces[id]

    @staticmethod
    def _checked(call: Any, text: Any) -> Any:
        try:
            return call(text)
        except (TypeError, UnicodeEncodeError) as error:
            raise DataError(
                f"a sentence must be text without halves of surrogate pairs; got {ascii(text)[:60]}"
            ) from error


def _pipeline(
    kind: str, lowercase: bool, vocabulary: dict[str, int], merges: list[tuple[str, str]]
) -> "tokenizers.Tokenizer":
    try:
        import tokenizers
    except ImportError as error:
        raise MissingPartError("tokenizers", "train") from error
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

    unknown = SPECIAL[Tokenizer.UNK]
    if kind == "bpe":
        model = models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown)
    else:
        model = models.WordLevel(vocab=vocabulary, unk_token=unknown)
    backend = tokenizers.Tokenizer(model)
    spaces = [normalizers.Replace(Regex(_SPACES), " "), normalizers.Strip()]
    case = [normalizers.Lowercase()] if lowercase else []
    backend.normalizer = normalizers.Sequence([*case, normalizers.NFC(), *spaces])  # pyright: ignore
    # For words and sub-words the first word has a mark too, so that a word has the same pieces at every position.
    scheme = "never" if kind == "char" else "always"
    marking = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=False)
    cutting = pre_tokenizers.Split(Regex(PATTERNS[kind]), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([marking, cutting])  # pyright: ignore
    # Only for other programs that read the saved file: `Tokenizer.decode` leaves out special pieces.
    backend.decoder = decoders.Metaspace(replacement=MARK, prepend_scheme=scheme, split=False)  # pyright: ignore
    # The name of a special piece in a text is encoded as text.
    backend.encode_special_tokens = True
    return backend
