"""Tokenizers: byte-pair encoding, words or characters, trained on a corpus and saved as JSON.

`Tokenizer` is for sentences: white space is normalized, and for text of known pieces
``decode(encode(text)) == normalize(text)``. A piece that follows a space starts with the mark ``▁`` (U+2581), so that
`decode` knows the spaces. `TextTokenizer` is for running text: no character is changed or lost, and
``decode(encode(text)) == text``.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from regard.data.text.piece_tokenizer import UNKNOWN_TEXT, Merges, PieceTokenizer
from regard.data.text.words import character_class, word_spans
from regard.errors import DataError

if TYPE_CHECKING:
    import tokenizers

MARK = "▁"
"""Stands for the space before a piece."""

# Python's white space, and the mark itself: a mark in the text becomes a space, so each mark in a piece is a space.
_SPACES = r"[\s▁\x{1C}-\x{1F}]+"
_CODES = 0x110000  # of Unicode


def _is_space(character: str) -> bool:
    return character == MARK or character.isspace()


class Tokenizer(PieceTokenizer):
    """Converts a sentence to ids and ids to text.

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
    SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
    PATTERNS: ClassVar[Mapping[str, str]] = {
        # A run of letters with their combining marks, a digit, or any other character, each with the space before it.
        "bpe": r"▁?[\p{L}\p{M}]+|▁?\p{N}|▁?[^\p{L}\p{M}\p{N}▁]|▁",
        "word": r"▁?[\p{L}\p{M}\p{N}_]+|▁?[^\p{L}\p{M}\p{N}_▁]|▁",
        "char": ".",
    }
    FILE = "a tokenizer of regard"

    def __init__(self, kind: str, lowercase: bool, pieces: Sequence[str], merges: Merges = ()):
        """Makes a tokenizer of a kind of `KINDS` with known pieces, by id, the four special pieces first, and for
        ``"bpe"`` the pairs of pieces to join, the most frequent first; ``lowercase``: texts are turned into lower case
        first."""
        super().__init__(kind, pieces, merges, self._pipeline(kind, lowercase, pieces, merges))
        self.lowercase = lowercase

    @classmethod
    def train(
        cls, texts: Iterable[str], kind: str = "bpe", size: int = 8000, lowercase: bool = False, min_count: int = 1
    ) -> "Tokenizer":
        """Learns the pieces of a corpus.

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
        cls._check_training(kind, size)
        pipeline = cls._pipeline(kind, lowercase, cls.SPECIAL, [])
        limit = _CODES + len(cls.SPECIAL) if kind == "char" else size
        frequency = {"bpe": 2, "word": min_count, "char": 1}[kind]
        try:
            pieces, merges = cls._learn(pipeline, texts, limit, min_frequency=frequency)
        except TypeError as error:
            raise DataError(
                "a text to train on is not text, or holds half a surrogate pair; check the corpus"
            ) from error
        if len(pieces) == len(cls.SPECIAL) and min_count > 1:
            raise DataError(f"no word of the corpus occurs {min_count} times; lower min_count")
        if len(pieces) == len(cls.SPECIAL):
            raise DataError("there is no text to train a tokenizer on; the corpus is empty or white space only")
        return cls(kind, lowercase, pieces, merges)

    def _written(self, id: int) -> str:
        return self._pieces[id].replace("▁", " ")

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, size={len(self)}, lowercase={self.lowercase})"

    def normalize(self, text: str) -> str:
        """Returns the text as `decode` does: Unicode NFC, runs of white space as one space, none at the ends."""
        return self._checked(self._backend.normalizer.normalize_str, text)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without ``bos`` and ``eos``; ``[]`` for white space."""
        return self._checked(self._backend.encode, text).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes many texts, on all cores."""
        return [encoded.ids for encoded in self._checked(self._backend.encode_batch_fast, list(texts))]

    def spans(self, text: str) -> list[range]:
        """Returns the characters of a text that each id of `encode` stands for, without white space.

        The spans follow each other, and none has a character of another one: a character that the normalization
        composes belongs to the piece of the result with the characters before it. A piece that is nothing but a space
        has the empty range before what follows it; a piece of a character that the normalization takes apart, and that
        is not its first piece, the empty range behind that character.
        """
        encoded = self._checked(self._backend.encode, text)
        starts = [start for start, _ in encoded.offsets]
        stops = [len(text)]
        for start, later in zip(reversed(starts), [len(text), *reversed(starts)], strict=False):
            stops.append(later if later > start else stops[-1])
        spans, end = [], 0
        for id, start, stop in zip(encoded.ids, starts, reversed(stops[1:]), strict=True):
            if start < end:
                start = stop = end
            while start < stop and _is_space(text[start]):
                start += 1
            if self._pieces[id] == MARK:  # the mark before the first word stands for no character
                stop = start
            while start < stop and _is_space(text[stop - 1]):
                stop -= 1
            spans.append(range(start, stop))
            end = stop
        return spans

    def written(self, text: str) -> list[str]:
        """Returns the text of each id of `encode`, as `decode` would write it; empty for a space."""
        text = self.normalize(text)
        return [text[span.start : span.stop] for span in self.spans(text)]

    def decode(self, ids: Iterable[int], *, unknown: str | Sequence[str] = UNKNOWN_TEXT) -> str:
        """Returns the text of ids.

        Args:
            ids: ids of the vocabulary; padding, ``bos`` and ``eos`` are left out.
            unknown: the text for every unknown piece, or one for each.
        """
        left_out = (self.PAD, self.BOS, self.EOS)
        texts = repeat(unknown) if isinstance(unknown, str) else iter(unknown)
        pieces = [next(texts) if id == self.UNK else self._piece(id) for id in ids if id not in left_out]
        return "".join(pieces).replace(MARK, " ").strip(" ")

    def word_groups(
        self, ids: Sequence[int], text: str | None = None, *, unknown: Sequence[str] | None = None
    ) -> list[range]:
        """Returns the tokens of each word (as `regard.data.text.words` defines it).

        Args:
            ids: ids of the vocabulary.
            text: the text that was encoded to ``ids``, or None. With it, a word that is unknown in part is one group.
            unknown: without the text, the text for each unknown piece, as in `decode`.

        Returns:
            ranges of positions in ``ids``, in order, that cover every position once; a special id whose text is not
            known is a group.
        """
        words = self._words_without_text(ids, unknown) if text is None else self._words_in(text)
        runs = groupby(range(len(words)), lambda position: (position,) if words[position] is None else words[position])
        positions = [list(run) for _, run in runs]
        return [range(run[0], run[-1] + 1) for run in positions]

    def _words_in(self, text: str) -> list[int | None]:
        """Returns the number of the word of each token of a text."""
        word_at = {position: number for number, span in enumerate(word_spans(text)) for position in span}
        words: list[int | None] = []
        end = 0
        for span in self.spans(text):
            is_rest = not span and words and span.start == end  # of a character that was taken apart
            words.append(words[-1] if is_rest else word_at.get(span.start))
            end = span.stop
        return words

    def _words_without_text(self, ids: Sequence[int], unknown: Sequence[str] | None) -> list[int | None]:
        text, starts = "", []
        texts, first = iter(unknown or ()), self.UNK + (unknown is None)  # whose text is known
        for id in ids:
            piece = self._piece(id).replace(MARK, " ")
            if id == self.UNK and unknown is not None:
                piece = next(texts)
            elif id <= self.UNK:
                # A separate word; the unknown piece does not say whether a space came before it.
                piece = UNKNOWN_TEXT if id == self.UNK else f" {UNKNOWN_TEXT} "
            starts.append(len(text) + len(piece) - len(piece.lstrip(" ")))
            text += piece
        word_at = {position: number for number, span in enumerate(word_spans(text)) for position in span}
        return [word_at.get(start, -1) if id >= first else None for id, start in zip(ids, starts, strict=True)]

    def words(self, ids: Sequence[int]) -> list[str]:
        """Returns the words that `word_groups` groups, as text; special ids by their names."""
        return [
            self._pieces[ids[group.start]] if ids[group.start] <= self.UNK else self.decode(ids[i] for i in group)
            for group in self.word_groups(ids)
        ]

    def tokens(self, ids: Sequence[int], text: str | None = None) -> list[str]:
        """Returns a label for each id, for pictures: a piece that continues a word begins with ``·``, a space is ``␣``.

        Args:
            ids: ids of the vocabulary.
            text: the text that was encoded to ``ids``, or None. With it, an unknown piece is labelled as it is written.
        """
        inside = {i for group in self.word_groups(ids, text) for i in group[1:]}
        unknown = {} if text is None else self._unknown_labels(ids, text)
        labels = []
        for position, id in enumerate(ids):
            label = unknown.get(position) or self._piece(id).lstrip(MARK) or "␣"
            if character_class(label[0]) == "mark":
                label = "◌" + label
            labels.append(f"·{label}" if position in inside and self.kind == "bpe" else label)
        return labels

    def _unknown_labels(self, ids: Sequence[int], text: str) -> dict[int, str]:
        """Returns the text of unknown ids as it is written, or as normalized for the rest of a decomposed character."""
        if self.UNK not in ids:
            return {}
        spans, written = self.spans(text), self.written(text)
        return {
            position: text[spans[position].start : spans[position].stop] or written[position]
            for position, id in enumerate(ids)
            if id == self.UNK
        }

    @classmethod
    def _from_content(cls, content: Any) -> Self:
        if "regard" in cls._mapping(content):  # the format of version 0.1
            if content["regard"] != {"what": "tokenizer", "format": 1}:
                raise ValueError("no header of a tokenizer of format 1")
            lowercase = content.get("lowercase")
            kind, pieces, merges = cls._checked_parts(content.get("kind"), content.get("pieces"), content.get("merges"))
        else:
            kind, pieces, merges = cls._parts_of_standard(content)
            normalizers = cls._mapping(content.get("normalizer")).get("normalizers") or ()
            steps = [cls._mapping(part).get("type") for part in normalizers]
            if [step for step in steps if step != "Lowercase"] != ["NFC", "Replace", "Strip"]:
                raise ValueError("the normalizer is of another kind")
            if content["model"].get("unk_token") != cls.SPECIAL[cls.UNK]:
                raise ValueError("the unknown piece is another one")
            lowercase = "Lowercase" in steps
        if not isinstance(lowercase, bool):
            raise ValueError("lowercase is neither true nor false")
        return cls(kind, lowercase, pieces, merges)

    def _state(self) -> dict[str, Any]:
        return {
            "regard": {"what": "tokenizer", "format": 1},
            "kind": self.kind,
            "lowercase": self.lowercase,
            "pieces": self._pieces,
            "merges": self._merges,
        }

    @staticmethod
    def _checked(call: Any, text: Any) -> Any:
        try:
            return call(text)
        except (TypeError, UnicodeEncodeError) as error:
            raise DataError(
                f"a sentence must be text without halves of surrogate pairs; got {ascii(text)[:60]}"
            ) from error

    @classmethod
    def _pipeline(cls, kind: str, lowercase: bool, pieces: Sequence[str], merges: Merges) -> "tokenizers.Tokenizer":
        model = cls._model(kind, pieces, merges)
        import tokenizers
        from tokenizers import Regex, decoders, normalizers, pre_tokenizers

        model.unk_token = cls.SPECIAL[cls.UNK]
        backend = tokenizers.Tokenizer(model)
        spaces = [normalizers.Replace(Regex(_SPACES), " "), normalizers.Strip()]
        case = [normalizers.Lowercase()] if lowercase else []
        backend.normalizer = normalizers.Sequence([*case, normalizers.NFC(), *spaces])
        # For words and sub-words the first word has a mark too, so that a word has the same pieces at every position.
        scheme = "never" if kind == "char" else "always"
        marking = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=False)
        cutting = pre_tokenizers.Split(Regex(cls.PATTERNS[kind]), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([marking, cutting])
        # Only for other programs that read the saved file: `decode` leaves out special pieces.
        backend.decoder = decoders.Metaspace(replacement=MARK, prepend_scheme=scheme, split=False)
        # The name of a special piece in a text is encoded as text.
        backend.encode_special_tokens = True
        return backend


class TextTokenizer(PieceTokenizer):
    """Converts running text to ids and back; spaces and line ends are kept as they are.

    `train` and `load` make a tokenizer. Id 0 is the end of a document, id 1 an unknown piece (which ``"bpe"`` never
    gives). No text is encoded to id 0, not even a text that contains its name.

    Attributes:
        kind: ``"bpe"`` (sub-words of bytes), ``"word"`` (words and punctuation, each with the space before it) or
            ``"char"``.
    """

    END: ClassVar[int] = 0
    UNK: ClassVar[int] = 1
    SPECIAL = ("<end>", "<unk>")
    PATTERNS: ClassVar[Mapping[str, str]] = {
        # Letters with the space before them, a digit, other visible characters, a line end, or a run of other spaces.
        # No piece goes on after a line end, so that lines can be encoded one by one.
        "bpe": r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\n|[^\S\n]+",
        "word": r" ?[\p{L}\p{M}\p{N}_]+| ?[^\s\p{L}\p{M}\p{N}_]|\s",
        "char": r"[\s\S]",
    }
    FILE = "a tokenizer of running text"

    def __init__(self, kind: str, pieces: Sequence[str], merges: Merges = ()):
        """Makes a tokenizer of known pieces; arguments as for `Tokenizer`."""
        super().__init__(kind, pieces, merges, self._pipeline(kind, pieces, merges))

    @classmethod
    def train(cls, blocks: Iterable[str], kind: str = "bpe", size: int = 8000) -> "TextTokenizer":
        """Learns the pieces of a text.

        Args:
            blocks: the text, in parts, which are read once.
            kind: ``"bpe"``, ``"word"`` or ``"char"``.
            size: entries of the vocabulary. ``"bpe"`` includes every byte and ``"char"`` every character of the text,
                even if they need more entries; ``"word"`` includes the most frequent words.

        Raises:
            DataError: there is no text.
            ArgumentError: ``size`` is too small, or ``kind`` is unknown.
        """
        cls._check_training(kind, size)
        if kind == "char":
            characters: set[str] = set()
            for block in blocks:
                characters.update(block)
            pieces, merges = [*cls.SPECIAL, *sorted(characters)], []
        else:
            pipeline = cls._pipeline(kind, cls.SPECIAL, [])
            from tokenizers import pre_tokenizers

            alphabet = pre_tokenizers.ByteLevel.alphabet()
            options = {"min_frequency": 2, "initial_alphabet": alphabet} if kind == "bpe" else {}
            pieces, merges = cls._learn(pipeline, blocks, size, **options)
        if len(pieces) == len(cls.SPECIAL) or (kind == "bpe" and not merges):
            raise DataError("there is too little text to learn a tokenizer from; give more text, or --tokenizer char")
        return cls(kind, pieces, merges)

    def _written(self, id: int) -> str:
        return self._text([id])

    def __repr__(self) -> str:
        return f"TextTokenizer(kind={self.kind!r}, size={len(self)})"

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text; ``[]`` for the empty text.

        Raises:
            DataError: the text holds half a surrogate pair.
        """
        return self.encode_array(text).tolist()

    def encode_array(self, text: str) -> np.ndarray:
        """Encodes a text as an array of int64."""
        try:
            if self.kind == "char":
                return self._id_of_code[np.frombuffer(text.encode("utf-32-le"), np.uint32)]
            return np.asarray(self._backend.encode_batch_fast([text])[0].ids, np.int64)
        except (TypeError, UnicodeEncodeError) as error:
            raise DataError(f"a text must not hold halves of surrogate pairs; got {ascii(text)[:60]}") from error

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; an unknown piece is ``⁇``, and the end of a document is left out."""
        texts: list[str] = []
        run: list[int] = []
        for id in ids:
            if id == self.UNK:
                texts += [self._text(run), UNKNOWN_TEXT]
                run = []
            elif id != self.END:
                run.append(id)
        return "".join([*texts, self._text(run)])

    def labels(self, ids: Sequence[int]) -> list[str]:
        """Returns a visible label for each id: a space is ``␣``, a line end ``↵``, a tab ``⇥``."""
        return [self._label(id) for id in ids]

    def unknown(self, text: str) -> list[str]:
        """Returns the pieces of a text that are not in the vocabulary, each once, in their order."""
        if self.kind == "bpe":
            return []
        spans = [(id, span) for id, span in zip(self.encode(text), self._spans(text), strict=True)]
        return list(dict.fromkeys(text[start:stop].strip(" ") for id, (start, stop) in spans if id == self.UNK))

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """int64 ``[vocabulary]``: bytes of each piece in UTF-8; 0 for the special ones."""
        count = len if self.kind == "bpe" else lambda piece: len(piece.encode())
        return np.array(
            [0] * len(self.SPECIAL) + [count(piece) for piece in self._pieces[len(self.SPECIAL) :]], np.int64
        )

    @classmethod
    def _from_content(cls, content: Any) -> Self:
        kind, pieces, merges = cls._parts_of_standard(content)
        if content.get("normalizer") or len(pieces) == len(cls.SPECIAL):
            raise ValueError("it changes text, or has no pieces")
        if kind == "char" and any(len(piece) != 1 for piece in pieces[len(cls.SPECIAL) :]):
            raise ValueError("a piece is not one character")
        return cls(kind, pieces, merges)

    def _state(self) -> Any:
        return [self.kind, self._pieces, self._merges]

    @cached_property
    def _id_of_code(self) -> np.ndarray:
        ids = np.full(_CODES, self.UNK, np.int64)
        ids[[ord(piece) for piece in self._pieces[len(self.SPECIAL) :]]] = np.arange(len(self.SPECIAL), len(self))
        return ids

    def _spans(self, text: str) -> list[tuple[int, int]]:
        if self.kind == "char":
            return [(start, start + 1) for start in range(len(text))]
        return self._backend.encode(text).offsets

    def _text(self, ids: list[int]) -> str:
        for id in ids:
            self._piece(id)
        return self._backend.decode(ids, skip_special_tokens=False) if ids else ""

    def _label(self, id: int) -> str:
        self._piece(id)
        if id < len(self.SPECIAL):
            return self.SPECIAL[id]
        text = self._text([id])
        if "\ufffd" in text and self.kind == "bpe":  # a part of a character
            return "".join(f"<{byte:02X}>" for byte in _bytes_of(self._pieces[id]))
        return text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥").replace("\r", "␍")

    @classmethod
    def _pipeline(cls, kind: str, pieces: Sequence[str], merges: Merges) -> "tokenizers.Tokenizer":
        model = cls._model(kind, pieces, merges)
        import tokenizers
        from tokenizers import Regex, decoders, pre_tokenizers

        backend = tokenizers.Tokenizer(model)
        steps: list[Any] = [pre_tokenizers.Split(Regex(cls.PATTERNS[kind]), "isolated")]
        if kind == "bpe":
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
        backend.decoder = decoders.ByteLevel() if kind == "bpe" else decoders.Fuse()
        return backend


def _bytes_of(piece: str) -> bytes:
    """Returns the bytes that a piece of bytes stands for: each is a visible character of the byte-level alphabet."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    byte_of = {chr(byte): byte for byte in visible} | {chr(256 + number): byte for number, byte in enumerate(others)}
    return bytes(byte_of[character] for character in piece)
