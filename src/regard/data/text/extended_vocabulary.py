"""The vocabulary of one text: a tokenizer's, and the text's own words out of it (See et al. 2017, section 2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.text.tokenizers import Tokenizer
from regard.data.text.words import has_space_before


@dataclass(frozen=True)
class ExtendedVocabulary:
    """The ids of a tokenizer, and an id beyond them for each different unknown piece of one text.

    Attributes:
        tokenizer: the tokenizer.
        words: the unknown pieces in the order in which they occur first; number n has the id ``len(tokenizer) + n``.
    """

    tokenizer: Tokenizer
    words: tuple[str, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> "ExtendedVocabulary":
        """Returns the vocabulary of a text, which the tokenizer encodes to ids that begin with ``ids``."""
        return cls(tokenizer, tuple(dict.fromkeys(_unknown(tokenizer, text, ids).values())))

    def encode(self, text: str, ids: Sequence[int]) -> list[int]:
        """Returns the ids of a text: ``ids``, with those of this vocabulary for the unknown pieces in it.

        Args:
            text: a text.
            ids: the ids that the tokenizer encodes it to, or the first of them.
        """
        extended = list(ids)
        if self.words:
            own = {word: len(self.tokenizer) + number for number, word in enumerate(self.words)}
            for position, word in _unknown(self.tokenizer, text, ids).items():
                extended[position] = own.get(word, self.tokenizer.UNK)
        return extended

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Returns a label for each id, as `Tokenizer.tokens` does; words of the text as they are written."""
        labels = self.tokenizer.tokens(self._known(ids))
        words = map(self._word, ids)
        return [label if word is None else word.strip() or "␣" for word, label in zip(words, labels, strict=True)]

    def word_groups(self, ids: Sequence[int]) -> list[range]:
        """Returns the tokens of each word, as `Tokenizer.word_groups` does."""
        return self.tokenizer.word_groups(self._known(ids), unknown=self._texts(ids))

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, without padding, ``bos`` and ``eos``."""
        return self.tokenizer.decode(self._known(ids), unknown=self._texts(ids))

    def _texts(self, ids: Sequence[int]) -> list[str]:
        """Returns the text of each id that the tokenizer does not know."""
        tokens, texts = self.tokens(ids), []
        for position, id in enumerate(ids):
            word = self._word(id)
            if word is None:
                if id == self.tokenizer.UNK:
                    texts.append(" ⁇" if self.tokenizer.kind == "word" else "⁇")
                continue
            # An unknown piece does not say whether a space came before it; before a word there is one.
            spaced = self.tokenizer.kind == "word" and has_space_before(word, tokens[position - 1] if position else "")
            texts.append(f" {word}" if spaced else word)
        return texts

    def _known(self, ids: Sequence[int]) -> list[int]:
        return [id if id < len(self.tokenizer) else self.tokenizer.UNK for id in ids]

    def _word(self, id: int) -> str | None:
        return self.words[id - len(self.tokenizer)] if id >= len(self.tokenizer) else None


def _unknown(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> dict[int, str]:
    """Returns the position of each unknown id, and the text that it stands for."""
    if tokenizer.UNK not in ids:
        return {}
    written = tokenizer.written(text)
    return {position: written[position] or " " for position, id in enumerate(ids) if id == tokenizer.UNK}
