"""The common base of the tokenizers: numbered pieces, the library's pipeline that cuts a text into them, and a file."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from regard.data.labels import read_run_file
from regard.errors import ArgumentError, MissingPartError, UnknownNameError
from regard.files.atomic import write_atomically

if TYPE_CHECKING:
    import tokenizers

KINDS: Final = ("bpe", "word", "char")

UNKNOWN_TEXT = "⁇"
"""Stands for an unknown piece."""

Merges = Sequence[tuple[str, str]]


class PieceTokenizer(ABC):
    """What both tokenizers are: numbered pieces, the library's pipeline that cuts a text into them, and a file.

    Attributes:
        kind: one of `KINDS`.
        SPECIAL: the first pieces of every vocabulary.
        PATTERNS: for each kind, the regular expression that splits a text before pieces are looked up.
        UNK: id of an unknown piece.
        FILE: what a saved file is, for messages.
    """

    SPECIAL: ClassVar[tuple[str, ...]]
    PATTERNS: ClassVar[Mapping[str, str]]
    UNK: ClassVar[int]
    FILE: ClassVar[str]

    def __init__(self, kind: str, pieces: Sequence[str], merges: Merges, pipeline: "tokenizers.Tokenizer"):
        self.kind = kind
        self._pieces = list(pieces)
        self._merges = [(left, right) for left, right in merges]
        self._backend = pipeline

    def __len__(self) -> int:
        """Entries of the vocabulary, the special ones included."""
        return len(self._pieces)

    def word_ids(self) -> dict[str, list[int]]:
        """Returns the ids of each piece without the space before it, the special pieces left out; of kind ``word``."""
        ids: dict[str, list[int]] = {}
        for id in range(len(self.SPECIAL), len(self)):
            if word := self._written(id).strip():
                ids.setdefault(word, []).append(id)
        return ids

    @abstractmethod
    def _written(self, id: int) -> str:
        """Returns a piece as it is written in a text."""

    @property
    def fingerprint(self) -> str:
        """A key that is equal for tokenizers that encode every text alike."""
        return hashlib.sha256(json.dumps(self._state()).encode()).hexdigest()[:32]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the tokenizer atomically, as a ``tokenizer.json`` of Hugging Face.

        ``tokenizers.Tokenizer.from_file`` and ``transformers.PreTrainedTokenizerFast(tokenizer_file=...)`` encode every
        text as this tokenizer, and decode known pieces to the same. No piece is declared special there, so that the
        name of a special piece in a text is text for them too.
        """
        write_atomically(path, self._backend.to_str(pretty=True).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a file that `save` wrote. The file contains data only.

        Raises:
            RunError: the file is missing, or is not a complete tokenizer of this class.
        """
        return read_run_file(path, "tokenizer", cls.FILE, cls._from_content)

    @classmethod
    @abstractmethod
    def _from_content(cls, content: Any) -> Self:
        """Returns the tokenizer in the content of a file; raises ValueError if no tokenizer of this class wrote it."""

    @abstractmethod
    def _state(self) -> Any:
        """Returns everything that decides how a text is encoded."""

    def _piece(self, id: int) -> str:
        if not 0 <= id < len(self._pieces):
            raise ArgumentError(f"ids must be from 0 to {len(self._pieces) - 1}; got {id}")
        return self._pieces[id]

    @classmethod
    def _check_training(cls, kind: str, size: int) -> None:
        if kind not in KINDS:
            raise UnknownNameError("kind of tokenizer", kind, KINDS)
        if isinstance(size, bool) or not isinstance(size, int) or size <= len(cls.SPECIAL):
            raise ArgumentError(f"size must be a whole number above {len(cls.SPECIAL)}; got {size!r}")

    @classmethod
    def _learn(
        cls, pipeline: "tokenizers.Tokenizer", texts: Iterable[str], size: int, **options: Any
    ) -> tuple[list[str], Merges]:
        """Returns the pieces and merges of a corpus; options are those of the library's trainer."""
        from tokenizers import models, trainers

        kind = trainers.BpeTrainer if isinstance(pipeline.model, models.BPE) else trainers.WordLevelTrainer
        trainer: Any = kind(vocab_size=size, special_tokens=list(cls.SPECIAL), show_progress=False, **options)
        pipeline.train_from_iterator(texts, trainer)
        model = json.loads(pipeline.to_str())["model"]
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        return pieces, [tuple(pair) for pair in model.get("merges", [])]

    @classmethod
    def _model(cls, kind: str, pieces: Sequence[str], merges: Merges) -> Any:
        """Returns the library's model of some pieces."""
        with MissingPartError.instead("tokenizers", "train"):
            from tokenizers import models
        vocabulary = {piece: id for id, piece in enumerate(pieces)}
        if kind == "bpe":
            return models.BPE(vocab=vocabulary, merges=list(merges))
        return models.WordLevel(vocab=vocabulary, unk_token=cls.SPECIAL[cls.UNK])

    @classmethod
    def _checked_parts(cls, kind: Any, pieces: Any, merges: Any) -> tuple[str, list[str], Merges]:
        """Returns the parts of a tokenizer; raises ValueError if no tokenizer of this class has such parts."""
        if kind not in KINDS:
            raise ValueError("the kind is unknown")
        if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece for piece in pieces):
            raise ValueError("the pieces are not a list of texts")
        known = set(pieces)
        if tuple(pieces[: len(cls.SPECIAL)]) != cls.SPECIAL or len(known) != len(pieces):
            raise ValueError("the special pieces are not the first ones, or a piece occurs twice")
        if not isinstance(merges, list) or (merges and kind != "bpe"):
            raise ValueError("the merges do not fit the kind")
        for pair in merges:
            if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(side, str) for side in pair)):
                raise ValueError("a merge is not a pair of pieces")
            if not known.issuperset((*pair, "".join(pair))):
                raise ValueError("a merge names a piece that is not there")
        return kind, pieces, [(left, right) for left, right in merges]

    @staticmethod
    def _mapping(content: Any) -> dict[str, Any]:
        """Returns an object in the content of a file; raises ValueError if it is none."""
        if not isinstance(content, dict):
            raise ValueError("a part is missing")
        return content

    @classmethod
    def _parts_of_standard(cls, content: Any) -> tuple[str, list[str], Merges]:
        """Returns the parts of a tokenizer from the content of a ``tokenizer.json``, but for its normalizer."""
        model = cls._mapping(cls._mapping(content).get("model"))
        vocabulary = cls._mapping(model.get("vocab"))
        ids = sorted(vocabulary.values(), key=str)
        if sorted(map(str, range(len(ids)))) != [str(id) for id in ids]:
            raise ValueError("the ids of the vocabulary are not the numbers from 0")
        splits = [cls._mapping(part) for part in cls._mapping(content.get("pre_tokenizer")).get("pretokenizers") or ()]
        patterns = [cls._mapping(part.get("pattern")).get("Regex") for part in splits if part.get("type") == "Split"]
        kind = next((kind for kind, pattern in cls.PATTERNS.items() if patterns == [pattern]), None)
        if model.get("type") != ("BPE" if kind == "bpe" else "WordLevel"):
            raise ValueError("the model or the pre-tokenizer is of another kind")
        return cls._checked_parts(kind, sorted(vocabulary, key=vocabulary.__getitem__), model.get("merges", []))
